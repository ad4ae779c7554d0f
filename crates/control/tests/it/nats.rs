//! A real NATS, a gateway that listens there, and a client on a WebSocket that hears what is published.
//!
//! Tests start the nats-server themselves, and are skipped where there is none (`.ci/run` installs it).
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real servers have real threads and real time"
)]

use std::convert::Infallible;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ringmain_control::file::{self, Reading};
use ringmain_control::follow::{Begun, Control};
use ringmain_control::nats::{Dropped, Report};
use ringmain_engine::{Config, Engine, ListenOptions, Running};
use ringmain_gateway::Gateway;
use ringmain_tls::Development;
use serde_json::Value;

/// How long anything may take before a test fails. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says that something was not tested here, past the test runner, which shows nothing of a test that passes.
fn skipped(what: &str) {
    let line = format!("SKIPPED: {what}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("standard error");
}

/// A nats-server.
struct Nats {
    child: Child,
    port: u16,
}

impl Nats {
    /// At this port; `None`: it is not installed here.
    fn start(port: u16, more: &[&str]) -> Option<Nats> {
        let child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                skipped(&format!("a test with a NATS: no nats-server: {error}"));
                return None;
            }
        };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "nats-server listens");
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "nats-server has ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Nats { child, port })
    }

    /// Publishes, and waits until the server has it.
    fn publish(&self, messages: &[(&str, &str)]) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut said = "CONNECT {\"verbose\":false}\r\n".to_owned();
        for (subject, payload) in messages {
            said += &format!("PUB {subject} {}\r\n{payload}\r\n", payload.len());
        }
        said += "PING\r\n";
        (&stream).write_all(said.as_bytes()).expect("it is read");
        let mut line = String::new();
        while line != "PONG\r\n" {
            line.clear();
            assert!(
                reader.read_line(&mut line).expect("a line") > 0,
                "no end before PONG"
            );
            assert!(!line.starts_with("-ERR"), "{line}");
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One that is free, and that the kernel gives to nobody who asks for any: it has those from 32,768 on for that.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 100) as u16 * 200;
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 200);
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(free).expect("some are free")
}

/// A client of push on a WebSocket.
struct Listener {
    stream: TcpStream,
}

impl Listener {
    /// Connects and subscribes.
    fn to(addr: &str, channels: &[&str]) -> Listener {
        let stream = TcpStream::connect(addr).expect("a gateway");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let mut listener = Listener { stream };
        let opening = format!(
            "GET /connection/websocket HTTP/1.1\r\nHost: {addr}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        listener.stream.write_all(opening.as_bytes()).expect("it is read");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            listener.stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        assert!(
            head.starts_with(b"HTTP/1.1 101 "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        listener.say(r#"{"id":1,"connect":{}}"#);
        assert!(listener.hear()["connect"].is_object());
        for (id, channel) in (2..).zip(channels) {
            listener.say(&format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#));
            let answer = listener.hear();
            assert!(answer["subscribe"].is_object(), "{answer}");
        }
        listener
    }

    /// A text, masked by nothing.
    fn say(&mut self, text: &str) {
        let length = u8::try_from(text.len()).expect("a short one");
        assert!(length < 126);
        let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        self.stream.write_all(&frame).expect("it is read");
    }

    /// The next message.
    fn hear(&mut self) -> Value {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0], 0x81, "a text, all of it");
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.stream.read_exact(&mut long).expect("a length");
                u16::from_be_bytes(long)
            }
            short => u16::from(short),
        };
        let mut text = vec![0; usize::from(length)];
        self.stream.read_exact(&mut text).expect("a payload");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The next publication: its channel and data.
    fn publication(&mut self) -> (String, Value) {
        let mut push = self.hear();
        let channel = push["push"]["channel"].as_str().expect("a channel").to_owned();
        (channel, push["push"]["pub"]["data"].take())
    }
}

/// A gateway on a file of the test's own.
struct Edge {
    addr: String,
    control: Control,
    folder: PathBuf,
    file: PathBuf,
    _running: Running<Infallible>,
}

impl Edge {
    fn start(name: &str, text: &str) -> Edge {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("ringmain-nats-{id}-{name}"));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("edge.yaml");
        fs::write(&path, text).expect("a file");
        let Reading {
            mut loaded,
            text,
            print,
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
            .listen(&gateway.addrs()[0], &ListenOptions::default())
            .expect("a port");
        let site = gateway.app().build().expect("an application");
        let running = engine.start(move |start| site.server(start)).expect("workers");
        let begun = Begun {
            path: path.clone(),
            print,
            text,
            config,
        };
        let control = Control::start(gateway, begun).expect("a thread");
        Edge {
            addr: addr.to_string(),
            control,
            folder,
            file: path,
            _running: running,
        }
    }

