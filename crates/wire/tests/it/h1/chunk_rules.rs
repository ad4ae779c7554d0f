//! Rule 6: chunks, their extensions and trailers.

use ringmain_wire::h1::FaultKind::{self, *};
use ringmain_wire::h1::{BodyDecoder, BodyEvent, Framing, Limits};

use crate::h1::support::{check_fields, check_with};

fn check_chunks(body: &str, expected: Option<FaultKind>) {
    check_fields("Transfer-Encoding: chunked", body, expected);
}

#[test]
fn rule_6_chunk_sizes_are_plain_hexadecimal() {
    for good in [
        "5",
        "05",
        "0000000000000005",
        "5;a",
        "5;a=b",
        "5;a=\"b\"",
        "5 ;a",
        "5\t ; a",
        "5;",
        "5;\u{e4}",
    ] {
        check_chunks(&format!("{good}\r\nhello\r\n0\r\n\r\n"), None);
    }
    check_chunks("A\r\n0123456789\r\n00\r\n\r\n", None);
    check_chunks("a\r\n0123456789\r\n1\r\nx\r\n0;last\r\n\r\n", None);
    for bad in [
        "",
        " 5",
        "+5",
        "-5",
        "0x5",
        "5_",
        "5x",
        "5h",
        "5 ",
        "5\t",
        "5 5",
        "5,",
        "00000000000000005",
        "8000000000000000",
        "fffffffffffffffff",
        "ffffffffffffffff",
        "\u{665}",
        "\x005",
        "5\0",
        "5\x0b",
    ] {
        check_chunks(&format!("{bad}\r\nhello\r\n0\r\n\r\n"), Some(ChunkSize));
    }
}

#[test]
fn rule_6_chunks_end_in_crlf() {
    let cases = [
        ("5\nhello\r\n0\r\n\r\n", BareLineFeed),
        ("5\rhello\r\n0\r\n\r\n", BareCarriageReturn),
        ("5\r\rhello\r\n0\r\n\r\n", BareCarriageReturn),
        ("5;a\nhello\r\n0\r\n\r\n", BareLineFeed),
        ("5;a\rb\r\nhello\r\n0\r\n\r\n", BareCarriageReturn),
        ("5;\"\r\n\"\r\nhello", ChunkEnd),
        ("5;\0\r\nhello\r\n0\r\n\r\n", ChunkExtension),
        ("5;a\x7f\r\nhello\r\n0\r\n\r\n", ChunkExtension),
        ("5\r\nhello\n0\r\n\r\n", ChunkEnd),
        ("5\r\nhello0\r\n\r\n", ChunkEnd),
        ("5\r\nhello\r0\r\n\r\n", ChunkEnd),
        ("5\r\nhelloX\r\n0\r\n\r\n", ChunkEnd),
        ("5\r\nhello\r\n0\n\r\n", BareLineFeed),
        ("5\r\nhello\r\n0\r\n\n", BareLineFeed),
        ("5\r\nhello\r\n\r\n", ChunkSize),
        ("5\r\nhello\r\n0\r\n", Truncated),
        ("5\r\nhel", Truncated),
        ("5", Truncated),
        ("", Truncated),
    ];
    for (body, expected) in cases {
        check_chunks(body, Some(expected));
    }
}

#[test]
fn rule_6_chunk_extensions_are_bounded() {
    let limits = Limits {
        chunk_line_bytes: 20,
        chunk_extension_bytes: 32,
        ..Limits::default()
    };
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let check = |body: String, expected| check_with(&limits, format!("{head}{body}").as_bytes(), expected);
    check(format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(16)), None);
    check(
        format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(17)),
        Some(ChunkLineTooLong),
    );
    check(format!("1;{}", "e".repeat(18)), Some(Truncated));
    check(format!("1;{}", "e".repeat(19)), Some(ChunkLineTooLong));
    let chunk = |extension: usize| format!("1;{}\r\nx\r\n", "e".repeat(extension - 1));
    check(format!("{}{}0\r\n\r\n", chunk(16), chunk(16)), None);
    check(
        format!("{}{}{}0\r\n\r\n", chunk(16), chunk(16), chunk(1)),
        Some(ChunkExtensionsTooLong),
    );
    check(
        format!("{}{}0 ;\r\n\r\n", chunk(16), chunk(15)),
        Some(ChunkExtensionsTooLong),
    );
}

#[test]
fn rule_6_trailers_are_bounded_and_change_nothing() {
    check_chunks("0\r\nX-Sum: 1\r\nX: \r\n\r\n", None);
    let cases = [
        ("Content-Length: 5", TrailerForbidden),
        ("transfer-encoding: chunked", TrailerForbidden),
        ("Host: b", TrailerForbidden),
        ("Content_Length: 5", FramingNameVariant),
        ("X : y", FieldName),
        (" X: y", FoldedLine),
        ("X: y\nZ: a", BareLineFeed),
        ("X: \0", FieldValue),
        ("X", FieldColon),
    ];
    for (field, expected) in cases {
        check_chunks(&format!("0\r\n{field}\r\n\r\n"), Some(expected));
    }
    let limits = Limits {
        trailer_bytes: 20,
        trailer_fields: 2,
        ..Limits::default()
    };
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let check = |trailers: &str, expected| {
        check_with(&limits, format!("{head}{trailers}").as_bytes(), expected);
    };
    check("A: 1\r\nB: 2\r\n\r\n", None);
    check("A: 1\r\nB: 2\r\nC:\r\n\r\n", Some(TooManyTrailers));
    // 15 bytes and CRLF, then the empty line: 19, 20, 21.
    check(&format!("A: {}\r\n\r\n", "x".repeat(12)), None);
    check(&format!("A: {}\r\n\r\n", "x".repeat(13)), None);
    check(&format!("A: {}\r\n\r\n", "x".repeat(14)), Some(TrailersTooLarge));
    check(&format!("A: {}", "x".repeat(16)), Some(Truncated));
    check(&format!("A: {}", "x".repeat(17)), Some(TrailersTooLarge));
}

#[test]
fn a_line_that_is_not_whole_is_known_by_where_it_begins() {
    let body = b"5;name=value\r\nhello\r\n3\r\nabc\r\n0;x\r\nA: 1\r\nB: 2\r\n\r\n";
    // Behind each byte: where the line began of which it is part, if that is not whole. The wait for the first byte of a line is none.
    let expected = |at: usize| match at {
        1..14 => Some(0),
        // Behind the CRLF of the first chunk's data.
        22..24 => Some(21),
        30..34 => Some(29),
        // The trailers begin behind the last chunk's line, before any of their bytes.
        34..48 => Some(34),
        _ => None,
    };
    for cut in 0..=body.len() {
        let mut decoder =
            BodyDecoder::new(Framing::Chunked, &Limits::INTERNET).expect("without a limit all fit");
        // In one piece up to the cut, and byte by byte: bytes that were not consumed are offered again.
        let mut at = 0;
        for end in [cut.saturating_sub(1), cut] {
            while !decoder.is_over() {
                let step = decoder.decode(&body[at..end]).expect("a right body");
                at += step.consumed;
                if matches!(step.event, BodyEvent::NeedMore) {
                    break;
                }
            }
        }
        assert_eq!(decoder.unfinished_line(), expected(cut), "behind {cut} bytes");
    }
}
