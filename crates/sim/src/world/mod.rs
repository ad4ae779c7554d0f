//! The simulated back-end: many workers, their kernel and their peers on one thread, one seed.
//!
//! Owns the [`World`] (virtual clock, network, faults, scheduler) and [`Sim`], one worker's
//! [`Backend`](ringmain_engine::backend::Backend) in it. Knows nothing of the worker: it sees only the contract, and
//! panics with the reason when a worker breaks it.

mod attempts;
mod backend;
mod buffers;
mod datagrams;
mod network;
mod operations;
mod peer;
mod plan;
mod random;
mod state;
mod trace;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Job, Socket, Time};

pub use self::backend::Sim;
pub use self::peer::{Peer, PeerDatagrams, PeerListener};
pub use self::plan::{Fault, Plan};
use self::state::{Advance, Event, Kind, State};

/// What the scheduler wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give this worker one turn.
    Turn(usize),
    /// Time or the network moved.
    Moved,
    /// Every worker waits for ever and nothing is on its way.
    Quiet,
}

/// A simulated machine and its network. Clones are the same world.
#[derive(Clone)]
pub struct World {
    state: Rc<RefCell<State>>,
}

impl World {
    /// A world of `workers` workers whose whole future follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, plan: Plan, workers: usize) -> World {
        World {
            state: Rc::new(RefCell::new(State::new(seed, plan, workers))),
        }
    }

    /// The back-end of one worker.
    ///
    /// # Panics
    /// If there is no such worker or its back-end was taken before.
    #[must_use]
    pub fn backend(&self, worker: usize) -> Sim {
        Sim::new(Rc::clone(&self.state), worker)
    }

    /// Opens a listener that belongs to `worker`; port 0 chooses one. Listeners with the same
    /// address form a group, and each connection goes to one of them.
    ///
    /// # Panics
    /// If the worker's socket table is full.
    #[must_use]
    pub fn listen(&self, worker: usize, addr: &Addr) -> Socket {
        let mut state = self.state.borrow_mut();
        // The number is reserved first, because the listener must know it.
        let number = state
            .open_number(worker, Kind::Gone)
            .expect("the plan leaves room for listeners");
        let id = state.open_listener(Some((worker, number)), addr);
        let entry = state.workers[worker].sockets.get_mut(&number);
        entry.expect("it was just opened").kind = Kind::Listener(id);
        Socket::from_number(number)
    }

    /// Connects a simulated client. It counts as connected at once; a worker accepts it later.
    ///
    /// # Errors
    /// `ECONNREFUSED` or `ENOENT` if nobody listens there, `EAGAIN` while every backlog is full.
    pub fn connect(&self, to: &Addr) -> std::io::Result<Peer> {
        Peer::connect(&self.state, to, None)
    }

    /// The same with a source of the test's choice; otherwise every connection comes from an address of its own.
    ///
    /// # Errors
    /// As [`World::connect`].
    pub fn connect_from(&self, to: &Addr, from: SocketAddr) -> std::io::Result<Peer> {
        Peer::connect(&self.state, to, Some(Addr::Inet(from)))
    }

    /// Opens a listener of the test, for workers to connect to.
    #[must_use]
    pub fn peer_listen(&self, addr: &Addr) -> PeerListener {
        PeerListener::new(&self.state, addr)
    }

    /// Makes connection attempts to `addr` hang without an answer, as a firewall does.
    pub fn silence(&self, addr: &Addr) {
        let mut state = self.state.borrow_mut();
        let id = state.open_listener(None, addr);
        let listener = state.listeners.get_mut(&id);
        listener.expect("it was just opened").silent = true;
    }

    /// Runs `job` at a time that the seed chooses, from outside every worker: what another thread
    /// of the process does, such as a control plane that publishes a change.
    pub fn run_outside(&self, job: Job) {
        let mut state = self.state.borrow_mut();
        let id = state.fresh_operation();
        state.outside_jobs.insert(id, job);
        state.later(Event::Outside(id), false);
    }

    /// Opens a datagram socket of the test; port 0 chooses one.
    #[must_use]
    pub fn peer_datagrams(&self, local: SocketAddr) -> PeerDatagrams {
        PeerDatagrams::new(&self.state, local)
    }

    /// Chooses what happens next: a worker's turn, or one event of the world.
    pub fn step(&self) -> Step {
        if let Some(worker) = self.state.borrow_mut().choose_worker() {
            return Step::Turn(worker);
        }
        if self.advance() { Step::Moved } else { Step::Quiet }
    }

    /// Ends the wait that a worker has begun, for a driver that begins it at the end of a turn: the
    /// worker reads the clocks now, and a wake that has arrived is taken.
    ///
    /// Such a driver's turn is `end_wait`, then what the completions ask for, then `wait`. In between the
    /// worker really waits, as the threads that would wake it see it.
    pub fn end_wait(&self, worker: usize) {
        self.state.borrow_mut().end_wait(worker);
    }

    /// Moves the clock to the next thing that is due, and lets it happen: a network event, a job,
    /// or the end of a worker's wait. False if there is none.
    pub fn advance(&self) -> bool {
        let advance = self.state.borrow_mut().advance();
        match advance {
            Advance::Nothing => return false,
            Advance::Done => {}
            // Run without a borrow: a job may wake workers or drop what refers to the world.
            Advance::Run(job) => job(),
        }
        true
    }

    /// When the next thing is due.
    #[must_use]
    pub fn next_event_time(&self) -> Option<Time> {
        self.state.borrow().next_time().map(Time)
    }

    /// Whether a turn of this worker would find nothing to do.
    #[must_use]
    pub fn worker_idle(&self, worker: usize) -> bool {
        let mut state = self.state.borrow_mut();
        state.collect_wakes();
        !state.is_runnable(worker)
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(self.state.borrow().now)
    }

    /// Lets `span` pass at once without anything happening in it, as when a machine sleeps.
    pub fn jump(&self, span: Duration) {
        self.state.borrow_mut().jump(span);
    }

    /// Sets the wall clock forward or back, as an administrator does.
    pub fn jump_wall(&self, seconds: i64) {
        self.state.borrow_mut().jump_wall(seconds);
    }

    /// A number below `limit` for the test's own choices, so that they follow from the seed.
    pub fn below(&self, limit: usize) -> usize {
        self.state.borrow_mut().random.index(limit)
    }

    /// How often a fault has struck.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.state.borrow().count(fault)
    }

    /// A hash of everything that happened so far.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.state.borrow().trace_hash()
    }

    /// The last things that happened, one a line, to print when a test fails.
    #[must_use]
    pub fn trace_text(&self) -> String {
        self.state.borrow().trace_text()
    }

    /// What workers still have open: sockets, buffers, operations, jobs. Empty after a good shutdown.
    #[must_use]
    pub fn leaks(&self) -> Vec<String> {
        self.state.borrow().leaks()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.borrow();
        write!(f, "World {{ seed: {}, now: {} ns }}", state.seed, state.now)
    }
}
