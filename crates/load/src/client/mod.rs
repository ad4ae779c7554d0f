//! One worker's part of the load: its connections, what is in flight on them, and when the next request leaves.
//!
//! ```text
//! alarm: arrivals due ─▶ a free link ─▶ send ─▶ write ··· data ─▶ read ─▶ answered ─┬─▶ the flow's next step
//!                          ▲                                                        ├─▶ the next request (closed loop)
//!                          └────────────────────────── free again ◀─────────────────┘
//! ```
//!
//! Times are those of the engine's loop turn: an answer counts from the turn in which its request was written to the
//! turn in which its last byte was there, so that what this program itself takes is never hidden.
//!
//! Knows nothing of rounds or of what figures mean; `window` knows what is counted.

mod dial;
mod echo;
mod flow;
mod http1;
mod http2;
mod link;
mod schedule;
mod secure;
#[cfg(test)]
mod sim_tests;
mod speak;
mod websocket;
mod window;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx, Handler, Reason, Start, Via};
use ringmain_wire::grpc::Code;

use self::link::{InFlight, Lane, Link, Opening, State};
pub(crate) use self::schedule::Schedule;
pub(crate) use self::secure::{Agreed, Secure, Secures, Unsecured, agreed, failure};
use self::speak::Speaker;
pub(crate) use self::window::News;
use self::window::{Phase, Window};
use crate::limits;
use crate::plan::Plan;
use crate::traffic::{Sequence, Traffic};

