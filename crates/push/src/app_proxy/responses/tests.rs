//! Valid and invalid responses of the application, for each event.

use super::{Rejection, parse, parse_connect, parse_publish, parse_refresh, parse_rpc, parse_subscribe};

/// Returns whether a response is valid, whatever its content.
fn is_one(json: &str) -> bool {
    let identity = |outcome: bool| outcome;
    identity(parse(json.as_bytes(), parse_connect).is_ok())
}

#[test]
fn a_reason_is_truncated_to_a_close_frame() {
    for (reason, length) in [
        (String::new(), 0),
        ("a".repeat(123), 123),
        ("a".repeat(124), 123),
        ("ä".repeat(62), 122),
    ] {
        let json = format!("{{\"disconnect\":{{\"code\":4999,\"reason\":\"{reason}\"}}}}");
        match parse(json.as_bytes(), parse_rpc) {
            Ok(Err(Rejection::Custom(disconnect, text))) => {
                assert_eq!((disconnect.code, text.len()), (4999, length))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn unsupported_responses_are_invalid() {
    let response = |result: &str| format!("{{\"result\":{result}}}");
    for (publication, is_done) in [
        ("{}", true),
        (
            r#"{"skip_history":false,"delta":false,"version":0,"idempotency_key":""}"#,
            true,
        ),
        (r#"{"data":null,"tags":null}"#, true),
        (r#"{"skip_history":true}"#, false),
        (r#"{"delta":true}"#, true),
        (r#"{"version":1}"#, false),
        (r#"{"idempotency_key":"a"}"#, false),
        (r#"{"b64data":"*"}"#, false),
        (r#"{"tags":{"a":1}}"#, false),
    ] {
        assert_eq!(
            parse(response(publication).as_bytes(), parse_publish).is_ok(),
            is_done,
            "{publication}"
        );
    }
    for (subscription, is_done) in [
        ("{}", true),
        (r#"{"allow":[],"server_tags_filter":null,"expire_at":0}"#, true),
        (r#"{"allow":["pub"]}"#, false),
        (r#"{"server_tags_filter":{}}"#, false),
        (r#"{"override":{"force_recovery":true}}"#, false),
        (r#"{"expire_at":"soon"}"#, false),
    ] {
        assert_eq!(
            parse(response(subscription).as_bytes(), parse_subscribe).is_ok(),
            is_done,
            "{subscription}"
        );
    }
    assert!(parse(response(r#"{"expired":1}"#).as_bytes(), parse_refresh).is_err());
}

#[test]
fn truncated_responses_are_invalid() {
    let complete = r#"{"result":{"user":"7","info":{"a":[1]},"channels":["a"],"subs":{"b":{"data":1}},"caps":[{"channels":["c"],"allow":["sub"]}]}}"#;
    assert!(is_one(complete));
    for end in 0..complete.len() {
        assert!(!is_one(&complete[..end]), "{}", &complete[..end]);
    }
}
