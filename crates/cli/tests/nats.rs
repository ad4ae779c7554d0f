//! A NATS, a gateway that listens there, and a client on a WebSocket that hears what is published; and `ringmain feed`.
//!
//! Tests with a real nats-server start it themselves, and are skipped where there is none (`.ci/run` installs it).
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

mod common;
#[path = "common/proxy.rs"]
mod proxy;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::{Directory, PATIENCE, Server, connect, engines, fails, program, skipped};
use proxy::{Proxy, get, until};
use ringmain_tls::Development;
use rustix::process::Signal;
use serde_json::Value;

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

/// One that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
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

fn file(nats: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
admin: {{address: 127.0.0.1:0}}
push:
  anonymous: true
  api_key: owner
  namespaces: {{prices: {{}}, market: {{}}}}
  nats:
    feed: {nats}
routes:
  live:
    rules: [{{match: /, push: true}}]
"
    )
}

fn admin(proxy: &Proxy) -> String {
    let mut said = proxy.server.said.iter();
    let line = said.find_map(|line| line.split_once("administration at "));
    line.expect("an administration").1.to_owned()
}

fn metric(admin: &str, name: &str, value: &str) {
    let line = format!("\n{name} {value}\n");
    until(admin, "admin", "/metrics", |answer| answer.body.contains(&line));
}

