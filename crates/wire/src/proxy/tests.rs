//! Headers as proxies write them, cut anywhere, and what is none.

use super::{Addresses, Fault, Header, Parsed, SIGNATURE, parse};

fn header(from: &str, to: &str) -> Header {
    let address = |text: &str| text.parse().expect("an address");
    Header {
        addresses: Some(Addresses {
            from: address(from),
            to: address(to),
        }),
    }
}

const NOBODY: Header = Header { addresses: None };

/// However it is cut it is not there before its last byte, and what is behind it stays.
#[track_caller]
fn check(bytes: &[u8], expected: Header) {
    let whole = Ok(Parsed::Complete {
        header: expected,
        bytes: bytes.len(),
    });
    assert_eq!(parse(bytes), whole, "{}", bytes.escape_ascii());
    assert_eq!(parse(&[bytes, b"GET / HTTP/1.1\r\n"].concat()), whole);
    for length in 0..bytes.len() {
        assert_eq!(parse(&bytes[..length]), Ok(Parsed::Partial), "cut at {length}");
    }
}

#[test]
fn version_1() {
    check(
        b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n",
        header("192.0.2.1:56324", "198.51.100.7:443"),
    );
    check(
        b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n",
        header("[2001:db8::1]:1", "[::1]:65535"),
    );
    check(b"PROXY UNKNOWN\r\n", NOBODY);
    check(b"PROXY UNKNOWN ffff:f...f:ffff whatever 65535 65535\r\n", NOBODY);
    for line in [
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443 1\r\n",
        "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.1  198.51.100.7 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 01 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 1 65536\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(parse(line.as_bytes()), Err(Fault::Line), "{line}");
    }
    assert_eq!(
        parse(&[b"PROXY UNKNOWN ", &[b'x'; 100][..]].concat()),
        Err(Fault::Line),
        "too long"
    );
}

#[test]
fn version_2() {
    let v2 = |rest: &[u8]| [SIGNATURE, rest].concat();
    check(
        &v2(b"\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb"),
        header("192.0.2.1:56324", "198.51.100.7:443"),
    );
    // What stands behind the addresses is passed over.
    check(
        &v2(b"\x21\x11\0\x10\xc0\0\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb\x04\0\x01\xff"),
        header("192.0.2.1:56324", "198.51.100.7:443"),
    );
    check(&v2(b"\x20\0\0\0"), NOBODY);
    check(&v2(b"\x20\x11\0\x04abcd"), NOBODY);
    check(&v2(b"\x21\0\0\0"), NOBODY);
    assert_eq!(parse(&v2(b"\x11\x11\0\x0c")), Err(Fault::Code(0x11)));
    assert_eq!(parse(&v2(b"\x21\x12\0\0")), Err(Fault::Code(0x12)));
    assert_eq!(parse(&v2(b"\x21\x11\0\x04abcd")), Err(Fault::Length(4)));
    assert_eq!(parse(&v2(b"\x21\x11\xff\xff")), Err(Fault::Length(0xffff)));
}

#[test]
fn anything_else() {
    for bytes in ["GET / HTTP/1.1\r\n", "P0", "\r\n\r\n\r", "\x16\x03\x01"] {
        assert_eq!(parse(bytes.as_bytes()), Err(Fault::Signature), "{bytes}");
    }
}

#[test]
fn what_is_written_is_read() {
    for header in [
        NOBODY,
        header("192.0.2.1:1", "198.51.100.7:65535"),
        header("[2001:db8::1]:1", "[2001:db8::2]:2"),
    ] {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        header.write_v1(&mut one);
        header.write_v2(&mut two);
        check(&one, header);
        check(&two, header);
    }
    let mut mixed = Vec::new();
    header("192.0.2.1:1", "[2001:db8::2]:2").write_v1(&mut mixed);
    assert_eq!(mixed, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 1 2\r\n");
    let mut mapped = Vec::new();
    header("[::ffff:192.0.2.1]:1", "192.0.2.2:2").write_v1(&mut mapped);
    assert_eq!(mapped, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
}
