//! Simulated HTTP/2 clients: each has several requests in flight, with bodies in parts, resets some, reads at its own pace, and
//! checks that every stream gets its own complete response.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_sim::World;
use ringmain_web::Limits;
use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{self, Connection, ErrorCode, Event, HeadBuffer, Request, Role, Stream};

use crate::app::{EVENTS, account, event, pattern};
use crate::clients::Weather;
use crate::link::Link;

/// Ways to be answered: the path, whether it has a body.
const KINDS: [(&str, bool); 10] = [
    ("plain", false),
    ("frame", false),
    ("sleep", false),
    ("download", false),
    ("events", false),
    ("collect", true),
    ("collected", true),
    ("stream", true),
    ("echo", true),
    ("first", true),
];

/// One request, and its response so far.
struct Ask {
    id: u64,
    kind: &'static str,
    target: String,
    body: Vec<u8>,
    has_body: bool,
    expected: Vec<u8>,
    /// Bytes of the body that were sent; the end with them.
    sent: usize,
    ended: bool,
    status: u16,
    came: Vec<u8>,
    over: bool,
}

/// See the module.
pub(crate) struct StreamClient {
    peer: Link,
    wire: Connection,
    heads: HeadBuffer,
    input: Vec<u8>,
    out: Vec<u8>,
    asks: VecDeque<Ask>,
    open: Vec<(Stream, Ask)>,
    /// Requests at once.
    width: usize,
    /// Bytes written in all, and after how many it resets the connection.
    written: usize,
    limit: usize,
    stuck: bool,
    away: bool,
    answered: usize,
    pub(crate) done: bool,
}

impl Ask {
    fn draw(world: &World, id: u64, most: usize, limits: &Limits) -> Ask {
        let (kind, has_body) = KINDS[world.below(KINDS.len())];
        let length = world.below(most.min(limits.body_bytes as usize) + 1);
        let body = if has_body { pattern(id, length) } else { Vec::new() };
        let events = || (0..EVENTS).map(|number| format!("data: {}\n\n", event(id, number)));
        let expected = match kind {
            "events" => events().collect::<String>().into_bytes(),
            "echo" => body.clone(),
            "first" => format!("first {}", account(id, &body)).into_bytes(),
            _ if has_body => account(id, &body).into_bytes(),
            _ => pattern(id, length),
        };
        let (ms, piece) = ([0, 0, 1, 7, 40][world.below(5)], 1 + length / 10);
        let (sized, frames) = (world.below(2), world.below(2));
        Ask {
            id,
            kind,
            target: format!("/{kind}/{id}?n={length}&ms={ms}&piece={piece}&sized={sized}&frames={frames}"),
            body,
            has_body,
            expected,
            sent: 0,
            ended: false,
            status: 0,
            came: Vec::new(),
            over: false,
        }
    }

    /// Checks that it was answered with the expected response.
    fn check(&self, weather: Weather) -> Result<(), String> {
        let right = self.status == 200 && self.came == self.expected;
        let busy = self.status == 503 && weather.crowded;
        // A stream of events ends with the process.
        let ended = self.kind == "events" && weather.draining && self.expected.starts_with(&self.came);
        if right || busy || ended {
            return Ok(());
        }
        let (id, kind, status) = (self.id, self.kind, self.status);
        let (came, expected) = (self.came.len(), self.expected.len());
        Err(format!(
            "{kind} {id}: {status} with {came} bytes, not {expected} that are right"
        ))
    }
}

impl StreamClient {
    /// A client of some requests, whose ids follow `id`; `most`: bytes of a body.
    pub(crate) fn new(
        world: &World,
        peer: Link,
        ids: std::ops::Range<u64>,
        most: usize,
        app: &Limits,
    ) -> StreamClient {
        let limits = h2::Limits {
            stream_window: [100, 5000, 1 << 20][world.below(3)],
            ..h2::Limits::INTERNET
        };
        let mut out = Vec::new();
        let asks: VecDeque<Ask> = ids.map(|id| Ask::draw(world, id, most, app)).collect();
        StreamClient {
            peer,
            wire: Connection::new(Role::Client, &limits, Duration::ZERO, &mut out),
            heads: HeadBuffer::new(&limits),
            input: Vec::new(),
            out,
            width: 1 + world.below(6),
            written: 0,
            limit: if world.below(5) == 0 {
                world.below(most * 4 + 500)
            } else {
                usize::MAX
            },
            asks,
            open: Vec::new(),
            stuck: false,
            away: false,
            answered: 0,
            done: false,
        }
    }

    pub(crate) fn answered(&self) -> usize {
        self.answered
    }

    /// Returns true if time must not jump: the client would act at the current time.
    pub(crate) fn is_busy(&self) -> bool {
        let writes = !self.out.is_empty() && (!self.stuck || self.peer.takes());
        let finished = self.asks.is_empty() && self.open.is_empty();
        !self.done && (self.peer.is_busy() || writes || finished || self.may_begin() || self.may_push())
    }

    fn may_begin(&self) -> bool {
        !self.asks.is_empty() && self.open.len() < self.width && self.wire.can_open()
    }

