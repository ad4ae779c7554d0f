//! Rule 11: responses are framed by the same rules.

use ringmain_wire::h1::FaultKind::{self, *};
use ringmain_wire::h1::{FieldTable, Framing, HeadScanner, Limits, Method, Parsed, parse_response};

/// Reads `input` as the answer to `method`: framing, whether the connection lives on, whether it switches.
fn answer(method: Method<'_>, input: &str) -> Result<(Framing, bool, bool), FaultKind> {
    let limits = Limits::default();
    let mut table = FieldTable::new(&limits);
    let input = input.as_bytes();
    match parse_response(input, method, &limits, &mut HeadScanner::new(), &mut table) {
        Ok(Parsed::Complete { head, .. }) => Ok((head.framing, head.keep_alive, head.switches)),
        Ok(Parsed::Partial) => panic!("`{}` is not complete", input.escape_ascii()),
        Err(fault) => Err(fault.kind),
    }
}

const LENGTH: &str = "Content-Length: 5\r\n";
const CHUNKS: &str = "Transfer-Encoding: chunked\r\n";

#[test]
fn rule_11_responses_are_framed_by_the_same_rules() {
    use Framing::{Chunked, Length, UntilClose};
    use Method::{Connect, Get, Head};
    let none = Framing::None;
    let both = &format!("{LENGTH}{CHUNKS}");
    let closing = &format!("{LENGTH}Connection: x, close\r\n");
    let upgrade = "Connection: upgrade\r\nUpgrade: x\r\n";
    // Method, status, fields; framing, whether the connection lives on, whether it switches.
    let cases = [
        (Get, 200, LENGTH, (Length(5), true, false)),
        (Get, 200, CHUNKS, (Chunked, true, false)),
        (Get, 200, "", (UntilClose, false, false)),
        // No length, no reuse.
        (Get, 200, both, (Chunked, false, false)),
        (Get, 200, closing, (Length(5), false, false)),
        (Head, 200, LENGTH, (none, true, false)),
        (Head, 200, CHUNKS, (none, true, false)),
        (Head, 200, "", (none, true, false)),
        (Get, 304, LENGTH, (none, true, false)),
        (Get, 204, "", (none, true, false)),
        (Get, 204, "Content-Length: 0\r\n", (none, true, false)),
        // Who knows what follows.
        (Get, 204, LENGTH, (none, false, false)),
        (Get, 103, CHUNKS, (none, false, false)),
        (Get, 100, "", (none, true, false)),
        (Get, 101, upgrade, (none, false, true)),
        (Connect, 200, LENGTH, (none, false, true)),
        (Connect, 400, LENGTH, (Length(5), true, false)),
    ];
    for (method, status, fields, expected) in cases {
        let found = answer(method, &format!("HTTP/1.1 {status} X\r\n{fields}\r\n"));
        assert_eq!(found, Ok(expected), "{method:?} {status} {fields}");
    }
}

#[test]
fn rule_11_responses_of_old_servers() {
    let old = |fields: &str| answer(Method::Get, &format!("HTTP/1.0 200 OK\r\n{fields}\r\n"));
    let length = Framing::Length(5);
    assert_eq!(old(LENGTH), Ok((length, false, false)));
    let alive = format!("{LENGTH}Connection: keep-alive\r\n");
    assert_eq!(old(&alive), Ok((length, true, false)));
    assert_eq!(old(CHUNKS), Err(TransferEncodingOldVersion));
}

#[test]
fn rule_11_bad_framing_of_responses() {
    let cases = [
        ("Content-Length: 5\r\nContent-Length: 5", ContentLengthRepeated),
        ("Content-Length: 5, 5", ContentLength),
        ("Content-Length: +5", ContentLength),
        ("Transfer-Encoding: gzip", TransferEncoding),
        ("Transfer-Encoding: gzip, chunked", TransferCodingUnknown),
        ("Transfer-Encoding: chunked, chunked", TransferEncoding),
        ("Transfer-Encoding : chunked", FieldName),
        ("Content_Length: 5", FramingNameVariant),
    ];
    for (fields, kind) in cases {
        // Also where there is no body.
        for method in [Method::Get, Method::Head] {
            let found = answer(method, &format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n"));
            assert_eq!(found, Err(kind), "{fields}");
        }
    }
}

#[test]
fn rule_11_status_lines() {
    let empty = Ok((Framing::Length(0), true, false));
    let cases = [
        ("HTTP/1.1 200 OK", empty),
        ("HTTP/1.1 200 ", empty),
        ("HTTP/1.1 200", empty),
        ("HTTP/1.1 999 \u{e4}\tb", empty),
        ("HTTP/1.1 099 OK", Err(StatusLine)),
        ("HTTP/1.1 20 OK", Err(StatusLine)),
        ("HTTP/1.1 2000 OK", Err(StatusLine)),
        ("HTTP/1.1  200 OK", Err(StatusLine)),
        ("HTTP/1.1 2x0 OK", Err(StatusLine)),
        ("HTTP/1.1 200 O\0K", Err(StatusLine)),
        ("HTTP/1.1", Err(StatusLine)),
        ("HTTP/1.1 200 OK\r", Err(BareCarriageReturn)),
        ("HTTP/2.0 200 OK", Err(VersionUnsupported)),
        ("http/1.1 200 OK", Err(Version)),
        ("ICY 200 OK", Err(Version)),
        ("", Err(Version)),
    ];
    for (line, expected) in cases {
        let found = answer(Method::Get, &format!("{line}\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(found, expected, "{line}");
    }
    assert_eq!(answer(Method::Get, "HTTP/1.1 200 OK\n\r\n"), Err(BareLineFeed));
}
