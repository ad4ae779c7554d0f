//! Commands of one client about one channel are executed and their replies sent in order, whatever the delays between workers.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestSocket};
use serde_json::{Value, json};

use crate::support::options;

fn serve_seeded(seed: u64) -> TestClient {
    let setup = Setup {
        seed,
        workers: 3,
        ..Setup::default()
    };
    TestClient::with(ringmain_push::serve(App::new(), options()), setup).expect("an application")
}

/// A client that reads replies in the order in which they arrive.
struct Reader {
    socket: TestSocket,
    lines: VecDeque<Value>,
}

impl Reader {
    fn connected(client: &mut TestClient) -> Reader {
        let mut socket = client.ws("/connection/websocket").open();
        socket.send_text(r#"{"id":1,"connect":{}}"#);
        let lines = VecDeque::new();
        let mut reader = Reader { socket, lines };
        assert!(reader.next()["connect"].is_object());
        reader
    }

    /// Returns the next reply or push, except for pings.
    fn next(&mut self) -> Value {
        loop {
            if let Some(line) = self.lines.pop_front() {
                if line != json!({}) {
                    return line;
                }
                continue;
            }
            let text = self.socket.text();
            let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
            self.lines.extend(lines);
        }
    }

    fn send(&mut self, commands: &[Value]) {
        let lines: Vec<String> = commands.iter().map(Value::to_string).collect();
        self.socket.send_text(lines.join("\n"));
    }
}

#[test]
fn subscribe_unsubscribe_subscribe_ends_subscribed() {
    for seed in 0..20 {
        let mut client = serve_seeded(seed);
        let mut reader = Reader::connected(&mut client);
        for number in 0..6 {
            let channel = json!({ "channel": format!("kept:{number}") });
            reader.send(&[
                json!({ "id": 2, "subscribe": channel }),
                json!({ "id": 3, "unsubscribe": channel }),
                json!({ "id": 4, "subscribe": channel }),
            ]);
            for expected in 2..=4 {
                let reply = reader.next();
                assert_eq!(reply["id"], expected, "seed {seed}: {reply}");
                assert!(reply["error"].is_null(), "seed {seed}: {reply}");
            }
            // It is subscribed: publications reach it.
            reader.send(&[json!({ "id": 5, "publish": { "channel": channel["channel"], "data": number } })]);
            let mut both = [reader.next(), reader.next()];
            both.sort_by_key(|one| one["push"].is_null());
            assert_eq!(both[0]["push"]["pub"]["data"], number, "seed {seed}: {both:?}");
            assert_eq!(both[1]["id"], 5, "seed {seed}: {both:?}");
        }
        drop(reader);
        client.finish().expect("it ends");
    }
}

/// The expected replies of a channel, one command after the other.
#[derive(Default)]
struct Model {
    is_subscribed: bool,
    published: u64,
}

impl Model {
    /// Returns a command of this kind, and the expected part of its reply.
    fn command(&mut self, kind: usize, channel: &str, id: u64) -> (Value, Value) {
        let about = json!({ "channel": channel });
        match kind {
            0 => {
                let expected = if std::mem::replace(&mut self.is_subscribed, true) {
                    json!({ "error": 105 })
                } else {
                    json!({ "subscribe": true })
                };
                (json!({ "id": id, "subscribe": about }), expected)
            }
            1 => {
                self.is_subscribed = false;
                (
                    json!({ "id": id, "unsubscribe": about }),
                    json!({ "unsubscribe": true }),
                )
            }
            2 => {
                self.published += 1;
                let publish = json!({ "channel": channel, "data": self.published });
                (
                    json!({ "id": id, "publish": publish }),
                    json!({ "publish": true }),
                )
            }
            3 => {
                let clients = u64::from(self.is_subscribed);
                (
                    json!({ "id": id, "presence_stats": about }),
                    json!({ "num_clients": clients }),
                )
            }
            4 => (
                json!({ "id": id, "history": about }),
                json!({ "offset": self.published }),
            ),
            // An error without a query.
            _ => (json!({ "id": id, "publish": about }), json!({ "error": 107 })),
        }
    }
}

fn check(reply: &Value, expected: &Value) -> bool {
    let (name, value) = expected.as_object().and_then(|it| it.iter().next()).expect("one");
    match &**name {
        "error" => reply["error"]["code"] == *value,
        "num_clients" => reply["presence_stats"]["num_clients"] == *value,
        "offset" => reply["history"]["offset"] == *value,
        name => reply[name].is_object(),
    }
}

#[test]
fn any_mix_of_commands_about_a_channel_has_replies_in_order() {
    const CHANNELS: [&str; 3] = ["kept:a", "kept:b", "kept:c"];
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let mut client = serve_seeded(seed);
        let mut reader = Reader::connected(&mut client);
        let mut models: BTreeMap<&str, Model> = BTreeMap::new();
        let mut expected: BTreeMap<&str, VecDeque<(u64, Value)>> = BTreeMap::new();
        let mut of: BTreeMap<u64, &str> = BTreeMap::new();
        let mut id = 1;
        for _ in 0..12 {
            let mut batch = Vec::new();
            for _ in 0..random.usize(1..20) {
                id += 1;
                let channel = CHANNELS[random.usize(0..3)];
                let model = models.entry(channel).or_default();
                let (command, reply) = model.command(random.usize(0..6), channel, id);
                batch.push(command);
                expected.entry(channel).or_default().push_back((id, reply));
                of.insert(id, channel);
            }
            reader.send(&batch);
            // Some of the replies arrive before the next batch.
            while random.u8(0..4) > 0 && !of.is_empty() {
                take(&mut reader, &mut expected, &mut of, seed);
            }
        }
        while !of.is_empty() {
            take(&mut reader, &mut expected, &mut of, seed);
        }
        drop(reader);
        client.finish().expect("it ends");
    }
}

/// Reads the next reply, which is the one to the first command about its channel without one.
fn take<'c>(
    reader: &mut Reader,
    expected: &mut BTreeMap<&'c str, VecDeque<(u64, Value)>>,
    of: &mut BTreeMap<u64, &'c str>,
    seed: u64,
) {
    let reply = reader.next();
    if reply["push"].is_object() {
        assert!(reply["push"]["unsubscribe"].is_null(), "seed {seed}: {reply}");
        return;
    }
    let id = reply["id"].as_u64().expect("a number");
    let channel = of.remove(&id).expect("a command without a reply");
    let (first, value) = expected
        .get_mut(channel)
        .and_then(VecDeque::pop_front)
        .expect("one");
    assert_eq!(id, first, "seed {seed}: {channel}: {reply}");
    assert!(
        check(&reply, &value),
        "seed {seed}: {channel}: {reply}, expected {value}"
    );
}
