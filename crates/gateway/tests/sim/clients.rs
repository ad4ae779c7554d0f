//! Simulated clients: each sends requests like no other's and checks what comes back.

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::backend::sim::{Peer, World};
use ringmain_web::testing::{ReplyReader, TestReply};

use crate::asked::Asked;
use crate::bounds::Bounds;
use crate::framed_clients::FramedClient;
use crate::proof;

/// How often a client pauses within a request, and for how long at most: all in all longer than attempts may take.
const PAUSES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(800);

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// Reads a few bytes at a time.
    Slow,
    /// Does nothing for some steps, now and then.
    Stalls,
    /// Sends nothing for some time, a few times within each request.
    Trickles,
    /// Sends all it has to say and its end, and then reads the answers.
    EndsFirst,
    /// Resets in the middle.
    Resets,
    /// Closes in the middle, perhaps with bytes unread.
    Leaves,
}

/// What holds for all clients of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Origins, the network or the end of the process may have broken something.
    pub(crate) broken: bool,
    /// What may be refused without anything being broken.
    pub(crate) bounds: Bounds,
}

/// One request.
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) method: &'static str,
    bytes: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Bytes that its answer is to have behind the account.
    pub(crate) length: usize,
}

impl Ask {
    fn new(world: &World, id: u64, most: usize, asked: &Asked) -> Ask {
        let length = world.below(most + 1);
        let method = ["GET", "GET", "HEAD", "POST", "PUT"][world.below(5)];
        let has_body = matches!(method, "POST" | "PUT");
        let body = proof::pattern(id ^ 0xb0d7, if has_body { world.below(most + 1) } else { 0 });
        let fields = asked.fields(id);
        let mut bytes =
            format!("{method} /r/{id}?n={length} HTTP/1.1\r\nHost: sim\r\nX-Id: {id}\r\n{fields}")
                .into_bytes();
        if has_body && world.below(2) == 0 {
            bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(1 + world.below(1000)) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            let announced = if has_body {
                format!("Content-Length: {}\r\n", body.len())
            } else {
                String::new()
            };
            bytes.extend_from_slice(format!("{announced}\r\n").as_bytes());
            bytes.extend_from_slice(&body);
        }
        Ask {
            id,
            method,
            bytes,
            body,
            length,
        }
    }

    /// Whether an answer is the right one; `false`: a failure that was told.
    pub(crate) fn check(
        &self,
        reply: &TestReply,
        weather: Weather,
        asked: &Asked,
        waited: Option<Duration>,
    ) -> Result<bool, String> {
        if let Some(judged) = asked.judge(self.id, reply, waited, weather.broken) {
            return judged.map(|()| false);
        }
        if weather.bounds.explains(reply) {
            return Ok(false);
        }
        if reply.status() == 413 && reply.header("X-Proof") == Some(&*self.id.to_string()) {
            // The origin's own answer, which may come before the request is sent.
            let is_right = !self.body.is_empty() && reply.body() == proof::REFUSAL.as_bytes();
            return is_right.then_some(true).ok_or("another refusal".to_owned());
        }
        if reply.status() != 200 {
            let told = matches!(reply.status(), 400 | 403 | 408 | 502..=504);
            if weather.broken && told && reply.header("X-Proof").is_none() {
                return Ok(false);
            }
            return Err(format!(
                "answered {}: {}",
                reply.status(),
                reply.body().escape_ascii()
            ));
        }
        let proof = reply.header("X-Proof").map(str::to_owned);
        if proof != Some(self.id.to_string()) {
            return Err(format!("the answer of {proof:?}"));
        }
        let expected = match self.method {
            "HEAD" => Vec::new(),
            _ => proof::answer(self.id, &self.body, self.length),
        };
        if reply.body() != expected {
            return Err(format!(
                "{} bytes of {}, or wrong ones",
                reply.body().len(),
                expected.len()
            ));
        }
        Ok(true)
    }
}

/// A client of either protocol.
#[derive(Debug)]
pub(crate) enum Client {
    Lines(Box<LineClient>),
    Framed(Box<FramedClient>),
}

