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

#[test]
fn rule_11_responses_are_framed_by_the_same_rules() {
    use Framing::{Chunked, Length, None, UntilClose};
    let get = |status: &str, fields: &str| answer(Method::Get, &format!("HTTP/1.1 {status}\r\n{fields}\r\n"));
    let head =
        |status: &str, fields: &str| answer(Method::Head, &format!("HTTP/1.1 {status}\r\n{fields}\r\n"));
    assert_eq!(
        get("200 OK", "Content-Length: 5\r\n"),
        Ok((Length(5), true, false))
    );
    assert_eq!(
        get("200 OK", "Transfer-Encoding: chunked\r\n"),
        Ok((Chunked, true, false))
    );
    assert_eq!(get("200 OK", ""), Ok((UntilClose, false, false)));
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(
        get("200 OK", both),
        Ok((Chunked, false, false)),
        "no length, no reuse"
    );
    assert_eq!(head("200 OK", "Content-Length: 5\r\n"), Ok((None, true, false)));
    assert_eq!(
        head("200 OK", "Transfer-Encoding: chunked\r\n"),
        Ok((None, true, false))
    );
    assert_eq!(head("200 OK", ""), Ok((None, true, false)));
    assert_eq!(
        get("304 Not Modified", "Content-Length: 5\r\n"),
        Ok((None, true, false))
    );
    assert_eq!(get("204 No Content", ""), Ok((None, true, false)));
    assert_eq!(
        get("204 No Content", "Content-Length: 0\r\n"),
        Ok((None, true, false))
    );
    assert_eq!(
        get("204 No Content", "Content-Length: 5\r\n"),
        Ok((None, false, false)),
        "who knows what follows"
    );
    assert_eq!(
        get("103 Early Hints", "Transfer-Encoding: chunked\r\n"),
        Ok((None, false, false))
    );
    assert_eq!(get("100 Continue", ""), Ok((None, true, false)));
    assert_eq!(
        get("101 Switching", "Connection: upgrade\r\nUpgrade: x\r\n"),
        Ok((None, false, true))
    );
    assert_eq!(
        answer(Method::Connect, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        Ok((None, false, true))
    );
    assert_eq!(
        answer(Method::Connect, "HTTP/1.1 400 No\r\nContent-Length: 5\r\n\r\n"),
        Ok((Length(5), true, false))
    );
    for (fields, kind) in [
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            ContentLengthRepeated,
        ),
        ("Content-Length: 5, 5\r\n", ContentLength),
        ("Content-Length: +5\r\n", ContentLength),
        ("Transfer-Encoding: gzip\r\n", TransferEncoding),
        ("Transfer-Encoding: gzip, chunked\r\n", TransferCodingUnknown),
        ("Transfer-Encoding: chunked, chunked\r\n", TransferEncoding),
        ("Transfer-Encoding : chunked\r\n", FieldName),
        ("Content_Length: 5\r\n", FramingNameVariant),
    ] {
        assert_eq!(get("200 OK", fields), Err(kind), "{fields}");
        assert_eq!(
            head("200 OK", fields),
            Err(kind),
            "also where there is no body: {fields}"
        );
    }
    let old = |fields: &str| answer(Method::Get, &format!("HTTP/1.0 200 OK\r\n{fields}\r\n"));
    assert_eq!(old("Content-Length: 5\r\n"), Ok((Length(5), false, false)));
    assert_eq!(
        old("Content-Length: 5\r\nConnection: keep-alive\r\n"),
        Ok((Length(5), true, false))
    );
    assert_eq!(
        old("Transfer-Encoding: chunked\r\n"),
        Err(TransferEncodingOldVersion)
    );
    assert_eq!(
        get("200 OK", "Content-Length: 5\r\nConnection: x, close\r\n"),
        Ok((Length(5), false, false))
    );
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
