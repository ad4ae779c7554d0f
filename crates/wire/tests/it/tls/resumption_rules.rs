//! Rules of resumption: where a session goes on that began elsewhere, and where it must not.

use ringmain_wire::tls::{ClientCertificates, Clock, Tickets};

use crate::tls::support::{Authority, NOW, Pair, World, at};

fn resumed(pair: &Pair) -> bool {
    pair.server.session.facts().expect("established").resumed
}

/// The worlds of both versions.
fn both_versions() -> [World; 2] {
    let mut tls12 = World::new();
    tls12.client.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    [tls12, World::new()]
}

/// Whether a session begun with `first` is resumed with `second`.
fn resumes(world: &World, first: &ringmain_wire::tls::Server, second: &ringmain_wire::tls::Server) -> bool {
    let client = world.build_client();
    let mut pair = Pair::new(first, &client, "a.example");
    pair.run();
    assert!(!resumed(&pair));
    let mut pair = Pair::new(second, &client, "a.example");
    pair.run();
    resumed(&pair)
}

#[test]
fn rule_8_sessions_are_resumed_after_settings_changed() {
    for mut world in both_versions() {
        let before = world.build_server();
        world.server.certificates = vec![world.authority.issue(&["a.example"])];
        world.server.alpn = vec![b"h2".to_vec()];
        assert!(resumes(&world, &before, &world.build_server()));
    }
}

#[test]
fn rule_8_sessions_are_not_resumed_with_other_keys_or_none() {
    for mut world in both_versions() {
        let before = world.build_server();
        world.tickets = Tickets::new(&world.clock).expect("keys");
        assert!(!resumes(&world, &before, &world.build_server()));
        world.server.tickets = 0;
        let none = world.build_server();
        assert!(!resumes(&world, &none, &none));
    }
}

#[test]
fn rule_8_sessions_are_not_resumed_where_more_is_asked_of_clients() {
    for mut world in both_versions() {
        let off = world.build_server();
        let mine = world.authority.issue(&["client.example"]);
        world.client.certificate = Some(mine);
        world.server.client_certificates = ClientCertificates::Optional(world.authority.bundle());
        let optional = world.build_server();
        world.server.client_certificates = ClientCertificates::Required(world.authority.bundle());
        let required = world.build_server();
        world.server.client_certificates = ClientCertificates::Unchecked(world.authority.bundle());
        let unchecked = world.build_server();
        let both = [world.authority.pem.clone(), Authority::new("Other authority").pem].concat();
        world.server.client_certificates =
            ClientCertificates::Required(crate::tls::support::pem("both", both));
        let others = world.build_server();
        let servers = [&off, &optional, &required, &unchecked, &others];
        for (at, first) in servers.iter().enumerate() {
            for (other, second) in servers.iter().enumerate() {
                assert_eq!(resumes(&world, first, second), at == other, "{at} {other}");
            }
        }
    }
}

#[test]
fn rule_8_keys_of_tickets_change_and_are_forgotten() {
    let period = ringmain_wire::tls::TICKET_KEY_PERIOD;
    for (hours_later, expected) in [
        (0, true),
        (period - 1, true),
        (period, true),
        (2 * period - 1, true),
        (2 * period, false),
    ] {
        for world in both_versions() {
            let server = world.build_server();
            // The client's own clock stands still: it would throw old tickets away.
            let client = world
                .client
                .build(&Clock::new(at(NOW)))
                .expect("settings in order");
            Pair::new(&server, &client, "a.example").run();
            world.clock.set(at(NOW + hours_later));
            let mut pair = Pair::new(&server, &client, "a.example");
            pair.run();
            assert_eq!(resumed(&pair), expected, "{hours_later} s later");
        }
    }
}

#[test]
fn rule_8_a_resumed_session_knows_the_client_s_certificate() {
    for mut world in both_versions() {
        world.server.client_certificates = ClientCertificates::Required(world.authority.bundle());
        world.client.certificate = Some(world.authority.issue(&["client.example"]));
        let (server, client) = world.build();
        for resume in [false, true] {
            let mut pair = Pair::new(&server, &client, "a.example");
            pair.run();
            let facts = pair.server.session.facts().expect("established");
            assert_eq!((facts.resumed, facts.peer_certificates.len()), (resume, 1));
        }
    }
}

#[test]
fn rule_8_a_client_resumes_only_if_it_wishes_to() {
    let mut world = World::new();
    world.client.resume = false;
    let server = world.build_server();
    assert!(!resumes(&world, &server, &server));
}