impl Client {
    /// A client with requests of these ids, with bodies of at most so many bytes; `calm`: it stays to the end.
    pub(crate) fn new(
        world: &World,
        peer: Peer,
        ids: std::ops::Range<u64>,
        most: usize,
        calm: bool,
        asked: &Asked,
    ) -> Client {
        let asks = ids.map(|id| Ask::new(world, id, most, asked));
        if world.below(3) == 0 {
            let asks = asks.collect();
            return Client::Framed(Box::new(FramedClient::new(world, peer, asks, calm, asked)));
        }
        let asks = asks.collect();
        Client::Lines(Box::new(LineClient::new(world, peer, asks, calm, asked)))
    }

    /// When it does something unasked.
    pub(crate) fn due(&self) -> Option<Time> {
        match self {
            Client::Lines(client) if !client.done => client.paused,
            _ => None,
        }
    }

    /// The request that is waited for, and for how long.
    pub(crate) fn waits(&self, now: Time) -> Option<(u64, Duration)> {
        match self {
            Client::Lines(client) => client.waits(now),
            Client::Framed(client) => client.waits(now),
        }
    }

    pub(crate) fn right(&self) -> usize {
        match self {
            Client::Lines(client) => client.right,
            Client::Framed(client) => client.right,
        }
    }

    pub(crate) fn failed(&self) -> usize {
        match self {
            Client::Lines(client) => client.answered - client.right,
            Client::Framed(client) => client.failed(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        match self {
            Client::Lines(client) => client.done,
            Client::Framed(client) => client.done,
        }
    }

    /// Whether time must not leap: it would act in no time.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Client::Lines(client) => client.is_busy(),
            Client::Framed(client) => client.is_busy(),
        }
    }

    /// One step.
    pub(crate) fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        match self {
            Client::Lines(client) => client.act(world, weather),
            Client::Framed(client) => client.act(world, weather),
        }
    }
}

/// A client of HTTP/1.1.
pub(crate) struct LineClient {
    peer: Peer,
    manner: Manner,
    asks: Vec<Ask>,
    reader: ReplyReader,
    /// Requests that may be under way at once.
    depth: usize,
    writing: usize,
    written: usize,
    total: usize,
    limit: usize,
    answered: usize,
    right: usize,
    closed: bool,
    ended: bool,
    stall: usize,
    /// Until when it sends nothing, and how often it will still pause within this request.
    paused: Option<Time>,
    pauses: u32,
    stuck: bool,
    /// When the last answer was here, and the last request was written as a whole.
    moved: Time,
    done: bool,
    asked: Asked,
}

impl LineClient {
    fn new(world: &World, peer: Peer, asks: Vec<Ask>, calm: bool, asked: &Asked) -> LineClient {
        let bytes: usize = asks.iter().map(|ask| ask.bytes.len()).sum();
        let manner = match world.below(14) {
            0 if !calm => Manner::Resets,
            1 if !calm => Manner::Leaves,
            2 | 3 => Manner::Slow,
            // Of many there is always one that does: then no time would pass.
            4 | 5 if !asked.is_crowd() => Manner::Stalls,
            6 => Manner::EndsFirst,
            7 | 8 if !asked.is_crowd() => Manner::Trickles,
            _ => Manner::Steady,
        };
        LineClient {
            peer,
            manner,
            asks,
            reader: ReplyReader::new(),
            depth: match manner {
                Manner::EndsFirst => usize::MAX / 2,
                _ => 1 + world.below(3),
            },
            writing: 0,
            written: 0,
            total: 0,
            limit: world.below(bytes + 1),
            answered: 0,
            right: 0,
            closed: false,
            ended: false,
            stall: 0,
            paused: None,
            pauses: PAUSES,
            stuck: false,
            moved: world.now(),
            done: false,
            asked: asked.clone(),
        }
    }

    fn waits(&self, now: Time) -> Option<(u64, Duration)> {
        let ask = self.asks.get(self.answered)?;
        let waits = !self.done && self.writing > self.answered && self.peer.readable() == 0;
        waits.then(|| (ask.id, now.since(self.moved)))
    }

    fn is_busy(&self) -> bool {
        !self.done && (self.stall > 0 || self.peer.readable() > 0 || self.may_write() > 0 && !self.stuck)
    }

