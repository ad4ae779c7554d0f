//! Push behind a rule, in virtual time: connections are cut, readers are slow, publishers retry. Every accepted publication reaches
//! every client once, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Push, PushNamespace};
use ringmain_push::HistoryOptions;
use ringmain_web::testing::{Fault, Plan, Setup, TestClient, TestEvent, TestSocket};
use serde_json::Value;

use crate::push::{config, push};

/// The number of publications: each has its number, and enough text that a reader can be slow.
const PUBLICATIONS: u64 = 120;
const TEXT_BYTES: usize = 3000;

/// The limit of bytes queued for a client: less than all publications.
const WAITING_BYTES: usize = 32 << 10;

const SEEDS: u64 = 60;

/// The number of attempts at an operation that faults may prevent.
const TRIES: usize = 500;

fn settings(connections_per_user: u32) -> Push {
    let mut kept = PushNamespace {
        recovery: true,
        ..PushNamespace::default()
    };
    kept.channel_options.history = Some(HistoryOptions {
        publications: 1000,
        bytes: 1 << 20,
        ttl: Duration::from_hours(1),
    });
    let mut push = Push {
        namespaces: [("kept".into(), kept)].into(),
        connections_per_user,
        ..push()
    };
    push.limits.queued_bytes = WAITING_BYTES;
    push
}

/// A network that cuts, holds up and resets, but tells no lies.
fn plan(seed: u64) -> Plan {
    let often = [
        Fault::CutRead,
        Fault::ReceiveStops,
        Fault::ShortSend,
        Fault::HeldSend,
        Fault::LateCompletion,
        Fault::AtOnce,
        Fault::SlowWire,
        Fault::NoBuffers,
    ];
    let seldom = [Fault::Reset, Fault::ResetLosesBytes, Fault::AcceptAborted];
    let mut plan = Plan::calm();
    plan = often.into_iter().fold(plan, |plan, fault| plan.with(fault, 100));
    let resets = [0, 2, 8][(seed % 3) as usize];
    plan = seldom
        .into_iter()
        .fold(plan, |plan, fault| plan.with(fault, resets));
    plan.send_bytes = 8 << 10;
    plan.receive_bytes = 8 << 10;
    plan
}

/// Counts of events in a run, by name: a test that never meets a case shows nothing about it.
type Met = BTreeMap<&'static str, u64>;

/// A client of a channel that recovers from its position.
#[derive(Default)]
struct Follower {
    socket: Option<TestSocket>,
    /// It has the channel's answer on this connection.
    listens: bool,
    /// The position: known once the client has subscribed.
    epoch: Option<String>,
    offset: u64,
}

