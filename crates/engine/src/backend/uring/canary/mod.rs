//! How long ready operations wait in the kernel before they become completions.
//!
//! With deferred task work the kernel turns only some twenty ready operations into completions for each entry and
//! keeps the others in a queue, first in, first out, that nobody can look into. So a busy worker now and then signals its own
//! event descriptor, whose poll waits in the same queue: the time until it is reported is the time that all others
//! wait. Knows no ring.

use std::time::Duration;

use crate::backend::Time;

/// Completions of one batch from which on more may wait.
const BUSY: u32 = 8;

/// Between two canaries: each costs a system call.
const PAUSE: Duration = Duration::from_millis(5);

/// One worker's canary.
#[derive(Debug, Default)]
pub(super) struct Canary {
    /// Completions since the last wait.
    pub(super) batch: u32,
    /// When the one under way was sent.
    sent_at: Option<Time>,
    not_before: Time,
    /// How long the last one took.
    last: Duration,
}

impl Canary {
    /// After a wait that ended at `now`: whether to send one.
    pub(super) fn should_fly(&mut self, now: Time) -> bool {
        if std::mem::take(&mut self.batch) < BUSY {
            self.last = Duration::ZERO;
            return false;
        }
        let flies = self.sent_at.is_none() && now >= self.not_before;
        if flies {
            self.sent_at = Some(now);
            self.not_before = now.after(PAUSE);
        }
        flies
    }

    /// The poll was reported in the batch of `now`, for the canary or for another signal.
    pub(super) fn came_back(&mut self, now: Time) {
        if let Some(at) = self.sent_at.take() {
            self.last = now.since(at);
        }
    }

    /// How long what is reported at `now` has waited, as far as is known.
    pub(super) fn lag(&self, now: Time) -> Duration {
        match self.sent_at {
            // What is reported before it was ready before it.
            Some(at) if self.last > Duration::ZERO => self.last.max(now.since(at)),
            _ => self.last,
        }
    }
}

#[cfg(test)]
mod tests;
