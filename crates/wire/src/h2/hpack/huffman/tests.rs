//! Huffman codes of RFC 7541, appendix B, both ways.

use super::*;

fn decoded(input: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    decode(input, &mut out).map(|()| out)
}

fn encoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(text, &mut out);
    assert_eq!(out.len(), encoded_len(text));
    out
}

#[test]
fn examples_of_the_rfc_hold() {
    // RFC 7541 Appendix C.4 and C.6.
    let rows: &[(&str, &[u8])] = &[
        (
            "www.example.com",
            &[
                0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
            ],
        ),
        ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
        ("custom-key", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f]),
        ("302", &[0x64, 0x02]),
        ("private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ("gzip", &[0x9b, 0xd9, 0xab]),
        ("", &[]),
    ];
    for (text, bytes) in rows {
        assert_eq!(encoded(text.as_bytes()), *bytes, "{text}");
        assert_eq!(decoded(bytes).as_deref(), Ok(text.as_bytes()), "{text}");
    }
}

#[test]
fn every_byte_and_every_pair_comes_back() {
    for first in 0..=255_u8 {
        assert_eq!(decoded(&encoded(&[first])).as_deref(), Ok(&[first][..]));
        for second in 0..=255_u8 {
            let text = [first, second, b'e', first];
            assert_eq!(decoded(&encoded(&text)).as_deref(), Ok(&text[..]));
        }
    }
}

#[test]
fn what_the_rfc_forbids_is_refused() {
    // EOS within; a padding of zeroes; a whole byte of padding; a code that is cut.
    for bytes in [
        &[0xff, 0xff, 0xff, 0xff][..],
        &[0xff, 0xff, 0xff, 0xfc],
        &[0x00, 0x10],
        &[0x1f, 0xff],
        &[0xff],
        &[0xfe],
        &[0xff, 0xff, 0xff],
    ] {
        assert_eq!(decoded(bytes), Err(Malformed), "{bytes:02x?}");
    }
    // Two `0` and six bits of padding.
    assert_eq!(decoded(&[0x00, 0x3f]).as_deref(), Ok(&b"00"[..]));
}

#[test]
fn the_codes_are_those_of_a_few_known_symbols() {
    // Rows of RFC 7541 Appendix B.
    for (symbol, code, length) in [
        (usize::from(b'0'), 0x0, 5),
        (usize::from(b'&'), 0xf8, 8),
        (usize::from(b'{'), 0x7ffe, 15),
        (10, 0x3fff_fffc, 30),
        (255, 0x3ff_ffee, 26),
        (256, 0x3fff_ffff, 30),
    ] {
        assert_eq!(TABLES.codes[symbol], (code, length));
    }
}
