//! Memory that requests and replies hold, counted: collected bodies, and bytes queued for slow readers.
//!
//! Owns the counting, by values that count while they live. Knows no connection.

use std::cell::Cell;
use std::rc::Rc;

use ringmain_engine::Cx;

use crate::limits::CONNECTION_SHARE_DIVISOR;

/// Bytes of collected bodies on one worker, and their limit.
pub(crate) struct BodyBudget {
    cx: Cx,
    limit: usize,
    used: Cell<usize>,
}

impl BodyBudget {
    pub(crate) fn new(cx: &Cx, limit: usize) -> Rc<BodyBudget> {
        Rc::new(BodyBudget {
            cx: cx.clone(),
            limit,
            used: Cell::new(0),
        })
    }

    /// Returns the counted bytes.
    #[cfg(feature = "testing")]
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }
}

/// The counted bytes of one body. Dropping it removes them from the count.
pub(crate) struct BodyReservation {
    budget: Rc<BodyBudget>,
    /// The count of its connection, which several bodies may share.
    connection: Option<Rc<Cell<usize>>>,
    bytes: usize,
}

impl BodyReservation {
    pub(crate) fn new(budget: &Rc<BodyBudget>, connection: Option<&Rc<Cell<usize>>>) -> BodyReservation {
        BodyReservation {
            budget: Rc::clone(budget),
            connection: connection.map(Rc::clone),
            bytes: 0,
        }
    }

    /// Counts `bytes` in total; `false`: that exceeds the limit of the worker or the connection, and nothing changes. A single body
    /// of up to `limit` bytes never exceeds the limit of its connection.
    pub(crate) fn grow(&mut self, bytes: usize, limit: u64) -> bool {
        let extra = bytes.saturating_sub(self.bytes);
        let used = self.budget.used.get() + extra;
        if used > self.budget.limit {
            return false;
        }
        if let Some(connection) = &self.connection {
            let connection_bytes = connection.get() + extra;
            let share = (self.budget.limit / CONNECTION_SHARE_DIVISOR) as u64;
            if connection_bytes as u64 > share.max(limit) {
                return false;
            }
            connection.set(connection_bytes);
        }
        self.budget.used.set(used);
        self.bytes += extra;
        true
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let budget = &self.budget;
        budget.used.set(budget.used.get() - self.bytes);
        if let Some(connection) = &self.connection {
            connection.set(connection.get() - self.bytes);
        }
        budget.cx.freed(self.bytes);
    }
}

/// Bytes queued for a slow reader outside the engine. Dropping it removes them from the count.
pub(crate) struct QueuedBytes {
    cx: Cx,
    bytes: usize,
}

impl QueuedBytes {
    pub(crate) fn new(cx: &Cx) -> QueuedBytes {
        QueuedBytes {
            cx: cx.clone(),
            bytes: 0,
        }
    }

    pub(crate) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.cx.hold(before, bytes);
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.cx.hold(self.bytes, 0);
        self.cx.freed(self.bytes);
    }
}
