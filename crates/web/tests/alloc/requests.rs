//! No allocation per request once buffers are warm, on a real worker over real sockets, with and without TLS: counted by the
//! allocator, over all threads.
//!
//! The second table lists the requests that allocate, and how often: its numbers may only fall.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, UNIX_EPOCH};

use ringmain_engine::{Addr, Choice, Config, Engine, Layer, LayerEvent, ListenOptions};
use ringmain_tls::{
    Acceptor, ClientSettings, Connector, DevCertificate, PeerName, ServerSettings, Tls, Trust,
};
use ringmain_web::{App, Flow, ListenerProtocol};
use serde::{Deserialize, Serialize};
use stats_alloc::Region;

use crate::ALLOCATOR;

const ROUNDS: usize = 250;

/// A buffer may still grow in the first attempt, and on a busy machine pings and timers fall into every long one. Attempts are short, and the
/// one with the fewest allocations counts.
const ATTEMPTS: usize = 40;

const WARM: usize = 300;

/// Bytes that are sent repeatedly: pieces, each sent once the server has received the one before, and the number of requests in
/// them.
struct Case {
    name: &'static str,
    pieces: Vec<Vec<u8>>,
    requests: usize,
    /// Allocations of one request.
    allowed: usize,
}

#[derive(Deserialize, Serialize)]
struct Message<'a> {
    message: &'a str,
    number: u32,
}

