//! Rules of the handshake: versions, suites, protocols, names, certificates, resumption, and what is no handshake.

use ringmain_wire::tls::{
    ClientCertificates, ClientSettings, Event, Fault, FaultKind, Session, Trust, Version, limits,
};

use crate::tls::support::{Authority, DAY, End, NOW, Pair, World, at, name};

/// The client fails for `client`, the server for `server`; both say so in words that hold `texts`.
#[track_caller]
fn check_faults(world: &World, client: (FaultKind, &[&str]), server: (FaultKind, &[&str])) {
    let faults = world.faults();
    for (fault, (kind, texts)) in [(faults.0, client), (faults.1, server)] {
        let fault: Fault = fault.expect("a handshake that fails");
        let told = fault.to_string();
        assert_eq!(fault.kind, kind, "{told}");
        for text in texts {
            assert!(told.contains(text), "\"{text}\" in: {told}");
        }
    }
}

#[test]
fn rule_1_what_is_not_tls_is_told() {
    let world = World::new();
    let server = world.build_server();
    for (bytes, texts) in [
        (&b"SSH-2.0-OpenSSH_9.9\r\n"[..], ["\"SSH-2\"", "a record of TLS"]),
        (
            &b"\x80\x2e\x01\x03\x01\x00\x15\x00"[..],
            ["\\x80.\\x01\\x03\\x01", "a record of TLS"],
        ),
        (&b"\x16\x02\x00\x00\x01"[..], ["\\x16\\x02", "a record of TLS"]),
        (&b"\x00\x00\x00\x00\x00"[..], ["\\x00", "a record of TLS"]),
    ] {
        let mut end = End::new(server.session());
        end.feed(bytes);
        let fault = end.session.fault().expect("refused").to_string();
        assert_eq!(end.session.fault().expect("refused").kind, FaultKind::NotTls);
        assert!(texts.iter().all(|text| fault.contains(text)), "{fault}");
        assert!(end.wire.is_empty(), "nothing is said in TLS");
    }
    let mut end = End::new(world.build_client().session(&name("a.example")));
    end.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let fault = end.session.fault().expect("refused");
    assert_eq!(fault.kind, FaultKind::NotTls);
    assert!(fault.to_string().contains("plain HTTP"), "{fault}");
}

/// They are answered in their own protocol, so that people see what is wrong.
#[test]
fn rule_1_requests_in_the_clear_are_answered_in_the_clear() {
    let world = World::new();
    let server = world.build_server();
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "M-SEARCH * HTTP/1.1\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        for cut in 1..request.len() {
            let mut end = End::new(server.session());
            let (first, rest) = request.as_bytes().split_at(cut);
            end.feed(first);
            end.feed(rest);
            let fault = end.session.fault().expect("refused");
            assert_eq!(fault.kind, FaultKind::PlainHttp, "{request:?} at {cut}");
            assert!(fault.to_string().contains("plain HTTP"), "{fault}");
            let answer = str::from_utf8(&end.wire).expect("text");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
            assert!(head.ends_with("\r\nConnection: close"), "{answer}");
            assert_eq!(
                body.contains("this port speaks TLS"),
                !request.starts_with("HEAD"),
                "{answer}"
            );
        }
    }
    for other in ["get / HTTP/1.1\r\n\r\n", "GE T/ HTTP", "\r\nGET / H", "G\0T / "] {
        let mut end = End::new(server.session());
        end.feed(other.as_bytes());
        assert_eq!(end.session.fault().expect("refused").kind, FaultKind::NotTls);
        assert!(end.wire.is_empty(), "{other:?}");
    }
}

#[test]
fn rule_1_the_first_record_is_within_its_limit() {
    let mut end = End::new(World::new().build_server().session());
    end.feed(&[22, 3, 1, 0x48, 0x01]);
    assert_eq!(end.session.fault().expect("refused").kind, FaultKind::Record);
    assert_eq!(end.wire, [21, 3, 3, 0, 2, 2, 22]);
}

#[test]
fn rule_1_messages_have_their_form() {
    let mut end = End::new(World::new().build_server().session());
    end.feed(&[22, 3, 1, 0, 8, 1, 0, 0, 4, 3, 3, 0, 0]);
    assert_eq!(end.session.fault().expect("refused").kind, FaultKind::Decode);
    assert_eq!(end.wire, [21, 3, 3, 0, 2, 2, 50]);
}

