//! Services over gRPC, authorization, rate limits and external processing: slow, unavailable, invalid, resetting.

use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, PeerListener, World};
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, Role, Stream};

use super::authz::{Verdicts, refusal, told, user};
use super::authz_messages::{self as proto, Check};
use super::processing;
use super::rate_limits::{self, limited, plan};
use super::rate_messages;
use super::service::{Mood, Trade};
use crate::fingerprint;

/// A call that has not ended.
struct Open {
    stream: Stream,
    body: Vec<u8>,
    /// The request that a stream of messages is about.
    id: u64,
    /// The last message of such a stream is the head of the response.
    is_response: bool,
    /// The response has begun.
    is_started: bool,
    due: Option<(Time, How, u64)>,
}

/// The way in which a call ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Whole,
    /// An invalid response that seems to allow the request.
    Lie(u32),
    Failure,
    Reset(ErrorCode),
    /// The connection breaks within the response.
    Cut,
    Mute,
}

struct Guest {
    kind: Kind,
    peer: Peer,
    connection: Connection,
    heads: HeadBuffer,
    kept: Vec<u8>,
    out: Vec<u8>,
    open: Vec<Open>,
    /// Bytes that are written at once.
    piece: usize,
    /// Decisions that are in `out`.
    told: Vec<(u64, bool)>,
    stuck: bool,
    /// Cut once `out` is written.
    cut: bool,
    done: bool,
}

/// The kind of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Authz,
    Limiter,
    /// A stream: each message has a response.
    Processor,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::Authz => "/envoy.service.auth.v3.Authorization/Check",
            Kind::Limiter => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Kind::Processor => "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
        }
    }

    /// Reads a query: the request that it is about. Its facts must be right.
    fn question(self, open: &mut Open) -> u64 {
        match self {
            Kind::Authz => question(&open.body),
            Kind::Limiter => rate_limits::question(&open.body),
            Kind::Processor => {
                (open.id, open.is_response) = processing::question(&open.body, open.id);
                open.body.clear();
                open.id
            }
        }
    }

    /// Returns the true response, and whether it admits the request. `favoured`: it must.
    fn truth(self, id: u64, favoured: bool) -> (Vec<u8>, bool) {
        match self {
            Kind::Authz => match refusal(id).filter(|_| !favoured) {
                Some(status) => (
                    proto::denied(status.into(), &[("location", "/login")], &told(id)),
                    false,
                ),
                None => (proto::ok(&[proto::set("x-user", &user(id))]), true),
            },
            Kind::Limiter if limited(id) && !favoured => {
                let parts = [
                    rate_messages::response_header("x-limited", "yes"),
                    rate_messages::raw_body(&told(id)),
                ];
                (rate_messages::over_limit(&parts), false)
            }
            Kind::Limiter => (
                rate_messages::ok(&[rate_messages::request_header("x-plan", &plan(id))]),
                true,
            ),
            Kind::Processor => processing::truth(id, favoured),
        }
    }

    /// Returns a response that would admit a request with another identity.
    fn root(self) -> Vec<u8> {
        match self {
            Kind::Authz => proto::ok(&[proto::set("x-user", "root")]),
            Kind::Limiter => rate_messages::ok(&[rate_messages::request_header("x-plan", "root")]),
            Kind::Processor => processing::root(),
        }
    }

    /// Returns the same with a header that the gateway writes itself.
    fn forbidden(self) -> Vec<u8> {
        let change = match self {
            Kind::Authz => return proto::ok(&[proto::set("x-user", "root"), proto::set(":path", "/admin")]),
            Kind::Limiter => rate_messages::request_header("host", "admin.example"),
            Kind::Processor => return processing::forbidden(),
        };
        [self.root(), change].concat()
    }
}

/// The most outages of a service.
const FLAPS: u32 = 10;

/// See the module.
pub(super) struct GrpcVerdicts {
    kind: Kind,
    world: World,
    addr: Addr,
    /// `None` while it is gone.
    listener: Option<PeerListener>,
    flap: Option<(Time, u32)>,
    random: fastrand::Rng,
    mood: Mood,
    guests: Vec<Guest>,
    pub(super) trade: Verdicts,
}

impl GrpcVerdicts {
    pub(super) fn new(kind: Kind, world: &World, addr: Addr, seed: u64, mood: Mood) -> GrpcVerdicts {
        let mut random = fastrand::Rng::with_seed(seed);
        let flaps = mood == Mood::Bad && random.u32(0..2) == 0;
        let first = world.now().after(span(&mut random));
        GrpcVerdicts {
            kind,
            world: world.clone(),
            listener: Some(world.peer_listen(&addr)),
            addr,
            flap: flaps.then_some((first, FLAPS)),
            random,
            mood,
            guests: Vec::new(),
            trade: Verdicts::default(),
        }
    }

