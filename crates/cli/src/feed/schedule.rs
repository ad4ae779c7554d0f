//! What is due, what became of it, and when there is nothing more to do. Knows the time that has passed, and no clock.

use std::fmt::Write as _;
use std::time::Duration;

use crate::limits::{FEED_IDLE_POLL, FEED_LAG_MAX, FEED_POLL};

/// How many trades are due, were made and were not.
#[derive(Debug)]
pub(super) struct Schedule {
    rate: f64,
    duration: Option<Duration>,
    pub(super) made: u64,
    /// Due for too long while the receiver took too few.
    skipped: u64,
    /// Due for too long while there was no connection.
    missed: u64,
    /// Times that the connection was lost.
    lost: u64,
    /// Of those made, the ones of which nothing says that they arrived.
    uncertain: u64,
    refused: u64,
    /// What was said of the last one.
    refusal: String,
    /// When it was to end for the first time it was looked at.
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

    /// Of the next trade.
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

    /// Passes over those that are due for too long.
    pub(super) fn skip_overdue(&mut self, passed: Duration, is_connected: bool) {
        let late = self.due_count(passed.saturating_sub(FEED_LAG_MAX));
        let late = late.saturating_sub(self.next_number());
        match is_connected {
            true => self.skipped += late,
            false => self.missed += late,
        }
    }

    /// How long to wait before it is looked again, if nothing is on its way.
    pub(super) fn time_to_next(&self, passed: Duration) -> Duration {
        let next = (self.next_number() + 1) as f64 / self.rate;
        let left = next.min(FEED_IDLE_POLL.as_secs_f64() + passed.as_secs_f64()) - passed.as_secs_f64();
        Duration::from_secs_f64(left.max(0.0)).clamp(FEED_POLL, FEED_IDLE_POLL)
    }

    /// Whether nothing more is to be done. What is on its way at the end is given as long as it is good for.
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

    /// The connection is gone, and with it perhaps so many.
    pub(super) fn record_loss(&mut self, pending: u64) {
        self.lost += 1;
        self.uncertain += pending;
    }

    /// So many were on their way at the end.
    pub(super) fn record_unconfirmed(&mut self, pending: u64) {
        self.uncertain += pending;
    }

    /// So many were refused. Returns what is to be said at once: of the first, and where it is for another reason.
    pub(super) fn record_refusal(&mut self, count: u64, why: String) -> Option<String> {
        self.refused += count;
        let is_new = self.refusal != why;
        self.refusal = why;
        is_new.then(|| self.refusal.clone())
    }

    /// Why it counts as failed, if nothing has arrived although it was to.
    pub(super) fn failure_reason(&self) -> Option<String> {
        if self.refused > 0 && self.refused + self.uncertain >= self.made {
            return Some(format!("all were refused, the last one with {}", self.refusal));
        }
        let nothing = self.made <= self.uncertain && self.next_number() > 0;
        nothing.then(|| "nothing is known to have arrived".to_owned())
    }

    /// All of it, in a line.
    pub(super) fn summary(&self, took: Duration) -> String {
        // Writing to a string cannot fail.
        let mut text = format!("{} trades in {:.1} s", self.made, took.as_secs_f64());
        let all = self.next_number();
        let percent = |part: u64| 100.0 * part as f64 / all.max(1) as f64;
        if self.skipped > 0 {
            let (part, share) = (self.skipped, percent(self.skipped));
            let _ = write!(
                text,
                "; {part} of {all} that were due ({share:.1} %) were left out: the receiver, or this machine, is too slow for the rate"
            );
        }
        if self.lost > 0 {
            let times = if self.lost == 1 { "time" } else { "times" };
            let _ = write!(text, "; the connection was lost {} {times}", self.lost);
        }
        if self.missed > 0 {
            let (part, share) = (self.missed, percent(self.missed));
            let _ = write!(
                text,
                "; {part} of {all} that were due ({share:.1} %) fell into the time without one"
            );
        }
        if self.uncertain > 0 {
            let _ = write!(
                text,
                "; of {} it is not known whether they arrived",
                self.uncertain
            );
        }
        if self.refused > 0 {
            let _ = write!(
                text,
                "; {} were refused, the last one with {}",
                self.refused, self.refusal
            );
        }
        text
    }
}
