//! Health of endpoints: active checks, and outlier detection by the results of requests.
//!
//! A verdict belongs to the endpoint's address and is shared by all workers. Active checks run on one worker, once per process;
//! every worker records the results of its requests.

mod check;
mod outlier;

#[cfg(test)]
mod tests;

pub(crate) use check::{HealthTarget, run_checks};
pub use outlier::EjectionReason;
pub(crate) use outlier::{OutlierRecord, RequestOutcome, may_eject};

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::backend::Time;

use crate::fault::Fault;
use crate::limits;

/// The health of an endpoint. Instants are nanoseconds of the engine's clock.
#[derive(Debug, Default)]
pub(crate) struct EndpointHealth {
    /// The [`CheckVerdict`] of active health checks.
    verdict: AtomicU8,
    /// The last health check received no response at all.
    is_silent: AtomicBool,
    /// The end of the period in which the endpoint is skipped because it could not be connected to.
    unreachable_until: AtomicU64,
    /// The same for display: milliseconds since the Unix epoch.
    unreachable_until_wall_ms: AtomicU64,
    /// The error of the last health check, if it failed.
    check_error: Mutex<Option<CheckError>>,
    /// The first of the connection attempts of requests that have failed since the last success, of a request or of a health check:
    /// milliseconds since the Unix epoch; 0: the last attempt succeeded.
    connect_failing_since_ms: AtomicU64,
    /// The index in [`Fault::ALL`] of the last failed attempt.
    connect_fault: AtomicU8,
    /// Results of requests.
    pub(crate) outliers: OutlierRecord,
    /// The instant since which the endpoint is known and healthy; 0: its health was not queried yet.
    healthy_since: AtomicU64,
}

/// The error of the last health check of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// The reason.
    pub reason: Arc<str>,
    /// The first failure since the last check that succeeded, since the Unix epoch.
    pub since: Duration,
}

/// Failed connection attempts to an endpoint, without a success since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    /// The fault of the last attempt.
    pub fault: Fault,
    /// The time of the first failed attempt, since the Unix epoch.
    pub since: Duration,
}

/// The result of active health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CheckVerdict {
    /// No health check has finished yet, or none is configured.
    Unknown,
    /// The endpoint is healthy.
    Healthy,
    /// The endpoint is unhealthy.
    Unhealthy,
}

impl EndpointHealth {
    /// Returns the verdict of active health checks.
    pub(crate) fn verdict(&self) -> CheckVerdict {
        match self.verdict.load(Ordering::Relaxed) {
            1 => CheckVerdict::Healthy,
            2 => CheckVerdict::Unhealthy,
            _ => CheckVerdict::Unknown,
        }
    }

    /// Returns the error of the last health check; `None`: it succeeded, or there was none.
    pub(crate) fn check_error(&self) -> Option<CheckError> {
        self.check_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records the error of a health check, or its success. `wall` is the time since the Unix epoch.
    pub(crate) fn record_check(&self, error: Option<&str>, wall: Duration) {
        let mut last = self.check_error.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *last, error) {
            (last, None) => *last = None,
            (Some(last), Some(reason)) if *last.reason == *reason => {}
            (Some(last), Some(reason)) => last.reason = reason.into(),
            (last @ None, Some(reason)) => {
                *last = Some(CheckError {
                    reason: reason.into(),
                    since: wall,
                });
            }
        }
    }

    /// Sets the verdict of active health checks.
    pub(crate) fn set_verdict(&self, verdict: CheckVerdict) {
        let last = self.verdict();
        self.verdict.store(verdict as u8, Ordering::Relaxed);
        if last == CheckVerdict::Unhealthy && verdict == CheckVerdict::Healthy {
            self.healthy_since.store(0, Ordering::Relaxed);
        }
    }

    /// Records whether the last health check received any response. Returns whether that is a change.
    pub(crate) fn record_response(&self, responds: bool) -> bool {
        self.is_silent.swap(!responds, Ordering::Relaxed) == responds
    }

