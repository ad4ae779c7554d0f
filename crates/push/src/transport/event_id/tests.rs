//! Positions of messages, there and back.

use ringmain_hub::protocol::ConnectRequest;

use super::{Positions, RESUMED, parse_positions, resume_connect};
use crate::limits;

fn ids(messages: &[&str]) -> Vec<String> {
    let mut positions = Positions::default();
    let id = |message: &&str| {
        let mut out = Vec::new();
        positions.write_id(message.as_bytes(), &mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    messages.iter().map(id).collect()
}

#[test]
fn an_event_that_changes_a_position_has_every_position() {
    let found = ids(&[
        r#"{"connect":{"client":"x","subs":{"a b":{"epoch":"e1","offset":2,"publications":[{"offset":3},{"offset":4}]},"n":{}}}}"#,
        r#"{"channel":"a b","pub":{"data":{"offset":99},"offset":5}}"#,
        r#"{"channel":"n","pub":{"data":1}}"#,
        "{}",
        r#"{"push":{"channel":"c","subscribe":{"epoch":"e2"}}}"#,
        r#"{"push":{"channel":"a b","unsubscribe":{"code":2500}}}"#,
        "not valid JSON for the channel",
    ]);
    let expected = [
        "id: a%20b=4.e1\n",
        "id: a%20b=5.e1\n",
        "",
        "",
        "id: a%20b=5.e1&c=0.e2\n",
        "id: c=0.e2\n",
        "",
    ];
    assert_eq!(found, expected);
}

#[test]
fn publications_with_a_number_change_the_position_of_its_channel() {
    let bidirectional = [
        r#"{"push":{"channel":"a","subscribe":{"id":3,"offset":1,"epoch":"e"}}}"#,
        r#"{"push":{"id":3,"pub":{"offset":2,"data":{}}}}"#,
        r#"{"push":{"id":4,"pub":{"offset":3,"data":{}}}}"#,
        r#"{"push":{"channel":"a","unsubscribe":{}}}"#,
        r#"{"push":{"id":3,"pub":{"offset":4,"data":{}}}}"#,
    ];
    assert_eq!(
        ids(&bidirectional),
        ["id: a=1.e\n", "id: a=2.e\n", "", "id: \n", ""]
    );
    let unidirectional = [
        r#"{"connect":{"subs":{"a":{"id":1,"offset":5,"epoch":"e"},"b":{"id":2,"epoch":"f"}}}}"#,
        r#"{"id":2,"pub":{"offset":1,"data":{}}}"#,
    ];
    assert_eq!(ids(&unidirectional), ["id: a=5.e&b=0.f\n", "id: a=5.e&b=1.f\n"]);
}

#[test]
fn a_number_is_that_of_its_last_channel_even_without_a_position() {
    let found = ids(&[
        r#"{"push":{"channel":"a","subscribe":{"id":3,"offset":1,"epoch":"e"}}}"#,
        r#"{"push":{"channel":"b","subscribe":{"id":3}}}"#,
        r#"{"push":{"id":3,"pub":{"offset":9,"data":{}}}}"#,
        r#"{"push":{"channel":"a","pub":{"offset":2,"data":{}}}}"#,
    ]);
    assert_eq!(found, ["id: a=1.e\n", "", "", "id: a=2.e\n"]);
}

#[test]
fn positions_that_are_too_long_remove_the_id() {
    let long = "x".repeat(limits::EVENT_ID_BYTES);
    let subscribed = format!(r#"{{"push":{{"channel":"{long}","subscribe":{{"epoch":"e"}}}}}}"#);
    let first = r#"{"push":{"channel":"a","subscribe":{"epoch":"e"}}}"#;
    assert_eq!(
        ids(&[first, &subscribed, &subscribed]),
        ["id: a=0.e\n", "id\n", ""]
    );
}

#[test]
fn a_request_recovers_from_the_positions_of_the_client() {
    let mut connect = ConnectRequest::default();
    connect.subs.insert("a".to_owned(), Default::default());
    resume_connect("a=7.e1&b%26=3.e2&broken&c=x.e", &mut connect);
    let subs: Vec<_> = connect
        .subs
        .iter()
        .map(|(channel, it)| (&**channel, it.recover, it.offset, &*it.epoch, it.flag))
        .collect();
    assert_eq!(subs, [("a", true, 7, "e1", 0), ("b&", true, 3, "e2", RESUMED)]);
    for text in ["", "%", "%zz=1.e", "a", "=", "a=.", "a=99999999999999999999.e"] {
        assert!(parse_positions(text).is_empty(), "{text}");
    }
    assert!(parse_positions(&format!("a=1.{}", "e".repeat(limits::EVENT_ID_BYTES))).is_empty());
}
