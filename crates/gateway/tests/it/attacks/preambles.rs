//! PROXY protocol headers (versions 1 and 2) that are malformed, that lie about their length, or that are not allowed: straight at an
//! application and through the gateway, from a trusted proxy and from another client.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{Network, ProxyProtocol};
use ringmain_web::{App, ListenerProtocol};

use super::{Wiretap, answers, compare};
use crate::origin::{edge, to};
use crate::support::serve;

on_every_backend! {
    each_header_has_its_expected_outcome,
}

const EXPECTED: &str = include_str!("preambles.txt");

/// The signature of version 2.
const SIGN: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Two addresses of IPv4, 6.6.6.6 first.
const ADDRESSES: &[u8] = b"\x06\x06\x06\x06\x7f\0\0\x01\0\x01\0\x50";

/// Builds a header of version 2: command and version, family and protocol, the declared length, and the rest.
fn v2(command: u8, family: u8, length: u16, rest: &[u8]) -> Vec<u8> {
    [SIGN, &[command, family], &length.to_be_bytes(), rest].concat()
}

/// Addresses with something behind them that is in the length.
fn with_tlv(tlv: &[u8]) -> Vec<u8> {
    let rest = [ADDRESSES, tlv].concat();
    v2(0x21, 0x11, rest.len() as u16, &rest)
}

fn first() -> Vec<(&'static str, Vec<u8>)> {
    let line = |text: &str| text.as_bytes().to_vec();
    vec![
        ("none", line("")),
        ("good", line("PROXY TCP4 6.6.6.6 127.0.0.1 1 80\r\n")),
        ("good, version 6", line("PROXY TCP6 2001:db8::6 ::1 1 80\r\n")),
        ("unknown", line("PROXY UNKNOWN\r\n")),
        (
            "unknown with more",
            line("PROXY UNKNOWN 6.6.6.6 anything 1 2\r\n"),
        ),
        (
            "twice",
            line("PROXY TCP4 6.6.6.6 127.0.0.1 1 80\r\nPROXY TCP4 6.6.6.7 127.0.0.1 1 80\r\n"),
        ),
        ("small letters", line("proxy tcp4 6.6.6.6 127.0.0.1 1 80\r\n")),
        ("line feed alone", line("PROXY TCP4 6.6.6.6 127.0.0.1 1 80\n")),
        (
            "carriage return alone",
            line("PROXY TCP4 6.6.6.6 127.0.0.1 1 80\r"),
        ),
        ("two blanks", line("PROXY  TCP4 6.6.6.6 127.0.0.1 1 80\r\n")),
        ("blank behind", line("PROXY TCP4 6.6.6.6 127.0.0.1 1 80 \r\n")),
        ("tab", line("PROXY\tTCP4 6.6.6.6 127.0.0.1 1 80\r\n")),
        ("no ports", line("PROXY TCP4 6.6.6.6 127.0.0.1\r\n")),
        ("more behind", line("PROXY TCP4 6.6.6.6 127.0.0.1 1 80 99\r\n")),
    ]
}

/// Of version 1, with numbers and addresses that are none.
fn numbers() -> Vec<(&'static str, Vec<u8>)> {
    let line = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "port too large",
            line("PROXY TCP4 6.6.6.6 127.0.0.1 65536 80\r\n"),
        ),
        ("port negative", line("PROXY TCP4 6.6.6.6 127.0.0.1 -1 80\r\n")),
        ("port with a plus", line("PROXY TCP4 6.6.6.6 127.0.0.1 +1 80\r\n")),
        (
            "port with a zero first",
            line("PROXY TCP4 6.6.6.6 127.0.0.1 01 80\r\n"),
        ),
        (
            "address with a zero first",
            line("PROXY TCP4 06.6.6.6 127.0.0.1 1 80\r\n"),
        ),
        (
            "address of three numbers",
            line("PROXY TCP4 6.6.6 127.0.0.1 1 80\r\n"),
        ),
        (
            "address too large",
            line("PROXY TCP4 6.6.6.256 127.0.0.1 1 80\r\n"),
        ),
        (
            "address of the other family",
            line("PROXY TCP4 2001:db8::6 ::1 1 80\r\n"),
        ),
        (
            "address of the other family, 6",
            line("PROXY TCP6 6.6.6.6 127.0.0.1 1 80\r\n"),
        ),
        (
            "address with a zone",
            line("PROXY TCP6 fe80::1%eth0 ::1 1 80\r\n"),
        ),
        ("another protocol", line("PROXY UDP4 6.6.6.6 127.0.0.1 1 80\r\n")),
        ("a request in the line", line("PROXY TCP4 GET /evil HTTP/1.1\r\n")),
        (
            "longer than a line may be",
            line(&format!("PROXY UNKNOWN {}\r\n", "6".repeat(200))),
        ),
        ("never ends", line(&format!("PROXY TCP4 {}", "6".repeat(5000)))),
        (
            "behind an empty line",
            line("\r\nPROXY TCP4 6.6.6.6 127.0.0.1 1 80\r\n"),
        ),
    ]
}

