//! Requests that wait for a connection because an upstream has as many as it may: first in, first out, across workers.
//!
//! A connection that becomes free in a worker goes to the first who waits there, unless others have been passed over for
//! too long: then it is closed, and they may open one. Nothing here is touched while nobody waits, but for one load.
//!
//! ```text
//! join ─▶ Waits ─── a connection is free ───▶ Called ─── took it: leave ───▶ gone
//!           ▲                                   │
//!           └── somebody was quicker: again ────┘      dropped: the call goes to the next
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::{Line, Toward};
use crate::limits;

/// Those who wait at one upstream.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// As many as there are entries.
    count: Line<AtomicU32>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Connections handed on within a worker while the first in the queue was of another one.
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

/// What becomes of a connection that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// It is kept: nobody waits.
    Keep,
    /// It is kept; somebody of this worker was called to take it.
    Handed,
    /// It is closed, so that another one may be opened, by another worker or to another endpoint.
    Close,
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'w> {
    waiting: &'w Waiting,
    ticket: u64,
    served: bool,
}

impl Waiting {
    /// Joins the queue. `None`: as many wait as may.
    pub(crate) fn join(
        &self,
        (worker, toward): (usize, Toward),
        most: u32,
        waker: &Waker,
    ) -> Option<Place<'_>> {
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
        Some(Place {
            waiting: self,
            ticket,
            served: false,
        })
    }

    /// How many wait.
    pub(crate) fn len(&self) -> u32 {
        self.count.0.load(Ordering::SeqCst)
    }

    /// A connection is closed: whoever is first may open one.
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

    /// Whether anybody waits who was not called.
    pub(crate) fn wants(&self) -> bool {
        self.len() > 0 && self.lock().entries.iter().any(|entry| !entry.called)
    }

    /// How many of a worker were called and have not come yet: connections that it keeps are for them.
    pub(crate) fn called(&self, worker: usize) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let of_worker = |entry: &&Entry| entry.called && entry.worker == worker;
        self.lock().entries.iter().filter(of_worker).count()
    }

    /// There is more room than before.
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

    /// A connection of a worker has become free.
    pub(crate) fn hand_over(&self, worker: usize) -> Handover {
        self.hand(|entry| entry.worker == worker, true)
    }

    /// A stream of a worker's connection has become free, which only those can use who wait for that endpoint: the connection is
    /// others', too. `may_close`: it may be given up.
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
    /// Calls somebody: the waker is to be woken without the lock.
    fn call(&mut self, at: usize) -> Waker {
        let entry = &mut self.entries[at];
        entry.called = true;
        entry.waker.clone()
    }
}

impl Place<'_> {
    /// Waits for the next call. To be followed by another look: what became free before this is not told.
    pub(crate) fn again(&self, waker: &Waker) {
        let mut queue = self.waiting.lock();
        let own = queue.entries.iter_mut().find(|entry| entry.ticket == self.ticket);
        if let Some(entry) = own {
            entry.called = false;
            entry.waker.clone_from(waker);
        }
    }

    /// Leaves with a connection.
    pub(crate) fn leave(mut self) {
        self.served = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.waiting.lock();
        let at = queue.entries.iter().position(|entry| entry.ticket == self.ticket);
        let left = at.and_then(|at| queue.entries.remove(at));
        self.waiting
            .count
            .0
            .store(queue.entries.len() as u32, Ordering::SeqCst);
        drop(queue);
        // Whoever was called and did not come: the next one is.
        if left.is_some_and(|entry| entry.called) && !self.served {
            self.waiting.wake_one();
        }
    }
}
