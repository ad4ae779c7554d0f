//! Cut invariance: how a conversation was cut into receipts changes no event, valid or not.

use ringmain_wire::h1::{Authority, FieldTable, HeadScanner, Limits, Method, Parsed, parse_request};

use crate::h1::corpus::{REQUESTS, RESPONSES};
use crate::h1::support::{Event, Rng, Role, events};

/// Tight enough that the corpus and its cuts meet every limit.
fn tight() -> Limits {
    Limits {
        head_bytes: 120,
        start_line_bytes: 48,
        fields: 4,
        chunk_line_bytes: 19,
        chunk_extension_bytes: 16,
        trailer_bytes: 24,
        trailer_fields: 2,
        body_bytes: Some(24),
        connect: true,
    }
}

fn each(check: impl Fn(Role<'_>, &Limits, &[u8])) {
    for limits in [Limits::default(), tight()] {
        for input in REQUESTS {
            check(Role::Server, &limits, input.as_bytes());
        }
        for (method, input) in RESPONSES {
            check(Role::Client(*method), &limits, input.as_bytes());
        }
    }
}

#[test]
fn one_cut_anywhere() {
    each(|role, limits, input| {
        let whole = events(role, limits, input, &[]);
        for cut in 0..=input.len() {
            let parts = events(role, limits, input, &[cut]);
            assert_eq!(parts, whole, "`{}` cut at {cut}", input.escape_ascii());
        }
    });
}

#[test]
fn two_cuts_anywhere() {
    each(|role, limits, input| {
        let whole = events(role, limits, input, &[]);
        for first in 0..=input.len() {
            for second in first..=input.len() {
                let parts = events(role, limits, input, &[first, second]);
                assert_eq!(
                    parts,
                    whole,
                    "`{}` cut at {first} and {second}",
                    input.escape_ascii()
                );
            }
        }
    });
}

#[test]
fn byte_by_byte() {
    each(|role, limits, input| {
        let cuts: Vec<usize> = (1..input.len()).collect();
        assert_eq!(
            events(role, limits, input, &cuts),
            events(role, limits, input, &[]),
            "`{}` byte by byte",
            input.escape_ascii()
        );
    });
}

#[test]
fn many_cuts_of_pipelined_and_mutated_conversations() {
    for seed in 0..2000 {
        let mut rng = Rng(seed);
        let mut input = String::new();
        for _ in 0..=rng.below(3) {
            input.push_str(REQUESTS[rng.below(REQUESTS.len())]);
        }
        let mut input = input.into_bytes();
        for _ in 0..rng.below(3) {
            let at = rng.below(input.len());
            input[at] = b"\r\n\0 :;,0aG\x80/"[rng.below(12)];
        }
        let mut cuts: Vec<usize> = (0..rng.below(12)).map(|_| rng.below(input.len() + 1)).collect();
        cuts.sort_unstable();
        let limits = if rng.below(2) == 0 {
            Limits::default()
        } else {
            tight()
        };
        assert_eq!(
            events(Role::Server, &limits, &input, &cuts),
            events(Role::Server, &limits, &input, &[]),
            "seed {seed}: `{}` cut at {cuts:?}",
            input.escape_ascii()
        );
    }
}

#[test]
fn no_input_panics() {
    for seed in 0..20_000 {
        let mut rng = Rng(seed);
        let length = rng.below(120);
        // Few different bytes, so that lines, colons and digits meet by chance.
        let alphabet: &[u8] = if rng.below(2) == 0 {
            b"GET /HTP1.0\r\n\r\n: ,a5;"
        } else {
            b"\r\n :;0Fx\t\0\x7f\xff"
        };
        let mut input: Vec<u8> = (0..length).map(|_| alphabet[rng.below(alphabet.len())]).collect();
        if rng.below(2) == 0 {
            let start = [
                "GET / HTTP/1.1\r\n",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\n",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            ][rng.below(4)];
            input.splice(0..0, start.bytes());
        }
        let limits = if rng.below(2) == 0 {
            Limits::default()
        } else {
            tight()
        };
        let role = if rng.below(2) == 0 {
            Role::Server
        } else {
            Role::Client(Method::Get)
        };
        let cut = rng.below(input.len() + 1);
        let whole = events(role, &limits, &input, &[]);
        assert_eq!(
            events(role, &limits, &input, &[cut]),
            whole,
            "seed {seed}: `{}`",
            input.escape_ascii()
        );
    }
}

#[test]
fn a_fault_is_known_as_soon_as_its_line_is() {
    for (input, rest) in [
        ("GET / HTTP/1.1\r\nHost : a\r\n", "X: y\r\n\r\n"),
        ("\u{16}\u{3}\u{1}\u{2}\n", "\r\n\r\n"),
        ("GET /\r\n", "\r\n"),
    ] {
        let short = events(Role::Server, &Limits::default(), input.as_bytes(), &[]);
        assert!(
            matches!(short.last(), Some(Event::Fault(_))),
            "{input:?}: {short:?}"
        );
        let long = events(
            Role::Server,
            &Limits::default(),
            format!("{input}{rest}").as_bytes(),
            &[],
        );
        assert_eq!(short, long);
    }
}

#[test]
fn nothing_is_read_after_a_fault() {
    let limits = Limits::default();
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(&limits));
    let fault = parse_request(b"GET /\r\n", &limits, &mut scanner, &mut table).err();
    assert!(fault.is_some());
    assert_eq!(scanner.fault(), fault);
    let good = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        parse_request(good, &limits, &mut scanner, &mut table).err(),
        fault
    );
}

#[test]
fn a_table_serves_many_connections_at_once() {
    let limits = Limits::default();
    let mut table = FieldTable::new(&limits);
    let inputs = [
        "GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n",
        "GET /b HTTP/1.1\r\nY: 2\r\nHost: b\r\n\r\n",
    ];
    let mut scanners = [HeadScanner::new(), HeadScanner::new()];
    for length in 1..=inputs[0].len() {
        for (input, scanner) in inputs.iter().zip(&mut scanners) {
            let bytes = &input.as_bytes()[..length];
            let parsed = parse_request(bytes, &limits, scanner, &mut table).expect("both are valid");
            match parsed {
                Parsed::Partial => assert!(length < input.len()),
                Parsed::Complete { head, bytes } => {
                    assert_eq!(bytes, input.len());
                    let host = head.authority.map(Authority::as_str);
                    assert_eq!(host, head.target_text.strip_prefix('/'));
                    assert_eq!(head.fields.len(), 2);
                }
            }
        }
    }
}
