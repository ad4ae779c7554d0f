//! Simulated clients: each sends unique requests and checks the responses.

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, World};
use ringmain_web::testing::ReplyReader;

use crate::h2_clients::FramedClient;
use crate::load_limits::Bounds;
use crate::policy_services::Asked;
use crate::request::{self, Ask, Timeouts};

/// The most pauses of a client within a request, and their longest duration: in total longer than attempts may take.
const PAUSES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(800);

/// The most pauses of a client within a live stream, and their longest duration: less than the shortest idle timeout, and in total
/// longer than any request may be slow for.
pub(crate) const LIVE_PAUSES: u32 = 12;
pub(crate) const LIVE_PAUSE: Duration = Duration::from_millis(1700);

/// Bytes of a live stream between two pauses at most: less than any minimum rate.
pub(crate) const LIVE_BYTES: usize = 8;

/// The time within which the gateway must end a request whose client has stopped, after its idle timeout: as an idle connection it waits
/// for another request, and before that for policies and endpoints.
const STOPPED: Duration = Duration::from_secs(120);

/// The behavior of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// Reads a few bytes at a time.
    Slow,
    /// Does nothing for some steps, now and then.
    Stalls,
    /// Sends nothing for some time, a few times within each request.
    Trickles,
    /// Sends a few bytes at a time of each body whose length is not announced, with pauses: a live stream.
    Streams,
    /// Stops after some bytes, and keeps its connection.
    Stops,
    /// Sends the framing of a body whose length is not announced a byte at a time, with pauses, and never any of the body.
    Drips,
    /// Sends all it has to say and its end, and then reads the answers.
    EndsFirst,
    /// Resets in the middle.
    Resets,
    /// Closes in the middle, perhaps with bytes unread.
    Leaves,
}

impl Manner {
    /// Returns the number of pauses within each request.
    fn pauses(self) -> u32 {
        match self {
            Manner::Streams => LIVE_PAUSES,
            _ => PAUSES,
        }
    }
}

/// A random pause of at most that length.
pub(crate) fn draw_pause(world: &World, most: Duration) -> Duration {
    most.mul_f64(0.1 + 0.9 * world.below(100) as f64 / 100.0)
}

/// The time within which the gateway must end a line of framing that drips in: the header timeout, and the same as above.
const DRIPPED: Duration = Duration::from_secs(30);

/// The bytes that drip in: a chunk's extension, or a trailer.
const DRIPS: [&[u8]; 2] = [b"5;", b"0\r\nX-Last: "];

/// The properties of a run's clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Bytes of a body at most.
    pub(crate) most: usize,
    /// They stay to the end.
    pub(crate) calm: bool,
    /// Some send live streams, or stop within a request.
    pub(crate) live: bool,
    /// The longest idle time.
    pub(crate) idle: Duration,
}

/// The conditions for all clients of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Origins, the network or the end of the process may have broken something.
    pub(crate) broken: bool,
    /// The reasons for valid refusals.
    pub(crate) bounds: Bounds,
}

/// A client of either protocol.
#[derive(Debug)]
pub(crate) enum Client {
    Lines(Box<LineClient>),
    Framed(Box<FramedClient>),
}

impl Client {
    /// A client with requests of these ids.
    pub(crate) fn new(
        world: &World,
        peer: Peer,
        ids: std::ops::Range<u64>,
        habits: Habits,
        asked: &Asked,
    ) -> Client {
        let asks = ids.map(|id| Ask::new(world, id, habits.most, asked));
        if world.below(3) == 0 {
            let asks = asks.collect();
            return Client::Framed(Box::new(FramedClient::new(world, peer, asks, habits, asked)));
        }
        let asks = asks.collect();
        Client::Lines(Box::new(LineClient::new(world, peer, asks, habits, asked)))
    }

    /// Returns the instant of its next action.
    pub(crate) fn due(&self) -> Option<Time> {
        match self {
            Client::Lines(client) if !client.done => client.paused,
            Client::Framed(client) if !client.done => client.due(),
            _ => None,
        }
    }

