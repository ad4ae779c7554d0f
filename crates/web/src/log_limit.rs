//! Log lines that clients can cause at will: at most one in an interval, which names how many were left out before it.

use std::cell::Cell;
use std::fmt;

use ringmain_engine::backend::Time;

use crate::limits::CLIENT_LOG_INTERVAL;

/// Bounds the log lines of one kind of event on one worker: one in [`CLIENT_LOG_INTERVAL`].
#[derive(Debug)]
pub struct LogLimit {
    next: Cell<Time>,
    left_out: Cell<u64>,
}

/// The number of lines that were left out; empty text if there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(u64);

impl LogLimit {
    /// Returns a limit that admits the first line at once.
    #[must_use]
    pub const fn new() -> LogLimit {
        LogLimit {
            next: Cell::new(Time(0)),
            left_out: Cell::new(0),
        }
    }

    /// Returns how many lines were left out since the last one, if a line may be written at `now`; else counts it as left out.
    pub fn admit(&self, now: Time) -> Option<LeftOut> {
        if now < self.next.get() {
            self.left_out.set(self.left_out.get() + 1);
            return None;
        }
        self.next.set(now.after(CLIENT_LOG_INTERVAL));
        Some(LeftOut(self.left_out.take()))
    }
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit::new()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more since the last such line)"),
        }
    }
}
