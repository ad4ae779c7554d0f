//! A real NATS server, a gateway that consumes its messages, and a client on a WebSocket that receives them.
//!
//! Tests start the nats-server themselves, and are skipped where there is none (`.ci/run` installs it).
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real servers have real threads and real time"
)]

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringmain_control::file::{self, LoadedFile};
use ringmain_control::nats::{ConsumerReport, DropReason};
use ringmain_control::reload::{ConfigWatcher, InitialConfig};
use ringmain_engine::{Config, Engine, ListenOptions, Running};
use ringmain_gateway::Gateway;
use ringmain_testkit::port::Reserved;
use ringmain_testkit::servers::Nats;
use ringmain_testkit::subscriber::Subscriber;
use ringmain_testkit::wait;
use ringmain_tls::DevCertificate;

/// A gateway on a file of the test's own.
struct TestGateway {
    addr: String,
    control: ConfigWatcher,
    folder: PathBuf,
    file: PathBuf,
    _running: Running<Infallible>,
}

impl TestGateway {
    fn start(name: &str, text: &str) -> TestGateway {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("ringmain-nats-{id}-{name}"));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("edge.yaml");
        fs::write(&path, text).expect("a file");
        let LoadedFile {
            mut loaded,
            text,
            fingerprint,
        } = file::read(&path).expect("a file");
        assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
        let config = loaded.config.take().expect("a configuration");
        let config = Arc::new(config);
        let gateway = Gateway::new(Arc::clone(&config), now());
        let settings = Config {
            workers: Some(2),
            pin: false,
            ..Config::default()
        };
        let mut engine = Engine::new(settings).expect("an engine");
        let addr = engine
            .listen(&gateway.listen_addrs()[0], &ListenOptions::default())
            .expect("a port");
        let site = gateway.app().build().expect("an application");
        let running = engine.start(move |start| site.server(start)).expect("workers");
        let initial = InitialConfig {
            path: path.clone(),
            fingerprint,
            text,
            kubernetes: None,
            config,
        };
        let control = ConfigWatcher::start(gateway, initial).expect("a thread");
        TestGateway {
            addr: addr.to_string(),
            control,
            folder,
            file: path,
            _running: running,
        }
    }

    /// Waits until the consumer is as wanted.
    fn until(&self, wanted: impl Fn(&ConsumerReport) -> bool) -> ConsumerReport {
        wait::find("the consumer as wanted", || {
            let report = self.control.consumers().reports().into_iter().next();
            report.filter(&wanted)
        })
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        // Remaining files are left to the system's cleaning of temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970")
}

/// Clients connect by any path; `nats` is the consumer.
fn configuration(nats: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
push:
  anonymous: true
  namespaces: {{prices: {{}}}}
  nats: {{{nats}}}
routes:
  live:
    rules: [{{match: /, push: true}}]
"
    )
}

