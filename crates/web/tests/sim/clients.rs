//! Simulated clients: each sends its own mix of requests with its own behavior, and checks the responses.

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sim::World;
use ringmain_web::testing::ReplyReader;

use crate::link::Link;
use crate::requests::{Ask, Kind, Slack};

/// The behavior of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Steady,
    /// Reads a few bytes at a time.
    Slow,
    /// Does nothing for some steps, now and then.
    Stalls,
    /// Does nothing for seconds or minutes, once.
    Sleeps,
    /// Ends its side somewhere, also within a request, and reads on.
    Ends,
    /// Resets in the middle.
    Resets,
    /// Closes in the middle, perhaps with bytes unread.
    Leaves,
}

impl Manner {
    pub(crate) fn draw(world: &World) -> Manner {
        match world.below(14) {
            0 => Manner::Resets,
            1 => Manner::Leaves,
            2 => Manner::Sleeps,
            3 => Manner::Ends,
            4 | 5 => Manner::Slow,
            6 | 7 => Manner::Stalls,
            _ => Manner::Steady,
        }
    }
}

/// Conditions that apply to all clients of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The network or the end of the process may have broken connections.
    pub(crate) broken: bool,
    pub(crate) draining: bool,
    pub(crate) crowded: bool,
    pub(crate) requests_per_connection: Option<usize>,
}

pub(crate) struct Client {
    peer: Link,
    manner: Manner,
    asks: Vec<Ask>,
    reader: ReplyReader,
    /// Requests that may be under way at once.
    depth: usize,
    /// The request being written, and its written bytes.
    writing: usize,
    written: usize,
    /// Bytes written in all, and after how many it ends, resets or sleeps.
    total: usize,
    limit: usize,
    answered: usize,
    /// An answer said that it is the last.
    closed: bool,
    /// Bytes still received belong to that response.
    ignores: bool,
    ended: bool,
    slept: bool,
    wakes: Option<Time>,
    /// Sends its bodies without waiting for `100 Continue`.
    impatient: bool,
    stall: usize,
    stuck: bool,
    pub(crate) done: bool,
}

impl Client {
    pub(crate) fn new(world: &World, peer: Link, asks: Vec<Ask>) -> Client {
        let bytes: usize = asks.iter().map(|ask| ask.bytes.len()).sum();
        Client {
            peer,
            manner: Manner::draw(world),
            asks,
            reader: ReplyReader::new(),
            depth: 1 + world.below(4) * world.below(4),
            writing: 0,
            written: 0,
            total: 0,
            limit: world.below(bytes + 1),
            answered: 0,
            closed: false,
            ignores: false,
            ended: false,
            slept: false,
            wakes: None,
            impatient: world.below(3) == 0,
            stall: 0,
            stuck: false,
            done: false,
        }
    }

    pub(crate) fn answered(&self) -> usize {
        self.answered
    }

    /// Returns true if time must not jump: the client would act at the current time.
    pub(crate) fn is_busy(&self) -> bool {
        let writes = self.may_write() > 0 && (!self.stuck || self.peer.takes());
        !self.done && self.wakes.is_none() && (self.stall > 0 || self.peer.is_busy() || writes)
    }