    /// Waits until the consumer is as wanted.
    fn until(&self, wanted: impl Fn(&Report) -> bool) -> Report {
        let end = Instant::now() + PATIENCE;
        loop {
            let report = self.control.consumers().reports().into_iter().next();
            if let Some(report) = report.clone().filter(&wanted) {
                return report;
            }
            assert!(Instant::now() < end, "never as wanted: {report:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's cleaning of temporary files.
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
fn what_is_published_reaches_browsers_also_after_a_restart() {
    let port = free_port();
    let Some(nats) = Nats::start(port, &[]) else {
        return;
    };
    let consumer = format!(
        "feed: {{servers: 'nats://127.0.0.1:{port}', subjects: prices.>, channel: 'prices:{{2..}}'}}"
    );
    let edge = Edge::start("restart", &configuration(&consumer));
    edge.until(|it| it.connected);
    // The server has the subscription once it answers what came behind it.
    let mut listener = Listener::to(&edge.addr, &["prices:eu.acme", "prices:b"]);
    heard(&edge, &nats, "prices.warm.up");
    nats.publish(&[
        ("other.eu.acme", "0"),
        ("prices.eu.acme", r#"{"bid":1}"#),
        ("prices.b", "no JSON"),
        ("prices.eu.acme", "2"),
    ]);
    let acme = || "prices:eu.acme".to_owned();
    assert_eq!(listener.publication(), (acme(), serde_json::json!({"bid": 1})));
    assert_eq!(listener.publication(), (acme(), 2.into()));
    let report = edge.until(|it| it.messages == it.handed_over + 1);
    assert_eq!((report.connects, report.failures), (1, 0));
    assert_eq!(report.dropped[Dropped::NotJson as usize], 1);

    drop(nats);
    edge.until(|it| !it.connected && it.failures > 1);
    let nats = Nats::start(port, &[]).expect("it was there before");
    edge.until(|it| it.connected && it.connects == 2);
    heard(&edge, &nats, "prices.warm.up");
    nats.publish(&[("prices.b", "3")]);
    assert_eq!(listener.publication(), ("prices:b".to_owned(), 3.into()));
}

#[test]
fn positioned_clients_are_notified_of_what_a_restart_has_lost() {
    let port = free_port();
    let Some(nats) = Nats::start(port, &[]) else {
        return;
    };
    let consumer = format!(
        "feed: {{servers: 'nats://127.0.0.1:{port}', subjects: prices.>, channel: 'prices:{{2..}}'}}"
    );
    let text = configuration(&consumer).replace(
        "{prices: {}}",
        "{prices: {keep: {publications: 10}, recovery: true}, other: {keep: {}, recovery: true}}",
    );
    let edge = Edge::start("gap", &text);
    edge.until(|it| it.delivers);
    assert!(edge.control.consumers().undelivered().is_empty());
    // One channel had publications, one had none yet, one is not the consumer's.
    let mut listener = Listener::to(&edge.addr, &["prices:a", "prices:quiet", "other:x"]);
    nats.publish(&[("prices.a", "1")]);
    assert_eq!(listener.publication(), ("prices:a".to_owned(), 1.into()));
    drop(nats);
    edge.until(|it| !it.connected);
    assert_eq!(edge.control.consumers().undelivered().len(), 1);
    let _nats = Nats::start(port, &[]).expect("it was there before");
    let mut notified = Vec::new();
    for _ in 0..2 {
        let push = listener.hear();
        assert_eq!(push["push"]["unsubscribe"]["code"], 2500, "{push}");
        notified.push(push["push"]["channel"].as_str().expect("a channel").to_owned());
    }
    notified.sort();
    assert_eq!(notified, ["prices:a", "prices:quiet"]);
    edge.until(|it| it.delivers);
    // Nothing more, and what is kept is there still.
    listener.say(
        r#"{"id":9,"subscribe":{"channel":"prices:a","recover":true,"offset":1,"epoch":"0123456789abcdef"}}"#,
    );
    let answer = listener.hear();
    assert_eq!(answer["subscribe"]["offset"], 1, "{answer}");
    assert_ne!(answer["subscribe"]["recovered"], true, "{answer}");
}

/// Publishes until a message is heard: the server may not have the subscription yet.
fn heard(edge: &Edge, nats: &Nats, subject: &str) {
    let before = edge.until(|_| true).messages;
    let end = Instant::now() + PATIENCE;
    while edge.until(|_| true).messages == before {
        assert!(Instant::now() < end, "nothing is heard of {subject}");
        nats.publish(&[(subject, "0")]);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_change_of_the_configuration_replaces_consumers_and_cuts_nobody() {
    let port = free_port();
    let Some(nats) = Nats::start(port, &[]) else {
        return;
    };
    let on = |subjects: &str| {
        configuration(&format!(
            "feed: {{servers: 'nats://127.0.0.1:{port}', subjects: {subjects}, channel: 'prices:{{2}}'}}"
        ))
    };
    let edge = Edge::start("change", &on("old.*"));
    edge.until(|it| it.connected);
    let mut listener = Listener::to(&edge.addr, &["prices:a"]);
    heard(&edge, &nats, "old.warm");
    nats.publish(&[("old.a", "1"), ("new.a", "2")]);
    assert_eq!(listener.publication().1, 1);
    fs::write(&edge.file, on("new.*")).expect("a file");
    edge.until(|it| it.connected && it.connects == 2);
    heard(&edge, &nats, "new.warm");
    nats.publish(&[("old.a", "3"), ("new.a", "4")]);
    assert_eq!(listener.publication().1, 4, "the old one hears no more");
    // Without it nothing is listened to.
    fs::write(&edge.file, configuration("")).expect("a file");
    let end = Instant::now() + PATIENCE;
    while !edge.control.consumers().reports().is_empty() {
        assert!(Instant::now() < end, "it is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    listener.say(r#"{"id":9,"publish":{"channel":"prices:a","data":5}}"#);
    assert_eq!(listener.hear()["id"], 9, "who is there stays");
}

#[test]
fn tls_and_an_nkey_let_it_in() {
    let folder = std::env::temp_dir().join(format!("ringmain-nats-{}-keys", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let made = Development::new(&[], now()).expect("a certificate");
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
    let port = free_port();
    let Some(_nats) = Nats::start(port, &["-c", &config]) else {
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
    // A certificate that nobody vouches for, then nobody who signs in.
    let edge = Edge::start("tls", &on(&login));
    edge.until(|it| it.failures > 0 && it.connects == 0);
    fs::write(&edge.file, on(tls)).expect("a file");
    let before = edge.until(|_| true).failures;
    edge.until(|it| it.failures > before + 2 && it.connects == 0);
    fs::write(&edge.file, on(&format!("{login}{tls}"))).expect("a file");
    edge.until(|it| it.connected);
    drop(edge);
    let _ = fs::remove_dir_all(&folder);
}
