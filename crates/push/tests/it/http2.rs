//! Event streams over HTTP/2: many on a connection, one that is not read, some that are cancelled.

use std::time::Duration;

use ringmain_hub::subscribers::SubscriberLimits as Limits;
use ringmain_push::Options;
use ringmain_push::limits::PING_INTERVAL;
use ringmain_web::testing::TestClient;

use crate::support::{CONNECT, Http2, options, serve, with_query};

/// Returns the number of subscribers of a channel.
fn subscriber_count(client: &mut TestClient) -> u64 {
    let asked = client.post("/api/channels").header("x-api-key", "key").body("{}");
    let told: serde_json::Value = serde_json::from_str(asked.send().text()).expect("JSON");
    told["result"]["channels"]["news"]["num_clients"]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn http2_streams_share_a_connection() {
    let mut client = serve(options());
    let mut http2 = Http2::new(&mut client);
    let connect = with_query("/connection/uni_sse", r#"{"subs":{"news":{}}}"#);
    let mut streams: Vec<_> = (0..100)
        .map(|_| http2.request("GET", &connect, &[], b""))
        .collect();
    // Streams of SDKs and of lines are among these.
    let talking = http2.request("GET", &with_query("/connection/sse", CONNECT), &[], b"");
    let lines = http2.request(
        "POST",
        "/connection/uni_http_stream",
        &[],
        br#"{"subs":{"news":{}}}"#,
    );
    http2.turn();
    for &stream in &streams {
        let answer = http2.response(stream);
        assert_eq!(answer.status, 200);
        assert!(answer.take_text().starts_with("data: {\"connect\":"));
    }
    assert!(
        http2
            .response(talking)
            .take_text()
            .starts_with("data: {\"id\":1,\"connect\":")
    );
    assert!(http2.response(lines).take_text().starts_with("{\"connect\":"));
    assert_eq!((subscriber_count(&mut client), client.running()), (101, 102));
    let body = r#"{"channel":"news","data":"x"}"#;
    let key = [("x-api-key", "key")];
    let published = http2.request("POST", "/api/publish", &key, body.as_bytes());
    http2.turn();
    http2.turn();
    assert_eq!(http2.response(published).take_text(), r#"{"result":{}}"#);
    for &stream in &streams {
        let event = "data: {\"channel\":\"news\",\"pub\":{\"data\":\"x\"}}\n\n";
        assert_eq!(http2.response(stream).take_text(), event);
    }
    // A cancelled stream frees its session at once, and no other.
    for stream in streams.drain(1..) {
        http2.cancel_stream(stream);
    }
    http2.turn();
    assert_eq!((subscriber_count(&mut client), client.running()), (2, 3));
    client.advance(PING_INTERVAL + Duration::from_secs(1));
    http2.turn();
    assert_eq!(http2.response(streams[0]).take_text(), "data: {}\n\n");
    client.shut_down();
    // The last of the spread has its turn.
    client.advance(Duration::from_secs(3));
    http2.turn();
    assert!(http2.response(streams[0]).end && http2.response(lines).end);
    drop(http2);
    client.finish().expect("it ends");
}

#[test]
fn an_unread_http2_stream_slows_no_other() {
    let mut client = serve(Options {
        limits: Limits {
            subscriptions: 8,
            queued_bytes: 100_000,
        },
        ..options()
    });
    let mut http2 = Http2::new(&mut client);
    http2.consumes_bodies = false;
    let connect = with_query("/connection/uni_sse", r#"{"subs":{"news":{}}}"#);
    let slow = http2.request("GET", &connect, &[], b"");
    let other = http2.request("GET", &connect, &[], b"");
    http2.turn();
    let data = "x".repeat(10_000);
    let mut taken = 0;
    for _ in 0..60 {
        let body = format!(r#"{{"channel":"news","data":"{data}"}}"#);
        let publish = client.post("/api/publish").header("x-api-key", "key").body(body);
        assert_eq!(publish.send().status(), 200);
        http2.turn();
        let bytes = http2.response(other).body.len();
        http2.take(other, bytes - taken);
        taken = bytes;
        http2.turn();
    }
    assert!(taken > 590_000, "the other one has all of it: {taken}");
    // The bytes in flight are those of its window; the client receives the reason when it reads them.
    let held = http2.response(slow).body.len();
    assert!(!http2.response(slow).end && held <= 262_144, "{held}");
    http2.consumes_bodies = true;
    http2.take(slow, held);
    for _ in 0..50 {
        http2.turn();
    }
    let answer = http2.response(slow);
    assert!(answer.end, "its body ends in order");
    assert!(
        answer
            .take_text()
            .ends_with("data: {\"disconnect\":{\"code\":3008,\"reason\":\"slow\",\"reconnect\":true}}\n\n")
    );
    assert_eq!(subscriber_count(&mut client), 1);
    drop(http2);
    client.finish().expect("it ends");
}
