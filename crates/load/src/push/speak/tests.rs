//! Messages in both formats. Bytes of Protobuf are written out by hand from the definition.

use super::{Malformed, Parts, Said, connect, listening, pong, read, subscribe};
use crate::push::plan::Format::{Json, Protobuf};

fn json(text: &str, expect: Said) {
    assert_eq!(read(Json, text.as_bytes()), Ok(expect), "{text}");
}

fn ended(code: u32, reason: &str) -> Said {
    Said::Disconnected {
        code,
        reason: reason.into(),
    }
}

#[test]
fn replies_in_json() {
    json("{}", Said::Ping);
    json(" {}\r", Said::Ping);
    json(
        r#"{"id":1,"connect":{"client":"x","ping":25,"pong":true}}"#,
        Said::Connected { pong: true },
    );
    json(
        r#"{"id":1,"connect":{"client":"x"}}"#,
        Said::Connected { pong: false },
    );
    json(r#"{"id":2,"subscribe":{}}"#, Said::Subscribed);
    json(
        r#"{"id":2,"subscribe":{"recoverable":true,"publications":[{"data":{}}]}}"#,
        Said::Subscribed,
    );
    let refused = Said::Refused {
        id: 2,
        code: 103,
        message: "permission denied".into(),
    };
    json(
        r#"{"id":2,"error":{"code":103,"message":"permission denied"}}"#,
        refused,
    );
    json(r#"{"push":{"channel":"a","pub":{"data":{}}}}"#, Said::Other);
    json(
        r#"{"push":{"disconnect":{"code":3008,"reason":"slow"}}}"#,
        ended(3008, "slow"),
    );
    let unsubscribed = Said::Unsubscribed {
        channel: "a".into(),
        code: 2500,
        reason: "position".into(),
    };
    json(
        r#"{"push":{"channel":"a","unsubscribe":{"code":2500,"reason":"position"}}}"#,
        unsubscribed,
    );
}

#[test]
fn pushes_to_one_who_only_listens() {
    json(
        r#"{"connect":{"client":"x","subs":{"a":{}}}}"#,
        Said::Connected { pong: false },
    );
    json(r#"{"channel":"a","pub":{"data":{}}}"#, Said::Other);
    json(
        r#"{"disconnect":{"code":3010,"reason":"insufficient state"}}"#,
        ended(3010, "insufficient state"),
    );
}

#[test]
fn what_is_no_message_is_malformed() {
    for text in ["", "x", "[]", "{", r#"{"id":"x"}"#, "\"\""] {
        assert_eq!(read(Json, text.as_bytes()), Err(Malformed), "{text}");
    }
    // A field number without a value, a length beyond the end, a group, a number without end.
    for bytes in [
        &[8][..],
        &[0x22, 5, 1],
        &[0x0B],
        &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
    ] {
        assert_eq!(read(Protobuf, bytes), Err(Malformed), "{bytes:?}");
    }
}

#[test]
fn replies_in_protobuf() {
    let check = |bytes: &[u8], expect: Said| assert_eq!(read(Protobuf, bytes), Ok(expect), "{bytes:?}");
    check(&[], Said::Ping);
    check(
        &[8, 1, 0x2A, 5, 0x0A, 1, b'x', 0x40, 1],
        Said::Connected { pong: true },
    );
    check(&[8, 1, 0x2A, 0], Said::Connected { pong: false });
    check(&[8, 2, 0x32, 0], Said::Subscribed);
    let refused = Said::Refused {
        id: 2,
        code: 103,
        message: "no".into(),
    };
    check(&[8, 2, 0x12, 6, 8, 103, 0x12, 2, b'n', b'o'], refused);
    // A push of a disconnect (11): code 3008.
    check(
        &[0x22, 8, 0x5A, 6, 8, 0xC0, 0x17, 0x12, 1, b's'],
        ended(3008, "s"),
    );
    // A push to channel `a` of an unsubscribe (7): code 2500 (2), reason (3).
    let unsubscribed = Said::Unsubscribed {
        channel: "a".into(),
        code: 2500,
        reason: "r".into(),
    };
    check(
        &[0x22, 11, 0x12, 1, b'a', 0x3A, 6, 0x10, 0xC4, 0x13, 0x1A, 1, b'r'],
        unsubscribed,
    );
    check(&[0x22, 5, 0x12, 1, b'a', 0x22, 0], Said::Other);
    // Fields that are not known are passed over: a double and a float.
    check(
        &[0x79, 0, 0, 0, 0, 0, 0, 0, 0, 0x7D, 0, 0, 0, 0, 0x32, 0],
        Said::Subscribed,
    );
}

#[test]
fn no_cut_of_protobuf_panics() {
    let whole = [
        8, 2, 0x12, 6, 8, 103, 0x12, 2, b'n', b'o', 0x22, 8, 0x5A, 6, 8, 0xC0, 0x17, 0x12, 1, b's',
    ];
    for cut in 0..whole.len() {
        let _ = read(Protobuf, &whole[..cut]);
        for spoilt in [0, 0x7F, 0xFF] {
            let mut bytes = whole;
            bytes[cut] = spoilt;
            let _ = read(Protobuf, &bytes);
            Parts::new(Protobuf, &bytes).for_each(drop);
        }
    }
}

#[test]
fn a_message_is_cut_into_its_parts() {
    let parts = |format, message: &'static [u8]| Parts::new(format, message).collect::<Vec<_>>();
    assert_eq!(parts(Json, b"{}"), [Ok(&b"{}"[..])]);
    assert_eq!(
        parts(Json, b"{}\n{\"a\":1}\n"),
        [Ok(&b"{}"[..]), Ok(&b"{\"a\":1}"[..])]
    );
    assert_eq!(parts(Protobuf, &[0]), [Ok(&[][..])]);
    assert_eq!(parts(Protobuf, &[1, 7, 2, 8, 9]), [Ok(&[7][..]), Ok(&[8, 9][..])]);
    assert_eq!(parts(Protobuf, &[1, 7, 2, 8]), [Ok(&[7][..]), Err(Malformed)]);
    assert_eq!(parts(Protobuf, &[]), [Err(Malformed)]);
}

#[test]
fn commands_are_as_the_definition_has_them() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    let name = |out: &mut Vec<u8>| out.extend_from_slice(b"ab");
    let text = |write: &dyn Fn(&mut Vec<u8>)| String::from_utf8(written(write)).unwrap();
    assert_eq!(text(&|out| connect(out, Json, None)), r#"{"id":1,"connect":{}}"#);
    assert_eq!(
        text(&|out| connect(out, Json, Some("a\"b"))),
        r#"{"id":1,"connect":{"token":"a\"b"}}"#
    );
    let both = text(&|out| {
        subscribe(out, Json, 2, &name);
        subscribe(out, Json, 3, &name);
    });
    assert_eq!(
        both,
        "{\"id\":2,\"subscribe\":{\"channel\":\"ab\"}}\n{\"id\":3,\"subscribe\":{\"channel\":\"ab\"}}"
    );
    assert_eq!(text(&|out| pong(out, Json)), "{}");
    assert_eq!(written(&|out| connect(out, Protobuf, None)), [4, 8, 1, 0x22, 0]);
    assert_eq!(
        written(&|out| connect(out, Protobuf, Some("t"))),
        [7, 8, 1, 0x22, 3, 0x0A, 1, b't']
    );
    assert_eq!(
        written(&|out| subscribe(out, Protobuf, 300, &name)),
        [9, 8, 0xAC, 2, 0x2A, 4, 0x0A, 2, b'a', b'b']
    );
    assert_eq!(written(&|out| pong(out, Protobuf)), [0]);
    let names = [b"a".to_vec(), b"b".to_vec()];
    assert_eq!(
        text(&|out| listening(out, None, &names)),
        r#"{"subs":{"a":{},"b":{}}}"#
    );
    assert_eq!(
        text(&|out| listening(out, Some("t"), &names)),
        r#"{"token":"t","subs":{"a":{},"b":{}}}"#
    );
}
