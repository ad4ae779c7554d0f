//! How many requests there may be in a time, counted by the generic cell rate algorithm (GCRA; ITU-T I.371, annex A), with
//! one number for each key.
//!
//! That number is the moment at which the key would owe nothing any more (its *clear* moment). A request moves it on by one
//! share of the time, and is refused if it would lie further ahead than all requests that may come at once.
//!
//! ```text
//!        now           clear                       now + burst × share
//! ────────┼──────────────┼──────────────┼───────────────────┤
//!         └─── is owed ──┴─ one share ──┘ passes up to here
//! ```
//!
//! Pure: time is told, in nanoseconds of the engine's clock. Where numbers are kept is in [`cells`].

pub(crate) mod cells;
pub(crate) mod counters;
pub(crate) mod resp;

#[cfg(test)]
mod tests;

use std::time::Duration;

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Nanoseconds that a request owes, rounded up: never more pass than were promised.
    share: u64,
    /// Nanoseconds that may be owed.
    most: u64,
}

/// What became of a request, and what the key may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// It passes, and is counted.
    pub(crate) passes: bool,
    /// Requests that could follow at once.
    pub(crate) left: u64,
    /// How long until one more passes; zero if one would now.
    pub(crate) again: Duration,
    /// How long until nothing is owed: then a whole burst passes.
    pub(crate) clear: Duration,
}

impl Rate {
    /// So many requests in a time, and so many of them at once. Neither is less than one; a burst whose time would be longer
    /// than some centuries is as large as fits.
    pub(crate) fn new(requests: u32, per: Duration, burst: u32) -> Rate {
        let per = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        // A quarter of all there is, so that no sum with a clock overflows.
        let share = per.div_ceil(u64::from(requests.max(1))).clamp(1, u64::MAX / 4);
        let most = share.saturating_mul(u64::from(burst.max(1))).min(u64::MAX / 4);
        Rate { share, most }
    }

    /// Where a key's clear moment is behind a request at `now`, and what becomes of that. A refused one leaves it where it is,
    /// but if it lies further ahead than this rate allows.
    pub(crate) fn take(self, clear: u64, now: u64) -> (u64, Verdict) {
        let owed = self.owed(clear, now);
        let with = owed + self.share;
        if with <= self.most {
            (now + with, self.verdict(true, with))
        } else {
            (now + owed, self.verdict(false, owed))
        }
    }

    /// What a request owes and what may be owed, in microseconds, each rounded up.
    pub(crate) fn in_micros(self) -> (u64, u64) {
        let share = self.share.div_ceil(1000);
        (share, share.saturating_mul((self.most / self.share).max(1)))
    }

    /// The verdict of somebody who counts in these.
    pub(crate) fn of_micros(self, passes: bool, owed: u64) -> Verdict {
        let (share, most) = self.in_micros();
        let rate = Rate {
            share: share.saturating_mul(1000),
            most: most.saturating_mul(1000),
        };
        rate.verdict(passes, owed.saturating_mul(1000).min(rate.most))
    }

    /// The clear moment without a request that was counted and did not come about.
    pub(crate) fn give_back(self, clear: u64) -> u64 {
        clear.saturating_sub(self.share)
    }

    /// What a key owes at `now`. Never more than may be owed: what was counted by another rate before does not weigh heavier
    /// than what this one would have let pass.
    fn owed(self, clear: u64, now: u64) -> u64 {
        clear.saturating_sub(now).min(self.most)
    }

    fn verdict(self, passes: bool, owed: u64) -> Verdict {
        let room = self.most - owed;
        Verdict {
            passes,
            left: room / self.share,
            again: Duration::from_nanos(self.share.saturating_sub(room)),
            clear: Duration::from_nanos(owed),
        }
    }
}
