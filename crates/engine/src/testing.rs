//! The real workers on the simulated back-end, for tests: [`SimCluster`].
//!
//! Owns the wiring that [`crate::Engine`] does for a process, and gives workers their turns as the world's
//! scheduler says. Knows nothing of handlers and clients. Nothing here reaches a product build.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use ringmain_sys::addr::Addr;

use crate::backend::sim::{Step, World};
use crate::mail::{Inbox, Mailbox, grid};
use crate::worker::handler::Handler;
use crate::worker::shared::{Counters, Opened, Order, Shared, State};
use crate::worker::{Parts, Start, Worker};

/// What a process would set; see [`crate::Config`].
#[derive(Clone, Copy, Debug)]
pub struct ClusterConfig {
    /// How many workers.
    pub workers: usize,
    /// Connections that one worker holds.
    pub capacity: u32,
    /// Connections that all of them hold.
    pub max_connections: u32,
    /// Connections that may wait on one worker's listeners: so near to a limit it accepts one by one.
    pub queue_limit: u32,
    /// Letters that wait from one worker to one other.
    pub mail_per_pair: usize,
    /// Letters that wait from outside to one worker.
    pub inbox: usize,
    /// Bytes that all of them hold for slow readers; see [`crate::limits::HELD_BYTES`].
    pub held_bytes: usize,
    /// How long connections may go on after [`SimCluster::shut_down`].
    pub grace: Duration,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            workers: 2,
            capacity: 1000,
            max_connections: 4000,
            queue_limit: 16,
            mail_per_pair: 64,
            inbox: 64,
            held_bytes: crate::limits::HELD_BYTES,
            grace: Duration::from_secs(5),
        }
    }
}

/// The workers of one simulated process.
pub struct SimCluster<H: Handler> {
    world: World,
    shared: Arc<Shared>,
    /// `None`: has ended in order.
    workers: Vec<Option<Worker<H>>>,
    inboxes: Vec<Inbox<H::Mail>>,
}

impl<H: Handler> SimCluster<H> {
    /// Makes the workers in `world`, which must have as many. `listeners` are (worker, address, number); all
    /// are open before the first worker takes a turn.
    ///
    /// # Panics
    /// If a listener cannot be opened.
    pub fn new(
        world: &World,
        config: ClusterConfig,
        listeners: &[(usize, Addr, u32)],
        mut make: impl FnMut(Start<H::Mail>) -> H,
    ) -> SimCluster<H> {
        let shared = Shared::new(config.workers, config.max_connections);
        let doorbells: Vec<_> = shared.workers.iter().map(|w| Arc::clone(&w.doorbell)).collect();
        let mailboxes = grid(&doorbells, config.mail_per_pair, config.inbox);
        let inboxes = mailboxes.iter().map(Mailbox::inbox).collect();
        let mut worker = |(index, mailbox)| {
            let parts = Parts {
                backend: Box::new(world.backend(index)),
                mailbox,
                shared: Arc::clone(&shared),
                index,
                capacity: config.capacity,
                queue_limit: config.queue_limit,
                held_bytes: config.held_bytes,
                grace: config.grace,
                flush: crate::limits::FLUSH,
            };
            let mut worker = Worker::new(parts, &mut make);
            for (_, addr, tag) in listeners.iter().filter(|(owner, ..)| *owner == index) {
                let opened = worker.listen(world.listen(index, addr), *tag);
                opened.expect("a fresh worker has room");
            }
            worker.begin_wait().expect("a simulated wait never fails");
            Some(worker)
        };
        let workers = mailboxes.into_iter().enumerate().map(&mut worker).collect();
        SimCluster {
            world: world.clone(),
            shared,
            workers,
            inboxes,
        }
    }

    /// One step of the world; a worker's turn is taken.
    pub fn step(&mut self) -> Step {
        let step = self.world.step();
        if let Step::Turn(index) = step {
            self.turn(index);
        }
        step
    }

    /// Ends the wait that the worker began in its last turn, and does what the turn asks for.
    fn turn(&mut self, index: usize) {
        let worker = self.workers[index].as_mut();
        let worker = worker.expect("a worker that has ended is not scheduled");
        self.world.end_wait(index);
        self.shared.workers[index].doorbell.cancel_sleep();
        worker.work();
        if worker.is_done() {
            self.workers[index] = None;
        } else {
            worker.begin_wait().expect("a simulated wait never fails");
        }
    }

    /// Has a worker open a listener, as [`crate::Listeners::open`]: an address that is no open listener's.
    pub fn open(&self, worker: usize, addr: &Addr, number: u32) {
        // Whether it has come about the connections tell.
        let (told, _) = mpsc::channel();
        let order = Order::Open {
            tag: number,
            listener: Opened::Simulated(self.world.listen(worker, addr)),
            backlog: 0,
            told,
        };
        self.shared.order(worker, order);
    }

    /// Has all workers close the listeners of a number, as [`crate::Listeners::close`]. The receiver is disconnected when they
    /// have.
    #[must_use]
    pub fn close(&self, number: u32) -> mpsc::Receiver<()> {
        let (told, closed) = mpsc::channel();
        for worker in 0..self.workers.len() {
            let order = Order::Close {
                tag: number,
                backlog: 0,
                told: told.clone(),
            };
            self.shared.order(worker, order);
        }
        closed
    }

    /// Begins a graceful shutdown, as [`crate::Running::shut_down`].
    pub fn shut_down(&self) {
        self.shared.advance(State::Draining);
    }

    /// Ends all connections at once, as [`crate::Running::stop`].
    pub fn stop(&self) {
        self.shared.advance(State::Stopping);
    }

    /// Whether every worker has ended in order.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.workers.iter().all(Option::is_none)
    }

    /// Connections of a worker, as it tells the others.
    #[must_use]
    pub fn connections(&self, worker: usize) -> u32 {
        let load = &self.shared.workers[worker].load;
        load.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Bytes that a worker's connections hold for slow readers; none once it has ended.
    #[must_use]
    pub fn held(&self, worker: usize) -> usize {
        let worker = self.workers[worker].as_ref();
        worker.map_or(0, |worker| worker.cx.held())
    }

    /// Tasks of a worker that are not over; none once it has ended.
    #[must_use]
    pub fn tasks(&self, worker: usize) -> u32 {
        let worker = self.workers[worker].as_ref();
        worker.map_or(0, |worker| worker.cx.0.tasks.count())
    }

    /// The counts of a worker; they outlive it.
    #[must_use]
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.shared.workers[worker].counters
    }

    /// The way to a worker from outside.
    #[must_use]
    pub fn inbox(&self, worker: usize) -> Inbox<H::Mail> {
        self.inboxes[worker].clone()
    }
}

impl<H: Handler> Drop for SimCluster<H> {
    fn drop(&mut self) {
        // Tasks hold the worker that holds them.
        for worker in self.workers.iter().flatten() {
            worker.cx.0.tasks.clear();
        }
    }
}

impl<H: Handler> std::fmt::Debug for SimCluster<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimCluster of {} in {:?}", self.workers.len(), self.world)
    }
}
