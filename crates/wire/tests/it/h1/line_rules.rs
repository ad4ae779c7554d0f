//! Rules 5, 12 and 13: lines, hosts, request lines, and the limits of a head.

use ringmain_wire::h1::FaultKind::{self, *};
use ringmain_wire::h1::{Known, Limits};

use crate::h1::support::{Event, Role, check, check_fields, check_with, events, verdict, with_request};

#[test]
fn rule_5_lines_end_in_crlf_and_hold_no_control_character() {
    let cases = [
        ("Name : value", Some(FieldName)),
        ("Name\t: value", Some(FieldName)),
        (": value", Some(FieldName)),
        ("Name", Some(FieldColon)),
        ("Name value", Some(FieldName)),
        ("N(me: value", Some(FieldName)),
        ("N\u{e4}me: value", Some(FieldName)),
        ("Name: a\r\n b", Some(FoldedLine)),
        ("Name: a\r\n\tb", Some(FoldedLine)),
        ("Name: a\r\n \r\nX: y", Some(FoldedLine)),
        ("Name: a\0b", Some(FieldValue)),
        ("Name: a\x01", Some(FieldValue)),
        ("Name: \x7f", Some(FieldValue)),
        ("Name: a\x1bb", Some(FieldValue)),
        ("Name: a\rb", Some(BareCarriageReturn)),
        ("Name: a\r\rb", Some(BareCarriageReturn)),
        ("Name: a\r", Some(BareCarriageReturn)),
        ("Name: a\nX: y", Some(BareLineFeed)),
        ("Name\nX: y", Some(BareLineFeed)),
        ("Name\rX: y", Some(BareCarriageReturn)),
        ("Name: a\n", Some(BareLineFeed)),
        ("Name:", None),
        ("Name:   ", None),
        ("Name: a b\tc", None),
        ("Name: \u{e4}\u{ff}", None),
        ("Name: a:b", None),
        ("!#$%&'*+-.^_`|~09azAZ: x", None),
    ];
    for (field, expected) in cases {
        check_fields(field, "", expected);
    }
    // Leading whitespace after the request line; a head that ends in bare line feeds.
    check("GET / HTTP/1.1\r\n Host: a\r\n\r\n", Some(FoldedLine));
    check("GET / HTTP/1.1\r\n\r\n Host: a\r\n\r\n", Some(HostMissing));
    check("GET / HTTP/1.1\nHost: a\n\n", Some(BareLineFeed));
    check("GET / HTTP/1.1\r\nHost: a\r\n\n", Some(BareLineFeed));
    check("GET / HTTP/1.1\r\nHost: a\r\n\rX\n", Some(BareCarriageReturn));
    check("GET / HTTP/1.1\rHost: a\r\n\r\n", Some(BareCarriageReturn));
}

#[test]
fn rule_5_every_byte_in_a_name_and_in_a_value() {
    for byte in 0..=255_u8 {
        let value = [
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a".as_slice(),
            &[byte],
            b"b\r\n\r\n",
        ]
        .concat();
        let expected = match byte {
            b'\n' => Some(BareLineFeed),
            b'\r' => Some(BareCarriageReturn),
            b'\t' | 0x20..=0x7e | 0x80.. => None,
            _ => Some(FieldValue),
        };
        check_with(&Limits::default(), &value, expected);
        let name = [
            b"GET / HTTP/1.1\r\nHost: a\r\nX".as_slice(),
            &[byte],
            b"b: a\r\n\r\n",
        ]
        .concat();
        let expected = match byte {
            b'\n' => Some(BareLineFeed),
            b'\r' => Some(BareCarriageReturn),
            b':' => None,
            _ if byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte) => None,
            _ => Some(FieldName),
        };
        check_with(&Limits::default(), &name, expected);
    }
}

/// Known names are compared by whole words; this is what keeps a look-alike from being one.
#[test]
fn rule_5_no_byte_in_a_known_name_is_taken_for_another() {
    for known in Known::ALL {
        let name = known.name().as_bytes();
        for place in 0..name.len() {
            for byte in 0..=255_u8 {
                let mut changed = name.to_vec();
                changed[place] = byte;
                let same = changed.eq_ignore_ascii_case(name);
                assert_eq!(
                    Known::of(&changed) == Some(*known),
                    same,
                    "{}",
                    changed.escape_ascii()
                );
                let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
                let input = [
                    b"GET / HTTP/1.0\r\n".as_slice(),
                    &changed,
                    b": 0, and enough behind it\r\n\r\n",
                ]
                .concat();
                let verdict = verdict(Role::Server, &Limits::default(), &input);
                if !is_token && byte != b':' {
                    assert!(verdict.is_err(), "{}", input.escape_ascii());
                }
            }
        }
    }
}

