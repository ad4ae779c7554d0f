//! What is an answer of the application and what is none, of every event.

use super::{Refused, connect, goes_on, publish, read, rpc, subscribe};

/// Whether an answer is one, whatever it says.
fn is_one(json: &str) -> bool {
    let is = |outcome: bool| outcome;
    is(read(json.as_bytes(), connect).is_ok())
}

#[test]
fn a_reason_is_as_long_as_a_close_has_room_for() {
    for (reason, kept) in [
        (String::new(), 0),
        ("a".repeat(123), 123),
        ("a".repeat(124), 123),
        ("ä".repeat(62), 122),
    ] {
        let json = format!("{{\"disconnect\":{{\"code\":4999,\"reason\":\"{reason}\"}}}}");
        match read(json.as_bytes(), rpc) {
            Ok(Err(Refused::Away(why, told))) => assert_eq!((why.code, told.len()), (4999, kept)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_done_is_no_answer() {
    let say = |result: &str| format!("{{\"result\":{result}}}");
    for (publication, is_done) in [
        ("{}", true),
        (
            r#"{"skip_history":false,"delta":false,"version":0,"idempotency_key":""}"#,
            true,
        ),
        (r#"{"data":null,"tags":null}"#, true),
        (r#"{"skip_history":true}"#, false),
        (r#"{"delta":true}"#, false),
        (r#"{"version":1}"#, false),
        (r#"{"idempotency_key":"a"}"#, false),
        (r#"{"b64data":"*"}"#, false),
        (r#"{"tags":{"a":1}}"#, false),
    ] {
        assert_eq!(
            read(say(publication).as_bytes(), publish).is_ok(),
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
            read(say(subscription).as_bytes(), subscribe).is_ok(),
            is_done,
            "{subscription}"
        );
    }
    assert!(read(say(r#"{"expired":1}"#).as_bytes(), goes_on).is_err());
}

#[test]
fn what_is_cut_off_is_no_answer() {
    let whole = r#"{"result":{"user":"7","info":{"a":[1]},"channels":["a"],"subs":{"b":{"data":1}},"caps":[{"channels":["c"],"allow":["sub"]}]}}"#;
    assert!(is_one(whole));
    for end in 0..whole.len() {
        assert!(!is_one(&whole[..end]), "{}", &whole[..end]);
    }
}
