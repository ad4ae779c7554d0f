//! Commands between nodes: round trip, and payloads that are rejected.

use super::*;

#[test]
fn commands_are_decoded_as_they_were_encoded() {
    let options = SubscribeOptions {
        info: Bytes::from_static(b"{\"i\":1}"),
        data: Bytes::from_static(&[0, 255]),
        overrides: Overrides {
            presence: Some(true),
            positioning: Some(false),
            ..Overrides::default()
        },
    };
    for action in [
        UserAction::Disconnect(Arc::from(["a".into(), "b".into()])),
        UserAction::Expire,
        UserAction::Refresh {
            until: Some(7),
            info: Bytes::from_static(b"x"),
        },
        UserAction::Subscribe("c:1".into(), options),
        UserAction::Unsubscribe("c:1".into()),
    ] {
        let command = ConnectionCommand {
            client: Some("client".into()),
            ..ConnectionCommand::for_user("user", action)
        };
        let decoded = decode(&encode(&command)).expect("a valid command");
        assert_eq!(format!("{decoded:?}"), format!("{command:?}"));
    }
}

#[test]
fn other_payloads_are_rejected() {
    for payload in ["", "{}", r#"{"user":"u","client":null,"action":{"other":{}}}"#] {
        assert!(decode(payload.as_bytes()).is_none(), "{payload}");
    }
}
