//! Our client with our server: what they agree on, and that what one sends the other receives.

use ringmain_wire::tls::{Event, Version};

use crate::tls::support::{Pair, World};

/// Text of several records.
fn long() -> Vec<u8> {
    (0..100_000_u32).map(|at| ((at * 31) >> 3) as u8).collect()
}

#[test]
fn both_versions_and_every_suite_carry_data_both_ways() {
    for suite in ringmain_wire::tls::suite_names() {
        let mut world = World::new();
        if suite.contains("_RSA_") {
            let (from, to) = (crate::tls::support::NOW - 1, crate::tls::support::NOW + 1);
            world.server.certificates =
                vec![
                    world
                        .authority
                        .issue_with(&["a.example"], &rcgen::PKCS_RSA_SHA256, from, to),
                ];
        }
        world.client.suites = vec![suite.to_owned()];
        let mut pair = world.pair();
        assert!(
            pair.is_established(),
            "{suite}: {:?} {:?}",
            pair.client.session.fault(),
            pair.server.session.fault()
        );
        let facts = pair.server.session.facts().expect("established");
        let version = if suite.contains("_WITH_") {
            Version::Tls12
        } else {
            Version::Tls13
        };
        assert_eq!((facts.suite, facts.version), (suite, version));
        pair.client.send(&long());
        pair.server.send(b"answer");
        pair.run();
        assert_eq!(
            (&pair.server.plain, &pair.client.plain[..]),
            (&long(), &b"answer"[..]),
            "{suite}"
        );
        pair.client.close();
        pair.server.close();
        pair.run();
        assert_eq!(pair.client.events, [Event::Established, Event::End]);
        assert_eq!(pair.server.events, [Event::Established, Event::End]);
    }
}

#[test]
fn a_session_is_resumed() {
    let world = World::new();
    let (server, client) = world.build();
    let mut first = Pair::new(&server, &client, "a.example");
    first.run();
    assert!(!first.server.session.facts().expect("established").resumed);
    let mut second = Pair::new(&server, &client, "a.example");
    second.run();
    assert!(second.server.session.facts().expect("established").resumed);
    assert!(second.client.session.facts().expect("established").resumed);
}