impl Follower {
    /// Connects, if it is not connected.
    fn come(&mut self, client: &mut TestClient, met: &mut Met) {
        if self.socket.is_some() {
            return;
        }
        let Ok(Ok(mut socket)) = client.ws("/live/connection/websocket").try_open() else {
            *met.entry("not connected").or_default() += 1;
            return;
        };
        let stood = self.epoch.as_ref().map_or_else(String::new, |epoch| {
            format!(r#","recover":true,"epoch":"{epoch}","offset":{}"#, self.offset)
        });
        socket.send_text(format!(
            "{{\"id\":1,\"connect\":{{}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"kept:a\"{stood}}}}}"
        ));
        self.socket = Some(socket);
        self.listens = false;
    }

    /// Leaves without a word.
    fn leave(&mut self, random: &mut Rng) {
        if let Some(mut socket) = self.socket.take()
            && random.bool()
        {
            socket.connection().reset();
        }
    }

    /// Processes received messages, or waits for one.
    fn look(&mut self, waits: bool, met: &mut Met) {
        loop {
            let Some(socket) = &mut self.socket else { return };
            let event = if waits {
                socket.event().map(Some)
            } else {
                socket.event_now()
            };
            match event {
                Ok(Some(TestEvent::Message(message))) => {
                    let text = String::from_utf8(message.data().to_vec()).expect("JSON");
                    text.lines().for_each(|line| self.hear(line, met));
                }
                Ok(Some(TestEvent::Ping(_) | TestEvent::Pong(_))) => {}
                Ok(Some(TestEvent::Close(code, reason))) => {
                    assert_eq!(code, 3008, "{reason}");
                    *met.entry("too slow").or_default() += 1;
                    self.socket = None;
                }
                Ok(Some(TestEvent::End)) | Err(_) => {
                    *met.entry("cut").or_default() += 1;
                    self.socket = None;
                }
                Ok(None) => return,
            }
            if waits {
                return;
            }
        }
    }

    fn hear(&mut self, line: &str, met: &mut Met) {
        let said: Value = serde_json::from_str(line).expect("JSON");
        assert!(said.get("error").is_none(), "{line}");
        if said == serde_json::json!({}) {
            self.socket.as_mut().expect("it spoke").send_text("{}");
        } else if let Some(push) = said.get("push") {
            assert_eq!(push["channel"], "kept:a");
            self.take(&push["pub"]);
        } else if let Some(subscribed) = said.get("subscribe") {
            let missed = subscribed["publications"].as_array();
            if self.epoch.is_some() {
                assert_eq!(subscribed["recovered"], true, "{line}");
                *met.entry("recovered").or_default() += missed.map_or(0, |missed| missed.len() as u64);
            } else {
                self.offset = subscribed["offset"].as_u64().unwrap_or(0);
                assert_eq!(self.offset, 0, "nothing was published yet");
            }
            let epoch = subscribed["epoch"].as_str().expect("a life").to_owned();
            assert!(self.epoch.as_ref().is_none_or(|before| *before == epoch));
            self.epoch = Some(epoch);
            missed.into_iter().flatten().for_each(|one| self.take(one));
            self.listens = true;
        } else {
            assert_eq!(said["id"], 1, "{line}");
        }
    }

    /// Takes the next publication: none is missing, none is repeated, and each has its content.
    fn take(&mut self, publication: &Value) {
        let offset = publication["offset"].as_u64().expect("a number");
        assert_eq!(offset, self.offset + 1);
        assert_eq!(publication["data"]["n"], offset - 1);
        self.offset = offset;
    }
}

/// Publishes until it is accepted.
fn publish(client: &mut TestClient, number: u64, met: &mut Met) {
    let text = "x".repeat(TEXT_BYTES);
    let body = format!(
        r#"{{"channel":"kept:a","data":{{"n":{number},"text":"{text}"}},"idempotency_key":"n{number}"}}"#
    );
    for _ in 0..TRIES {
        let request = client.post("/live/api/publish").header("X-API-Key", "owner");
        match request.body(&*body).try_send() {
            Ok(reply) if reply.status() == 200 => {
                let said: Value = reply.json();
                assert_eq!(said["result"]["offset"], number + 1, "{said}");
                return;
            }
            // A publisher that waits too long receives an error.
            Ok(reply) => assert!(reply.status() >= 500, "{}", reply.text()),
            Err(_) => *met.entry("asked again").or_default() += 1,
        }
    }
    panic!("publication {number} is never accepted");
}

fn run(seed: u64, met: &mut Met) {
    let mut random = Rng::with_seed(seed);
    let gateway = Gateway::new(Arc::new(config(Some(settings(64)))), Duration::ZERO);
    let setup = Setup {
        seed,
        plan: plan(seed),
        workers: 1 + (seed % 3) as usize,
        timeout: Duration::from_secs(2),
        ..Setup::default()
    };
    let mut client = TestClient::with(gateway.app(), setup).expect("an application");
    let mut followers: Vec<Follower> = (0..4).map(|_| Follower::default()).collect();
    for follower in &mut followers {
        for _ in 0..TRIES {
            follower.come(&mut client, met);
            follower.look(true, met);
            if follower.listens {
                break;
            }
        }
        assert!(follower.listens, "it gets through at last");
    }
    for number in 0..PUBLICATIONS {
        publish(&mut client, number, met);
        if number == PUBLICATIONS / 2 {
            let problems = gateway.replace(Arc::new(config(Some(settings(63)))), Duration::ZERO);
            assert_eq!(problems, []);
        }
        for (index, follower) in followers.iter_mut().enumerate() {
            match (index, random.u32(0..40)) {
                (_, 0) => follower.leave(&mut random),
                (_, 1..10) => follower.come(&mut client, met),
                // One is slow: it looks seldom.
                (0, 10..39) => {}
                _ => follower.look(false, met),
            }
        }
        if random.u32(0..8) == 0 {
            client.advance(Duration::from_millis(random.u64(1..2000)));
        }
    }
    for follower in &mut followers {
        for _ in 0..TRIES {
            if follower.offset == PUBLICATIONS {
                break;
            }
            follower.come(&mut client, met);
            follower.look(true, met);
        }
        assert_eq!(follower.offset, PUBLICATIONS, "all that was accepted");
        // Nothing follows.
        follower.look(false, met);
    }
    drop(followers);
}

#[test]
fn accepted_publications_reach_every_client_once_in_order() {
    let mut met = Met::new();
    for seed in 0..SEEDS {
        println!("seed {seed}");
        run(seed, &mut met);
    }
    println!("{met:?}");
    for case in ["cut", "too slow", "recovered", "asked again", "not connected"] {
        assert!(met.contains_key(case), "{case} was never met: {met:?}");
    }
}
