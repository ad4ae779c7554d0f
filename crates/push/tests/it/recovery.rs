//! Recoveries and replies beyond a client's queue, the reported positions, and the permission to recover.

use ringmain_hub::history::HistoryOptions;
use ringmain_push::limits::{CLIENT_REPLY_BYTES, RECOVERED_BYTES, RECOVERED_WITH_REPLY_BYTES};
use ringmain_push::{Namespace, Options};
use ringmain_web::testing::{TestClient, TestSocket};
use serde_json::{Value, json};

use crate::support::{Stream, options, serve, serve_by, with_query};
use crate::token_signing::{guarded, serve_guarded, token};

const BYTES: usize = 20_000;

/// Returns the next message of a transport.
type NextLine = Box<dyn FnMut() -> Value>;

/// Makes channels of `kept` retain this much.
fn with_history(publications: usize, mut options: Options) -> Options {
    for namespace in options.namespaces.values_mut() {
        namespace.channel_options.history = Some(HistoryOptions {
            publications,
            bytes: 64 << 20,
            ttl: std::time::Duration::from_secs(300),
        });
    }
    options
}

fn publish(client: &mut TestClient, channel: &str, data: &Value) {
    let body = json!({ "channel": channel, "data": data }).to_string();
    let request = client.post("/api/publish").header("x-api-key", "key");
    assert_eq!(request.body(body).send().status(), 200);
}

/// Publishes so many publications of [`BYTES`] bytes.
fn publish_many(client: &mut TestClient, channel: &str, count: u64) {
    let text = "x".repeat(BYTES - 30);
    for number in 1..=count {
        publish(client, channel, &json!({ "n": number, "text": text }));
    }
}

fn connect(client: &mut TestClient, commands: &[Value]) -> TestSocket {
    let mut socket = client.ws("/connection/websocket").open();
    let lines: Vec<String> = [json!({ "id": 1, "connect": {} })]
        .iter()
        .chain(commands)
        .map(Value::to_string)
        .collect();
    socket.send_text(lines.join("\n"));
    socket
}

