//! What requests meet at an endpoint, and when that is enough to pass it over for a while.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::model::OutlierDetection;
use crate::status::Ejection;

/// How a request went, as far as it tells of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// It was answered.
    Good,
    /// No connection, a reset, a timeout, an answer from 500 on.
    Bad,
}

/// Why an endpoint is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// So many failures in a row.
    InARow(u32),
    /// So many requests of an interval have failed.
    Share {
        /// Those that failed.
        failed: u32,
        /// All of them.
        of: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::InARow(1) => f.write_str("a failure"),
            Reason::InARow(count) => write!(f, "{count} failures in a row"),
            Reason::Share { failed, of } => write!(f, "{failed} of {of} requests failed"),
        }
    }
}

impl Reason {
    /// In one number, so that it is written at once.
    fn packed(self) -> u64 {
        match self {
            Reason::InARow(count) => u64::from(count),
            Reason::Share { failed, of } => u64::from(of) << 32 | u64::from(failed),
        }
    }

    fn unpacked(packed: u64) -> Reason {
        // The lower half.
        let failed = packed as u32;
        match (packed >> 32) as u32 {
            0 => Reason::InARow(failed),
            of => Reason::Share { failed, of },
        }
    }
}

/// What has been met so far, by all workers. Counts may be off by what happens at the same moment.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Bad ones since the endpoint is known.
    failures: AtomicU64,
    /// Bad ones in a row.
    row: AtomicU32,
    /// When the interval has begun, nanoseconds.
    began: AtomicU64,
    total: AtomicU32,
    bad: AtomicU32,
    ejected_until: AtomicU64,
    /// How often, less one for each good interval.
    ejections: AtomicU32,
    /// Of the last ejection, for people: its end in milliseconds since the Unix epoch, 0 if there was none.
    until_wall_ms: AtomicU64,
    /// Of the same one.
    reason: AtomicU64,
}

impl Record {
    /// Until when it is passed over; 0: it never was.
    pub(crate) fn ejected_until(&self) -> u64 {
        self.ejected_until.load(Ordering::Relaxed)
    }

    /// The last ejection.
    pub(crate) fn ejection(&self) -> Option<Ejection> {
        let until = self.until_wall_ms.load(Ordering::Relaxed);
        (until != 0).then(|| Ejection {
            until: Duration::from_millis(until),
            why: Reason::unpacked(self.reason.load(Ordering::Relaxed)),
            times: self.ejections.load(Ordering::Relaxed),
        })
    }

    /// Counts a bad one, whether or not endpoints are ejected.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many were bad since the endpoint is known.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Notes how a request went. Why the endpoint is to be passed over, if it is: what to do then is [`Record::eject`].
    pub(crate) fn note(&self, meeting: Meeting, now: u64, rules: &OutlierDetection) -> Option<Reason> {
        let bad = meeting == Meeting::Bad;
        let row = if bad {
            self.row.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            if self.row.load(Ordering::Relaxed) != 0 {
                self.row.store(0, Ordering::Relaxed);
            }
            0
        };
        if bad && rules.consecutive > 0 && row >= rules.consecutive {
            return Some(Reason::InARow(row));
        }
        let percent = rules.failure_percent?;
        self.follow_interval(now, rules, percent);
        let total = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let failed = match bad {
            true => self.bad.fetch_add(1, Ordering::Relaxed) + 1,
            false => self.bad.load(Ordering::Relaxed),
        };
        let reached = bad
            && total >= rules.least_requests
            && u64::from(failed) * 100 >= u64::from(percent) * u64::from(total);
        reached.then_some(Reason::Share { failed, of: total })
    }

    fn follow_interval(&self, now: u64, rules: &OutlierDetection, percent: u8) {
        let began = self.began.load(Ordering::Relaxed);
        let length = u64::try_from(rules.interval.as_nanos()).unwrap_or(u64::MAX);
        if now.saturating_sub(began) < length && began != 0 {
            return;
        }
        let ours = self
            .began
            .compare_exchange(began, now.max(1), Ordering::Relaxed, Ordering::Relaxed);
        if ours.is_ok() {
            let total = self.total.swap(0, Ordering::Relaxed);
            let bad = self.bad.swap(0, Ordering::Relaxed);
            if u64::from(bad) * 100 < u64::from(percent) * u64::from(total) {
                self.forgive();
            }
        }
    }

    fn forgive(&self) {
        let less = |count: u32| count.checked_sub(1);
        let _ = self
            .ejections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Passes it over: each time twice as long as the last. Whether this call did it, and not another worker's. `wall`: the time
    /// since the Unix epoch.
    pub(crate) fn eject(&self, now: u64, wall: Duration, rules: &OutlierDetection, why: Reason) -> bool {
        let until = self.ejected_until.load(Ordering::Relaxed);
        if until > now {
            return false;
        }
        let times = self.ejections.load(Ordering::Relaxed).min(16);
        let span = rules.ejected.saturating_mul(1 << times).min(rules.ejected_most);
        let end = now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let ours = self
            .ejected_until
            .compare_exchange(until, end, Ordering::Relaxed, Ordering::Relaxed);
        if ours.is_ok() {
            self.ejections.fetch_add(1, Ordering::Relaxed);
            let until = u64::try_from((wall + span).as_millis()).unwrap_or(u64::MAX);
            self.reason.store(why.packed(), Ordering::Relaxed);
            self.until_wall_ms.store(until, Ordering::Relaxed);
            self.row.store(0, Ordering::Relaxed);
            self.total.store(0, Ordering::Relaxed);
            self.bad.store(0, Ordering::Relaxed);
        }
        ours.is_ok()
    }
}

/// Whether one more of `endpoints` may be passed over besides `ejected` others.
pub(crate) fn may_eject(ejected: usize, endpoints: usize, rules: &OutlierDetection) -> bool {
    let most = endpoints * usize::from(rules.most_percent) / 100;
    // One always may, if there are others.
    endpoints > 1 && ejected < most.max(1)
}
