//! A record costs no allocation once buffers are warm, and an idle session holds its keys and facts alone: counted by the
//! allocator, and for what aws-lc allocates by the pages of the process.
#![expect(
    clippy::print_stdout,
    reason = "a program of its own, which says what it measured"
)]

use std::time::Duration;

use ringmain_wire::tls::{
    Client, ClientSettings, Clock, Event, KeyPair, PeerName, Pem, Server, ServerSettings, Session, Tickets,
    Trust,
};
use stats_alloc::Region;

use crate::ALLOCATOR;

const ROUNDS: usize = 1000;
/// Sessions that are held at once.
const SESSIONS: usize = 2000;
/// Bytes that an idle session may hold, of all kinds.
const IDLE: usize = 10 * 1024;
const NOW: u64 = 1_795_000_000;

const SUITES: [&str; 4] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];

pub(crate) fn main() {
    // Kept to the end, so that no session lies in the pages of an earlier one.
    let mut held = Vec::with_capacity(SUITES.len() * 2 * SESSIONS);
    for suite in SUITES {
        let (server, client) = set_up(suite);
        records(suite, &server, &client);
        // Warm: what is made once is not a session's.
        drop((0..50).map(|_| pair(&server, &client)).collect::<Vec<_>>());
        idle(suite, &server, &client, &mut held);
    }
}

fn set_up(suite: &str) -> (Server, Client) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
    let pem = |text: String| Pem {
        source: "test".to_owned(),
        bytes: text.into_bytes(),
    };
    let clock = Clock::new(Duration::from_secs(NOW));
    let settings = ServerSettings {
        certificates: vec![KeyPair {
            chain: pem(cert.pem()),
            key: pem(signing_key.serialize_pem()),
        }],
        suites: vec![suite.to_owned()],
        alpn: vec![b"http/1.1".to_vec()],
        ..Default::default()
    };
    let server = settings.build(&Tickets::new(&clock).expect("keys"), &[]);
    let mut settings = ClientSettings::new(Trust::AnybodyInsecure);
    settings.alpn = vec![b"http/1.1".to_vec()];
    (
        server.expect("settings in order"),
        settings.build(&clock).expect("settings in order"),
    )
}

/// Both ends after a handshake.
fn pair(server: &Server, client: &Client) -> [Session; 2] {
    let mut ends = [
        client.session(&PeerName::new("a.example").expect("a name")),
        server.session(),
    ];
    let (mut wire, mut answer) = (Vec::new(), Vec::new());
    ends[0].begin(&mut wire);
    for at in [1, 0].into_iter().cycle() {
        if wire.is_empty() {
            break;
        }
        receive(&mut ends[at], &mut wire, &mut answer);
        std::mem::swap(&mut wire, &mut answer);
    }
    assert!(ends.iter().all(|end| end.facts().is_some()), "{ends:?}");
    ends
}

/// Reads all of `bytes`, and says how much data was in it.
fn receive(session: &mut Session, bytes: &mut Vec<u8>, wire: &mut Vec<u8>) -> usize {
    let mut data = 0;
    while !bytes.is_empty() {
        let step = session.receive(bytes, wire);
        match step.event {
            Event::Plain(range) => data += range.len(),
            Event::Failed | Event::NeedMore => panic!("{:?}", session.fault()),
            Event::Nothing | Event::Established | Event::End => {}
        }
        bytes.drain(..step.consumed);
    }
    data
}

/// Requests and answers of one and of several records.
fn records(suite: &str, server: &Server, client: &Client) {
    let [mut client, mut server] = pair(server, client);
    let (mut wire, mut answer) = (Vec::new(), Vec::new());
    let large = vec![7; 100_000];
    let mut round = || {
        for size in [1, 300, 100_000] {
            wire.clear();
            client.send(&large[..300], &mut wire).expect("open");
            assert_eq!(receive(&mut server, &mut wire, &mut answer), 300);
            wire.clear();
            server.send(&large[..size], &mut wire).expect("open");
            assert_eq!(receive(&mut client, &mut wire, &mut answer), size);
        }
    };
    round();
    let region = Region::new(ALLOCATOR);
    for _ in 0..ROUNDS {
        round();
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(counts, (0, 0), "{suite}: {ROUNDS} rounds allocated: {change:?}");
}

/// What sessions hold that do nothing: of Rust's allocator, and in pages.
fn idle(suite: &str, server: &Server, client: &Client, held: &mut Vec<Session>) {
    for (role, keep) in [("client", 0), ("server", 1)] {
        let resident = resident();
        let region = Region::new(ALLOCATOR);
        for _ in 0..SESSIONS {
            let pair = pair(server, client);
            held.extend(pair.into_iter().nth(keep));
        }
        let change = region.change();
        let counted = (change.bytes_allocated - change.bytes_deallocated) / SESSIONS + size_of::<Session>();
        let pages = (self::resident().saturating_sub(resident)) / SESSIONS;
        println!("{suite}, {role}: {counted} bytes counted, {pages} bytes of pages");
        assert!(counted <= IDLE, "{suite}, {role}: {counted} bytes");
        assert!(pages <= IDLE, "{suite}, {role}: {pages} bytes of pages");
    }
}

/// Bytes of memory that the process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("a number");
    pages * 4096
}
