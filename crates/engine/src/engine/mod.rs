//! The process: opens listeners, starts workers, watches them, ends them.
//!
//! Owns the threads and the order of starting and stopping. Knows nothing of what handlers do.

mod listeners;
mod running;
mod service;
mod signals;
mod size;
mod watch;

use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use ringmain_sys::addr::Addr;
use ringmain_sys::cpu;
use ringmain_sys::inherit::Inherited;
use ringmain_sys::listen::{ListenError, ListenOptions};

use self::listeners::{Bound, Opening};
pub use self::listeners::{BoundListener, Listeners};
pub use self::running::{Report, Running, Summary, WorkerReport};
pub use self::service::Reload;
pub use self::signals::block_signals;
use self::size::Size;
use crate::backend::epoll::EpollGroup;
use crate::backend::uring::{Group, Uring, UringConfig};
use crate::backend::{Backend, RunJob, Time};
use crate::blocking::Pool;
use crate::config::Config;
use crate::limits;
use crate::mail;
use crate::probe::{ProbeError, Selection, probe};
use crate::worker::handler::Handler;
use crate::worker::shared::{Shared, SocketFile, State};
use crate::worker::{Parts, Start, Worker};

/// Why an engine could not be set up or had to end.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No back-end as asked for.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// A listener could not be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Nothing to listen on.
    #[error("no listener: add at least one address before starting, or set Config::clients_only")]
    NoListener,
    /// A setting out of its range.
    #[error("{setting}: expected {expected}, found {found}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A worker ended by itself.
    #[error("worker {worker} ended: {source}")]
    Worker {
        /// Its number.
        worker: usize,
        /// Why.
        source: std::io::Error,
    },
}

/// An engine that is set up and not started.
pub struct Engine {
    config: Config,
    selection: Selection,
    size: Size,
    listeners: Vec<Bound>,
}

impl Engine {
    /// Chooses the back-end, raises the descriptor limit to its hard limit, and sizes the workers.
    ///
    /// # Errors
    /// A forced back-end or feature that does not work here, or a setting out of range.
    pub fn new(config: Config) -> Result<Engine, EngineError> {
        let selection = probe(&config)?;
        let size = Size::of(&config, &selection)?;
        Ok(Engine {
            config,
            selection,
            size,
            listeners: Vec::new(),
        })
    }

