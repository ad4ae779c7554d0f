//! The retry budget of an upstream: each request deposits a share of a retry, and so does the passage of time.
//!
//! Pure except for its atomics: time is an argument. Shared by all workers; only requests whose rules allow retries use it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::CacheLine;
use crate::limits;
use crate::model::RetryBudget;

/// One retry, in thousandths.
const RETRY_COST: u64 = 1000;

/// The retry budget of an upstream.
///
/// With an interval there are two generations of saved retries: those of its current half, and those of the half before.
#[derive(Debug, Default)]
pub(crate) struct RetryBudgetState {
    current_half: CacheLine<AtomicU64>,
    /// Retries of the half before; 0 without an interval.
    previous_half: AtomicU64,
    /// The start of the current half: nanoseconds of the engine's clock.
    half_started: AtomicU64,
    /// The instant up to which time was deposited: nanoseconds of the engine's clock.
    counted: AtomicU64,
}

impl RetryBudgetState {
    /// Deposits the share of a new request.
    pub(crate) fn deposit(&self, rules: &RetryBudget, now: u64) {
        self.rotate_halves(rules, now);
        self.deposit_amount(rules, u64::from(rules.percent) * RETRY_COST / 100);
    }

    /// Withdraws a retry. Returns `false` if the budget is exhausted.
    pub(crate) fn withdraw(&self, rules: &RetryBudget, now: u64) -> bool {
        self.rotate_halves(rules, now);
        let relaxed = Ordering::Relaxed;
        let last = self.counted.load(relaxed);
        let span = nanos(rules.least_interval);
        // The first call receives the retries of one span.
        let elapsed = match last {
            0 => span,
            last => now.saturating_sub(last),
        };
        let elapsed = rules
            .interval
            .map_or(elapsed, |interval| elapsed.min(nanos(interval)));
        let accrued =
            u128::from(elapsed) * u128::from(rules.least) * u128::from(RETRY_COST) / u128::from(span);
        let accrued = u64::try_from(accrued).unwrap_or(u64::MAX);
        let now = now.max(1);
        if accrued > 0 && self.counted.compare_exchange(last, now, relaxed, relaxed).is_ok() {
            self.deposit_amount(rules, accrued);
        }
        let spend = |saved: u64| saved.checked_sub(RETRY_COST);
        if self.previous_half.fetch_update(relaxed, relaxed, spend).is_ok() {
            return true;
        }
        // Less than one retry is left of the older half.
        let remaining = self.previous_half.swap(0, relaxed);
        if remaining > 0 {
            self.current_half.0.fetch_add(remaining, relaxed);
        }
        self.current_half.0.fetch_update(relaxed, relaxed, spend).is_ok()
    }

    /// Starts the next half of the interval if it is due: retries of the half before the last one expire.
    fn rotate_halves(&self, rules: &RetryBudget, now: u64) {
        let Some(interval) = rules.interval else { return };
        let half = (nanos(interval) / 2).max(1);
        let relaxed = Ordering::Relaxed;
        let started_at = self.half_started.load(relaxed);
        // The clocks of workers differ by up to one turn of their loops.
        let elapsed = now.saturating_sub(started_at);
        if elapsed < half
            || self
                .half_started
                .compare_exchange(started_at, now, relaxed, relaxed)
                .is_err()
        {
            return;
        }
        let last = self.current_half.0.swap(0, relaxed);
        self.previous_half
            .store(if elapsed < 2 * half { last } else { 0 }, relaxed);
    }

