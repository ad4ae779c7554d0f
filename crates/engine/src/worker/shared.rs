//! What the workers of a process share: loads, counters, heartbeats, the state of the whole.
//!
//! Each field of a worker is written by that worker alone (relaxed load and store, no
//! read-modify-write); everybody may read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use ringmain_sys::listen;

use crate::backend::Time;
use crate::limits;
use crate::wake::Doorbell;
use crate::watchdog::{Heartbeat, Names};

/// What the process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum State {
    Running,
    /// A shutdown is announced: new connections are served, and clients are asked to use another one.
    DrainDelay,
    /// No new connections; open ones finish.
    Draining,
    /// Open connections are ended.
    Stopping,
}

/// State common to all workers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) workers: Vec<WorkerShared>,
    pub(crate) beats: Vec<Heartbeat>,
    pub(crate) names: Names,
    pub(crate) max_connections: u32,
    state: AtomicU8,
    /// Another process has taken over the listeners.
    pub(crate) has_successor: AtomicBool,
    /// Workers that may still give connections to others.
    givers: AtomicUsize,
    /// The process's own copies of its listeners, for handing them over. Dropped when draining begins:
    /// a listener is closed only when nobody holds it. Files of Unix listeners go with them.
    kept: Mutex<Vec<Kept>>,
    /// Held while listeners are opened, closed or handed over.
    doors: Mutex<()>,
}

/// A worker is to open or close a listener.
#[derive(Debug)]
pub(crate) enum Order {
    Open {
        /// Its number.
        tag: u32,
        listener: Opened,
        /// Connections that its queue may hold.
        backlog: u32,
        told: mpsc::Sender<io::Result<()>>,
    },
    Close {
        tag: u32,
        backlog: u32,
        /// Dropped when all is closed.
        told: mpsc::Sender<()>,
    },
}

/// A listener on its way to a worker.
#[derive(Debug)]
pub(crate) enum Opened {
    Descriptor(OwnedFd),
    /// A listener of a back-end without descriptors.
    #[cfg(feature = "testing")]
    Socket(crate::backend::Socket),
}

/// A listener that can be handed to another process.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fd: OwnedFd,
    pub(crate) name: String,
    /// The listener's number, alike on all workers.
    pub(crate) tag: u32,
    /// Who accepts from it.
    pub(crate) workers: Vec<usize>,
    /// Of a Unix listener, if it is this process's to remove.
    pub(crate) file: Option<SocketFile>,
}

/// A Unix listener's file. Dropping this removes it, unless it is somebody else's by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    listener: OwnedFd,
    removes: bool,
}

impl SocketFile {
    /// The file at `path` that `listener` is bound to. With `removes` false it stays until [`SocketFile::arm`]:
    /// a successor that fails while starting must leave it to its predecessor, which goes on serving.
    pub(crate) fn new(path: &Path, listener: impl AsFd, removes: bool) -> std::io::Result<SocketFile> {
        Ok(SocketFile {
            path: path.to_owned(),
            listener: listener.as_fd().try_clone_to_owned()?,
            removes,
        })
    }

    /// From now on dropping removes the file.
    pub(crate) fn arm(&mut self) {
        self.removes = true;
    }

    /// The file belongs to a successor: dropping leaves it alone.
    pub(crate) fn disarm(&mut self) {
        self.removes = false;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.removes {
            return;
        }
        if let Err(error) = listen::unlink_if_ours(&self.path, &self.listener) {
            log::warn!(
                "the socket file {} stays, the next start replaces it: {error}",
                self.path.display()
            );
        }
    }
}

/// One worker's part, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerShared {
    pub(crate) load: AtomicU32,
    pub(crate) capacity: AtomicU32,
    pub(crate) counters: Counters,
    pub(crate) doorbell: Arc<Doorbell>,
    /// There are orders. The worker looks at this once a turn.
    ordered: AtomicBool,
    orders: Mutex<Vec<Order>>,
}

