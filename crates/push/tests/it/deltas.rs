//! Deltas: their negotiation, and clients that recover, on several transports.

use std::time::Duration;

use ringmain_hub::delta::fossil;
use ringmain_hub::history::HistoryOptions;
use ringmain_push::Options;
use ringmain_push::limits::DELTA_PUBLICATION_BYTES;
use ringmain_web::testing::{TestClient, TestSocket};
use serde_json::{Value, json};

use crate::api::fault;
use crate::support::{Stream, options, serve, with_query};

/// Returns options with deltas in the namespaces `kept` and `delta`, of which the second retains nothing.
fn with_deltas() -> Options {
    let mut options = options();
    let kept = options.namespaces.get_mut("kept").expect("a namespace");
    kept.channel_options.delta = true;
    kept.channel_options.history = Some(HistoryOptions {
        publications: 100,
        bytes: 16 << 20,
        ttl: Duration::from_secs(60),
    });
    let mut delta = options.default_namespace;
    delta.channel_options.delta = true;
    options.namespaces.insert("delta".to_owned(), delta);
    options
}

fn state(number: u64) -> Value {
    json!({ "number": number, "text": "a long text with “quotes” ".repeat(10) })
}

fn publish(client: &mut TestClient, channel: &str, data: &Value) {
    let body = json!({ "channel": channel, "data": data });
    assert_eq!(fault(client, "publish", &body), 0);
}

/// A client that applies deltas.
#[derive(Default)]
struct Decoder {
    base: Option<Vec<u8>>,
    deltas: usize,
    wholes: usize,
}

impl Decoder {
    /// Returns the number of a publication's state.
    #[track_caller]
    fn receive(&mut self, publication: &Value) -> u64 {
        let text = publication["data"].as_str().expect("data is a text");
        let data = if publication["delta"] == true {
            self.deltas += 1;
            let base = self.base.as_ref().expect("the client has a base");
            fossil::apply(base, text.as_bytes(), 1 << 20).expect("a delta of the base")
        } else {
            self.wholes += 1;
            text.as_bytes().to_vec()
        };
        let value: Value = serde_json::from_slice(&data).expect("JSON");
        let number = value["number"].as_u64().expect("a number");
        assert_eq!(value, state(number));
        self.base = Some(data);
        number
    }

    #[track_caller]
    fn receive_all(&mut self, publications: &Value) -> Vec<u64> {
        let all = publications.as_array().into_iter().flatten();
        all.map(|publication| self.receive(publication)).collect()
    }
}

fn connect(client: &mut TestClient, subscribe: &Value) -> (TestSocket, Value) {
    let mut socket = client.ws("/connection/websocket").open();
    let commands = [
        json!({ "id": 1, "connect": {} }),
        json!({ "id": 2, "subscribe": subscribe }),
    ];
    socket.send_text(commands.map(|command| command.to_string()).join("\n"));
    let mut lines = Vec::new();
    while lines.len() < 2 {
        lines.extend(lines_of(&mut socket));
    }
    assert_eq!(lines.len(), 2);
    (socket, lines.remove(1))
}

fn lines_of(socket: &mut TestSocket) -> Vec<Value> {
    let text = socket.text();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Receives this many publications.
fn receive(socket: &mut TestSocket, decoder: &mut Decoder, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        for line in lines_of(socket) {
            if line["push"]["pub"].is_object() {
                numbers.push(decoder.receive(&line["push"]["pub"]));
            }
        }
    }
    numbers
}

#[test]
fn deltas_are_sent_to_clients_that_request_them() {
    let mut client = serve(with_deltas());
    for channel in ["kept:a", "delta:a"] {
        let (mut socket, reply) = connect(&mut client, &json!({ "channel": channel, "delta": "fossil" }));
        assert_eq!(reply["subscribe"]["delta"], true, "{reply}");
        for number in 1..=4 {
            publish(&mut client, channel, &state(number));
        }
        let mut decoder = Decoder::default();
        assert_eq!(receive(&mut socket, &mut decoder, 4), [1, 2, 3, 4]);
        assert_eq!((decoder.wholes, decoder.deltas), (1, 3), "{channel}");
    }
}

#[test]
fn deltas_are_not_sent_without_a_request_or_a_permission() {
    let mut client = serve(with_deltas());
    for (channel, delta) in [("kept:b", ""), ("b", "fossil")] {
        let (mut socket, reply) = connect(&mut client, &json!({ "channel": channel, "delta": delta }));
        assert_eq!(reply["subscribe"]["delta"], Value::Null);
        for number in 1..=2 {
            publish(&mut client, channel, &state(number));
            let line = lines_of(&mut socket).remove(0);
            assert_eq!(line["push"]["pub"]["data"], state(number));
        }
    }
    let (_, reply) = connect(&mut client, &json!({ "channel": "kept:c", "delta": "other" }));
    assert_eq!(reply["error"]["code"], 107);
}