/// Reads the next lines of a socket.
fn lines(socket: &mut TestSocket) -> Vec<Value> {
    let text = socket.text();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Returns the offsets of a reply's publications.
fn offsets(publications: &Value) -> Vec<u64> {
    let all = publications.as_array().into_iter().flatten();
    all.map(|one| one["offset"].as_u64().expect("an offset"))
        .collect()
}

/// Returns the epoch, as a client receives it.
fn epoch(client: &mut TestClient, channel: &str) -> String {
    let body = json!({ "channel": channel }).to_string();
    let request = client.post("/api/history").header("x-api-key", "key");
    let told: Value = request.body(body).send().json();
    told["result"]["epoch"].as_str().expect("an epoch").to_owned()
}

#[test]
fn a_recovery_of_any_size_is_complete_and_in_order() {
    const CHANNELS: usize = 8;
    const EACH: u64 = 45;
    let mut client = serve_by(3, with_history(100, options()));
    let channels: Vec<String> = (0..CHANNELS).map(|number| format!("kept:{number}")).collect();
    for channel in &channels {
        publish_many(&mut client, channel, EACH);
    }
    let subscribe =
        |(number, channel)| json!({ "id": number, "subscribe": { "channel": channel, "recover": true } });
    let commands: Vec<Value> = (2..).zip(&channels).map(subscribe).collect();
    let mut socket = connect(&mut client, &commands);
    let mut stands: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    let mut published = false;
    while stands.values().sum::<u64>() < CHANNELS as u64 * (EACH + u64::from(published)) {
        for line in lines(&mut socket) {
            if let Some(result) = line.get("subscribe") {
                let channel = channels[line["id"].as_u64().expect("a number") as usize - 2].clone();
                assert_eq!(result["recovered"], true, "{channel}");
                assert!(result.get("offset").is_none(), "from 0: {channel}");
                let with_reply = offsets(&result["publications"]);
                assert!(with_reply.len() * BYTES <= RECOVERED_WITH_REPLY_BYTES);
                assert_eq!(with_reply, (1..=with_reply.len() as u64).collect::<Vec<_>>());
                stands.insert(channel, with_reply.len() as u64);
            } else if let Some(push) = line.get("push") {
                let stands = stands
                    .get_mut(push["channel"].as_str().expect("a name"))
                    .expect("behind its reply");
                *stands += 1;
                assert_eq!(push["pub"]["offset"], *stands, "the next one");
            }
        }
        if !published && stands.len() == CHANNELS {
            // New publications follow the missed ones.
            published = true;
            for channel in &channels {
                publish_many(&mut client, channel, 1);
            }
        }
    }
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn a_recovery_that_is_too_large_is_reported() {
    let count = (RECOVERED_BYTES / BYTES) as u64 + 10;
    let mut client = serve(with_history(1000, options()));
    publish_many(&mut client, "kept:a", count);
    for (flag, expected) in [(0, None), (2, Some(112))] {
        let mut socket = connect(
            &mut client,
            &[json!({ "id": 2, "subscribe": { "channel": "kept:a", "recover": true, "flag": flag } })],
        );
        let reply = std::iter::from_fn(|| Some(lines(&mut socket)))
            .flatten()
            .find(|line| line["id"] == 2)
            .expect("a reply");
        assert_eq!(reply["error"]["code"].as_u64(), expected, "{reply}");
        if expected.is_none() {
            let result = &reply["subscribe"];
            assert_eq!(
                (&result["offset"], &result["was_recovering"]),
                (&json!(count), &json!(true))
            );
            assert!(result.get("recovered").is_none() && result.get("publications").is_none());
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn a_reply_that_is_too_large_is_an_error() {
    let mut client = serve(with_history(1000, options()));
    let count = (CLIENT_REPLY_BYTES / BYTES) as u64 + 10;
    publish_many(&mut client, "kept:a", count);
    let ask = |id: u64, limit: u64| json!({ "id": id, "history": { "channel": "kept:a", "limit": limit } });
    let mut socket = connect(&mut client, &[ask(2, 1000), ask(3, 40), ask(4, 1000), ask(5, 1)]);
    let mut seen = Vec::new();
    while seen.len() < 4 {
        for line in lines(&mut socket).into_iter().filter(|line| line["id"] != 1) {
            seen.push((
                line["id"].as_u64().expect("a number"),
                line["error"]["code"].as_u64().unwrap_or(0),
                offsets(&line["history"]["publications"]).len(),
            ));
        }
    }
    assert_eq!(seen, [(2, 106, 0), (3, 0, 40), (4, 106, 0), (5, 0, 1)]);
    drop(socket);
    client.finish().expect("it ends");
}

/// Commands of a client that does not read wait, and none is lost when it reads again.
#[test]
fn replies_wait_for_a_slow_client() {
    let mut client = serve(with_history(1000, options()));
    publish_many(&mut client, "kept:a", 40);
    let ask = |id: u64| json!({ "id": id, "history": { "channel": "kept:a", "limit": 40 } });
    let commands: Vec<Value> = (2..14).map(ask).collect();
    let mut socket = connect(&mut client, &commands);
    let mut next = 2;
    while next < 14 {
        for line in lines(&mut socket).into_iter().filter(|line| line["id"] != 1) {
            assert_eq!(line["id"], next);
            assert_eq!(offsets(&line["history"]["publications"]).len(), 40);
            next += 1;
        }
    }
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn publications_beyond_the_reply_follow_on_every_transport() {
    const EACH: u64 = 30;
    let mut client = serve_by(2, with_history(100, options()));
    publish_many(&mut client, "kept:a", EACH);
    let subs = json!({ "subs": { "kept:a": { "recover": true } } }).to_string();
    let commands = [
        json!({ "id": 1, "connect": {} }).to_string(),
        json!({ "id": 2, "subscribe": { "channel": "kept:a", "recover": true } }).to_string(),
    ]
    .join("\n");
    let mut of: Vec<(&str, NextLine)> = Vec::new();
    let mut stream = Stream::open(client.post("/connection/uni_http_stream").body(&*subs));
    of.push((
        "uni_http_stream",
        Box::new(move || serde_json::from_str(&stream.line()).expect("JSON")),
    ));
    let mut stream = Stream::open(client.get(&with_query("/connection/uni_sse", &subs)));
    of.push((
        "uni_sse",
        Box::new(move || serde_json::from_str(&stream.event()).expect("JSON")),
    ));
    let mut stream = Stream::open(client.post("/connection/http_stream").body(&*commands));
    of.push((
        "http_stream",
        Box::new(move || serde_json::from_str(&stream.line()).expect("JSON")),
    ));
    let mut stream = Stream::open(client.post("/connection/sse").body(&*commands));
    of.push((
        "sse",
        Box::new(move || serde_json::from_str(&stream.event()).expect("JSON")),
    ));
    let mut socket = client.ws("/connection/uni_websocket").open();
    socket.send_text(&subs);
    of.push((
        "uni_websocket",
        Box::new(move || serde_json::from_str(&socket.text()).expect("JSON")),
    ));
    for (transport, mut next) in of {
        let mut stands = 0;
        while stands < EACH {
            let line = next();
            let push = line.get("push").unwrap_or(&line);
            let all = match (&push["pub"]["offset"], &line["connect"]["subs"]["kept:a"]) {
                (Value::Number(offset), _) => vec![offset.as_u64().expect("a number")],
                (_, Value::Object(sub)) => offsets(&sub["publications"]),
                _ => offsets(&line["subscribe"]["publications"]),
            };
            for offset in all {
                stands += 1;
                assert_eq!(offset, stands, "{transport}");
            }
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn the_reported_position_is_the_requested_one() {
    let token = token(json!({ "sub": "7", "channels": ["closed:h"] }));
    let mut client = serve_guarded(2, with_history(100, guarded()));
    for number in 1..=10 {
        publish(&mut client, "closed:h", &json!(number));
    }
    let epoch = epoch(&mut client, "closed:h");
    for (from, missed) in [(7, vec![8, 9, 10]), (10, vec![]), (0, (1..=10).collect())] {
        let sub = json!({ "recover": true, "epoch": epoch, "offset": from });
        let mut socket = client.ws("/connection/websocket").open();
        let connect = json!({ "id": 1, "connect": { "token": token, "subs": { "closed:h": sub } } });
        socket.send_text(connect.to_string());
        let result = lines(&mut socket)[0]["connect"]["subs"]["closed:h"].clone();
        assert_eq!(result["offset"].as_u64().unwrap_or(0), from, "{result}");
        assert_eq!(offsets(&result["publications"]), missed);
        assert_eq!(result["recovered"], true);
    }
    client.finish().expect("it ends");
}

/// Returns the offsets that a subscription recovers.
fn recovered_offsets(client: &mut TestClient, request: &Value) -> Option<Vec<u64>> {
    let mut socket = connect(client, &[json!({ "id": 2, "subscribe": request })]);
    let reply = std::iter::from_fn(|| Some(lines(&mut socket)))
        .flatten()
        .find(|line| line["id"] == 2)
        .expect("a reply");
    let result = &reply["subscribe"];
    assert!(result.is_object(), "{reply}");
    let all = offsets(&result["publications"]);
    assert!(result["recovered"] == true || all.is_empty(), "{reply}");
    (result["recovered"] == true).then_some(all)
}

#[test]
fn only_a_position_recovers_where_the_history_may_not_be_read() {
    let mut options = with_history(100, options());
    let kept = options.namespaces["kept"];
    for (name, recovery, history) in [("r", true, false), ("h", false, true), ("n", false, false)] {
        let namespace = Namespace {
            recovery,
            history,
            ..kept
        };
        options.namespaces.insert(name.to_owned(), namespace);
    }
    let mut client = serve(options);
    let all = Some(vec![1, 2, 3]);
    for (name, from_nowhere, asked_for, from_position) in [
        // With `recovery` and `history`, with either, and with neither.
        ("kept", all.clone(), all.clone(), all.clone()),
        ("r", None, None, all.clone()),
        ("h", None, all.clone(), None),
        ("n", None, None, None),
    ] {
        let channel = format!("{name}:a");
        for number in 1..=3 {
            publish(&mut client, &channel, &json!(number));
        }
        let epoch = epoch(&mut client, &channel);
        let nowhere = json!({ "channel": channel, "recover": true });
        assert_eq!(recovered_offsets(&mut client, &nowhere), from_nowhere, "{name}");
        let asked = json!({ "channel": channel, "recover": true, "recoverable": true });
        assert_eq!(recovered_offsets(&mut client, &asked), asked_for, "{name}");
        let position = json!({ "channel": channel, "recover": true, "epoch": epoch });
        assert_eq!(recovered_offsets(&mut client, &position), from_position, "{name}");
        // An offset without an epoch may be of another epoch.
        let half = json!({ "channel": channel, "recover": true, "recoverable": true, "offset": 1 });
        assert_eq!(recovered_offsets(&mut client, &half), None, "{name}");
    }
    client.finish().expect("it ends");
}
