//! Messages in both formats. Bytes of Protobuf are written out by hand from the definition.

use super::{Malformed, Parts, Said, Standing, Wish, connect, listening, offset, pong, read, subscribe};
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

fn connected(pong: bool) -> Said {
    let subs = Vec::new();
    Said::Connected { pong, subs }
}

fn subscribed(id: u32, at: Standing) -> Said {
    Said::Subscribed { id, at }
}

/// Behind seven publications.
fn standing(recovered: bool, offsets: &[u64]) -> Standing {
    Standing {
        offsets: offsets.to_vec(),
        recoverable: true,
        recovered,
        offset: 7,
        epoch: "e".into(),
    }
}

fn refused(code: u32, message: &str, temporary: bool) -> Said {
    Said::Refused {
        id: 2,
        code,
        message: message.into(),
        temporary,
    }
}

#[test]
fn replies_in_json() {
    json("{}", Said::Ping);
    json(" {}\r", Said::Ping);
    json(
        r#"{"id":1,"connect":{"client":"x","ping":25,"pong":true}}"#,
        connected(true),
    );
    json(r#"{"id":1,"connect":{"client":"x"}}"#, connected(false));
    json(r#"{"id":2,"subscribe":{}}"#, subscribed(2, Standing::default()));
    json(
        r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"e","publications":[{"data":{}}],"recovered":true,"offset":7}}"#,
        subscribed(2, standing(true, &[0])),
    );
    json(
        r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"e","publications":[{"data":{},"offset":6},{"data":{},"offset":7}],"recovered":true,"offset":5}}"#,
        subscribed(2, standing(true, &[6, 7])),
    );
    json(
        r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"e","offset":7,"was_recovering":true}}"#,
        subscribed(2, standing(false, &[])),
    );
    json(
        r#"{"id":2,"error":{"code":103,"message":"permission denied"}}"#,
        refused(103, "permission denied", false),
    );
    json(
        r#"{"id":2,"error":{"code":111,"message":"too many requests","temporary":true}}"#,
        refused(111, "too many requests", true),
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
        r#"{"connect":{"client":"x","subs":{"a":{},"b":{"recoverable":true,"recovered":true,"epoch":"e","offset":7}}}}"#,
        Said::Connected {
            pong: false,
            subs: vec![
                ("a".into(), Standing::default()),
                ("b".into(), standing(true, &[])),
            ],
        },
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
    check(&[8, 1, 0x2A, 5, 0x0A, 1, b'x', 0x40, 1], connected(true));
    check(&[8, 1, 0x2A, 0], connected(false));
    check(&[8, 2, 0x32, 0], subscribed(2, Standing::default()));
    // Recoverable (3), epoch (6), a publication (7) with data (4) and offset (6), recovered (8), offset (9). The id may come last.
    let stands = [
        0x32, 17, 0x18, 1, 0x32, 1, b'e', 0x3A, 6, 0x22, 2, b'{', b'}', 0x30, 7, 0x40, 1, 0x48, 7, 8, 2,
    ];
    check(&stands, subscribed(2, standing(true, &[7])));
    check(
        &[8, 2, 0x12, 6, 8, 103, 0x12, 2, b'n', b'o'],
        refused(103, "no", false),
    );
    check(
        &[8, 2, 0x12, 8, 8, 111, 0x12, 2, b'n', b'o', 0x18, 1],
        refused(111, "no", true),
    );
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
        subscribed(0, Standing::default()),
    );
}

#[test]
fn a_push_says_its_offset() {
    let check = |text: &str, expect: u64| {
        let end = text.find("}").map_or(0, |end| end + 1);
        assert_eq!(offset(Json, text.as_bytes(), end), expect, "{text}");
    };
    check(r#"{"push":{"channel":"a","pub":{"data":{},"offset":12}}}"#, 12);
    check(
        r#"{"channel":"a","pub":{"data":{}, "offset": 18446744073709551615 }}"#,
        u64::MAX,
    );
    check(r#"{"push":{"channel":"a","pub":{"offset":3,"data":{}}}}"#, 3);
    for none in [
        r#"{"push":{"channel":"a","pub":{"data":{}}}}"#,
        r#"{"pub":{"data":{},"offset":"x"}}"#,
        r#"{"pub":{"data":{},"offset":99999999999999999999}}"#,
        r#"{"pub":{"data":{},"offset":"#,
    ] {
        check(none, 0);
    }
    // A push (4) of channel `a` (2) with a publication (4) of data (4) and offset (6).
    let whole = [0x22, 11, 0x12, 1, b'a', 0x22, 6, 0x22, 2, b'{', b'}', 0x30, 12];
    assert_eq!(offset(Protobuf, &whole, 11), 12);
    for cut in 0..whole.len() {
        assert_eq!(offset(Protobuf, &whole[..cut], cut), 0);
    }
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
    let none = Wish::default();
    let both = text(&|out| {
        subscribe(out, Json, 2, none, &name);
        subscribe(out, Json, 3, none, &name);
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
        written(&|out| subscribe(out, Protobuf, 300, none, &name)),
        [9, 8, 0xAC, 2, 0x2A, 4, 0x0A, 2, b'a', b'b']
    );
    assert_eq!(written(&|out| pong(out, Protobuf)), [0]);
    let channels = [(b"a".to_vec(), none), (b"b".to_vec(), none)];
    assert_eq!(
        text(&|out| listening(out, None, &channels)),
        r#"{"subs":{"a":{},"b":{}}}"#
    );
    assert_eq!(
        text(&|out| listening(out, Some("t"), &channels)),
        r#"{"token":"t","subs":{"a":{},"b":{}}}"#
    );
}

#[test]
fn who_comes_back_says_where_it_stood() {
    let name = |out: &mut Vec<u8>| out.extend_from_slice(b"ab");
    let first = Wish {
        recoverable: true,
        since: None,
    };
    let again = Wish {
        recoverable: true,
        since: Some((300, "e\"")),
    };
    let json = |wish| {
        let mut out = Vec::new();
        subscribe(&mut out, Json, 2, wish, &name);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        json(first),
        r#"{"id":2,"subscribe":{"channel":"ab","recoverable":true}}"#
    );
    assert_eq!(
        json(again),
        r#"{"id":2,"subscribe":{"channel":"ab","recoverable":true,"recover":true,"offset":300,"epoch":"e\""}}"#
    );
    let mut out = Vec::new();
    listening(&mut out, None, &[(b"a".to_vec(), first), (b"b".to_vec(), again)]);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"subs":{"a":{"recoverable":true},"b":{"recoverable":true,"recover":true,"offset":300,"epoch":"e\""}}}"#
    );
    // Channel (1), recover (3), epoch (6), offset (7), recoverable (10).
    let mut out = Vec::new();
    subscribe(&mut out, Protobuf, 2, again, &name);
    let request = [
        0x0A, 2, b'a', b'b', 0x18, 1, 0x32, 2, b'e', b'"', 0x38, 0xAC, 2, 0x50, 1,
    ];
    assert_eq!(out, [&[19, 8, 2, 0x2A, 15][..], &request].concat());
}
