//! Simulated clients of HTTP/2: each has several requests on their way at once, gives some up, reads when it likes, and checks that
//! every stream gets its own answer.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, World};
use ringmain_web::testing::ReplyReader;
use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, Request, Role, Stream};

use crate::clients::{Habits, LIVE_BYTES, LIVE_PAUSE, LIVE_PAUSES, Weather, draw_pause};
use crate::policy_services::Asked;
use crate::request::{self, Ask, Timeouts};

/// A request on its way.
struct Open {
    stream: Stream,
    ask: Ask,
    /// Bytes of its body that were sent.
    sent: usize,
    ended: bool,
    /// The number of pauses left within its body, and the end of the current one.
    pauses: u32,
    paused: Option<Time>,
    /// The instant at which it was sent in full.
    whole: Option<Time>,
    /// Its answer as a client of HTTP/1.1 would have it, but for how long its body is.
    head: Vec<u8>,
    body: Vec<u8>,
    over: bool,
}

/// See the module.
pub(crate) struct FramedClient {
    peer: Peer,
    wire: Connection,
    heads: HeadBuffer,
    input: Vec<u8>,
    out: Vec<u8>,
    asks: VecDeque<Ask>,
    open: Vec<Open>,
    /// Bodies whose length is not announced are live streams: a few bytes at a time, with pauses.
    is_live: bool,
    pub(crate) timeouts: Timeouts,
    /// Requests at once.
    width: usize,
    written: usize,
    /// Bytes after which it resets the connection.
    limit: usize,
    /// One in so many steps it wants an answer no more; 0: it wants all.
    fickle: usize,
    stuck: bool,
    away: bool,
    pub(crate) right: usize,
    answered: usize,
    pub(crate) done: bool,
    asked: Asked,
}

impl FramedClient {
    /// A client with these requests; a calm one wants all responses.
    pub(crate) fn new(
        world: &World,
        peer: Peer,
        asks: VecDeque<Ask>,
        habits: Habits,
        asked: &Asked,
    ) -> FramedClient {
        let calm = habits.calm;
        let limits = Limits {
            stream_window: [100, 5000, 1 << 20][world.below(3)],
            ..Limits::INTERNET
        };
        let mut out = Vec::new();
        FramedClient {
            peer,
            wire: Connection::new(Role::Client, &limits, Duration::ZERO, &mut out),
            heads: HeadBuffer::new(&limits),
            input: Vec::new(),
            out,
            width: 1 + world.below(5),
            written: 0,
            limit: match world.below(8) {
                0 if !calm => world.below(3_000),
                _ => usize::MAX,
            },
            fickle: if calm { 0 } else { [0, 30, 300][world.below(3)] },
            asks,
            open: Vec::new(),
            is_live: habits.live && world.below(2) == 0,
            timeouts: [0; 2],
            stuck: false,
            away: false,
            right: 0,
            answered: 0,
            done: false,
            asked: asked.clone(),
        }
    }

    /// The request that is waited for, and for how long.
    pub(crate) fn waits(&self, now: Time) -> Option<(u64, Duration)> {
        let mut waiting = self.open.iter().filter(|open| !open.over);
        let (open, whole) = waiting.find_map(|open| Some((open, open.whole?)))?;
        let waits = !self.done && self.peer.readable() == 0;
        waits.then(|| (open.ask.id, now.since(whole)))
    }

    /// Returns the instant at which it continues with a body after a pause.
    pub(crate) fn due(&self) -> Option<Time> {
        let paused = self.open.iter().filter(|open| !open.ended);
        paused.filter_map(|open| open.paused).min()
    }

    pub(crate) fn failed(&self) -> usize {
        self.answered - self.right
    }

    /// Returns whether it acts before time advances.
    pub(crate) fn is_busy(&self) -> bool {
        let writes = !self.out.is_empty() && !self.stuck;
        let finished = self.asks.is_empty() && self.open.is_empty();
        let acts = finished || self.peer.readable() > 0 || writes || self.may_begin() || self.may_push();
        !self.done && acts
    }

    fn may_begin(&self) -> bool {
        !self.asks.is_empty() && self.open.len() < self.width && !self.away && self.wire.can_open()
    }

