//! The world's state, its clock and its scheduler.
//!
//! Owns virtual time, the queue of coming events and what the scheduler knows of each worker.
//! What the events do is in `network` and `operations`.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Completion, DatagramOptions, Job, Op, Slot};

use super::buffers::Buffers;
use super::network::{End, Listener};
use super::operations::Operation;
use super::plan::{Fault, Plan};
use super::random::Random;
use super::trace::Trace;

/// The wall clock at virtual time zero: some day in 2025.
const WALL_START: Duration = Duration::from_secs(1_750_000_000);

/// How much longer a delayed thing takes than the longest usual delay.
const LATE_FACTOR: u64 = 50;

/// Lines of trace that a failure prints.
const FAILURE_LINES: usize = 60;

/// Something that will happen at a virtual time.
#[derive(Debug)]
pub(super) enum Event {
    /// An operation looks whether it can go on.
    Attempt(u64),
    /// An operation's oldest completion becomes visible.
    Deliver(u64),
    /// A cancel reaches its operation.
    Cancel(u64),
    /// An end's bytes move.
    Wire(u32),
    /// A reset reaches an end.
    Kill(u32),
    /// A wake reaches its worker.
    Wake(usize),
    /// The blocking pool runs a job.
    Job(u64),
    /// Somebody outside the workers acts.
    Outside(u64),
    /// A datagram arrives.
    Datagram {
        from: SocketAddr,
        to: SocketAddr,
        data: Vec<u8>,
    },
}

/// What a wake from any thread leaves behind.
#[derive(Debug, Default)]
pub(super) struct WakeCell {
    wakes: AtomicU64,
}

impl Wake for WakeCell {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Release);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Release);
    }
}

/// What the scheduler believes of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Its last wait had something to show, so it must be asked again.
    Busy,
    /// Its last wait found nothing; it waits until this time, or for ever.
    Until(Option<u64>),
}

/// What a number of a worker's socket table stands for.
#[derive(Debug)]
pub(super) enum Kind {
    /// A listener's id.
    Listener(u32),
    /// An end's id.
    Stream(u32),
    /// A stream socket before its connection, with its source.
    Unconnected(Option<Addr>),
    Datagram {
        local: SocketAddr,
        options: DatagramOptions,
        /// Whose datagrams alone are received.
        peer: Option<SocketAddr>,
        queue: VecDeque<QueuedDatagram>,
        /// An ICMP error that was not reported yet.
        error: Option<i32>,
        shut: bool,
    },
    /// Closed or given away; the number is free when the worker has been told.
    Gone,
}

/// A datagram that has arrived, or several that were joined.
#[derive(Debug)]
pub(super) struct QueuedDatagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) data: Vec<u8>,
    /// The size of each but the last, once there are several.
    pub(super) segment: Option<u16>,
}

/// One entry of a worker's socket table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// The operation of each [`Op`] that is in flight on it.
    pub(super) operations: [Option<u64>; 5],
    /// Whose operations these are, while any is in flight.
    pub(super) slot: Option<Slot>,
    /// Operations in flight but for datagrams, also those that no [`Op`] names.
    pub(super) in_flight: usize,
    /// A close or give has been asked for.
    pub(super) leaving: bool,
}

/// One worker's side of the simulated kernel.
pub(super) struct WorkerState {
    pub(super) taken: bool,
    pub(super) gone: bool,
    pub(super) rest: Rest,
    /// The time of its last wait.
    pub(super) clock: u64,
    pub(super) wall: Duration,
    pub(super) random: Random,
    pub(super) sockets: BTreeMap<u32, Entry>,
    pub(super) free_numbers: Vec<u32>,
    pub(super) next_number: u32,
    /// (slot index, operation) → (slot generation, operation's id)
    pub(super) slots: BTreeMap<(u32, u8), (u32, u64)>,
    pub(super) buffers: Buffers,
    /// Visible completions; the flag says that the operation ends with it.
    pub(super) ready: VecDeque<(u64, Completion, bool)>,
    pub(super) cell: Arc<WakeCell>,
    wake_armed: bool,
    woken: bool,
}

