//! Detection of an overloaded worker: more requests arrive than it can answer, for some time.
//!
//! ```text
//!           a request waited for longer than max_queue_delay,
//! Calm ──── and none was on time for long enough ────────► Shedding
//!   ▲                                                         │
//!   └──────────── no request has waited that long for a while ┘
//! ```
//!
//! One request that waited behind a long computation, or a burst that is answered within a second, is not an overload. Knows no
//! request.

use std::cell::Cell;
use std::time::Duration;

use ringmain_engine::backend::Time;

use crate::limits::OVERLOAD_FACTOR;

/// One worker's state.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// The time of the first request in the current series of late ones.
    since: Cell<Time>,
    /// The time of the last late request.
    last: Cell<Option<Time>>,
    shedding: Cell<bool>,
}

impl Overload {
    /// Records a request and whether it has waited longer than `max_queue_delay`. Returns true if it must be refused.
    pub(crate) fn refuses(&self, now: Time, late: bool, max_queue_delay: Duration) -> bool {
        let pause = self.last.get().map(|last| now.since(last));
        if self.shedding.get() && pause.is_some_and(|pause| pause > max_queue_delay * OVERLOAD_FACTOR) {
            self.shedding.set(false);
        }
        if !late {
            return false;
        }
        if pause.is_none_or(|pause| pause > max_queue_delay) {
            self.since.set(now);
        }
        self.last.set(Some(now));
        if now.since(self.since.get()) >= max_queue_delay * OVERLOAD_FACTOR {
            self.shedding.set(true);
        }
        self.shedding.get()
    }
}

#[cfg(test)]
mod tests;
