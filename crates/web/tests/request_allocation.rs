//! No allocation per request once buffers are warm, on a real worker over real sockets: counted by the allocator, over
//! all threads. A binary without the test harness, so that nothing else allocates meanwhile.
//!
//! What does allocate, and how often, stands in the second table: its numbers may only fall.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a test without harness reports its counts")]

use std::alloc::System;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions};
use ringmain_web::{App, Flow};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 1000;

/// A list may still grow for good the first time.
const ATTEMPTS: usize = 3;

const WARM: usize = 300;

/// What is sent again and again: pieces, each sent when the server has had the one before, and how many requests they
/// are.
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

/// What allocates, and why.
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

fn main() {
    for engine in [Choice::Uring, Choice::Epoll] {
        let config = Config {
            engine,
            workers: Some(1),
            pin: false,
            ..Config::default()
        };
        match Engine::new(config) {
            Ok(engine) => check_all(engine),
            Err(error) => println!("SKIPPED {engine:?}: {error}"),
        }
    }
}

fn check_all(mut engine: Engine) {
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let addr = engine
        .listen(&any, &ListenOptions::default())
        .expect("a free port");
    let Addr::Inet(addr) = addr else {
        panic!("an internet address was asked for");
    };
    println!("on {}", engine.selection());
    let site = app().build().expect("an application");
    let running = engine
        .start(move |start| site.server(start))
        .expect("the worker starts");
    let mut client = Client {
        stream: TcpStream::connect(addr).expect("the server listens"),
        buffer: vec![0; 256 * 1024],
        other: TcpStream::connect(addr).expect("the server listens"),
    };
    client.stream.set_nodelay(true).expect("a socket");
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
    stream: TcpStream,
    buffer: Vec<u8>,
    other: TcpStream,
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
            self.stream.write_all(piece).expect("the server takes it");
            // When this is answered the worker has had the piece.
            self.other.write_all(PING).expect("the server takes it");
            read_answers(&mut self.other, &mut self.buffer, 1, false);
        }
        self.stream.write_all(last).expect("the server takes it");
        let head = last.starts_with(b"HEAD");
        read_answers(&mut self.stream, &mut self.buffer, case.requests, head);
    }
}

/// Reads so many answers and nothing more.
fn read_answers(stream: &mut TcpStream, buffer: &mut [u8], count: usize, head: bool) {
    let (mut length, mut at, mut seen) = (0, 0, 0);
    while seen < count {
        match answer_length(&buffer[at..length], head) {
            Some(answer) => {
                at += answer;
                seen += 1;
            }
            None => match stream.read(&mut buffer[length..]) {
                Ok(0) => panic!("the end after {}", buffer[..length].escape_ascii()),
                Ok(received) => length += received,
                // Work of a ring that this thread has probed.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("expected an answer, found {error}"),
            },
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
