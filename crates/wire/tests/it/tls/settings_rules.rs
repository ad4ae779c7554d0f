//! Rules of settings: all that is wrong is said at once, each with where, and nothing wrong is served.

use std::sync::{Arc, Mutex};

use ringmain_wire::tls::{
    ClientCertificates, ClientSettings, Finding, KeyLog, KeyPair, PeerName, ServerSettings, Severity, Trust,
    Version,
};

use crate::tls::support::{Authority, DAY, NOW, World, at, authority_params, pem};

/// What is found in the settings, as it is told.
fn findings(world: &World) -> Vec<String> {
    let found = match world.server.build(&world.tickets, &[]) {
        Ok(server) => server.warnings().to_vec(),
        Err(findings) => findings,
    };
    found
        .iter()
        .map(|finding| format!("{:?} {finding}", finding.severity))
        .collect()
}

/// One thing is found, which holds `texts`.
#[track_caller]
fn check(world: &World, texts: &[&str]) {
    let found = findings(world);
    assert_eq!(found.len(), 1, "{found:#?}");
    for text in texts {
        assert!(found[0].contains(text), "\"{text}\" in: {}", found[0]);
    }
}

fn with(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::new();
    change(&mut world);
    world
}

#[test]
fn rule_17_a_key_is_its_certificate_s() {
    let world = with(|world| {
        world.server.certificates[0].key = world.authority.issue(&["b.example"]).key;
    });
    check(
        &world,
        &[
            "Error b.example.key",
            "expected the key of the certificate for a.example (in a.example.pem)",
        ],
    );
}

#[test]
fn rule_17_a_certificate_is_first_in_its_chain() {
    let ca_first = with(|world| {
        let chain = &mut world.server.certificates[0].chain.bytes;
        *chain = [world.authority.pem.as_bytes(), chain].concat();
    });
    let found = findings(&ca_first);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].contains("issued by the next") && found[0].contains("Is the order wrong"),
        "{found:#?}"
    );
    assert!(
        found[1].contains("expected the certificate of the key in a.example.key first"),
        "{found:#?}"
    );
    let other_behind = with(|world| {
        let other = Authority::new("Other authority");
        world.server.certificates[0]
            .chain
            .bytes
            .extend_from_slice(other.pem.as_bytes());
    });
    check(
        &other_behind,
        &[
            "a.example.pem",
            "certificate 1 (CN=a.example) issued by CN=Test authority",
            "certificate 2 is CN=Other authority",
        ],
    );
    let whole = with(|world| {
        world.server.certificates[0]
            .chain
            .bytes
            .extend_from_slice(world.authority.pem.as_bytes());
    });
    assert_eq!(findings(&whole), [""; 0]);
}

#[test]
fn rule_17_a_certificate_is_valid_when_it_is_first_served() {
    let issue = |world: &World, from, to| {
        world
            .authority
            .issue_with(&["a.example"], &rcgen::PKCS_ECDSA_P256_SHA256, from, to)
    };
    let expired = with(|world| world.server.certificates = vec![issue(world, NOW - 9 * DAY, NOW - 2 * DAY)]);
    check(
        &expired,
        &[
            "Error a.example.pem",
            "found one for a.example that expired on",
            "Renew it",
        ],
    );
    let early = with(|world| world.server.certificates = vec![issue(world, NOW + DAY, NOW + 2 * DAY)]);
    check(&early, &["Error a.example.pem", "valid from", "clock"]);
}

#[test]
fn rule_17_a_certificate_that_expired_while_served_stays() {
    let world = World::new();
    let serving = world.build_server().certificates()[0].fingerprint;
    world.clock.set(at(NOW + 40 * DAY));
    let server = world.server.build(&world.tickets, &[serving]).expect("it stays");
    assert_eq!(server.warnings().len(), 1);
    assert_eq!(server.warnings()[0].severity, Severity::Warning);
    assert!(server.warnings()[0].text.contains("expired on"));
    assert_eq!(server.certificates()[0].days_left(NOW + 40 * DAY), -10);
    assert!(
        world.server.build(&world.tickets, &[[0; 32]]).is_err(),
        "another one does not come in"
    );
}

#[test]
fn rule_17_a_name_has_one_certificate_of_an_algorithm() {
    let twice = with(|world| {
        world
            .server
            .certificates
            .push(world.authority.issue(&["c.example", "A.example"]))
    });
    check(
        &twice,
        &["Error c.example.pem", "found \"a.example\" in a.example.pem too"],
    );
    let same = with(|world| {
        let pair = world.server.certificates[0].clone();
        world.server.certificates.push(pair);
    });
    check(&same, &["expected each certificate once"]);
}

