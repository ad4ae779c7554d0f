//! What is published from outside the workers: in order, within its limits, and where to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ringmain_hub::protocol::Fault;
use ringmain_push::{Inlet, NotTaken, Push, limits};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};

use crate::support::{Stream, options};

/// An application with so many workers, which takes what is published.
fn serve(workers: usize) -> (TestClient, Inlet) {
    let push = Push::new();
    push.replace(options()).expect("options");
    let inlet = push.inlet();
    assert!(!inlet.is_ready(), "no worker has begun");
    let setup = Setup {
        workers,
        ..Setup::default()
    };
    let client = TestClient::with(push.serve(App::new()), setup).expect("an application");
    (client, inlet)
}

fn listen(client: &mut TestClient, channels: &[&str]) -> Stream {
    let mut stream = Stream::lines(client);
    for (number, channel) in channels.iter().enumerate() {
        let id = number + 2;
        let subscribe = format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#);
        assert_eq!(stream.say(client, &subscribe), 204);
        assert!(stream.line().contains("subscribe"));
    }
    stream
}

/// Counts how often somebody was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn publications_come_in_order_on_all_workers() {
    let (mut client, mut inlet) = serve(3);
    let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    let channels: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut stream = listen(&mut client, &channels);
    assert!(inlet.is_ready());
    for number in 0..200 {
        let channel: Arc<str> = Arc::from(channels[number % 8]);
        inlet
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
    assert_eq!(inlet.waiting(), 0);
}

#[test]
fn what_cannot_be_is_refused_where_it_is_published() {
    let (mut client, mut inlet) = serve(1);
    let mut stream = listen(&mut client, &["news"]);
    let news: Arc<str> = Arc::from("news");
    for (channel, json, why) in [
        ("news", "{", NotTaken::NotJson),
        ("news", "", NotTaken::NotJson),
        ("news", "1 2", NotTaken::NotJson),
        ("nowhere:a", "1", NotTaken::NoChannel(Fault::UNKNOWN_CHANNEL)),
        ("", "1", NotTaken::NoChannel(Fault::BAD_REQUEST)),
    ] {
        let outcome = inlet.publish(&Arc::from(channel), json.as_bytes());
        assert_eq!(outcome, Err(why), "{channel} {json}");
    }
    let long: Arc<str> = Arc::from("x".repeat(256));
    assert!(matches!(inlet.publish(&long, b"1"), Err(NotTaken::NoChannel(_))));
    inlet.publish(&news, b"{\"a\":\n1}").expect("room");
    assert_eq!(
        stream.line(),
        r#"{"push":{"channel":"news","pub":{"data":{"a":1}}}}"#
    );
}