fn app() -> App {
    App::new()
        .request_ids()
        .before(|_, _| Ok(Flow::Continue))
        .get("/plain", |_, reply| reply.text("Hello, World!"))
        .get("/json", |_, reply| {
            reply.json(&Message {
                message: "Hello, World!",
                number: 7,
            })
        })
        .get("/users/{id}/items/{*rest}", |req, reply| {
            let query = req.query()?;
            let number = query.parse("n")?.unwrap_or(0) + req.param_as::<u32>("id")?;
            reply.header("Cache-Control", "no-store")?;
            reply.json(&Message {
                message: &req.param("rest")?,
                number,
            })
        })
        .post("/echo", |req, reply| reply.text(req.text()?))
        .post("/json", |req, reply| reply.json(&req.json::<Message<'_>>()?))
        .get("/none", |_, reply| reply.no_content())
        .get_async("/later", async |req, reply| {
            req.cx().sleep(Duration::ZERO).await;
            reply.text("Hello, World!")
        })
        .get_async("/sleep", async |req, reply| {
            req.cx().sleep(Duration::from_millis(1)).await;
            reply.text("Hello, World!")
        })
        .post_async("/later", async |req, reply| reply.text(req.text()?))
        .get_async("/streamed", async |_, reply| {
            reply.length(26);
            reply.write("Hello, World!").await?;
            reply.write("Hello, World!").await
        })
        .post_streamed("/streamed", async |req, reply| {
            let mut bytes = 0;
            while let Some(chunk) = req.chunk().await? {
                bytes += chunk.len();
            }
            reply.status(if bytes == 5 { 200 } else { 500 });
            Ok(())
        })
        .get("/extended", |req, reply| {
            req.extend(7_u32);
            reply.text("Hello, World!")
        })
        .get("/cookie", |_, reply| {
            reply.cookie(&ringmain_web::SetCookie::new("id", "7"))?;
            reply.text("Hello, World!")
        })
}

fn request(method: &str, target: &str, more: &str, body: &str) -> Vec<u8> {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n{more}{length}\r\n{body}")
        .into()
}

fn one(name: &'static str, allowed: usize, request: Vec<u8>) -> Case {
    Case {
        name,
        pieces: vec![request],
        requests: 1,
        allowed,
    }
}

fn pieces(name: &'static str, allowed: usize, request: &[u8], cut: usize) -> Case {
    let (first, second) = request.split_at(cut);
    Case {
        pieces: vec![first.to_vec(), second.to_vec()],
        ..one(name, allowed, Vec::new())
    }
}

fn free() -> Vec<Case> {
    const JSON: &str = "Content-Type: application/json\r\n";
    let get = |target: &str| request("GET", target, "", "");
    let post = request("POST", "/echo", "", "hello");
    let chunked =
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mixed = [get("/plain"), get("/later"), get("/json"), post.clone()].concat();
    vec![
        one("plain text", 0, get("/plain")),
        one("JSON", 0, get("/json")),
        one("parameters and query", 0, get("/users/7/items/a/b?x=y&n=35")),
        one("an escaped path", 0, get("/users/7/items/%61/../b?n=35")),
        one(
            "a kept request id",
            0,
            request("GET", "/plain", "X-Request-Id: abc\r\n", ""),
        ),
        one("HEAD", 0, request("HEAD", "/plain", "", "")),
        one("204", 0, get("/none")),
        one("a body", 0, post.clone()),
        one(
            "a JSON body",
            0,
            request("POST", "/json", JSON, r#"{"message":"a","number":1}"#),
        ),
        pieces("a body behind its head", 0, &post, post.len() - 5),
        pieces("a body in two pieces", 0, &post, post.len() - 2),
        pieces("a head in two pieces", 0, &post, 20),
        one("a chunked body", 0, chunked.to_vec()),
        one(
            "10 kB of body",
            0,
            request("POST", "/echo", "", &"x".repeat(10_000)),
        ),
        one("an asynchronous handler", 0, get("/later")),
        one("an asynchronous handler that waits", 0, get("/sleep")),
        one(
            "an asynchronous handler with a body",
            0,
            request("POST", "/later", "", "hello"),
        ),
        one("a streamed answer", 0, get("/streamed")),
        Case {
            requests: 16,
            ..one("16 pipelined", 0, get("/plain").repeat(16))
        },
        Case {
            requests: 4,
            ..one("pipelined, of all kinds", 0, mixed)
        },
    ]
}

/// Requests that allocate, with the reason.
fn counted() -> Vec<Case> {
    let get = |target: &str| request("GET", target, "", "");
    vec![
        // The text of the error.
        one("404", 1, get("/nothing")),
        // The text and the `Allow` field.
        one("405", 2, request("DELETE", "/plain", "", "")),
        // The text.
        one("a parameter that does not read", 1, get("/users/x/items/a")),
        // Each piece is handed over as bytes of its own.
        one("a streamed body", 2, request("POST", "/streamed", "", "hello")),
        // The list and the value.
        one("an extension", 2, get("/extended")),
        // The cookie's line.
        one("a cookie", 1, get("/cookie")),
    ]
}

pub(crate) fn main() {
    for (engine, tls) in [
        (Choice::Uring, false),
        (Choice::Epoll, false),
        (Choice::Uring, true),
        (Choice::Epoll, true),
    ] {
        let config = Config {
            engine,
            workers: Some(1),
            pin: false,
            ..Config::default()
        };
        match Engine::new(config) {
            Ok(engine) => check_all(engine, tls),
            Err(error) => println!("SKIPPED {engine:?}: {error}"),
        }
    }
}

fn check_all(mut engine: Engine, tls: bool) {
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let addr = engine
        .listen(&any, &ListenOptions::default())
        .expect("a free port");
    let Addr::Inet(addr) = addr else {
        panic!("an internet address was asked for");
    };
    println!("on {}{}", engine.selection(), if tls { ", by TLS" } else { "" });
    let made = DevCertificate::new(&[], now()).expect("a certificate");
    let mut app = app();
    if tls {
        let settings = ServerSettings {
            certificates: vec![made.pair],
            ..ServerSettings::default()
        };
        let acceptor = Acceptor::new(&settings, now()).expect("settings");
        app = app.listener(0, ListenerProtocol::https(&acceptor));
    }
    let trust = ClientSettings::new(Trust::Authorities(made.authority));
    let connector = tls.then(|| Connector::new(&trust, now()).expect("settings"));
    let app = app.build().expect("an application");
    let running = engine
        .start(move |start| app.server(start))
        .expect("the worker starts");
    let mut client = Client {
        stream: Link::new(addr, connector.as_ref()),
        buffer: vec![0; 256 * 1024],
        other: Link::new(addr, connector.as_ref()),
    };
    let mut failed = false;
    for case in free().iter().chain(&counted()) {
        for _ in 0..WARM {
            client.round(case);
        }
        let requests = ROUNDS * case.requests;
        let mut found = usize::MAX;
        for _ in 0..ATTEMPTS {
            if found > case.allowed * requests {
                found = client.count(case);
            }
        }
        println!(
            "{:40} {:.3} per request",
            case.name,
            found as f64 / requests as f64
        );
        failed |= found > case.allowed * requests;
    }
    running.shut_down();
    running.join().expect("an orderly end");
    assert!(
        !failed,
        "expected at most what the tables say, found more: see above"
    );
}

struct Client {
    stream: Link,
    buffer: Vec<u8>,
    other: Link,
}

/// A connection, with or without TLS, which allocates nothing either once its buffers are warm.
struct Link {
    stream: TcpStream,
    tls: Option<Tls>,
    /// Received and not yet opened.
    wire: Vec<u8>,
    /// Opened and not yet read.
    plain: Vec<u8>,
    out: Vec<u8>,
}

/// Wall time.
fn now() -> Duration {
    UNIX_EPOCH.elapsed().expect("a time after 1970")
}

impl Link {
    fn new(addr: SocketAddr, connector: Option<&Connector>) -> Link {
        let stream = TcpStream::connect(addr).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let localhost = PeerName::new("localhost").expect("a name");
        let mut link = Link {
            stream,
            tls: connector.map(|connector| connector.handle().connect(&localhost, now())),
            wire: Vec::with_capacity(256 * 1024),
            plain: Vec::with_capacity(256 * 1024),
            out: Vec::with_capacity(256 * 1024),
        };
        if let Some(tls) = &mut link.tls {
            tls.begin(&mut link.out);
            while link.tls.as_ref().is_some_and(|tls| tls.facts().is_none()) {
                link.flush();
                link.receive();
            }
            link.flush();
        }
        link
    }

    fn flush(&mut self) {
        self.stream.write_all(&self.out).expect("the server takes it");
        self.out.clear();
    }

    fn send(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.out.extend_from_slice(bytes),
            Some(tls) => tls.send(bytes, &mut self.out).expect("it stands"),
        }
        self.flush();
    }

    /// Receives once, and decrypts complete records.
    fn receive(&mut self) {
        let mut buffer = [0; 64 * 1024];
        let received = match self.stream.read(&mut buffer) {
            Ok(0) => panic!("the end after {}", self.plain.escape_ascii()),
            Ok(received) => received,
            // Work of a ring that this thread has probed.
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            Err(error) => panic!("expected an answer, found {error}"),
        };
        let Some(tls) = &mut self.tls else {
            return self.plain.extend_from_slice(&buffer[..received]);
        };
        self.wire.extend_from_slice(&buffer[..received]);
        loop {
            let step = tls.receive(&mut self.wire, &mut self.out);
            match step.event {
                LayerEvent::Plain(range) => self.plain.extend_from_slice(&self.wire[range]),
                LayerEvent::Established => {}
                LayerEvent::Nothing if step.consumed > 0 => {}
                LayerEvent::Nothing | LayerEvent::NeedMore => return,
                LayerEvent::End | LayerEvent::Failed | LayerEvent::Refused => panic!("{:?}", tls.fault()),
            }
            self.wire.drain(..step.consumed);
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> usize {
        while self.plain.is_empty() {
            self.receive();
        }
        let count = self.plain.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.plain[..count]);
        self.plain.drain(..count);
        count
    }
}

const PING: &[u8] = b"GET /plain HTTP/1.1\r\nHost: a\r\n\r\n";

impl Client {
    /// Allocations of many rounds.
    fn count(&mut self, case: &Case) -> usize {
        let region = Region::new(ALLOCATOR);
        for _ in 0..ROUNDS {
            self.round(case);
        }
        let change = region.change();
        change.allocations + change.reallocations
    }

    fn round(&mut self, case: &Case) {
        let (last, first) = case.pieces.split_last().expect("a piece");
        for piece in first {
            self.stream.send(piece);
            // Once this is answered the worker has received the piece.
            self.other.send(PING);
            read_answers(&mut self.other, &mut self.buffer, 1, false);
        }
        self.stream.send(last);
        let head = last.starts_with(b"HEAD");
        read_answers(&mut self.stream, &mut self.buffer, case.requests, head);
    }
}

/// Reads so many answers and nothing more.
fn read_answers(stream: &mut Link, buffer: &mut [u8], count: usize, head: bool) {
    let (mut length, mut at, mut seen) = (0, 0, 0);
    while seen < count {
        match answer_length(&buffer[at..length], head) {
            Some(answer) => {
                at += answer;
                seen += 1;
            }
            None => length += stream.read(&mut buffer[length..]),
        }
    }
    assert_eq!(at, length, "nothing but the answers");
}

/// Bytes of the answer at the beginning, if it is whole.
fn answer_length(bytes: &[u8], head: bool) -> Option<usize> {
    const LENGTH: &[u8] = b"Content-Length: ";
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let at = bytes[..end]
        .windows(LENGTH.len())
        .position(|window| window == LENGTH);
    let digits = bytes[at.map_or(end, |at| at + LENGTH.len())..end].iter();
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |number, digit| 10 * number + usize::from(digit - b'0'));
    let whole = end + if head { 0 } else { body };
    (bytes.len() >= whole).then_some(whole)
}
