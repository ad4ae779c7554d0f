//! Commands of sources for the connections of a user.

use std::time::Duration;

use ringmain_hub::protocol::Fault;
use ringmain_push::{Push, ReceiptOutcome, Receipts, SubmitError, UserCommand};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::json;

use crate::token_signing::{FORMATS, WsClient, guarded, token};

#[test]
fn commands_of_records_run_on_all_workers_before_their_receipts() {
    let push = Push::new();
    push.replace(guarded()).expect("options");
    let mut publisher = push.thread_publisher().for_source();
    let setup = Setup {
        workers: 3,
        ..Setup::default()
    };
    let mut client = TestClient::with(push.serve(App::new()), setup).expect("an application");
    let token = token(json!({ "sub": "ada" }));
    let mut ws_clients = [0; 4].map(|_| WsClient::connected(&mut client, FORMATS[0], &token).0);
    let mut receipts = Receipts::new(8);
    let command = |method: &str, payload: &str| {
        let payload = serde_json::value::RawValue::from_string(payload.to_owned()).expect("JSON");
        UserCommand::parse(method, &payload)
    };
    assert!(command("presence", r#"{"channel":"news"}"#).is_none());
    assert!(command("disconnect", r#"{"users":"ada"}"#).is_none());
    let mut submit = |method: &str, payload: &str| {
        let command = command(method, payload).expect("a command");
        let outcome = publisher.submit_command(&command, &mut receipts);
        client.advance(Duration::from_millis(10));
        (outcome, receipts.advance())
    };
    let unknown = (Err(SubmitError::InvalidChannel(Fault::UNKNOWN_CHANNEL)), None);
    assert_eq!(
        submit("subscribe", r#"{"user":"ada","channel":"nowhere:a"}"#),
        unknown
    );
    assert_eq!(
        submit("disconnect", r#"{"user":""}"#),
        (Err(SubmitError::InvalidData), None)
    );
    let done = (Ok(()), Some(ReceiptOutcome::Published));
    assert_eq!(
        submit("subscribe", r#"{"user":"ada","channel":"closed:a"}"#),
        done
    );
    for ws in &mut ws_clients {
        let push = ws.push();
        assert_eq!((&*push.channel, push.subscribe.is_some()), ("closed:a", true));
    }
    assert_eq!(
        submit("unsubscribe", r#"{"user":"ada","channel":"closed:a"}"#),
        done
    );
    for ws in &mut ws_clients {
        assert!(ws.push().unsubscribe.is_some());
    }
    assert_eq!(submit("disconnect", r#"{"user":"ada"}"#), done);
    for ws in &mut ws_clients {
        assert_eq!(ws.socket.closed().0, 3503);
    }
}