    /// Returns whether the endpoint responds at all, as far as is known: an endpoint that fails its health check or is ejected may
    /// respond, one that accepts no connections does not.
    pub(crate) fn responds(&self, now: u64) -> bool {
        let is_silent = self.verdict() == CheckVerdict::Unhealthy && self.is_silent.load(Ordering::Relaxed);
        !is_silent && self.unreachable_until.load(Ordering::Relaxed) <= now
    }

    /// Returns whether the endpoint is usable except for a recent connection failure.
    pub(crate) fn is_last_resort(&self, now: u64) -> bool {
        self.verdict() != CheckVerdict::Unhealthy && self.outliers.ejected_until() <= now
    }

    /// Skips the endpoint for [`limits::PASSED_OVER`] after a failed connection attempt. `now` is the engine's time, `wall` the time
    /// since the Unix epoch.
    pub(crate) fn mark_unreachable(&self, fault: Fault, now: Time, wall: Duration) {
        let span = limits::PASSED_OVER;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.unreachable_until.store(now.after(span).0, Ordering::Relaxed);
        self.unreachable_until_wall_ms
            .store(millis(wall + span), Ordering::Relaxed);
        let index = Fault::ALL.iter().position(|it| *it == fault).unwrap_or_default();
        self.connect_fault
            .store(u8::try_from(index).unwrap_or_default(), Ordering::Relaxed);
        // A failure of another worker may have been the first.
        let _ = self.connect_failing_since_ms.compare_exchange(
            0,
            millis(wall).max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Records an established connection to the endpoint's own address.
    pub(crate) fn record_connect_success(&self) {
        if self.connect_failing_since_ms.load(Ordering::Relaxed) != 0 {
            self.connect_failing_since_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Records that a health check, which began at `started_at`, received a response at the endpoint's own address: a connection
    /// attempt that had failed before is outdated. One that failed during the check remains.
    pub(crate) fn record_check_connected(&self, started_at: Time) {
        let until = self.unreachable_until.load(Ordering::Relaxed);
        if until <= started_at.after(limits::PASSED_OVER).0 {
            self.record_connect_success();
        }
    }

    /// Forgets the results of health checks, when no later check would replace the last one.
    pub(crate) fn clear_checks(&self) {
        self.set_verdict(CheckVerdict::Unknown);
        self.is_silent.store(false, Ordering::Relaxed);
        *self.check_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the failed connection attempts since the last success; `None`: the last attempt succeeded, or there was none.
    pub(crate) fn connect_failure(&self) -> Option<ConnectFailure> {
        match self.connect_failing_since_ms.load(Ordering::Relaxed) {
            0 => None,
            since => Some(ConnectFailure {
                fault: *Fault::ALL.get(usize::from(self.connect_fault.load(Ordering::Relaxed)))?,
                since: Duration::from_millis(since),
            }),
        }
    }

    /// Returns the end of the last period without connections to the endpoint, since the Unix epoch.
    pub(crate) fn unreachable_until(&self) -> Option<Duration> {
        match self.unreachable_until_wall_ms.load(Ordering::Relaxed) {
            0 => None,
            until => Some(Duration::from_millis(until)),
        }
    }

    /// Returns the end of the ejection, in nanoseconds; 0: the endpoint was never ejected.
    pub(crate) fn ejected_until(&self) -> u64 {
        self.outliers.ejected_until()
    }

    /// Returns whether the endpoint is healthy, and the instant until which that holds unless an event changes it.
    pub(crate) fn is_healthy(&self, now: u64) -> (bool, u64) {
        let passed = self
            .unreachable_until
            .load(Ordering::Relaxed)
            .max(self.outliers.ejected_until());
        if self.verdict() == CheckVerdict::Unhealthy {
            (false, u64::MAX)
        } else if passed > now {
            (false, passed)
        } else {
            (true, u64::MAX)
        }
    }

    /// Returns the time since the endpoint became healthy, in nanoseconds.
    pub(crate) fn healthy_for(&self, now: u64) -> u64 {
        // From the end of its last ejection at the earliest.
        let back = self.outliers.ejected_until();
        let since = match self.healthy_since.load(Ordering::Relaxed) {
            0 => {
                let now = now.max(1);
                let set = self
                    .healthy_since
                    .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
                set.map_or_else(|since| since, |_| now)
            }
            since => since,
        };
        now.saturating_sub(since.max(back))
    }
}
