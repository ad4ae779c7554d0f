//! The limit of connections to all upstreams together: the count, the queue of waiters, and the signal to workers that hold idle
//! connections.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Line;
use super::wait_queue::Waiting;
use crate::gateway::change_notifier::Changes;
use crate::limits;

/// The limit of connections that all upstreams of a gateway share.
#[derive(Debug)]
pub(crate) struct Room {
    /// Connections and connection attempts.
    connections: Line<AtomicU32>,
    most: AtomicU32,
    /// Pooled connections used again in their worker while requests waited here.
    passed: AtomicU32,
    pub(crate) waiting: Waiting,
    /// Notified when a request waits, here or at an upstream: each worker checks whether it has idle connections to close.
    pub(crate) calls: Changes,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            connections: Line::default(),
            most: AtomicU32::new(u32::MAX),
            passed: AtomicU32::new(0),
            waiting: Waiting::default(),
            calls: Changes::default(),
        }
    }
}

impl Room {
    /// Sets the limit; `None`: only the upstreams' own caps apply. Open connections stay.
    pub(crate) fn resize(&self, most: Option<u32>) {
        self.most.store(most.unwrap_or(u32::MAX), Ordering::SeqCst);
        self.waiting.wake_all();
    }

    /// Counts a connection, unless the limit is reached.
    pub(super) fn take(&self) -> bool {
        super::take(&self.connections.0, self.most.load(Ordering::SeqCst))
    }

    /// Releases the count of a closed connection.
    pub(super) fn give_back(&self) {
        self.connections.0.fetch_sub(1, Ordering::SeqCst);
        self.waiting.wake_one();
    }

    /// Returns whether an idle connection that is not reserved for a waiter of its worker must be closed.
    pub(super) fn wants_idle(&self) -> bool {
        self.waiting.wants()
    }

    /// Returns whether a connection that is reserved for a waiter of its worker must be closed all the same: other waiters have been
    /// bypassed for too long.
    pub(super) fn wants_handed(&self) -> bool {
        if !self.waiting.wants() {
            return false;
        }
        let due = self.passed.fetch_add(1, Ordering::Relaxed) >= limits::HANDED_ON;
        if due {
            self.passed.store(0, Ordering::Relaxed);
        }
        due
    }
}
