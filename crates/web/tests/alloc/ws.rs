//! No allocation per echoed message once buffers are warm, and the memory of an idle socket: on a real worker over real sockets,
//! counted by the allocator over all threads.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions};
use ringmain_web::ws::{Deflater, Message, Window};
use ringmain_web::{App, Limits, Result, Socket, Ws, WsOptions};
use ringmain_wire::ws::encode_shared;
use stats_alloc::Region;

use crate::ALLOCATOR;

const WARM: usize = 300;
const ROUNDS: usize = 250;

/// A buffer may still grow in the first attempt, and on a busy machine pings and timers fall into every long one. Attempts are short, and the
/// one with the fewest allocations counts.
const ATTEMPTS: usize = 40;

/// Sockets that are opened to measure the memory of an idle one.
const IDLE: usize = 400;

/// Bytes that an idle socket may hold in addition to its connection, which an idle HTTP connection has too. Excludes memory that a
/// worker shares between its connections: a head that arrived in parts was once stored in a buffer that stays with the worker, so
/// that five bytes more were counted for each of 400 sockets where the kernel had split one of the requests.
const IDLE_BYTES: isize = 208;

struct Echo;

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }
}

fn app() -> App {
    let mut limits = Limits {
        connections_per_address: None,
        ..Limits::default()
    };
    limits.websocket.control_frames = u32::MAX;
    App::new()
        .limits(limits)
        .get("/", |_, reply| reply.text("Hello, World!"))
        .ws("/echo", |_| Ok(Echo))
        .ws_with("/deflate", &WsOptions::new().deflate(), |_| Ok(Echo))
}

/// Bytes sent at once, the number of bytes received in reply, and the allocations of one round.
struct Case {
    name: &'static str,
    target: &'static str,
    sent: Vec<u8>,
    back: usize,
    allowed: usize,
}

/// A frame of a client, masked with zeroes.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
    out
}

fn cases() -> Vec<Case> {
    let case = |name, sent: Vec<u8>, back| Case {
        name,
        target: "/echo",
        sent,
        back,
        allowed: 0,
    };
    let text = frame(0x81, &[b'x'; 512]);
    let mut fragments = frame(0x01, &[b'x'; 300]);
    fragments.extend(frame(0x89, b"ping"));
    fragments.extend(frame(0x80, &[b'x'; 212]));
    // As the server deflates it: both frames are the same but for the mask.
    let mut deflated = Vec::new();
    let mut deflater = Deflater::new(Window::MAX, ringmain_web::limits::DEFLATE_LEVEL);
    let words = "one text after the other ".repeat(100);
    encode_shared(&mut deflated, Message::Text(&words), Some(&mut deflater));
    let back = deflated.len();
    assert!(back < 126, "a short frame");
    let deflated = frame(0xC1, &deflated[2..]);
    vec![
        case("a text of 512 bytes", text.clone(), 516),
        case("bytes of 16,000", frame(0x82, &[7; 16_000]), 16_004),
        case("16 messages at once", text.repeat(16), 16 * 516),
        case("a message in fragments, a ping between", fragments, 516 + 6),
        Case {
            target: "/deflate",
            ..case("a deflated text of 2500 bytes", deflated, back)
        },
        Case {
            // The bytes that are handed over, and the buffer for the next.
            allowed: 5,
            ..case("bytes of 100,000", frame(0x82, &[7; 100_000]), 100_010)
        },
    ]
}

pub(crate) fn main() {
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
    let app = app().build().expect("an application");
    let running = engine
        .start(move |start| app.server(start))
        .expect("the worker starts");
    let mut failed = false;
    for case in cases() {
        failed |= !check(addr, &case);
    }
    failed |= !check_idle(addr);
    running.shut_down();
    running.join().expect("an orderly end");
    assert!(
        !failed,
        "expected at most what the tables say, found more: see above"
    );
}

fn check(addr: SocketAddr, case: &Case) -> bool {
    let mut stream = connect(addr);
    let mut buffer = vec![0; 256 * 1024];
    upgrade(&mut stream, case.target);
    let mut rounds = |count: usize| {
        for _ in 0..count {
            stream.write_all(&case.sent).expect("the server takes it");
            read(&mut stream, &mut buffer[..case.back]);
        }
    };
    rounds(WARM);
    let mut found = usize::MAX;
    for _ in 0..ATTEMPTS {
        if found > case.allowed * ROUNDS {
            let region = Region::new(ALLOCATOR);
            rounds(ROUNDS);
            let change = region.change();
            found = change.allocations + change.reallocations;
        }
    }
    println!("{:40} {:.3} per round", case.name, found as f64 / ROUNDS as f64);
    found <= case.allowed * ROUNDS
}

/// Compares the memory of a socket with that of its connection before the upgrade.
fn check_idle(addr: SocketAddr) -> bool {
    let mut streams: Vec<TcpStream> = Vec::with_capacity(IDLE);
    let region = Region::new(ALLOCATOR);
    let held = || {
        let change = region.change();
        change.bytes_allocated as isize - change.bytes_deallocated as isize
    };
    for _ in 0..IDLE {
        let mut stream = connect(addr);
        ask(&mut stream);
        streams.push(stream);
    }
    let connections = held();
    for stream in &mut streams {
        upgrade(stream, "/echo");
    }
    // With its answer the worker has gone on.
    ask(&mut connect(addr));
    let bytes = (held() - connections) / IDLE as isize;
    println!("{:40} {bytes} bytes beside its connection", "an idle socket");
    bytes <= IDLE_BYTES
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    stream
}

fn ask(stream: &mut TcpStream) {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("the server takes it");
    read_head(stream);
    read(stream, &mut [0; 13]);
}

/// The most bytes of an upgrade request.
const UPGRADE: usize = 512;

/// Writes an upgrade request into `buffer`, on the stack: one on the heap would be counted. Returns its length.
fn upgrade_request(buffer: &mut [u8; UPGRADE], target: &str) -> usize {
    let mut rest = &mut buffer[..];
    write!(
        rest,
        "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    .expect("it fits");
    UPGRADE - rest.len()
}

/// Opens a WebSocket with one write, so that the head arrives whole.
fn upgrade(stream: &mut TcpStream, target: &str) {
    let mut buffer = [0; UPGRADE];
    let length = upgrade_request(&mut buffer, target);
    stream.write_all(&buffer[..length]).expect("the server takes it");
    assert!(read_head(stream), "the socket opens");
}

/// Reads a head byte by byte; whether it was a 101.
fn read_head(stream: &mut TcpStream) -> bool {
    let mut head = [0; 1024];
    let mut length = 0;
    while !head[..length].ends_with(b"\r\n\r\n") {
        read(stream, &mut head[length..=length]);
        length += 1;
    }
    head.starts_with(b"HTTP/1.1 101")
}

fn read(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => panic!("the end after {filled} bytes"),
            Ok(count) => filled += count,
            // Work of a ring that this thread has probed.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("expected {} bytes, found {error}", buffer.len()),
        }
    }
}
