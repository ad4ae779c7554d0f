//! A budget that fills again with time. Time is told.

use std::time::Duration;

use super::limits::{ANSWERS_PER_RESET, EARLY_RESET_WINDOW, EARLY_RESETS, Rate};

/// What is left of a [`Rate`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: u32,
    /// Milliseconds up to which it was filled.
    filled: u32,
}

impl Budget {
    pub(super) fn new(rate: Rate, now: Duration) -> Budget {
        Budget {
            left: rate.most,
            filled: now.as_millis() as u32,
        }
    }

    /// Spends one; `false`: there is none.
    #[inline]
    pub(super) fn spend(&mut self, rate: Rate, now: Duration) -> bool {
        if self.left == 0 {
            self.fill(rate, now);
        }
        let fits = self.left > 0;
        self.left -= u32::from(fits);
        fits
    }

    /// Brings so many back.
    #[inline]
    pub(super) fn earn(&mut self, rate: Rate, count: u32) {
        self.left = self.left.saturating_add(count).min(rate.most);
    }

    /// Only when it is empty: what came back before then would have been beyond the most, or is counted now.
    #[cold]
    fn fill(&mut self, rate: Rate, now: Duration) {
        let now = now.as_millis() as u32;
        let passed = u64::from(now.wrapping_sub(self.filled));
        let due = passed * u64::from(rate.per_second) / 1000;
        if due > 0 {
            self.filled = now;
            self.left = due.min(u64::from(rate.most)) as u32;
        }
    }
}

/// Streams that a client opens, and resets before their response's head, within a window of time. Small, since each connection has
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EarlyResets {
    /// Seconds at which the window began, in sixteen bits.
    since: u16,
    opened: u16,
    early: u8,
    /// Streams that were answered since the last one was counted as a reset given back.
    answered: u8,
}

impl EarlyResets {
    /// A stream was opened.
    #[inline]
    pub(super) fn open(&mut self) {
        self.opened = self.opened.saturating_add(1);
    }

    /// A stream was answered; returns the resets that this gives back.
    #[inline]
    pub(super) fn answer(&mut self) -> u32 {
        self.answered += 1;
        let gives_back = self.answered >= ANSWERS_PER_RESET;
        if gives_back {
            self.answered = 0;
        }
        u32::from(gives_back)
    }

    /// A stream was reset early; returns `false` if that is too often.
    pub(super) fn reset(&mut self, now: Duration) -> bool {
        let now = now.as_secs() as u16;
        if u64::from(now.wrapping_sub(self.since)) >= EARLY_RESET_WINDOW.as_secs() {
            self.since = now;
            // This one, at least.
            self.opened = 1;
            self.early = 0;
        }
        if self.early == u8::MAX {
            // The share stays the same.
            self.early /= 2;
            self.opened /= 2;
        }
        self.early += 1;
        self.early <= EARLY_RESETS || u32::from(self.early) * 2 < u32::from(self.opened)
    }
}

#[cfg(test)]
mod tests;
