//! Channels that a process leaves to the next one.

use std::time::Duration;

use ringmain_hub::protocol::Format;
use ringmain_push::{Options, Push, State, limits};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::{Value, json};

use crate::api::call;
use crate::signing::{Talker, code, subscribe};
use crate::support::{Stream, options};

fn serve(push: &Push, workers: usize) -> TestClient {
    push.replace(options()).expect("options");
    let setup = Setup {
        workers,
        ..Setup::default()
    };
    TestClient::with(push.serve(App::new()), setup).expect("an application")
}

/// Returns the state of a process, as it is sent.
fn leave(client: &mut TestClient, push: &Push) -> Vec<u8> {
    let freezing = push.begin_freeze();
    client.advance(Duration::from_millis(10));
    let state = freezing.collect(Duration::ZERO, Duration::from_secs(1));
    state.pieces().flatten().copied().collect()
}

fn position(stream: &mut Stream, client: &mut TestClient, number: u32, more: &str) -> Value {
    let text = format!(r#"{{"id":{number},"subscribe":{{"channel":"kept:a"{more}}}}}"#);
    assert_eq!(stream.say(client, &text), 204);
    serde_json::from_str(&stream.line()).expect("JSON")
}

#[test]
fn what_was_answered_is_there_for_who_comes_back_and_what_was_not_is_refused() {
    let old = Push::new();
    let mut before = serve(&old, 2);
    let mut stream = Stream::lines(&mut before);
    let told = position(&mut stream, &mut before, 2, "");
    let epoch = told["subscribe"]["epoch"].as_str().expect("an epoch").to_owned();
    let first = call(
        &mut before,
        "publish",
        &json!({ "channel": "kept:a", "data": 1, "idempotency_key": "k" }),
    );
    let second = json!({ "channel": "kept:a", "data": { "x": 2 }, "tags": { "t": "u" } });
    assert_eq!(call(&mut before, "publish", &second)["result"]["offset"], 2);
    let bytes = leave(&mut before, &old);
    for method in ["publish", "history", "info"] {
        let body = json!({ "channel": "kept:a", "data": 3 }).to_string();
        let request = before.post(&format!("/api/{method}")).header("x-api-key", "key");
        let reply = request.body(body).send();
        assert_eq!(
            (reply.status(), reply.header("retry-after")),
            (503, Some("1")),
            "{method}"
        );
    }

    let (records, _) = State::read(&bytes).expect("state");
    for workers in [1, 3] {
        let new = Push::new();
        new.await_state();
        let mut after = serve(&new, workers);
        let mut stream = Stream::lines(&mut after);
        let recover = format!(
            r#"{{"id":2,"subscribe":{{"channel":"kept:a","recover":true,"offset":1,"epoch":"{epoch}"}}}}"#
        );
        assert_eq!(stream.say(&mut after, &recover), 204);
        after.advance(Duration::from_millis(100));
        // It is held until the state is there.
        new.restore(records.clone(), Duration::from_secs(1));
        let told: Value = serde_json::from_str(&stream.line()).expect("JSON");
        assert_eq!(told["subscribe"]["recovered"], true, "{told}");
        let publications = told["subscribe"]["publications"].as_array().expect("some");
        assert_eq!(
            (publications.len(), &publications[0]["data"]),
            (1, &json!({ "x": 2 }))
        );
        let again = json!({ "channel": "kept:a", "data": 9, "idempotency_key": "k" });
        assert_eq!(
            call(&mut after, "publish", &again),
            first,
            "the key is remembered"
        );
        let third = call(&mut after, "publish", &json!({ "channel": "kept:a", "data": 3 }));
        assert_eq!(third["result"], json!({ "offset": 3, "epoch": epoch }));
    }
}

#[test]
fn what_is_kept_no_longer_is_not_taken_over_and_positions_are() {
    let old = Push::new();
    let mut before = serve(&old, 1);
    call(&mut before, "publish", &json!({ "channel": "kept:a", "data": 1 }));
    let (records, _) = State::read(&leave(&mut before, &old)).expect("state");
    let new = Push::new();
    new.await_state();
    new.restore(records, Duration::from_secs(60));
    let mut after = serve(&new, 1);
    let history = call(
        &mut after,
        "history",
        &json!({ "channel": "kept:a", "limit": 10 }),
    );
    assert_eq!(history["result"]["publications"], json!([]));
    assert_eq!(history["result"]["offset"], 1);
}

#[test]
fn without_state_channels_begin_again() {
    let new = Push::new();
    new.await_state();
    let mut client = serve(&new, 2);
    assert!(new.inlet().continues());
    new.restore(Vec::new(), Duration::ZERO);
    assert!(!new.inlet().continues());
    let told = call(&mut client, "publish", &json!({ "channel": "kept:a", "data": 1 }));
    assert_eq!(told["result"]["offset"], 1);
}

#[test]
fn clients_are_sent_away_one_after_the_other_and_who_publishes_at_once() {
    let push = Push::new();
    let mut client = serve(&push, 1);
    let drain = Duration::from_secs(4);
    push.replace(Options { drain, ..options() }).expect("options");
    let mut talkers: Vec<Talker> = (0..8)
        .map(|_| Talker::connected(&mut client, Format::Json, "").0)
        .collect();
    assert_eq!(code(&talkers[7].ask(subscribe("kept:a", ""))), 0);
    let _ = leave(&mut client, &push);
    let publish = r#"{"id":9,"publish":{"channel":"kept:a","data":1}}"#;
    talkers[7].socket.send_text(publish);
    assert_eq!(talkers[7].socket.closed(), (3001, "shutdown".to_owned()));
    client.shut_down();
    // Over half of the drain time.
    client.advance(limits::SENT_AWAY_AFTER + Duration::from_millis(100));
    let mut late: Vec<&mut Talker> = talkers[..7]
        .iter_mut()
        .filter_map(|talker| {
            talker
                .socket
                .event_now()
                .expect("no fault")
                .is_none()
                .then_some(talker)
        })
        .collect();
    assert_eq!(late.len(), 6);
    client.advance(drain / 2);
    for talker in &mut late {
        assert_eq!(talker.socket.closed(), (3001, "shutdown".to_owned()));
    }
}
