//! The corpus of attacks on HTTP/1.1: each payload straight at an application, and through the gateway at an origin.
//!
//! Three results of each are compared: the statuses, the end of the connection, and every byte that the origin received. They are in
//! `attacks/expected.txt`; with the environment variable `ATTACKS_WRITE` the test writes its results there instead, to be reviewed
//! line by line before they are committed. A fourth, the cost of each, is tested by `tests/alloc/cost` in virtual time.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ringmain_engine::Config;
use ringmain_web::App;

use crate::origin::{Origin, edge, to};
use crate::support::{PATIENCE, serve};

#[path = "attacks/corpus.rs"]
mod corpus;
#[path = "attacks/message.rs"]
mod message;

#[path = "attacks/preambles.rs"]
mod preambles;
#[path = "attacks/tokens.rs"]
mod tokens;
#[path = "attacks/upgrades.rs"]
mod upgrades;

use corpus::{AFTER, ALL, LIES, Lie};
use message::message;

on_every_backend! {
    each_payload_has_its_expected_outcome,
    each_lie_of_an_origin_has_its_expected_outcome,
}

const EXPECTED: &str = include_str!("attacks/expected.txt");
const ANSWERS: &str = include_str!("attacks/answers.txt");

/// An origin that takes down all it is sent, and answers each head and body that it can make out.
struct Wiretap {
    addr: SocketAddr,
    heard: Arc<Mutex<Vec<JoinHandle<Vec<u8>>>>>,
}

/// A request of the test itself to an origin: the response arrives after all earlier connections were accepted.
const LAST: &[u8] = b"last";

impl Wiretap {
    fn new() -> Wiretap {
        Wiretap::answering(OK)
    }

    /// One that answers this to the first message of each connection.
    fn answering(first: &'static [u8]) -> Wiretap {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let heard: Arc<Mutex<Vec<_>>> = Arc::default();
        let all = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let listening = std::thread::spawn(move || listen(stream, first));
                all.lock().expect("no panic").push(listening);
            }
        });
        Wiretap { addr, heard }
    }

    /// Returns all bytes received per connection, in order, once every connection has ended.
    fn heard(&self) -> Vec<Vec<u8>> {
        let mut last = TcpStream::connect(self.addr).expect("it listens");
        last.set_read_timeout(Some(PATIENCE)).expect("a socket");
        last.write_all(LAST).expect("it is open");
        last.read_exact(&mut [0; LAST.len()]).expect("an answer");
        drop(last);
        let all = std::mem::take(&mut *self.heard.lock().expect("no panic"));
        let heard = all.into_iter().map(|thread| thread.join().expect("no panic"));
        heard.filter(|bytes| bytes != LAST).collect()
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// All bytes of a connection, in order.
fn listen(mut stream: TcpStream, first: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut all = Vec::new();
    let mut answered = 0;
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        all.extend_from_slice(&chunk[..count]);
        if all == LAST {
            let _ = stream.write_all(LAST);
            continue;
        }
        while let Some(length) = message(&all[answered..]) {
            let answer = if answered == 0 { first } else { OK };
            answered += length;
            if stream.write_all(answer).is_err() {
                return all;
            }
        }
    }
    all
}

/// Sends these bytes and one more request. Returns all received bytes, and the way the connection ended.
fn answers(addr: SocketAddr, bytes: &[u8]) -> (String, &'static str) {
    let mut client = TcpStream::connect(addr).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // The connection may have been refused and closed before everything was sent.
    let _ = client.write_all(&[bytes, AFTER].concat());
    let _ = client.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    let end = match client.read_to_end(&mut answers) {
        Ok(_) => "closed",
        Err(_) => "reset",
    };
    (String::from_utf8_lossy(&answers).into_owned(), end)
}

/// The statuses of that, and its end.
fn outcome(addr: SocketAddr, bytes: &[u8]) -> String {
    let (text, end) = answers(addr, bytes);
    let statuses = text.split("HTTP/1.1 ").skip(1);
    statuses
        .map(|line| line[..3].to_owned() + " ")
        .collect::<String>()
        + end
}

fn each_payload_has_its_expected_outcome(engine: Config) {
    let echo = App::new().fallback_streamed(async |req, reply| {
        while req.chunk().await?.is_some() {}
        reply.text("ok")
    });
    let straight = serve(engine.clone(), echo);
    let mut found = String::new();
    for attack in ALL {
        let tap = Wiretap::new();
        let edge = edge(engine.clone(), to(&[tap.addr], |_, _| {}));
        let _ = writeln!(found, "== {}", attack.name);
        let _ = writeln!(found, "straight: {}", outcome(straight.addr, attack.bytes));
        let _ = writeln!(found, "gateway: {}", outcome(edge.server.addr, attack.bytes));
        // The shutdown ends the gateway's connections, and with these the recorded input.
        edge.server.shut_down();
        for heard in tap.heard() {
            let _ = writeln!(found, "origin: {}", heard.escape_ascii());
        }
    }
    straight.shut_down();
    compare(&found, EXPECTED, "expected.txt");
}

/// Reports differences, or writes the results.
fn compare(found: &str, expected: &str, file: &str) {
    if std::env::var_os("ATTACKS_WRITE").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/attacks/");
        return std::fs::write(format!("{folder}{file}"), found).expect("the file of this repository");
    }
    for (found, expected) in found.split("== ").zip(expected.split("== ")) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "one for each");
}

/// An origin that lies once on each connection that is asked for it.
fn liar(lie: &'static Lie) -> Origin {
    Origin::new(move |mut peer| {
        while let Some(seen) = peer.request() {
            if !seen.line().contains("/x ") {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nafter");
                continue;
            }
            if !peer.send(lie.bytes) || lie.ends {
                return;
            }
        }
    })
}

/// Returns a client's view of a response and the next one: statuses and bodies, without fields that contain the time.
fn heard(addr: SocketAddr) -> String {
    let (text, end) = answers(addr, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut said = String::new();
    for answer in text.split("HTTP/1.1 ").skip(1) {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let own = head.contains("problem+json");
        let hop = ["X-Hop", "Upgrade", "Keep-Alive", "Trailer"]
            .iter()
            .any(|name| head.contains(name));
        assert!(!hop, "{head}");
        let body = if own { "(a problem)" } else { body };
        let _ = write!(said, "{} {:?}, ", &head[..3], body);
    }
    said + end
}

fn each_lie_of_an_origin_has_its_expected_outcome(engine: Config) {
    let mut found = String::new();
    for lie in LIES {
        let origin = liar(lie);
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let _ = writeln!(found, "== {}", lie.name);
        // By a connection of its own, and by one that was kept.
        for kept in [false, true] {
            if kept {
                edge.server.get("/first").expect(200, "after");
            }
            let how = if kept { "kept" } else { "new" };
            let _ = writeln!(found, "{how}: {}", heard(edge.server.addr));
        }
        edge.server.shut_down();
    }
    compare(&found, ANSWERS, "answers.txt");
}
