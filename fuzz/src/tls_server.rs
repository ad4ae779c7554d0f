//! A TLS server's session: any bytes, a handshake with bytes changed on the way, and records of a client that has the keys.
//!
//! The first byte of an input says which of these, and the version; the rest is bytes, changes, or records.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringmain_tls::{DevCertificate, Pem};
use ringmain_wire::tls::{
    Client, ClientCertificates, ClientSettings, Clock, Event, Fault, PeerName, Server, ServerSettings,
    Session, Tickets, Trust, limits,
};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};

use crate::conversation;
use crate::tls_peer::{Peer, config};

/// Bytes read of an input.
const INPUT_LIMIT: usize = 4096;

/// What the client says in a handshake that may be changed on the way.
const SAID: &[u8] = b"a request that nobody else may have a word in";

/// Made once: servers that ask clients for nothing and for a certificate, and clients of both versions.
struct World {
    servers: [Server; 2],
    client: Client,
    configs: [Arc<ClientConfig>; 2],
}

impl World {
    fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let now = Duration::from_secs(1_795_000_000);
            let clock = Clock::new(now);
            let made = DevCertificate::new(&[], now).expect("names");
            let tickets = Tickets::new(&clock).expect("keys");
            let server = |client_certificates| {
                let settings = ServerSettings {
                    certificates: vec![made.pair.clone()],
                    client_certificates,
                    alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
                    ..Default::default()
                };
                settings.build(&tickets, &[]).expect("settings in order")
            };
            let authority: &Pem = &made.authority;
            let client = ClientSettings::new(Trust::Authorities(authority.clone()));
            Self {
                servers: [
                    server(ClientCertificates::Off),
                    server(ClientCertificates::Required(authority.clone())),
                ],
                client: client.build(&clock).expect("settings in order"),
                configs: [&TLS13, &TLS12].map(|version| config(version, authority, &clock)),
            }
        })
    }
}

/// What came of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    plain: Vec<u8>,
    established: bool,
    ended: bool,
    fault: Option<Fault>,
}

/// Laws: no panic; cuts change nothing; no more is kept than a record and a handshake; what is sent in answer is bounded; data
/// is what a client sent that has the keys, and nothing else.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((&control, input)) = input.split_first() else {
        return;
    };
    let input = &input[..input.len().min(INPUT_LIMIT)];
    let world = World::get();
    let server = &world.servers[usize::from(control >> 3 & 1)];
    match control & 3 {
        0 => any(server, input),
        1 => changed(world, server, input),
        mode => records(&world.configs[usize::from(mode & 1)], &world.servers[0], input),
    }
}

/// Any bytes.
fn any(server: &Server, input: &[u8]) {
    let read = |cuts: &[usize]| read(&mut server.session(), input, cuts, &mut Vec::new());
    let cuts = conversation::cuts(input);
    let whole = read(&[]);
    assert_eq!(read(&cuts), whole, "cut at {cuts:?}");
    assert!(!whole.established && whole.plain.is_empty(), "nobody had a key");
}

/// Changes of what a client sends: where (two bytes), and how.
fn changed(world: &World, server: &Server, changes: &[u8]) {
    let mut client = world.client.session(&PeerName::new("localhost").expect("a name"));
    let mut session = server.session();
    let (mut sent, mut at) = (Vec::new(), 0);
    client.begin(&mut sent);
    let mut plain = Vec::new();
    let mut said = false;
    while !sent.is_empty() {
        for change in changes.chunks_exact(3) {
            let place = usize::from(u16::from_be_bytes([change[0], change[1]]) & 0xfff);
            if let Some(byte) = place.checked_sub(at).and_then(|place| sent.get_mut(place)) {
                *byte ^= change[2];
            }
        }
        at += sent.len();
        let mut answer = Vec::new();
        plain.extend(read(&mut session, &sent, &[], &mut answer).plain);
        sent.clear();
        read(&mut client, &answer, &[], &mut sent);
        if client.facts().is_some() && client.fault().is_none() && !said {
            said = true;
            client.send(SAID, &mut sent).expect("established");
        }
    }
    assert!(plain.is_empty() || plain == SAID, "{plain:?}");
    if changes.chunks_exact(3).all(|change| change[2] == 0) && session.fault().is_none() {
        assert_eq!(plain, SAID);
    }
}

/// Records: a kind, a length, so many bytes of content.
fn records(config: &Arc<ClientConfig>, server: &Server, script: &[u8]) {
    let read = |cut: bool| {
        let (mut peer, mut session) = Peer::connect(config, server);
        let (mut wire, mut data, mut rest) = (Vec::new(), Vec::new(), script);
        while let [kind, length, more @ ..] = rest {
            let (content, more) = more.split_at(more.len().min(usize::from(*length)));
            rest = more;
            let kind = 20 + kind % 5;
            peer.seal(kind, content, &mut wire);
            if kind == 23 {
                data.extend_from_slice(content);
            }
        }
        let cuts = if cut {
            conversation::cuts(&wire).to_vec()
        } else {
            Vec::new()
        };
        let mut answer = Vec::new();
        let outcome = read(&mut session, &wire, &cuts, &mut answer);
        assert!(data.starts_with(&outcome.plain), "what was sent, in its order");
        assert!(
            answer.len() <= 64 * (limits::IDLE_RECORDS as usize + 2) + data.len(),
            "{} bytes",
            answer.len()
        );
        (outcome, answer.len())
    };
    assert_eq!(read(false), read(true), "cut");
}

/// Reads `input` cut at `cuts`; what is answered goes to `wire`.
fn read(session: &mut Session, input: &[u8], cuts: &[usize], wire: &mut Vec<u8>) -> Outcome {
    let (mut plain, mut buffer, mut from) = (Vec::new(), Vec::new(), 0);
    let (mut established, mut ended) = (false, false);
    'cuts: for &cut in cuts.iter().chain([&input.len()]) {
        buffer.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            let step = session.receive(&mut buffer, wire);
            if let Event::Plain(range) = step.event.clone() {
                assert!(range.end <= step.consumed && !range.is_empty());
                plain.extend_from_slice(&buffer[range]);
            }
            buffer.drain(..step.consumed);
            match step.event {
                Event::NeedMore => break,
                Event::Nothing | Event::Plain(_) => {}
                Event::Established => established = true,
                Event::End => ended = true,
                Event::Failed => break 'cuts,
            }
        }
        let most = limits::RECORD
            + if session.is_handshaking() {
                limits::HANDSHAKE
            } else {
                0
            };
        assert!(buffer.len() <= most, "{} bytes kept", buffer.len());
    }
    Outcome {
        plain,
        established,
        ended,
        fault: session.fault().cloned(),
    }
}
