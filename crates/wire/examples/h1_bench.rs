//! Nanoseconds per parsed head, ours and httparse's, on requests that benchmarks and browsers send.
//!
//! `cargo run --release -p ringmain-wire --example h1_bench`. Short rounds of the two alternate, and each
//! one's fastest counts: what else the machine does can only add. httparse finds fields and no more; ours
//! also recognises names, decides framing, checks `Host` and reads `Connection`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures time and prints it"
)]

use std::hint::black_box;
use std::time::Instant;

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_request};

const ROUNDS: usize = 1000;
const HEADS_PER_ROUND: u32 = 2000;

const REQUESTS: &[(&str, &str)] = &[
    (
        "wrk, bare",
        "GET /plaintext HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
    ),
    (
        "wrk, TechEmpower JSON",
        "GET /json HTTP/1.1\r\nHost: tfb-server:8080\r\n\
         Accept: application/json,text/html;q=0.9,application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7\r\n\
         Connection: keep-alive\r\n\r\n",
    ),
    (
        "browser",
        "GET /static/app.js?v=3f9c HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n\
         sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
         Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n\
         Referer: https://www.example.com/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
         Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\nCookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n",
    ),
];

fn main() {
    println!(
        "{:24} {:>6} {:>10} {:>10} {:>7}",
        "request", "bytes", "ours ns", "httparse", "ratio"
    );
    for (name, request) in REQUESTS {
        let (ours, theirs) = compare(request.as_bytes());
        println!(
            "{name:24} {:6} {ours:10.1} {theirs:10.1} {:7.2}",
            request.len(),
            ours / theirs
        );
    }
    let limits = Limits::default();
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(32_000));
    let start = Instant::now();
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(&limits));
    for end in 1..=long.len() {
        let _ = black_box(parse_request(
            &long.as_bytes()[..end],
            &limits,
            &mut scanner,
            &mut table,
        ));
    }
    let each = start.elapsed().as_nanos() as f64 / long.len() as f64;
    println!(
        "a head of {} bytes, byte by byte: {each:.1} ns a byte",
        long.len()
    );
}

/// Nanoseconds per head, ours and httparse's.
fn compare(input: &[u8]) -> (f64, f64) {
    let limits = Limits::default();
    let mut scanner = HeadScanner::new();
    let mut table = FieldTable::new(&limits);
    let mut ours = || {
        let parsed = parse_request(black_box(input), &limits, &mut scanner, &mut table);
        assert!(matches!(black_box(&parsed), Ok(Parsed::Complete { .. })));
    };
    let mut theirs = || {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        assert!(matches!(
            request.parse(black_box(input)),
            Ok(httparse::Status::Complete(_))
        ));
        black_box(&request);
    };
    let mut rounds = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        rounds.0.push(round(&mut ours));
        rounds.1.push(round(&mut theirs));
    }
    (fastest(rounds.0), fastest(rounds.1))
}

fn round(parse: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..HEADS_PER_ROUND {
        parse();
    }
    start.elapsed().as_nanos() as f64 / f64::from(HEADS_PER_ROUND)
}

fn fastest(rounds: Vec<f64>) -> f64 {
    rounds.into_iter().fold(f64::INFINITY, f64::min)
}
