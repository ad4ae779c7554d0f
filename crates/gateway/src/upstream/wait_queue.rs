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

use super::{Line, Toward};
use crate::limits;

/// The waiters of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The number of entries.
    count: Line<AtomicU32>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Connections handed on within a worker while the first in the queue was of another worker.
    passed: u32,
    tickets: u64,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    worker: usize,
    toward: Toward,
    called: bool,
    waker: Waker,
}

/// The use of a connection that became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// It is pooled: there are no waiters.
    Keep,
    /// It is pooled; a waiter of this worker was called to take it.
    Handed,
    /// It is closed, so that another may be opened, by another worker or to another endpoint.
    Close,
}

/// A position in the queue, given up when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'w> {
    waiting: &'w Waiting,
    ticket: u64,
    served: bool,
}

impl Waiting {
    /// Joins the queue. `None`: the limit of waiters is reached.
    pub(crate) fn join(
        &self,
        (worker, toward): (usize, Toward),
        most: u32,
        waker: &Waker,
    ) -> Option<Waiter<'_>> {
        let mut queue = self.lock();
        if queue.entries.len() >= most as usize {
            return None;
        }
        let ticket = queue.tickets;
        queue.tickets += 1;
        queue.entries.push_back(Entry {
            ticket,
            worker,
            toward,
            called: false,
            waker: waker.clone(),
        });
        self.count.0.store(queue.entries.len() as u32, Ordering::SeqCst);
        Some(Waiter {
            waiting: self,
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
        let waker = first.map(|at| queue.call(at));
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns whether there is a waiter that was not called.
    pub(crate) fn wants(&self) -> bool {
        self.len() > 0 && self.lock().entries.iter().any(|entry| !entry.called)
    }

    /// Returns the number of a worker's waiters that were called and have not run yet: pooled connections are reserved for them.
    pub(crate) fn called(&self, worker: usize) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let of_worker = |entry: &&Entry| entry.called && entry.worker == worker;
        self.lock().entries.iter().filter(of_worker).count()
    }

    /// Calls every waiter: the limit was raised.
    pub(crate) fn wake_all(&self) {
        if self.len() == 0 {
            return;
        }
        let mut queue = self.lock();
        let count = queue.entries.len();
        let wakers: Vec<Waker> = (0..count).map(|at| queue.call(at)).collect();
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Hands over a connection of a worker that became free.
    pub(crate) fn hand_over(&self, worker: usize) -> Handover {
        self.hand(|entry| entry.worker == worker, true)
    }

    /// Hands over a stream of a worker's connection that became free: only waiters for that endpoint can use it, since the connection is
    /// shared. `may_close`: the connection may be closed instead.
    pub(crate) fn hand_over_stream(&self, worker: usize, toward: Toward, may_close: bool) -> Handover {
        let can = |entry: &Entry| entry.worker == worker && entry.toward == toward;
        self.hand(can, may_close)
    }

    fn hand(&self, can: impl Fn(&Entry) -> bool, may_close: bool) -> Handover {
        if self.len() == 0 {
            return Handover::Keep;
        }
        let mut queue = self.lock();
        let mut waiting = queue.entries.iter().filter(|entry| !entry.called);
        let Some(first) = waiting.next() else {
            return Handover::Keep;
        };
        if can(first) {
            queue.passed = 0;
        } else {
            queue.passed += 1;
            if queue.passed > limits::HANDED_ON && may_close {
                queue.passed = 0;
                return Handover::Close;
            }
        }
        let own = |entry: &Entry| !entry.called && can(entry);
        let Some(own) = queue.entries.iter().position(own) else {
            return if may_close {
                Handover::Close
            } else {
                Handover::Keep
            };
        };
        let waker = queue.call(own);
        drop(queue);
        waker.wake();
        Handover::Handed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Marks a waiter as called. The caller wakes the waker after releasing the lock.
    fn call(&mut self, at: usize) -> Waker {
        let entry = &mut self.entries[at];
        entry.called = true;
        entry.waker.clone()
    }
}

impl Waiter<'_> {
    /// Waits for the next call. The caller then checks again: connections that became free before this are not signaled.
    pub(crate) fn again(&self, waker: &Waker) {
        let mut queue = self.waiting.lock();
        let own = queue.entries.iter_mut().find(|entry| entry.ticket == self.ticket);
        if let Some(entry) = own {
            entry.called = false;
            entry.waker.clone_from(waker);
        }
    }

    /// Leaves the queue with a connection.
    pub(crate) fn leave(mut self) {
        self.served = true;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut queue = self.waiting.lock();
        let at = queue.entries.iter().position(|entry| entry.ticket == self.ticket);
        let left = at.and_then(|at| queue.entries.remove(at));
        self.waiting
            .count
            .0
            .store(queue.entries.len() as u32, Ordering::SeqCst);
        drop(queue);
        // A called waiter that leaves without a connection passes the call on.
        if left.is_some_and(|entry| entry.called) && !self.served {
            self.waiting.wake_one();
        }
    }
}