    fn may_push(&self) -> bool {
        let pushes = |open: &Open| {
            let all = open.sent == open.ask.body.len();
            let acts = !open.ended && open.paused.is_none();
            acts && self.wire.is_open(open.stream) && (all || self.wire.window(open.stream) > 0)
        };
        self.open.iter().any(pushes)
    }

    /// One step.
    pub(crate) fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if self.done {
            return Ok(());
        }
        if self.may_begin() {
            self.begin(world);
        }
        self.push(world);
        self.write(world);
        if self.written >= self.limit {
            self.peer.reset();
            self.done = true;
            return Ok(());
        }
        self.read(world, weather)?;
        if self.fickle > 0 && world.below(self.fickle) == 0 && !self.open.is_empty() {
            // It is not wanted any more.
            let open = self.open.swap_remove(world.below(self.open.len()));
            self.wire.reset(open.stream, ErrorCode::CANCEL, &mut self.out);
        }
        self.end(world, weather)
    }

    fn begin(&mut self, world: &World) {
        let Some(ask) = self.asks.pop_front() else { return };
        let mut fields = FieldBlock::new();
        let id = ask.id.to_string();
        fields.push("X-Id", id.as_bytes()).expect("a field");
        for line in self.asked.fields(ask.id).lines() {
            let (name, value) = line.split_once(": ").expect("a field");
            fields.push(name, value.as_bytes()).expect("a field");
        }
        let has_body = matches!(ask.method, "POST" | "PUT");
        let path = format!("/r/{id}?n={}", ask.length);
        let request = Request {
            method: Method::new(ask.method),
            scheme: "http",
            authority: "sim",
            path: &path,
            protocol: None,
        };
        let length = has_body.then_some(ask.body.len() as u64);
        let length = length.filter(|length| length % 2 == 0);
        let is_live = self.is_live && has_body && length.is_none();
        let stream = self
            .wire
            .request(&request, &fields, length, !has_body, &mut self.out);
        self.asked.send(ask.id, world.now());
        self.open.push(Open {
            stream: stream.expect("it may be opened"),
            ask,
            sent: 0,
            ended: !has_body,
            pauses: if is_live { LIVE_PAUSES } else { 0 },
            paused: None,
            whole: (!has_body).then(|| world.now()),
            head: Vec::new(),
            body: Vec::new(),
            over: false,
        });
    }

    /// Sends parts of bodies, as far as windows let them through.
    fn push(&mut self, world: &World) {
        for open in self.open.iter_mut().filter(|open| !open.ended) {
            if open.paused.is_some_and(|until| world.now() >= until) {
                open.paused = None;
            }
            if open.paused.is_some() && self.wire.is_open(open.stream) {
                continue;
            }
            let left = open.ask.body.len() - open.sent;
            let most = if open.pauses > 0 { LIVE_BYTES } else { 3000 };
            let piece = left.min(1 + world.below(most));
            let last = piece == left;
            let data = &open.ask.body[open.sent..open.sent + piece];
            // A request that was answered early is finished.
            match self.wire.data(open.stream, data, last, &mut self.out) {
                Ok(sent) => {
                    open.sent += sent;
                    open.ended = last && sent == piece;
                    if open.pauses > 0 && sent > 0 && !open.ended {
                        open.pauses -= 1;
                        open.paused = Some(world.now().after(draw_pause(world, LIVE_PAUSE)));
                    }
                }
                Err(_) => open.ended = true,
            }
            if open.ended {
                open.whole = Some(world.now());
            }
        }
    }

    fn write(&mut self, world: &World) {
        if self.out.is_empty() {
            return;
        }
        let most = self.out.len().min(1 + world.below(4000));
        let count = self.peer.write(&self.out[..most]).unwrap_or(0);
        self.stuck = count == 0;
        self.written += count;
        self.out.drain(..count);
    }

    fn read(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        self.input.extend(self.peer.read(1 + world.below(6000)));
        let mut at = 0;
        loop {
            let input = &self.input[at..];
            let step = self
                .wire
                .receive(input, Duration::ZERO, &mut self.heads, &mut self.out)
                .map_err(|fault| fault.to_string())?;
            at += step.consumed;
            let find = |stream: Stream| move |open: &&mut Open| open.stream == stream;
            match step.event {
                Event::NeedMore => break,
                Event::Response { stream, head, end } => {
                    if let Some(open) = self.open.iter_mut().find(find(stream)) {
                        open.head = format!("HTTP/1.1 {} x\r\n", head.status).into_bytes();
                        for field in head.fields.iter().filter(|field| field.name != b"content-length") {
                            open.head
                                .extend([field.name, b": ", field.value, b"\r\n"].concat());
                        }
                        open.over = end;
                    }
                }
                Event::Data { stream, data, end } => {
                    if let Some(open) = self.open.iter_mut().find(find(stream)) {
                        open.body.extend_from_slice(data);
                        open.over = end;
                    }
                    let bytes = data.len();
                    self.wire.consume(stream, bytes, &mut self.out);
                }
                Event::Trailers { stream, .. } => {
                    if let Some(open) = self.open.iter_mut().find(find(stream)) {
                        open.over = true;
                    }
                }
                Event::Reset { stream, code } => {
                    let place = self.open.iter().position(|open| open.stream == stream);
                    if let Some(place) = place.filter(|place| !self.open[*place].over) {
                        let open = self.open.swap_remove(place);
                        self.answered += 1;
                        if !weather.broken {
                            return Err(format!("{} {}: {code}", open.ask.method, open.ask.id));
                        }
                    }
                }
                Event::GoAway { code, .. } => {
                    if code != ErrorCode::NO_ERROR {
                        return Err(format!("sent away: {code}"));
                    }
                    self.away = true;
                }
                Event::Window { .. } | Event::Settings | Event::Pong { .. } => {}
                other => return Err(format!("{other:?}")),
            }
        }
        self.input.drain(..at);
        Ok(())
    }

    /// Removes finished requests, and closes when all are finished or the gateway has closed.
    fn end(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        let mut place = 0;
        while let Some(open) = self.open.get(place) {
            if open.over && (open.ended || !self.wire.is_open(open.stream)) {
                let open = self.open.swap_remove(place);
                let waited = open.whole.map(|whole| world.now().since(whole));
                self.right += usize::from(self.check(&open, weather, waited)?);
                self.answered += 1;
            } else if !self.wire.is_open(open.stream) && self.away {
                // It was not taken any more.
                self.open.swap_remove(place);
            } else {
                place += 1;
            }
        }
        if self.peer.failed() || (self.peer.eof() && self.peer.readable() == 0) {
            self.done = true;
            self.peer.close();
            let owed = self.open.len() + self.asks.len();
            return if weather.broken || self.away || owed == 0 {
                Ok(())
            } else {
                Err(format!("ended with {owed} requests unanswered"))
            };
        }
        if self.open.is_empty() && (self.asks.is_empty() || self.away) {
            self.peer.close();
            self.done = true;
        }
        Ok(())
    }

    fn check(&mut self, open: &Open, weather: Weather, waited: Option<Duration>) -> Result<bool, String> {
        let ask = &open.ask;
        let mut reader = ReplyReader::new();
        reader.feed(&open.head);
        let length = format!("Content-Length: {}\r\n\r\n", open.body.len());
        reader.feed(length.as_bytes());
        reader.feed(&open.body);
        let reply = reader
            .next(if open.body.is_empty() { "HEAD" } else { "GET" })
            .map_err(|error| format!("to {}: {error}", ask.id))?
            .ok_or_else(|| format!("to {}: no answer", ask.id))?;
        request::count(&reply, &mut self.timeouts);
        ask.check(&reply, weather, &self.asked, waited)
            .map_err(|error| format!("{} {} by HTTP/2: {error}", ask.method, ask.id))
    }
}

impl std::fmt::Debug for FramedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.open.iter().map(|open| {
            let (ask, stream) = (&open.ask, open.stream.id());
            let (sent, came, over) = (open.sent, open.body.len(), open.over);
            let body = ask.body.len();
            format!(
                "{stream}: {} {} {sent}/{body} {came} over {over}",
                ask.method, ask.id
            )
        });
        f.debug_struct("FramedClient")
            .field("peer", &self.peer)
            .field("open", &open.collect::<Vec<_>>())
            .field("to ask", &self.asks.len())
            .field("out", &self.out.len())
            .field("written", &self.written)
            .field("away", &self.away)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}