    fn may_push(&self) -> bool {
        let pushes = |(stream, ask): &(Stream, Ask)| {
            !ask.ended && (self.wire.window(*stream) > 0 || ask.sent == ask.body.len())
        };
        self.open.iter().any(pushes)
    }

    /// One step.
    pub(crate) fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if self.done {
            return Ok(());
        }
        if let Some(fault) = self.peer.fault() {
            return Err(fault.to_owned());
        }
        if self.may_begin() {
            self.begin();
        }
        self.push(world);
        self.write(world);
        if self.written >= self.limit {
            self.peer.reset();
            self.done = true;
            return Ok(());
        }
        self.read(world, weather)?;
        if world.below(300) == 0 && !self.open.is_empty() {
            // It is not wanted any more.
            let (stream, _) = self.open.swap_remove(world.below(self.open.len()));
            self.wire.reset(stream, ErrorCode::CANCEL, &mut self.out);
        }
        self.end(weather)
    }

    fn begin(&mut self) {
        let Some(ask) = self.asks.pop_front() else { return };
        let mut fields = FieldBlock::new();
        fields
            .push("X-Id", ask.id.to_string().as_bytes())
            .expect("a field");
        let request = Request {
            method: if ask.has_body { Method::Post } else { Method::Get },
            scheme: "http",
            authority: "sim",
            path: &ask.target,
            protocol: None,
        };
        let length = ask
            .has_body
            .then_some(ask.body.len() as u64)
            .filter(|length| length % 2 == 0);
        let stream = self
            .wire
            .request(&request, &fields, length, !ask.has_body, &mut self.out);
        let ask = Ask {
            ended: !ask.has_body,
            ..ask
        };
        self.open.push((stream.expect("it may be opened"), ask));
    }

    /// Sends parts of bodies, as far as windows let them through.
    fn push(&mut self, world: &World) {
        for (stream, ask) in self.open.iter_mut().filter(|(_, ask)| !ask.ended) {
            let left = ask.body.len() - ask.sent;
            let piece = left.min(1 + world.below(3000));
            let last = piece == left;
            let data = &ask.body[ask.sent..ask.sent + piece];
            // A stream that the server has answered early is closed.
            match self.wire.data(*stream, data, last, &mut self.out) {
                Ok(sent) => {
                    ask.sent += sent;
                    ask.ended = last && sent == piece;
                }
                Err(_) => ask.ended = true,
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
            let find = |stream: Stream| move |(other, _): &&mut (Stream, Ask)| *other == stream;
            match step.event {
                Event::NeedMore => break,
                Event::Response { stream, head, end } => {
                    if let Some((_, ask)) = self.open.iter_mut().find(find(stream)) {
                        (ask.status, ask.over) = (head.status, end);
                    }
                }
                Event::Data { stream, data, end } => {
                    if let Some((_, ask)) = self.open.iter_mut().find(find(stream)) {
                        ask.came.extend_from_slice(data);
                        ask.over = end;
                    }
                    let bytes = data.len();
                    self.wire.consume(stream, bytes, &mut self.out);
                }
                Event::Reset { stream, code } => {
                    let place = self.open.iter().position(|(other, _)| *other == stream);
                    if let Some(place) = place {
                        let (_, ask) = self.open.swap_remove(place);
                        let refused = code == ErrorCode::REFUSED_STREAM && self.away;
                        if ask.over {
                            ask.check(weather)?;
                            self.answered += 1;
                        } else if !refused && !weather.draining {
                            return Err(format!("{} {}: {code}", ask.kind, ask.id));
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

    /// Removes finished streams, and closes when all are finished, or the server has closed.
    fn end(&mut self, weather: Weather) -> Result<(), String> {
        let mut place = 0;
        while let Some((stream, ask)) = self.open.get(place) {
            if ask.over && (ask.ended || !self.wire.is_open(*stream)) {
                ask.check(weather)?;
                self.answered += 1;
                self.open.swap_remove(place);
            } else if !self.wire.is_open(*stream) && self.away {
                // It was not taken any more.
                self.open.swap_remove(place);
            } else {
                place += 1;
            }
        }
        if self.peer.failed() || (self.peer.eof() && self.peer.readable() == 0) {
            self.done = true;
            self.peer.close();
            let excused = weather.broken || weather.draining || self.away;
            let owed = self.open.len() + self.asks.len();
            return if excused || owed == 0 {
                Ok(())
            } else {
                Err(format!("ended with {owed} requests unanswered"))
            };
        }
        let over = self.asks.is_empty() || self.away;
        if over && self.open.is_empty() {
            self.peer.close();
            self.done = true;
        }
        Ok(())
    }
}

impl std::fmt::Debug for StreamClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open: Vec<String> = self
            .open
            .iter()
            .map(|(stream, ask)| {
                let (came, expected) = (ask.came.len(), ask.expected.len());
                let (id, sent, body) = (stream.id(), ask.sent, ask.body.len());
                format!(
                    "{id}: {} {sent}/{body} {} {came}/{expected}",
                    ask.target, ask.status
                )
            })
            .collect();
        f.debug_struct("StreamClient")
            .field("peer", &self.peer)
            .field("open", &open)
            .field("to ask", &self.asks.len())
            .field("out", &self.out.len())
            .field("written", &self.written)
            .field("away", &self.away)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}
