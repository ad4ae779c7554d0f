//! Publications of other threads: in order, within limits, and to the right channels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ringmain_hub::protocol::{Command, ConnectRequest, Fault, SubscribeRequest};
use ringmain_push::{
    Epoch, HandOverState, LogEvent, LogId, Options, Push, ReceiptOutcome, Receipts, SourceRecord,
    SubmitError, Successor, ThreadPublisher, limits,
};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::json;

use crate::support::{Stream, options};
use crate::token_signing::{FORMATS, WsClient, guarded, token};

/// Serves on so many workers. Returns the publisher.
fn serve(workers: usize) -> (TestClient, ThreadPublisher) {
    let push = Push::new();
    push.replace(options()).expect("options");
    let publisher = push.thread_publisher();
    assert!(!publisher.is_ready(), "no worker has begun");
    let setup = Setup {
        workers,
        ..Setup::default()
    };
    let client = TestClient::with(push.serve(App::new()), setup).expect("an application");
    (client, publisher)
}

fn listen(client: &mut TestClient, channels: &[&str]) -> Stream {
    let mut stream = Stream::lines(client);
    for (number, channel) in channels.iter().enumerate() {
        let id = number + 2;
        let subscribe = format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#);
        assert_eq!(stream.send_commands(client, &subscribe), 204);
        assert!(stream.line().contains("subscribe"));
    }
    stream
}

/// Counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn publications_remain_in_order_on_all_workers() {
    let (mut client, mut publisher) = serve(3);
    let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    let channels: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut stream = listen(&mut client, &channels);
    assert!(publisher.is_ready());
    for number in 0..200 {
        let channel: Arc<str> = Arc::from(channels[number % 8]);
        publisher
            .publish(&channel, number.to_string().as_bytes())
            .expect("room");
    }
    let mut last = [None; 8];
    for _ in 0..200 {
        let line = stream.line();
        let push: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let channel = push["push"]["channel"].as_str().expect("a channel");
        let index: usize = channel[1..].parse().expect("a number");
        let number = push["push"]["pub"]["data"].as_u64().expect("a number");
        assert_eq!(number % 8, index as u64);
        assert!(last[index] < Some(number), "{line} after {last:?}");
        last[index] = Some(number);
    }
    assert_eq!(publisher.waiting(), 0);
}

#[test]
fn invalid_publications_are_rejected_by_the_publisher() {
    let (mut client, mut publisher) = serve(1);
    let mut stream = listen(&mut client, &["news"]);
    let news: Arc<str> = Arc::from("news");
    for (channel, json, why) in [
        ("news", "{", SubmitError::InvalidData),
        ("news", "", SubmitError::InvalidData),
        ("news", "1 2", SubmitError::InvalidData),
        (
            "nowhere:a",
            "1",
            SubmitError::InvalidChannel(Fault::UNKNOWN_CHANNEL),
        ),
        ("", "1", SubmitError::InvalidChannel(Fault::BAD_REQUEST)),
    ] {
        let outcome = publisher.publish(&Arc::from(channel), json.as_bytes());
        assert_eq!(outcome, Err(why), "{channel} {json}");
    }
    let long: Arc<str> = Arc::from("x".repeat(256));
    assert!(matches!(
        publisher.publish(&long, b"1"),
        Err(SubmitError::InvalidChannel(_))
    ));
    publisher.publish(&news, b"{\"a\":\n1}").expect("room");
    assert_eq!(
        stream.line(),
        r#"{"push":{"channel":"news","pub":{"data":{"a":1}}}}"#
    );
}

