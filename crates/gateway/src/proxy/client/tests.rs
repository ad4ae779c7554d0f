//! Tests of client addresses: no client can choose its own.

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_request};

use super::find_address;
use crate::model::{ClientAddress, ClientHeader, HeaderName, Network};

fn config(header: ClientHeader, hops: Option<u8>) -> ClientAddress {
    let network = |text: &str| Network::parse(text).expect("a network");
    ClientAddress {
        trusted: vec![network("10.0.0.0/8"), network("fd00::/8")],
        header,
        hops,
    }
}

/// The expected text for an unknown client.
const UNKNOWN: &str = "unknown";

#[track_caller]
fn check(config: &ClientAddress, peer: &str, headers: &str, expected: &str) {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    let mut table = FieldTable::new(&Limits::INTERNET);
    let parsed = parse_request(
        text.as_bytes(),
        &Limits::INTERNET,
        &mut HeadScanner::new(),
        &mut table,
    );
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("a head: {text}");
    };
    let found = find_address(config, peer.parse().expect("an address"), &head.fields);
    let found = found.map_or_else(|| UNKNOWN.to_owned(), |address| address.to_string());
    assert_eq!(found, expected, "{headers}");
}

#[test]
fn x_forwarded_for() {
    let config = config(ClientHeader::XForwardedFor, None);
    check(&config, "192.0.2.9", "X-Forwarded-For: 1.2.3.4\r\n", "192.0.2.9");
    check(&config, "10.0.0.1", "", "10.0.0.1");
    check(&config, "10.0.0.1", "X-Forwarded-For: 1.2.3.4\r\n", "1.2.3.4");
    check(
        &config,
        "10.0.0.1",
        "X-Forwarded-For: 6.6.6.6, 1.2.3.4\r\n",
        "1.2.3.4",
    );
    check(
        &config,
        "10.0.0.1",
        "X-Forwarded-For: 6.6.6.6, 1.2.3.4 , 10.2.2.2\r\n",
        "1.2.3.4",
    );
    check(
        &config,
        "10.0.0.1",
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 1.2.3.4\r\n",
        "1.2.3.4",
    );
    // A value that is not an address ends the search, and does not count as a trusted proxy.
    for value in [
        "6.6.6.6, unknown, 10.2.2.2",
        "6.6.6.6, ",
        "",
        "unknown",
        "x",
        "6.6.6.6, _hidden",
        "6.6.6.6, 1.2.3",
        "6.6.6.6, fe80::1%eth0",
        "6.6.6.6, \"1.2.3.4\"",
    ] {
        let header = format!("X-Forwarded-For: {value}\r\n");
        check(&config, "10.0.0.1", &header, UNKNOWN);
        check(&config, "192.0.2.9", &header, "192.0.2.9");
    }
    // The limit of lines that are read, and one more.
    let lines = "X-Forwarded-For: 10.3.3.3\r\n".repeat(super::FIELD_LINES);
    check(&config, "10.0.0.1", &lines, "10.3.3.3");
    let lines = format!("X-Forwarded-For: 6.6.6.6\r\n{lines}");
    check(&config, "10.0.0.1", &lines, UNKNOWN);
    check(&config, "10.0.0.1", "X-Forwarded-For: 10.3.3.3\r\n", "10.3.3.3");
    check(
        &config,
        "10.0.0.1",
        "X-Forwarded-For: 1.2.3.4:5555\r\n",
        "1.2.3.4",
    );
    check(
        &config,
        "fd00::1",
        "X-Forwarded-For: [2001:db8::1]:80\r\n",
        "2001:db8::1",
    );
    check(
        &config,
        "10.0.0.1",
        "X-Forwarded-For: ::ffff:1.2.3.4\r\n",
        "1.2.3.4",
    );
}

#[test]
fn hops_are_limited() {
    let one = config(ClientHeader::XForwardedFor, Some(1));
    check(
        &one,
        "10.0.0.1",
        "X-Forwarded-For: 6.6.6.6, 10.2.2.2\r\n",
        "10.2.2.2",
    );
    let two = config(ClientHeader::XForwardedFor, Some(2));
    check(
        &two,
        "10.0.0.1",
        "X-Forwarded-For: 6.6.6.6, 10.2.2.2\r\n",
        "6.6.6.6",
    );
    check(
        &two,
        "10.0.0.1",
        "X-Forwarded-For: 6.6.6.6, 10.3.3.3, 10.2.2.2\r\n",
        "10.3.3.3",
    );
}

#[test]
fn forwarded() {
    let config = config(ClientHeader::Forwarded, None);
    check(
        &config,
        "10.0.0.1",
        "Forwarded: for=6.6.6.6, proto=http;For=\"[2001:db8::1]:80\";host=a\r\n",
        "2001:db8::1",
    );
    check(
        &config,
        "10.0.0.1",
        "Forwarded: for=1.2.3.4;proto=https, for=10.9.9.9\r\n",
        "1.2.3.4",
    );
    for value in [
        "for=_hidden",
        "for=unknown",
        "proto=https",
        "",
        "for=",
        "for=\"x\"",
    ] {
        let header = format!("Forwarded: for=1.2.3.4, {value}\r\n");
        check(&config, "10.0.0.1", &header, UNKNOWN);
    }
    check(&config, "10.0.0.1", "X-Forwarded-For: 6.6.6.6\r\n", "10.0.0.1");
}

#[test]
fn named_header_with_one_address() {
    let name = HeaderName::parse("CF-Connecting-IP").expect("a name");
    let config = config(ClientHeader::Named(name), None);
    check(&config, "10.0.0.1", "cf-connecting-ip: 1.2.3.4\r\n", "1.2.3.4");
    check(
        &config,
        "10.0.0.1",
        "cf-connecting-ip: 1.2.3.4\r\ncf-connecting-ip: 6.6.6.6\r\n",
        UNKNOWN,
    );
    check(&config, "10.0.0.1", "cf-connecting-ip: unknown\r\n", UNKNOWN);
    check(&config, "10.0.0.1", "cf-connecting-ip:\r\n", UNKNOWN);
    check(&config, "10.0.0.1", "", "10.0.0.1");
    check(&config, "192.0.2.1", "cf-connecting-ip: 1.2.3.4\r\n", "192.0.2.1");
}
