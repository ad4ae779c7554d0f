//! Lines: every format, and that no text of a client breaks out of its place. The way to the writer is tested in
//! `tests/access_log.rs`.

use std::net::{Ipv4Addr, Ipv6Addr};

use ringmain_wire::h1::Version;
use serde_json::Value;

use super::*;

fn record() -> Record<'static> {
    Record {
        remote: Some(Ipv4Addr::LOCALHOST.into()),
        time: Duration::from_millis(784_111_777_123),
        method: "GET",
        target: "/a?b=c",
        version: Some(Version::Http11),
        status: 200,
        body_bytes: 5,
        duration_us: 1234,
        referer: Some(b"http://example.org/"),
        user_agent: Some(b"curl/8"),
        request_id: Some("abc"),
        log_fields: &[],
    }
}

fn line(record: &Record<'_>, format: Format) -> String {
    let mut out = b"before".to_vec();
    let hidden: Vec<Box<str>> = REDACTED_PARAMS.into_iter().map(Into::into).collect();
    record.write(&format, &hidden, &mut out);
    let text = String::from_utf8(out).expect("a line is text");
    text.strip_prefix("before").expect("it is appended").to_owned()
}

#[test]
fn the_three_formats() {
    let bare = Record {
        remote: None,
        version: Some(Version::Http10),
        referer: None,
        user_agent: None,
        request_id: None,
        body_bytes: 0,
        ..record()
    };
    let six = Record {
        remote: Some(Ipv6Addr::LOCALHOST.into()),
        ..record()
    };
    let common = "127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.1\" 200 5";
    let table = [
        (record(), Format::Common, format!("{common}\n")),
        (
            record(),
            Format::Combined,
            format!("{common} \"http://example.org/\" \"curl/8\"\n"),
        ),
        (
            bare,
            Format::Combined,
            "- - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.0\" 200 0 \"-\" \"-\"\n".into(),
        ),
        (six, Format::Common, common.replace("127.0.0.1", "::1") + "\n"),
        (
            record(),
            Format::Json,
            concat!(
                r#"{"time":"1994-11-06T08:49:37.123Z","remote":"127.0.0.1","method":"GET","target":"/a?b=c","#,
                r#""version":"HTTP/1.1","status":200,"bytes":5,"duration_us":1234,"#,
                r#""referer":"http://example.org/","user_agent":"curl/8","request_id":"abc"}"#,
                "\n"
            )
            .into(),
        ),
        (
            bare,
            Format::Json,
            concat!(
                r#"{"time":"1994-11-06T08:49:37.123Z","method":"GET","target":"/a?b=c","#,
                r#""version":"HTTP/1.0","status":200,"bytes":0,"duration_us":1234}"#,
                "\n"
            )
            .into(),
        ),
    ];
    for (record, format, expected) in table {
        assert_eq!(line(&record, format), expected);
    }
}

#[test]
fn a_client_cannot_forge_a_line() {
    let agent = b"x\" 200 0\r\n\\\x1b[31m\x00\x7f\xc3\xa9\xc2\x9b\xff";
    let record = Record {
        user_agent: Some(agent),
        ..record()
    };
    let combined = line(&record, Format::Combined);
    let expected = "\"x\\\" 200 0\\x0d\\x0a\\\\\\x1b[31m\\x00\\x7f\\xc3\\xa9\\xc2\\x9b\\xff\"\n";
    assert!(combined.ends_with(expected), "{combined}");
    let json = line(&record, Format::Json);
    let expected = r#""x\" 200 0\u000d\u000a\\\u001b[31m\u0000\u007fé\u009b�""#;
    assert!(json.contains(expected), "{json}");
}

#[test]
fn every_byte_in_every_place_stays_there() {
    for byte in 0..=u8::MAX {
        let value = [b'a', byte, b'"', b'\\', byte];
        let text = String::from_utf8_lossy(&value);
        let record = Record {
            method: &text,
            target: &text,
            referer: Some(&value),
            user_agent: Some(&value),
            request_id: Some(&text),
            ..record()
        };
        let combined = line(&record, Format::Combined);
        let body = combined.strip_suffix('\n').expect("a line");
        assert!(body.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{combined}");
        let marks = body.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        assert_eq!(marks, 6, "three quotations: {combined}");

        let json = line(&record, Format::Json);
        let body = json.strip_suffix('\n').expect("a line");
        assert!(!body.chars().any(char::is_control), "{json:?}");
        let value: Value = serde_json::from_str(body).expect("JSON");
        for name in ["method", "target", "referer", "user_agent", "request_id"] {
            assert_eq!(value[name], *text, "{name} with byte {byte}");
        }
    }
}

#[test]
fn a_long_text_is_cut() {
    let long = "é".repeat(limits::ACCESS_LOG_FIELD_BYTES);
    let record = Record {
        target: &long,
        ..record()
    };
    let json = line(&record, Format::Json);
    let value: Value = serde_json::from_str(&json).expect("JSON");
    let target = value["target"].as_str().expect("text");
    assert_eq!(
        target.strip_suffix("...").map(str::len),
        Some(limits::ACCESS_LOG_FIELD_BYTES)
    );
    let exact = &long[..limits::ACCESS_LOG_FIELD_BYTES];
    let record = Record {
        target: exact,
        ..record
    };
    assert!(!line(&record, Format::Json).contains("..."));
}

#[test]
fn tokens_are_in_no_line() {
    let record = Record {
        target: "/connection/uni_sse?cf_connect=%7B%22token%22%3A%22SECRET%22%7D&a=1",
        referer: Some(b"https://example.org/?access_token=SECRET"),
        ..record()
    };
    let template = Template::parse("{target} {referer}", &[]).expect("a template");
    for format in [
        Format::Common,
        Format::Combined,
        Format::Json,
        Format::Template(template),
    ] {
        let is_combined = format != Format::Common;
        let line = line(&record, format);
        assert!(line.contains("/connection/uni_sse?cf_connect=***&a=1"), "{line}");
        assert!(
            !is_combined || line.contains("https://example.org/?access_token=***"),
            "{line}"
        );
        assert!(!line.contains("SECRET"), "{line}");
    }
}
