//! Room for connections to all upstreams together: how many there may be, who waits because there are as many, and word
//! to workers that keep connections which others could do with.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Line;
use super::waiting::Waiting;
use crate::changes::Changes;
use crate::limits;

/// See the module. One for all upstreams of a gateway.
#[derive(Debug)]
pub(crate) struct Room {
    /// Connections that stand or are being made.
    connections: Line<AtomicU32>,
    most: AtomicU32,
    /// Kept connections used again in their worker while somebody waited here.
    passed: AtomicU32,
    pub(crate) waiting: Waiting,
    /// Somebody waits, here or at an upstream: each worker looks whether it keeps a connection for nothing.
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
    /// Has it be as large as that; `None`: as the upstreams' own caps are. Connections that stand already stay.
    pub(crate) fn resize(&self, most: Option<u32>) {
        self.most.store(most.unwrap_or(u32::MAX), Ordering::SeqCst);
        self.waiting.wake_all();
    }

    /// Counts a connection, unless there are as many as may be.
    pub(super) fn take(&self) -> bool {
        super::take(&self.connections.0, self.most.load(Ordering::SeqCst))
    }

    /// A connection is there no more.
    pub(super) fn give_back(&self) {
        self.connections.0.fetch_sub(1, Ordering::SeqCst);
        self.waiting.wake_one();
    }

    /// Whether a connection that is free, and that nobody of its worker was called to, is to be closed.
    pub(super) fn wants_idle(&self) -> bool {
        self.waiting.wants()
    }

    /// Whether a connection that somebody of its worker was called to is to be closed all the same: others have been passed
    /// over for too long.
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