#[test]
fn rule_12_exactly_one_valid_host() {
    check("GET / HTTP/1.1\r\n\r\n", Some(HostMissing));
    check("GET / HTTP/1.0\r\n\r\n", None);
    check("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", Some(HostRepeated));
    check("GET http://a/ HTTP/1.1\r\n\r\n", Some(HostMissing));
    for (host, good) in [
        ("a", true),
        ("a.b.c", true),
        ("a:80", true),
        ("a:", true),
        ("127.0.0.1:8080", true),
        ("[::1]", true),
        ("[2001:db8::1]:443", true),
        ("a_b", true),
        ("%41b", true),
        ("a:65535", true),
        ("xn--a", true),
        ("", false),
        (":80", false),
        ("a b", false),
        ("a,b", true),
        ("a/b", false),
        ("u@a", false),
        ("u:p@a", false),
        ("a:x", false),
        ("a:65536", false),
        ("a:-1", false),
        ("a:8 0", false),
        ("a:80:80", false),
        ("[::1", false),
        ("::1", false),
        ("[::1]x", false),
        ("[1.2.3.4]", false),
        ("[::1%25eth0]", false),
        ("[v1.a]", false),
        ("a\\b", false),
        ("a?b", false),
        ("a#b", false),
        ("\u{e4}", false),
        ("%4", false),
        ("%zz", false),
        ("a\tb", false),
        ("http://a", false),
        ("a\"b", false),
        ("<a>", false),
    ] {
        let expected = (!good).then_some(Authority);
        check(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), expected);
        check(
            &format!("GET http://b/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            expected,
        );
    }
    for twice in [
        "Host: a\r\nHost: a",
        "Host: a\r\nhost: b",
        "HOST: a\r\nX: y\r\nHost: a",
    ] {
        check(&format!("GET / HTTP/1.1\r\n{twice}\r\n\r\n"), Some(HostRepeated));
    }
}

#[test]
fn rule_12_the_authority_of_the_target_overrides_host() {
    let authority = |target: &str| {
        let input = format!("GET {target} HTTP/1.1\r\nHost: field:1\r\n\r\n");
        with_request(input.as_bytes(), |head, _| {
            head.authority.map(|authority| authority.as_str().to_owned())
        })
    };
    assert_eq!(authority("/").as_deref(), Some("field:1"));
    assert_eq!(
        authority("http://target:2/").as_deref(),
        Some("target:2"),
        "RFC 9112 §3.2.2"
    );
}

#[test]
fn rule_13_request_lines() {
    let cases = [
        ("GET / HTTP/1.1", None),
        ("GET / HTTP/1.0", None),
        ("get / HTTP/1.1", None),
        ("M-SEARCH!#$%&'*+.^_`|~ / HTTP/1.1", None),
        ("GET /a?b=c|d{e}^f HTTP/1.1", None),
        ("GET http://a HTTP/1.1", None),
        ("GET HTTPS://a:1/b?c HTTP/1.1", None),
        ("GET http://[::1]?x HTTP/1.1", None),
        ("OPTIONS * HTTP/1.1", None),
        ("OPTIONS /x HTTP/1.1", None),
        (" GET / HTTP/1.1", Some(FaultKind::Method)),
        ("\tGET / HTTP/1.1", Some(FaultKind::Method)),
        ("G\u{c4}T / HTTP/1.1", Some(FaultKind::Method)),
        ("G(T / HTTP/1.1", Some(FaultKind::Method)),
        ("GET", Some(FaultKind::Method)),
        ("GET\t/ HTTP/1.1", Some(FaultKind::Method)),
        ("GET  / HTTP/1.1", Some(Target)),
        ("GET /\tHTTP/1.1", Some(Target)),
        ("GET /\0 HTTP/1.1", Some(Target)),
        ("GET /a#b HTTP/1.1", Some(Target)),
        ("GET /\u{e4} HTTP/1.1", Some(Target)),
        ("GET /\x7f HTTP/1.1", Some(Target)),
        ("GET ", Some(Target)),
        ("GET / ", Some(Version)),
        ("GET /", Some(Version)),
        ("GET /  HTTP/1.1", Some(Version)),
        ("GET /a b HTTP/1.1", Some(Version)),
        ("GET / HTTP/1.1 ", Some(Version)),
        ("GET / HTTP/1.10", Some(Version)),
        ("GET / HTTP/1", Some(Version)),
        ("GET / HTTP/01.1", Some(Version)),
        ("GET / http/1.1", Some(Version)),
        ("GET / HTTP /1.1", Some(Version)),
        ("GET / HTTPS/1.1", Some(Version)),
        ("GET / HTTP/1.2", Some(VersionUnsupported)),
        ("GET / HTTP/2.0", Some(VersionUnsupported)),
        ("GET / HTTP/0.9", Some(VersionUnsupported)),
        ("PRI * HTTP/2.0", Some(VersionUnsupported)),
        ("GET * HTTP/1.1", Some(TargetForm)),
        ("GET a HTTP/1.1", Some(TargetForm)),
        ("GET a:80 HTTP/1.1", Some(TargetForm)),
        ("OPTIONS ** HTTP/1.1", Some(TargetForm)),
        ("GET ftp://a/ HTTP/1.1", Some(TargetForm)),
        ("GET ://a/ HTTP/1.1", Some(TargetForm)),
        ("GET http:/a HTTP/1.1", Some(TargetForm)),
        ("GET http:///a HTTP/1.1", Some(Authority)),
        ("GET http://u@a/ HTTP/1.1", Some(Authority)),
        ("GET http://a:x/ HTTP/1.1", Some(Authority)),
        ("GET http://a\\b/ HTTP/1.1", Some(Authority)),
    ];
    for (line, expected) in cases {
        check(&format!("{line}\r\nHost: a\r\n\r\n"), expected);
    }
    // RFC 9112 §2.2: one empty line before the request, no more, and none of another kind.
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    check(&format!("\r\n{request}"), None);
    check(&format!("{request}\r\n{request}"), None);
    check(&format!("\r\n\r\n{request}"), Some(FaultKind::Method));
    check(&format!("\n{request}"), Some(BareLineFeed));
    check(&format!("\r{request}"), Some(BareCarriageReturn));
    check(&format!(" \r\n{request}"), Some(FaultKind::Method));
}

