//! What stands in fields: content types, codes, messages for people, deadlines, metadata. By tables, and round trips.

use std::time::Duration;

use ringmain_wire::grpc::{
    Accepted, Code, ContentType, Dialect, Encoding, binary_values, decode_message, encode_message, is_binary,
    is_reserved, is_text, is_valid_name, parse_timeout, write_binary, write_timeout,
};

use crate::shared_rng::Rng;

#[test]
fn content_types() {
    for (value, expected) in [
        ("application/grpc", Some((Dialect::Grpc, None))),
        ("application/grpc+proto", Some((Dialect::Grpc, Some("proto")))),
        ("Application/GRPC+Proto", Some((Dialect::Grpc, Some("Proto")))),
        (" application/grpc ; charset=utf-8", Some((Dialect::Grpc, None))),
        ("application/grpc+json", Some((Dialect::Grpc, Some("json")))),
        ("application/grpc-web", Some((Dialect::Web, None))),
        (
            "application/grpc-web+proto;a=b",
            Some((Dialect::Web, Some("proto"))),
        ),
        ("application/grpc-web-text", Some((Dialect::WebText, None))),
        (
            "application/grpc-web-text+proto",
            Some((Dialect::WebText, Some("proto"))),
        ),
        ("", None),
        ("application/grp", None),
        ("application/grpcs", None),
        ("application/grpc+", None),
        ("application/grpc-webtext", None),
        ("application/grpc-web-texts", None),
        ("application/grpc proto", None),
        ("application/json", None),
        ("x application/grpc", None),
    ] {
        let found = ContentType::parse(value.as_bytes());
        assert_eq!(
            found.map(|found| (found.dialect, found.format)),
            expected,
            "{value}"
        );
        if let Some(found) = found.filter(ContentType::is_proto) {
            let answer = ContentType::parse(found.of_answer().as_bytes()).unwrap();
            assert_eq!(answer.dialect, found.dialect);
            assert_eq!(answer.format.is_some(), found.format.is_some());
        }
    }
    let is_proto = |value: &str| ContentType::parse(value.as_bytes()).unwrap().is_proto();
    assert!(is_proto("application/grpc") && is_proto("application/grpc+PROTO"));
    assert!(!is_proto("application/grpc+json") && !is_proto("application/grpc+protobuf"));
}

#[test]
fn codes() {
    for (number, code) in Code::ALL.iter().enumerate() {
        assert_eq!(usize::from(code.number()), number);
        assert_eq!(Code::of_number(code.number().into()), *code);
        assert_eq!(Code::parse(number.to_string().as_bytes()), *code);
        // `InvalidArgument` is `INVALID_ARGUMENT`.
        let words = format!("{code:?}").to_lowercase();
        assert_eq!(code.name().replace('_', "").to_lowercase(), words);
    }
    assert_eq!(Code::ALL.len(), 17);
    for value in [
        "",
        "17",
        "-1",
        "+1",
        " 1",
        "1 ",
        "99999999999",
        "4294967296",
        "OK",
        "\u{e9}",
    ] {
        assert_eq!(Code::parse(value.as_bytes()), Code::Unknown, "{value:?}");
    }
    for (status, code) in [
        (200, Code::Unknown),
        (400, Code::Internal),
        (401, Code::Unauthenticated),
        (403, Code::PermissionDenied),
        (404, Code::Unimplemented),
        (429, Code::Unavailable),
        (500, Code::Unknown),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::Unavailable),
    ] {
        assert_eq!(Code::of_http(status), code, "{status}");
    }
}

#[test]
fn messages_for_people() {
    for (message, value) in [
        ("", ""),
        ("not found", "not found"),
        ("100%", "100%25"),
        (" a b ", "%20a b%20"),
        (" ", "%20"),
        ("a\r\nb\u{7f}", "a%0D%0Ab%7F"),
        ("\u{e4}\u{1F600}", "%C3%A4%F0%9F%98%80"),
        ("~", "~"),
    ] {
        let mut found = String::new();
        encode_message(&mut found, message);
        assert_eq!(found, value);
        assert_eq!(decode_message(value.as_bytes()), message);
    }
    // What is no escape stands for itself.
    for (value, message) in [
        ("%", "%"),
        ("%4", "%4"),
        ("%zz%41", "%zzA"),
        ("%%41", "%A"),
        ("%c3%A4", "\u{e4}"),
        ("%FF", "\u{FFFD}"),
    ] {
        assert_eq!(decode_message(value.as_bytes()), message, "{value}");
    }
    assert_eq!(decode_message(b"\xFF"), "\u{FFFD}");
}

