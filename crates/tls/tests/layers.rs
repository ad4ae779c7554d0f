//! Acceptors and connectors: sessions over workers and reloads, what changes, what is counted, and the files they read.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_engine::{Layer, LayerEvent};
use ringmain_tls::{
    AcceptHandle, Acceptor, ClientSettings, ConnectHandle, Connector, Counts, Development, KeyPair, PeerName,
    Pem, ServerSettings, Severity, Tls, Trust, key_log_file, limits, pem_file,
};

const NOW: u64 = 1_795_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn development(names: &[&str]) -> Development {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    Development::new(&names, at(NOW)).expect("names")
}

fn serving(pairs: &[&KeyPair]) -> ServerSettings {
    ServerSettings {
        certificates: pairs.iter().map(|&pair| pair.clone()).collect(),
        ..Default::default()
    }
}

fn trusting(made: &Development) -> Connector {
    let settings = ClientSettings::new(Trust::Authorities(made.authority.clone()));
    Connector::new(&settings, at(NOW)).expect("settings in order")
}

/// One end, as the engine holds it.
struct End {
    tls: Tls,
    input: Vec<u8>,
    plain: Vec<u8>,
    events: Vec<LayerEvent>,
    wire: Vec<u8>,
}

impl End {
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
        self.tls.send(plain, &mut self.wire).expect("it can be sent");
    }
}

fn run(client: &mut End, server: &mut End) {
    while !(client.wire.is_empty() && server.wire.is_empty()) {
        server.feed(&std::mem::take(&mut client.wire));
        client.feed(&std::mem::take(&mut server.wire));
    }
}

fn pair(client: &ConnectHandle, server: &mut AcceptHandle) -> [End; 2] {
    let localhost = PeerName::new("localhost").expect("a name");
    let mut client = End::new(client.connect(&localhost, at(NOW)));
    let mut server = End::new(server.accept(at(NOW)));
    assert!(client.tls.is_costly() && server.tls.is_costly());
    run(&mut client, &mut server);
    [client, server]
}

fn resumed(end: &End) -> bool {
    end.tls.facts().expect("established").resumed
}

