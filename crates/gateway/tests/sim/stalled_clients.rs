//! Clients that request large bodies and do not read: the bytes held for them stay within the documented limit for all clients
//! together, whatever carries the body, and are released when they leave or continue to read.
//!
//! Measured twice: by the engine's own count, and by the allocator, which no count can hide bytes from.

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, limits};
use ringmain_gateway::Gateway;
use ringmain_gateway::filter::Filters;
use ringmain_gateway::limits::{CHANNEL_BODY_STEP, UPSTREAM_FIRST_WINDOW};
use ringmain_gateway::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, Protocol, Route, Rule, Upstream, UpstreamProtocol,
};
use ringmain_sim::{ClusterConfig, Peer, PeerListener, Plan, SimCluster, Step, World};
use ringmain_web::Server;
use ringmain_web::testing::ReplyReader;
use ringmain_wire::h2::{Connection, Event, HeadBuffer, Limits, Role, Stream};
use stats_alloc::Region;

use crate::run::{at, listener, origin};
use ringmain_sim::seeds::Named;

use crate::{ALLOCATOR, fingerprint, held};

/// Steps after which a scene counts as stuck.
const STEPS: usize = 400_000;

/// Clients that read nothing.
const CLIENTS: usize = 24;

/// Enough clients that memory is returned to the system when they have left: they held more than is retained for the next ones
/// ([`limits::RECLAIM_BYTES`]). Used by one scene in this many.
const MANY_CLIENTS: usize = 240;
const MANY: u64 = 1024;

/// Bytes of each body.
const BODY: usize = 250_000;

/// The bytes that connections may hold before each may hold less.
const SHARE: usize = 128 * 1024;

/// Bytes of each buffer of the network.
const NETWORK: usize = 4096;

/// Bytes that one exchange may hold beyond the share by the engine's count, for its client: a mark and a piece.
const HELD_EACH: usize = 2 * limits::FRUGAL_MARK;

/// The same from its upstream over HTTP/1.1, with the receipts that were under way, and over HTTP/2.
const UNREAD: usize = 2 * limits::FRUGAL_MARK + 2 * NETWORK;
const UNREAD_FRAMED: usize = UPSTREAM_FIRST_WINDOW as usize + CHANNEL_BODY_STEP + 2 * NETWORK;

/// Bytes of memory that an exchange has beside that: its connections, the network between their ends, its task.
const MEMORY_EACH: usize = 8 * NETWORK + 32 * 1024;

/// Bytes of memory by which what stays when all have left may differ from one time to the next.
const DIFFERS: isize = 512 * 1024;

/// Which part of the most memory may stay when many have left.
const STAYS: isize = 8;

/// A connection of the origin.
struct Guest {
    peer: Peer,
    input: Vec<u8>,
    /// Bytes of a body that are still to be written; `None`: there was no request.
    left: Option<usize>,
    framed: Option<FramedGuest>,
}

/// The same over HTTP/2.
struct FramedGuest {
    connection: Connection,
    heads: HeadBuffer,
    out: Vec<u8>,
    /// Streams, and how many bytes of each body were sent.
    open: Vec<(Stream, u64, usize)>,
}

/// See the module.
pub(crate) struct Stalled {
    named: Named,
    world: World,
    cluster: SimCluster<Server>,
    listener: PeerListener,
    guests: Vec<Guest>,
    bodies: Vec<Vec<u8>>,
    protocol: UpstreamProtocol,
    clients: Vec<Peer>,
    gateway: Gateway,
    /// The number of clients to start.
    count: usize,
    /// The most that was held, by count and by the allocator.
    most: (usize, isize),
}

fn config(protocol: UpstreamProtocol) -> Config {
    let endpoint = Endpoint::new(EndpointLocation::Address(origin(0)));
    let mut upstream = Upstream::new("origin", vec![endpoint]);
    upstream.protocol = protocol;
    let rule = Rule::new(Action::Forward(Box::new(Forward::to("origin"))));
    let route = Route {
        name: "all".into(),
        listeners: Vec::new(),
        hostnames: Vec::new(),
        rules: vec![rule],
    };
    Config {
        listeners: vec![listener("web", at(80), Protocol::Http)],
        routes: vec![route.into()],
        upstreams: vec![upstream.into()],
        ..Config::default()
    }
}