#[test]
fn a_recovery_begins_with_a_whole_publication() {
    let mut client = serve(with_deltas());
    let (_, reply) = connect(
        &mut client,
        &json!({ "channel": "kept:a", "delta": "fossil", "recoverable": true }),
    );
    let epoch = reply["subscribe"]["epoch"].clone();
    for number in 1..=5 {
        publish(&mut client, "kept:a", &state(number));
    }
    let subscribe = json!({
        "channel": "kept:a", "delta": "fossil", "recover": true, "offset": 2, "epoch": epoch,
    });
    let (mut socket, reply) = connect(&mut client, &subscribe);
    assert_eq!(reply["subscribe"]["recovered"], true, "{reply}");
    let mut decoder = Decoder::default();
    assert_eq!(
        decoder.receive_all(&reply["subscribe"]["publications"]),
        [3, 4, 5]
    );
    assert_eq!((decoder.wholes, decoder.deltas), (1, 2));
    publish(&mut client, "kept:a", &state(6));
    assert_eq!(receive(&mut socket, &mut decoder, 1), [6]);
    assert_eq!((decoder.wholes, decoder.deltas), (1, 3));
    // Without deltas the same publications are as published.
    let subscribe = json!({ "channel": "kept:a", "recover": true, "offset": 5, "epoch": epoch });
    let (_, reply) = connect(&mut client, &subscribe);
    assert_eq!(reply["subscribe"]["publications"][0]["data"], state(6));
    // Neither does the history consist of deltas.
    let (mut socket, _) = connect(&mut client, &json!({ "channel": "kept:a", "delta": "fossil" }));
    socket.send_text(json!({ "id": 3, "history": { "channel": "kept:a", "limit": 2 } }).to_string());
    assert_eq!(
        lines_of(&mut socket)[0]["history"]["publications"][1]["data"],
        state(2)
    );
}

/// A client with deltas and a filter.
struct FilteredClient {
    kind: &'static str,
    socket: TestSocket,
    decoder: Decoder,
    received: Vec<u64>,
    offset: u64,
    epoch: Value,
}

impl FilteredClient {
    /// Connects, and recovers from this offset.
    fn connect(client: &mut TestClient, kind: &'static str, offset: u64, epoch: Value) -> FilteredClient {
        let mut subscribe = json!({
            "channel": "kept:a", "delta": "fossil", "recoverable": true,
            "tf": { "key": "kind", "cmp": "eq", "val": kind },
        });
        if epoch.is_string() {
            subscribe["recover"] = json!(true);
            subscribe["offset"] = json!(offset);
            subscribe["epoch"] = epoch.clone();
        }
        let (socket, reply) = connect(client, &subscribe);
        let subscribed = &reply["subscribe"];
        assert_eq!(subscribed["recovered"] == true, epoch.is_string(), "{reply}");
        let mut this = FilteredClient {
            kind,
            socket,
            decoder: Decoder::default(),
            received: Vec::new(),
            offset,
            epoch: subscribed["epoch"].clone(),
        };
        for publication in subscribed["publications"].as_array().into_iter().flatten() {
            this.receive(publication);
        }
        this
    }

    fn receive(&mut self, publication: &Value) {
        assert_eq!(publication["tags"]["kind"], self.kind);
        self.received.push(self.decoder.receive(publication));
        self.offset = publication["offset"].as_u64().expect("an offset");
    }

    fn receive_up_to(&mut self, count: usize) {
        while self.received.len() < count {
            for line in lines_of(&mut self.socket) {
                self.receive(&line["push"]["pub"]);
            }
        }
    }
}

