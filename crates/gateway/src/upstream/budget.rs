//! How many requests to an upstream may still be tried again: what each request brings in, and what comes in with time.
//!
//! Pure but for its atomics: time is told. Shared by all workers, touched by requests whose rules have them tried again.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Line;
use crate::limits;
use crate::model::RetryBudget;

/// Thousandths of a try.
const TRY: u64 = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    saved: Line<AtomicU64>,
    /// Until when time was counted: nanoseconds of the engine's clock.
    counted: AtomicU64,
}

impl Budget {
    /// A request is begun.
    pub(crate) fn bring(&self, rules: &RetryBudget) {
        self.add(u64::from(rules.percent) * TRY / 100);
    }

    /// Takes a try, if there is one.
    pub(crate) fn take(&self, rules: &RetryBudget, now: u64) -> bool {
        let last = self.counted.load(Ordering::Relaxed);
        // The first look ever finds a second's worth, and no pause more than what may be saved.
        let elapsed = if last == 0 {
            NANOS
        } else {
            now.saturating_sub(last)
        };
        let grown = u128::from(elapsed) * u128::from(rules.least) * u128::from(TRY) / u128::from(NANOS);
        let grown = u64::try_from(grown).unwrap_or(u64::MAX);
        let (relaxed, now) = (Ordering::Relaxed, now.max(1));
        if grown > 0 && self.counted.compare_exchange(last, now, relaxed, relaxed).is_ok() {
            self.add(grown);
        }
        let less = |saved: u64| saved.checked_sub(TRY);
        self.saved.0.fetch_update(relaxed, relaxed, less).is_ok()
    }

    fn add(&self, more: u64) {
        let most = u64::from(limits::RETRIES_SAVED) * TRY;
        let sum = |saved: u64| (saved < most).then(|| saved.saturating_add(more).min(most));
        let _ = self
            .saved
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }
}

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: RetryBudget = RetryBudget {
        percent: 20,
        least: 10,
    };

    fn taken(budget: &Budget, rules: &RetryBudget, now: u64) -> usize {
        (0..10_000).take_while(|_| budget.take(rules, now)).count()
    }

    #[test]
    fn time_brings_the_least() {
        let budget = Budget::default();
        assert_eq!(taken(&budget, &RULES, 5), 10, "a second's worth at first");
        assert_eq!(taken(&budget, &RULES, 5 + NANOS / 2), 5);
        assert_eq!(taken(&budget, &RULES, 5 + NANOS / 2), 0);
        assert_eq!(
            taken(&budget, &RULES, 3600 * NANOS),
            limits::RETRIES_SAVED as usize
        );
    }

    #[test]
    fn requests_bring_their_share() {
        let none = RetryBudget {
            percent: 20,
            least: 0,
        };
        let budget = Budget::default();
        for _ in 0..50 {
            budget.bring(&none);
        }
        assert_eq!(taken(&budget, &none, 1), 10);
        assert_eq!(taken(&budget, &none, NANOS), 0);
        for _ in 0..1_000_000 {
            budget.bring(&none);
        }
        assert_eq!(taken(&budget, &none, 1), limits::RETRIES_SAVED as usize);
    }

    /// However often all of them fail: no more tries than requests and time have brought.
    #[test]
    fn tries_do_not_amplify() {
        let budget = Budget::default();
        let (mut tries, mut random) = (0, fastrand::Rng::with_seed(7));
        let mut now = 1;
        for _ in 0..100_000 {
            now += random.u64(0..100_000);
            budget.bring(&RULES);
            tries += (0..3).take_while(|_| budget.take(&RULES, now)).count();
        }
        let most = 100_000 / 5 + (now / NANOS + 2) as usize * 10;
        assert!(tries <= most && tries > most / 2, "{tries} of {most}");
    }
}
