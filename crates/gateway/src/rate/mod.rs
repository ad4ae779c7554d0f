//! Rate limits by the generic cell rate algorithm (GCRA; ITU-T I.371, annex A), with one number for each key.
//!
//! That number is the instant at which the key's debt expires (its *clear* instant). A request moves it forward by one share of
//! the period, and is refused if it would then lie further ahead than a whole burst.
//!
//! ```text
//!        now           clear                       now + burst × share
//! ────────┼──────────────┼──────────────┼───────────────────┤
//!         └─── debt ─────┴─ one share ──┘ passes up to here
//! ```
//!
//! Pure: time is an argument, in nanoseconds of the engine's clock. [`key_table`] stores the numbers.

pub(crate) mod counters;
pub(crate) mod key_table;
pub(crate) mod resp;

#[cfg(test)]
mod tests;

use std::time::Duration;

/// A rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Nanoseconds of debt per request, rounded up: never more requests pass than configured.
    debt_per_request: u64,
    /// The maximum debt, in nanoseconds.
    max_debt: u64,
}

/// The decision on a request, and the state of its key afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateVerdict {
    /// The request passes and was counted.
    pub(crate) passes: bool,
    /// Requests that could follow at once.
    pub(crate) remaining: u64,
    /// The time until one more request passes; zero if one would now.
    pub(crate) retry_after: Duration,
    /// The time until the debt is zero: then a whole burst passes.
    pub(crate) clear: Duration,
}

impl Rate {
    /// Creates a rate of `requests` per `per` with a burst of `burst`. Counts below one are taken as one; a burst whose duration
    /// overflows (some centuries) is capped.
    pub(crate) fn new(requests: u32, per: Duration, burst: u32) -> Rate {
        let per = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        // At most a quarter of the range, so that sums with the clock do not overflow.
        let debt_per_request = per.div_ceil(u64::from(requests.max(1))).clamp(1, u64::MAX / 4);
        let max_debt = debt_per_request
            .saturating_mul(u64::from(burst.max(1)))
            .min(u64::MAX / 4);
        Rate {
            debt_per_request,
            max_debt,
        }
    }

    /// Returns the key's clear instant after a request at `now`, and the verdict. A refused request leaves the instant unchanged,
    /// unless it lies further ahead than this rate allows.
    pub(crate) fn count_request(self, clear: u64, now: u64) -> (u64, RateVerdict) {
        let debt = self.debt_at(clear, now);
        let new_debt = debt + self.debt_per_request;
        if new_debt <= self.max_debt {
            (now + new_debt, self.verdict(true, new_debt))
        } else {
            (now + debt, self.verdict(false, debt))
        }
    }

    /// Returns the debt of a request and the maximum debt, in microseconds, each rounded up.
    pub(crate) fn in_micros(self) -> (u64, u64) {
        let debt_per_request = self.debt_per_request.div_ceil(1000);
        (
            debt_per_request,
            debt_per_request.saturating_mul((self.max_debt / self.debt_per_request).max(1)),
        )
    }

    /// Returns the verdict for a debt that was counted in these units.
    pub(crate) fn verdict_of_micros(self, passes: bool, debt: u64) -> RateVerdict {
        let (debt_per_request, max_debt) = self.in_micros();
        let rate = Rate {
            debt_per_request: debt_per_request.saturating_mul(1000),
            max_debt: max_debt.saturating_mul(1000),
        };
        rate.verdict(passes, debt.saturating_mul(1000).min(rate.max_debt))
    }

    /// Returns the clear instant without a request that was counted but then refused elsewhere.
    pub(crate) fn revert_request(self, clear: u64) -> u64 {
        clear.saturating_sub(self.debt_per_request)
    }

    /// Returns a key's debt at `now`. Capped at the maximum: debt that was counted under another rate does not weigh more than this
    /// rate allows.
    fn debt_at(self, clear: u64, now: u64) -> u64 {
        clear.saturating_sub(now).min(self.max_debt)
    }

    fn verdict(self, passes: bool, debt: u64) -> RateVerdict {
        let capacity = self.max_debt - debt;
        RateVerdict {
            passes,
            remaining: capacity / self.debt_per_request,
            retry_after: Duration::from_nanos(self.debt_per_request.saturating_sub(capacity)),
            clear: Duration::from_nanos(debt),
        }
    }
}
