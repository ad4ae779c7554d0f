//! Channels that a process hands over to the next one.

use std::time::Duration;

use ringmain_engine::limits::DRAIN_SPREAD_START;
use ringmain_hub::protocol::{Command, Format, HistoryRequest, PresenceRequest, PushMessage as Pushed};
use ringmain_push::{HandOverState, Options, Push, Successor, limits};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::{Value, json};

use crate::api::call;
use crate::support::{Stream, options};
use crate::token_signing::{FORMATS, WsClient, code, guarded, subscribe, token};

fn serve(push: &Push, workers: usize) -> TestClient {
    serve_with(push, workers, options())
}

fn serve_with(push: &Push, workers: usize, options: Options) -> TestClient {
    push.replace(options).expect("options");
    let setup = Setup {
        // Processes of one test must not generate the same client IDs.
        seed: workers as u64,
        workers,
        grace: Duration::from_secs(4),
        drain_spread: Duration::from_secs(2),
        ..Setup::default()
    };
    TestClient::with(push.serve(App::new()), setup).expect("an application")
}

/// Returns the state of a process, as it is sent.
fn leave_state(client: &mut TestClient, push: &Push) -> Vec<u8> {
    hand_over_to(Successor::Serving, client, push)
}

fn hand_over_to(successor: Successor, client: &mut TestClient, push: &Push) -> Vec<u8> {
    let freezing = push.start_freeze(successor);
    client.advance(Duration::from_millis(10));
    let state = freezing.collect(Duration::ZERO, Duration::from_secs(1));
    state.chunks().flatten().copied().collect()
}

