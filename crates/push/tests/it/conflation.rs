//! Conflated channels: a new subscriber receives the latest update, and no subscriber receives more updates than it can use.

use std::time::Duration;

use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_push::{Namespace, Options};
use ringmain_web::App;
use ringmain_web::testing::{TestClient, TestEvent, TestSocket};

const EVERY: Duration = Duration::from_millis(200);

fn serve() -> TestClient {
    let mut ticker = Namespace {
        publish: true,
        ..Namespace::default()
    };
    ticker.channel_options.history = Some(HistoryOptions {
        publications: 1,
        bytes: 1000,
        ttl: Duration::from_secs(60),
    });
    ticker.channel_options.cache_recovery = true;
    let mut paced = ticker;
    paced.channel_options.conflation_interval = Some(EVERY);
    let options = Options {
        namespaces: [("ticker".to_owned(), ticker), ("paced".to_owned(), paced)].into(),
        anonymous: true,
        api_key: Some("key".to_owned()),
        ..Options::default()
    };
    TestClient::new(ringmain_push::serve(App::new(), options)).expect("an application")
}

fn connect(client: &mut TestClient, channel: &str) -> (TestSocket, String) {
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(r#"{"id":1,"connect":{}}"#);
    socket.text();
    socket.send_text(format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#));
    let reply = socket.text();
    (socket, reply)
}

fn publish(client: &mut TestClient, channel: &str, value: u32) {
    let body = format!(r#"{{"channel":"{channel}","data":{value}}}"#);
    let answer = client
        .post("/api/publish")
        .header("x-api-key", "key")
        .header("content-type", "application/json")
        .body(body)
        .send();
    assert_eq!(answer.status(), 200);
}

#[test]
fn a_new_subscriber_receives_the_latest_value() {
    let mut client = serve();
    let (_, reply) = connect(&mut client, "ticker:a");
    assert_eq!(reply, r#"{"id":2,"subscribe":{}}"#);
    for value in 1..=3 {
        publish(&mut client, "ticker:a", value);
    }
    let (_, reply) = connect(&mut client, "ticker:a");
    assert_eq!(
        reply,
        r#"{"id":2,"subscribe":{"publications":[{"data":3,"offset":3}]}}"#
    );
    // A unidirectional client, too.
    let request = client.post("/connection/uni_http_stream");
    let request = request.body(r#"{"subs":{"ticker:a":{}}}"#);
    let mut stream = request.open().expect("an answer");
    let mut told = String::new();
    while !told.ends_with('\n') {
        let piece = stream.piece().expect("a piece").expect("no end");
        told.push_str(str::from_utf8(&piece).expect("a text"));
    }
    let subs = r#""subs":{"ticker:a":{"publications":[{"data":3,"offset":3}]}}"#;
    assert!(told.contains(subs), "{told}");
}

#[test]
fn skipped_updates_are_replaced_by_the_latest() {
    let mut client = serve();
    let (mut socket, _) = connect(&mut client, "paced:a");
    let push = |value: u32| {
        format!(r#"{{"push":{{"channel":"paced:a","pub":{{"data":{value},"offset":{value}}}}}}}"#)
    };
    for value in 1..=5 {
        publish(&mut client, "paced:a", value);
    }
    assert_eq!(socket.text(), push(1));
    let (mut other, reply) = connect(&mut client, "paced:a");
    assert_eq!(
        reply, r#"{"id":2,"subscribe":{"publications":[{"data":1,"offset":1}]}}"#,
        "as the others have it"
    );
    client.advance(EVERY);
    assert_eq!(socket.text(), push(5));
    assert_eq!(other.text(), push(5));
    client.advance(EVERY);
    publish(&mut client, "paced:a", 6);
    assert_eq!(
        socket.text(),
        push(6),
        "after a while without any the next one goes at once"
    );
}

/// Returns the messages of each socket within so many milliseconds: their times and numbers.
fn follow(client: &mut TestClient, sockets: &mut [TestSocket], millis: u64) -> Vec<Vec<(u64, usize)>> {
    let mut came = vec![Vec::new(); sockets.len()];
    for milli in 0..millis {
        client.advance(Duration::from_millis(1));
        for (socket, came) in sockets.iter_mut().zip(&mut came) {
            let mut count = 0;
            while let Some(event) = socket.event_now().expect("the protocol") {
                count += usize::from(matches!(event, TestEvent::Message(_)));
            }
            if count > 0 {
                came.push((milli, count));
            }
        }
    }
    came
}

#[test]
fn updates_of_a_clients_channels_are_sent_together() {
    const CHANNELS: usize = 40;
    let mut client = serve();
    let (mut socket, _) = connect(&mut client, "paced:0");
    for channel in 1..CHANNELS {
        socket.send_text(format!(
            r#"{{"id":2,"subscribe":{{"channel":"paced:{channel}"}}}}"#
        ));
        socket.text();
    }
    publish(&mut client, "paced:0", 1);
    let first = r#"{"push":{"channel":"paced:0","pub":{"data":1,"offset":1}}}"#;
    assert_eq!(socket.text(), first, "at once");
    for value in 1..=3 {
        for channel in 0..CHANNELS {
            publish(&mut client, &format!("paced:{channel}"), value);
        }
    }
    let came = follow(&mut client, std::slice::from_mut(&mut socket), 2 * 213);
    let [(milli, CHANNELS)] = came[0][..] else {
        panic!("once, all of them: {came:?}");
    };
    assert!(milli < 213, "{milli}");
}

#[test]
fn clients_have_ticks_of_their_own() {
    const CLIENTS: usize = 16;
    let mut client = serve();
    let mut sockets: Vec<TestSocket> = (0..CLIENTS).map(|_| connect(&mut client, "paced:a").0).collect();
    let mut last = Vec::new();
    let mut publishing = Duration::ZERO;
    for value in 0..40 {
        let begun = client.elapsed();
        publish(&mut client, "paced:a", value);
        publish(&mut client, "paced:a", value);
        publishing = client.elapsed() - begun;
        last = follow(&mut client, &mut sockets, 200);
    }
    let publishing = publishing.as_millis() as u64;
    let mut parts = [0; 4];
    for came in &last {
        let milli = match came[..] {
            [(milli, 1)] => milli,
            // The first arrived while the values were published and was read after that, to a millisecond as the second was.
            [(first @ 0..=1, 1), (milli, 1)] if milli + publishing - first >= 198 => milli,
            _ => panic!("one in an interval: {last:?}, published in {publishing} ms"),
        };
        parts[milli as usize / 50] += 1;
    }
    assert!(parts.iter().all(|part| (3..=5).contains(part)), "{parts:?}");
}

#[test]
fn an_unsubscribed_client_receives_no_conflated_update() {
    let mut client = serve();
    let (mut socket, _) = connect(&mut client, "paced:a");
    socket.send_text(r#"{"id":3,"subscribe":{"channel":"paced:b"}}"#);
    socket.text();
    publish(&mut client, "paced:a", 1);
    socket.text();
    publish(&mut client, "paced:a", 2);
    publish(&mut client, "paced:b", 1);
    socket.send_text(r#"{"id":4,"unsubscribe":{"channel":"paced:a"}}"#);
    assert_eq!(socket.text(), r#"{"id":4,"unsubscribe":{}}"#);
    let b = r#"{"push":{"channel":"paced:b","pub":{"data":1,"offset":1}}}"#;
    assert_eq!(socket.text(), b);
    let came = follow(&mut client, std::slice::from_mut(&mut socket), 500);
    assert!(came[0].is_empty(), "{came:?}");
}

#[test]
fn only_channels_that_report_gaps_are_positioned() {
    let mut kept = Namespace::default();
    kept.channel_options.history = Some(HistoryOptions {
        publications: 10,
        bytes: 1000,
        ttl: Duration::from_secs(60),
    });
    let slow = |slow| {
        let mut namespace = kept;
        namespace.channel_options.slow_consumer = slow;
        namespace
    };
    let mut paced = kept;
    paced.channel_options.conflation_interval = Some(EVERY);
    let namespaces = [
        ("disconnect", slow(SlowConsumerPolicy::Disconnect), true),
        ("resync", slow(SlowConsumerPolicy::Resync), true),
        ("old", slow(SlowConsumerPolicy::DropOld), false),
        ("new", slow(SlowConsumerPolicy::DropNew), false),
        ("conflate", slow(SlowConsumerPolicy::Conflate), false),
        ("paced", paced, false),
        ("forgetful", Namespace::default(), false),
    ];
    let options = Options {
        namespaces: namespaces
            .map(|(name, namespace, _)| (name.to_owned(), namespace))
            .into(),
        anonymous: true,
        ..Options::default()
    };
    let mut client = TestClient::new(ringmain_push::serve(App::new(), options)).expect("an application");
    for (name, _, expected) in namespaces {
        for asked in [r#""positioned":true"#, r#""recoverable":true"#] {
            let mut socket = client.ws("/connection/websocket").open();
            socket.send_text(r#"{"id":1,"connect":{}}"#);
            socket.text();
            socket.send_text(format!(
                r#"{{"id":2,"subscribe":{{"channel":"{name}:a",{asked}}}}}"#
            ));
            let reply = socket.text();
            assert_eq!(
                reply.contains(r#""positioned":true"#),
                expected,
                "{name}, {asked}: {reply}"
            );
        }
    }
}