    /// From now on it is like that, and stays there.
    pub(super) fn become_(&mut self, mood: Mood) {
        self.mood = mood;
        self.flap = None;
        if self.listener.is_none() {
            self.listener = Some(self.world.peer_listen(&self.addr));
        }
    }

    /// Returns the instant of its next action.
    pub(super) fn due(&self) -> Option<Time> {
        let now = self.world.now();
        let guests = self.guests.iter().filter_map(|guest| guest.due(now));
        guests.chain(self.flap.map(|(at, _)| at)).min()
    }

    /// Ends all connections and is gone.
    pub(super) fn close(&mut self) {
        self.flap = None;
        self.act();
        self.guests.drain(..).for_each(|guest| guest.peer.close());
        if let Some(listener) = self.listener.take() {
            listener.close();
        }
    }

    /// Performs all actions that are due.
    pub(super) fn act(&mut self) {
        self.flap();
        let now = self.world.now();
        while let Some(peer) = self.listener.as_ref().and_then(PeerListener::accept) {
            let piece = match self.random.u32(0..4) {
                0 => self.random.usize(1..60),
                _ => usize::MAX,
            };
            self.guests.push(Guest::new(self.kind, peer, piece, now));
        }
        for at in 0..self.guests.len() {
            self.serve(at, now);
        }
        self.guests.retain(|guest| !guest.done);
    }

    fn serve(&mut self, at: usize, now: Time) {
        let guest = &mut self.guests[at];
        if guest.peer.failed() {
            return guest.close();
        }
        let bytes = guest.peer.read(usize::MAX);
        guest.kept.extend_from_slice(&bytes);
        for stream in guest.hear(now) {
            let (due, how) = self.plan(now);
            let mut calls = self.guests[at].open.iter_mut();
            if let Some(open) = calls.find(|open| open.stream == stream) {
                let id = self.kind.question(open);
                open.due = Some((due, how, id));
            }
        }
        let guest = &mut self.guests[at];
        guest.respond(now, &self.trade);
        guest.write(now, &mut self.trade);
        if !guest.done && guest.peer.eof() {
            guest.close();
        }
    }

    /// Draws the end of a call.
    fn plan(&mut self, now: Time) -> (Time, How) {
        let random = &mut self.random;
        let soon = now.after(Duration::from_micros(random.u64(10..40)));
        let late = now.after(Duration::from_micros(random.u64(10..20_000)));
        match self.mood {
            Mood::Late => {
                let span = Duration::from_millis(random.u64(1_000..8_000));
                (now.after(span), How::Whole)
            }
            Mood::Good if random.u32(0..4) == 0 => (late, How::Whole),
            Mood::Good => (soon, How::Whole),
            Mood::Bad => match random.u32(0..16) {
                0..3 => (soon, How::Lie(random.u32(0..LIES))),
                3 => (soon, How::Cut),
                4 => (soon, How::Mute),
                5 => (soon, How::Failure),
                6 => (soon, How::Reset(ErrorCode::INTERNAL_ERROR)),
                7 => (soon, How::Reset(ErrorCode::REFUSED_STREAM)),
                8 => {
                    let span = Duration::from_millis(random.u64(20..8_000));
                    (now.after(span), How::Whole)
                }
                9 => (late, How::Whole),
                _ => (soon, How::Whole),
            },
        }
    }

    /// Goes down, with its connections or for new ones only, or recovers.
    fn flap(&mut self) {
        let now = self.world.now();
        let Some((_, left)) = self.flap.filter(|(at, _)| *at <= now) else {
            return;
        };
        let next = now.after(span(&mut self.random));
        self.flap = (left > 1).then_some((next, left - 1));
        let Some(listener) = self.listener.take() else {
            self.listener = Some(self.world.peer_listen(&self.addr));
            return;
        };
        listener.close();
        match self.random.u32(0..3) {
            0 => {
                self.trade.cut();
                self.guests.drain(..).for_each(|guest| guest.peer.reset());
            }
            1 => self.guests.drain(..).for_each(|guest| guest.peer.close()),
            _ => {}
        }
    }
}

/// Draws the duration of an outage or of the time between two.
fn span(random: &mut fastrand::Rng) -> Duration {
    Duration::from_micros(random.u64(10..200_000))
}

