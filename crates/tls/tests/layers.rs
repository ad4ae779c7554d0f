//! Acceptors and connectors: sessions on several workers and across reloads, reload summaries, handshake counts and the files.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_engine::{Layer, LayerEvent};
use ringmain_tls::{
    AcceptHandle, Acceptor, ClientSettings, ConnectHandle, Connector, DevCertificate, HandshakeCounts,
    KeyPair, PeerName, Pem, ServerSettings, Severity, Tls, Trust, key_log_file, limits, pem_file,
};

const NOW: u64 = 1_795_000_000;
const DAY: u64 = 86_400;

fn unix_time(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn dev_certificate(names: &[&str]) -> DevCertificate {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    DevCertificate::new(&names, unix_time(NOW)).expect("valid names")
}

fn server_settings(pairs: &[&KeyPair]) -> ServerSettings {
    ServerSettings {
        certificates: pairs.iter().map(|&pair| pair.clone()).collect(),
        ..Default::default()
    }
}

fn connector_for(certificate: &DevCertificate) -> Connector {
    let settings = ClientSettings::new(Trust::Authorities(certificate.authority.clone()));
    Connector::new(&settings, unix_time(NOW)).expect("valid settings")
}

/// One side of a connection, with the buffers that the engine would own.
struct TestPeer {
    tls: Tls,
    input: Vec<u8>,
    plain: Vec<u8>,
    events: Vec<LayerEvent>,
    wire: Vec<u8>,
}

impl TestPeer {
    fn new(mut tls: Tls) -> Self {
        let mut wire = Vec::new();
        tls.begin(&mut wire);
        Self {
            tls,
            input: Vec::new(),
            plain: Vec::new(),
            events: Vec::new(),
            wire,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let step = self.tls.receive(&mut self.input, &mut self.wire);
            if let LayerEvent::Plain(range) = step.event.clone() {
                self.plain.extend_from_slice(&self.input[range]);
            }
            self.input.drain(..step.consumed);
            match step.event {
                LayerEvent::NeedMore => break,
                LayerEvent::Nothing | LayerEvent::Plain(_) => {}
                LayerEvent::Failed | LayerEvent::Refused => {
                    self.events.push(LayerEvent::Failed);
                    break;
                }
                event => self.events.push(event),
            }
        }
    }

    fn send(&mut self, plain: &[u8]) {
        self.tls.send(plain, &mut self.wire).expect("the session is open");
    }
}

fn run(client: &mut TestPeer, server: &mut TestPeer) {
    while !(client.wire.is_empty() && server.wire.is_empty()) {
        server.feed(&std::mem::take(&mut client.wire));
        client.feed(&std::mem::take(&mut server.wire));
    }
}

fn handshake(client: &ConnectHandle, server: &mut AcceptHandle) -> [TestPeer; 2] {
    let localhost = PeerName::new("localhost").expect("a name");
    let mut client = TestPeer::new(client.connect(&localhost, unix_time(NOW)));
    let mut server = TestPeer::new(server.accept(unix_time(NOW)));
    assert!(client.tls.is_costly() && server.tls.is_costly());
    run(&mut client, &mut server);
    [client, server]
}

fn resumed(end: &TestPeer) -> bool {
    end.tls.facts().expect("established").resumed
}

#[test]
fn data_passes_both_ways_until_close_notify() {
    let certificate = dev_certificate(&[]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let [mut client, mut server] = handshake(&connector_for(&certificate).handle(), &mut acceptor.handle());
    assert!(!client.tls.is_costly() && !server.tls.is_costly());
    client.send(b"request");
    server.send(b"answer");
    run(&mut client, &mut server);
    client.tls.end(&mut client.wire);
    run(&mut client, &mut server);
    assert_eq!(
        (&server.plain[..], &client.plain[..]),
        (&b"request"[..], &b"answer"[..])
    );
    assert_eq!(server.events, [LayerEvent::Established, LayerEvent::End]);
    assert_eq!(client.events, [LayerEvent::Established]);
    assert!(
        client.tls.send(b"more", &mut Vec::new()).is_err(),
        "the session is closed"
    );
    assert_eq!(server.tls.session().ended(), Ok(()));
}

#[test]
fn sessions_resume_on_any_worker_and_after_a_reload() {
    let certificate = dev_certificate(&[]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let connector = connector_for(&certificate);
    let (mut one, mut other) = (acceptor.handle(), acceptor.handle());
    assert!(!resumed(&handshake(&connector.handle(), &mut one)[1]));
    assert!(resumed(&handshake(&connector.handle(), &mut other)[1]));
    let replacement = dev_certificate(&["replacement.example"]);
    acceptor
        .reload(
            &server_settings(&[&certificate.pair, &replacement.pair]),
            unix_time(NOW),
        )
        .expect_err("two certificates for localhost");
    acceptor
        .reload(&server_settings(&[&replacement.pair]), unix_time(NOW))
        .expect("valid settings");
    assert!(resumed(&handshake(&connector.handle(), &mut one)[1]));
    assert!(resumed(
        &handshake(&connector.handle(), &mut acceptor.handle())[1]
    ));
    let counts = HandshakeCounts {
        started: 4,
        finished: 4,
        resumed: 3,
        failed: 0,
    };
    assert_eq!((acceptor.counts(), connector.counts()), (counts, counts));
}

#[test]
fn a_reload_applies_to_new_sessions_only() {
    let (certificate, replacement) = (dev_certificate(&[]), dev_certificate(&["b.example"]));
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let (mut one, mut other) = (acceptor.handle(), acceptor.handle());
    let [mut client, mut server] = handshake(&connector_for(&certificate).handle(), &mut one);
    // A handshake in progress: the client has sent its hello.
    let localhost = PeerName::new("localhost").expect("a name");
    let mut early_client = TestPeer::new(
        connector_for(&certificate)
            .handle()
            .connect(&localhost, unix_time(NOW)),
    );
    let mut early_server = TestPeer::new(one.accept(unix_time(NOW)));
    let reload = acceptor
        .reload(&server_settings(&[&replacement.pair]), unix_time(NOW))
        .expect("valid settings");
    let names =
        |of: &[ringmain_tls::Certificate]| of.iter().map(|one| one.names.join(" ")).collect::<Vec<_>>();
    assert_eq!(names(&reload.added), ["localhost 127.0.0.1 ::1 b.example"]);
    assert_eq!(names(&reload.removed), ["localhost 127.0.0.1 ::1"]);
    assert_eq!((reload.unchanged, reload.warnings.len()), (0, 0));
    let text = reload.to_string();
    assert!(
        text.starts_with("+ localhost, 127.0.0.1, ::1, b.example (development certificate): 89 days left"),
        "{text}"
    );
    run(&mut early_client, &mut early_server);
    assert!(
        early_client.tls.facts().is_some(),
        "{:?}",
        early_client.tls.fault()
    );
    client.send(b"still here");
    run(&mut client, &mut server);
    assert_eq!(server.plain, b"still here");
    for handle in [&mut one, &mut other] {
        assert!(
            handshake(&connector_for(&replacement).handle(), handle)[0]
                .tls
                .facts()
                .is_some()
        );
        let [client, _] = handshake(&connector_for(&certificate).handle(), handle);
        assert!(client.tls.fault().is_some(), "the old certificate is gone");
    }
    assert_eq!(
        acceptor.counts(),
        HandshakeCounts {
            started: 6,
            finished: 4,
            resumed: 0,
            failed: 2
        }
    );
    assert_eq!(
        acceptor
            .reload(&server_settings(&[&replacement.pair]), unix_time(NOW))
            .expect("the same")
            .unchanged,
        1
    );
}

#[test]
fn prepared_settings_are_not_served_until_applied() {
    let (certificate, replacement) = (dev_certificate(&[]), dev_certificate(&["b.example"]));
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let mut handle = acceptor.handle();
    let prepared = acceptor
        .prepare(&server_settings(&[&replacement.pair]), unix_time(NOW))
        .expect("valid settings");
    assert!(
        handshake(&connector_for(&certificate).handle(), &mut handle)[0]
            .tls
            .facts()
            .is_some()
    );
    assert_eq!(acceptor.apply(prepared).added.len(), 1);
    assert!(
        handshake(&connector_for(&replacement).handle(), &mut handle)[0]
            .tls
            .facts()
            .is_some()
    );
}

/// A resumed session presents no certificate: it must not be accepted where one is now requested.
#[test]
fn changed_client_certificate_settings_prevent_resumption() {
    let certificate = dev_certificate(&[]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let connector = connector_for(&certificate);
    let mut handle = acceptor.handle();
    assert!(!resumed(&handshake(&connector.handle(), &mut handle)[1]));
    assert!(resumed(&handshake(&connector.handle(), &mut handle)[1]));
    let asking = ServerSettings {
        client_certificates: ringmain_tls::ClientCertificates::Optional(certificate.authority.clone()),
        ..server_settings(&[&certificate.pair])
    };
    acceptor.reload(&asking, unix_time(NOW)).expect("valid settings");
    assert!(!resumed(&handshake(&connector.handle(), &mut handle)[1]));
    assert!(resumed(&handshake(&connector.handle(), &mut handle)[1]));
}

/// A connection is checked against the current settings once for each reload that changes the requirements.
#[test]
fn a_reload_rechecks_connections_only_if_requirements_change() {
    use ringmain_tls::ClientCertificates::{Off, Optional, Required};
    let certificate = dev_certificate(&[]);
    let replacement = dev_certificate(&["b.example"]);
    let other = dev_certificate(&[]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let [_, mut server] = handshake(&connector_for(&certificate).handle(), &mut acceptor.handle());
    let mut early = TestPeer::new(acceptor.handle().accept(unix_time(NOW)));
    let reload = |settings: &ServerSettings| {
        acceptor.reload(settings, unix_time(NOW)).expect("valid settings");
    };
    assert_eq!(server.tls.admitted(), Some(true));
    reload(&server_settings(&[&replacement.pair]));
    assert_eq!(
        server.tls.admitted(),
        Some(true),
        "a server certificate is not a requirement"
    );
    for (asked, minimum_version, expected) in [
        (
            Required(certificate.authority.clone()),
            ringmain_tls::Version::Tls12,
            false,
        ),
        (
            Optional(other.authority.clone()),
            ringmain_tls::Version::Tls12,
            true,
        ),
        (
            Required(other.authority.clone()),
            ringmain_tls::Version::Tls13,
            false,
        ),
        (Off, ringmain_tls::Version::Tls13, true),
    ] {
        let settings = ServerSettings {
            client_certificates: asked,
            minimum_version,
            ..server_settings(&[&replacement.pair])
        };
        reload(&settings);
        assert_eq!(server.tls.admitted(), None, "it must be checked again");
        assert_eq!(server.tls.recheck_admission(unix_time(NOW)), expected);
        assert_eq!(server.tls.admitted(), Some(expected), "the outcome is cached");
        reload(&settings);
        assert_eq!(
            server.tls.admitted(),
            Some(expected),
            "the requirements are unchanged"
        );
    }
    // A connection whose handshake is not complete is not admitted under other requirements.
    assert!(!early.tls.recheck_admission(unix_time(NOW)));
    let mut client = connector_for(&certificate)
        .handle()
        .connect(&PeerName::new("localhost").expect("a name"), unix_time(NOW));
    assert_eq!(
        (client.admitted(), client.recheck_admission(unix_time(NOW))),
        (Some(true), true),
        "it is not an accepted connection"
    );
}

#[test]
fn a_rejected_reload_keeps_the_previous_settings() {
    let certificate = dev_certificate(&[]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let mut handle = acceptor.handle();
    let mut wrong = certificate.pair.clone();
    wrong.key = dev_certificate(&[]).pair.key;
    let refused = acceptor
        .reload(&server_settings(&[&wrong]), unix_time(NOW))
        .expect_err("the key does not match");
    let text = refused.to_string();
    assert!(
        text.starts_with("invalid TLS settings:\n  development certificate: expected the key"),
        "{text}"
    );
    assert!(
        acceptor
            .reload(&ServerSettings::default(), unix_time(NOW))
            .is_err()
    );
    assert_eq!(acceptor.certificates().len(), 1);
    assert!(
        handshake(&connector_for(&certificate).handle(), &mut handle)[0]
            .tls
            .facts()
            .is_some()
    );
}

#[test]
fn an_expired_certificate_is_rejected_unless_already_served() {
    let certificate = dev_certificate(&[]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    let late = unix_time(NOW + 100 * DAY);
    let old = DevCertificate::new(&["old.example".to_owned()], unix_time(NOW)).expect("valid names");
    assert!(
        acceptor.reload(&server_settings(&[&old.pair]), late).is_err(),
        "it is not served"
    );
    assert!(Acceptor::new(&server_settings(&[&old.pair]), late).is_err());
    let reload = acceptor
        .reload(&server_settings(&[&certificate.pair]), late)
        .expect("it is already served");
    assert_eq!(
        reload.warnings.iter().map(|one| one.severity).collect::<Vec<_>>(),
        [Severity::Warning]
    );
    assert!(
        reload
            .to_string()
            .contains("1 unchanged\nwarning: development certificate: expected"),
        "{reload}"
    );
    assert_eq!(acceptor.certificates()[0].days_left(late.as_secs()), -11);
    assert_eq!(acceptor.warnings().len(), 1);
}

#[test]
fn a_development_certificate_covers_localhost_and_requested_names() {
    let certificate = dev_certificate(&["dev.example", "localhost", "10.1.2.3"]);
    let acceptor =
        Acceptor::new(&server_settings(&[&certificate.pair]), unix_time(NOW)).expect("valid settings");
    assert_eq!(acceptor.warnings(), []);
    let served = acceptor.certificates().remove(0);
    assert_eq!(served.days_left(NOW), i64::from(limits::DEV_CERTIFICATE_DAYS) - 1);
    let mut handle = acceptor.handle();
    for (name, right) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("dev.example", true),
        ("10.1.2.3", true),
        ("a.example", false),
    ] {
        let client = connector_for(&certificate).handle();
        let peer = PeerName::new(name).expect("a name");
        let mut client = TestPeer::new(client.connect(&peer, unix_time(NOW)));
        let mut server = TestPeer::new(handle.accept(unix_time(NOW)));
        run(&mut client, &mut server);
        assert_eq!(
            client.tls.facts().is_some(),
            right,
            "{name}: {:?}",
            client.tls.fault()
        );
    }
    assert!(
        DevCertificate::new(&["not a näme".to_owned()], unix_time(NOW))
            .expect_err("an invalid name")
            .to_string()
            .contains("not a näme")
    );
    assert_ne!(
        dev_certificate(&[]).authority,
        dev_certificate(&[]).authority,
        "each has its own authority"
    );
}

/// Returns a directory of this test.
fn test_directory(name: &str) -> PathBuf {
    let test_directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&test_directory).expect("a test_directory");
    test_directory
}

#[test]
fn file_errors_name_the_file() {
    let test_directory = test_directory("pem");
    let missing = pem_file(&test_directory.join("missing.pem")).expect_err("missing");
    assert!(missing.source.ends_with("pem/missing.pem"), "{missing}");
    assert!(missing.text.contains("No such file"), "{missing}");
    let path = test_directory.join("large.pem");
    std::fs::write(&path, vec![b'x'; limits::PEM_FILE_BYTES as usize + 1]).expect("written");
    assert!(
        pem_file(&path)
            .expect_err("large")
            .text
            .contains("more than 4194304 bytes")
    );
    std::fs::write(&path, "text").expect("written");
    let read = pem_file(&path).expect("readable");
    assert_eq!(
        read,
        Pem {
            source: path.display().to_string(),
            bytes: b"text".to_vec()
        }
    );
}

#[test]
fn the_key_log_is_readable_by_its_owner_only() {
    let path = test_directory("keylog").join("keys.log");
    let _ = std::fs::remove_file(&path);
    let certificate = dev_certificate(&[]);
    let mut settings = server_settings(&[&certificate.pair]);
    settings.key_log = Some(key_log_file(&path).expect("a file"));
    let acceptor = Acceptor::new(&settings, unix_time(NOW)).expect("valid settings");
    assert!(
        handshake(&connector_for(&certificate).handle(), &mut acceptor.handle())[0]
            .tls
            .facts()
            .is_some()
    );
    let log = std::fs::read_to_string(&path).expect("written");
    assert_eq!(log.lines().count(), 5, "{log}");
    assert!(log.lines().all(|line| line.split(' ').count() == 3), "{log}");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(key_log_file(&test_directory("keylog").join("no/keys.log")).is_err());
}
