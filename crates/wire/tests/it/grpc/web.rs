//! The trailers of gRPC-Web.

use ringmain_wire::grpc::{Decoder, FaultKind, Limits, WebTrailers, write_web_trailers};
use ringmain_wire::h1::FieldBlock;

use crate::grpc::messages::{Seen, read};

#[test]
fn lines() {
    for (payload, expected) in [
        ("", Ok(vec![])),
        ("grpc-status: 0\r\n", Ok(vec!["grpc-status=0"])),
        ("grpc-status:0\r\n", Ok(vec!["grpc-status=0"])),
        ("a:  b c \r\nd-bin:\r\n", Ok(vec!["a=b c", "d-bin="])),
        ("a: b:c\r\na: d\r\n", Ok(vec!["a=b:c", "a=d"])),
        ("a: \u{e4}\r\n", Ok(vec!["a=\u{e4}"])),
        ("a: b", Err(0)),
        ("a: b\n", Err(0)),
        ("a: b\r\nc: d\r", Err(6)),
        ("a: b\r\nc\r\n", Err(6)),
        ("\r\n", Err(0)),
        (": b\r\n", Err(0)),
        ("a b: c\r\n", Err(0)),
        ("a: b\0\r\n", Err(0)),
        ("a: b\rc\r\n", Err(0)),
        ("a: b\nc: d\r\n", Err(0)),
        ("a: b\r\n\r\n", Err(6)),
    ] {
        let found = WebTrailers::parse(payload.as_bytes()).map(|trailers| {
            let lines = trailers.iter().map(|field| {
                let text = |bytes| str::from_utf8(bytes).unwrap();
                format!("{}={}", text(field.name), text(field.value))
            });
            lines.collect::<Vec<_>>()
        });
        let found = found.map_err(|fault| {
            assert_eq!(fault.kind, FaultKind::TrailerLine);
            fault.at
        });
        let expected = expected.map(|lines| lines.into_iter().map(str::to_owned).collect());
        assert_eq!(found, expected, "{payload:?}");
    }
}

#[test]
fn what_was_written_reads_as_the_same() {
    let mut fields = FieldBlock::new();
    fields.push("grpc-status", b"5").unwrap();
    fields.push("grpc-message", b"not there").unwrap();
    fields.push("x-empty", b"").unwrap();
    let mut body = Vec::new();
    write_web_trailers(&mut body, &fields).unwrap();
    let seen = read(Decoder::with_trailers(&Limits::INTERNET), &body, &[3, 9]);
    let [Seen::Trailers(payload)] = &seen[..] else {
        panic!("trailers alone, not {seen:?}");
    };
    let trailers = WebTrailers::parse(payload).unwrap();
    let found: Vec<_> = trailers.iter().map(|field| (field.name, field.value)).collect();
    let expected: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value))
        .collect();
    assert_eq!(found, expected);
}