/// What came of received bytes, where answers come in the order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The answer is not whole yet.
    More,
    /// It is.
    Answer(Answer),
    /// Something that is answered by what is in the scratch; the message that it came between goes on.
    Said,
    /// Nothing that could be read on; the connection is of no use any more.
    Broken(&'static str),
    /// The same, and what is in the scratch is said before it ends.
    Closing(&'static str),
}

/// What came of received bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heard {
    /// No answer is whole yet.
    More,
    /// One is, to this request.
    Answer(InFlight, Answer),
    /// This request gets no answer; the connection goes on.
    Lost(InFlight, &'static str),
    /// The server declared this request unprocessed; the connection stays open.
    Unprocessed(InFlight, &'static str),
    /// Requests that were sent last get none, and no more are taken.
    Retreat(&'static str),
    /// How many requests may be under way has changed.
    Settings,
    /// As [`Told::Said`].
    Said,
    /// As [`Told::Broken`].
    Broken(&'static str),
    /// As [`Told::Closing`].
    Closing(&'static str),
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP status; 0 for protocols without.
    pub(crate) status: u16,
    /// Whether it is what was expected.
    pub(crate) right: bool,
    /// Whether the connection ends with it.
    pub(crate) last: bool,
    /// Of gRPC: how the call ended.
    pub(crate) code: Option<Code>,
}

/// A call of gRPC that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) code: Code,
    /// Whether it is what was expected.
    pub(crate) right: bool,
}

/// A message of a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// It is the first of its call.
    pub(crate) is_first: bool,
    /// Since the one before, or since the call was sent.
    pub(crate) span: Duration,
}

/// What the run tells a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Send from then on.
    Begin { at: Time },
    /// Measure no longer.
    End,
}

/// The life of a link that the engine's connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    link: u32,
    life: u32,
}

/// One worker's client.
pub(crate) struct Client {
    cx: Cx,
    plan: Arc<Plan>,
    traffic: Arc<Traffic>,
    links: Vec<Link>,
    /// Those of each link, one link's behind the other's.
    lanes: Vec<Lane>,
    /// The number of the first link among those of all workers.
    first: u64,
    /// Links to be dialled, in order.
    waiting: VecDeque<u32>,
    /// Attempts in progress, about in the order in which they end.
    dialling: VecDeque<(ConnId, u32)>,
    hold_dials_until: Time,
    /// Links that stand.
    open: usize,
    /// Open loop: a link is here once for each request that it could take.
    free: VecDeque<Place>,
    /// Arrivals that wait for a free link.
    arrivals: VecDeque<Time>,
    schedule: Option<Schedule>,
    /// Links in whose lanes somebody thinks.
    sleeping: BinaryHeap<Reverse<(Time, u32, u32)>>,
    alarm: Option<Time>,
    window: Window,
    speaker: Speaker,
    /// What connections are secured with, if they are.
    secure: Option<Secure>,
    random: fastrand::Rng,
    sequence: Sequence,
    /// A request that is being put together.
    scratch: Vec<u8>,
    /// What is to be written waits for the end of what is being read.
    held: bool,
    news: Sender<News>,
}

impl Client {
    pub(crate) fn new(
        start: &Start<Order>,
        plan: &Arc<Plan>,
        traffic: &Arc<Traffic>,
        round: u32,
        secure: Option<Secure>,
        news: Sender<News>,
    ) -> Client {
        let cx = start.cx.clone();
        let (worker, workers) = (cx.worker(), cx.workers());
        let (first, count) = share(u64::from(plan.connections), worker, workers);
        let speaker = Speaker::new(plan.protocol, plan.tls.is_some());
        let each = plan.pipeline as usize;
        let mut lanes: Vec<Lane> = Vec::new();
        lanes.resize_with(count as usize * each, Lane::default);
        let links = lanes.chunks_mut(each);
        let links = links.map(|lanes| Link::new(speaker.reading(), lanes)).collect();
        let mut random = fastrand::Rng::with_seed(plan.seed);
        // Each worker and round draws its own numbers, the same in every run.
        for _ in 0..u64::from(round) * workers as u64 + worker as u64 {
            random = random.fork();
        }
        let mut client = Client {
            links,
            lanes,
            first,
            waiting: (0..count as u32).collect(),
            dialling: VecDeque::new(),
            hold_dials_until: Time(0),
            open: 0,
            free: VecDeque::new(),
            arrivals: VecDeque::new(),
            schedule: None,
            sleeping: BinaryHeap::new(),
            alarm: None,
            window: Window::new(plan, worker, workers),
            speaker,
            secure,
            random,
            sequence: Sequence::new(worker, workers),
            scratch: Vec::new(),
            held: false,
            news,
            plan: Arc::clone(plan),
            traffic: Arc::clone(traffic),
            cx,
        };
        client.dial();
        client.set_alarm();
        client
    }

    fn is_open_loop(&self) -> bool {
        self.schedule.is_some()
    }

    /// Follows the clock: whatever was due by `now` has happened afterwards.
    #[inline]
    fn follow(&mut self, now: Time) {
        if now >= self.window.next && !self.window.is_due(now) {
            // The measured time may have passed since as well: what was due in it is counted.
            self.window.end_warmup(now, &self.cx, &self.news);
            if let Some(end) = self.window.over_at(now) {
                self.drop_due(end);
                self.record_waits(if self.is_open_loop() { end } else { now });
            }
            self.window.pass(now, &self.cx, &self.news);
            self.clear_arrivals();
        }
    }

    /// Counts arrivals of the measured time before `until` that were not sent; returns their number.
    fn drop_due(&mut self, until: Time) -> u64 {
        let Some(schedule) = &mut self.schedule else {
            return 0;
        };
        schedule.skip(self.window.began());
        let first = schedule.next();
        let due = schedule.skip(until);
        self.window.dropped(due, first, until);
        due
    }

    /// Ends a number of requests of which the rest cannot be sent: no connection has been established for too long.
    fn give_up_rest(&mut self, now: Time) {
        let due = self.drop_due(now);
        // Those of an open loop are counted when it ends.
        let unsent = if self.is_open_loop() {
            0
        } else {
            self.unsent(now).count() as u64
        };
        self.window.give_up(due, unsent, now);
        self.finish(now);
    }

    /// Counts no longer.
    fn finish(&mut self, now: Time) {
        self.follow(now);
        if self.window.may_begin() {
            self.drop_due(now);
        }
        self.record_waits(now);
        self.window.end(now, &self.cx, &self.news);
        self.clear_arrivals();
    }

    /// The next moment at which something is to be done unasked.
    fn set_alarm(&mut self) {
        let arrival = self.schedule.as_ref().map(Schedule::next);
        let wakes = self.sleeping.peek().map(|Reverse((at, ..))| *at);
        let redial = self.may_dial().then_some(self.hold_dials_until);
        let mark = self.window.next_alarm();
        let arrival = arrival.filter(|_| self.window.may_begin());
        let next = [arrival, wakes, redial, mark, self.gives_up()]
            .into_iter()
            .flatten()
            .min();
        if next != self.alarm {
            self.alarm = next;
            self.cx.set_alarm(next);
        }
    }

    /// When a number of requests that cannot be reached is given up: all that is left waits for connections, and none
    /// comes about.
    fn gives_up(&self) -> Option<Time> {
        let since = self.window.idle_since()?;
        let stuck = self.sleeping.is_empty() && (self.open == 0 || !self.window.may_begin());
        stuck.then(|| since.after(self.plan.connect_timeout))
    }

    fn begin(&mut self, at: Time) {
        let (worker, workers) = (self.cx.worker(), self.cx.workers());
        self.schedule = Schedule::new(self.plan.pace, worker, workers, self.random.u64(..), at);
        self.window.begin(at);
        self.start_if_due(self.cx.now());
    }

    /// Sends the first requests, if the time for them has come. Not while bytes of an answer are at hand: they would be
    /// taken for one to these.
    fn start_if_due(&mut self, now: Time) {
        if !self.window.is_due(now) {
            return;
        }
        self.window.start(&self.plan);
        self.follow(now);
        for index in 0..self.links.len() as u32 {
            if matches!(self.links[index as usize].state, State::Open(_)) {
                self.use_link(index, now);
            }
        }
    }

    /// Sends what arrives by `now`, on free links; the rest waits for one.
    fn take_arrivals(&mut self, now: Time) {
        for _ in 0..limits::ARRIVALS_PER_TURN {
            let Some(schedule) = &mut self.schedule else {
                return;
            };
            let at = schedule.next();
            if at > now || !self.window.may_begin() {
                return;
            }
            schedule.advance();
            match self.free_link() {
                Some(index) => {
                    self.window.arrived();
                    self.window.record_lag(now.since(at));
                    self.start_flow(index, at, now);
                }
                None if self.arrivals.len() < limits::ARRIVALS_WAITING => {
                    self.window.arrived();
                    self.window.waiting += 1;
                    self.arrivals.push_back(at);
                }
                None => self.window.dropped(1, at, now),
            }
        }
    }

    /// Counts how long requests in flight have waited when the measured time ends, and arrivals that were never sent.
    fn record_waits(&mut self, now: Time) {
        let unprocessed = self.lanes.iter().filter_map(|lane| lane.unprocessed);
        let in_flight = self.links.iter().flat_map(Link::requests);
        self.window.record_unfinished(in_flight.chain(unprocessed), now);
        self.window.record_unsent(self.arrivals.iter().copied(), now);
        if self.is_open_loop() {
            let unsent: Vec<Time> = self.unsent(now).collect();
            self.window.drop_unsent(&unsent, now);
        }
        // An attempt that has lasted for longer than any that succeeded will hardly do so.
        let usual = self.window.longest_connect();
        for link in &self.links {
            let attempt = match link.state {
                State::Dialling(since) | State::Opening(Opening { since, .. }) => {
                    Some(since).filter(|since| now.since(*since) > usual)
                }
                State::Waiting | State::Open(_) => None,
            };
            if let Some(since) = link.down.or(attempt) {
                self.window.unconnected(since, now);
            }
        }
    }

    /// The flows whose first request was due and could not leave on the connection that they have, by the time it was due.
    fn unsent(&self, now: Time) -> impl Iterator<Item = Time> {
        let is_unsent = move |lane: &&Lane| {
            lane.next.is_some_and(|next| next.step == 0) && lane.unprocessed.is_none() && lane.due < now
        };
        self.lanes.iter().filter(is_unsent).map(|lane| lane.due)
    }

    /// Arrivals that still wait when all is over were never sent.
    fn clear_arrivals(&mut self) {
        if self.window.phase == Phase::Ended {
            self.arrivals.clear();
        }
    }

    /// A link can take a request.
    fn offer(&mut self, place: Place) {
        // Places of connections that are gone pile up if those come and go and nothing arrives.
        if self.free.len() >= 2 * self.links.len() * self.plan.pipeline as usize {
            let links = &self.links;
            self.free
                .retain(|place| links[place.link as usize].life == place.life);
        }
        self.free.push_back(place);
        debug_assert!(self.free.len() <= 2 * self.links.len() * self.plan.pipeline as usize);
    }

    /// A link that can take a request.
    fn free_link(&mut self) -> Option<u32> {
        while let Some(place) = self.free.pop_front() {
            let link = &mut self.links[place.link as usize];
            // Of a connection that takes no more requests nothing is offered any more.
            if link.life == place.life && link.offered > 0 {
                link.offered -= 1;
                return Some(place.link);
            }
        }
        None
    }

    /// Links whose think time is over go on.
    fn wake(&mut self, now: Time) {
        while let Some(&Reverse((at, index, lane))) = self.sleeping.peek() {
            if at > now {
                return;
            }
            self.sleeping.pop();
            self.go_on(index, lane, now);
        }
    }

    fn link_of(&self, place: Place) -> Option<u32> {
        (self.links[place.link as usize].life == place.life).then_some(place.link)
    }
}

impl Handler for Client {
    type Conn = Place;
    type Mail = Order;

    fn name(&self) -> &'static str {
        "load"
    }

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<Place> {
        let now = self.cx.now();
        self.follow(now);
        let place = self.connected(conn, now)?;
        self.dial();
        self.set_alarm();
        Some(place)
    }

    fn not_connected(&mut self, cx: &Cx, conn: ConnId, reason: Reason) {
        self.follow(cx.now());
        self.dial_failed(conn, reason);
        self.set_alarm();
    }

    fn secured(&mut self, conn: Conn<'_>, place: &mut Place) {
        let now = self.cx.now();
        self.follow(now);
        if let Some(index) = self.link_of(*place) {
            self.secured(conn, index, now);
            self.dial();
            self.set_alarm();
        }
    }

    fn insecure(&mut self, conn: Conn<'_>, place: &mut Place) {
        self.follow(self.cx.now());
        if let Some(index) = self.link_of(*place) {
            self.insecure(conn, index);
            self.dial();
            self.set_alarm();
        }
    }

    fn data(&mut self, conn: Conn<'_>, place: &mut Place, bytes: &mut [u8]) -> usize {
        let now = self.cx.now();
        self.follow(now);
        let Some(index) = self.link_of(*place) else {
            return bytes.len();
        };
        let link = &self.links[index as usize];
        let State::Opening(opening) = link.state else {
            // What is sent from here on leaves when this turn ends: no byte at hand can answer it.
            let asked = link.in_flight.len();
            return self.receive(conn, index, place.life, asked, bytes, now);
        };
        let (taken, stands) = self.handshake(conn, index, opening, bytes, now);
        if !stands || taken == bytes.len() {
            return taken;
        }
        taken + self.receive(conn, index, place.life, 0, &mut bytes[taken..], now)
    }

    fn end(&mut self, conn: Conn<'_>, place: &mut Place) {
        let now = self.cx.now();
        self.follow(now);
        if let Some(index) = self.link_of(*place) {
            self.ended(conn, index, now);
            self.dial();
            self.set_alarm();
        }
        conn.close();
    }

    fn drained(&mut self, conn: Conn<'_>, place: &mut Place) {
        if let Some(index) = self.link_of(*place) {
            self.pump(index, conn);
            self.flush(index, conn);
        }
    }

    fn deadline(&mut self, conn: Conn<'_>, place: &mut Place) {
        let now = self.cx.now();
        self.follow(now);
        match self.link_of(*place) {
            Some(index) => self.time_out(conn, index, now),
            // It has had time enough to say goodbye.
            None => conn.abort(),
        }
        self.dial();
        self.set_alarm();
    }

    fn drain(&mut self, conn: Conn<'_>, place: &mut Place) {
        // One without a link has said goodbye already.
        if let Some(index) = self.link_of(*place)
            && !self.say_goodbye(conn, index)
        {
            conn.abort();
        }
    }

    fn closed(&mut self, cx: &Cx, place: Place, reason: Reason) {
        self.follow(cx.now());
        if let Some(index) = self.link_of(place) {
            self.gone(index, describe(reason));
            self.dial();
            self.set_alarm();
        }
    }

    fn alarm(&mut self, cx: &Cx) {
        let now = cx.now();
        self.alarm = None;
        self.start_if_due(now);
        self.follow(now);
        self.wake(now);
        self.take_arrivals(now);
        if self.gives_up().is_some_and(|at| now >= at) {
            self.give_up_rest(now);
        }
        self.dial();
        self.set_alarm();
    }

    fn mail(&mut self, cx: &Cx, order: Order) {
        match order {
            Order::Begin { at } => self.begin(at),
            Order::End => self.finish(cx.now()),
        }
        self.set_alarm();
    }
}

/// What is counted of a connection that ended with requests in flight.
fn describe(reason: Reason) -> &'static str {
    use std::io::ErrorKind;
    match reason {
        Reason::Failed(ErrorKind::ConnectionReset) => "reset",
        Reason::Failed(ErrorKind::TimedOut) => "given up by TCP",
        Reason::Failed(ErrorKind::BrokenPipe) => "closed while sending",
        Reason::ReadLimit => "more than can be kept",
        _ => "failed",
    }
}

/// Whether HTTP/2 can carry all requests; else which it cannot, and why.
pub(crate) fn check_http2(traffic: &Traffic) -> Result<(), String> {
    http2::Http2::check(traffic)
}

/// The part of `total` that is `worker`'s: its first number, and how many.
pub(crate) fn share(total: u64, worker: usize, workers: usize) -> (u64, u64) {
    let (worker, workers) = (worker as u64, workers as u64);
    let (each, rest) = (total / workers, total % workers);
    let first = worker * each + worker.min(rest);
    (first, each + u64::from(worker < rest))
}