fn second() -> Vec<(&'static str, Vec<u8>)> {
    let mut long = vec![0xee];
    long.extend_from_slice(&4096_u16.to_be_bytes());
    long.extend_from_slice(&[b'x'; 4096]);
    vec![
        ("2: good", v2(0x21, 0x11, 12, ADDRESSES)),
        ("2: local", v2(0x20, 0, 0, b"")),
        ("2: local with an address", v2(0x20, 0x11, 12, ADDRESSES)),
        ("2: unspecified", v2(0x21, 0, 0, b"")),
        ("2: unspecified with more", v2(0x21, 0, 4, b"more")),
        ("2: datagrams", v2(0x21, 0x12, 12, ADDRESSES)),
        ("2: unix", v2(0x21, 0x31, 216, &[b'u'; 216])),
        ("2: version 1", v2(0x11, 0x11, 12, ADDRESSES)),
        ("2: version 3", v2(0x31, 0x11, 12, ADDRESSES)),
        ("2: unknown command", v2(0x22, 0x11, 12, ADDRESSES)),
        ("2: unknown family", v2(0x21, 0x41, 12, ADDRESSES)),
        ("2: unknown protocol", v2(0x21, 0x13, 12, ADDRESSES)),
        (
            "2: too short for its family",
            v2(0x21, 0x11, 11, &ADDRESSES[..11]),
        ),
        ("2: empty for its family", v2(0x21, 0x11, 0, b"")),
        ("2: too short for version 6", v2(0x21, 0x21, 12, ADDRESSES)),
        // By its declared length the following bytes belong to the header: a request is consumed, and none is left.
        ("2: longer than there is", v2(0x21, 0x11, u16::MAX, ADDRESSES)),
        (
            "2: a request within",
            v2(
                0x21,
                0x11,
                12 + 31,
                &[ADDRESSES, &b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"[..]].concat(),
            ),
        ),
        ("2: tlv", with_tlv(b"\x04\0\x03abc")),
        ("2: tlv without a value", with_tlv(b"\x04\0\0")),
        ("2: tlv of one byte", with_tlv(b"\x04")),
        ("2: tlv beyond the end", with_tlv(b"\x04\0\x09abc")),
        ("2: tlv far beyond the end", with_tlv(b"\x04\xff\xff")),
        ("2: large tlv", with_tlv(&long)),
        ("2: sign cut", SIGN[..11].to_vec()),
        ("2: sign with another end", [&SIGN[..11], b"\r"].concat()),
        (
            "2: both versions",
            [
                v2(0x21, 0x11, 12, ADDRESSES),
                b"PROXY TCP4 6.6.6.7 127.0.0.1 1 80\r\n".to_vec(),
            ]
            .concat(),
        ),
        (
            "2: twice",
            [v2(0x21, 0x11, 12, ADDRESSES), v2(0x21, 0x11, 12, ADDRESSES)].concat(),
        ),
    ]
}

/// Returns the statuses and the end. Without a response the way the connection ended is irrelevant: it depends on how many bytes the
/// kernel had accepted by then.
fn outcome(addr: std::net::SocketAddr, bytes: &[u8]) -> String {
    let request = [bytes, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let (text, end) = answers(addr, &request);
    let statuses: Vec<&str> = text
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3])
        .collect();
    match &statuses[..] {
        [] => "nothing".to_owned(),
        statuses => format!("{} {end}", statuses.join(" ")),
    }
}

fn each_header_has_its_expected_outcome(engine: Config) {
    let echo = App::new()
        .listener(
            0,
            ListenerProtocol::http().proxy_protocol(|_| true, Duration::from_secs(3600)),
        )
        .fallback_streamed(async |_req, reply| reply.text("ok"));
    let straight = serve(engine.clone(), echo);
    let mut found = String::new();
    for (name, bytes) in [first(), numbers(), second()].concat() {
        let _ = writeln!(found, "== {name}");
        let _ = writeln!(found, "straight: {}", outcome(straight.addr, &bytes));
        for from in ["127.0.0.0/8", "10.0.0.0/8"] {
            let tap = Wiretap::new();
            let mut config = to(&[tap.addr], |_, _| {});
            Arc::make_mut(&mut config.listeners[0]).proxy_protocol = Some(ProxyProtocol {
                from: vec![Network::parse(from).expect("a network")],
                ..ProxyProtocol::default()
            });
            let edge = edge(engine.clone(), config);
            let who = if from.starts_with("127") {
                "trusted"
            } else {
                "stranger"
            };
            let _ = writeln!(found, "{who}: {}", outcome(edge.server.addr, &bytes));
            edge.server.shut_down();
            for heard in tap.heard() {
                let _ = writeln!(found, "origin: {}", heard.escape_ascii());
            }
        }
    }
    straight.shut_down();
    compare(&found, EXPECTED, "preambles.txt");
}