fn position(stream: &mut Stream, client: &mut TestClient, number: u32, more: &str) -> Value {
    let text = format!(r#"{{"id":{number},"subscribe":{{"channel":"kept:a"{more}}}}}"#);
    assert_eq!(stream.send_commands(client, &text), 204);
    serde_json::from_str(&stream.line()).expect("JSON")
}

#[test]
fn acknowledged_publications_survive_and_others_are_refused() {
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
    let bytes = leave_state(&mut before, &old);
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

    let (records, _) = HandOverState::read(&bytes).expect("state");
    for workers in [1, 3] {
        let new = Push::new();
        new.await_state();
        let mut after = serve(&new, workers);
        let mut stream = Stream::lines(&mut after);
        let recover = format!(
            r#"{{"id":2,"subscribe":{{"channel":"kept:a","recover":true,"offset":1,"epoch":"{epoch}"}}}}"#
        );
        assert_eq!(stream.send_commands(&mut after, &recover), 204);
        after.advance(Duration::from_millis(100));
        // It is held until the state has arrived.
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
fn expired_history_is_not_restored_but_positions_are() {
    let old = Push::new();
    let mut before = serve(&old, 1);
    call(&mut before, "publish", &json!({ "channel": "kept:a", "data": 1 }));
    let (records, _) = HandOverState::read(&leave_state(&mut before, &old)).expect("state");
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
fn channels_without_state_start_new_epochs() {
    let new = Push::new();
    new.await_state();
    let mut client = serve(&new, 2);
    assert!(new.thread_publisher().continues());
    new.restore(Vec::new(), Duration::ZERO);
    assert!(!new.thread_publisher().continues());
    let told = call(&mut client, "publish", &json!({ "channel": "kept:a", "data": 1 }));
    assert_eq!(told["result"]["offset"], 1);
}

#[test]
fn clients_are_disconnected_gradually_and_publishers_at_once() {
    let push = Push::new();
    let mut client = serve(&push, 1);
    let mut ws_clients: Vec<WsClient> = (0..8)
        .map(|_| WsClient::connected(&mut client, Format::Json, "").0)
        .collect();
    assert_eq!(code(&ws_clients[7].request(subscribe("kept:a", ""))), 0);
    let _ = leave_state(&mut client, &push);
    let publish = r#"{"id":9,"publish":{"channel":"kept:a","data":1}}"#;
    ws_clients[7].socket.send_text(publish);
    assert_eq!(ws_clients[7].socket.closed(), (3001, "shutdown".to_owned()));
    client.shut_down();
    client.advance(DRAIN_SPREAD_START + Duration::from_millis(100));
    let mut late: Vec<&mut WsClient> = ws_clients[..7]
        .iter_mut()
        .filter_map(|ws| ws.socket.event_now().expect("no fault").is_none().then_some(ws))
        .collect();
    assert_eq!(late.len(), 6);
    client.advance(Duration::from_secs(2));
    for ws in &mut late {
        assert_eq!(ws.socket.closed(), (3001, "shutdown".to_owned()));
    }
}

/// Options with presence and with pushes for joins and leaves.
fn present() -> Options {
    let mut options = guarded();
    let kept = options.namespaces.get_mut("kept").expect("a namespace");
    kept.channel_options.join_leave = true;
    options
}

fn user(client: &mut TestClient, format: Format, name: &str) -> WsClient {
    let token = token(json!({ "sub": name }));
    let mut ws = WsClient::connected(client, format, &token).0;
    assert_eq!(code(&ws.request(subscribe("kept:a", ""))), 0);
    ws
}

/// Returns the users of a channel in order, as programs read them.
fn users(client: &mut TestClient) -> Vec<String> {
    let told = call(client, "presence", &json!({ "channel": "kept:a" }));
    let members = told["result"]["presence"].as_object().expect("members").values();
    let mut users: Vec<String> = members
        .map(|info| info["user"].as_str().unwrap_or_default().to_owned())
        .collect();
    users.sort_unstable();
    let stats = call(client, "presence_stats", &json!({ "channel": "kept:a" }));
    assert_eq!(stats["result"]["num_clients"], users.len(), "{stats}");
    users
}

fn presence_users(push: &Pushed) -> Option<(&str, &str)> {
    let join = push.join.as_ref().map(|join| ("join", &join.info));
    let leave = push.leave.as_ref().map(|leave| ("leave", &leave.info));
    let (kind, info) = join.or(leave)?;
    Some((kind, &info.as_ref()?.user))
}

#[test]
fn members_are_present_at_the_successor_until_they_connect_or_expire() {
    for (workers, format) in [(1, 3), (3, 1)].into_iter().zip(FORMATS) {
        let old = Push::new();
        let mut before = serve_with(&old, workers.0, present());
        let _members: Vec<WsClient> = ["anna", "anna", "bert", "carl"]
            .iter()
            .map(|name| user(&mut before, format, name))
            .collect();
        let (records, _) = HandOverState::read(&leave_state(&mut before, &old)).expect("state");
        let new = Push::new();
        new.await_state();
        let mut after = serve_with(&new, workers.1, present());
        new.restore(records, Duration::from_secs(1));
        assert_eq!(users(&mut after), ["anna", "anna", "bert", "carl"]);

        // A connection of a user replaces one that has not moved yet, whatever its ID.
        let mut anna = user(&mut after, format, "anna");
        assert_eq!(users(&mut after), ["anna", "anna", "bert", "carl"]);
        let _second = user(&mut after, format, "anna");
        assert_eq!(users(&mut after), ["anna", "anna", "bert", "carl"]);
        let _third = user(&mut after, format, "anna");
        assert_eq!(users(&mut after), ["anna", "anna", "anna", "bert", "carl"]);
        let _bert = user(&mut after, format, "bert");
        let mut pushes = Vec::new();
        after.advance(Duration::from_millis(10));
        anna.receive_all();
        while !anna.is_quiet() {
            let push = anna.push();
            pushes.extend(presence_users(&push).map(|(kind, user)| format!("{kind} {user}")));
        }
        let expected = ["leave anna", "join anna", "join anna", "leave bert", "join bert"];
        assert_eq!(pushes.len(), 7, "{pushes:?}");
        assert!(
            pushes.ends_with(&expected.map(str::to_owned)),
            "expected {expected:?} at the end, found {pushes:?}"
        );

        // Two seconds for the disconnections, and some to connect.
        after.advance(Duration::from_secs(2) + DRAIN_SPREAD_START + limits::PRESENCE_GRACE);
        assert_eq!(users(&mut after), ["anna", "anna", "anna", "bert"]);
        anna.receive_all();
        assert_eq!(presence_users(&anna.push()), Some(("leave", "carl")));
    }
}

#[test]
fn members_survive_two_hand_overs() {
    let first = Push::new();
    let mut client = serve_with(&first, 2, present());
    let _anna = user(&mut client, Format::Json, "anna");
    let (records, _) = HandOverState::read(&leave_state(&mut client, &first)).expect("state");
    let second = Push::new();
    second.await_state();
    let mut client = serve_with(&second, 1, present());
    second.restore(records, Duration::ZERO);
    let _bert = user(&mut client, Format::Json, "bert");
    client.advance(Duration::from_secs(5));
    let (records, _) = HandOverState::read(&leave_state(&mut client, &second)).expect("state");
    let third = Push::new();
    third.await_state();
    let mut client = serve_with(&third, 2, present());
    third.restore(records, Duration::from_secs(1));
    assert_eq!(users(&mut client), ["anna", "bert"]);
    // Seven seconds since the first was saved.
    client.advance(Duration::from_secs(2));
    assert_eq!(users(&mut client), ["bert"]);
}

#[test]
fn no_member_is_present_at_the_next_start() {
    let old = Push::new();
    let mut before = serve_with(&old, 1, present());
    let _anna = user(&mut before, Format::Json, "anna");
    let bytes = hand_over_to(Successor::NextStart, &mut before, &old);
    let (records, _) = HandOverState::read(&bytes).expect("state");
    let new = Push::new();
    new.await_state();
    let mut after = serve_with(&new, 1, present());
    new.restore(records, Duration::ZERO);
    assert_eq!(users(&mut after), [""; 0]);
}

#[test]
fn a_channel_command_at_the_predecessor_disconnects() {
    let presence = PresenceRequest {
        channel: "kept:a".to_owned(),
    };
    let history = HistoryRequest {
        channel: "kept:a".to_owned(),
        limit: 1,
        ..HistoryRequest::default()
    };
    let commands = [
        subscribe("kept:b", ""),
        Command {
            presence: Some(presence),
            ..Command::default()
        },
        Command {
            history: Some(history),
            ..Command::default()
        },
    ];
    for command in commands {
        let push = Push::new();
        let mut client = serve_with(&push, 1, present());
        let mut anna = user(&mut client, Format::Json, "anna");
        let _ = leave_state(&mut client, &push);
        anna.send([command]);
        assert_eq!(anna.socket.closed(), (3001, "shutdown".to_owned()));
    }
}