    fn deposit_amount(&self, rules: &RetryBudget, amount: u64) {
        // An interval bounds the sum by itself.
        let max = match rules.interval {
            None => u64::from(limits::RETRIES_SAVED) * RETRY_COST,
            Some(_) => u64::MAX,
        };
        let sum = |saved: u64| (saved < max).then(|| saved.saturating_add(amount).min(max));
        let _ = self
            .current_half
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: RetryBudget = RetryBudget {
        percent: 20,
        least: 10,
        least_interval: Duration::from_secs(1),
        interval: None,
    };

    fn withdraw_all(budget: &RetryBudgetState, rules: &RetryBudget, now: u64) -> usize {
        (0..10_000).take_while(|_| budget.withdraw(rules, now)).count()
    }

    #[test]
    fn minimum_is_deposited_over_time() {
        let budget = RetryBudgetState::default();
        assert_eq!(withdraw_all(&budget, &RULES, 5), 10, "a second's worth at first");
        assert_eq!(withdraw_all(&budget, &RULES, 5 + NANOS / 2), 5);
        assert_eq!(withdraw_all(&budget, &RULES, 5 + NANOS / 2), 0);
        assert_eq!(
            withdraw_all(&budget, &RULES, 3600 * NANOS),
            limits::RETRIES_SAVED as usize
        );
    }

    #[test]
    fn requests_deposit_their_share() {
        let none = RetryBudget {
            percent: 20,
            least: 0,
            ..RULES
        };
        let budget = RetryBudgetState::default();
        for _ in 0..50 {
            budget.deposit(&none, 1);
        }
        assert_eq!(withdraw_all(&budget, &none, 1), 10);
        assert_eq!(withdraw_all(&budget, &none, NANOS), 0);
        for _ in 0..1_000_000 {
            budget.deposit(&none, 1);
        }
        assert_eq!(withdraw_all(&budget, &none, 1), limits::RETRIES_SAVED as usize);
    }

    /// Even if every attempt fails, there are no more retries than requests and time have deposited.
    #[test]
    fn retries_do_not_amplify_load() {
        let budget = RetryBudgetState::default();
        let (mut tries, mut random) = (0, fastrand::Rng::with_seed(7));
        let mut now = 1;
        for _ in 0..100_000 {
            now += random.u64(0..100_000);
            budget.deposit(&RULES, now);
            tries += (0..3).take_while(|_| budget.withdraw(&RULES, now)).count();
        }
        let max = 100_000 / 5 + (now / NANOS + 2) as usize * 10;
        assert!(tries <= max && tries > max / 2, "{tries} of {max}");
    }

    #[test]
    fn minimum_per_configured_interval() {
        let rules = RetryBudget {
            percent: 0,
            least: 3,
            least_interval: Duration::from_mins(1),
            interval: Some(Duration::from_mins(10)),
        };
        let budget = RetryBudgetState::default();
        assert_eq!(
            withdraw_all(&budget, &rules, NANOS),
            3,
            "one span's worth at first"
        );
        assert_eq!(withdraw_all(&budget, &rules, 20 * NANOS), 0);
        assert_eq!(withdraw_all(&budget, &rules, 61 * NANOS), 3);
        assert_eq!(
            withdraw_all(&budget, &rules, 24 * 3600 * NANOS),
            30,
            "no more than an interval brings"
        );
    }

    #[test]
    fn deposits_expire() {
        let rules = RetryBudget {
            percent: 20,
            least: 0,
            interval: Some(Duration::from_secs(10)),
            ..RULES
        };
        let budget = RetryBudgetState::default();
        let bring = |seconds: u64, requests: usize| {
            (0..requests).for_each(|_| budget.deposit(&rules, seconds * NANOS));
        };
        bring(100, 50);
        assert_eq!(
            withdraw_all(&budget, &rules, 104 * NANOS),
            10,
            "all within the interval"
        );
        bring(105, 50);
        bring(110, 5);
        assert_eq!(
            withdraw_all(&budget, &rules, 110 * NANOS),
            11,
            "those of the half before, too"
        );
        bring(115, 50);
        bring(125, 5);
        assert_eq!(
            withdraw_all(&budget, &rules, 125 * NANOS),
            1,
            "those of an interval ago have expired"
        );
        bring(130, 50);
        assert_eq!(withdraw_all(&budget, &rules, 200 * NANOS), 0);
        bring(201, 1_000_000);
        assert_eq!(
            (0..300_000)
                .take_while(|_| budget.withdraw(&rules, 201 * NANOS))
                .count(),
            200_000,
            "an interval bounds the sum by itself"
        );
    }

    /// A longer interval after a reload does not stop expiry, nor does a clock that is behind.
    #[test]
    fn intervals_change() {
        let rules = |seconds| RetryBudget {
            least: 0,
            interval: Some(Duration::from_secs(seconds)),
            ..RULES
        };
        let budget = RetryBudgetState::default();
        (0..50).for_each(|_| budget.deposit(&rules(1), 1000 * NANOS));
        (0..50).for_each(|_| budget.deposit(&rules(60), 999 * NANOS));
        assert_eq!(withdraw_all(&budget, &rules(60), 1001 * NANOS), 20);
        (0..50).for_each(|_| budget.deposit(&rules(60), 1002 * NANOS));
        assert_eq!(withdraw_all(&budget, &rules(60), 1063 * NANOS), 0);
    }
}
