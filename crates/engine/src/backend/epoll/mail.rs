//! What reaches a worker from other threads: wake-ups and given connections.
//!
//! Owns one mailbox per worker of a group. Knows nothing of epoll but that an eventfd can be watched.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use ringmain_sys::clock;
use ringmain_sys::event::Event;

use super::Epoll;
use crate::backend::{RunJob, Time};
use crate::limits;

/// The workers of one engine, by number: how they wake each other and hand connections over.
pub struct EpollGroup {
    mailboxes: Vec<Arc<Mailbox>>,
    start: Duration,
}

impl EpollGroup {
    /// Mailboxes for `workers` workers. The engine's clock starts here.
    ///
    /// # Errors
    /// As `eventfd(2)`: `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new(workers: usize) -> io::Result<Arc<EpollGroup>> {
        let mailboxes = (0..workers).map(|_| Ok(Arc::new(Mailbox::new()?)));
        let mailboxes = mailboxes.collect::<io::Result<Vec<_>>>()?;
        Ok(Arc::new(EpollGroup {
            mailboxes,
            start: clock::monotonic(),
        }))
    }

    /// The back-end of worker `worker` (from 0); to be called once for each, on its thread.
    ///
    /// # Errors
    /// As `epoll_create1(2)` and `epoll_ctl(2)`: `EMFILE`, `ENFILE`, `ENOMEM`, `ENOSPC`.
    ///
    /// # Panics
    /// If the group has no such worker.
    pub fn worker(self: &Arc<Self>, worker: usize, run_job: RunJob) -> io::Result<Epoll> {
        Epoll::new(Arc::clone(self), worker, run_job)
    }

    /// The time since the group was made: the zero of all its workers' clocks.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::default().after(clock::monotonic().saturating_sub(self.start))
    }

    /// Brings a connection to worker `worker` from any thread, as if it had been given to it with this `tag`.
    ///
    /// # Errors
    /// The connection, when too many are on their way to that worker or it has ended.
    pub fn hand(&self, worker: usize, tag: u32, fd: OwnedFd) -> Result<(), OwnedFd> {
        let domain = rustix::net::sockopt::socket_domain(&fd);
        let probe = domain.is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX);
        let parcel = Parcel { fd, tag, probe };
        self.mailboxes[worker].put(parcel).map_err(|parcel| parcel.fd)
    }

    pub(super) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    pub(super) fn start(&self) -> Duration {
        self.start
    }

    pub(super) fn mailbox(&self, worker: usize) -> &Arc<Mailbox> {
        &self.mailboxes[worker]
    }
}

/// A connection on its way to another worker.
pub(super) struct Parcel {
    pub(super) fd: OwnedFd,
    pub(super) tag: u32,
    /// See [`super::table::Record::probe`].
    pub(super) probe: bool,
}

pub(super) struct Mailbox {
    /// Watched edge-triggered and never drained: each write is an edge, and 2^64 writes do not happen.
    event: Event,
    /// Set by the first wake since the worker looked; the others need no system call.
    woken: AtomicBool,
    shut: AtomicBool,
    parcels: ArrayQueue<Parcel>,
}

impl Mailbox {
    fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            event: Event::new()?,
            woken: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            parcels: ArrayQueue::new(limits::GIFTS_IN_FLIGHT),
        })
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(super) fn wake(&self) {
        // AcqRel: what the waker wrote before is visible to the worker that takes the flag.
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.event.signal();
        }
    }

    /// Whether somebody woke the worker since the last call. A wake that comes just before is
    /// served by the turn that begins now; one that comes after writes the eventfd again.
    pub(super) fn was_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel)
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Leaves a connection here and wakes the worker; back it comes if there is no room.
    pub(super) fn put(&self, parcel: Parcel) -> Result<(), Parcel> {
        if self.shut.load(Ordering::Acquire) {
            return Err(parcel);
        }
        self.parcels.push(parcel)?;
        self.wake();
        Ok(())
    }

    pub(super) fn take(&self) -> Option<Parcel> {
        self.parcels.pop()
    }

    /// The worker has ended: connections that wait are closed. One that is being put at this very
    /// moment is closed with the group.
    pub(super) fn shut(&self) {
        self.shut.store(true, Ordering::Release);
        while self.parcels.pop().is_some() {}
    }
}

impl Wake for Mailbox {
    fn wake(self: Arc<Self>) {
        Mailbox::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Mailbox::wake(self);
    }
}