#[test]
fn rule_2_a_version_in_common_is_spoken_from_the_lowest_allowed_on() {
    for (lowest, highest) in [(Version::Tls12, Version::Tls13), (Version::Tls13, Version::Tls13)] {
        let mut world = World::new();
        world.server.minimum_version = lowest;
        assert_eq!(
            world.pair().server.session.facts().expect("established").version,
            highest
        );
    }
    let mut world = World::new();
    world.server.minimum_version = Version::Tls13;
    world.client.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    let refused = (
        FaultKind::Refused,
        &["ProtocolVersion (70)", "no version of TLS in common"][..],
    );
    check_faults(&world, refused, (FaultKind::Version, &["TLS 1.2 or 1.3"]));
    let mut world = World::new();
    world.client.minimum_version = Version::Tls13;
    world.server.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    let (_, server) = world.faults();
    assert_eq!(server.expect("refused").kind, FaultKind::Version);
}

#[test]
fn rule_2_old_versions_are_refused() {
    // A hello of TLS 1.1 with one suite of its time.
    let body = [&[3, 2][..], &[7; 32], &[0, 0, 2, 0, 0x2f, 1, 0]].concat();
    let hello = [
        &[22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8][..],
        &body,
    ]
    .concat();
    let mut end = End::new(World::new().build_server().session());
    end.feed(&hello);
    assert_eq!(end.session.fault().expect("refused").kind, FaultKind::Version);
    assert_eq!(end.wire, [21, 3, 3, 0, 2, 2, 70]);
}

#[test]
fn rule_3_a_suite_in_common_is_needed() {
    let mut world = World::new();
    world.server.suites = vec!["TLS_AES_128_GCM_SHA256".to_owned()];
    world.client.suites = vec!["TLS_CHACHA20_POLY1305_SHA256".to_owned()];
    let refused = (FaultKind::Refused, &["HandshakeFailure (40)", "no suite"][..]);
    check_faults(
        &world,
        refused,
        (
            FaultKind::Parameters,
            &["a cipher suite", "NoCipherSuitesInCommon"],
        ),
    );
}