#[test]
fn deadlines() {
    for (value, expected) in [
        ("1H", Some(Duration::from_secs(3600))),
        ("2M", Some(Duration::from_secs(120))),
        ("3S", Some(Duration::from_secs(3))),
        ("4m", Some(Duration::from_millis(4))),
        ("5u", Some(Duration::from_micros(5))),
        ("6n", Some(Duration::from_nanos(6))),
        ("0n", Some(Duration::ZERO)),
        ("00000001S", Some(Duration::from_secs(1))),
        ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
        ("100000000n", None),
        ("", None),
        ("1", None),
        ("S", None),
        ("1s", None),
        ("1h", None),
        ("-1S", None),
        ("+1S", None),
        ("1.5S", None),
        (" 1S", None),
        ("1S ", None),
        ("1 S", None),
    ] {
        assert_eq!(parse_timeout(value.as_bytes()), expected, "{value:?}");
    }
    for (timeout, value) in [
        (Duration::ZERO, "0n"),
        (Duration::from_nanos(99_999_999), "99999999n"),
        (Duration::from_nanos(100_000_001), "100001u"),
        (Duration::from_millis(1500), "1500000u"),
        (Duration::from_secs(100), "100000m"),
        (Duration::from_secs(100_000), "100000S"),
        (Duration::from_secs(100_000_000), "1666667M"),
        (Duration::MAX, "99999999H"),
    ] {
        let mut found = String::new();
        write_timeout(&mut found, timeout);
        assert_eq!(found, value);
    }
}

#[test]
fn a_written_deadline_is_never_shorter_and_hardly_longer() {
    let mut rng = Rng(7);
    for _ in 0..10_000 {
        let bits = rng.below(58);
        let timeout = Duration::from_nanos(rng.next() >> (63 - bits));
        let mut value = String::new();
        write_timeout(&mut value, timeout);
        let read = parse_timeout(value.as_bytes()).expect("what is written can be read");
        assert!(read >= timeout, "{timeout:?} as {value}");
        assert!(read - timeout <= timeout / 1000, "{timeout:?} as {value}");
    }
}

#[test]
fn encodings_by_name() {
    for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Deflate] {
        assert_eq!(Encoding::of(encoding.name().as_bytes()), Some(encoding));
        assert!(Encoding::ALL.split(',').any(|name| name == encoding.name()));
    }
    assert_eq!(Encoding::of(b"br"), None);
    let accepted = |values: &[&str]| {
        let accepted = Accepted::parse(values.iter().map(|value| value.as_bytes()));
        let all = [Encoding::Identity, Encoding::Gzip, Encoding::Deflate];
        all.map(|encoding| accepted.has(encoding))
    };
    assert_eq!(accepted(&[]), [true, false, false]);
    assert_eq!(accepted(&["br, gzip"]), [true, true, false]);
    assert_eq!(accepted(&["deflate", ",gzip,"]), [true, true, true]);
    assert_eq!(accepted(&["gzipped"]), [true, false, false]);
}

#[test]
fn names_and_values_of_metadata() {
    assert!(is_binary("x-bin") && is_binary("a-BIN") && is_binary("-bin"));
    assert!(!is_binary("bin") && !is_binary("x-bins") && !is_binary(""));
    for name in [
        "grpc-status",
        "GRPC-x",
        "Content-Type",
        "te",
        "user-agent",
        "trailer",
    ] {
        assert!(is_reserved(name), "{name}");
    }
    for name in ["", "grpc", "x-grpc-", "tea", "authorization"] {
        assert!(!is_reserved(name), "{name}");
    }
    assert!(is_valid_name("x_1-a.b") && !is_valid_name("") && !is_valid_name("X") && !is_valid_name("a b"));
    assert!(!is_valid_name(":path") && !is_valid_name("\u{e4}"));
    assert!(is_text("") && is_text("a ~") && !is_text(" a") && !is_text("a\t") && !is_text("\u{e4}"));
}

#[test]
fn bytes_in_metadata() {
    let values = |line: &str| binary_values(line.as_bytes()).collect::<Vec<_>>();
    assert_eq!(values("AP8Q"), [Some(vec![0, 255, 16])]);
    assert_eq!(
        values("AA, AA== ,AAA"),
        [Some(vec![0]), Some(vec![0]), Some(vec![0, 0])]
    );
    assert_eq!(values(""), [Some(vec![])]);
    assert_eq!(values("A,-_=="), [None, None]);
    let mut rng = Rng(11);
    for length in 0..50 {
        let bytes: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
        let mut text = String::new();
        write_binary(&mut text, &bytes);
        assert!(!text.contains('='), "no padding");
        assert_eq!(values(&text), [Some(bytes)]);
    }
}