#[test]
fn publishing_requires_options_and_workers() {
    let push = Push::new();
    let (mut publisher, news) = (push.thread_publisher(), Arc::from("news"));
    assert_eq!(publisher.publish(&news, b"1"), Err(SubmitError::NotReady));
    push.replace(options()).expect("options");
    assert_eq!(publisher.publish(&news, b"1"), Err(SubmitError::NotReady));
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    let mut stream = listen(&mut client, &["news"]);
    publisher.publish(&news, b"1").expect("room");
    assert!(stream.line().contains(r#""data":1"#));
}

#[test]
fn a_full_queue_rejects_and_wakes_when_there_is_room() {
    let (mut client, mut publisher) = serve(2);
    let mut stream = listen(&mut client, &["news"]);
    let news: Arc<str> = Arc::from("news");
    // The workers do not run meanwhile: they have their turns when the client waits.
    for number in 0..limits::THREAD_QUEUE {
        publisher
            .publish(&news, number.to_string().as_bytes())
            .expect("room");
    }
    assert_eq!(publisher.publish(&news, b"-1"), Err(SubmitError::Full));
    assert_eq!(publisher.waiting(), limits::THREAD_QUEUE);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let context = Context::from_waker(&waker);
    for _ in 0..limits::THREAD_QUEUE_WAITERS {
        assert!(publisher.poll_room("news", &context).is_pending());
    }
    assert_eq!(
        publisher.poll_room("news", &context),
        Poll::Ready(()),
        "one too many"
    );
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    for number in 0..limits::THREAD_QUEUE {
        assert!(stream.line().contains(&format!(r#""data":{number}}}"#)));
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), limits::THREAD_QUEUE_WAITERS);
    assert_eq!(publisher.poll_room("news", &context), Poll::Ready(()));
    publisher.publish(&news, b"-2").expect("room");
    assert!(stream.line().contains(r#""data":-2}"#));
}

#[test]
fn bytes_are_bounded_too() {
    let (mut client, mut publisher) = serve(1);
    let _stream = listen(&mut client, &["news"]);
    let other: Arc<str> = Arc::from("without-subscribers");
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let mut taken = 0;
    while publisher.publish(&other, large.as_bytes()).is_ok() {
        taken += 1;
        assert!(taken < 100);
    }
    assert_eq!(taken, limits::THREAD_QUEUE_BYTES >> 20);
    client.advance(Duration::from_millis(1));
    publisher.publish(&other, large.as_bytes()).expect("room again");
}

#[test]
fn changed_options_apply_to_the_next_publication() {
    let push = Push::new();
    push.replace(options()).expect("options");
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    let mut stream = listen(&mut client, &["kept:a"]);
    let (mut publisher, kept): (_, Arc<str>) = (push.thread_publisher(), Arc::from("kept:a"));
    publisher.publish(&kept, b"1").expect("room");
    assert!(stream.line().contains(r#""data":1"#));
    let mut without = options();
    without.namespaces.clear();
    push.replace(without).expect("options");
    assert_eq!(
        publisher.publish(&kept, b"2"),
        Err(SubmitError::InvalidChannel(Fault::UNKNOWN_CHANNEL))
    );
}

/// Opens a client of a channel with history. Returns it with the channel's epoch.
fn position(client: &mut TestClient, channel: &str) -> (Stream, String) {
    let mut stream = Stream::lines(client);
    let subscribe = format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#);
    assert_eq!(stream.send_commands(client, &subscribe), 204);
    let answer: serde_json::Value = serde_json::from_str(&stream.line()).expect("JSON");
    assert_eq!(answer["subscribe"]["positioned"], true, "{answer}");
    let epoch = answer["subscribe"]["epoch"].as_str().expect("an epoch");
    (stream, epoch.to_owned())
}

fn is_recovered(client: &mut TestClient, stream: &mut Stream, offset: u64, epoch: &str) -> bool {
    let subscribe = format!(
        r#"{{"id":3,"subscribe":{{"channel":"kept:a","recover":true,"offset":{offset},"epoch":"{epoch}"}}}}"#
    );
    assert_eq!(stream.send_commands(client, &subscribe), 204);
    let answer: serde_json::Value = serde_json::from_str(&stream.line()).expect("JSON");
    answer["subscribe"]["recovered"] == true
}

#[test]
fn a_dropped_publication_is_reported_behind_those_before_it() {
    let (mut client, mut publisher) = serve(2);
    let (mut stream, epoch) = position(&mut client, "kept:a");
    let (mut other, _) = position(&mut client, "kept:b");
    let kept: Arc<str> = Arc::from("kept:a");
    publisher.publish(&kept, b"1").expect("room");
    publisher.publish(&kept, b"2").expect("room");
    for number in 1..=2 {
        assert!(stream.line().contains(&format!(r#""data":{number}"#)));
    }
    publisher.report_dropped(&kept);
    let notified = stream.line();
    assert!(notified.contains(r#""unsubscribe":{"code":2500"#), "{notified}");
    assert!(!is_recovered(&mut client, &mut stream, 2, &epoch));
    publisher.publish(&Arc::from("kept:b"), b"3").expect("room");
    assert!(
        other.line().contains(r#""data":3"#),
        "another channel is not concerned"
    );
}

#[test]
fn an_interrupted_source_renews_all_its_channels() {
    let (mut client, publisher) = serve(3);
    let (mut first, epoch) = position(&mut client, "kept:a");
    let (mut second, _) = position(&mut client, "kept:b");
    let mut plain = listen(&mut client, &["news"]);
    publisher.report_interrupted("kept:");
    for stream in [&mut first, &mut second] {
        let notified = stream.line();
        assert!(notified.contains(r#""unsubscribe":{"code":2500"#), "{notified}");
    }
    assert!(!is_recovered(&mut client, &mut first, 0, &epoch));
    // It has a position again, and is notified again, but not more often than the limit.
    publisher.report_interrupted("kept:");
    publisher.report_interrupted("kept:");
    let notified = first.line();
    assert!(notified.contains(r#""unsubscribe":{"code":2500"#), "{notified}");
    let news: Arc<str> = Arc::from("news");
    let mut publisher = publisher;
    publisher.publish(&news, b"1").expect("room");
    assert!(plain.line().contains(r#""data":1"#));
}

#[test]
fn a_gap_of_a_source_does_not_affect_other_sources() {
    let (mut client, programs) = serve(3);
    let (mut first, mut second) = (programs.for_source(), programs.for_source());
    let mut streams = ["own", "other", "program", "unpublished"].map(|name| {
        let (stream, _) = position(&mut client, &format!("kept:{name}"));
        (stream, Arc::<str>::from(format!("kept:{name}")))
    });
    let mut programs = programs;
    let mut receipts = Receipts::new(8);
    first.publish(&streams[0].1, b"1").expect("room");
    let submitted = second.batch(&mut receipts).submit(record("kept:other", 1, None));
    submitted.expect("room");
    programs.publish(&streams[2].1, b"1").expect("room");
    for (stream, channel) in &mut streams[..3] {
        assert!(stream.line().contains(r#""data":1"#), "{channel}");
    }
    // Any channel may be one of the source's, except those that only programs have published in; with a prefix, these as well.
    for (prefix, expected) in [
        ("", [true, false, false, true]),
        ("kept:", [true, false, true, true]),
    ] {
        first.report_interrupted(prefix);
        client.advance(Duration::from_secs(2));
        for ((stream, channel), is_notified) in streams.iter_mut().zip(expected) {
            programs.publish(channel, b"2").expect("room");
            let line = stream.line();
            if is_notified {
                assert!(
                    line.contains(r#""unsubscribe":{"code":2500"#),
                    "{prefix} {channel}: {line}"
                );
                let subscribe = format!(r#"{{"id":9,"subscribe":{{"channel":"{channel}"}}}}"#);
                assert_eq!(stream.send_commands(&mut client, &subscribe), 204);
                assert!(stream.line().contains("subscribe"));
            } else {
                assert!(line.contains(r#""data":2"#), "{prefix} {channel}: {line}");
            }
        }
    }
}

fn record(channel: &str, number: u64, log_position: Option<(LogId, u64)>) -> SourceRecord {
    SourceRecord {
        channel: Arc::from(channel),
        data: number.to_string().into(),
        tags: BTreeMap::new(),
        log_position,
        key: None,
    }
}

fn log(epoch: u64) -> LogId {
    let epoch = Epoch::new(epoch);
    LogId { epoch, reader: 0 }
}

/// Returns the known outcomes, in order.
fn known_outcomes(receipts: &mut Receipts) -> Vec<ReceiptOutcome> {
    std::iter::from_fn(|| receipts.advance()).collect()
}

#[test]
fn receipts_of_several_workers_complete_in_order() {
    let (mut client, mut publisher) = serve(3);
    let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    let channels: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut stream = listen(&mut client, &channels);
    let mut receipts = Receipts::new(64);
    for round in 0..2 {
        let mut batch = publisher.batch(&mut receipts);
        for number in 1..=40 {
            let channel = channels[number as usize % 8];
            let record = record(channel, number, Some((log(7), number)));
            batch.submit(record).expect("room");
        }
        drop(batch);
        assert_eq!(receipts.advance(), None, "no worker has had a turn");
        client.advance(Duration::from_millis(10));
        let expected = [ReceiptOutcome::Published, ReceiptOutcome::Duplicate][round];
        assert_eq!(known_outcomes(&mut receipts), [expected; 40]);
    }
    let mut last = [0; 8];
    for _ in 0..40 {
        let push: serde_json::Value = serde_json::from_str(&stream.line()).expect("JSON");
        let number = push["push"]["pub"]["data"].as_u64().expect("a number");
        let last = &mut last[number as usize % 8];
        assert!(*last < number, "{push}");
        *last = number;
    }
    assert_eq!(last.iter().sum::<u64>(), (33..=40).sum::<u64>());
}

#[test]
fn records_without_an_offset_are_published_once_by_their_key() {
    let (mut client, mut publisher) = serve(2);
    let mut stream = listen(&mut client, &["news"]);
    let mut receipts = Receipts::new(8);
    let mut batch = publisher.batch(&mut receipts);
    for key in ["a", "b", "a", "c"] {
        let record = SourceRecord {
            key: Some(key.into()),
            ..record("news", 1, None)
        };
        batch.submit(record).expect("room");
    }
    drop(batch);
    client.advance(Duration::from_millis(10));
    let [published, repeated] = [ReceiptOutcome::Published, ReceiptOutcome::Duplicate];
    assert_eq!(
        known_outcomes(&mut receipts),
        [published, published, repeated, published]
    );
    for _ in 0..3 {
        assert!(stream.line().contains(r#""data":1"#));
    }
}

#[test]
fn a_record_beyond_the_channel_limit_is_reported() {
    let push = Push::new();
    let few = Options {
        channels: 1,
        ..options()
    };
    push.replace(few).expect("options");
    let mut publisher = push.thread_publisher();
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    let _stream = listen(&mut client, &["news"]);
    let mut receipts = Receipts::new(8);
    for (number, channel) in [(1, "news"), (2, "other"), (3, "news")] {
        let record = record(channel, number, Some((log(7), number)));
        publisher.batch(&mut receipts).submit(record).expect("room");
    }
    client.advance(Duration::from_millis(10));
    let outcomes = [
        ReceiptOutcome::Published,
        ReceiptOutcome::ChannelLimit,
        ReceiptOutcome::Published,
    ];
    assert_eq!(known_outcomes(&mut receipts), outcomes);
}

#[test]
fn a_full_queue_returns_the_record_and_nothing_is_lost() {
    let (mut client, mut publisher) = serve(2);
    let mut stream = listen(&mut client, &["news"]);
    let count = limits::THREAD_QUEUE as u64 + 100;
    let mut receipts = Receipts::new(2 * limits::THREAD_QUEUE);
    let (mut submitted, mut refused) = (0, 0);
    while submitted < count {
        let offset = submitted + 1;
        let record = record("news", submitted, Some((log(7), offset)));
        let outcome = publisher.batch(&mut receipts).submit(record);
        match outcome {
            Ok(()) => submitted += 1,
            Err((why, record)) => {
                assert_eq!((why, &*record.channel), (SubmitError::Full, "news"));
                assert_eq!(receipts.in_flight(), submitted, "no receipt was issued");
                refused += 1;
                client.advance(Duration::from_millis(10));
            }
        }
    }
    assert!(refused > 0);
    for number in 0..count {
        assert!(stream.line().contains(&format!(r#""data":{number}}}"#)));
    }
    assert_eq!(known_outcomes(&mut receipts).len() as u64, count);
}

#[test]
fn a_batch_is_limited_by_the_queue_and_the_window() {
    let (mut client, mut publisher) = serve(2);
    let _stream = listen(&mut client, &["news"]);
    let mut small = Receipts::new(3);
    let mut batch = publisher.batch(&mut small);
    let mut submit = |number| batch.submit(record("news", number, None)).map_err(|(why, _)| why);
    let outcomes = [1, 2, 3, 4].map(&mut submit);
    assert_eq!(outcomes, [Ok(()), Ok(()), Ok(()), Err(SubmitError::Full)]);
    assert!(!batch.has_room());
    drop(batch);
    let mut large = Receipts::new(2 * limits::THREAD_QUEUE);
    let mut batch = publisher.batch(&mut large);
    let mut count = 0;
    while batch.submit(record("news", count, None)).is_ok() {
        count += 1;
    }
    drop(batch);
    assert_eq!(
        count as usize,
        limits::THREAD_QUEUE - 3,
        "records that are staged count"
    );
    assert_eq!(publisher.waiting(), limits::THREAD_QUEUE);
    client.advance(Duration::from_secs(1));
    assert_eq!(publisher.waiting(), 0);
    let published = [ReceiptOutcome::Published; limits::THREAD_QUEUE];
    assert_eq!(known_outcomes(&mut small), published[..3]);
    assert_eq!(known_outcomes(&mut large), published[3..]);
}

#[test]
fn records_and_plain_publications_keep_their_order() {
    let (mut client, mut publisher) = serve(2);
    let mut stream = listen(&mut client, &["news"]);
    let news: Arc<str> = Arc::from("news");
    let mut receipts = Receipts::new(64);
    for number in 0..40 {
        if number % 3 == 0 {
            publisher
                .publish(&news, number.to_string().as_bytes())
                .expect("room");
        } else {
            let record = record("news", number, None);
            publisher.batch(&mut receipts).submit(record).expect("room");
        }
    }
    for number in 0..40 {
        let line = stream.line();
        assert!(line.contains(&format!(r#""data":{number}}}"#)), "{line}");
    }
}

#[test]
fn records_wait_for_the_state_and_stop_at_the_freeze() {
    let push = Push::new();
    push.replace(options()).expect("options");
    push.await_state();
    let mut publisher = push.thread_publisher();
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    client.advance(Duration::from_millis(10));
    let mut receipts = Receipts::new(8);
    let submit = |publisher: &mut ThreadPublisher, receipts: &mut Receipts, offset| {
        let record = record("kept:a", offset, Some((log(7), offset)));
        publisher.batch(receipts).submit(record)
    };
    submit(&mut publisher, &mut receipts, 1).expect("room");
    client.advance(Duration::from_millis(10));
    assert_eq!(receipts.advance(), None, "the state has not arrived");
    push.restore(Vec::new(), Duration::ZERO);
    client.advance(Duration::from_millis(10));
    assert_eq!(known_outcomes(&mut receipts), [ReceiptOutcome::Published]);
    submit(&mut publisher, &mut receipts, 2).expect("room");
    let freezing = push.start_freeze(Successor::NextStart);
    let (why, _) = submit(&mut publisher, &mut receipts, 3).expect_err("it is frozen");
    assert_eq!(why, SubmitError::NotReady);
    // It would report that the record has arrived.
    assert!(publisher.submit_event(0, log(7), LogEvent::Reached(3)));
    client.advance(Duration::from_millis(10));
    assert_eq!(
        known_outcomes(&mut receipts),
        [ReceiptOutcome::Published],
        "it was queued"
    );
    let state = freezing.collect(Duration::ZERO, Duration::from_secs(1));
    let bytes: Vec<u8> = state.chunks().flatten().copied().collect();
    let (records, _) = HandOverState::read(&bytes).expect("state");
    let next = Push::new();
    next.replace(options()).expect("options");
    next.await_state();
    let mut publisher = next.thread_publisher();
    let mut client = TestClient::new(next.serve(App::new())).expect("an application");
    next.restore(records, Duration::ZERO);
    client.advance(Duration::from_millis(10));
    for offset in 2..=3 {
        submit(&mut publisher, &mut receipts, offset).expect("room");
    }
    client.advance(Duration::from_millis(10));
    let outcomes = [ReceiptOutcome::Duplicate, ReceiptOutcome::Published];
    assert_eq!(known_outcomes(&mut receipts), outcomes);
}

#[test]
fn a_client_that_is_ahead_of_the_log_retries() {
    let push = Push::new();
    push.replace(options()).expect("options");
    let mut publisher = push.thread_publisher();
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    let mut receipts = Receipts::new(8);
    client.advance(Duration::from_millis(10));
    publisher
        .batch(&mut receipts)
        .submit(record("kept:a", 1, Some((log(7), 1))))
        .expect("room");
    let mut stream = Stream::lines(&mut client);
    let epoch = Epoch::new(7);
    let subscribe = format!(
        r#"{{"id":3,"subscribe":{{"channel":"kept:a","recover":true,"offset":5,"epoch":"{epoch}"}}}}"#
    );
    assert_eq!(stream.send_commands(&mut client, &subscribe), 204);
    let expected = r#"{"id":3,"error":{"code":100,"message":"internal server error","temporary":true}}"#;
    assert_eq!(stream.line(), expected);
    publisher
        .batch(&mut receipts)
        .submit(record("kept:a", 5, Some((log(7), 5))))
        .expect("room");
    assert!(is_recovered(&mut client, &mut stream, 5, &epoch.to_string()));
}

#[test]
fn a_client_that_the_server_subscribes_retries_its_connect() {
    let token = token(json!({ "sub": "7", "channels": ["closed:a"] }));
    for format in FORMATS {
        let push = Push::new();
        push.replace(guarded()).expect("options");
        let mut publisher = push.thread_publisher();
        let mut client = TestClient::new(push.serve(App::new())).expect("an application");
        client.advance(Duration::from_millis(10));
        let mut receipts = Receipts::new(8);
        let mut submit = |offset| {
            let record = record("closed:a", offset, Some((log(7), offset)));
            publisher.batch(&mut receipts).submit(record).expect("room");
        };
        submit(1);
        let position = SubscribeRequest {
            recover: true,
            epoch: Epoch::new(7).to_string(),
            offset: 5,
            ..SubscribeRequest::default()
        };
        let connect = ConnectRequest {
            token: token.clone(),
            subs: [("closed:a".to_owned(), position)].into(),
            ..ConnectRequest::default()
        };
        let connect = Command {
            connect: Some(connect),
            ..Command::default()
        };
        let refused = WsClient::open(&mut client, format).request(connect.clone());
        let error = refused.error.expect("an error");
        assert_eq!((error.code, error.temporary), (100, true));
        submit(5);
        let admitted = WsClient::open(&mut client, format).request(connect);
        let subs = admitted.connect.expect("connected").subs;
        assert!(subs["closed:a"].recovered, "{subs:?}");
    }
}
