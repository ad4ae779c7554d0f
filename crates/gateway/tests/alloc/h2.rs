//! Allocations of an HTTP/2 request that the gateway forwards, after warm-up: none of its own, to upstreams of either protocol, on each
//! real back-end.
#![allow(clippy::disallowed_methods, reason = "the client is a real socket")]

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions, Running};
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    Action, Endpoint, EndpointLocation, Forward, Listener, Protocol, Route, Rule, Upstream, UpstreamProtocol,
};
use ringmain_web::{App, CompiledApp};
use ringmain_wire::h2::PREFACE;
use stats_alloc::Region;

use crate::ALLOCATOR;

/// 1,000 requests. An attempt is short: on a busy machine a periodic task of the worker falls into every long one.
const ROUNDS: u32 = 250;
const WARM: u32 = 300;
/// A list may still grow for good the first time.
const ATTEMPTS: usize = 40;
/// Concurrent requests: the stream states that the gateway retains while a connection is idle.
const STREAMS: u32 = 4;

/// GET, http and `/` of the static table, the authority `a` as it is, and a field of an own name (RFC 7541 §6).
const HEAD: &[u8] = b"\x82\x86\x84\x01\x01a\x00\x05x-one\x011";

pub(crate) fn main() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let config = Config {
            engine: choice,
            workers: Some(1),
            pin: false,
            ..Config::default()
        };
        match (Engine::new(config.clone()), Engine::new(config)) {
            (Ok(front), Ok(back)) => check(front, back),
            (Err(error), _) | (_, Err(error)) => println!("SKIPPED {choice:?}: {error}"),
        }
    }
}

fn serve(mut engine: Engine, site: Arc<CompiledApp>) -> (SocketAddr, Running<Infallible>) {
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let options = ListenOptions::default();
    let Addr::Inet(addr) = engine.listen(&any, &options).expect("a free port") else {
        panic!("an internet address was asked for");
    };
    println!("on {}", engine.selection());
    let running = engine.start(move |start| site.server(start));
    (addr, running.expect("the worker starts"))
}

fn check(front: Engine, back: Engine) {
    let app = App::new().get("/", |_, reply| reply.text("hello"));
    let (origin, answering) = serve(back, app.build().expect("an application"));
    let listener = |name: &str, port: u16| Listener {
        name: name.into(),
        addresses: vec![Addr::Inet(([127, 0, 0, 1], port).into())],
        protocol: Protocol::Http,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: Default::default(),
        limits: Default::default(),
        policies: Vec::new(),
    };
    let mut config = ringmain_gateway::model::Config {
        listeners: vec![listener("web", 0).into()],
        ..Default::default()
    };
    let route = |config: &mut ringmain_gateway::model::Config, protocol| {
        let mut upstream = Upstream::new("origin", vec![Endpoint::new(EndpointLocation::Address(origin))]);
        upstream.protocol = protocol;
        config.upstreams = vec![upstream.into()];
        let rule = Rule::new(Action::Forward(Box::new(Forward::to("origin"))));
        let route = Route {
            name: "all".into(),
            listeners: Vec::new(),
            hostnames: Vec::new(),
            rules: vec![rule],
        };
        config.routes = vec![route.into()];
    };
    route(&mut config, UpstreamProtocol::Http1);
    let gateway = Gateway::new(Arc::new(config.clone()), Duration::ZERO);
    assert_eq!(gateway.problems(), []);
    let (addr, passing) = serve(front, gateway.app().build().expect("an application"));
    let mut failed = false;
    for protocol in [UpstreamProtocol::Http1, UpstreamProtocol::Http2] {
        route(&mut config, protocol);
        assert_eq!(gateway.replace(Arc::new(config.clone()), Duration::ZERO), []);
        let mut client = Client::new(addr);
        (0..WARM).for_each(|_| client.round());
        let mut each = f64::MAX;
        // Whoever looks, ten times a second, at those who wait for streams is a task each time.
        let allowed = if protocol == UpstreamProtocol::Http2 {
            0.01
        } else {
            0.0
        };
        for attempt in 0..ATTEMPTS {
            if each > allowed {
                let region = Region::new(ALLOCATOR);
                (0..rounds(attempt)).for_each(|_| client.round());
                let change = region.change();
                each =
                    (change.allocations + change.reallocations) as f64 / f64::from(rounds(attempt) * STREAMS);
            }
        }
        println!("HTTP/2 to {protocol:?} {each:.3} per request");
        failed |= each > allowed;
    }
    for running in [passing, answering] {
        running.shut_down();
        running.join().expect("an orderly end");
    }
    assert!(!failed, "expected fewer allocations: see above");
}

/// The rounds of an attempt: fewer after half of the attempts, because 1,000 requests take seconds on a busy machine, and periodic
/// work falls into every attempt then.
const fn rounds(attempt: usize) -> u32 {
    if attempt < ATTEMPTS / 2 {
        ROUNDS
    } else {
        ROUNDS / 25
    }
}

/// A client that allocates nothing itself.
struct Client {
    stream: TcpStream,
    next: u32,
    out: Vec<u8>,
    input: Vec<u8>,
    length: usize,
}

impl Client {
    fn new(addr: SocketAddr) -> Client {
        let mut stream = TcpStream::connect(addr).expect("the gateway listens");
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(PREFACE).expect("it is taken");
        let mut client = Client {
            stream,
            next: 1,
            out: Vec::with_capacity(4096),
            input: vec![0; 64 * 1024],
            length: 0,
        };
        // Settings that say nothing, and as large a window as there is: bodies need no further ones.
        client.frame(4, 0, 0, b"");
        client.frame(8, 0, 0, &(0x7fff_0000u32).to_be_bytes());
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.out
            .extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    /// Some requests at once, and all of their answers.
    fn round(&mut self) {
        for _ in 0..STREAMS {
            let stream = self.next;
            self.next += 2;
            // END_STREAM and END_HEADERS.
            self.frame(1, 0x5, stream, HEAD);
        }
        self.stream.write_all(&self.out).expect("the gateway takes it");
        self.out.clear();
        let mut ended = 0;
        while ended < STREAMS {
            match self.stream.read(&mut self.input[self.length..]) {
                Ok(0) => panic!("the end after {}", self.input[..self.length].escape_ascii()),
                Ok(count) => self.length += count,
                // Work of a ring that this thread has probed.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("expected an answer, found {error}"),
            }
            let mut at = 0;
            while let Some(header) = self.input[at..self.length].first_chunk::<9>() {
                let payload = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                let Some(payload) = self.input[at + 9..self.length].get(..payload) else {
                    break;
                };
                match header[3] {
                    // A task ends it by a frame of its own.
                    0 => {
                        assert!(payload.is_empty() || payload == b"hello");
                        ended += u32::from(header[4] & 1);
                    }
                    // Status 200 of the static table, and something follows.
                    1 => assert!(payload.contains(&0x88) && header[4] == 4),
                    4 | 6 | 8 => {}
                    kind => panic!("a frame of kind {kind}: {}", payload.escape_ascii()),
                }
                at += 9 + payload.len();
            }
            self.input.copy_within(at..self.length, 0);
            self.length -= at;
        }
    }
}
