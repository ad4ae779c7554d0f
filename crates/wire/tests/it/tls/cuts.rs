//! Any cut of the input gives the same events, and no more is kept than a part of a record or of a handshake.

use std::sync::Arc;

use ringmain_wire::tls::{ClientCertificates, Event, limits};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};

use crate::shared_rng::Rng;
use crate::tls::raw::{ALERT, DATA, HANDSHAKE, Raw, roots};
use crate::tls::support::{End, Pair, World};

/// Carries bytes between both, cut as `size` says.
fn run(pair: &mut Pair, mut size: impl FnMut() -> usize) {
    while !(pair.client.wire.is_empty() && pair.server.wire.is_empty()) {
        for server in [true, false] {
            let (from, to) = if server {
                (&mut pair.client, &mut pair.server)
            } else {
                (&mut pair.server, &mut pair.client)
            };
            let bytes = std::mem::take(&mut from.wire);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(size().clamp(1, rest.len()));
                to.feed(piece);
                assert!(to.input.len() <= limits::RECORD, "{} bytes kept", to.input.len());
                rest = more;
            }
        }
    }
}

/// A handshake, data and ends, cut as `size` says.
fn conversation(world: &World, mut size: impl FnMut() -> usize) {
    let (server, client) = world.build();
    for _ in ["full", "resumed"] {
        let mut pair = Pair::new(&server, &client, "a.example");
        run(&mut pair, &mut size);
        pair.client.send(&[1; 20_000]);
        pair.client.send(b"more");
        pair.server.send(&[2; 40_000]);
        pair.client.close();
        pair.server.close();
        run(&mut pair, &mut size);
        for end in [&pair.client, &pair.server] {
            assert_eq!(end.events, [Event::Established, Event::End]);
            assert!(end.input.is_empty());
        }
        assert_eq!(
            (pair.server.plain.len(), pair.client.plain.len()),
            (20_004, 40_000)
        );
    }
}

fn worlds() -> [World; 2] {
    let make = |suite: &str| {
        let mut world = World::new();
        world.client.suites = vec![suite.to_owned()];
        world.server.client_certificates = ClientCertificates::Required(world.authority.bundle());
        world.client.certificate = Some(world.authority.issue(&["client.example"]));
        world
    };
    [
        make("TLS_AES_128_GCM_SHA256"),
        make("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ]
}

#[test]
fn bytes_one_by_one_are_the_same_as_all_at_once() {
    for world in worlds() {
        conversation(&world, || usize::MAX);
        conversation(&world, || 1);
    }
}

#[test]
fn random_cuts_are_the_same_as_all_at_once() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        for world in worlds() {
            let most = [2, 50, 5000, 40_000][rng.below(4)];
            conversation(&world, || rng.below(most));
        }
    }
}

/// What comes after the handshake, cut at every byte: the same records in one piece and in two.
#[test]
fn late_records_may_be_cut_anywhere() {
    for version in [&TLS12, &TLS13] {
        let script = |at: Option<usize>| {
            let world = World::new();
            let mut end = End::new(world.build_server().session());
            let mut raw = Raw::client(&world, version, &mut end);
            let mut bytes = raw.seal(DATA, b"data", 0);
            bytes.extend(raw.seal(DATA, b"", 3));
            if version.version == rustls::ProtocolVersion::TLSv1_3 {
                bytes.extend(raw.seal(HANDSHAKE, &[24, 0, 0], 0));
                bytes.extend(raw.seal(HANDSHAKE, &[1, 1], 0));
                raw.update_sent();
            }
            bytes.extend(raw.seal(DATA, b" and more", 0));
            bytes.extend(raw.seal(ALERT, &[1, 0], 0));
            match at {
                None => end.feed(&bytes),
                Some(at) if at >= bytes.len() => return None,
                Some(at) => {
                    end.feed(&bytes[..at]);
                    end.feed(&bytes[at..]);
                }
            }
            Some((end.events, end.plain, end.wire.len()))
        };
        let whole = script(None).expect("whole");
        assert_eq!(whole.1, b"data and more");
        for at in 1.. {
            let Some(cut) = script(Some(at)) else {
                break;
            };
            assert_eq!(cut, whole, "cut at {at}");
        }
    }
}

