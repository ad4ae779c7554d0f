//! The queue of requests that wait for a connection because the upstream's cap is reached: first in, first out, across workers.
//!
//! A connection that becomes free in a worker goes to the first waiter of that worker, unless others have been bypassed for
//! too long: then it is closed, and they may open one. Without waiters the cost is one atomic load.
//!
//! ```text
//! join ─▶ Waits ─── a connection is free ───▶ Called ── took it: leave ───▶ gone
//!           ▲                                   │
//!           └──── it was taken meanwhile ───────┘      dropped: the call goes to the next
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::{CacheLine, EndpointId};
use crate::limits;

/// The waiters of an upstream.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// The number of entries.
    count: CacheLine<AtomicU32>,
    queue: Mutex<WaitQueueState>,
}

#[derive(Debug, Default)]
struct WaitQueueState {
    entries: VecDeque<QueueEntry>,
    /// Connections handed on within a worker while the first in the queue was of another worker.
    wakeups_owed: u32,
    tickets: u64,
}

#[derive(Debug)]
struct QueueEntry {
    ticket: u64,
    worker: usize,
    endpoint: EndpointId,
    called: bool,
    waker: Waker,
}

/// The properties by which connections are assigned to a waiter.
#[derive(Clone, Copy)]
pub(super) struct WaiterKey {
    /// The worker that it runs on.
    worker: usize,
    /// The endpoint for which it needs a connection.
    endpoint: EndpointId,
}

impl WaiterKey {
    pub(super) fn new(worker: usize, endpoint: EndpointId) -> WaiterKey {
        WaiterKey { worker, endpoint }
    }
}

/// The use of a connection that became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It is pooled: there are no waiters.
    Pool,
    /// It is pooled; a waiter of this worker was called to take it.
    Reserved,
    /// It is closed, so that another may be opened, by another worker or to another endpoint.
    Close,
}

/// A position in the queue, given up when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'w> {
    queue: &'w WaitQueue,
    ticket: u64,
    served: bool,
}

impl WaitQueue {
    /// Joins the queue. `None`: the limit of waiters is reached.
    fn enqueue(&self, key: WaiterKey, limit: u32, waker: &Waker) -> Option<Waiter<'_>> {
        let mut queue = self.lock();
        if queue.entries.len() >= limit as usize {
            return None;
        }
        let ticket = queue.tickets;
        queue.tickets += 1;
        queue.entries.push_back(QueueEntry {
            ticket,
            worker: key.worker,
            endpoint: key.endpoint,
            called: false,
            waker: waker.clone(),
        });
        self.count.0.store(queue.entries.len() as u32, Ordering::SeqCst);
        Some(Waiter {
            queue: self,
            ticket,
            served: false,
        })
    }

    /// Returns the number of waiters.
    pub(crate) fn len(&self) -> u32 {
        self.count.0.load(Ordering::SeqCst)
    }

    /// Calls the first waiter: a connection was closed, and another may be opened.
    pub(crate) fn wake_one(&self) {
        if self.len() == 0 {
            return;
        }
        let mut queue = self.lock();
        let first = queue.entries.iter().position(|entry| !entry.called);
        let waker = first.map(|at| queue.mark_called(at));
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns whether there is a waiter that was not called.
    pub(crate) fn has_uncalled_waiter(&self) -> bool {
        self.len() > 0 && self.lock().entries.iter().any(|entry| !entry.called)
    }

    /// Returns the number of a worker's waiters that were called and have not run yet: pooled connections are reserved for them.
    pub(crate) fn called_waiters(&self, worker: usize) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let of_worker = |entry: &&QueueEntry| entry.called && entry.worker == worker;
        self.lock().entries.iter().filter(of_worker).count()
    }

    /// Calls every waiter: the limit was raised.
    pub(crate) fn wake_all(&self) {
        if self.len() == 0 {
            return;
        }
        let mut queue = self.lock();
        let count = queue.entries.len();
        let wakers: Vec<Waker> = (0..count).map(|at| queue.mark_called(at)).collect();
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Hands over a connection of a worker that became free.
    pub(crate) fn assign_connection(&self, worker: usize) -> Disposition {
        self.assign_first(|entry| entry.worker == worker, true)
    }

    /// Hands over a stream of a worker's connection that became free: only waiters for that endpoint can use it, since the connection is
    /// shared. `may_close`: the connection may be closed instead.
    pub(crate) fn assign_stream(&self, worker: usize, endpoint: EndpointId, may_close: bool) -> Disposition {
        let matches = |entry: &QueueEntry| entry.worker == worker && entry.endpoint == endpoint;
        self.assign_first(matches, may_close)
    }

    fn assign_first(&self, matches: impl Fn(&QueueEntry) -> bool, may_close: bool) -> Disposition {
        if self.len() == 0 {
            return Disposition::Pool;
        }
        let mut queue = self.lock();
        let mut waiting = queue.entries.iter().filter(|entry| !entry.called);
        let Some(first) = waiting.next() else {
            return Disposition::Pool;
        };
        if matches(first) {
            queue.wakeups_owed = 0;
        } else {
            queue.wakeups_owed += 1;
            if queue.wakeups_owed > limits::HANDED_ON && may_close {
                queue.wakeups_owed = 0;
                return Disposition::Close;
            }
        }
        let is_own = |entry: &QueueEntry| !entry.called && matches(entry);
        let Some(index) = queue.entries.iter().position(is_own) else {
            return if may_close {
                Disposition::Close
            } else {
                Disposition::Pool
            };
        };
        let waker = queue.mark_called(index);
        drop(queue);
        waker.wake();
        Disposition::Reserved
    }

    fn lock(&self) -> MutexGuard<'_, WaitQueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitQueueState {
    /// Marks a waiter as called. The caller wakes the waker after releasing the lock.
    fn mark_called(&mut self, at: usize) -> Waker {
        let entry = &mut self.entries[at];
        entry.called = true;
        entry.waker.clone()
    }
}

impl Waiter<'_> {
    /// Waits for the next call. The caller then checks again: connections that became free before this are not signaled.
    pub(crate) fn rejoin(&self, waker: &Waker) {
        let mut queue = self.queue.lock();
        let own = queue.entries.iter_mut().find(|entry| entry.ticket == self.ticket);
        if let Some(entry) = own {
            entry.called = false;
            entry.waker.clone_from(waker);
        }
    }

    /// Leaves the queue with a connection.
    pub(crate) fn take_connection(mut self) {
        self.served = true;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        let at = queue.entries.iter().position(|entry| entry.ticket == self.ticket);
        let removed = at.and_then(|at| queue.entries.remove(at));
        self.queue
            .count
            .0
            .store(queue.entries.len() as u32, Ordering::SeqCst);
        drop(queue);
        // A called waiter that leaves without a connection passes the call on.
        if removed.is_some_and(|entry| entry.called) && !self.served {
            self.queue.wake_one();
        }
    }
}

/// Joins a queue, or waits there for the next call. Returns whether there was room.
pub(super) fn poll_queue<'w>(
    waiting: &'w WaitQueue,
    waiter: &mut Option<Waiter<'w>>,
    key: WaiterKey,
    limit: u32,
    waker: &Waker,
) -> bool {
    match waiter {
        Some(waiter) => waiter.rejoin(waker),
        None => *waiter = waiting.enqueue(key, limit, waker),
    }
    waiter.is_some()
}