#[test]
fn what_is_published_reaches_browsers_also_after_a_restart() {
    for engine in engines() {
        let port = free_port();
        let Some(nats) = Nats::start(port, &[]) else {
            return;
        };
        let servers =
            format!("{{servers: 'nats://127.0.0.1:{port}', subjects: prices.>, channel: 'prices:{{2..}}'}}");
        let mut proxy = Proxy::start(&file(&servers), &["--engine", engine, "--workers", "2"]);
        proxy.server.wait_for("NATS feed: listens at 127.0.0.1:");
        let mut listener = Listener::to(proxy.addr(), &["prices:eu.acme", "prices:b"]);
        nats.publish(&[
            ("other.eu.acme", "0"),
            ("prices.eu.acme", r#"{"bid":1}"#),
            ("prices.b", "no JSON"),
            ("prices.eu.acme", "2"),
        ]);
        let acme = || "prices:eu.acme".to_owned();
        assert_eq!(listener.publication(), (acme(), serde_json::json!({"bid": 1})));
        assert_eq!(listener.publication(), (acme(), 2.into()));
        let admin = admin(&proxy);
        metric(
            &admin,
            "ringmain_push_nats_messages_total{consumer=\"feed\"}",
            "3",
        );
        let dropped = "ringmain_push_nats_dropped_total{consumer=\"feed\",reason=\"not_json\"}";
        metric(&admin, dropped, "1");
        metric(
            &admin,
            "ringmain_push_nats_hand_over_seconds_count{consumer=\"feed\"}",
            "2",
        );

        drop(nats);
        proxy.server.wait_for("it tries again");
        metric(&admin, "ringmain_push_nats_connected{consumer=\"feed\"}", "0");
        let nats = Nats::start(port, &[]).expect("it was there before");
        proxy.server.wait_for("NATS feed: listens at 127.0.0.1:");
        nats.publish(&[("prices.b", "3")]);
        assert_eq!(listener.publication(), ("prices:b".to_owned(), 3.into()));
        metric(&admin, "ringmain_push_nats_connected{consumer=\"feed\"}", "1");
        metric(
            &admin,
            "ringmain_push_nats_connects_total{consumer=\"feed\"}",
            "2",
        );
        proxy.server.terminate();
    }
}

#[test]
fn a_change_of_the_configuration_replaces_consumers_and_cuts_nobody() {
    let port = free_port();
    let Some(nats) = Nats::start(port, &[]) else {
        return;
    };
    let on = |subjects: &str| {
        let channel = "'prices:{2}'";
        file(&format!(
            "{{servers: 'nats://127.0.0.1:{port}', subjects: {subjects}, channel: {channel}}}"
        ))
    };
    let mut proxy = Proxy::start(&on("old.*"), &[]);
    proxy.server.wait_for("NATS feed: listens at");
    let mut listener = Listener::to(proxy.addr(), &["prices:a"]);
    nats.publish(&[("old.a", "1"), ("new.a", "2")]);
    assert_eq!(listener.publication().1, 1);
    fs::write(&proxy.file, on("new.*")).expect("a file");
    proxy.server.wait_for("NATS feed: listens at");
    nats.publish(&[("old.a", "3"), ("new.a", "4")]);
    assert_eq!(listener.publication().1, 4, "the old one hears no more");
    let admin = admin(&proxy);
    metric(
        &admin,
        "ringmain_push_nats_messages_total{consumer=\"feed\"}",
        "2",
    );
    // Without it nothing is listened to, and who is there stays.
    let without = on("new.*")
        .replace("  nats:\n", "  # nats:\n")
        .replace("    feed:", "    # feed:");
    fs::write(&proxy.file, without).expect("a file");
    until(&admin, "admin", "/metrics", |answer| {
        !answer.body.contains("_nats_")
    });
    let body = r#"{"channel":"prices:a","data":5}"#;
    let mut stream = connect(proxy.addr());
    let request = format!(
        "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: owner\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it is read");
    assert_eq!(listener.publication().1, 5);
    proxy.server.terminate();
}

#[test]
fn tls_and_an_nkey_let_it_in() {
    let folder = Directory::new();
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let made = Development::new(&[], now).expect("a certificate");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let (chain, key) = (
        write("chain.pem", &made.pair.chain.bytes),
        write("key.pem", &made.pair.key.bytes),
    );
    let authority = write("authority.pem", &made.authority.bytes);
    // The key of NATS's own manual.
    let seed = write(
        "user.nk",
        b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n",
    );
    let config = write(
        "nats.conf",
        format!(
            "tls {{ cert_file: {chain:?}, key_file: {key:?} }}\n\
             authorization {{ users: [ {{ nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }} ] }}\n"
        )
        .as_bytes(),
    );
    let port = free_port();
    let Some(_nats) = Nats::start(port, &["-c", &config]) else {
        return;
    };
    let on = |login: &str, tls: &str| {
        let consumer = format!(
            "{{servers: 'nats://localhost:{port}', subjects: market.>, channel: 'market:{{2}}'{login}{tls}}}"
        );
        format!("{}authorities: {{own: {authority:?}}}\n", file(&consumer))
    };
    let (login, tls) = (format!(", credentials: {seed:?}"), ", tls: {authorities: own}");
    let mut proxy = Proxy::start(&on(&login, ""), &[]);
    proxy.server.wait_for("certificate");
    fs::write(&proxy.file, on("", tls)).expect("a file");
    proxy
        .server
        .wait_for("the server says \"Authorization Violation\"");
    fs::write(&proxy.file, on(&login, tls)).expect("a file");
    proxy.server.wait_for("NATS feed: listens at localhost:");
    proxy.server.terminate();
}

#[test]
fn a_feed_goes_by_a_nats_to_browsers() {
    let port = free_port();
    let Some(_nats) = Nats::start(port, &["--user", "ada", "--pass", "pass"]) else {
        return;
    };
    let url = format!("nats://127.0.0.1:{port}");
    let consumer = format!(
        "{{servers: '{url}', subjects: market.*, channel: 'market:{{2}}', user: ada, password: pass}}"
    );
    let mut proxy = Proxy::start(&file(&consumer), &[]);
    proxy.server.wait_for("NATS feed: listens at");
    let mut listener = Listener::to(proxy.addr(), &["market:ARDN"]);
    let to = format!("nats://ada:pass@127.0.0.1:{port}");
    let feed = [
        "feed",
        &to,
        "--symbols",
        "1",
        "-r",
        "200",
        "-d",
        "500ms",
        "--seed",
        "1",
    ];
    let mut said = Server::spawn(Command::new(program()).args(feed));
    let first = said.wait_for("trades a second");
    assert!(first.contains("seed 1") && !first.contains("pass"), "{first}");
    let last = said.wait_for("100 trades in ");
    assert!(!last.contains("left out"), "{last}");
    let (status, said) = said.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    for number in 0..100 {
        let (channel, trade) = listener.publication();
        assert_eq!((&*channel, &trade["n"]), ("market:ARDN", &Value::from(number)));
    }
    let refused = fails(Command::new(program()).args(["feed", &url, "-d", "1s"]), 1);
    assert!(refused.contains("Authorization Violation"), "{refused}");
    proxy.server.terminate();
}

#[test]
fn a_feed_goes_to_a_push_server() {
    let text = file("x").replace("  nats:\n    feed: x\n", "");
    let proxy = Proxy::start(&text, &[]);
    let mut listener = Listener::to(proxy.addr(), &["market:ARDN"]);
    let to = format!("http://{}", proxy.addr());
    let run = |key: &str, rate: &str| {
        let feed = [
            "feed",
            &to,
            "--symbols",
            "1",
            "-r",
            rate,
            "-d",
            "300ms",
            "--api-key",
            key,
        ];
        let (status, said) = Server::spawn(Command::new(program()).args(feed)).finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
        said.join("\n")
    };
    let said = run("owner", "1k");
    assert!(
        said.contains("300 trades in") && !said.contains("refused"),
        "{said}"
    );
    for number in 0..300 {
        assert_eq!(listener.publication().1["n"], number);
    }
    let said = run("wrong", "10");
    assert!(said.contains("3 were refused, the last one with 401"), "{said}");
    assert_eq!(get(proxy.addr(), "a", "/nothing").status, 404);
    proxy.server.terminate();
}

fn lines(path: &Path, more: &[&str]) -> Vec<String> {
    let out = fs::File::create(path).expect("a file");
    let mut command = Command::new(program());
    command
        .args(["feed", "-q", "-r", "1k", "-d", "200ms", "--seed", "5"])
        .args(more)
        .stdout(out);
    let status = command.status().expect("it runs");
    assert_eq!(status.code(), Some(0));
    let text = fs::read_to_string(path).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_feed_on_standard_output_is_json_and_the_same_for_a_seed() {
    let folder = Directory::new();
    let (one, two) = (lines(&folder.join("a"), &[]), lines(&folder.join("b"), &[]));
    assert_eq!(one.len(), 200);
    assert_eq!(one, two);
    for (number, line) in one.iter().enumerate() {
        let trade: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(trade["n"], number);
    }
    let sized = lines(&folder.join("c"), &["--size", "500"]);
    assert!(sized.iter().all(|line| line.len() == 500), "{}", sized[0]);
}

#[test]
fn a_feed_ends_when_it_is_told_to_and_says_what_was_left_out() {
    // Nobody reads: the pipe fills, and what is due for too long is left out.
    let mut command = Command::new(program());
    command
        .args(["feed", "-r", "100k", "-s", "1k"])
        .stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let first = said.next().expect("a line").expect("text");
    assert!(
        first.contains("trades a second of 20 shares to standard output, seed "),
        "{first}"
    );
    std::thread::sleep(Duration::from_millis(1500));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).expect("it runs");
    let last = said.next().expect("a line").expect("text");
    assert!(
        last.contains("were left out: the receiver, or this machine, is too slow"),
        "{last}"
    );
    assert_eq!(common::wait_end(&mut child).code(), Some(0));
}

#[test]
fn a_feed_that_cannot_be_is_refused() {
    let nobody = format!("nats://127.0.0.1:{}", free_port());
    for (args, code, expect) in [
        (&["feed", "ftp://a"][..], 2, "expected"),
        (&["feed", "https://a"], 2, "nothing else is spoken here"),
        (
            &["feed", "nats://"],
            2,
            "expected nats://[USER:PASSWORD@]HOST[:PORT]",
        ),
        (
            &["feed", "nats://a:b"],
            2,
            "expected nats://[USER:PASSWORD@]HOST[:PORT]",
        ),
        (&["feed", "-r", "0"], 2, "expected trades a second"),
        (&["feed", "--symbols", "0"], 2, "from 1 to 100000"),
        (&["feed", "--distribution", "even"], 2, "zipf, uniform"),
        (&["feed", &nobody], 1, "refused"),
    ] {
        let said = fails(Command::new(program()).args(args), code);
        assert!(said.contains(expect), "{args:?}: {said}");
    }
}