/// Reads a query: the request that it is about. Its facts must be right.
fn question(framed: &[u8]) -> u64 {
    let check = Check::parse(framed);
    let path = check.get("path").expect("a path");
    let id = path.strip_prefix("/r/").and_then(|rest| rest.split('?').next());
    let id: u64 = id.and_then(|id| id.parse().ok()).expect("an id");
    assert_eq!(check.get("x-user"), None, "what only it may say");
    assert_eq!(check.get("x-id"), Some(&*id.to_string()));
    let body = [check.get("body").unwrap_or_default().as_bytes(), &check.raw_body].concat();
    let expected = fingerprint::pattern(id ^ 0xb0d7, body.len());
    assert_eq!(body, expected, "the body of {id}");
    id
}

/// Returns whether there is a whole message.
fn is_whole(body: &[u8]) -> bool {
    let length = body.get(1..5).and_then(|length| length.try_into().ok());
    length.is_some_and(|length| body.len() == 5 + u32::from_be_bytes(length) as usize)
}

/// The number of kinds of lies.
const LIES: u32 = 9;

impl Guest {
    fn new(kind: Kind, peer: Peer, piece: usize, now: Time) -> Guest {
        let mut out = Vec::new();
        let limits = Limits::INTERNET;
        let connection = Connection::new(Role::Server, &limits, Duration::from_nanos(now.0), &mut out);
        Guest {
            kind,
            peer,
            connection,
            heads: HeadBuffer::new(&limits),
            kept: Vec::new(),
            out,
            open: Vec::new(),
            piece,
            told: Vec::new(),
            stuck: false,
            cut: false,
            done: false,
        }
    }

    fn close(&mut self) {
        self.done = true;
        self.peer.close();
    }

    fn due(&self, now: Time) -> Option<Time> {
        if self.peer.readable() > 0 || self.peer.eof() || self.peer.failed() {
            return Some(now);
        }
        if !self.out.is_empty() && !self.stuck {
            return Some(now.after(Duration::from_micros(1)));
        }
        let calls = self.open.iter().filter_map(|open| open.due);
        calls
            .filter(|(_, how, _)| *how != How::Mute)
            .map(|(at, ..)| at)
            .min()
    }