/// rustls's client that writes small records, so that messages of the handshake come in many.
fn fragmented_client(world: &World, fragment: usize, tls13: bool) -> rustls::ClientConnection {
    let pair = world.client.certificate.as_ref().expect("one");
    let chain = CertificateDer::pem_slice_iter(&pair.chain.bytes)
        .collect::<Result<Vec<_>, _>>()
        .expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(&pair.key.bytes).expect("PEM");
    let version = if tls13 { &TLS13 } else { &TLS12 };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(world.clock.clone()));
    let builder = builder.with_protocol_versions(&[version]).expect("suites");
    let config = builder
        .with_root_certificates(roots(world))
        .with_client_auth_cert(chain, key);
    let mut config = config.expect("a certificate");
    config.max_fragment_size = Some(fragment);
    let name = ServerName::try_from("a.example").expect("a name");
    rustls::ClientConnection::new(Arc::new(config), name).expect("a client")
}

#[test]
fn messages_of_the_handshake_may_come_in_many_records() {
    for (tls13, fragment) in [(false, 32), (true, 32), (false, 100), (true, 100), (true, 700)] {
        for cut in [1, 7, 64, 100_000] {
            let [world, _] = worlds();
            let mut world = world;
            world.client.suites.clear();
            let mut client = fragmented_client(&world, fragment, tls13);
            let mut end = End::new(world.build_server().session());
            std::io::Write::write_all(&mut client.writer(), b"hello")
                .expect("kept until the handshake is over");
            while client.wants_write() || !end.wire.is_empty() {
                let mut sent = Vec::new();
                while client.wants_write() {
                    client.write_tls(&mut sent).expect("memory");
                }
                for piece in sent.chunks(cut) {
                    end.feed(piece);
                    assert!(
                        end.input.len() <= limits::HANDSHAKE + limits::RECORD,
                        "{} bytes kept",
                        end.input.len()
                    );
                }
                let answer = std::mem::take(&mut end.wire);
                let mut answer = &answer[..];
                while !answer.is_empty() {
                    client.read_tls(&mut answer).expect("memory");
                    client.process_new_packets().expect("in order");
                }
            }
            assert_eq!(end.session.fault(), None, "{fragment} {cut}");
            let facts = end.session.facts().expect("established");
            assert_eq!(facts.server_name.as_deref(), Some("a.example"));
            assert_eq!(facts.peer_certificates.len(), 1);
            assert_eq!(end.plain, b"hello");
        }
    }
}

#[test]
fn rule_13_early_data_is_neither_offered_nor_taken() {
    let [mut world, _] = worlds();
    world.server.client_certificates = ClientCertificates::Off;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(world.clock.clone()));
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("suites");
    let mut config = builder
        .with_root_certificates(roots(&world))
        .with_no_client_auth();
    config.enable_early_data = true;
    let config = Arc::new(config);
    let server = world.build_server();
    for resumed in [false, true] {
        let name = ServerName::try_from("a.example").expect("a name");
        let mut client = rustls::ClientConnection::new(config.clone(), name).expect("a client");
        assert!(client.early_data().is_none(), "our tickets allow none");
        let mut end = End::new(server.session());
        while client.wants_write() || !end.wire.is_empty() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).expect("memory");
            end.feed(&sent);
            let answer = std::mem::take(&mut end.wire);
            client.read_tls(&mut &answer[..]).expect("memory");
            client.process_new_packets().expect("in order");
        }
        assert_eq!(end.session.facts().expect("established").resumed, resumed);
    }
}
