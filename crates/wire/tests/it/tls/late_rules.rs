//! Rules of what comes once the handshake is over: data, alerts, updates of keys, tickets, and nothing else.

use ringmain_wire::tls::{Event, FaultKind, Version, limits};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::tls::raw::{ALERT, DATA, HANDSHAKE, Raw};
use crate::tls::support::{End, World, name};

const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const KEY_UPDATE_ASKED: [u8; 5] = [24, 0, 0, 1, 1];

/// Our server, and a client that says what it likes.
fn our_server(version: &'static SupportedProtocolVersion) -> (Raw, End) {
    let world = World::new();
    let mut end = End::new(world.build_server().session());
    let raw = Raw::client(&world, version, &mut end);
    (raw, end)
}

/// Our client, and a server that says what it likes.
fn our_client(version: &'static SupportedProtocolVersion) -> (Raw, End) {
    let world = World::new();
    let mut end = End::new(world.build_client().session(&name("a.example")));
    let raw = Raw::server(&world, version, &mut end);
    (raw, end)
}

/// It failed for `kind`, and said so.
#[track_caller]
fn check_fault(raw: &mut Raw, end: &mut End, kind: FaultKind) {
    assert_eq!(
        end.session.fault().map(|fault| fault.kind),
        Some(kind),
        "{:?}",
        end.session.fault()
    );
    assert_eq!(end.events.last(), Some(&Event::Failed));
    if let Some(alert) = kind.alert() {
        assert_eq!(raw.open(&mut end.wire), (ALERT, vec![2, alert]));
    }
    assert!(end.wire.is_empty(), "nothing else is said");
    assert!(
        end.session.send(b"x", &mut Vec::new()).is_err(),
        "nothing more is sent"
    );
    let read = end.session.receive(&mut [23, 3, 3, 0, 1, 0], &mut Vec::new());
    assert_eq!(
        (read.consumed, read.event),
        (6, Event::Failed),
        "nothing more is read"
    );
}

#[test]
fn rule_10_keys_are_updated_when_the_peer_says_so() {
    for (mut raw, mut end) in [our_server(&TLS13), our_client(&TLS13)] {
        end.feed(&raw.seal(HANDSHAKE, &KEY_UPDATE, 0));
        raw.update_sent();
        end.feed(&raw.seal(DATA, b"new keys", 0));
        assert_eq!(end.plain, b"new keys");
        assert!(end.wire.is_empty(), "it was not asked to");
        end.feed(&raw.seal(HANDSHAKE, &KEY_UPDATE_ASKED, 0));
        raw.update_sent();
        assert_eq!(raw.open(&mut end.wire), (HANDSHAKE, KEY_UPDATE.to_vec()));
        raw.update_received();
        end.send(b"mine too");
        assert_eq!(raw.open(&mut end.wire), (DATA, b"mine too".to_vec()));
        end.feed(&raw.seal(DATA, b" again", 0));
        assert_eq!(end.plain, b"new keys again");
    }
}

#[test]
fn rule_10_updates_without_data_between_them_are_bounded() {
    let (mut raw, mut end) = our_server(&TLS13);
    for round in 0..3 {
        for _ in 0..limits::IDLE_RECORDS {
            end.feed(&raw.seal(HANDSHAKE, &KEY_UPDATE_ASKED, 0));
            raw.update_sent();
            assert_eq!(
                raw.open(&mut end.wire),
                (HANDSHAKE, KEY_UPDATE.to_vec()),
                "round {round}"
            );
            raw.update_received();
        }
        end.feed(&raw.seal(DATA, b"x", 0));
    }
    assert_eq!(end.plain, b"xxx");
    for _ in 0..limits::IDLE_RECORDS {
        end.feed(&raw.seal(HANDSHAKE, &KEY_UPDATE, 0));
        raw.update_sent();
    }
    end.feed(&raw.seal(HANDSHAKE, &KEY_UPDATE, 0));
    check_fault(&mut raw, &mut end, FaultKind::Flood);
}

#[test]
fn rule_10_an_update_is_the_last_in_its_record_and_in_its_form() {
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&raw.seal(HANDSHAKE, &[KEY_UPDATE, KEY_UPDATE].concat(), 0));
    check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    for wrong in [&[24, 0, 0, 1, 2][..], &[24, 0, 0, 0], &[24, 0, 0, 2, 0, 0]] {
        let (mut raw, mut end) = our_server(&TLS13);
        end.feed(&raw.seal(HANDSHAKE, wrong, 0));
        check_fault(&mut raw, &mut end, FaultKind::Decode);
    }
}