impl WorkerState {
    fn new(index: usize, plan: &Plan, seed: u64) -> WorkerState {
        WorkerState {
            taken: false,
            gone: false,
            rest: Rest::Busy,
            clock: 0,
            wall: WALL_START,
            random: Random::new(seed.wrapping_add(index as u64 + 1)),
            sockets: BTreeMap::new(),
            free_numbers: Vec::new(),
            next_number: 0,
            slots: BTreeMap::new(),
            buffers: Buffers::new(index, plan.buffers, plan.buffer_bytes),
            ready: VecDeque::new(),
            cell: Arc::default(),
            wake_armed: false,
            woken: false,
        }
    }
}

/// What [`State::advance`] did.
pub(super) enum Advance {
    /// Nothing will ever happen unless somebody outside acts.
    Nothing,
    Done,
    /// The caller must run this job, with the state not borrowed.
    Run(Job),
}

/// Everything that a world is.
pub(super) struct State {
    pub(super) seed: u64,
    pub(super) plan: Plan,
    pub(super) random: Random,
    pub(super) now: u64,
    wall_shift_ns: i128,
    trace: Trace,
    counts: [u64; Fault::ALL.len()],
    pub(super) workers: Vec<WorkerState>,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u32,
    next_id: u32,
    next_operation: u64,
    pub(super) next_port: u16,
    pub(super) next_source: u32,
    pub(super) ends: BTreeMap<u32, End>,
    pub(super) listeners: BTreeMap<u32, Listener>,
    /// Datagram sockets of the test.
    pub(super) outside: BTreeMap<SocketAddr, VecDeque<(SocketAddr, Vec<u8>)>>,
    pub(super) operations: BTreeMap<u64, Operation>,
    pub(super) jobs: BTreeMap<u64, Job>,
    /// What the test does from outside the workers.
    pub(super) outside_jobs: BTreeMap<u64, Job>,
}

impl State {
    pub(super) fn new(seed: u64, plan: Plan, workers: usize) -> State {
        State {
            seed,
            random: Random::new(seed),
            now: 0,
            wall_shift_ns: 0,
            trace: Trace::new(plan.trace),
            counts: [0; Fault::ALL.len()],
            workers: (0..workers)
                .map(|index| WorkerState::new(index, &plan, seed))
                .collect(),
            events: BTreeMap::new(),
            next_event: 0,
            next_id: 0,
            next_operation: 0,
            next_port: 0,
            next_source: 0,
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
            outside: BTreeMap::new(),
            operations: BTreeMap::new(),
            jobs: BTreeMap::new(),
            outside_jobs: BTreeMap::new(),
            plan,
        }
    }

    // ---- small services ----

    pub(super) fn note(&mut self, what: &'static str, a: u64, b: u64, c: u64) {
        self.trace.note(self.now, what, [a, b, c]);
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    pub(super) fn trace_text(&self) -> String {
        self.trace.text(usize::MAX)
    }

    /// The worker broke the contract: say how, where and when, and stop.
    pub(super) fn misuse(&self, worker: usize, what: &str) -> ! {
        let tail = self.trace.text(FAILURE_LINES);
        panic!(
            "contract broken by worker {worker} (seed {}, at {} ns): {what}\nwhat came before:\n{tail}",
            self.seed, self.now
        );
    }

    /// Draws whether a fault strikes now, and counts it if so.
    pub(super) fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.random.per_mille(self.plan.chance(fault));
        if strikes {
            self.saw(fault);
        }
        strikes
    }

    /// Counts a fault that came about without the dice.
    pub(super) fn saw(&mut self, fault: Fault) {
        self.counts[fault as usize] += 1;
    }

    pub(super) fn count(&self, fault: Fault) -> u64 {
        self.counts[fault as usize]
    }

    /// A name for an end or a listener, never used again.
    pub(super) fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// A name for an operation or a job, never used again.
    pub(super) fn fresh_operation(&mut self) -> u64 {
        self.next_operation += 1;
        self.next_operation
    }

    /// Wall-clock time since the Unix epoch, with the jumps that the test made.
    fn wall(&self) -> Duration {
        let span = WALL_START.as_nanos() as i128 + i128::from(self.now) + self.wall_shift_ns;
        let span = span.max(0) as u128;
        Duration::new((span / 1_000_000_000) as u64, (span % 1_000_000_000) as u32)
    }

