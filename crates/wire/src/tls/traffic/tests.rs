//! What needs keys that are used up, which takes millions of records otherwise.

use std::time::Duration;

use super::*;
use crate::tls::{
    ClientSettings, Clock, Event, KeyPair, PeerName, Pem, ServerSettings, Session, Tickets, Trust,
};

const NOW: u64 = 1_795_000_000;

/// A client and a server after their handshake.
fn pair(suite: &str) -> [Session; 2] {
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
        ..Default::default()
    };
    let server = settings
        .build(&Tickets::new(&clock).expect("keys"), &[])
        .expect("settings in order");
    let client = ClientSettings::new(Trust::AnybodyInsecure)
        .build(&clock)
        .expect("settings in order");
    let mut ends = [
        client.session(&PeerName::new("a.example").expect("a name")),
        server.session(),
    ];
    let mut wire = Vec::new();
    ends[0].begin(&mut wire);
    for at in [1, 0].into_iter().cycle() {
        if wire.is_empty() {
            break;
        }
        wire = receive(&mut ends[at], wire).1;
    }
    assert!(ends.iter().all(|end| end.facts().is_some()), "{ends:?}");
    ends
}

/// What came of `bytes`: data, and what is answered.
fn receive(session: &mut Session, mut bytes: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let (mut plain, mut wire) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let step = session.receive(&mut bytes, &mut wire);
        if let Event::Plain(range) = step.event {
            plain.extend_from_slice(&bytes[range]);
        }
        bytes.drain(..step.consumed);
    }
    (plain, wire)
}

#[test]
fn rule_19_keys_are_changed_before_they_are_used_up() {
    let [mut client, mut server] = pair("TLS_AES_128_GCM_SHA256");
    server.traffic_for_tests().limit = 10;
    let (mut wire, mut updates) = (Vec::new(), 0);
    for number in 0..100_u8 {
        let before = wire.len();
        server.send(&[number], &mut wire).expect("keys are changed");
        updates += usize::from(wire.len() - before > 23);
        assert!(server.traffic_for_tests().sent.used() < 10);
    }
    let (plain, answer) = receive(&mut client, wire);
    assert_eq!(plain, (0..100).collect::<Vec<u8>>());
    assert!(updates >= 10, "{updates} updates");
    assert!(answer.is_empty(), "the client's keys may stay");
    assert_eq!(client.fault(), None);
}

#[test]
fn rule_19_keys_of_tls_1_2_are_not_used_beyond_their_end() {
    let [_, mut server] = pair("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    server.traffic_for_tests().limit = 10;
    let mut wire = Vec::new();
    let sent = (0..100)
        .take_while(|_| server.send(b"x", &mut wire).is_ok())
        .count();
    assert!((5..10).contains(&sent), "{sent} records");
    let fault = server.fault().expect("used up");
    assert_eq!(
        (fault.kind, fault.kind.blame()),
        (FaultKind::Ours, crate::tls::Blame::Us)
    );
    assert!(fault.to_string().contains("used up"));
}
