//! Unidirectional clients, on all three transports.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_push::Options;
use ringmain_push::limits::{PING_INTERVAL, PONG_TIMEOUT};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::Value;

use crate::support::{Stream, masked, options, serve, serve_by, with_query};

#[track_caller]
fn publish(client: &mut TestClient, channel: &str, data: &str) {
    let reply = client.post("/api/publish").header("x-api-key", "key");
    let body = format!(r#"{{"channel":"{channel}","data":{data}}}"#);
    let reply = reply.header("content-type", "application/json").body(body).send();
    let done = reply.text().starts_with(r#"{"result":{"#);
    assert!(reply.status() == 200 && done, "{}", reply.text());
}

/// Returns the connect push with these subscriptions.
fn connected(subs: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(r#"{{"connect":{{"client":"CLIENT","version":"ringmain {version}",{subs}"ping":25}}}}"#)
}

const BOTH: &str = r#"{"subs":{"news":{},"kept:a":{}}}"#;
const BOTH_TOLD: &str =
    r#""subs":{"kept:a":{"recoverable":true,"epoch":"EPOCH","positioned":true},"news":{}},"#;
const NEWS: &str = r#"{"channel":"news","pub":{"data":[1]}}"#;

#[test]
fn a_plain_event_source_connects() {
    let mut client = serve(options());
    let mut stream = Stream::open(client.get("/connection/uni_sse"));
    assert_eq!(
        stream.reply.head().header("content-type"),
        Some("text/event-stream")
    );
    assert_eq!(masked(&stream.event()), connected(""));
    drop(stream);
    client.finish().expect("it ends");
}

#[test]
fn unidirectional_pushes_have_no_replies() {
    let mut client = serve_by(3, options());
    let mut events = Stream::open(client.get(&with_query("/connection/uni_sse", BOTH)));
    let mut posted = Stream::open(client.post("/connection/uni_sse").body(BOTH));
    let mut lines = Stream::open(client.post("/connection/uni_http_stream").body(BOTH));
    let mut socket = client.ws("/connection/uni_websocket").open();
    socket.send_text(BOTH);
    let mut all = || [events.event(), posted.event(), lines.line(), socket.text()];
    assert_eq!(
        all().map(|told| masked(&told)),
        [(); 4].map(|()| connected(BOTH_TOLD))
    );
    publish(&mut client, "news", "[1]");
    assert_eq!(all(), [NEWS; 4]);
    publish(&mut client, "kept:a", "2");
    assert_eq!(all(), [r#"{"channel":"kept:a","pub":{"data":2,"offset":1}}"#; 4]);
    // Messages of a unidirectional client are ignored.
    drop((events, posted, lines));
    socket.send_text("nothing");
    publish(&mut client, "news", "[1]");
    assert_eq!(socket.text(), NEWS);
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn missed_publications_are_part_of_the_connect_reply() {
    let mut client = serve(options());
    for data in ["1", "2", "3"] {
        publish(&mut client, "kept:a", data);
    }
    let mut first = Stream::open(
        client
            .post("/connection/uni_http_stream")
            .body(r#"{"subs":{"kept:a":{}}}"#),
    );
    let told: Value = serde_json::from_str(&first.line()).expect("JSON");
    let epoch = told["connect"]["subs"]["kept:a"]["epoch"]
        .as_str()
        .expect("an epoch")
        .to_owned();
    drop(first);
    let recover = |offset: u64| {
        format!(r#"{{"subs":{{"kept:a":{{"recover":true,"offset":{offset},"epoch":"{epoch}","flag":2}}}}}}"#)
    };
    let mut stream = Stream::open(client.post("/connection/uni_http_stream").body(recover(1)));
    let told = masked(&stream.line());
    let publications = r#""publications":[{"data":2,"offset":2},{"data":3,"offset":3}],"recovered":true"#;
    assert!(told.contains(publications), "{told}");
    // Beyond the retained history: it is notified, and subscribed.
    let mut late = Stream::open(client.post("/connection/uni_http_stream").body(recover(0)));
    let told = masked(&late.line());
    assert!(
        told.contains(r#""was_recovering":true"#) && !told.contains("recovered\":true"),
        "{told}"
    );
    publish(&mut client, "kept:a", "4");
    assert_eq!(stream.line(), late.line());
    client.finish().expect("it ends");
}

#[test]
fn publications_during_connect_follow_without_a_gap() {
    let channels: Vec<String> = (0..6).map(|number| format!("kept:{number}")).collect();
    let subs: Vec<String> = channels.iter().map(|name| format!("\"{name}\":{{}}")).collect();
    let connect = format!(r#"{{"subs":{{{}}}}}"#, subs.join(","));
    let mut held = 0;
    for seed in 0..40 {
        let setup = Setup {
            seed,
            workers: 3,
            ..Setup::default()
        };
        let app = ringmain_push::serve(App::new(), options());
        let mut client = TestClient::with(app, setup).expect("an application");
        let mut program = client.raw();
        for _ in 0..10 {
            for channel in &channels {
                let body = format!(r#"{{"channel":"{channel}","data":1}}"#);
                let length = body.len();
                program.send(format!(
                    "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-Api-Key: key\r\n\
                     Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
                ));
            }
        }
        // These are in flight, none has arrived.
        let mut stream = Stream::open(client.post("/connection/uni_http_stream").body(&*connect));
        let told: Value = serde_json::from_str(&stream.line()).expect("JSON");
        let subs = &told["connect"]["subs"];
        let mut offsets: BTreeMap<&str, u64> = BTreeMap::new();
        for channel in &channels {
            offsets.insert(channel, subs[channel]["offset"].as_u64().unwrap_or_default());
        }
        held += offsets
            .values()
            .filter(|offset| **offset > 0 && **offset < 10)
            .count();
        while offsets.values().any(|offset| *offset < 10) {
            let push: Value = serde_json::from_str(&stream.line()).expect("JSON");
            let channel = push["channel"].as_str().expect("a channel");
            let last = offsets.get_mut(channel).expect("one of these");
            *last += 1;
            assert_eq!(push["pub"]["offset"], *last, "seed {seed}: {push}");
        }
        drop((program, stream));
        client
            .finish()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(held > 0, "some of them connected in the midst of it");
}

#[test]
fn a_permanent_refusal_is_a_status() {
    let mut client = serve(options());
    for (connect, status, says) in [
        (r#"{"token":"x"}"#, 401, "invalid token (code 3500)"),
        (r#"{"name":"more than sixteen"}"#, 400, "bad request (code 3501)"),
        (r#"{"subs":{"no:where":{}}}"#, 400, "bad request (code 3501)"),
        (
            r#"{"subs":{"news":{},"news#7":{}}}"#,
            403,
            "permission denied (code 3507)",
        ),
    ] {
        for path in ["uni_http_stream", "uni_sse"] {
            let reply = client.post(&format!("/connection/{path}")).body(connect).send();
            assert_eq!(reply.status(), status, "{path} {connect}");
            assert!(reply.text().contains(says), "{path} {connect}: {}", reply.text());
        }
        let mut socket = client.ws("/connection/uni_websocket").open();
        socket.send_text(connect);
        let code = socket.closed().0;
        assert!(says.contains(&code.to_string()), "{connect}: {code}");
    }
    let mut socket = client.ws("/connection/uni_websocket").open();
    socket.send_text("nothing");
    assert_eq!(socket.closed().0, 3501);
    drop(socket);
    client.finish().expect("it ends");

    let mut client = serve(Options {
        anonymous: false,
        ..options()
    });
    assert_eq!(client.get("/connection/uni_sse").send().status(), 401);
    client.finish().expect("it ends");
}

#[test]
fn channels_are_limited() {
    let mut few = options();
    few.limits.subscriptions = 2;
    let mut client = serve(few);
    let mut stream = Stream::open(client.post("/connection/uni_http_stream").body(BOTH));
    assert_eq!(masked(&stream.line()), connected(BOTH_TOLD));
    let three = r#"{"subs":{"a":{},"b":{},"c":{}}}"#;
    let reply = client.post("/connection/uni_http_stream").body(three).send();
    assert_eq!(reply.status(), 400);
    assert!(
        reply.text().contains("channel limit (code 3505)"),
        "{}",
        reply.text()
    );
    drop(stream);
    client.finish().expect("it ends");
    // One worker's shard has no room for another channel.
    let mut client = serve(Options {
        channels: 1,
        ..options()
    });
    let two = r#"{"subs":{"a":{},"b":{}}}"#;
    assert_eq!(client.post("/connection/uni_sse").body(two).send().status(), 400);
    client.finish().expect("it ends");
}

#[test]
fn unidirectional_clients_are_pinged_and_send_no_pong() {
    let mut client = serve(options());
    let mut events = Stream::open(client.get("/connection/uni_sse"));
    let mut socket = client.ws("/connection/uni_websocket").open();
    let mut silent = client.ws("/connection/uni_websocket").open();
    socket.send_text("{}");
    assert_eq!(masked(&events.event()), connected(""));
    assert_eq!(masked(&socket.text()), connected(""));
    client.advance(PING_INTERVAL + Duration::from_secs(1));
    assert_eq!((&*events.event(), &*socket.text()), ("{}", "{}"));
    assert_eq!(silent.closed(), (3502, "stale".to_owned()));
    client.advance(PONG_TIMEOUT);
    drop((socket, silent));
    for _ in 0..2 {
        client.advance(PING_INTERVAL);
        assert_eq!(events.event(), "{}", "it is still there");
    }
    drop(events);
    client.finish().expect("it ends");
}

#[test]
fn a_reconnected_browser_recovers_from_its_last_event() {
    let mut client = serve_by(3, options());
    let both = r#"{"subs":{"kept:a":{},"kept:b":{},"news":{}}}"#;
    let path = with_query("/connection/uni_sse", both);
    let mut stream = Stream::open(client.get(&path));
    assert!(stream.identified_event().0.is_some(), "it begins somewhere");
    publish(&mut client, "kept:a", "1");
    publish(&mut client, "kept:b", "2");
    publish(&mut client, "news", "[1]");
    let mut last = None;
    for _ in 0..3 {
        let (id, data) = stream.identified_event();
        assert_eq!(id.is_none(), data.contains("news"), "{data}");
        last = id.or(last);
    }
    drop(stream);
    publish(&mut client, "kept:b", "3");
    let last = last.expect("an id");
    for _ in 0..2 {
        let mut again = Stream::open(client.get(&path).header("last-event-id", &last));
        let told: serde_json::Value = serde_json::from_str(&again.event()).expect("JSON");
        let subs = &told["connect"]["subs"];
        assert_eq!(subs["kept:a"]["recovered"], true, "{told}");
        assert!(
            subs["kept:a"]["publications"]
                .as_array()
                .is_none_or(Vec::is_empty)
        );
        assert_eq!(subs["kept:b"]["publications"][0]["data"], 3, "{told}");
        assert_eq!(subs["kept:b"]["publications"].as_array().map(Vec::len), Some(1));
    }
    let mut odd = Stream::open(
        client
            .get(&path)
            .header("last-event-id", "of another server=1.x&%%%"),
    );
    assert!(odd.event().contains("connect"));
    client.finish().expect("it ends");
}