#[test]
fn rule_4_protocols_are_chosen_in_the_server_s_order_or_the_handshake_fails() {
    let offer = |protocols: &[&str]| {
        protocols
            .iter()
            .map(|one| one.as_bytes().to_vec())
            .collect::<Vec<_>>()
    };
    let mut world = World::new();
    world.server.alpn = offer(&["h2", "http/1.1"]);
    for (offered, chosen) in [
        (&["http/1.1", "h2"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        world.client.alpn = offer(offered);
        let pair = world.pair();
        for session in [&pair.client.session, &pair.server.session] {
            assert_eq!(session.facts().expect("established").alpn.as_deref(), chosen);
        }
    }
    world.client.alpn = offer(&["imap"]);
    let refused = (FaultKind::Refused, &["NoApplicationProtocol (120)"][..]);
    check_faults(
        &world,
        refused,
        (FaultKind::Alpn, &["an application protocol in common"]),
    );
}

/// The first name of the certificate that a client gets that asks for `asked`; it trusts anybody.
fn shown(world: &World, asked: &str) -> Result<String, FaultKind> {
    let mut pair = Pair::new(&world.build_server(), &world.build_client(), asked);
    pair.run();
    let Some(facts) = pair.client.session.facts() else {
        return Err(pair.server.session.fault().expect("one of both fails").kind);
    };
    let served = world.build_server();
    let of = |text: &[u8]| {
        use rustls::pki_types::pem::PemObject;
        rustls::pki_types::CertificateDer::from_pem_slice(text)
            .expect("PEM")
            .to_vec()
    };
    let at = world
        .server
        .certificates
        .iter()
        .position(|one| of(&one.chain.bytes) == facts.peer_certificates[0]);
    let expected = asked
        .parse::<std::net::IpAddr>()
        .is_err()
        .then(|| asked.to_ascii_lowercase());
    assert_eq!(
        pair.server.session.facts().expect("established").server_name,
        expected
    );
    Ok(served.certificates()[at.expect("one of ours")].names[0].clone())
}

#[test]
fn rule_5_a_certificate_is_chosen_by_name() {
    let mut world = World::new();
    world.client = ClientSettings::new(Trust::AnybodyInsecure);
    world.server.certificates = vec![
        world.authority.issue(&["first.example"]),
        world.authority.issue(&["*.wild.example"]),
        world.authority.issue(&["b.example", "exact.wild.example"]),
    ];
    for (asked, expected) in [
        ("first.example", "first.example"),
        ("b.example", "b.example"),
        ("B.Example", "b.example"),
        ("exact.wild.example", "b.example"),
        ("other.wild.example", "*.wild.example"),
        // A wildcard is for one label.
        ("two.other.wild.example", "first.example"),
        ("wild.example", "first.example"),
        ("unknown.example", "first.example"),
        ("127.0.0.1", "first.example"),
    ] {
        assert_eq!(shown(&world, asked), Ok(expected.to_owned()), "{asked}");
    }
    world.server.refuse_unknown_names = true;
    assert_eq!(shown(&world, "unknown.example"), Err(FaultKind::Name));
    assert_eq!(shown(&world, "two.other.wild.example"), Err(FaultKind::Name));
    assert_eq!(
        shown(&world, "other.wild.example"),
        Ok("*.wild.example".to_owned())
    );
    assert_eq!(
        shown(&world, "127.0.0.1"),
        Ok("first.example".to_owned()),
        "no name is not an unknown one"
    );
}

#[test]
fn rule_5_an_unknown_name_is_told() {
    let mut world = World::new();
    world.server.refuse_unknown_names = true;
    world.server.certificates = vec![world.authority.issue(&["b.example"])];
    let refused = (FaultKind::Refused, &["UnrecognisedName (112)"][..]);
    check_faults(&world, refused, (FaultKind::Name, &["\"a.example\""]));
}

/// There is no way past rustls to the default certificate: the hello is part of the transcript, so it cannot be changed.
#[test]
fn rule_5_a_name_that_is_no_dns_name_is_told() {
    let world = World::new();
    let server = world.build_server();
    for other in ["*.example", "-x.exampl", "[foo.com]"] {
        let mut hello = Vec::new();
        let mut client = world.build_client().session(&name("a.example"));
        client.begin(&mut hello);
        let at = hello.windows(9).position(|part| part == b"a.example");
        let at = at.expect("the name is in the hello");
        hello[at..at + 9].copy_from_slice(other.as_bytes());
        let mut end = End::new(server.session());
        end.feed(&hello);
        let fault = end.session.fault().expect("refused");
        assert_eq!(fault.kind, FaultKind::ServerName, "{other}: {fault}");
        assert!(fault.to_string().contains("no DNS name"), "{fault}");
        assert_eq!(end.wire, [21, 3, 3, 0, 2, 2, 47], "{other}");
    }
}

#[test]
fn rule_5_a_name_may_have_a_certificate_of_each_algorithm() {
    let mut world = World::new();
    let rsa = world
        .authority
        .issue_with(&["a.example"], &rcgen::PKCS_RSA_SHA256, NOW - DAY, NOW + DAY);
    world.server.certificates.insert(0, rsa);
    for (suite, rsa) in [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", false),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", true),
    ] {
        world.client.suites = vec![suite.to_owned()];
        let pair = world.pair();
        let facts = pair
            .server
            .session
            .facts()
            .unwrap_or_else(|| panic!("{suite}: {:?}", pair.server.session.fault()));
        assert_eq!((facts.suite, facts.suite.contains("RSA")), (suite, rsa));
    }
}

#[test]
fn rule_6_a_server_s_certificate_is_for_the_name() {
    let mut world = World::new();
    world.server.certificates = vec![world.authority.issue(&["b.example", "c.example", "10.0.0.1"])];
    let told = &["one for b.example, c.example", "\"a.example\" was asked for"][..];
    check_faults(
        &world,
        (FaultKind::CertificateName, told),
        (FaultKind::Refused, &["BadCertificate (42)", "our certificate"]),
    );
    let (server, client) = world.build();
    for (asked, right) in [("10.0.0.1", true), ("10.0.0.2", false), ("c.example", true)] {
        let mut pair = Pair::new(&server, &client, asked);
        pair.run();
        assert_eq!(pair.is_established(), right, "{asked}");
    }
}

#[test]
fn rule_6_a_server_s_certificate_is_valid_now() {
    let world = World::new();
    let (server, client) = world.build();
    for (days, kind, text) in [
        (40, FaultKind::CertificateExpired, "one that expired on"),
        (-40, FaultKind::CertificateNotYetValid, "one that is valid from"),
    ] {
        world.clock.set(at((NOW as i64 + days * DAY as i64) as u64));
        let mut pair = Pair::new(&server, &client, "a.example");
        pair.run();
        let fault = pair.client.session.fault().expect("refused");
        assert_eq!(fault.kind, kind, "{fault}");
        assert!(fault.to_string().contains(text), "{fault}");
        assert!(fault.to_string().contains("now it is"), "{fault}");
    }
}

#[test]
fn rule_6_a_server_s_certificate_is_issued_by_a_trusted_authority() {
    let mut world = World::new();
    let other = Authority::new("Other authority");
    world.client.trust = other.trust();
    check_faults(
        &world,
        (FaultKind::CertificateIssuer, &["whose issuer is unknown here"]),
        (
            FaultKind::Refused,
            &["UnknownCA (48)", "does not trust the authority"],
        ),
    );
    // The same name, another key.
    world.client.trust = Authority::new("Test authority").trust();
    let (client, _) = world.faults();
    assert!(matches!(
        client.expect("refused").kind,
        FaultKind::CertificateIssuer | FaultKind::Certificate
    ));
    world.client.trust = Trust::AnybodyInsecure;
    assert!(world.pair().is_established());
}

#[test]
fn rule_6_a_server_s_certificate_is_for_servers() {
    let mut world = World::new();
    let mut params = crate::tls::support::params(&["a.example"], "a.example", NOW - DAY, NOW + DAY);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params
        .signed_by(&key, &world.authority.issuer)
        .expect("a certificate");
    world.server.certificates[0].chain.bytes = certificate.pem().into_bytes();
    world.server.certificates[0].key.bytes = key.serialize_pem().into_bytes();
    let refused = (FaultKind::Refused, &["UnsupportedCertificate (43)"][..]);
    check_faults(&world, (FaultKind::Certificate, &["extended key usage"]), refused);
}

#[test]
fn rule_7_client_certificates_are_asked_for_as_it_is_set() {
    for suites in [
        &["TLS_AES_128_GCM_SHA256"],
        &["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
    ] {
        let mut world = World::new();
        world.client.suites = suites.iter().map(|&suite| suite.to_owned()).collect();
        let mine = world.authority.issue(&["client.example"]);
        let shown = |world: &World| {
            let pair = world.pair();
            let facts = pair.server.session.facts().expect("established");
            facts.peer_certificates.len()
        };
        world.client.certificate = Some(mine);
        assert_eq!(shown(&world), 0, "not asked for");
        for asked in [
            ClientCertificates::Optional(world.authority.bundle()),
            ClientCertificates::Required(world.authority.bundle()),
        ] {
            world.server.client_certificates = asked;
            assert_eq!(shown(&world), 1);
        }
        world.client.certificate = None;
        let (_, server) = world.faults();
        assert_eq!(server.expect("refused").kind, FaultKind::CertificateMissing);
        world.server.client_certificates = ClientCertificates::Optional(world.authority.bundle());
        assert_eq!(shown(&world), 0);
    }
}

#[test]
fn rule_7_a_client_learns_that_its_certificate_is_missing() {
    // In TLS 1.3 it hears of it when it has finished already.
    let mut world = World::new();
    world.server.client_certificates = ClientCertificates::Required(world.authority.bundle());
    let pair = world.pair();
    assert_eq!(pair.client.events, [Event::Established, Event::Failed]);
    let fault = pair.client.session.fault().expect("refused").to_string();
    assert!(
        fault.contains("CertificateRequired (116): it asks for a client certificate"),
        "{fault}"
    );
}

#[test]
fn rule_7_client_certificates_are_of_their_authority_and_valid() {
    let mut world = World::new();
    world.server.client_certificates = ClientCertificates::Required(world.authority.bundle());
    world.client.certificate = Some(Authority::new("Other authority").issue(&["client.example"]));
    let (_, server) = world.faults();
    assert_eq!(server.expect("refused").kind, FaultKind::CertificateIssuer);
    let short = world
        .authority
        .issue_with(&["client"], &rcgen::PKCS_ED25519, NOW - DAY, NOW + DAY);
    world.client.certificate = Some(short);
    let (server, client) = world.build();
    world.clock.set(at(NOW + 2 * DAY));
    let mut pair = Pair::new(&server, &client, "a.example");
    pair.run();
    assert_eq!(
        pair.server.session.fault().expect("refused").kind,
        FaultKind::CertificateExpired
    );
}

#[test]
fn rule_12_a_handshake_is_bounded() {
    // A message that says that it is long, in records of any size.
    for size in [1, 100, 16_000] {
        let mut end = End::new(World::new().build_server().session());
        let mut content = vec![1, 0, 0xff, 0xf0];
        content.resize(70_000, 0);
        let mut sent = 0;
        for piece in content.chunks(size) {
            let record = [&[22, 3, 1][..], &(piece.len() as u16).to_be_bytes(), piece].concat();
            end.feed(&record);
            sent += record.len();
            assert!(
                end.input.len() <= limits::HANDSHAKE + limits::RECORD,
                "{} bytes kept",
                end.input.len()
            );
            if end.session.fault().is_some() {
                break;
            }
        }
        assert_eq!(
            end.session.fault().expect("refused").kind,
            FaultKind::HandshakeTooLong,
            "{size}"
        );
        assert!(sent <= limits::HANDSHAKE + limits::RECORD);
        assert_eq!(end.wire, [21, 3, 3, 0, 2, 2, 50]);
    }
}

#[test]
fn rule_12_empty_records_end_a_handshake() {
    let mut end = End::new(World::new().build_server().session());
    for _ in 0..100 {
        end.feed(&[22, 3, 1, 0, 0]);
    }
    assert!(end.session.fault().is_some());
    assert!(end.wire.len() < 20, "one alert");
}

#[test]
fn rule_14_a_connection_that_ends_within_the_handshake_is_told() {
    let world = World::new();
    let (server, client) = world.build();
    let mut pair = Pair::new(&server, &client, "a.example");
    assert_eq!(
        pair.server.session.ended().expect_err("cut").kind,
        FaultKind::Left
    );
    // An end that anybody may have said is none.
    pair.server.feed(&[21, 3, 3, 0, 2, 1, 0]);
    assert_eq!(pair.server.events, []);
    assert_eq!(
        pair.server.session.ended().expect_err("cut").kind,
        FaultKind::Left
    );
    pair.client.close();
    assert_eq!(
        pair.client.session.ended().expect_err("closed").kind,
        FaultKind::Left
    );
    assert!(pair.client.session.send(b"x", &mut Vec::new()).is_err());
}

#[test]
fn rule_16_parameters_are_those_that_were_offered() {
    // A server that chooses a suite which was not offered.
    let world = World::new();
    let mut end = End::new(world.build_client().session(&name("a.example")));
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 0x2f, 0, 0, 0]].concat();
    let hello = [
        &[22, 3, 3, 0, body.len() as u8 + 4, 2, 0, 0, body.len() as u8][..],
        &body,
    ]
    .concat();
    end.wire.clear();
    end.feed(&hello);
    let fault = end.session.fault().expect("refused");
    assert!(
        matches!(fault.kind, FaultKind::Illegal | FaultKind::Parameters),
        "{fault}"
    );
    assert!(!end.wire.is_empty(), "an alert");
    // A message out of order.
    let mut end = End::new(world.build_server().session());
    end.feed(&[22, 3, 3, 0, 4, 14, 0, 0, 0]);
    assert_eq!(end.session.fault().expect("refused").kind, FaultKind::Unexpected);
    assert_eq!(end.wire, [21, 3, 3, 0, 2, 2, 10]);
}

#[test]
fn rule_16_nothing_is_sent_before_the_handshake_is_over() {
    let world = World::new();
    let mut session: Session = world.build_server().session();
    let mut wire = Vec::new();
    assert!(session.send(b"early", &mut wire).is_err());
    assert!(wire.is_empty());
}