#[test]
fn rule_17_files_hold_what_they_are_for() {
    let chain = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        with(move |world| world.server.certificates[0].chain = pem("chain.pem", bytes))
    };
    let key = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        with(move |world| world.server.certificates[0].key = pem("key.pem", bytes))
    };
    let own = World::new();
    let pair = &own.server.certificates[0];
    check(
        &chain(b""),
        &["Error chain.pem: expected certificates in PEM", "it is empty"],
    );
    check(&chain(b"hello"), &["chain.pem", "found no PEM"]);
    check(&chain(&pair.key.bytes), &["chain.pem", "found a private key"]);
    check(&chain(&[0x30, 0x82, 1, 2]), &["chain.pem", "DER"]);
    check(
        &chain(b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"),
        &["chain.pem", "a broken one"],
    );
    check(
        &chain(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        &["chain.pem", "cannot be read"],
    );
    let request = b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    check(&chain(request), &["a certificate request"]);
    check(
        &key(&pair.chain.bytes),
        &[
            "Error key.pem: expected a private key in PEM",
            "found a certificate",
        ],
    );
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    check(&key(encrypted), &["without a passphrase", "openssl pkey"]);
    let undecodable = b"-----BEGIN PRIVATE KEY-----\n!!!\n-----END PRIVATE KEY-----\n";
    check(&key(undecodable), &["key.pem", "found a broken one"]);
    let old = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    check(&key(old), &["without a passphrase"]);
    let broken = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    check(&key(broken), &["key.pem", "expected a key of RSA"]);
    assert!(!format!("{:?}", pair.key).contains("BEGIN"), "keys are not shown");
}

#[test]
fn rule_17_all_that_is_wrong_is_said_at_once() {
    let world = with(|world| {
        world.server.certificates[0].key = world.authority.issue(&["b.example"]).key;
        let empty = pem("empty.pem", "");
        world.server.certificates.push(KeyPair {
            chain: empty.clone(),
            key: empty,
        });
        world.server.suites = vec!["TLS_AES_128_GCM_SHA256".to_owned(), "RC4-MD5".to_owned()];
        world.server.alpn = vec![Vec::new()];
        world.server.tickets = 9;
        world.server.client_certificates = ClientCertificates::Required(pem("ca.pem", "nothing"));
    });
    let found = findings(&world);
    let sources = [
        "suites",
        "alpn",
        "tickets",
        "b.example.key",
        "empty.pem",
        "empty.pem",
        "ca.pem",
    ];
    assert_eq!(found.len(), sources.len(), "{found:#?}");
    for (finding, source) in found.iter().zip(sources) {
        assert!(
            finding.starts_with(&format!("Error {source}: expected ")),
            "{finding}"
        );
    }
    let none = ServerSettings::default()
        .build(&world.tickets, &[])
        .expect_err("no certificate");
    assert_eq!(
        none[0].to_string(),
        "certificates: expected at least one certificate with its key; found none"
    );
}

#[test]
fn rule_17_suites_are_of_a_version_that_is_spoken() {
    let world = with(|world| {
        world.server.minimum_version = Version::Tls13;
        world.server.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    });
    check(
        &world,
        &["Error suites: expected a suite of TLSv1.3 or above; found none"],
    );
}

#[test]
fn rule_17_a_certificate_without_names_is_told() {
    let world = with(|world| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = authority_params("no names");
        params.is_ca = rcgen::IsCa::NoCa;
        let certificate = params
            .signed_by(&key, &world.authority.issuer)
            .expect("a certificate");
        let [chain, key] = [certificate.pem(), key.serialize_pem()];
        world.server.certificates = vec![KeyPair {
            chain: pem("bare.pem", chain),
            key: pem("bare.key", key),
        }];
    });
    check(
        &world,
        &["Warning bare.pem: expected names (subjectAltName); found none in CN=no names"],
    );
}

#[test]
fn rule_17_certificates_say_what_they_are() {
    let world = World::new();
    let server = world.build_server();
    let [one] = server.certificates() else {
        panic!("one");
    };
    assert_eq!(
        (&one.source[..], &one.names[..]),
        ("a.example.pem", &["a.example".to_owned()][..])
    );
    assert_eq!(
        (&one.subject[..], &one.issuer[..]),
        ("CN=a.example", "CN=Test authority")
    );
    assert_eq!(
        (one.not_before, one.not_after, one.days_left(NOW)),
        (NOW - DAY, NOW + 30 * DAY, 30)
    );
    assert_eq!(one.fingerprint_text().len(), 95);
}

#[test]
fn rule_17_a_client_s_settings_are_checked_too() {
    let world = World::new();
    let build = |settings: &ClientSettings| -> Vec<Finding> {
        settings
            .build(&world.clock)
            .map_or_else(|findings| findings, |client| client.warnings().to_vec())
    };
    assert_eq!(build(&ClientSettings::new(Trust::AnybodyInsecure)), []);
    let mut settings = ClientSettings::new(Trust::Authorities(pem("ca.pem", "nothing")));
    settings.certificate = Some(KeyPair {
        chain: pem("mine.pem", ""),
        key: pem("mine.key", ""),
    });
    settings.suites = vec!["?".to_owned()];
    settings.alpn = vec![vec![b'x'; 256]];
    let sources: Vec<String> = build(&settings)
        .into_iter()
        .map(|finding| finding.source)
        .collect();
    assert_eq!(sources, ["suites", "alpn", "mine.pem", "mine.key", "ca.pem"]);
    let found = build(&ClientSettings::new(Trust::Roots(vec![vec![1, 2, 3]])));
    assert!(found[0].text.contains("ca-certificates"), "{found:?}");
    assert_eq!(
        PeerName::new("not a name").expect_err("spaces").to_string(),
        "expected a host name or an address; found \"not a name\""
    );
}

#[test]
fn rule_18_secrets_are_logged_only_when_asked_for_in_the_form_others_read() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let mut world = World::new();
    world.server.key_log = Some(KeyLog::new(move |line| {
        kept.lock().expect("one thread").push(line.to_owned())
    }));
    assert!(world.pair().is_established());
    let lines = std::mem::take(&mut *lines.lock().expect("one thread"));
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        let words: Vec<&str> = line.trim_end_matches('\n').split(' ').collect();
        let [label, random, secret] = words[..] else {
            panic!("three words: {line}");
        };
        assert!(
            label
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || b"_0".contains(&byte)),
            "{label}"
        );
        assert!(random.len() == 64 && secret.len() >= 64, "{line}");
        assert!(
            [random, secret]
                .concat()
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        );
    }
}
