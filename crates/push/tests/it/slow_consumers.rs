//! A reader that pauses, under each policy for slow consumers, beside one that does not: the publications that it receives after the pause.

use std::time::Duration;

use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_push::{Limits, Namespace, Options};
use ringmain_web::testing::{TestClient, TestEvent, TestSocket};
use serde_json::{Value, json};

use crate::api::call;
use crate::support::{options, serve_by};

const BYTES: usize = 50_000;
const PUBLICATIONS: u64 = 40;

fn serve(slow: SlowConsumerPolicy) -> TestClient {
    let mut namespace = Namespace::default();
    namespace.channel_options.slow_consumer = slow;
    serve_by(
        2,
        Options {
            limits: Limits {
                subscriptions: 8,
                queued_bytes: 200_000,
            },
            namespaces: [("n".to_owned(), namespace)].into(),
            ..options()
        },
    )
}

fn reader(client: &mut TestClient) -> TestSocket {
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(r#"{"id":1,"connect":{}}"#);
    socket.text();
    socket.send_text(r#"{"id":2,"subscribe":{"channel":"n:a"}}"#);
    assert!(socket.text().contains(r#""id":2"#));
    socket
}

fn publish(client: &mut TestClient, number: u64) {
    let data = json!({ "n": number, "text": "x".repeat(BYTES) });
    call(client, "publish", &json!({ "channel": "n:a", "data": data }));
}

/// The numbers of the received publications, other lines, and the close code.
#[derive(Default)]
struct Read {
    numbers: Vec<u64>,
    others: Vec<Value>,
    closed: Option<u16>,
}

fn read(client: &mut TestClient, socket: &mut TestSocket) -> Read {
    let mut read = Read::default();
    for _ in 0..100 {
        client.advance(Duration::from_millis(10));
        while let Ok(Some(event)) = socket.event_now() {
            match event {
                TestEvent::Message(message) => {
                    let text = String::from_utf8(message.data().to_vec()).expect("text");
                    for line in text.lines() {
                        let line: Value = serde_json::from_str(line).expect("JSON");
                        match line["push"]["pub"]["data"]["n"].as_u64() {
                            Some(number) => read.numbers.push(number),
                            None => read.others.push(line),
                        }
                    }
                }
                TestEvent::Close(code, _) => {
                    read.closed = Some(code);
                    return read;
                }
                _ => {}
            }
        }
    }
    read
}

#[test]
fn a_paused_reader_finds_the_result_of_the_policy() {
    for slow in SlowConsumerPolicy::ALL {
        let mut client = serve(slow);
        let (mut paused, mut quick) = (reader(&mut client), reader(&mut client));
        let mut numbers = Vec::new();
        for number in 1..=PUBLICATIONS {
            publish(&mut client, number);
            while numbers.last() != Some(&number) {
                let text = quick.text();
                for line in text.lines() {
                    let line: Value = serde_json::from_str(line).expect("JSON");
                    numbers.push(line["push"]["pub"]["data"]["n"].as_u64().expect("a publication"));
                }
            }
        }
        assert!(
            numbers.iter().copied().eq(1..=PUBLICATIONS),
            "{slow:?}: another reader has all"
        );

        let found = read(&mut client, &mut paused);
        let gap = found.numbers.windows(2).position(|pair| pair[1] != pair[0] + 1);
        assert!(
            found.numbers.is_sorted_by(|a, b| a < b),
            "{slow:?}: {:?}",
            found.numbers
        );
        assert_eq!(
            found.numbers.first(),
            Some(&1),
            "{slow:?}: what was sent before comes first"
        );
        assert!(
            found.numbers.len() < 30,
            "{slow:?}: {} were held",
            found.numbers.len()
        );
        let last = found.numbers.last().copied();
        match slow {
            SlowConsumerPolicy::Disconnect => assert_eq!((gap, found.closed), (None, Some(3008)), "{slow:?}"),
            SlowConsumerPolicy::DropOld | SlowConsumerPolicy::Conflate => {
                assert_eq!((last, found.closed), (Some(PUBLICATIONS), None), "{slow:?}");
                assert!(gap.is_some(), "{slow:?}");
            }
            SlowConsumerPolicy::DropNew => {
                assert_eq!((gap, found.closed), (None, None), "{slow:?}");
                assert!(last < Some(PUBLICATIONS), "{slow:?}");
            }
            SlowConsumerPolicy::Resync => {
                assert_eq!((gap, found.closed), (None, None), "{slow:?}");
                let end = &found.others[0]["push"]["unsubscribe"]["code"];
                assert_eq!(*end, 2500, "{slow:?}: {:?}", found.others);
            }
        }
        if slow == SlowConsumerPolicy::Disconnect {
            continue;
        }
        // The connection remains open, with all publications from now on.
        if slow == SlowConsumerPolicy::Resync {
            paused.send_text(r#"{"id":3,"subscribe":{"channel":"n:a"}}"#);
            assert!(paused.text().contains(r#""id":3"#));
        }
        publish(&mut client, 100);
        assert_eq!(read(&mut client, &mut paused).numbers, [100], "{slow:?}");
        drop((paused, quick));
        client.finish().expect("it ends");
    }
}
