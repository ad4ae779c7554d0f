//! Rules 1 to 4 and 7 to 9: where a request ends, and what may not be said about it.

use ringmain_wire::h1::FaultKind::{self, *};
use ringmain_wire::h1::{Framing, Limits};

use crate::h1::support::{Event, Role, check, check_fields, check_with, framing, verdict, with_request};

#[test]
fn rule_1_transfer_encoding_with_content_length() {
    let both = Some(TransferEncodingAndLength);
    check_fields(
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "0\r\n\r\n",
        both,
    );
    check_fields(
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
        both,
    );
    check_fields(
        "Content-Length: 0\r\ntransfer-encoding: chunked",
        "0\r\n\r\n",
        both,
    );
    check_fields("Content-Length: x\r\nTransfer-Encoding: nonsense", "", both);
    check_fields("Transfer-Encoding: chunked", "0\r\n\r\n", None);
    check_fields("Content-Length: 5", "hello", None);
}

#[test]
fn rule_2_content_length_is_one_plain_number() {
    for repeated in [
        "5\r\nContent-Length: 5",
        "5\r\nContent-Length: 6",
        "5\r\ncontent-length:5",
    ] {
        check_fields(
            &format!("Content-Length: {repeated}"),
            "hello",
            Some(ContentLengthRepeated),
        );
    }
    for bad in [
        "",
        "5, 5",
        "5,6",
        "+5",
        "-5",
        "-0",
        "0x5",
        "5 5",
        "5;",
        "5.0",
        "5e0",
        "5_0",
        "five",
        "5\t5",
        "\u{665}",
        "9223372036854775808",
        "18446744073709551616",
        "18446744073709551621",
        "99999999999999999999999999999999999999",
    ] {
        check_fields(&format!("Content-Length: {bad}"), "hello", Some(ContentLength));
    }
    for good in [
        "5",
        " 5",
        "5 ",
        "\t5\t ",
        "005",
        "0000000000000000000000000000000000005",
    ] {
        check_fields(&format!("Content-Length:{good}"), "hello", None);
    }
    let largest = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n";
    assert_eq!(framing(largest.as_bytes()), Framing::Length(i64::MAX as u64));
}

#[test]
fn rule_3_transfer_encoding_is_exactly_chunked() {
    let cases = [
        ("chunked", None),
        ("Chunked", None),
        (" \tCHUNKED\t ", None),
        ("gzip", Some(TransferEncoding)),
        ("identity", Some(TransferEncoding)),
        ("", Some(TransferEncoding)),
        (",chunked", Some(TransferEncoding)),
        ("chunked,", Some(TransferEncoding)),
        ("chunked, chunked", Some(TransferEncoding)),
        ("chunked\r\nTransfer-Encoding: chunked", Some(TransferEncoding)),
        ("chunked, gzip", Some(TransferEncoding)),
        ("chunked, identity", Some(TransferEncoding)),
        ("chunked\r\nTransfer-Encoding: identity", Some(TransferEncoding)),
        ("chunked;q=1", Some(TransferEncoding)),
        ("chunked ; a", Some(TransferEncoding)),
        ("chunked gzip", Some(TransferEncoding)),
        ("\"chunked\"", Some(TransferEncoding)),
        ("'chunked'", Some(TransferEncoding)),
        ("xchunked", Some(TransferEncoding)),
        ("chunke\u{0434}", Some(TransferEncoding)),
        ("gzip, chunked", Some(TransferCodingUnknown)),
        ("identity, chunked", Some(TransferCodingUnknown)),
        ("gzip\r\nTransfer-Encoding: chunked", Some(TransferCodingUnknown)),
        ("\x0bchunked", Some(FieldValue)),
        ("chunked\x0b", Some(FieldValue)),
        ("chunked\0", Some(FieldValue)),
        ("\r\n chunked", Some(FoldedLine)),
        ("chunked\r\n\tgzip", Some(FoldedLine)),
        ("\n chunked", Some(BareLineFeed)),
        ("\rchunked", Some(BareCarriageReturn)),
    ];
    for (value, expected) in cases {
        check_fields(&format!("Transfer-Encoding:{value}"), "0\r\n\r\n", expected);
    }
}

#[test]
fn rule_3_names_that_look_like_framing_fields() {
    let names = [
        ("Transfer-Encoding ", FieldName),
        ("Transfer-Encoding\t", FieldName),
        (" Transfer-Encoding", FoldedLine),
        ("\tTransfer-Encoding", FoldedLine),
        ("Transfer Encoding", FieldName),
        ("Transfer-Encoding\x0b", FieldName),
        ("\x0bTransfer-Encoding", FieldName),
        ("\0Transfer-Encoding", FieldName),
        ("Transfer-Encoding\0", FieldName),
        ("\"Transfer-Encoding\"", FieldName),
        ("Transfer\u{2010}Encoding", FieldName),
        ("Transfer_Encoding", FramingNameVariant),
        ("transfer_encoding", FramingNameVariant),
        ("Content_Length", FramingNameVariant),
        ("content_length", FramingNameVariant),
        ("Transfer.Encoding", FramingNameVariant),
        ("content~length", FramingNameVariant),
        ("\rTransfer-Encoding", BareCarriageReturn),
        ("\nTransfer-Encoding", BareLineFeed),
        ("X: y\nTransfer-Encoding", BareLineFeed),
    ];
    for (name, expected) in names {
        check_fields(&format!("{name}: chunked"), "0\r\n\r\n", Some(expected));
    }
    // Other names, no framing: they stay what they are.
    for name in [
        "Transfer-Encodin",
        "Transfer-Encodings",
        "X-Transfer_Encoding",
        "TransferEncoding",
        "Content0Length",
    ] {
        check_fields(&format!("{name}: chunked"), "", None);
    }
}