#[test]
fn publications_reach_clients_after_a_broker_restart() {
    let reserved = Reserved::new();
    let port = reserved.port();
    let Some(nats) = Nats::start(Some(port), &[]) else {
        return;
    };
    let consumer = format!(
        "feed: {{servers: 'nats://127.0.0.1:{port}', subjects: prices.>, channel: 'prices:{{2..}}'}}"
    );
    let edge = TestGateway::start("restart", &configuration(&consumer));
    edge.until(|it| it.connected);
    // The server has the subscription once it responds to later data.
    let mut subscriber = Subscriber::to(&edge.addr, &["prices:eu.acme", "prices:b"]);
    heard(&edge, &nats, "prices.warm.up");
    nats.publish(&[
        ("other.eu.acme", "0"),
        ("prices.eu.acme", r#"{"bid":1}"#),
        ("prices.b", "no JSON"),
        ("prices.eu.acme", "2"),
    ]);
    let acme = || "prices:eu.acme".to_owned();
    assert_eq!(subscriber.publication(), (acme(), serde_json::json!({"bid": 1})));
    assert_eq!(subscriber.publication(), (acme(), 2.into()));
    let report = edge.until(|it| it.messages == it.handed_over + 1);
    assert_eq!((report.connects, report.failures), (1, 0));
    assert_eq!(report.dropped[DropReason::NotJson as usize], 1);

    drop(nats);
    edge.until(|it| !it.connected && it.failures > 1);
    let nats = Nats::start(Some(port), &[]).expect("it was there before");
    edge.until(|it| it.connected && it.connects == 2);
    heard(&edge, &nats, "prices.warm.up");
    nats.publish(&[("prices.b", "3")]);
    assert_eq!(subscriber.publication(), ("prices:b".to_owned(), 3.into()));
}

#[test]
fn positioned_clients_are_notified_of_gaps_after_a_restart() {
    let reserved = Reserved::new();
    let port = reserved.port();
    let consumer = format!(
        "feed: {{servers: 'nats://127.0.0.1:{port}', subjects: prices.>, channel: 'prices:{{2..}}'}}"
    );
    let text = configuration(&consumer).replace(
        "{prices: {}}",
        "{prices: {retention: {publications: 10}, recovery: true}, other: {retention: {}, recovery: true}}",
    );
    let edge = TestGateway::start("gap", &text);
    // The first connection is a gap as well, for clients that subscribed before it. One channel has publications, one has none, one
    // is not the consumer's.
    let mut subscriber = Subscriber::to(&edge.addr, &["prices:a", "prices:quiet", "other:x"]);
    let Some(nats) = Nats::start(Some(port), &[]) else {
        return;
    };
    expect_gaps(&mut subscriber);
    edge.until(|it| it.delivers);
    assert!(edge.control.consumers().undelivered().is_empty());
    for (id, channel) in [(5, "prices:a"), (6, "prices:quiet")] {
        subscriber.send(&format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#));
        let answer = subscriber.receive();
        assert!(answer["subscribe"].is_object(), "{answer}");
    }
    nats.publish(&[("prices.a", "1")]);
    assert_eq!(subscriber.publication(), ("prices:a".to_owned(), 1.into()));
    drop(nats);
    edge.until(|it| !it.connected);
    assert_eq!(edge.control.consumers().undelivered().len(), 1);
    let _nats = Nats::start(Some(port), &[]).expect("it was there before");
    expect_gaps(&mut subscriber);
    edge.until(|it| it.delivers);
    // No further message, and the retained ones stay.
    subscriber.send(
        r#"{"id":9,"subscribe":{"channel":"prices:a","recover":true,"offset":1,"epoch":"0123456789abcdef"}}"#,
    );
    let answer = subscriber.receive();
    assert_eq!(answer["subscribe"]["offset"], 1, "{answer}");
    assert_ne!(answer["subscribe"]["recovered"], true, "{answer}");
}

/// Both channels of the consumer are ended for positioned clients, with the code upon which they subscribe again.
#[track_caller]
fn expect_gaps(subscriber: &mut Subscriber) {
    let mut notified = Vec::new();
    for _ in 0..2 {
        let push = subscriber.receive();
        assert_eq!(push["push"]["unsubscribe"]["code"], 2500, "{push}");
        notified.push(push["push"]["channel"].as_str().expect("a channel").to_owned());
    }
    notified.sort();
    assert_eq!(notified, ["prices:a", "prices:quiet"]);
}

/// Publishes until a message is received: the server may not have the subscription yet.
fn heard(edge: &TestGateway, nats: &Nats, subject: &str) {
    let before = edge.until(|_| true).messages;
    wait::until(subject, || {
        let is_heard = edge.until(|_| true).messages > before;
        if !is_heard {
            nats.publish(&[(subject, "0")]);
        }
        is_heard
    });
}

#[test]
fn reload_replaces_consumers_and_keeps_connections() {
    let reserved = Reserved::new();
    let port = reserved.port();
    let Some(nats) = Nats::start(Some(port), &[]) else {
        return;
    };
    let on = |subjects: &str| {
        configuration(&format!(
            "feed: {{servers: 'nats://127.0.0.1:{port}', subjects: {subjects}, channel: 'prices:{{2}}'}}"
        ))
    };
    let edge = TestGateway::start("change", &on("old.*"));
    edge.until(|it| it.connected);
    let mut subscriber = Subscriber::to(&edge.addr, &["prices:a"]);
    heard(&edge, &nats, "old.warm");
    nats.publish(&[("old.a", "1"), ("new.a", "2")]);
    assert_eq!(subscriber.publication().1, 1);
    fs::write(&edge.file, on("new.*")).expect("a file");
    edge.until(|it| it.connected && it.connects == 2);
    heard(&edge, &nats, "new.warm");
    nats.publish(&[("old.a", "3"), ("new.a", "4")]);
    assert_eq!(subscriber.publication().1, 4, "the old one hears no more");
    // Without it nothing is listened to.
    fs::write(&edge.file, configuration("")).expect("a file");
    wait::until("no consumer", || edge.control.consumers().reports().is_empty());
    subscriber.send(r#"{"id":9,"publish":{"channel":"prices:a","data":5}}"#);
    assert_eq!(subscriber.receive()["id"], 9, "connected clients stay");
}

#[test]
fn tls_and_an_nkey_let_it_in() {
    let folder = std::env::temp_dir().join(format!("ringmain-nats-{}-keys", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let made = DevCertificate::new(&[], now()).expect("a certificate");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let chain = write("chain.pem", &made.pair.chain.bytes);
    let key = write("key.pem", &made.pair.key.bytes);
    let authority = write("authority.pem", &made.authority.bytes);
    // The key of NATS's own manual.
    let seed = write(
        "user.nk",
        b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n",
    );
    let user = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let config = format!(
        "tls {{ cert_file: {chain:?}, key_file: {key:?} }}\nauthorization {{ users: [ {{ nkey: {user} }} ] }}\n"
    );
    let config = write("nats.conf", config.as_bytes());
    let reserved = Reserved::new();
    let port = reserved.port();
    let Some(_nats) = Nats::start(Some(port), &["-c", &config]) else {
        return;
    };
    let on = |more: &str| {
        let consumer = format!("feed: {{servers: 'nats://localhost:{port}', subjects: market.>{more}}}");
        format!(
            "{}authorities: {{own: {authority:?}}}\n",
            configuration(&consumer)
        )
    };
    let (login, tls) = (format!(", credentials: {seed:?}"), ", tls: {authorities: own}");
    // A certificate of an unknown authority, then wrong credentials.
    let edge = TestGateway::start("tls", &on(&login));
    edge.until(|it| it.failures > 0 && it.connects == 0);
    fs::write(&edge.file, on(tls)).expect("a file");
    let before = edge.until(|_| true).failures;
    edge.until(|it| it.failures > before + 2 && it.connects == 0);
    fs::write(&edge.file, on(&format!("{login}{tls}"))).expect("a file");
    edge.until(|it| it.connected);
    drop(edge);
    let _ = fs::remove_dir_all(&folder);
}