    fn may_write(&self) -> usize {
        match self.asks.get(self.writing) {
            Some(_) if self.paused.is_some() => 0,
            Some(ask) if !self.ended && !self.closed && self.writing < self.answered + self.depth => {
                ask.bytes.len() - self.written
            }
            _ => 0,
        }
    }

    fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if self.done {
            return Ok(());
        }
        if self.manner == Manner::Stalls && self.stall == 0 && world.below(40) == 0 {
            self.stall = world.below(100);
        }
        self.stall = self.stall.saturating_sub(1);
        if self.stall > 0 {
            return Ok(());
        }
        if self.paused.is_some_and(|until| world.now() >= until) {
            self.paused = None;
        }
        self.write(world);
        if world.below(3) > 0 {
            let most = if self.manner == Manner::Slow { 200 } else { 20_000 };
            let bytes = self.peer.read(1 + world.below(most));
            self.reader.feed(&bytes);
            self.answers(weather, world.now())?;
        }
        self.leave();
        if !self.done && (self.peer.failed() && self.peer.readable() == 0 || self.peer.eof()) {
            self.over(weather)?;
        }
        Ok(())
    }

    fn write(&mut self, world: &World) {
        let left = self.may_write();
        if left == 0 || world.below(2) == 0 {
            return;
        }
        let count = if world.below(3) == 0 || self.manner == Manner::Trickles && self.pauses > 0 {
            1 + world.below(left)
        } else {
            left
        };
        let bytes = &self.asks[self.writing].bytes[self.written..][..count];
        let count = self.peer.write(bytes).unwrap_or(0);
        self.stuck = count == 0;
        if count > 0 {
            self.asked.send(self.asks[self.writing].id, world.now());
        }
        self.written += count;
        self.total += count;
        if self.written == self.asks[self.writing].bytes.len() {
            self.writing += 1;
            self.written = 0;
            self.pauses = PAUSES;
            self.moved = world.now();
        } else if self.manner == Manner::Trickles && self.pauses > 0 && count > 0 {
            self.pauses -= 1;
            self.paused = Some(
                world
                    .now()
                    .after(PAUSE.mul_f64(0.1 + 0.9 * world.below(100) as f64 / 100.0)),
            );
        }
    }

    /// Checks each whole answer that is there.
    fn answers(&mut self, weather: Weather, now: Time) -> Result<(), String> {
        while let Some(ask) = self.asks.get(self.answered) {
            if self.closed {
                return Ok(());
            }
            let next = self
                .reader
                .next(ask.method)
                .map_err(|error| format!("to {}: {error}", ask.id))?;
            let Some(reply) = next else { return Ok(()) };
            let waited = (self.writing > self.answered).then(|| now.since(self.moved));
            let right = ask
                .check(&reply, weather, &self.asked, waited)
                .map_err(|error| format!("{} {}: {error}", ask.method, ask.id))?;
            self.right += usize::from(right);
            self.closed = reply.closes();
            self.answered += 1;
            self.moved = now;
        }
        Ok(())
    }

    fn leave(&mut self) {
        match self.manner {
            Manner::Resets if self.total >= self.limit => self.peer.reset(),
            Manner::Leaves if self.total >= self.limit => self.peer.close(),
            Manner::EndsFirst if !self.ended && self.writing == self.asks.len() => {
                self.ended = true;
                return self.peer.shutdown_write();
            }
            _ if !self.ended && self.answered == self.asks.len() => {
                self.ended = true;
                return self.peer.shutdown_write();
            }
            _ => return,
        }
        self.done = true;
    }

    /// The gateway has ended the connection: was there a cause?
    fn over(&mut self, weather: Weather) -> Result<(), String> {
        self.done = true;
        let has_cause = self.closed || self.ended && self.answered == self.asks.len();
        let answered = self.answered;
        self.peer.close();
        if has_cause || weather.broken {
            return Ok(());
        }
        Err(format!("an end without a cause after {answered} answers"))
    }
}

impl std::fmt::Debug for LineClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {:?}: {} answered, {} and {} bytes written of {}; {} readable",
            self.manner,
            self.peer,
            self.answered,
            self.writing,
            self.written,
            self.asks.len(),
            self.peer.readable(),
        )
    }
}