/// Clients that lose their connections at random have each publication that matches their filter, once and in order.
#[test]
fn clients_with_a_filter_recover_each_publication_that_matches() {
    let (mut wholes, mut deltas) = (0, 0);
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut options = with_deltas();
        let kept = options.namespaces.get_mut("kept").expect("a namespace");
        kept.channel_options.tags_filter = true;
        let mut client = serve(options);
        let kinds = ["a", "b"];
        let mut clients = kinds.map(|kind| FilteredClient::connect(&mut client, kind, 0, Value::Null));
        let mut expected = [Vec::new(), Vec::new()];
        for number in 1..=60 {
            let kind = random.usize(..2);
            expected[kind].push(number);
            let body = json!({ "channel": "kept:a", "data": state(number), "tags": { "kind": kinds[kind] } });
            assert_eq!(fault(&mut client, "publish", &body), 0);
            for (at, filtered) in clients.iter_mut().enumerate() {
                match random.u8(..6) {
                    0 | 1 => filtered.receive_up_to(expected[at].len()),
                    2 => {
                        let (offset, epoch) = (filtered.offset, filtered.epoch.clone());
                        let again = FilteredClient::connect(&mut client, filtered.kind, offset, epoch);
                        let before = std::mem::replace(filtered, again);
                        filtered.received.splice(0..0, before.received);
                        filtered.decoder.wholes += before.decoder.wholes;
                        filtered.decoder.deltas += before.decoder.deltas;
                    }
                    _ => {}
                }
            }
        }
        for (filtered, expected) in clients.iter_mut().zip(&expected) {
            filtered.receive_up_to(expected.len());
            assert_eq!(&filtered.received, expected);
            wholes += filtered.decoder.wholes;
            deltas += filtered.decoder.deltas;
        }
    }
    assert!(
        wholes > 50 && deltas > 50,
        "both were sent often: {wholes}, {deltas}"
    );
}

/// A recovery that does not fit into one reply continues with deltas in pushes.
#[test]
fn a_long_recovery_continues_in_pushes() {
    let mut client = serve(with_deltas());
    let (_, reply) = connect(&mut client, &json!({ "channel": "kept:a", "recoverable": true }));
    let epoch = reply["subscribe"]["epoch"].clone();
    let large = |number: u64| json!({ "number": number, "text": "x".repeat(100_000) });
    for number in 1..=6 {
        publish(&mut client, "kept:a", &large(number));
    }
    let subscribe = json!({
        "channel": "kept:a", "delta": "fossil", "recover": true, "offset": 0, "epoch": epoch,
    });
    let (mut socket, reply) = connect(&mut client, &subscribe);
    let first = reply["subscribe"]["publications"]
        .as_array()
        .expect("publications")
        .clone();
    assert!((1..6).contains(&first.len()), "{}", first.len());
    let mut publications = first;
    while publications.len() < 6 {
        let lines = lines_of(&mut socket).into_iter();
        publications.extend(lines.map(|line| line["push"]["pub"].clone()));
    }
    let mut base = Vec::new();
    for (publication, number) in publications.iter().zip(1..) {
        let text = publication["data"].as_str().expect("a text").as_bytes();
        assert_eq!(publication["delta"] == true, number > 1);
        base = if number > 1 {
            fossil::apply(&base, text, 1 << 20).expect("a delta of the one before")
        } else {
            text.to_vec()
        };
        assert_eq!(
            serde_json::from_slice::<Value>(&base).expect("JSON"),
            large(number)
        );
    }
}

/// Subscriptions by the server, and those of unidirectional clients, have deltas if the connect request says so.
#[test]
fn a_connect_request_may_request_deltas() {
    let mut client = serve(with_deltas());
    let connect = json!({ "subs": { "kept:a": { "delta": "fossil" }, "kept:b": {} } });
    let mut stream = Stream::open(client.get(&with_query("/connection/uni_sse", &connect.to_string())));
    let connected: Value = serde_json::from_str(&stream.event()).expect("JSON");
    assert_eq!(
        connected["connect"]["subs"]["kept:a"]["delta"], true,
        "{connected}"
    );
    assert_eq!(connected["connect"]["subs"]["kept:b"]["delta"], Value::Null);
    let mut decoder = Decoder::default();
    for number in 1..=3 {
        publish(&mut client, "kept:a", &state(number));
        publish(&mut client, "kept:b", &state(number));
    }
    for _ in 0..6 {
        let push: Value = serde_json::from_str(&stream.event()).expect("JSON");
        if push["channel"] == "kept:a" {
            decoder.receive(&push["pub"]);
        } else {
            assert!(push["pub"]["data"].is_object());
        }
    }
    assert_eq!((decoder.wholes, decoder.deltas), (1, 2));
}

#[test]
fn publications_in_channels_with_deltas_are_limited() {
    let mut client = serve(with_deltas());
    let text = "x".repeat(DELTA_PUBLICATION_BYTES);
    assert_eq!(
        fault(
            &mut client,
            "publish",
            &json!({ "channel": "delta:a", "data": text })
        ),
        106
    );
    assert_eq!(
        fault(&mut client, "publish", &json!({ "channel": "a", "data": text })),
        0
    );
    let broadcast = json!({ "channels": ["a", "delta:a"], "data": text });
    let told = crate::api::call(&mut client, "broadcast", &broadcast);
    assert_eq!(told["result"]["responses"][1]["error"]["code"], 106, "{told}");
}