impl WorkerShared {
    /// Whether there are orders.
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::SeqCst)
    }

    /// What the worker is to do.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        self.ordered.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts since the start. Bytes are those of stream payload.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted, also those given away afterwards.
    pub accepted: AtomicU64,
    /// Connections received from other workers.
    pub adopted: AtomicU64,
    /// Connections given to other workers.
    pub given: AtomicU64,
    /// Connections whose slot is free again.
    pub closed: AtomicU64,
    /// Bytes received.
    pub bytes_received: AtomicU64,
    /// Bytes handed to the kernel.
    pub bytes_sent: AtomicU64,
    /// Receives that found no free buffer.
    pub no_buffers: AtomicU64,
    /// Loop turns.
    pub turns: AtomicU64,
    /// Completions handled.
    pub completions: AtomicU64,
    /// Times that accepting paused for want of descriptors, memory or room.
    pub accept_pauses: AtomicU64,
    /// Panics of handlers and tasks, each of which ended one connection or task.
    pub panics: AtomicU64,
    /// Reads of files answered from the page cache, on the worker.
    pub file_hits: AtomicU64,
    /// Reads of files that went to the blocking pool.
    pub file_misses: AtomicU64,
}

impl Counters {
    /// Adds without a read-modify-write: only the owner writes.
    #[inline]
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.store(
            counter.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }
}

impl Shared {
    pub(crate) fn new(workers: usize, max_connections: u32) -> Arc<Shared> {
        let worker = |_| WorkerShared {
            load: AtomicU32::new(0),
            capacity: AtomicU32::new(u32::MAX),
            counters: Counters::default(),
            doorbell: Arc::new(Doorbell::new()),
            ordered: AtomicBool::new(false),
            orders: Mutex::default(),
        };
        Arc::new(Shared {
            workers: (0..workers).map(worker).collect(),
            beats: (0..workers).map(|_| Heartbeat::new()).collect(),
            names: Names::new(),
            max_connections,
            state: AtomicU8::new(State::Running as u8),
            has_successor: AtomicBool::new(false),
            givers: AtomicUsize::new(workers),
            kept: Mutex::new(Vec::new()),
            doors: Mutex::new(()),
        })
    }

    /// How many workers may still give connections to others.
    pub(crate) fn givers(&self) -> usize {
        self.givers.load(Ordering::Acquire)
    }

    /// A worker has closed its listeners and gives nothing any more. The last one wakes those who wait for that.
    pub(crate) fn gives_no_more(&self) {
        if self.givers.fetch_sub(1, Ordering::AcqRel) == 1 {
            for worker in &self.workers {
                worker.doorbell.ring();
            }
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Running,
            1 => State::DrainDelay,
            2 => State::Draining,
            _ => State::Stopping,
        }
    }

    /// Moves on to a later state and wakes everybody; an earlier one is ignored.
    pub(crate) fn advance(&self, to: State) {
        self.state.fetch_max(to as u8, Ordering::AcqRel);
        for worker in &self.workers {
            worker.doorbell.ring();
        }
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever holds this is alone in opening, closing and handing over.
    pub(crate) fn doors(&self) -> MutexGuard<'_, ()> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a worker do something, in the order of calls.
    pub(crate) fn order(&self, worker: usize, order: Order) {
        let worker = &self.workers[worker];
        worker
            .orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(order);
        worker.ordered.store(true, Ordering::SeqCst);
        worker.doorbell.ring();
    }

    pub(crate) fn connections(&self) -> u32 {
        self.workers.iter().map(|w| w.load.load(Ordering::Relaxed)).sum()
    }

    /// The worker with the fewest connections among those with room that are not held by one step, and how many it
    /// has.
    pub(crate) fn least_loaded(&self, now: Time) -> Option<(usize, u32)> {
        let loads = self.workers.iter().enumerate().filter_map(|(index, worker)| {
            let load = worker.load.load(Ordering::Relaxed);
            let fits = load < worker.capacity.load(Ordering::Relaxed);
            let held = || self.beats[index].held_for(now) >= limits::GIVE_PATIENCE;
            (fits && !held()).then_some((index, load))
        });
        loads.min_by_key(|(_, load)| *load)
    }
}