    pub(super) fn jump_wall(&mut self, seconds: i64) {
        self.wall_shift_ns += i128::from(seconds) * 1_000_000_000;
    }

    // ---- events ----

    /// Plans an event at a random distance; a late one much further.
    pub(super) fn later(&mut self, event: Event, late: bool) {
        // A third at once: equal times are what reorders independent things.
        let delay = match self.random.below(3) {
            0 if !late => 0,
            _ => self.random.below(self.plan.delay_ns() + 1),
        };
        let delay = if late {
            delay.saturating_mul(LATE_FACTOR)
        } else {
            delay
        };
        self.next_event += 1;
        let tie = (self.random.next() << 32) | u64::from(self.next_event);
        self.events.insert((self.now.saturating_add(delay), tie), event);
    }

    /// When the next event or the next end of a worker's wait is due.
    pub(super) fn next_time(&self) -> Option<u64> {
        let event = self.events.first_key_value().map(|((time, _), _)| *time);
        [event, self.next_deadline()]
            .into_iter()
            .flatten()
            .min()
            .map(|time| time.max(self.now))
    }

    fn next_deadline(&self) -> Option<u64> {
        let deadline = |worker: &WorkerState| match worker.rest {
            Rest::Until(until) if !worker.gone => until,
            _ => None,
        };
        self.workers
            .iter()
            .filter_map(deadline)
            .filter(|until| *until > self.now)
            .min()
    }

    /// Moves the clock to the next thing that is due and lets it happen.
    pub(super) fn advance(&mut self) -> Advance {
        self.collect_wakes();
        let Some(time) = self.next_time() else {
            return Advance::Nothing;
        };
        self.now = time;
        match self.events.first_entry() {
            Some(entry) if entry.key().0 <= time => {
                let event = entry.remove();
                self.happen(event)
            }
            _ => Advance::Done,
        }
    }

    /// Moves the clock without letting anything happen, as when a machine sleeps.
    pub(super) fn jump(&mut self, span: Duration) {
        self.now = self
            .now
            .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }

    fn happen(&mut self, event: Event) -> Advance {
        match event {
            Event::Attempt(id) => self.attempt(id),
            Event::Deliver(id) => self.deliver(id),
            Event::Cancel(id) => self.cancel_arrives(id),
            Event::Wire(id) => self.wire(id),
            Event::Kill(id) => self.kill(id, libc::ECONNRESET),
            Event::Wake(worker) => {
                self.note("woken", worker as u64, 0, 0);
                self.workers[worker].wake_armed = false;
                self.workers[worker].woken = true;
            }
            Event::Job(id) => {
                self.note("job", id, 0, 0);
                return Advance::Run(self.jobs.remove(&id).expect("a job runs once"));
            }
            Event::Outside(id) => {
                self.note("outside", id, 0, 0);
                let job = self.outside_jobs.remove(&id);
                return Advance::Run(job.expect("a job runs once"));
            }
            Event::Datagram { from, to, data } => self.datagram_arrives(from, to, data),
        }
        Advance::Done
    }

    // ---- workers ----

    /// Turns wakes from wakers into events. Several may become one, none is lost.
    pub(super) fn collect_wakes(&mut self) {
        for index in 0..self.workers.len() {
            let worker = &mut self.workers[index];
            let wakes = worker.cell.wakes.swap(0, Ordering::Acquire);
            if wakes == 0 || worker.gone {
                continue;
            }
            let merged = wakes > 1 || worker.wake_armed || worker.woken;
            let arm = !std::mem::replace(&mut worker.wake_armed, true);
            if merged {
                self.saw(Fault::MergedWakes);
            }
            if arm {
                let late = self.strikes(Fault::LateWake);
                self.later(Event::Wake(index), late);
            }
        }
    }

    /// Whether a worker's wait would have something to show now.
    pub(super) fn is_runnable(&self, index: usize) -> bool {
        let worker = &self.workers[index];
        let due = match worker.rest {
            Rest::Busy => true,
            Rest::Until(until) => until.is_some_and(|until| until <= self.now),
        };
        worker.taken && !worker.gone && (due || worker.woken || !worker.ready.is_empty())
    }

