//! A budget that fills again with time. Time is told.

use std::time::Duration;

use super::limits::Rate;

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

#[cfg(test)]
mod tests;
