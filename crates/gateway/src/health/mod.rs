//! Who is well: endpoints are asked, and what requests meet is counted.
//!
//! A verdict belongs to the endpoint's address and is shared by all workers. Those who ask run on one worker, once per
//! process; those who meet are all.

mod check;
mod outlier;

#[cfg(test)]
mod tests;

pub(crate) use check::{Target, watch};
pub use outlier::Reason;
pub(crate) use outlier::{Meeting, Record, may_eject};

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::backend::Time;

use crate::limits;

/// What is known of an endpoint's health. Times are nanoseconds of the engine's clock.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// [`Verdict`].
    asked: AtomicU8,
    /// The last health check got no response at all.
    silent: AtomicBool,
    /// Until when it is passed over because it could not be connected to.
    shunned_until: AtomicU64,
    /// The same for people: milliseconds since the Unix epoch.
    shunned_until_wall_ms: AtomicU64,
    /// Why the last health check failed, if it did.
    check_error: Mutex<Option<Arc<str>>>,
    /// What requests have met.
    pub(crate) record: Record,
    /// Since when it is known and well; 0: nobody has looked.
    since: AtomicU64,
}

/// What asking has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Nobody has asked yet, or nobody does.
    Unknown,
    /// It is well.
    Well,
    /// It is not.
    Ill,
}

impl Health {
    /// What asking has shown.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.asked.load(Ordering::Relaxed) {
            1 => Verdict::Well,
            2 => Verdict::Ill,
            _ => Verdict::Unknown,
        }
    }

    /// Why the last health check failed; `None`: it succeeded, or there was none.
    pub(crate) fn check_error(&self) -> Option<Arc<str>> {
        self.check_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records why a health check failed, or that it succeeded.
    pub(crate) fn record_check(&self, error: Option<&str>) {
        let mut last = self.check_error.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_deref() != error {
            *last = error.map(Arc::from);
        }
    }

    /// Tells what asking has shown.
    pub(crate) fn tell(&self, verdict: Verdict) {
        let last = self.verdict();
        self.asked.store(verdict as u8, Ordering::Relaxed);
        if last == Verdict::Ill && verdict == Verdict::Well {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    /// Records whether the last health check got a response, whatever it was. Returns whether that is a change.
    pub(crate) fn record_response(&self, responds: bool) -> bool {
        self.silent.swap(!responds, Ordering::Relaxed) == responds
    }

    /// Whether it responds at all, as far as is known: an endpoint that fails its health check or is ejected may, one that
    /// accepts no connections does not.
    pub(crate) fn responds(&self, now: u64) -> bool {
        let is_silent = self.verdict() == Verdict::Ill && self.silent.load(Ordering::Relaxed);
        !is_silent && self.shunned_until.load(Ordering::Relaxed) <= now
    }

    /// Whether nothing but a connection that failed a moment ago speaks against it.
    pub(crate) fn is_last_resort(&self, now: u64) -> bool {
        self.verdict() != Verdict::Ill && self.record.ejected_until() <= now
    }

    /// Passes it over for [`limits::PASSED_OVER`]. `now` is the engine's time, `wall` that since the Unix epoch.
    pub(crate) fn shun(&self, now: Time, wall: Duration) {
        let span = limits::PASSED_OVER;
        let until = u64::try_from((wall + span).as_millis()).unwrap_or(u64::MAX);
        self.shunned_until.store(now.after(span).0, Ordering::Relaxed);
        self.shunned_until_wall_ms.store(until, Ordering::Relaxed);
    }

    /// Until when it is passed over because it could not be connected to, since the Unix epoch.
    pub(crate) fn unreachable_until(&self) -> Option<Duration> {
        match self.shunned_until_wall_ms.load(Ordering::Relaxed) {
            0 => None,
            until => Some(Duration::from_millis(until)),
        }
    }

    /// Until when it is passed over for what requests have met; 0: it is not.
    pub(crate) fn ejected_until(&self) -> u64 {
        self.record.ejected_until()
    }

    /// Whether it is well, and until when that is so if nothing happens.
    pub(crate) fn is_well(&self, now: u64) -> (bool, u64) {
        let passed = self
            .shunned_until
            .load(Ordering::Relaxed)
            .max(self.record.ejected_until());
        if self.verdict() == Verdict::Ill {
            (false, u64::MAX)
        } else if passed > now {
            (false, passed)
        } else {
            (true, u64::MAX)
        }
    }

    /// How long it has been known and well.
    pub(crate) fn age(&self, now: u64) -> u64 {
        // From the end of its last ejection at the earliest.
        let back = self.record.ejected_until();
        let since = match self.since.load(Ordering::Relaxed) {
            0 => {
                let now = now.max(1);
                let set = self
                    .since
                    .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
                set.map_or_else(|since| since, |_| now)
            }
            since => since,
        };
        now.saturating_sub(since.max(back))
    }
}