#[test]
fn rule_11_records_without_data_are_bounded() {
    for version in [&TLS12, &TLS13] {
        let (mut raw, mut end) = our_server(version);
        for _ in 0..limits::IDLE_RECORDS {
            end.feed(&raw.seal(DATA, b"", 0));
        }
        end.feed(&raw.seal(DATA, b"data renews the budget", 100));
        for _ in 0..limits::IDLE_RECORDS {
            end.feed(&raw.seal(DATA, b"", 0));
        }
        assert_eq!(end.plain, b"data renews the budget");
        end.feed(&raw.seal(DATA, b"", 0));
        check_fault(&mut raw, &mut end, FaultKind::Flood);
    }
}

#[test]
fn rule_11_warnings_are_bounded() {
    let (mut raw, mut end) = our_server(&TLS12);
    for _ in 0..=limits::IDLE_RECORDS {
        end.feed(&raw.seal(ALERT, &[1, 100], 0));
    }
    check_fault(&mut raw, &mut end, FaultKind::Flood);
}

#[test]
fn rule_11_tickets_are_bounded() {
    let ticket = [&[4, 0, 0, 14][..], &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0]].concat();
    let (mut raw, mut end) = our_client(&TLS13);
    // Those of the handshake count too.
    for _ in 0..=limits::IDLE_RECORDS {
        end.feed(&raw.seal(HANDSHAKE, &ticket, 0));
    }
    check_fault(&mut raw, &mut end, FaultKind::Flood);
}

#[test]
fn rule_11_parts_of_messages_are_bounded() {
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&raw.seal(HANDSHAKE, &[24, 0, 0], 0));
    end.feed(&raw.seal(HANDSHAKE, &[1, 0], 0));
    raw.update_sent();
    assert!(end.session.fault().is_none(), "a message in parts is read");
    end.feed(&raw.seal(HANDSHAKE, &[4, 0, 0x3f, 0xff], 0));
    for _ in 0..=limits::IDLE_RECORDS {
        end.feed(&raw.seal(HANDSHAKE, &[0], 0));
    }
    check_fault(&mut raw, &mut end, FaultKind::Flood);
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&raw.seal(HANDSHAKE, &[4, 0, 0x40, 0x01], 0));
    check_fault(&mut raw, &mut end, FaultKind::HandshakeTooLong);
}

#[test]
fn rule_9_nothing_is_renegotiated() {
    // A hello of 38 bytes: what is in it does not matter.
    let hello = [&[1, 0, 0, 38, 3, 3][..], &[0; 36]].concat();
    for (pair, message) in [
        (our_server(&TLS12), &hello[..]),
        (our_client(&TLS12), &[0, 0, 0, 0][..]),
    ] {
        let (mut raw, mut end) = pair;
        end.feed(&raw.seal(HANDSHAKE, message, 0));
        assert_eq!(raw.open(&mut end.wire), (ALERT, vec![1, 100]), "no_renegotiation");
        end.feed(&raw.seal(DATA, b"it goes on", 0));
        assert_eq!(end.plain, b"it goes on");
        for _ in 0..limits::IDLE_RECORDS {
            end.feed(&raw.seal(HANDSHAKE, message, 0));
            assert_eq!(raw.open(&mut end.wire), (ALERT, vec![1, 100]));
        }
        end.feed(&raw.seal(HANDSHAKE, message, 0));
        check_fault(&mut raw, &mut end, FaultKind::Flood);
    }
    for (mut raw, mut end) in [our_server(&TLS13), our_client(&TLS13)] {
        end.feed(&raw.seal(HANDSHAKE, &hello, 0));
        check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    }
}

#[test]
fn rule_14_an_end_is_announced_and_nothing_is_read_behind_it() {
    for version in [&TLS12, &TLS13] {
        let (mut raw, mut end) = our_server(version);
        assert_eq!(end.session.ended().expect_err("cut").kind, FaultKind::Truncated);
        end.feed(&raw.seal(DATA, b"all", 0));
        end.feed(&raw.seal(ALERT, &[1, 0], 0));
        end.feed(&raw.seal(DATA, b" and more", 0));
        end.feed(b"whatever");
        assert_eq!(end.plain, b"all");
        assert_eq!(end.events, [Event::Established, Event::End]);
        assert_eq!(end.session.ended(), Ok(()));
        assert!(end.input.is_empty(), "what comes behind is dropped");
        end.send(b"answer");
        assert_eq!(raw.open(&mut end.wire), (DATA, b"answer".to_vec()));
        end.close();
        end.close();
        assert_eq!(raw.open(&mut end.wire), (ALERT, vec![1, 0]));
        assert!(end.wire.is_empty(), "it is said once");
        assert!(end.session.send(b"x", &mut Vec::new()).is_err());
    }
}

