//! Rules of certificates of clients that are not checked, or were checked by other settings.

use ringmain_wire::tls::{ClientCertificates, Version};

use super::support::{Authority, DAY, NOW, Pair, World, at};

/// Both versions: all clients are admitted, and invalid certificates are reported separately, also in a resumed session.
#[test]
fn rule_7_unchecked_certificates_are_told_apart() {
    for suites in [
        &["TLS_AES_128_GCM_SHA256"],
        &["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
    ] {
        let mut world = World::new();
        world.client.suites = suites.iter().map(|&suite| suite.to_owned()).collect();
        world.server.client_certificates = ClientCertificates::Unchecked(world.authority.bundle());
        let short = world
            .authority
            .issue_with(&["client"], &rcgen::PKCS_ED25519, NOW - DAY, NOW + DAY);
        for (name, certificate, days, expected) in [
            ("none", None, 0, (0, 0)),
            (
                "valid",
                Some(world.authority.issue(&["client.example"])),
                0,
                (1, 0),
            ),
            (
                "other",
                Some(Authority::new("Other").issue(&["client.example"])),
                0,
                (0, 1),
            ),
            ("expired", Some(short), 2, (0, 1)),
        ] {
            world.clock.set(at(NOW));
            world.client.certificate = certificate;
            let (server, client) = world.build();
            world.clock.set(at(NOW + days * DAY));
            for resumed in [false, true] {
                let mut pair = Pair::new(&server, &client, "a.example");
                pair.run();
                let facts = pair.server.session.facts().expect("established");
                let shown = (facts.peer_certificates.len(), facts.unverified_certificates.len());
                assert_eq!((facts.resumed, shown), (resumed, expected), "{name}");
            }
        }
    }
}

/// Sessions by the settings of a former configuration, judged by those of now.
#[test]
fn rule_7_established_sessions_are_judged_as_new_ones_would_be() {
    let mut world = World::new();
    let other = Authority::new("Other authority");
    let both = super::support::pem("both", [world.authority.pem.clone(), other.pem.clone()].concat());
    let asking = [
        ClientCertificates::Off,
        ClientCertificates::Optional(world.authority.bundle()),
        ClientCertificates::Required(world.authority.bundle()),
        ClientCertificates::Unchecked(world.authority.bundle()),
        ClientCertificates::Optional(other.bundle()),
        ClientCertificates::Required(other.bundle()),
        ClientCertificates::Unchecked(other.bundle()),
        ClientCertificates::Required(both),
    ];
    let certificates = [
        None,
        Some(world.authority.issue(&["client.example"])),
        Some(other.issue(&["client.example"])),
    ];
    let mut servers = Vec::new();
    for asking in &asking {
        world.server.client_certificates = asking.clone();
        servers.push(world.build_server());
    }
    world.client.resume = false;
    let mut judged = [0, 0];
    for certificate in certificates {
        world.client.certificate = certificate;
        let client = world.build_client();
        let handshakes: Vec<_> = servers
            .iter()
            .map(|server| {
                let mut pair = Pair::new(server, &client, "a.example");
                pair.run();
                pair.server.session.shared_facts()
            })
            .collect();
        for (begun, facts) in handshakes.iter().enumerate() {
            let Some(facts) = facts else { continue };
            let (valid, invalid) = (&facts.peer_certificates, &facts.unverified_certificates);
            for (now, server) in servers.iter().enumerate() {
                let expected = match (valid.is_empty() && invalid.is_empty(), &handshakes[now]) {
                    // A client that was not asked may have none.
                    (true, _) => !matches!(asking[now], ClientCertificates::Required(_)),
                    (false, None) => false,
                    (false, Some(fresh)) => {
                        (&fresh.peer_certificates, &fresh.unverified_certificates) == (valid, invalid)
                    }
                };
                assert_eq!(
                    server.admits(facts),
                    expected,
                    "begun by {begun}, judged by {now}"
                );
                judged[usize::from(expected)] += 1;
            }
        }
    }
    assert!(judged.iter().all(|&count| count > 10), "{judged:?}");
}

#[test]
fn rule_7_sessions_of_versions_and_suites_that_are_not_spoken_are_not_admitted() {
    let mut world = World::new();
    world.client.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    let pair = world.pair();
    let facts = pair.server.session.facts().expect("established");
    assert!(world.build_server().admits(facts));
    world.server.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".to_owned()];
    assert!(!world.build_server().admits(facts));
    world.server.suites = Vec::new();
    world.server.minimum_version = Version::Tls13;
    assert!(!world.build_server().admits(facts));
}

/// A policy queries it for each request of a connection.
#[test]
fn the_principal_of_a_certificate_is_parsed_once() {
    let mut world = World::new();
    world.server.client_certificates = ClientCertificates::Unchecked(world.authority.bundle());
    let principal_of = |world: &World| {
        let pair = world.pair();
        let facts = pair.server.session.shared_facts().expect("established");
        let principals = [facts.peer_principal(), facts.peer_principal()];
        let [first, second] =
            principals.map(|principal| principal.map(|text| (text.as_ptr(), text.to_owned())));
        assert_eq!(first, second);
        first.map(|(_, text)| text)
    };
    assert_eq!(principal_of(&world), None, "no certificate");
    world.client.certificate = Some(world.authority.issue(&["client.example", "other.example"]));
    assert_eq!(principal_of(&world).as_deref(), Some("client.example"));
    world.client.certificate = Some(Authority::new("Other").issue(&["client.example"]));
    assert_eq!(principal_of(&world), None, "it proves nothing");
}