    /// What was chosen and why.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// How many workers will run.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.size.workers
    }

    /// Connections that the process will hold at most.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.size.max_connections
    }

    /// Opens an address; with port 0 the kernel chooses, see the result. Listeners are numbered in
    /// the order in which they are added.
    ///
    /// # Errors
    /// One line that says what is wrong with the address and what to do.
    pub fn listen(&mut self, addr: &Addr, options: &ListenOptions) -> Result<Addr, EngineError> {
        let bound = self.opening().bind(addr, options)?;
        let addr = bound.addr.clone();
        self.listeners.push(bound);
        Ok(addr)
    }

    /// Takes over listeners of a former process or of a service manager. Those of the same address
    /// belong together. A Unix listener's file is removed at the end only if this program once made it.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn inherit(&mut self, listeners: Vec<Inherited>) -> Result<Vec<Addr>, EngineError> {
        let first = self.listeners.len();
        for Inherited { fd, name, addr } in listeners {
            let known = self.listeners[first..].iter_mut().find(|b| b.addr == addr);
            if let Some(bound) = known {
                bound.fds.push(fd);
                continue;
            }
            let path = addr.path().filter(|_| name.starts_with(listeners::OWN_NAME));
            let file = path.map(|path| SocketFile::new(path, &fd, false));
            self.listeners.push(Bound {
                file: file.transpose().map_err(system("dup"))?,
                addr,
                name,
                fds: vec![fd],
                backlog: ListenOptions::default().backlog,
            });
        }
        Ok(self.listeners[first..]
            .iter()
            .map(|bound| bound.addr.clone())
            .collect())
    }

    fn opening(&self) -> Opening {
        Opening {
            workers: self.size.workers,
            steer: self.config.steer.clone(),
            pins: self.size.pins.clone(),
        }
    }

    /// Starts the workers. `make` is called once on each worker's thread.
    ///
    /// # Errors
    /// No listener (but for [`Config::clients_only`]), or a worker that could not be set up; nothing runs then.
    pub fn start<H, F>(mut self, make: F) -> Result<Running<H::Mail>, EngineError>
    where
        H: Handler,
        F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
    {
        if self.listeners.is_empty() && !self.config.clients_only {
            return Err(EngineError::NoListener);
        }
        let workers = self.size.workers;
        let shared = Shared::new(workers, self.size.max_connections);
        let fabric = Fabric::new(&self.selection, workers).map_err(system("eventfd"))?;
        let pool = Arc::new(Pool::new(self.config.blocking_threads, limits::BLOCKING_QUEUE));
        let jobs = Arc::clone(&pool);
        let run_job: RunJob = Arc::new(move |job| jobs.run(job));
        let doorbells: Vec<_> = shared.workers.iter().map(|w| Arc::clone(&w.doorbell)).collect();
        let mailboxes = mail::grid(&doorbells, limits::MAIL_PER_PAIR, limits::INBOX);
        let inboxes = mailboxes.iter().map(mail::Mailbox::inbox).collect();
        let mut listeners: Vec<Vec<(u32, OwnedFd)>> = (0..workers).map(|_| Vec::new()).collect();
        for (tag, bound) in (0..).zip(&mut self.listeners) {
            bound.spread(tag, &mut listeners).map_err(system("dup"))?;
            let kept = bound.keep(tag, workers).map_err(system("dup"))?;
            shared.kept().extend(kept);
        }
        let make = Arc::new(make);
        let (ready, started) = mpsc::channel();
        let mut threads = Vec::new();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let set_up = SetUp {
                index,
                pin: self.size.pins.get(index).copied(),
                must_pin: !self.config.cpus.is_empty(),
                fabric: fabric.clone(),
                uring: self.uring_config(),
                run_job: Arc::clone(&run_job),
                listeners: std::mem::take(&mut listeners[index]),
                capacity: self.size.capacity,
                queue_limit: self
                    .listeners
                    .iter()
                    .fold(0, |sum, l| sum.saturating_add(l.backlog)),
                grace: self.config.grace,
                drain_spread: self.config.effective_drain_spread(),
                flush: self.config.flush,
                shared: Arc::clone(&shared),
            };
            let (make, ready) = (Arc::clone(&make), ready.clone());
            let body = move || set_up.run(mailbox, |start| make(start), ready);
            let builder = std::thread::Builder::new().name(format!("ringmain-{index}"));
            #[expect(
                clippy::disallowed_methods,
                reason = "this is where a process starts its workers"
            )]
            let thread = builder.spawn(body).map_err(system("starting a worker thread"))?;
            threads.push(thread);
        }
        drop(ready);
        let running = Running::new(self, shared, fabric, pool, inboxes, threads);
        running.wait_started(&started, workers)
    }

    fn uring_config(&self) -> UringConfig {
        UringConfig {
            table: self.size.table,
            sqpoll: self.config.sqpoll,
            napi: self.config.busy_poll,
            zero_copy: self.config.zero_copy,
            features: self.selection.features,
            receive_buffers: self.config.receive_buffers,
            receive_buffer_bytes: self.config.receive_buffer_bytes,
            ..UringConfig::default()
        }
    }
}

/// What connects the workers of one process.
#[derive(Clone)]
enum Fabric {
    Uring(Arc<Group>),
    Epoll(Arc<EpollGroup>),
}

impl Fabric {
    fn new(selection: &Selection, workers: usize) -> std::io::Result<Fabric> {
        Ok(if selection.uring {
            Fabric::Uring(Group::new(workers)?)
        } else {
            Fabric::Epoll(EpollGroup::new(workers)?)
        })
    }

