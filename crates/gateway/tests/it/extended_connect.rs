//! WebSockets over HTTP/2 streams of the client, with upstreams over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_wire::h1::{self, Exchange, FieldBlock, FieldTable, HeadScanner, Parsed, ResponseEncoder};
use ringmain_wire::h2::{self, Event, HeadBuffer};
use ringmain_wire::ws::{self, ServerWish};

use crate::h2_origin::{Framed, Happened};
use crate::h2_upstreams::by_streams;
use crate::origin::{Origin, edge, to};
use crate::support::Client;

on_every_backend! {
    a_websocket_over_http2,
    an_end_that_the_client_does_not_answer,
    a_websocket_by_http2_to_the_upstream,
    an_upstream_that_refuses_or_does_not_know,
}

/// A WebSocket over an HTTP/2 stream of the client, with an upstream over HTTP/1.1.
fn a_websocket_over_http2(engine: Config) {
    let origin = Origin::new(|mut peer| {
        let Some(seen) = peer.request() else { return };
        let key = seen.field("sec-websocket-key").expect("the gateway's own key");
        assert_ne!(key, "x", "what a client says of it is not passed on");
        let accept = if seen.line().contains("/wrong") {
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned()
        } else {
            accept_of(&key)
        };
        peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\
             Sec-WebSocket-Protocol: chat\r\n\r\nfirst"
        ));
        while let Some(bytes) = peer.some() {
            peer.send(bytes);
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = Streams::new(edge.server.client());
    let stream = client.websocket("/chat");
    client.wait(|heard| heard.contains("first"));
    assert_eq!(client.heard, "200 chat none\nfirst");
    let seen = origin.seen();
    assert_eq!(seen.line(), "GET /chat HTTP/1.1");
    assert_eq!(
        (
            seen.field("upgrade").as_deref(),
            seen.field("connection").as_deref(),
            seen.field("sec-websocket-version").as_deref(),
        ),
        (Some("websocket"), Some("upgrade"), Some("13"))
    );
    client.send(stream, b"second", false);
    client.wait(|heard| heard.contains("second"));
    // The end goes through in both directions.
    client.send(stream, b"third", true);
    client.wait(|heard| heard.ends_with("end"));
    assert_eq!(client.heard, "200 chat none\nfirstsecondthirdend");
    // An upstream that does not know the protocol has not switched to it.
    client.heard.clear();
    client.websocket("/wrong");
    client.wait(|heard| heard.ends_with("end"));
    assert!(client.heard.starts_with("502 "), "{}", client.heard);
    drop(client);
    edge.server.shut_down();
}

/// Behind its server's end nothing follows in a WebSocket: a client that holds its stream open all the same (Firefox does) loses it long before
/// the idle timeout.
fn an_end_that_the_client_does_not_answer(engine: Config) {
    let origin = Origin::new(|mut peer| {
        let Some(seen) = peer.request() else { return };
        let accept = accept_of(&seen.field("sec-websocket-key").expect("a key"));
        peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\nlast"
        ));
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = Streams::new(edge.server.client());
    client.websocket("/chat");
    while client.resets == 0 {
        client.step();
    }
    assert_eq!(client.heard, "200 none none\nlastend");
    drop(client);
    edge.server.shut_down();
}

/// An origin that accepts WebSockets on streams: sends `first`, then an echo, and closes when its client does.
fn speaking() -> Framed {
    let limits = h2::Limits {
        extended_connect: true,
        ..h2::Limits::INTERNET
    };
    Framed::with(limits, |mut peer| {
        while let Some((stream, asked, end)) = peer.head() {
            assert!(!end, "a stream that stays open");
            let field = |name: &str| asked.field(name).unwrap_or("none").to_owned();
            let told = [
                field("sec-websocket-version"),
                field("sec-websocket-key"),
                field("upgrade"),
                field("connection"),
            ];
            let told = format!("{} {}", asked.line, told.join(" "));
            if asked.line.ends_with("/refused") {
                peer.answer(stream, 403, &[], told.as_bytes());
                continue;
            }
            peer.respond(
                stream,
                200,
                &[("sec-websocket-protocol", "chat"), ("x-told", &told)],
                false,
            );
            peer.data(stream, b"first", false);
            loop {
                match peer.next() {
                    Happened::Data(_, data, end) => {
                        peer.data(stream, &data, end);
                        if end {
                            break;
                        }
                    }
                    Happened::Closed => return,
                    other => panic!("expected bytes and an end, found {other:?}"),
                }
            }
        }
    })
}

const HANDSHAKE: &str = "Host: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const TOLD: &str = "CONNECT a /chat 13 none none none";

/// Whatever the client speaks, the upstream is asked by an extended CONNECT (RFC 8441).
fn a_websocket_by_http2_to_the_upstream(engine: Config) {
    let origin = speaking();
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut client = edge.server.client();
    client.send(format!("GET /chat HTTP/1.1\r\n{HANDSHAKE}"));
    let heard = |client: &mut Client, end: &str| {
        while !client.kept().ends_with(end.as_bytes()) {
            assert!(client.receive().expect("bytes") > 0, "the end before {end}");
        }
        String::from_utf8(std::mem::take(client.kept())).expect("text")
    };
    let head = heard(&mut client, "first");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // The example of RFC 6455 §1.3.
    for line in [
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "sec-websocket-protocol: chat",
        &format!("x-told: {TOLD}"),
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    client.send("second");
    heard(&mut client, "second");
    client.finish();
    while client.receive().expect("an end") > 0 {}

    let mut client = Streams::new(edge.server.client());
    let stream = client.websocket("/chat");
    client.wait(|heard| heard.contains("first"));
    client.send(stream, b"second", true);
    client.wait(|heard| heard.ends_with("end"));
    assert_eq!(client.heard, "200 chat none\nfirstsecondend");
    drop(client);
    edge.server.shut_down();
}

/// A response without success is relayed like any other; where streams support HTTP alone, the request is forwarded without the upgrade.
fn an_upstream_that_refuses_or_does_not_know(engine: Config) {
    let origin = speaking();
    let edge_of = by_streams(engine.clone(), &origin, |_, _| {});
    let answer = edge_of
        .server
        .ask(format!("GET /refused HTTP/1.1\r\n{HANDSHAKE}"));
    answer.expect(403, "CONNECT a /refused 13 none none none");
    edge_of.server.shut_down();

    let plain = Framed::echo();
    let edge = by_streams(engine, &plain, |_, _| {});
    let answer = edge.server.ask(format!("GET /chat HTTP/1.1\r\n{HANDSHAKE}"));
    answer.expect(200, "");
    let asked = plain.asked();
    assert_eq!((&*asked.line, asked.field("upgrade")), ("GET a /chat", None));
    edge.server.shut_down();
}

/// Returns a server's `Sec-WebSocket-Accept` for a key.
pub(crate) fn accept_of(key: &str) -> String {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    );
    let limits = h1::Limits::INTERNET;
    let mut table = FieldTable::new(&limits);
    let parsed = h1::parse_request(head.as_bytes(), &limits, &mut HeadScanner::new(), &mut table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("`{key}` is no key");
    };
    let acceptance = ws::accept(&head, &ServerWish::default()).expect("a key");
    let mut out = Vec::new();
    let mut head = ResponseEncoder::new(&mut out, 101, Exchange::REFUSED).expect("a status");
    acceptance.write_fields(&mut head).expect("fields");
    head.switch(b"websocket").expect("a switch");
    let text = String::from_utf8(out).expect("ASCII");
    let (_, rest) = text.split_once("Sec-WebSocket-Accept: ").expect("an answer");
    rest.split("\r\n").next().expect("a line").to_owned()
}

/// An HTTP/2 client that records received events.
struct Streams {
    client: Client,
    wire: h2::Connection,
    heads: HeadBuffer,
    out: Vec<u8>,
    heard: String,
    resets: u32,
}

impl Streams {
    fn new(client: Client) -> Streams {
        let mut out = Vec::new();
        let limits = h2::Limits::INTERNET;
        Streams {
            client,
            wire: h2::Connection::new(h2::Role::Client, &limits, Duration::ZERO, &mut out),
            heads: HeadBuffer::new(&limits),
            out,
            heard: String::new(),
            resets: 0,
        }
    }

    fn websocket(&mut self, path: &str) -> h2::Stream {
        let mut fields = FieldBlock::new();
        for (name, value) in [
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat"),
            ("sec-websocket-key", "x"),
        ] {
            fields.push(name, value.as_bytes()).expect("a field");
        }
        let request = h2::Request {
            method: h1::Method::Connect,
            scheme: "http",
            authority: "a",
            path,
            protocol: Some("websocket"),
        };
        let asked = self.wire.request(&request, &fields, None, false, &mut self.out);
        asked.expect("a stream")
    }

    fn send(&mut self, stream: h2::Stream, bytes: &[u8], end: bool) {
        assert_eq!(self.wire.data(stream, bytes, end, &mut self.out), Ok(bytes.len()));
    }

    /// Runs until the recorded events satisfy `done`.
    fn wait(&mut self, done: impl Fn(&str) -> bool) {
        while !done(&self.heard) {
            self.step();
        }
    }

    /// Sends pending output, and processes received bytes.
    fn step(&mut self) {
        let out = std::mem::take(&mut self.out);
        self.client.send(out);
        assert!(
            self.client.receive().expect("bytes") > 0,
            "the end, after {}",
            self.heard
        );
        let input = std::mem::take(self.client.kept());
        let mut at = 0;
        loop {
            let step = self
                .wire
                .receive(&input[at..], Duration::ZERO, &mut self.heads, &mut self.out)
                .expect("frames");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Response { head, .. } => {
                    let field = |name| {
                        head.fields
                            .get(name)
                            .map_or("none".into(), String::from_utf8_lossy)
                    };
                    let (protocol, accept) = (field("sec-websocket-protocol"), field("sec-websocket-accept"));
                    self.heard += &format!("{} {protocol} {accept}\n", head.status);
                }
                Event::Data { data, end, .. } => {
                    self.heard += &String::from_utf8_lossy(data);
                    self.heard += if end { "end" } else { "" };
                }
                Event::Reset { .. } => self.resets += 1,
                _ => {}
            }
        }
        *self.client.kept() = input[at..].to_vec();
    }
}