#[test]
fn nothing_is_taken_before_there_are_settings_and_workers() {
    let push = Push::new();
    let (mut inlet, news) = (push.inlet(), Arc::from("news"));
    assert_eq!(inlet.publish(&news, b"1"), Err(NotTaken::NotYet));
    push.replace(options()).expect("options");
    assert_eq!(inlet.publish(&news, b"1"), Err(NotTaken::NotYet));
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    let mut stream = listen(&mut client, &["news"]);
    inlet.publish(&news, b"1").expect("room");
    assert!(stream.line().contains(r#""data":1"#));
}

#[test]
fn a_full_queue_refuses_and_wakes_when_there_is_room() {
    let (mut client, mut inlet) = serve(2);
    let mut stream = listen(&mut client, &["news"]);
    let news: Arc<str> = Arc::from("news");
    // The workers stand still meanwhile: they have their turns when the client waits.
    for number in 0..limits::INLET {
        inlet.publish(&news, number.to_string().as_bytes()).expect("room");
    }
    assert_eq!(inlet.publish(&news, b"-1"), Err(NotTaken::Full));
    assert_eq!(inlet.waiting(), limits::INLET);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let context = Context::from_waker(&waker);
    for _ in 0..limits::INLET_WAITING {
        assert!(inlet.poll_room("news", &context).is_pending());
    }
    assert_eq!(inlet.poll_room("news", &context), Poll::Ready(()), "one too many");
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    for number in 0..limits::INLET {
        assert!(stream.line().contains(&format!(r#""data":{number}}}"#)));
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), limits::INLET_WAITING);
    assert_eq!(inlet.poll_room("news", &context), Poll::Ready(()));
    inlet.publish(&news, b"-2").expect("room");
    assert!(stream.line().contains(r#""data":-2}"#));
}

#[test]
fn bytes_are_bounded_too() {
    let (mut client, mut inlet) = serve(1);
    let _stream = listen(&mut client, &["news"]);
    let other: Arc<str> = Arc::from("nobody-listens");
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let mut taken = 0;
    while inlet.publish(&other, large.as_bytes()).is_ok() {
        taken += 1;
        assert!(taken < 100);
    }
    assert_eq!(taken, limits::INLET_BYTES >> 20);
    client.advance(Duration::from_millis(1));
    inlet.publish(&other, large.as_bytes()).expect("room again");
}

#[test]
fn settings_that_change_hold_for_the_next_publication() {
    let push = Push::new();
    push.replace(options()).expect("options");
    let mut client = TestClient::new(push.serve(App::new())).expect("an application");
    let mut stream = listen(&mut client, &["kept:a"]);
    let (mut inlet, kept): (_, Arc<str>) = (push.inlet(), Arc::from("kept:a"));
    inlet.publish(&kept, b"1").expect("room");
    assert!(stream.line().contains(r#""data":1"#));
    let mut without = options();
    without.namespaces.clear();
    push.replace(without).expect("options");
    assert_eq!(
        inlet.publish(&kept, b"2"),
        Err(NotTaken::NoChannel(Fault::UNKNOWN_CHANNEL))
    );
}

/// A client of a channel that keeps something; returns it with the channel's epoch.
fn position(client: &mut TestClient, channel: &str) -> (Stream, String) {
    let mut stream = Stream::lines(client);
    let subscribe = format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#);
    assert_eq!(stream.say(client, &subscribe), 204);
    let answer: serde_json::Value = serde_json::from_str(&stream.line()).expect("JSON");
    assert_eq!(answer["subscribe"]["positioned"], true, "{answer}");
    let epoch = answer["subscribe"]["epoch"].as_str().expect("an epoch");
    (stream, epoch.to_owned())
}

fn is_recovered(client: &mut TestClient, stream: &mut Stream, offset: u64, epoch: &str) -> bool {
    let subscribe = format!(
        r#"{{"id":3,"subscribe":{{"channel":"kept:a","recover":true,"offset":{offset},"epoch":"{epoch}"}}}}"#
    );
    assert_eq!(stream.say(client, &subscribe), 204);
    let answer: serde_json::Value = serde_json::from_str(&stream.line()).expect("JSON");
    answer["subscribe"]["recovered"] == true
}

#[test]
fn a_dropped_publication_is_reported_behind_those_before_it() {
    let (mut client, mut inlet) = serve(2);
    let (mut stream, epoch) = position(&mut client, "kept:a");
    let (mut other, _) = position(&mut client, "kept:b");
    let kept: Arc<str> = Arc::from("kept:a");
    inlet.publish(&kept, b"1").expect("room");
    inlet.publish(&kept, b"2").expect("room");
    for number in 1..=2 {
        assert!(stream.line().contains(&format!(r#""data":{number}"#)));
    }
    inlet.dropped(&kept);
    let notified = stream.line();
    assert!(notified.contains(r#""unsubscribe":{"code":2500"#), "{notified}");
    assert!(!is_recovered(&mut client, &mut stream, 2, &epoch));
    inlet.publish(&Arc::from("kept:b"), b"3").expect("room");
    assert!(
        other.line().contains(r#""data":3"#),
        "another channel is not concerned"
    );
}

#[test]
fn a_source_that_was_interrupted_has_all_of_its_channels_renewed() {
    let (mut client, inlet) = serve(3);
    let (mut first, epoch) = position(&mut client, "kept:a");
    let (mut second, _) = position(&mut client, "kept:b");
    let mut plain = listen(&mut client, &["news"]);
    inlet.interrupted("kept:");
    for stream in [&mut first, &mut second] {
        let notified = stream.line();
        assert!(notified.contains(r#""unsubscribe":{"code":2500"#), "{notified}");
    }
    assert!(!is_recovered(&mut client, &mut first, 0, &epoch));
    // It has a position again, and is notified again, but not more often than the limit.
    inlet.interrupted("kept:");
    inlet.interrupted("kept:");
    let notified = first.line();
    assert!(notified.contains(r#""unsubscribe":{"code":2500"#), "{notified}");
    let news: Arc<str> = Arc::from("news");
    let mut inlet = inlet;
    inlet.publish(&news, b"1").expect("room");
    assert!(plain.line().contains(r#""data":1"#));
}
