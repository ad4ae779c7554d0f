//! Limits of simultaneous connections, and the counters of clients.

use std::time::Duration;

use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_hub::protocol::{Command, Format, SubscribeRequest};
use ringmain_push::metrics::Refusal;
use ringmain_push::{Options, Push};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestReply, TestSocket};
use serde_json::json;

use crate::api::call;
use crate::support::{CONNECT, Stream, options, serve, with_query};
use crate::token_signing::{WsClient, code, connect, subscribe};

/// `EventSource` stops permanently at any other status.
#[track_caller]
fn is_told_to_retry(client: &mut TestClient, path: &str) {
    let reply = client.get(path).send();
    assert_eq!(reply.status(), 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let retry = reply
        .text()
        .strip_prefix("retry: ")
        .and_then(|rest| rest.strip_suffix("000\n\n"));
    let after: u64 = retry
        .and_then(|after| after.parse().ok())
        .expect("when to come back");
    assert!((1..=5).contains(&after), "{after}");
}

#[track_caller]
fn is_sent_back(reply: &TestReply) {
    assert_eq!(reply.status(), 503, "{}", reply.text());
    let after: u64 = reply
        .header("retry-after")
        .and_then(|after| after.parse().ok())
        .expect("when to come back");
    assert!((1..=5).contains(&after), "{after}");
}

fn try_open(client: &mut TestClient) -> Result<TestSocket, TestReply> {
    client.ws("/connection/websocket").try_open().expect("an answer")
}

#[test]
fn pending_connects_are_limited() {
    let mut client = serve(Options {
        pending_connects: 2,
        ..options()
    });
    let mut first = try_open(&mut client).expect("it is let in");
    let second = client.ws("/connection/uni_websocket").open();
    is_sent_back(&try_open(&mut client).expect_err("they are two"));
    is_sent_back(&client.ws("/connection/uni_websocket").refused());
    let stream = client.post("/connection/http_stream").body(CONNECT).send();
    is_sent_back(&stream);
    is_told_to_retry(&mut client, "/connection/uni_sse");
    is_told_to_retry(&mut client, &with_query("/connection/sse", CONNECT));
    is_sent_back(&client.post("/connection/uni_sse").body("{}").send());
    // The first is identified.
    first.send_text(CONNECT);
    first.text();
    let third = try_open(&mut client).expect("there is room");
    is_sent_back(&try_open(&mut client).expect_err("they are two"));
    // The second is closed.
    drop(second);
    client.advance(Duration::from_secs(1));
    let mut fourth = try_open(&mut client).expect("there is room");
    // A malformed message, and none at all.
    fourth.send_text("nonsense");
    assert_eq!(fourth.closed().0, 3501);
    client.advance(Duration::from_secs(1));
    let stream = Stream::lines(&mut client);
    let last = try_open(&mut client).expect("there is room");
    client.advance(Duration::from_secs(30));
    let again: Vec<_> = (0..2)
        .map(|_| try_open(&mut client).expect("they were stale"))
        .collect();
    is_sent_back(&try_open(&mut client).expect_err("they are two"));
    drop((first, third, fourth, stream, last, again));
    client.finish().expect("it ends");
}

#[test]
fn connects_per_second_are_limited() {
    let mut client = serve(Options {
        connects_per_second: Some(4),
        ..options()
    });
    let mut there = Vec::new();
    for _ in 0..2 {
        client.advance(Duration::from_secs(1));
        for _ in 0..3 {
            there.push(try_open(&mut client).expect("it is let in"));
        }
        let stream = Stream::open(client.get(&with_query("/connection/sse", CONNECT)));
        is_sent_back(&try_open(&mut client).expect_err("they are five"));
        is_told_to_retry(&mut client, "/connection/uni_sse");
        drop(stream);
    }
    // Connected clients remain.
    for socket in &mut there {
        socket.send_text(CONNECT);
        assert!(socket.text().contains("connect"));
    }
    assert_eq!(
        call(&mut client, "info", &json!({}))["result"]["nodes"][0]["num_clients"],
        json!(6)
    );
    drop(there);
    client.finish().expect("it ends");
}

/// Serves on three workers, with channels that drop the oldest publications.
fn serve_counted() -> (Push, TestClient) {
    let push = Push::new();
    let mut options = options();
    options.limits.queued_bytes = 50_000;
    options.default_namespace.channel_options.slow_consumer = SlowConsumerPolicy::DropOld;
    push.replace(options).expect("they can be");
    assert_eq!(push.report().clients, 0);
    let setup = Setup {
        workers: 3,
        ..Setup::default()
    };
    let client = TestClient::with(push.serve(App::new()), setup).expect("an application");
    (push, client)
}

#[test]
fn publications_are_counted() {
    let (push, mut client) = serve_counted();
    let ws_clients: Vec<WsClient> = (0..4)
        .map(|_| {
            let mut ws = WsClient::open(&mut client, Format::Json);
            assert!(ws.request(connect("")).connect.is_some());
            for channel in ["news", "kept:a"] {
                assert_eq!(code(&ws.request(subscribe(channel, ""))), 0);
            }
            ws
        })
        .collect();
    for number in 0..3 {
        let body =
            json!({ "channel": "kept:a", "data": number, "idempotency_key": number.min(1).to_string() });
        call(&mut client, "publish", &body);
    }
    call(&mut client, "publish", &json!({ "channel": "nobody", "data": 1 }));
    client.advance(Duration::from_secs(2));
    let report = push.report();
    assert_eq!((report.clients, report.users, report.connects), (4, 0, 4));
    assert_eq!((report.subscriptions, report.subscribed_channels), (8, 2));
    assert_eq!(
        (report.publications, report.duplicates, report.deliveries),
        (3, 1, 8)
    );
    // A slow client loses the oldest.
    for _ in 0..40 {
        call(
            &mut client,
            "publish",
            &json!({ "channel": "news", "data": "x".repeat(20_000) }),
        );
    }
    let slow: Vec<u64> = push.report().slow.iter().map(|(_, count)| *count).collect();
    assert!(slow[1] > 0 && slow.iter().sum::<u64>() == slow[1], "{slow:?}");
    drop(ws_clients);
    client.advance(Duration::from_secs(1));
    let report = push.report();
    assert_eq!(
        (report.clients, report.subscriptions, report.subscribed_channels),
        (0, 0, 0)
    );
    client.finish().expect("it ends");
}

#[test]
fn connects_and_disconnects_are_counted() {
    let (push, mut client) = serve_counted();
    call(&mut client, "publish", &json!({ "channel": "kept:a", "data": 1 }));
    let mut ws_clients = Vec::new();
    // One recovers, one cannot, one sends a malformed message, one has an invalid token.
    for (offset, epoch) in [(0, ""), (0, "0123456789abcdef")] {
        let mut ws = WsClient::open(&mut client, Format::Json);
        ws.request(connect(""));
        let request = SubscribeRequest {
            channel: "kept:a".to_owned(),
            recover: true,
            offset,
            epoch: epoch.to_owned(),
            ..SubscribeRequest::default()
        };
        ws.request(Command {
            subscribe: Some(request),
            ..Command::default()
        });
        ws_clients.push(ws);
    }
    for say in ["nonsense", r#"{"id":1,"connect":{"token":"x"}}"#] {
        let mut socket = client.ws("/connection/websocket").open();
        socket.send_text(say);
        assert!([3500, 3501].contains(&socket.closed().0));
    }
    let report = push.report();
    assert_eq!((report.recovered, report.unrecovered), (1, 1));
    assert_eq!(report.disconnects, [(Some(3500), 1), (Some(3501), 1)]);
    let refused = report.refused.iter().filter(|(_, count)| *count > 0);
    assert_eq!(refused.collect::<Vec<_>>(), [&(Refusal::Unknown, 2)]);
    drop(ws_clients);
    client.finish().expect("it ends");
}
