//! The limit of connections to all upstreams together: the count, the queue of waiters, and the signal to workers that hold idle
//! connections.

use std::sync::atomic::{AtomicU32, Ordering};

use super::CacheLine;
use super::wait_queue::WaitQueue;
use crate::gateway::change_notifier::ChangeNotifier;
use crate::limits;

/// The limit of connections that all upstreams of a gateway share.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    /// Connections and connection attempts.
    connections: CacheLine<AtomicU32>,
    limit: AtomicU32,
    /// Pooled connections used again in their worker while requests waited here.
    passed: AtomicU32,
    pub(crate) wait_queue: WaitQueue,
    /// Notified when a request waits, here or at an upstream: each worker checks whether it has idle connections to close.
    pub(crate) idle_requests: ChangeNotifier,
}

impl Default for ConnectionBudget {
    fn default() -> ConnectionBudget {
        ConnectionBudget {
            connections: CacheLine::default(),
            limit: AtomicU32::new(u32::MAX),
            passed: AtomicU32::new(0),
            wait_queue: WaitQueue::default(),
            idle_requests: ChangeNotifier::default(),
        }
    }
}

impl ConnectionBudget {
    /// Sets the limit; `None`: only the upstreams' own caps apply. Open connections stay.
    pub(crate) fn set_limit(&self, limit: Option<u32>) {
        self.limit.store(limit.unwrap_or(u32::MAX), Ordering::SeqCst);
        self.wait_queue.wake_all();
    }

    /// Counts a connection, unless the limit is reached.
    pub(super) fn try_acquire(&self) -> bool {
        super::increment_below(&self.connections.0, self.limit.load(Ordering::SeqCst))
    }

    /// Releases the count of a closed connection.
    pub(super) fn release(&self) {
        self.connections.0.fetch_sub(1, Ordering::SeqCst);
        self.wait_queue.wake_one();
    }

    /// Returns whether an idle connection that is not reserved for a waiter of its worker must be closed.
    pub(super) fn must_close_idle(&self) -> bool {
        self.wait_queue.has_uncalled_waiter()
    }

    /// Returns whether a connection that is reserved for a waiter of its worker must be closed all the same: other waiters have been
    /// bypassed for too long.
    pub(super) fn must_close_reserved(&self) -> bool {
        if !self.wait_queue.has_uncalled_waiter() {
            return false;
        }
        let is_due = self.passed.fetch_add(1, Ordering::Relaxed) >= limits::HANDED_ON;
        if is_due {
            self.passed.store(0, Ordering::Relaxed);
        }
        is_due
    }
}
