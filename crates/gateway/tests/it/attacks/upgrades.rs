//! Invalid WebSocket requests and invalid responses to upgrades: which connections become tunnels and which do not. Bytes after a
//! request that was not upgraded are the next request, never the origin's.

use std::fmt::Write as _;

use ringmain_engine::Config;
use ringmain_web::ws::Message;
use ringmain_web::{App, Result, Socket, Ws};

use super::{Wiretap, answers, compare};
use crate::origin::{edge, to};
use crate::support::serve;

on_every_backend! {
    each_upgrade_has_its_expected_outcome,
}

const EXPECTED: &str = include_str!("upgrades.txt");

const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const REFUSE: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n";

/// A line and fields, and how they are put together.
macro_rules! asks {
    ($($name:literal: $line:literal [$($field:literal),*] $body:literal => $answer:expr;)+) => {
        &[$(($name, concat!($line, "\r\nHost: a\r\n", $($field, "\r\n",)* "\r\n", $body), $answer)),+]
    };
}

/// The name, the client's request, and the origin's response to its first message.
const ALL: &[(&str, &str, &[u8])] = asks! {
    "good": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] "" => SWITCH;
    "good and refused": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] "" => REFUSE;
    // The classic: the origin refuses the version, and a proxy that does not look tunnels all the same.
    "bad version": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 1337", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] "" => REFUSE;
    "no version": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] "" => REFUSE;
    "no key": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"] "" => REFUSE;
    "two keys": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Key: AAAA"] "" => REFUSE;
    "answered 200": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] "" => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno";
    "answered 200 with upgrade": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket"] "" => b"HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno";
    "answered 101 without upgrade": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket"] "" => b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
    "answered 101 for another protocol": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket"] "" => b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    "answered 101 with a length": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket"] "" => b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello";
    "answered 100, then 101": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket"] "" => b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
    "answered 101 twice": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket"] "" => b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    // Bodies of what would be upgraded.
    "with a body": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 30"] "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n" => SWITCH;
    "with a body, refused": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 31"] "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n" => REFUSE;
    "with an empty body": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0"] "" => SWITCH;
    "with chunks": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Transfer-Encoding: chunked"] "2\r\nhi\r\n0\r\n\r\n" => SWITCH;
    "post": "POST /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 2"] "hi" => SWITCH;
    // Variants of the request.
    "no connection field": "GET /x HTTP/1.1" ["Upgrade: websocket"] "" => SWITCH;
    "no upgrade field": "GET /x HTTP/1.1" ["Connection: Upgrade"] "" => SWITCH;
    "other capitals": "GET /x HTTP/1.1" ["connection: keep-alive, UPGRADE", "upgrade: WebSocket"] "" => SWITCH;
    "websocket and h2c": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket, h2c"] "" => SWITCH;
    "h2c and websocket": "GET /x HTTP/1.1" ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c, websocket", "HTTP2-Settings: AAMAAABkAAQAAP__"] "" => SWITCH;
    "two upgrade fields": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"] "" => SWITCH;
    "with a version": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket/13"] "" => SWITCH;
    "connection names the key": "GET /x HTTP/1.1" ["Connection: Upgrade, Sec-WebSocket-Key", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="] "" => REFUSE;
    "http/1.0": "GET /x HTTP/1.0" ["Connection: Upgrade", "Upgrade: websocket"] "" => SWITCH;
    "expect, too": "GET /x HTTP/1.1" ["Connection: Upgrade", "Upgrade: websocket", "Expect: 100-continue", "Content-Length: 2"] "hi" => REFUSE;
};

/// Returns the statuses, and the bytes after a switch of protocols.
fn outcome(addr: std::net::SocketAddr, bytes: &str) -> String {
    let (text, end) = answers(addr, bytes.as_bytes());
    let mut said = String::new();
    let mut rest = &text[..];
    while let Some(answer) = rest.strip_prefix("HTTP/1.1 ") {
        let (head, behind) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let _ = write!(said, "{} ", &head[..3]);
        if head.starts_with("101") {
            let _ = write!(said, "then {:?} ", behind);
            break;
        }
        let next = behind.find("HTTP/1.1 ").unwrap_or(behind.len());
        rest = &behind[next..];
    }
    said + end
}

struct Nobody;

impl Socket for Nobody {
    fn message(&mut self, _: &Ws, _: Message<'_>) -> Result {
        Ok(())
    }
}

fn each_upgrade_has_its_expected_outcome(engine: Config) {
    let app = App::new()
        .ws("/x", |_| Ok(Nobody))
        .get("/after", |_, reply| reply.text("ok"));
    let straight = serve(engine.clone(), app);
    let mut found = String::new();
    for (name, bytes, answer) in ALL {
        let _ = writeln!(found, "== {name}");
        let _ = writeln!(found, "straight: {}", outcome(straight.addr, bytes));
        let tap = Wiretap::answering(answer);
        let edge = edge(engine.clone(), to(&[tap.addr], |_, _| {}));
        let _ = writeln!(found, "gateway: {}", outcome(edge.server.addr, bytes));
        edge.server.shut_down();
        for heard in tap.heard() {
            let _ = writeln!(found, "origin: {}", heard.escape_ascii());
        }
    }
    straight.shut_down();
    compare(&found, EXPECTED, "upgrades.txt");
}