    /// Reads received bytes. Returns the streams of complete calls.
    fn hear(&mut self, now: Time) -> Vec<Stream> {
        let input = std::mem::take(&mut self.kept);
        let (mut at, mut complete) = (0, Vec::new());
        loop {
            let time = Duration::from_nanos(now.0);
            let step = self
                .connection
                .receive(&input[at..], time, &mut self.heads, &mut self.out)
                .expect("the gateway writes what is right");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Request { stream, head, end } => {
                    assert_eq!(head.target.path(), self.kind.path());
                    let is_stream = self.kind == Kind::Processor;
                    assert!(head.fields.get("grpc-timeout").is_none() == is_stream && !end);
                    self.open.push(Open {
                        stream,
                        body: Vec::new(),
                        id: 0,
                        is_response: false,
                        is_started: false,
                        due: None,
                    });
                }
                Event::Data { stream, data, end } => {
                    self.connection.consume(stream, data.len(), &mut self.out);
                    if let Some(open) = self.open.iter_mut().find(|open| open.stream == stream) {
                        open.body.extend_from_slice(data);
                        let is_complete = match self.kind {
                            Kind::Processor => !data.is_empty() && is_whole(&open.body),
                            Kind::Authz | Kind::Limiter => end,
                        };
                        complete.extend(is_complete.then_some(stream));
                    }
                }
                Event::Broken { fault, .. } => panic!("the gateway broke a rule: {fault}"),
                _ => {}
            }
        }
        self.kept = input[at..].to_vec();
        let connection = &self.connection;
        self.open.retain(|open| connection.is_open(open.stream));
        complete.retain(|stream| connection.is_open(*stream));
        complete
    }

    /// Ends the calls that are due, or responds to their messages.
    fn respond(&mut self, now: Time, trade: &Verdicts) {
        let is_due = |open: &mut Open| open.due.is_some_and(|(at, how, _)| at <= now && how != How::Mute);
        let due: Vec<Open> = self.open.extract_if(.., is_due).collect();
        for mut open in due {
            let (stream, Some((_, how, id))) = (open.stream, open.due.take()) else {
                continue;
            };
            if self.cut || !self.connection.is_open(stream) {
                continue;
            }
            let (truth, admits) = match open.is_response {
                true => (processing::response(), true),
                false => self.kind.truth(id, trade.favoured.contains(&id)),
            };
            match how {
                How::Mute => {}
                How::Whole if self.kind == Kind::Processor => {
                    self.begin(&open);
                    self.data(stream, &proto::framed(&truth), false);
                    if !open.is_response {
                        self.told.push((id, admits));
                    }
                    open.is_started = true;
                    self.open.push(open);
                }
                How::Whole => {
                    self.message(stream, &proto::framed(&truth), &[("grpc-status", "0")]);
                    self.told.push((id, admits));
                }
                // Only the end of a unary call makes these a lie: in a stream the message is that of another part.
                How::Lie(0 | 1 | 3) if self.kind == Kind::Processor => {
                    self.begin(&open);
                    self.data(
                        stream,
                        &proto::framed(&processing::misplaced(open.is_response)),
                        false,
                    );
                }
                How::Lie(_) if open.is_started => {
                    self.connection
                        .reset(stream, ErrorCode::INTERNAL_ERROR, &mut self.out);
                }
                How::Lie(kind) => self.lie(stream, kind),
                How::Failure if open.is_started => self.trailers(stream, &[("grpc-status", "14")]),
                How::Failure => {
                    let fields = [("grpc-status", "14"), ("content-type", "application/grpc")];
                    self.head(stream, &fields, true);
                }
                How::Reset(code) => self.connection.reset(stream, code, &mut self.out),
                How::Cut => {
                    self.begin(&open);
                    self.data(stream, &proto::framed(&truth), false);
                    self.cut = true;
                }
            }
        }
    }

    /// Sends the head of a response, unless it was sent.
    fn begin(&mut self, open: &Open) {
        if !open.is_started {
            self.head(open.stream, &[("content-type", "application/grpc")], false);
        }
    }

    /// An invalid response, which would allow the request if it were valid.
    fn lie(&mut self, stream: Stream, kind: u32) {
        let root = proto::framed(&self.kind.root());
        let status = [("grpc-status", "0")];
        match kind {
            0 => self.message(stream, &root, &[("grpc-status", "13")]),
            1 => self.message(stream, &root, &[]),
            2 => self.message(stream, &root[..root.len() - 1], &status),
            3 => self.message(stream, &root.repeat(2), &status),
            4 => self.message(stream, &proto::framed(&[]), &status),
            5 => {
                let mut compressed = root;
                compressed[0] = 1;
                self.message(stream, &compressed, &status);
            }
            6 => self.message(stream, &proto::framed(&self.kind.forbidden()), &status),
            7 => {
                self.head(
                    stream,
                    &[("content-type", "text/html"), ("grpc-status", "0")],
                    false,
                );
                self.data(stream, &root, true);
            }
            _ => {
                let mut long = root;
                long[1..5].copy_from_slice(&(1u32 << 20).to_be_bytes());
                self.message(stream, &long, &status);
            }
        }
    }

    fn message(&mut self, stream: Stream, framed: &[u8], trailers: &[(&str, &str)]) {
        self.head(stream, &[("content-type", "application/grpc")], false);
        self.data(stream, framed, trailers.is_empty());
        if !trailers.is_empty() {
            self.trailers(stream, trailers);
        }
    }

    fn trailers(&mut self, stream: Stream, fields: &[(&str, &str)]) {
        let mut block = FieldBlock::new();
        for (name, value) in fields {
            block.push(name, value.as_bytes()).expect("a field");
        }
        let sent = self.connection.trailers(stream, &block, &mut self.out);
        sent.expect("an open stream");
    }

    fn head(&mut self, stream: Stream, fields: &[(&str, &str)], end: bool) {
        let head = self.connection.respond(stream, 200, &mut self.out);
        let mut head = head.expect("an open stream");
        for (name, value) in fields {
            head.field(name, value.as_bytes()).expect("a field");
        }
        head.finish(end);
    }

    fn data(&mut self, stream: Stream, bytes: &[u8], end: bool) {
        let sent = self.connection.data(stream, bytes, end, &mut self.out);
        assert_eq!(sent.ok(), Some(bytes.len()), "a response fits the window");
    }

    fn write(&mut self, now: Time, trade: &mut Verdicts) {
        let piece = self.out.len().min(self.piece);
        let Ok(count) = self.peer.write(&self.out[..piece]) else {
            return self.close();
        };
        self.out.drain(..count);
        self.stuck = count < piece;
        if self.out.is_empty() {
            for told in self.told.drain(..) {
                trade.told(told, now, Duration::ZERO);
            }
            if self.cut {
                self.peer.reset();
                self.close();
            }
        }
    }
}