#[test]
fn rule_13_limits_of_heads() {
    let limits = Limits {
        head_bytes: 100,
        start_line_bytes: 30,
        fields: 3,
        ..Limits::default()
    };
    let check = |input: String, expected| check_with(&limits, input.as_bytes(), expected);
    let rest = "Host: a\r\n\r\n";
    // "GET " and " HTTP/1.1\r\n" are 15 bytes.
    check(format!("GET /{} HTTP/1.1\r\n{rest}", "x".repeat(14)), None);
    check(format!("\r\nGET /{} HTTP/1.1\r\n{rest}", "x".repeat(14)), None);
    check(
        format!("GET /{} HTTP/1.1\r\n{rest}", "x".repeat(15)),
        Some(StartLineTooLong),
    );
    check("x".repeat(30), Some(StartLineTooLong));
    check("\0".repeat(30), Some(StartLineTooLong));
    check(format!("GET / HTTP/1.1\r\nA:\r\nB:\r\n{rest}"), None);
    check(
        format!("GET / HTTP/1.1\r\nA:\r\nB:\r\nC:\r\n{rest}"),
        Some(TooManyFields),
    );
    // The line, "A: ", its CRLF and the rest are 16 + 3 + 2 + 11 bytes.
    check(format!("GET / HTTP/1.1\r\nA: {}\r\n{rest}", "x".repeat(68)), None);
    check(
        format!("GET / HTTP/1.1\r\nA: {}\r\n{rest}", "x".repeat(69)),
        Some(HeadTooLarge),
    );
    check(
        format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(81)),
        Some(HeadTooLarge),
    );
    check(
        format!("GET / HTTP/1.1\r\nA: {}", "\0".repeat(81)),
        Some(HeadTooLarge),
    );
}

#[test]
fn every_fault_says_its_status_and_what_to_do() {
    let fault = verdict_text(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    assert_eq!(
        fault,
        "at byte 20: expected a field name of token characters, then a colon; found ` ` (RFC 9112 §5.1; answer 400 and close)"
    );
    assert_eq!(StartLineTooLong.status(), 414);
    assert_eq!(HeadTooLarge.status(), 431);
    assert_eq!(BodyTooLarge.status(), 413);
    assert_eq!(Expectation.status(), 417);
    assert_eq!(TransferCodingUnknown.status(), 501);
    assert_eq!(VersionUnsupported.status(), 505);
}

fn verdict_text(input: &[u8]) -> String {
    match events(Role::Server, &Limits::default(), input, &[]).pop() {
        Some(Event::Fault(fault)) => fault.to_string(),
        other => panic!("expected a fault, found {other:?}"),
    }
}

/// Targets are read by words: what is in one may not depend on where it stands.
#[test]
fn targets_are_read_alike_wherever_a_byte_stands() {
    for before in 0..18 {
        for byte in (0..=255_u8).filter(|byte| *byte != b' ') {
            for behind in ["", "b?c", "bcdefghijk"] {
                let target = [b"/".as_slice(), &vec![b'a'; before], &[byte], behind.as_bytes()].concat();
                let request = [b"GET ", target.as_slice(), b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
                let fits = byte.is_ascii_graphic() && byte != b'#';
                let verdict = verdict(Role::Server, &Limits::INTERNET, &request);
                assert_eq!(verdict.is_ok(), fits, "{byte:#x} behind {before}: {verdict:?}");
                if !fits {
                    continue;
                }
                let text = str::from_utf8(&target).expect("ASCII");
                let expected = match text.split_once('?') {
                    Some((path, query)) => (path, Some(query)),
                    None => (text, None),
                };
                with_request(&request, |head, _| {
                    assert_eq!((head.target.path(), head.target.query()), expected);
                });
            }
        }
    }
}