    fn now(&self) -> Time {
        match self {
            Fabric::Uring(group) => group.now(),
            Fabric::Epoll(group) => group.now(),
        }
    }

    /// Brings a connection to a worker from a thread that is none; back it comes if that one has
    /// no room for more at present.
    fn hand(&self, worker: usize, tag: u32, fd: OwnedFd) -> Result<(), OwnedFd> {
        match self {
            Fabric::Uring(group) => group.hand(worker, tag, fd),
            Fabric::Epoll(group) => group.hand(worker, tag, fd),
        }
    }

    /// The back-end of one worker; on the worker's thread.
    fn backend(
        &self,
        index: usize,
        uring: UringConfig,
        run_job: RunJob,
    ) -> std::io::Result<Box<dyn Backend>> {
        Ok(match self {
            Fabric::Uring(group) => Box::new(Uring::new(uring, Arc::clone(group), index, run_job)?),
            Fabric::Epoll(group) => Box::new(group.worker(index, run_job)?),
        })
    }
}

/// Ends all workers when one fails, also by a panic: the others must not go on as if nothing had happened.
struct EndAll(Option<Arc<Shared>>);

impl Drop for EndAll {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.advance(State::Stopping);
        }
    }
}

/// What one worker's thread begins with.
struct SetUp {
    index: usize,
    pin: Option<usize>,
    /// Without its CPU the worker does not start.
    must_pin: bool,
    fabric: Fabric,
    uring: UringConfig,
    run_job: RunJob,
    listeners: Vec<(u32, OwnedFd)>,
    capacity: u32,
    queue_limit: u32,
    grace: std::time::Duration,
    drain_spread: std::time::Duration,
    flush: std::time::Duration,
    shared: Arc<Shared>,
}

impl SetUp {
    fn run<H: Handler>(
        self,
        mailbox: mail::Mailbox<H::Mail>,
        make: impl FnOnce(Start<H::Mail>) -> H,
        ready: mpsc::Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let index = self.index;
        let mut failure = EndAll(Some(Arc::clone(&self.shared)));
        let died = move |source| EngineError::Worker {
            worker: index,
            source,
        };
        let worker = match self.build(mailbox, make) {
            Ok(worker) => {
                // The receiver waits for this message.
                let _ = ready.send(Ok(()));
                drop(ready);
                worker
            }
            Err(source) => {
                let what = format!("setting up worker {index}");
                let _ = ready.send(Err(EngineError::System { what, source }));
                return Ok(());
            }
        };
        // Unless it ends well, operations may still be in flight: then the kernel keeps the memory that they name.
        let mut worker = ManuallyDrop::new(worker);
        worker.run().map_err(died)?;
        failure.0 = None;
        drop(ManuallyDrop::into_inner(worker));
        Ok(())
    }

    fn build<H: Handler>(
        self,
        mailbox: mail::Mailbox<H::Mail>,
        make: impl FnOnce(Start<H::Mail>) -> H,
    ) -> std::io::Result<Worker<H>> {
        if let Some(cpu) = self.pin
            && let Err(error) = cpu::pin(cpu)
        {
            if self.must_pin {
                let text = format!("cannot run on CPU {cpu}: {error}");
                return Err(std::io::Error::new(error.kind(), text));
            }
            log::warn!("worker {} is not pinned to CPU {cpu}: {error}", self.index);
        }
        let backend = self.fabric.backend(self.index, self.uring, self.run_job)?;
        let parts = Parts {
            backend,
            mailbox,
            shared: self.shared,
            index: self.index,
            capacity: self.capacity,
            queue_limit: self.queue_limit,
            grace: self.grace,
            drain_spread: self.drain_spread,
            flush: self.flush,
            held_bytes: limits::HELD_BYTES,
        };
        let mut worker = Worker::new(parts, make);
        for (tag, fd) in self.listeners {
            worker.adopt_listener(fd, tag)?;
        }
        Ok(worker)
    }
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> EngineError {
    move |source| EngineError::System {
        what: what.into(),
        source,
    }
}
