//! Publications through hundreds of cuts and resubscriptions: a client that recovers receives each once and in order, whichever way its
//! connection or its subscription ended.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use ringmain_hub::history::HistoryOptions;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestEvent, TestSocket};
use serde_json::{Value, json};

use crate::api::call;
use crate::support::options;

const CHANNELS: u64 = 4;
const CLIENTS: usize = 12;
const ROUNDS: usize = 250;

fn serve(seed: u64) -> TestClient {
    let mut options = options();
    let kept = options.namespaces.get_mut("kept").expect("a namespace");
    kept.channel_options.history = Some(HistoryOptions {
        publications: 1000,
        bytes: 16 << 20,
        ttl: Duration::from_secs(300),
    });
    let setup = Setup {
        seed,
        workers: 3,
        ..Setup::default()
    };
    TestClient::with(ringmain_push::serve(App::new(), options), setup).expect("an application")
}

/// A client of one channel that stores its position and nothing else.
struct Follower {
    seed: u64,
    channel: String,
    socket: Option<TestSocket>,
    lines: VecDeque<Value>,
    epoch: String,
    /// The last received offset.
    offset: u64,
    commands: u64,
}

impl Follower {
    fn new(seed: u64, number: u64) -> Follower {
        Follower {
            seed,
            channel: format!("kept:{}", number % CHANNELS),
            socket: None,
            lines: VecDeque::new(),
            epoch: String::new(),
            offset: 0,
            commands: 0,
        }
    }

    fn command(&mut self, name: &str, mut body: Value) -> u64 {
        self.commands += 1;
        body["channel"] = json!(self.channel);
        let socket = self.socket.as_mut().expect("a connection");
        socket.send_text(json!({ "id": self.commands, name: body }).to_string());
        self.commands
    }

    fn subscribe(&mut self) {
        let body = if self.epoch.is_empty() {
            json!({})
        } else {
            json!({ "recover": true, "epoch": self.epoch, "offset": self.offset })
        };
        let number = self.command("subscribe", body);
        let reply = self.reply(number);
        let result = &reply["subscribe"];
        assert!(result.is_object(), "seed {}: {reply}", self.seed);
        if self.epoch.is_empty() {
            self.epoch = result["epoch"].as_str().expect("an epoch").to_owned();
            self.offset = result["offset"].as_u64().unwrap_or_default();
            return;
        }
        assert_eq!(result["recovered"], true, "seed {}: {reply}", self.seed);
        for publication in result["publications"].as_array().into_iter().flatten() {
            self.take(publication);
        }
    }

    fn connect(&mut self, client: &mut TestClient) {
        let mut socket = client.ws("/connection/websocket").open();
        self.commands += 1;
        socket.send_text(json!({ "id": self.commands, "connect": {} }).to_string());
        self.socket = Some(socket);
        self.lines.clear();
        self.reply(self.commands);
        self.subscribe();
    }

    /// Handles a publication, which must be the next one.
    fn take(&mut self, publication: &Value) {
        let offset = publication["offset"].as_u64();
        assert_eq!(
            offset,
            Some(self.offset + 1),
            "seed {}, {}",
            self.seed,
            self.channel
        );
        assert_eq!(publication["data"], json!({ "n": offset }), "seed {}", self.seed);
        self.offset += 1;
    }

    fn parse(&mut self, text: &str) {
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        self.lines.extend(lines);
    }

    /// Returns the reply of this number, after the publications before it.
    fn reply(&mut self, number: u64) -> Value {
        loop {
            while let Some(line) = self.lines.pop_front() {
                if line["id"] == number {
                    return line;
                }
                self.push(&line);
            }
            let text = self.socket.as_mut().expect("a connection").text();
            self.parse(&text);
        }
    }

    fn push(&mut self, line: &Value) {
        match &line["push"]["pub"] {
            Value::Null if *line == json!({}) => self.socket.as_mut().expect("a connection").send_text("{}"),
            Value::Null => panic!("seed {}: {line}", self.seed),
            publication => self.take(publication),
        }
    }

    /// Handles all received messages.
    fn receive_all(&mut self) {
        while let Some(socket) = &mut self.socket
            && let Some(event) = socket.event_now().expect("no fault")
        {
            match event {
                TestEvent::Message(message) => {
                    let text = String::from_utf8(message.data().to_vec()).expect("text");
                    self.parse(&text);
                }
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
        while let Some(line) = self.lines.pop_front() {
            self.push(&line);
        }
    }
}

#[test]
fn publications_arrive_once_and_in_order_despite_cuts() {
    let mut cuts = 0;
    for seed in 0..4 {
        let (mut rng, mut client) = (Rng::with_seed(seed), serve(seed));
        let mut followers: Vec<Follower> = (0..CLIENTS as u64)
            .map(|number| Follower::new(seed, number))
            .collect();
        for follower in &mut followers {
            follower.connect(&mut client);
        }
        let mut published = [0_u64; CHANNELS as usize];
        for _ in 0..ROUNDS {
            for _ in 0..rng.usize(1..4) {
                let channel = rng.usize(..published.len());
                published[channel] += 1;
                let data = json!({ "n": published[channel] });
                call(
                    &mut client,
                    "publish",
                    &json!({ "channel": format!("kept:{channel}"), "data": data }),
                );
            }
            let follower = &mut followers[rng.usize(..CLIENTS)];
            cuts += 1;
            match rng.usize(..6) {
                // Publications in flight are lost with the connection.
                0 => follower.socket = None,
                1 => {
                    follower.receive_all();
                    follower.socket = None;
                }
                2 => {
                    let socket = follower.socket.as_mut();
                    socket.into_iter().for_each(|socket| socket.close(1000, ""));
                    follower.socket = None;
                }
                3 if follower.socket.is_some() => {
                    let number = follower.command("unsubscribe", json!({}));
                    follower.reply(number);
                    follower.subscribe();
                }
                _ => {
                    cuts -= 1;
                    client.advance(Duration::from_millis(rng.u64(..20)));
                    follower.receive_all();
                }
            }
            if follower.socket.is_none() && rng.bool() {
                follower.connect(&mut client);
            }
        }
        for follower in &mut followers {
            if follower.socket.is_none() {
                follower.connect(&mut client);
            }
            client.advance(Duration::from_millis(100));
            follower.receive_all();
            let channel: usize = follower.channel[5..].parse().expect("a number");
            assert_eq!(
                follower.offset, published[channel],
                "seed {seed}, {}",
                follower.channel
            );
        }
        drop(followers);
        client.finish().expect("it ends");
    }
    assert!(cuts >= 262, "{cuts} cuts");
}