#[test]
fn rule_15_an_alert_ends_the_session_and_is_told() {
    for (version, alert) in [(&TLS12, [2, 49]), (&TLS13, [2, 49]), (&TLS13, [1, 49])] {
        let (mut raw, mut end) = our_server(version);
        end.feed(&raw.seal(ALERT, &alert, 0));
        let fault = end.session.fault().expect("failed").to_string();
        assert!(fault.contains("AccessDenied (49)"), "{fault}");
        check_fault(&mut raw, &mut end, FaultKind::Refused);
    }
    for wrong in [&[][..], &[1], &[1, 0, 0]] {
        let (mut raw, mut end) = our_server(&TLS13);
        end.feed(&raw.seal(ALERT, wrong, 0));
        check_fault(&mut raw, &mut end, FaultKind::Decode);
    }
}

#[test]
fn rule_16_records_open_with_their_keys_alone() {
    for version in [&TLS12, &TLS13] {
        let (mut raw, mut end) = our_server(version);
        let mut record = raw.seal(DATA, b"data", 0);
        let last = record.len() - 1;
        record[last] ^= 1;
        end.feed(&record);
        check_fault(&mut raw, &mut end, FaultKind::Decrypt);
        // Out of order, and again.
        let (mut raw, mut end) = our_server(version);
        let (first, second) = (raw.seal(DATA, b"first", 0), raw.seal(DATA, b"second", 0));
        end.feed(&first);
        end.feed(&first);
        assert_eq!(end.plain, b"first");
        check_fault(&mut raw, &mut end, FaultKind::Decrypt);
        let (mut raw, mut end) = our_server(version);
        end.feed(&second);
        check_fault(&mut raw, &mut end, FaultKind::Decrypt);
        let (mut raw, mut end) = our_server(version);
        end.feed(&[23, 3, 3, 0, 3, 1, 2, 3]);
        check_fault(&mut raw, &mut end, FaultKind::Decrypt);
    }
}

#[test]
fn rule_16_nothing_stands_where_it_has_no_place() {
    // In the clear, of a kind without meaning, padding alone, within a message, empty for a message.
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&[20, 3, 3, 0, 1, 1]);
    check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&raw.seal(20, &[1], 0));
    check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    let (mut raw, mut end) = our_server(&TLS12);
    end.feed(&raw.seal(20, &[1], 0));
    check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&raw.seal(0, &[], 9));
    check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    for kind in [DATA, ALERT] {
        let (mut raw, mut end) = our_server(&TLS13);
        end.feed(&raw.seal(HANDSHAKE, &[24, 0], 0));
        end.feed(&raw.seal(kind, &[1, 0], 0));
        assert!(end.plain.is_empty());
        check_fault(&mut raw, &mut end, FaultKind::Unexpected);
    }
    for version in [&TLS12, &TLS13] {
        let (mut raw, mut end) = our_server(version);
        end.feed(&raw.seal(HANDSHAKE, &[], 0));
        check_fault(&mut raw, &mut end, FaultKind::Unexpected);
        // A ticket from a client, and a message that there is not.
        for kind in [4, 99] {
            let (mut raw, mut end) = our_server(version);
            end.feed(&raw.seal(HANDSHAKE, &[kind, 0, 0, 0], 0));
            check_fault(&mut raw, &mut end, FaultKind::Unexpected);
        }
    }
    let (mut raw, mut end) = our_client(&TLS12);
    end.feed(&raw.seal(HANDSHAKE, &[4, 0, 0, 0], 0));
    check_fault(&mut raw, &mut end, FaultKind::Unexpected);
}

#[test]
fn rule_1_records_have_at_most_16384_bytes_of_content() {
    for version in [&TLS12, &TLS13] {
        let (mut raw, mut end) = our_server(version);
        end.feed(&raw.seal(DATA, &[7; limits::RECORD_PLAIN], 0));
        assert_eq!(end.plain.len(), limits::RECORD_PLAIN);
        end.feed(&raw.seal(DATA, &[7; limits::RECORD_PLAIN + 1], 0));
        check_fault(&mut raw, &mut end, FaultKind::Record);
        // Longer than any record: known from its header.
        let (mut raw, mut end) = our_server(version);
        end.feed(&[23, 3, 3, 0x48, 0x01]);
        check_fault(&mut raw, &mut end, FaultKind::Record);
    }
    let (mut raw, mut end) = our_server(&TLS13);
    end.feed(&raw.seal(DATA, b"padded", 10_000));
    assert_eq!(end.plain, b"padded");
}

#[test]
fn rule_2_the_version_is_told() {
    for (version, told) in [(&TLS12, Version::Tls12), (&TLS13, Version::Tls13)] {
        let (_, end) = our_server(version);
        assert_eq!(end.session.facts().expect("established").version, told);
    }
}