    /// One step.
    pub(crate) fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if self.done || self.waits(world) {
            return Ok(());
        }
        self.write(world);
        self.read(world, weather)?;
        self.leave(world);
        if let Some(fault) = self.peer.fault() {
            return Err(format!("TLS: {fault}"));
        }
        if !self.done && (self.peer.failed() && self.peer.readable() == 0 || self.peer.eof()) {
            self.over(weather)?;
        }
        Ok(())
    }

    fn waits(&mut self, world: &World) -> bool {
        if self.manner == Manner::Stalls && self.stall == 0 && world.below(40) == 0 {
            self.stall = world.below(100);
        }
        if self.manner == Manner::Sleeps && !self.slept && self.total >= self.limit {
            self.slept = true;
            let span = [1, 4, 12, 80, 200][world.below(5)];
            self.wakes = Some(world.now().after(Duration::from_secs(span)));
        }
        if self.wakes.is_some_and(|at| at <= world.now()) {
            self.wakes = None;
        }
        self.stall = self.stall.saturating_sub(1);
        self.stall > 0 || self.wakes.is_some()
    }

    /// Bytes of the present request that may go out now.
    fn may_write(&self) -> usize {
        let Some(ask) = self.asks.get(self.writing) else {
            return 0;
        };
        if self.ended || self.closed || self.writing >= self.answered + self.depth {
            return 0;
        }
        // A final answer that does not end without the body asks for it too.
        let asked = !self.reader.interim().is_empty() || self.reader.partial_head().is_some();
        let continues = self.answered == self.writing && asked;
        let whole = !ask.expects || self.impatient || continues || self.answered > self.writing;
        let most = if whole { ask.bytes.len() } else { ask.head };
        let left = most - self.written.min(most);
        match self.manner {
            // Up to its limit, where it ends.
            Manner::Ends => left.min(self.limit - self.total.min(self.limit)),
            _ => left,
        }
    }

    fn write(&mut self, world: &World) {
        // A client without room retries each time: time must not jump past the next opportunity.
        if !self.stuck && world.below(2) == 0 {
            return;
        }
        // Now and then several requests at once.
        for _ in 0..1 + world.below(3) {
            let left = self.may_write();
            if left == 0 {
                return;
            }
            let count = if world.below(3) == 0 {
                1 + world.below(left)
            } else {
                left
            };
            let bytes = &self.asks[self.writing].bytes[self.written..][..count];
            let count = self.peer.write(bytes).unwrap_or(0);
            self.stuck = count == 0;
            self.written += count;
            self.total += count;
            if self.written == self.asks[self.writing].bytes.len() {
                self.writing += 1;
                self.written = 0;
            }
        }
    }

    fn read(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if world.below(3) == 0 {
            return Ok(());
        }
        let most = match self.manner {
            Manner::Slow => 200,
            _ => 20_000,
        };
        let bytes = self.peer.read(1 + world.below(most));
        self.reader.feed(&bytes);
        self.answers(weather)
    }

    /// Checks each complete response.
    fn answers(&mut self, weather: Weather) -> Result<(), String> {
        while let Some(ask) = self.asks.get(self.answered) {
            if self.closed {
                break;
            }
            let next = self.reader.next(ask.method);
            let next = match next {
                // A response that its handler or client aborts cannot be parsed.
                Err(_) if ask.kind == Kind::Cut => return Ok(()),
                Err(_) if self.ended && self.writing == self.answered => return Ok(()),
                other => other.map_err(|error| format!("to {}: {error}", ask.id))?,
            };
            let Some(reply) = next else { return Ok(()) };
            let begun = self.writing > self.answered || self.written >= ask.head;
            // An invalid request is answered as soon as it is detected.
            let is_bad = ask.kind == Kind::Bad && self.written > 0;
            if !begun && !is_bad && reply.status() != 408 {
                return Err(format!("{} was answered before it was asked: {reply:?}", ask.id));
            }
            let slack = Slack {
                late: self.slept,
                draining: weather.draining,
                crowded: weather.crowded,
                is_last: weather.requests_per_connection == Some(self.answered + 1),
                ended: self.ended,
            };
            ask.check(&reply, slack)
                .map_err(|error| format!("{:?} {}: {error}", ask.kind, ask.id))?;
            self.closed = reply.closes();
            self.answered += 1;
            if reply.status() == 408 && ask.method == "HEAD" {
                // Of a head that was cut the server does not know that its answer has no body.
                self.ignores = true;
            }
        }
        if self.ignores || self.reader.unread().is_empty() {
            return Ok(());
        }
        Err(format!(
            "more came than was asked for: `{}`",
            self.reader.unread().escape_ascii()
        ))
    }

    fn leave(&mut self, world: &World) {
        let all = self.writing == self.asks.len() || self.closed;
        match self.manner {
            Manner::Resets if self.total >= self.limit => self.peer.reset(),
            Manner::Leaves if self.total >= self.limit => self.peer.close(),
            Manner::Ends if self.total >= self.limit && !self.ended => {
                self.ended = true;
                self.peer.shutdown_write();
                return;
            }
            // After its last answer; some have said before that nothing more follows.
            _ if all && !self.ended && (self.answered == self.asks.len() || world.below(50) == 0) => {
                self.ended = true;
                self.peer.shutdown_write();
                return;
            }
            _ => return,
        }
        self.done = true;
    }

    /// The server has ended the connection: checks that it had a cause and that no response is missing.
    fn over(&mut self, weather: Weather) -> Result<(), String> {
        self.done = true;
        let cut = self
            .asks
            .get(self.answered)
            .is_some_and(|ask| ask.kind == Kind::Cut);
        let excused = weather.broken || weather.draining || self.slept || cut;
        if !excused {
            // From here on a truncated response is an error.
            self.reader.end();
        }
        if self.peer.eof() {
            self.answers(weather)?;
        }
        if self.peer.was_cut() && !excused {
            return Err("an end that was not announced".into());
        }
        let how = if self.peer.failed() { "a reset" } else { "an end" };
        self.peer.close();
        // All that was asked for whole is answered, also before an end in the middle.
        let owed = self.writing.saturating_sub(self.answered);
        let has_cause = self.closed || self.ended && owed == 0;
        if !excused && !has_cause {
            return Err(format!("{how} without a cause"));
        }
        if self.reader.has_begun() && !excused && !self.closed && !self.ended {
            return Err(format!("{how} within an answer"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (peer, asks) = (&self.peer, self.asks.len());
        write!(
            f,
            "{:?} {peer:?}: {} answered, {} and {} bytes written of {asks}{}{}; {} readable; asks ",
            self.manner,
            self.answered,
            self.writing,
            self.written,
            if self.closed { ", closed" } else { "" },
            if self.ended { ", ended" } else { "" },
            peer.readable(),
        )?;
        f.debug_list()
            .entries(self.asks.iter().map(|ask| (ask.kind, ask.id, ask.method)))
            .finish()
    }
}
