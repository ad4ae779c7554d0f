//! Real workers on back-ends of the caller's choice, for tests: [`Cluster`].
//!
//! Owns the wiring that [`crate::Engine`] does for a process, without threads: the caller gives each worker its turns. Knows no
//! back-end and nothing of handlers and clients. `ringmain-sim` puts the workers into a simulated world with it. Feature
//! `testing`, never in a product build.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::backend::{Backend, Socket};
use crate::mail::{Inbox, Mailbox, grid};
use crate::worker::handler::Handler;
use crate::worker::shared::{Counters, Opened, Order, Shared, State};
use crate::worker::{Parts, Start, Worker};

/// Settings of a process under test; see [`crate::Config`].
#[derive(Clone, Copy, Debug)]
pub struct ClusterConfig {
    /// Number of workers.
    pub workers: usize,
    /// Limit of connections of one worker.
    pub capacity: u32,
    /// Limit of connections of all workers.
    pub max_connections: u32,
    /// Connections that the listen queues of one worker may hold: so near to a limit it accepts one by one.
    pub queue_limit: u32,
    /// Messages that may be queued from one worker to one other.
    pub mail_per_pair: usize,
    /// Messages that may be queued from other threads to one worker.
    pub inbox: usize,
    /// Limit of the bytes that all workers hold for slow readers; see [`crate::limits::HELD_BYTES`].
    pub held_bytes: usize,
    /// Time for connections to finish after [`Cluster::shut_down`].
    pub grace: Duration,
    /// The time over which that spreads the ends of connections.
    pub drain_spread: Duration,
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
            drain_spread: Duration::from_millis(2500),
        }
    }
}

/// The workers of one process, on the caller's thread.
///
/// A worker is added, gets its listeners and begins its first wait. After that each turn begins when its back-end has ended the
/// wait: [`Cluster::turn`] processes the completions and starts the next wait, which must not block the thread.
pub struct Cluster<H: Handler> {
    config: ClusterConfig,
    shared: Arc<Shared>,
    /// Mailboxes of workers that are not added yet, the next one last.
    mailboxes: Vec<Mailbox<H::Mail>>,
    inboxes: Vec<Inbox<H::Mail>>,
    /// `None`: the worker has shut down.
    workers: Vec<Option<Worker<H>>>,
}

impl<H: Handler> Cluster<H> {
    /// Prepares a process of `config.workers` workers, none of which is added yet.
    #[must_use]
    pub fn new(config: ClusterConfig) -> Cluster<H> {
        let shared = Shared::new(config.workers, config.max_connections);
        let doorbells: Vec<_> = shared.workers.iter().map(|w| Arc::clone(&w.doorbell)).collect();
        let mut mailboxes = grid(&doorbells, config.mail_per_pair, config.inbox);
        let inboxes = mailboxes.iter().map(Mailbox::inbox).collect();
        mailboxes.reverse();
        Cluster {
            config,
            shared,
            mailboxes,
            inboxes,
            workers: Vec::new(),
        }
    }

    /// Adds the next worker and returns its number, from 0.
    ///
    /// # Panics
    /// If all workers of the configuration have been added.
    pub fn add(&mut self, backend: Box<dyn Backend>, make: impl FnOnce(Start<H::Mail>) -> H) -> usize {
        let index = self.workers.len();
        let mailbox = self.mailboxes.pop();
        let parts = Parts {
            backend,
            mailbox: mailbox.expect("no more workers than configured"),
            shared: Arc::clone(&self.shared),
            index,
            capacity: self.config.capacity,
            queue_limit: self.config.queue_limit,
            held_bytes: self.config.held_bytes,
            grace: self.config.grace,
            drain_spread: self.config.drain_spread.min(self.config.grace),
            flush: crate::limits::FLUSH,
        };
        self.workers.push(Some(Worker::new(parts, make)));
        index
    }