    /// Which worker should be turned now, if the seed chooses one.
    pub(super) fn choose_worker(&mut self) -> Option<usize> {
        self.collect_wakes();
        let all = 0..self.workers.len();
        let runnable: Vec<usize> = all.clone().filter(|index| self.is_runnable(*index)).collect();
        let coming = self.next_time().is_some();
        // A worker may be slow, but not by the half minute until the next deadline.
        let slowest = self
            .now
            .saturating_add(self.plan.delay_ns().saturating_mul(LATE_FACTOR));
        let soon = self.next_time().is_some_and(|time| time <= slowest);
        if coming && self.strikes(Fault::SpuriousWait) {
            let alive: Vec<usize> = all
                .filter(|i| self.workers[*i].taken && !self.workers[*i].gone)
                .collect();
            return alive.get(self.random.index(alive.len())).copied();
        }
        // Half of the time the world moves on while a worker could run: that is a slow worker.
        if runnable.is_empty() || (soon && self.random.coin()) {
            return None;
        }
        Some(runnable[self.random.index(runnable.len())])
    }

    /// One worker's wait, which never blocks. Returns whether it has something to show.
    pub(super) fn wait(&mut self, index: usize, timeout: Option<Duration>) -> bool {
        self.check_nothing_lent(index, "wait");
        self.collect_wakes();
        let now = self.now;
        let wall = self.wall();
        let worker = &mut self.workers[index];
        let was_due = matches!(worker.rest, Rest::Until(Some(until)) if until <= now);
        let shows = std::mem::take(&mut worker.woken)
            || !worker.ready.is_empty()
            || was_due
            || timeout == Some(Duration::ZERO);
        let until =
            timeout.map(|span| now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        worker.rest = if shows { Rest::Busy } else { Rest::Until(until) };
        worker.clock = now;
        worker.wall = wall;
        self.note("wait", index as u64, u64::from(shows), until.unwrap_or(u64::MAX));
        shows
    }

    /// A wait that has begun before ends now.
    pub(super) fn end_wait(&mut self, index: usize) {
        self.collect_wakes();
        let (now, wall) = (self.now, self.wall());
        let worker = &mut self.workers[index];
        worker.woken = false;
        worker.rest = Rest::Busy;
        worker.clock = now;
        worker.wall = wall;
        self.note("wait ends", index as u64, 0, 0);
    }

    /// Makes a worker's completion visible.
    pub(super) fn show(&mut self, worker: usize, id: u64, completion: Completion, last: bool) {
        self.workers[worker].ready.push_back((id, completion, last));
    }

    /// An operation that waits on a worker's socket looks again.
    pub(super) fn stir_socket(&mut self, worker: usize, socket: u32, op: Op) {
        let entry = self.workers[worker].sockets.get(&socket);
        if let Some(id) = entry.and_then(|entry| entry.operations[op as usize]) {
            self.plan_attempt(id);
        }
    }

    /// A number for a new socket; `None` when the table is full.
    pub(super) fn open_number(&mut self, worker: usize, kind: Kind) -> Option<u32> {
        let reuse = self.random.coin();
        let state = &mut self.workers[worker];
        if state.sockets.len() >= self.plan.sockets {
            return None;
        }
        // Kernels reuse numbers at once; fresh ones now and then make use after close visible.
        let number = match state.free_numbers.pop() {
            Some(number) if reuse => number,
            other => {
                state.free_numbers.extend(other);
                state.next_number += 1;
                state.next_number - 1
            }
        };
        let entry = Entry {
            kind,
            operations: [None; 5],
            slot: None,
            in_flight: 0,
            leaving: false,
        };
        state.sockets.insert(number, entry);
        Some(number)
    }

    pub(super) fn check_nothing_lent(&self, worker: usize, call: &str) {
        if self.workers[worker].buffers.is_held() {
            self.misuse(
                worker,
                &format!("{call}() while a lent buffer has not been given back"),
            );
        }
    }
}
