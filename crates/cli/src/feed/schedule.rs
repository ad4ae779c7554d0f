//! The schedule of trades, their outcomes, and the end of the feed. Time is a parameter.

use std::fmt::Write as _;
use std::time::Duration;

use crate::limits::{FEED_IDLE_POLL, FEED_LAG_MAX, FEED_POLL};

/// The number of trades that are due, made, and skipped.
#[derive(Debug)]
pub(super) struct Schedule {
    rate: f64,
    duration: Option<Duration>,
    pub(super) made: u64,
    /// Overdue while the receiver was too slow.
    skipped: u64,
    /// Overdue while disconnected.
    missed: u64,
    /// Number of lost connections.
    lost: u64,
    /// Made, but without confirmation.
    uncertain: u64,
    refused: u64,
    /// The error of the last refused trade.
    refusal: String,
    /// The time of the first check after the duration or an interrupt.
    ends: Option<Duration>,
}

impl Schedule {
    pub(super) fn new(rate: f64, duration: Option<Duration>) -> Schedule {
        Schedule {
            rate,
            duration,
            made: 0,
            skipped: 0,
            missed: 0,
            lost: 0,
            uncertain: 0,
            refused: 0,
            refusal: String::new(),
            ends: None,
        }
    }

    /// Returns the number of the next trade.
    pub(super) fn next_number(&self) -> u64 {
        self.made + self.skipped + self.missed
    }

    fn due_count(&self, passed: Duration) -> u64 {
        let passed = self.duration.map_or(passed, |duration| duration.min(passed));
        (passed.as_secs_f64() * self.rate) as u64
    }

    pub(super) fn is_due(&self, passed: Duration) -> bool {
        self.next_number() < self.due_count(passed)
    }

    /// Skips overdue trades.
    pub(super) fn skip_overdue(&mut self, passed: Duration, is_connected: bool) {
        let late = self.due_count(passed.saturating_sub(FEED_LAG_MAX));
        let late = late.saturating_sub(self.next_number());
        if is_connected {
            self.skipped += late;
        } else {
            self.missed += late;
        }
    }

    /// Returns the time to the next poll, with no trade in flight.
    pub(super) fn time_to_next(&self, passed: Duration) -> Duration {
        let next = (self.next_number() + 1) as f64 / self.rate;
        let left = next.min(FEED_IDLE_POLL.as_secs_f64() + passed.as_secs_f64()) - passed.as_secs_f64();
        Duration::from_secs_f64(left.max(0.0)).clamp(FEED_POLL, FEED_IDLE_POLL)
    }

    /// Returns whether the feed is finished. Trades in flight at the end have [`FEED_LAG_MAX`] to be confirmed.
    pub(super) fn is_finished(&mut self, passed: Duration, interrupted: bool, pending: u64) -> bool {
        if !interrupted && self.duration.is_none_or(|duration| passed < duration) {
            return false;
        }
        let ends = *self.ends.get_or_insert(passed);
        let all_made = interrupted || !self.is_due(passed);
        if all_made && pending == 0 {
            return true;
        }
        let over = passed.saturating_sub(ends) >= FEED_LAG_MAX;
        if over && !interrupted {
            self.skipped += self.due_count(passed).saturating_sub(self.next_number());
        }
        over
    }

    /// Records a lost connection with `pending` trades in flight.
    pub(super) fn record_loss(&mut self, pending: u64) {
        self.lost += 1;
        self.uncertain += pending;
    }

    /// Records `pending` trades in flight at the end.
    pub(super) fn record_unconfirmed(&mut self, pending: u64) {
        self.uncertain += pending;
    }

    /// Records refused trades. Returns the reason if it differs from the last one, to report it.
    pub(super) fn record_refusal(&mut self, count: u64, why: String) -> Option<String> {
        self.refused += count;
        let is_new = self.refusal != why;
        self.refusal = why;
        is_new.then(|| self.refusal.clone())
    }

    /// Returns the reason of failure if no trade was delivered although some were due.
    pub(super) fn failure_reason(&self) -> Option<String> {
        if self.refused > 0 && self.refused + self.uncertain >= self.made {
            return Some(format!(
                "all trades were refused, the last one with {}",
                self.refusal
            ));
        }
        let nothing = self.made <= self.uncertain && self.next_number() > 0;
        nothing.then(|| "no delivery was confirmed".to_owned())
    }

    /// Returns the summary, in one line.
    pub(super) fn summary(&self, took: Duration) -> String {
        // Writing to a string cannot fail.
        let mut text = format!("{} trades in {:.1} s", self.made, took.as_secs_f64());
        let all = self.next_number();
        let percent = |part: u64| 100.0 * part as f64 / all.max(1) as f64;
        if self.skipped > 0 {
            let (part, share) = (self.skipped, percent(self.skipped));
            let _ = write!(
                text,
                "; {part} of {all} due trades ({share:.1} %) skipped: the receiver, or this host, is too slow for the rate"
            );
        }
        if self.lost > 0 {
            let times = if self.lost == 1 { "time" } else { "times" };
            let _ = write!(text, "; connection lost {} {times}", self.lost);
        }
        if self.missed > 0 {
            let (part, share) = (self.missed, percent(self.missed));
            let _ = write!(
                text,
                "; {part} of {all} due trades ({share:.1} %) skipped while disconnected"
            );
        }
        if self.uncertain > 0 {
            let _ = write!(text, "; {} without confirmation", self.uncertain);
        }
        if self.refused > 0 {
            let _ = write!(
                text,
                "; {} refused, the last one with {}",
                self.refused, self.refusal
            );
        }
        text
    }
}