    /// Gives a worker that has not begun its first wait a listener of its back-end; `number` is the same on all workers.
    ///
    /// # Errors
    /// If the worker has no room for it.
    ///
    /// # Panics
    /// If the worker was not added or has shut down.
    pub fn listen(&mut self, worker: usize, socket: Socket, number: u32) -> io::Result<()> {
        self.running(worker).listen(socket, number)
    }

    /// Begins a worker's first wait.
    ///
    /// # Errors
    /// Those of [`Backend::wait`].
    ///
    /// # Panics
    /// If the worker was not added or has shut down.
    pub fn begin_wait(&mut self, worker: usize) -> io::Result<()> {
        self.running(worker).begin_wait().map(drop)
    }

    /// Processes the completions of a worker's wait, and starts the next wait. A worker that has shut down is dropped instead,
    /// with its back-end.
    ///
    /// # Errors
    /// Those of [`Backend::wait`].
    ///
    /// # Panics
    /// If the worker was not added or has shut down.
    pub fn turn(&mut self, worker: usize) -> io::Result<()> {
        self.shared.workers[worker].doorbell.cancel_sleep();
        let running = self.running(worker);
        running.work();
        if running.is_done() {
            self.workers[worker] = None;
            return Ok(());
        }
        running.begin_wait().map(drop)
    }

    fn running(&mut self, worker: usize) -> &mut Worker<H> {
        let running = self.workers[worker].as_mut();
        running.expect("a worker that has shut down takes no more turns")
    }

    /// Has a worker open a listener, as [`crate::Listeners::open`]. The socket is a listener of its back-end.
    pub fn open(&self, worker: usize, socket: Socket, number: u32) {
        // Success shows by the connections alone: the outcome is not received.
        let (told, _) = mpsc::channel();
        let order = Order::Open {
            tag: number,
            listener: Opened::Socket(socket),
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

    /// Announces a graceful shutdown, as [`crate::Running::begin_drain`] with a delay, which [`Cluster::shut_down`] ends.
    pub fn begin_drain_delay(&self) {
        self.shared.advance(State::DrainDelay);
    }

    /// Begins a graceful shutdown, as [`crate::Running::shut_down`].
    pub fn shut_down(&self) {
        self.shared.advance(State::Draining);
    }

    /// Closes all connections at once, as [`crate::Running::stop`].
    pub fn stop(&self) {
        self.shared.advance(State::Stopping);
    }

    /// Returns whether every worker has shut down.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.workers.iter().all(Option::is_none)
    }

    /// Returns the connections of a worker, as the other workers see them.
    #[must_use]
    pub fn connections(&self, worker: usize) -> u32 {
        self.shared.workers[worker].load.load(Ordering::Relaxed)
    }

    /// Returns the bytes that a worker's connections hold for slow readers; 0 once it has shut down.
    #[must_use]
    pub fn held(&self, worker: usize) -> usize {
        let worker = self.workers[worker].as_ref();
        worker.map_or(0, |worker| worker.cx.held())
    }

    /// Returns the unfinished tasks of a worker; 0 once it has shut down.
    #[must_use]
    pub fn tasks(&self, worker: usize) -> u32 {
        let worker = self.workers[worker].as_ref();
        worker.map_or(0, |worker| worker.cx.0.tasks.count())
    }

    /// Returns the counters of a worker; they outlive it.
    #[must_use]
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.shared.workers[worker].counters
    }

    /// Returns the inbox by which other threads send mail to a worker.
    #[must_use]
    pub fn inbox(&self, worker: usize) -> Inbox<H::Mail> {
        self.inboxes[worker].clone()
    }
}

impl<H: Handler> Drop for Cluster<H> {
    fn drop(&mut self) {
        // A task holds its worker, and the worker holds the task.
        for worker in self.workers.iter().flatten() {
            worker.cx.0.tasks.clear();
        }
    }
}

impl<H: Handler> std::fmt::Debug for Cluster<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster of {} workers", self.config.workers)
    }
}
