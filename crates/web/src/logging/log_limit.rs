//! Log lines that clients can cause at will: at most one per interval, which has the number of suppressed lines before it.

use std::cell::Cell;
use std::fmt;

use ringmain_engine::backend::Time;

use crate::limits::CLIENT_LOG_INTERVAL;

/// Limits the log lines of one kind of event on one worker: one per [`CLIENT_LOG_INTERVAL`].
#[derive(Debug)]
pub struct LogLimit {
    next: Cell<Time>,
    suppressed: Cell<u64>,
}

/// The number of suppressed lines; displays as empty text if there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuppressedLines(u64);

impl LogLimit {
    /// Returns a limit that admits the first line at once.
    #[must_use]
    pub const fn new() -> LogLimit {
        LogLimit {
            next: Cell::new(Time(0)),
            suppressed: Cell::new(0),
        }
    }

    /// Returns the number of lines suppressed since the last one, if a line may be written at `now`; otherwise counts the line as
    /// suppressed.
    pub fn admit(&self, now: Time) -> Option<SuppressedLines> {
        if now < self.next.get() {
            self.suppressed.set(self.suppressed.get() + 1);
            return None;
        }
        self.next.set(now.after(CLIENT_LOG_INTERVAL));
        Some(SuppressedLines(self.suppressed.take()))
    }
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit::new()
    }
}

impl fmt::Display for SuppressedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more since the last such line)"),
        }
    }
}
