//! Event streams over HTTP/2: many on a connection, one that takes nothing, some that are given up.

use std::time::Duration;

use ringmain_hub::subscribers::SubscriberLimits as Limits;
use ringmain_push::Options;
use ringmain_push::limits::PING_EVERY;
use ringmain_web::testing::TestClient;

use crate::support::{CONNECT, Http2, options, serve, with_query};

/// How many listen to a channel.
fn listeners(client: &mut TestClient) -> u64 {
    let asked = client.post("/api/channels").header("x-api-key", "key").body("{}");
    let told: serde_json::Value = serde_json::from_str(asked.send().text()).expect("JSON");
    told["result"]["channels"]["news"]["num_clients"]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn streams_of_http2_share_a_connection() {
    let mut client = serve(options());
    let mut http2 = Http2::new(&mut client);
    let connect = with_query("/connection/uni_sse", r#"{"subs":{"news":{}}}"#);
    let mut streams: Vec<_> = (0..100).map(|_| http2.ask("GET", &connect, &[], b"")).collect();
    // Those of SDKs, and of lines, among them.
    let talking = http2.ask("GET", &with_query("/connection/sse", CONNECT), &[], b"");
    let lines = http2.ask(
        "POST",
        "/connection/uni_http_stream",
        &[],
        br#"{"subs":{"news":{}}}"#,
    );
    http2.turn();
    for &stream in &streams {
        let answer = http2.answer(stream);
        assert_eq!(answer.status, 200);
        assert!(answer.take_text().starts_with("data: {\"connect\":"));
    }
    assert!(
        http2
            .answer(talking)
            .take_text()
            .starts_with("data: {\"id\":1,\"connect\":")
    );
    assert!(http2.answer(lines).take_text().starts_with("{\"connect\":"));
    assert_eq!((listeners(&mut client), client.running()), (101, 102));
    let body = r#"{"channel":"news","data":"x"}"#;
    let key = [("x-api-key", "key")];
    let published = http2.ask("POST", "/api/publish", &key, body.as_bytes());
    http2.turn();
    http2.turn();
    assert_eq!(http2.answer(published).take_text(), r#"{"result":{}}"#);
    for &stream in &streams {
        let event = "data: {\"channel\":\"news\",\"pub\":{\"data\":\"x\"}}\n\n";
        assert_eq!(http2.answer(stream).take_text(), event);
    }
    // A stream that is given up frees its session at once, and no other.
    for stream in streams.drain(1..) {
        http2.give_up(stream);
    }
    http2.turn();
    assert_eq!((listeners(&mut client), client.running()), (2, 3));
    client.advance(PING_EVERY + Duration::from_secs(1));
    http2.turn();
    assert_eq!(http2.answer(streams[0]).take_text(), "data: {}\n\n");
    client.shut_down();
    http2.turn();
    assert!(http2.answer(streams[0]).end && http2.answer(lines).end);
    drop(http2);
    client.finish().expect("it ends");
}

#[test]
fn a_stream_of_http2_whose_client_takes_nothing_is_slow_alone() {
    let mut client = serve(Options {
        limits: Limits {
            subscriptions: 8,
            queued_bytes: 100_000,
        },
        ..options()
    });
    let mut http2 = Http2::new(&mut client);
    http2.hungry = false;
    let connect = with_query("/connection/uni_sse", r#"{"subs":{"news":{}}}"#);
    let slow = http2.ask("GET", &connect, &[], b"");
    let other = http2.ask("GET", &connect, &[], b"");
    http2.turn();
    let data = "x".repeat(10_000);
    let mut taken = 0;
    for _ in 0..60 {
        let body = format!(r#"{{"channel":"news","data":"{data}"}}"#);
        let publish = client.post("/api/publish").header("x-api-key", "key").body(body);
        assert_eq!(publish.send().status(), 200);
        http2.turn();
        let bytes = http2.answer(other).body.len();
        http2.take(other, bytes - taken);
        taken = bytes;
        http2.turn();
    }
    assert!(taken > 590_000, "the other one has all of it: {taken}");
    // What was on its way is what its window holds; it hears why when it takes that.
    let held = http2.answer(slow).body.len();
    assert!(!http2.answer(slow).end && held <= 262_144, "{held}");
    http2.hungry = true;
    http2.take(slow, held);
    for _ in 0..50 {
        http2.turn();
    }
    let answer = http2.answer(slow);
    assert!(answer.end, "its body ends in order");
    assert!(
        answer
            .take_text()
            .ends_with("data: {\"disconnect\":{\"code\":3008,\"reason\":\"slow\",\"reconnect\":true}}\n\n")
    );
    assert_eq!(listeners(&mut client), 1);
    drop(http2);
    client.finish().expect("it ends");
}