/// Runs a scene to its end.
pub(crate) fn run(seed: u64) {
    let count = if seed % MANY == MANY / 2 {
        MANY_CLIENTS
    } else {
        CLIENTS
    };
    let protocol = if seed.is_multiple_of(16) {
        UpstreamProtocol::Http1
    } else {
        UpstreamProtocol::Http2
    };
    let mut scene = Stalled::new(seed, protocol, count);
    // Memory that is pooled from the first exchange on belongs to no client.
    scene.dial(1);
    scene.read(0);
    scene.rest(Duration::from_secs(5), None);
    let region = Region::new(ALLOCATOR);
    let stays = scene.round(&region);
    assert!(
        count < MANY_CLIENTS || stays <= scene.most.1 / STAYS,
        "seed {seed}: {protocol:?}: {stays} bytes of memory stay of {}",
        scene.most.1
    );
    if count < MANY_CLIENTS {
        let again = scene.round(&region);
        assert!(
            again <= stays + DIFFERS,
            "seed {seed}: {protocol:?}: {stays} bytes of memory stay, and then {again}"
        );
    }
    scene.end();
}

impl Stalled {
    fn new(seed: u64, protocol: UpstreamProtocol, count: usize) -> Stalled {
        let mut plan = Plan::calm();
        (plan.buffers, plan.buffer_bytes) = (8, NETWORK);
        (plan.send_bytes, plan.receive_bytes) = (NETWORK, NETWORK);
        plan.trace = 300;
        let world = World::new(seed, plan, 1);
        let named = crate::named(seed, &world);
        let listener = world.peer_listen(&Addr::Inet(origin(0)));
        let gateway = Gateway::with_filters(Arc::new(config(protocol)), Filters::new(), Duration::ZERO);
        let site = gateway.app().build().expect("an application");
        let config = ClusterConfig {
            workers: 1,
            held_bytes: SHARE,
            ..ClusterConfig::default()
        };
        let cluster = SimCluster::new(&world, config, &[(0, at(80), 0)], |start| site.server(start));
        Stalled {
            named,
            world,
            cluster,
            listener,
            guests: Vec::new(),
            bodies: (0..=2 * count)
                .map(|id| fingerprint::pattern(id as u64, BODY))
                .collect(),
            protocol,
            clients: Vec::new(),
            gateway,
            count,
            most: (0, 0),
        }
    }

    /// Connects so many clients, each of which sends a request.
    fn dial(&mut self, count: usize) {
        for _ in 0..count {
            let id = self.clients.len();
            let peer = self.world.connect(&at(80)).expect("it listens");
            let request = format!("GET /r/{id} HTTP/1.1\r\nHost: sim\r\n\r\n");
            assert_eq!(peer.write(request.as_bytes()).expect("it is open"), request.len());
            self.clients.push(peer);
        }
    }

    /// Clients stall, and then some read to the end while the others leave. Returns the bytes of memory that remain.
    fn round(&mut self, region: &Region<'_, System>) -> isize {
        let first = self.clients.len();
        self.dial(self.count);
        self.rest(Duration::from_secs(3), Some(region));
        let held_most = self.most.0;
        assert!(held_most > SHARE / 2, "the share was never near: {held_most}");
        for id in first..self.clients.len() {
            if id % 10 == 0 {
                self.read(id);
            } else {
                self.clients[id].reset();
                self.clients[id].close();
            }
        }
        self.rest(Duration::from_secs(10), None);
        assert_eq!(self.cluster.held(0), 0, "bytes that are held for nobody");
        held(region)
    }

    /// Reads a whole response.
    fn read(&mut self, id: usize) {
        let mut reader = ReplyReader::new();
        for _ in 0..STEPS {
            reader.feed(&self.clients[id].read(usize::MAX));
            if let Some(reply) = reader.next("GET").expect("a response") {
                assert_eq!(reply.status(), 200);
                assert!(reply.body() == self.bodies[id], "the body of request {id}");
                return self.clients[id].close();
            }
            self.step();
        }
        panic!("seed {}: request {id} has no response", self.named.seed);
    }

    /// Drives the world until nothing has happened in it for so long.
    fn rest(&mut self, span: Duration, region: Option<&Region<'_, System>>) {
        let mut until = self.world.now().after(span);
        for _ in 0..STEPS {
            if self.world.now() >= until {
                return;
            }
            let before = self.sent();
            self.step();
            if self.sent() != before {
                until = self.world.now().after(span);
            }
            if let Some(region) = region {
                self.measure(region);
            }
        }
        panic!("seed {}: it never comes to rest", self.named.seed);
    }

    /// Bytes that the origin has still to send.
    fn sent(&self) -> usize {
        let framed = |guest: &Guest| {
            let open = guest.framed.as_ref().map(|framed| &framed.open);
            open.map_or(0, |open| open.iter().map(|(.., sent)| *sent).sum())
        };
        let plain = |guest: &Guest| guest.left.map_or(0, |left| BODY - left);
        self.guests.iter().map(|guest| framed(guest) + plain(guest)).sum()
    }