#[test]
fn rule_4_http_1_0_has_no_transfer_encoding_and_no_request_lasts_until_close() {
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    check(old, Some(TransferEncodingOldVersion));
    check(
        &old.replace("\r\n\r\n0", "\r\nConnection: keep-alive\r\n\r\n0"),
        Some(TransferEncodingOldVersion),
    );
    check(
        "POST / HTTP/1.0\r\nTransfer-Encoding: identity\r\n\r\n",
        Some(TransferEncodingOldVersion),
    );
    // A POST without a length has no body: what follows is the next request.
    assert_eq!(framing(b"POST / HTTP/1.0\r\n\r\nhello"), Framing::None);
    assert_eq!(
        framing(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nhello"),
        Framing::None
    );
    check(
        "POST / HTTP/1.1\r\nHost: a\r\n\r\nhello\r\n\r\n",
        Some(FaultKind::Method),
    );
}

#[test]
fn rule_7_upgrade_is_an_offer_and_connect_is_off() {
    let upgrade = |fields: &str, version: &str| {
        let input = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n\r\n");
        with_request(input.as_bytes(), |head, _| head.upgrade.map(<[u8]>::to_vec))
    };
    let websocket = Some(b"websocket".to_vec());
    assert_eq!(
        upgrade("Connection: Upgrade\r\nUpgrade: websocket", "1.1"),
        websocket
    );
    assert_eq!(
        upgrade("Connection: keep-alive, uPGRADE\r\nUpgrade: websocket", "1.1"),
        websocket
    );
    assert_eq!(
        upgrade(
            "Connection: a\r\nConnection: upgrade\r\nUpgrade: websocket",
            "1.1"
        ),
        websocket
    );
    assert_eq!(upgrade("Upgrade: websocket", "1.1"), None);
    assert_eq!(upgrade("Connection: upgrade", "1.1"), None);
    assert_eq!(upgrade("Connection: upgraded\r\nUpgrade: websocket", "1.1"), None);
    assert_eq!(upgrade("Connection: upgrade\r\nUpgrade: websocket", "1.0"), None);
    // The bytes after the head stay framed until a 101 is sent.
    check(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
        None,
    );
    check(
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        Some(ConnectRefused),
    );
    let allowed = Limits {
        connect: true,
        ..Limits::default()
    };
    let cases = [
        ("a:443", "", None),
        ("[::1]:443", "", None),
        ("a", "", Some(Authority)),
        ("a:", "", Some(Authority)),
        ("[::1]", "", Some(Authority)),
        (":443", "", Some(Authority)),
        ("/", "", Some(Authority)),
        ("http://a:443/", "", Some(Authority)),
        ("u@a:443", "", Some(Authority)),
        ("a:443", "Content-Length: 0\r\n", Some(ConnectContent)),
        ("a:443", "Transfer-Encoding: chunked\r\n", Some(ConnectContent)),
    ];
    for (target, fields, expected) in cases {
        let input = format!("CONNECT {target} HTTP/1.1\r\nHost: a:443\r\n{fields}\r\n");
        check_with(&allowed, input.as_bytes(), expected);
    }
}

#[test]
fn rule_8_a_body_is_consumed_before_the_next_head() {
    let first = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\nGET /x HTTP/1.1\r\n\r";
    check(first, None);
    let both = format!("{first}GET /y HTTP/1.1\r\nHost: a\r\n\r\n");
    let events = verdict(Role::Server, &Limits::default(), both.as_bytes()).expect("two requests");
    let heads = events.iter().filter(|event| matches!(event, Event::Head(_)));
    assert_eq!(heads.count(), 2, "the body is no request: {events:?}");
    let limits = Limits {
        body_bytes: Some(17),
        ..Limits::default()
    };
    check_with(&limits, first.as_bytes(), Some(BodyTooLarge));
    let chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n";
    check_with(&limits, format!("{chunks}1\r\nx\r\n0\r\n\r\n").as_bytes(), None);
    check_with(&limits, format!("{chunks}2\r\n").as_bytes(), Some(BodyTooLarge));
    check_with(
        &limits,
        format!("{chunks}7fffffffffffffff\r\n").as_bytes(),
        Some(BodyTooLarge),
    );
    // Without a limit the sum of chunks still cannot overflow.
    let huge = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nx";
    check(huge, Some(Truncated));
}

#[test]
fn rule_9_expect_is_the_exact_token() {
    let expects = |fields: &str, version: &str| {
        let input = format!("POST / HTTP/{version}\r\nHost: a\r\n{fields}\r\n\r\n");
        with_request(input.as_bytes(), |head, _| head.expect_continue)
    };
    assert!(expects("Expect: 100-continue\r\nContent-Length: 5", "1.1"));
    assert!(expects(
        "Expect: 100-Continue\r\nTransfer-Encoding: chunked",
        "1.1"
    ));
    assert!(!expects("Expect: 100-continue", "1.1"), "nothing to wait for");
    assert!(!expects("Expect: 100-continue\r\nContent-Length: 0", "1.1"));
    assert!(
        !expects("Expect: 100-continue\r\nContent-Length: 5", "1.0"),
        "RFC 9110 §10.1.1"
    );
    for bad in [
        "100-continue, 100-continue",
        "100-continue;a",
        "100-continue\r\nExpect: 100-continue",
        "200-ok",
        "",
        "y 100-continue",
        "100 continue",
        "100-continue\u{a0}",
    ] {
        check_fields(
            &format!("Expect: {bad}\r\nContent-Length: 0"),
            "",
            Some(Expectation),
        );
    }
    check_fields(
        "Expect: 100-continue\r\n 100-continue\r\nContent-Length: 0",
        "",
        Some(FoldedLine),
    );
}
