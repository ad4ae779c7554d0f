//! Outlier detection: counts the results of requests to an endpoint, and ejects the endpoint for a time when too many fail.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::model::OutlierDetection;
use crate::stats::upstreams::Ejection;

/// The result of a request, as evidence of the endpoint's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// A response below 500.
    Success,
    /// No connection, a reset, a timeout, or a status from 500 on.
    Failure,
}

impl RequestOutcome {
    /// Returns the outcome of a request that has failed or not.
    pub(crate) fn from_failed(failed: bool) -> RequestOutcome {
        if failed {
            RequestOutcome::Failure
        } else {
            RequestOutcome::Success
        }
    }
}

/// The reason for an ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionReason {
    /// The number of consecutive failures.
    Consecutive(u32),
    /// The share of an interval's requests that failed.
    FailureRate {
        /// Failed requests.
        failed: u32,
        /// Requests of the interval.
        of: u32,
    },
}

impl fmt::Display for EjectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EjectionReason::Consecutive(1) => f.write_str("a failure"),
            EjectionReason::Consecutive(count) => write!(f, "{count} consecutive failures"),
            EjectionReason::FailureRate { failed, of } => write!(f, "{failed} of {of} requests failed"),
        }
    }
}

impl EjectionReason {
    /// Encodes the reason as one number, so that it is written atomically.
    fn packed(self) -> u64 {
        match self {
            EjectionReason::Consecutive(count) => u64::from(count),
            EjectionReason::FailureRate { failed, of } => u64::from(of) << 32 | u64::from(failed),
        }
    }

    fn unpacked(packed: u64) -> EjectionReason {
        // The lower half.
        let failed = packed as u32;
        match (packed >> 32) as u32 {
            0 => EjectionReason::Consecutive(failed),
            of => EjectionReason::FailureRate { failed, of },
        }
    }
}

/// The results so far, summed over all workers. Concurrent updates may make counts slightly inexact.
#[derive(Debug, Default)]
pub(crate) struct OutlierRecord {
    /// Failures since the endpoint is configured.
    failures: AtomicU64,
    /// Consecutive failures.
    consecutive: AtomicU32,
    /// The start of the interval, in nanoseconds.
    interval_started: AtomicU64,
    total: AtomicU32,
    failed: AtomicU32,
    ejected_until: AtomicU64,
    /// Ejections, less one for each interval without one.
    ejections: AtomicU32,
    /// The end of the last ejection for display, in milliseconds since the Unix epoch; 0: there was none.
    until_wall_ms: AtomicU64,
    /// The reason of the last ejection.
    reason: AtomicU64,
}

impl OutlierRecord {
    /// Returns the end of the last ejection, in nanoseconds; 0: the endpoint was never ejected.
    pub(crate) fn ejected_until(&self) -> u64 {
        self.ejected_until.load(Ordering::Relaxed)
    }

    /// Returns the last ejection.
    pub(crate) fn ejection(&self) -> Option<Ejection> {
        let until = self.until_wall_ms.load(Ordering::Relaxed);
        (until != 0).then(|| Ejection {
            until: Duration::from_millis(until),
            reason: EjectionReason::unpacked(self.reason.load(Ordering::Relaxed)),
            times: self.ejections.load(Ordering::Relaxed),
        })
    }

    /// Counts a failure, whether or not outlier detection is configured.
    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of failures since the endpoint is configured.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Records the result of a request. Returns the reason for an ejection if one is due; [`OutlierRecord::eject`] carries it out.
    pub(crate) fn record_outcome(
        &self,
        outcome: RequestOutcome,
        now: u64,
        rules: &OutlierDetection,
    ) -> Option<EjectionReason> {
        let is_failure = outcome == RequestOutcome::Failure;
        let row = if is_failure {
            self.consecutive.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            if self.consecutive.load(Ordering::Relaxed) != 0 {
                self.consecutive.store(0, Ordering::Relaxed);
            }
            0
        };
        if is_failure && rules.consecutive > 0 && row >= rules.consecutive {
            return Some(EjectionReason::Consecutive(row));
        }
        let percent = rules.failure_percent?;
        self.rotate_interval(now, rules, percent);
        let total = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let failed = if is_failure {
            self.failed.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.failed.load(Ordering::Relaxed)
        };
        let reached = is_failure
            && total >= rules.least_requests
            && u64::from(failed) * 100 >= u64::from(percent) * u64::from(total);
        reached.then_some(EjectionReason::FailureRate { failed, of: total })
    }

    fn rotate_interval(&self, now: u64, rules: &OutlierDetection, percent: u8) {
        let interval_start = self.interval_started.load(Ordering::Relaxed);
        let length = u64::try_from(rules.interval.as_nanos()).unwrap_or(u64::MAX);
        if now.saturating_sub(interval_start) < length && interval_start != 0 {
            return;
        }
        let exchanged = self.interval_started.compare_exchange(
            interval_start,
            now.max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if exchanged.is_ok() {
            let total = self.total.swap(0, Ordering::Relaxed);
            let failed = self.failed.swap(0, Ordering::Relaxed);
            if u64::from(failed) * 100 < u64::from(percent) * u64::from(total) {
                self.reset();
            }
        }
    }

    fn reset(&self) {
        let decrement = |count: u32| count.checked_sub(1);
        let _ = self
            .ejections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement);
    }

    /// Ejects the endpoint, each time for twice as long as the last time. Returns whether this call did so, and not that of another
    /// worker. `wall` is the time since the Unix epoch.
    pub(crate) fn eject(
        &self,
        now: u64,
        wall: Duration,
        rules: &OutlierDetection,
        reason: EjectionReason,
    ) -> bool {
        let until = self.ejected_until.load(Ordering::Relaxed);
        if until > now {
            return false;
        }
        let times = self.ejections.load(Ordering::Relaxed).min(16);
        let span = rules
            .ejected
            .saturating_mul(1 << times)
            .min(rules.max_ejected_time);
        let end = now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let exchanged = self
            .ejected_until
            .compare_exchange(until, end, Ordering::Relaxed, Ordering::Relaxed);
        if exchanged.is_ok() {
            self.ejections.fetch_add(1, Ordering::Relaxed);
            let until = u64::try_from((wall + span).as_millis()).unwrap_or(u64::MAX);
            self.reason.store(reason.packed(), Ordering::Relaxed);
            self.until_wall_ms.store(until, Ordering::Relaxed);
            self.consecutive.store(0, Ordering::Relaxed);
            self.total.store(0, Ordering::Relaxed);
            self.failed.store(0, Ordering::Relaxed);
        }
        exchanged.is_ok()
    }
}

/// Returns whether one more of `endpoints` may be ejected in addition to `ejected` others.
pub(crate) fn may_eject(ejected: usize, endpoints: usize, rules: &OutlierDetection) -> bool {
    let max_ejected = endpoints * usize::from(rules.max_ejected_percent) / 100;
    // One always may be, if there are others.
    endpoints > 1 && ejected < max_ejected.max(1)
}