    /// Checks both bounds.
    fn measure(&mut self, region: &Region<'_, System>) {
        let unread = match self.protocol {
            UpstreamProtocol::Http2 => UNREAD_FRAMED,
            _ => UNREAD,
        };
        let (held, memory) = (self.cluster.held(0), held(region));
        self.most = (self.most.0.max(held), self.most.1.max(memory));
        // As much again is granted to streams before the share is used up.
        let most = 2 * SHARE + limits::WRITE_MARK + self.count * (HELD_EACH + unread);
        assert!(
            held <= most,
            "{:?}: {held} bytes held, at most {most}",
            self.protocol
        );
        let most = (most + self.count * MEMORY_EACH) as isize;
        assert!(
            memory <= most,
            "{:?}: {memory} bytes of memory with {held} held, at most {most}",
            self.protocol
        );
    }

    fn step(&mut self) {
        while let Some(peer) = self.listener.accept() {
            self.guests
                .push(Guest::new(peer, self.protocol, self.world.now().0));
        }
        let now = Duration::from_nanos(self.world.now().0);
        for guest in &mut self.guests {
            guest.act(&self.bodies, now);
        }
        self.guests.retain(|guest| {
            let is_over = guest.peer.eof() || guest.peer.failed();
            if is_over {
                guest.peer.close();
            }
            !is_over
        });
        if self.cluster.step() == Step::Quiet {
            self.world.jump(Duration::from_millis(100));
        }
    }

    fn end(mut self) {
        for upstream in self.gateway.upstreams() {
            assert_eq!((upstream.requests, upstream.waiting), (0, 0), "{upstream:?}");
        }
        self.cluster.stop();
        self.guests.drain(..).for_each(|guest| guest.peer.close());
        for _ in 0..STEPS {
            if self.cluster.is_done() {
                return;
            }
            self.step();
        }
        panic!("seed {}: the worker never ends", self.named.seed);
    }
}

impl Guest {
    fn new(peer: Peer, protocol: UpstreamProtocol, now: u64) -> Guest {
        let framed = (protocol == UpstreamProtocol::Http2).then(|| {
            let mut out = Vec::new();
            let now = Duration::from_nanos(now);
            FramedGuest {
                connection: Connection::new(Role::Server, &Limits::INTERNET, now, &mut out),
                heads: HeadBuffer::new(&Limits::INTERNET),
                out,
                open: Vec::new(),
            }
        });
        Guest {
            peer,
            input: Vec::new(),
            left: None,
            framed,
        }
    }

    fn act(&mut self, bodies: &[Vec<u8>], now: Duration) {
        self.input.extend(self.peer.read(usize::MAX));
        if let Some(framed) = &mut self.framed {
            let consumed = framed.act(&self.input, bodies, now);
            self.input.drain(..consumed);
            let count = self.peer.write(&framed.out).unwrap_or(0);
            framed.out.drain(..count);
            return;
        }
        if self.left.is_none() && self.input.ends_with(b"\r\n\r\n") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
            let count = self.peer.write(head.as_bytes());
            assert!(count.is_err() || count.is_ok_and(|count| count == head.len()));
            self.left = Some(BODY);
        }
        if let Some(left) = self.left.filter(|left| *left > 0) {
            let path = self.input.split(|byte| *byte == b' ').nth(1).expect("a target");
            let id: usize = path
                .strip_prefix(b"/r/")
                .and_then(|id| str::from_utf8(id).ok()?.parse().ok())
                .expect("an id");
            let count = self.peer.write(&bodies[id][BODY - left..]).unwrap_or(0);
            self.left = Some(left - count);
            if left == count {
                // Another one may follow.
                self.input.clear();
                self.left = None;
            }
        }
    }
}

impl FramedGuest {
    /// Takes received bytes, and writes as long as nothing is unwritten: how many bytes it took.
    fn act(&mut self, input: &[u8], bodies: &[Vec<u8>], now: Duration) -> usize {
        let mut at = 0;
        loop {
            let received = self
                .connection
                .receive(&input[at..], now, &mut self.heads, &mut self.out);
            let step = received.expect("the gateway writes what is right");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Request { stream, head, .. } => {
                    let id = head.target.path().strip_prefix("/r/").expect("a request's id");
                    let id = id.parse().expect("a number");
                    let mut head = self
                        .connection
                        .respond(stream, 200, &mut self.out)
                        .expect("an open stream");
                    head.length(BODY as u64);
                    head.finish(false);
                    self.open.push((stream, id, 0));
                }
                _ => {}
            }
        }
        let connection = &mut self.connection;
        self.open
            .retain(|(stream, _, sent)| connection.is_open(*stream) && *sent < BODY);
        for (stream, id, sent) in &mut self.open {
            if !self.out.is_empty() {
                break;
            }
            let end = BODY.min(*sent + NETWORK);
            let piece = &bodies[*id as usize][*sent..end];
            *sent += connection
                .data(*stream, piece, end == BODY, &mut self.out)
                .unwrap_or(0);
        }
        // The next time it is another stream's turn.
        if self.open.len() > 1 {
            self.open.rotate_left(1);
        }
        at
    }
}