#[test]
fn a_session_is_a_layer() {
    let made = development(&[]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let [mut client, mut server] = pair(&trusting(&made).handle(), &mut acceptor.handle());
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
    assert!(client.tls.send(b"more", &mut Vec::new()).is_err(), "it has ended");
    assert_eq!(server.tls.session().ended(), Ok(()));
}

#[test]
fn sessions_are_resumed_on_any_worker_and_after_a_reload() {
    let made = development(&[]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let connector = trusting(&made);
    let (mut one, mut other) = (acceptor.handle(), acceptor.handle());
    assert!(!resumed(&pair(&connector.handle(), &mut one)[1]));
    assert!(resumed(&pair(&connector.handle(), &mut other)[1]));
    let again = development(&["again.example"]);
    acceptor
        .reload(&serving(&[&made.pair, &again.pair]), at(NOW))
        .expect_err("localhost twice");
    acceptor
        .reload(&serving(&[&again.pair]), at(NOW))
        .expect("settings in order");
    assert!(resumed(&pair(&connector.handle(), &mut one)[1]));
    assert!(resumed(&pair(&connector.handle(), &mut acceptor.handle())[1]));
    let counts = Counts {
        begun: 4,
        finished: 4,
        resumed: 3,
        failed: 0,
    };
    assert_eq!((acceptor.counts(), connector.counts()), (counts, counts));
}

#[test]
fn a_reload_is_for_new_sessions_and_leaves_the_others_alone() {
    let (made, again) = (development(&[]), development(&["b.example"]));
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let (mut one, mut other) = (acceptor.handle(), acceptor.handle());
    let [mut client, mut server] = pair(&trusting(&made).handle(), &mut one);
    // Under way: it has said hello.
    let localhost = PeerName::new("localhost").expect("a name");
    let mut early_client = End::new(trusting(&made).handle().connect(&localhost, at(NOW)));
    let mut early_server = End::new(one.accept(at(NOW)));
    let reload = acceptor
        .reload(&serving(&[&again.pair]), at(NOW))
        .expect("settings in order");
    let names =
        |of: &[ringmain_tls::Certificate]| of.iter().map(|one| one.names.join(" ")).collect::<Vec<_>>();
    assert_eq!(names(&reload.added), ["localhost 127.0.0.1 ::1 b.example"]);
    assert_eq!(names(&reload.removed), ["localhost 127.0.0.1 ::1"]);
    assert_eq!((reload.kept, reload.warnings.len()), (0, 0));
    let told = reload.to_string();
    assert!(
        told.starts_with("+ localhost, 127.0.0.1, ::1, b.example (development certificate): 89 days left"),
        "{told}"
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
        assert!(pair(&trusting(&again).handle(), handle)[0].tls.facts().is_some());
        let [client, _] = pair(&trusting(&made).handle(), handle);
        assert!(client.tls.fault().is_some(), "the old certificate is gone");
    }
    assert_eq!(
        acceptor.counts(),
        Counts {
            begun: 6,
            finished: 4,
            resumed: 0,
            failed: 2
        }
    );
    assert_eq!(
        acceptor
            .reload(&serving(&[&again.pair]), at(NOW))
            .expect("the same")
            .kept,
        1
    );
}

#[test]
fn what_is_prepared_is_not_served_before_it_is_applied() {
    let (made, again) = (development(&[]), development(&["b.example"]));
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let mut handle = acceptor.handle();
    let prepared = acceptor
        .prepare(&serving(&[&again.pair]), at(NOW))
        .expect("settings in order");
    assert!(
        pair(&trusting(&made).handle(), &mut handle)[0]
            .tls
            .facts()
            .is_some()
    );
    assert_eq!(acceptor.apply(prepared).added.len(), 1);
    assert!(
        pair(&trusting(&again).handle(), &mut handle)[0]
            .tls
            .facts()
            .is_some()
    );
}

/// A ticket resumes a session in which no certificate was shown: it must not pass where one is demanded now.
#[test]
fn sessions_are_not_resumed_when_other_certificates_of_clients_are_asked_for() {
    let made = development(&[]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let connector = trusting(&made);
    let mut handle = acceptor.handle();
    assert!(!resumed(&pair(&connector.handle(), &mut handle)[1]));
    assert!(resumed(&pair(&connector.handle(), &mut handle)[1]));
    let asking = ServerSettings {
        client_certificates: ringmain_tls::ClientCertificates::Optional(made.authority.clone()),
        ..serving(&[&made.pair])
    };
    acceptor.reload(&asking, at(NOW)).expect("settings in order");
    assert!(!resumed(&pair(&connector.handle(), &mut handle)[1]));
    assert!(resumed(&pair(&connector.handle(), &mut handle)[1]));
}

/// A connection is judged by the settings of now, once for each reload that demands something else.
#[test]
fn connections_are_admitted_by_what_a_reload_demands() {
    use ringmain_tls::ClientCertificates::{Off, Optional, Required};
    let made = development(&[]);
    let again = development(&["b.example"]);
    let other = development(&[]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let [_, mut server] = pair(&trusting(&made).handle(), &mut acceptor.handle());
    let mut early = End::new(acceptor.handle().accept(at(NOW)));
    let reload = |settings: &ServerSettings| {
        acceptor.reload(settings, at(NOW)).expect("settings in order");
    };
    assert_eq!(server.tls.admitted(), Some(true));
    reload(&serving(&[&again.pair]));
    assert_eq!(
        server.tls.admitted(),
        Some(true),
        "another certificate of ours is no demand"
    );
    for (asked, minimum_version, expected) in [
        (
            Required(made.authority.clone()),
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
            ..serving(&[&again.pair])
        };
        reload(&settings);
        assert_eq!(server.tls.admitted(), None, "it is to be judged");
        assert_eq!(server.tls.judge(at(NOW)), expected);
        assert_eq!(server.tls.admitted(), Some(expected), "once");
        reload(&settings);
        assert_eq!(server.tls.admitted(), Some(expected), "nothing has changed");
    }
    // One whose handshake is not over is not admitted by other demands.
    assert!(!early.tls.judge(at(NOW)));
    let mut client = trusting(&made)
        .handle()
        .connect(&PeerName::new("localhost").expect("a name"), at(NOW));
    assert_eq!(
        (client.admitted(), client.judge(at(NOW))),
        (Some(true), true),
        "it was not accepted"
    );
}

#[test]
fn a_wrong_reload_changes_nothing() {
    let made = development(&[]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let mut handle = acceptor.handle();
    let mut wrong = made.pair.clone();
    wrong.key = development(&[]).pair.key;
    let refused = acceptor
        .reload(&serving(&[&wrong]), at(NOW))
        .expect_err("the key is another's");
    let told = refused.to_string();
    assert!(
        told.starts_with("TLS cannot be set up:\n  development certificate: expected the key"),
        "{told}"
    );
    assert!(acceptor.reload(&ServerSettings::default(), at(NOW)).is_err());
    assert_eq!(acceptor.certificates().len(), 1);
    assert!(
        pair(&trusting(&made).handle(), &mut handle)[0]
            .tls
            .facts()
            .is_some()
    );
}

#[test]
fn an_expired_certificate_does_not_replace_a_working_one_but_may_stay() {
    let made = development(&[]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    let late = at(NOW + 100 * DAY);
    let old = Development::new(&["old.example".to_owned()], at(NOW)).expect("names");
    assert!(
        acceptor.reload(&serving(&[&old.pair]), late).is_err(),
        "it is served by nobody"
    );
    assert!(Acceptor::new(&serving(&[&old.pair]), late).is_err());
    let reload = acceptor
        .reload(&serving(&[&made.pair]), late)
        .expect("nothing got worse");
    assert_eq!(
        reload.warnings.iter().map(|one| one.severity).collect::<Vec<_>>(),
        [Severity::Warning]
    );
    assert!(
        reload
            .to_string()
            .contains("1 as before\nwarning: development certificate: expected"),
        "{reload}"
    );
    assert_eq!(acceptor.certificates()[0].days_left(late.as_secs()), -11);
    assert_eq!(acceptor.warnings().len(), 1);
}

#[test]
fn a_development_certificate_is_for_this_machine_and_the_names_asked_for() {
    let made = development(&["dev.example", "localhost", "10.1.2.3"]);
    let acceptor = Acceptor::new(&serving(&[&made.pair]), at(NOW)).expect("settings in order");
    assert_eq!(acceptor.warnings(), []);
    let certificate = acceptor.certificates().remove(0);
    assert_eq!(
        certificate.days_left(NOW),
        i64::from(limits::DEVELOPMENT_DAYS) - 1
    );
    let mut handle = acceptor.handle();
    for (name, right) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("dev.example", true),
        ("10.1.2.3", true),
        ("a.example", false),
    ] {
        let client = trusting(&made).handle();
        let peer = PeerName::new(name).expect("a name");
        let mut client = End::new(client.connect(&peer, at(NOW)));
        let mut server = End::new(handle.accept(at(NOW)));
        run(&mut client, &mut server);
        assert_eq!(
            client.tls.facts().is_some(),
            right,
            "{name}: {:?}",
            client.tls.fault()
        );
    }
    assert!(
        Development::new(&["not a näme".to_owned()], at(NOW))
            .expect_err("no name")
            .to_string()
            .contains("not a näme")
    );
    assert_ne!(
        development(&[]).authority,
        development(&[]).authority,
        "each has an authority of its own"
    );
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn files_are_named_when_something_is_wrong_with_them() {
    let folder = folder("pem");
    let missing = pem_file(&folder.join("missing.pem")).expect_err("missing");
    assert!(missing.source.ends_with("pem/missing.pem"), "{missing}");
    assert!(missing.text.contains("No such file"), "{missing}");
    let path = folder.join("large.pem");
    std::fs::write(&path, vec![b'x'; limits::PEM_FILE as usize + 1]).expect("written");
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
fn secrets_go_to_a_file_that_only_its_owner_reads() {
    let path = folder("keylog").join("keys.log");
    let _ = std::fs::remove_file(&path);
    let made = development(&[]);
    let mut settings = serving(&[&made.pair]);
    settings.key_log = Some(key_log_file(&path).expect("a file"));
    let acceptor = Acceptor::new(&settings, at(NOW)).expect("settings in order");
    assert!(
        pair(&trusting(&made).handle(), &mut acceptor.handle())[0]
            .tls
            .facts()
            .is_some()
    );
    let log = std::fs::read_to_string(&path).expect("written");
    assert_eq!(log.lines().count(), 5, "{log}");
    assert!(log.lines().all(|line| line.split(' ').count() == 3), "{log}");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(key_log_file(&folder("keylog").join("no/keys.log")).is_err());
}