    /// Returns the number of timeouts of each kind that were reported to it.
    pub(crate) fn timeouts(&self) -> Timeouts {
        match self {
            Client::Lines(client) => client.timeouts,
            Client::Framed(client) => client.timeouts,
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

    /// Returns whether it acts before time advances.
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
    /// The instant at which it stopped.
    stopped: Option<Time>,
    timeouts: Timeouts,
    /// The instant at which the last response had arrived and the last request was written in full.
    moved: Time,
    done: bool,
    habits: Habits,
    asked: Asked,
}

impl LineClient {
    fn new(world: &World, peer: Peer, asks: Vec<Ask>, habits: Habits, asked: &Asked) -> LineClient {
        let bytes: usize = asks.iter().map(|ask| ask.bytes.len()).sum();
        let calm = habits.calm;
        let manner = match world.below(14) {
            8..=10 if habits.live => Manner::Streams,
            11 if habits.live => Manner::Stops,
            12 if habits.live => Manner::Drips,
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
            pauses: manner.pauses(),
            stuck: false,
            stopped: None,
            timeouts: [0; 2],
            moved: world.now(),
            done: false,
            habits,
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
            Some(_) if self.paused.is_some() || self.stopped.is_some() => 0,
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
        self.drip(world);
        if world.below(3) > 0 {
            let most = if self.manner == Manner::Slow { 200 } else { 20_000 };
            let bytes = self.peer.read(1 + world.below(most));
            self.reader.feed(&bytes);
            self.answers(weather, world.now())?;
        }
        self.leave();
        let most = match self.manner {
            Manner::Drips => DRIPPED,
            _ => self.habits.idle + STOPPED,
        };
        if self.stopped.is_some_and(|since| world.now().since(since) > most) {
            return Err(format!("it has stopped, and was waited for longer than {most:?}"));
        }
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
        if self.manner == Manner::Stops && self.total >= self.limit {
            self.stopped = Some(world.now());
            self.asks[self.writing].is_cut = true;
            return;
        }
        let ask = &mut self.asks[self.writing];
        if self.manner == Manner::Drips && ask.is_live && self.written == ask.head {
            self.stopped = Some(world.now());
            ask.is_cut = true;
            let _ = self.peer.write(DRIPS[world.below(DRIPS.len())]);
            return;
        }
        let count = self.piece(world, left);
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
            self.pauses = self.manner.pauses();
            self.moved = world.now();
        } else if count > 0 {
            self.pause(world);
        }
    }

    /// Sends one byte more of a line that never ends.
    fn drip(&mut self, world: &World) {
        if self.manner == Manner::Drips && self.stopped.is_some() && self.paused.is_none() {
            let _ = self.peer.write(b"x");
            self.paused = Some(world.now().after(draw_pause(world, LIVE_PAUSE)));
        }
    }

    /// Returns the number of bytes to send now, of `left`.
    fn piece(&self, world: &World, left: usize) -> usize {
        let ask = &self.asks[self.writing];
        match self.manner {
            Manner::Streams | Manner::Drips if ask.is_live && self.written < ask.head => {
                ask.head - self.written
            }
            Manner::Streams if ask.is_live && self.pauses > 0 => {
                let end = self.written + 1 + world.below(left.min(LIVE_BYTES));
                ask.end_of_piece(end) - self.written
            }
            Manner::Stops => left.min(self.limit - self.total),
            Manner::Trickles if self.pauses > 0 => 1 + world.below(left),
            _ if world.below(3) == 0 => 1 + world.below(left),
            _ => left,
        }
    }

    /// Pauses within a request, if it does that.
    fn pause(&mut self, world: &World) {
        let ask = &self.asks[self.writing];
        let most = match self.manner {
            Manner::Trickles => PAUSE,
            Manner::Streams if ask.is_live && self.written > ask.head => LIVE_PAUSE,
            _ => return,
        };
        if self.pauses > 0 {
            self.pauses -= 1;
            self.paused = Some(world.now().after(draw_pause(world, most)));
        }
    }

    /// Checks each complete response.
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
            request::count(&reply, &mut self.timeouts);
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

    /// Handles a connection that the gateway has closed, which must have a cause.
    fn over(&mut self, weather: Weather) -> Result<(), String> {
        self.done = true;
        let is_finished = self.ended && self.answered == self.asks.len();
        let has_cause = self.closed || self.stopped.is_some() || is_finished;
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
