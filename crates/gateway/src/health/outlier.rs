//! What requests meet at an endpoint, and when that is enough to pass it over for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::model::OutlierDetection;

/// How a request went, as far as it tells of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// It was answered.
    Good,
    /// No connection, a reset, a timeout, an answer from 500 on.
    Bad,
}

/// What has been met so far, by all workers. Counts may be off by what happens at the same moment.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Bad ones in a row.
    row: AtomicU32,
    /// When the interval has begun, nanoseconds.
    began: AtomicU64,
    total: AtomicU32,
    bad: AtomicU32,
    ejected_until: AtomicU64,
    /// How often, less one for each good interval.
    ejections: AtomicU32,
}

impl Record {
    /// Until when it is passed over; 0: it never was.
    pub(crate) fn ejected_until(&self) -> u64 {
        self.ejected_until.load(Ordering::Relaxed)
    }

    /// Notes how a request went. Whether the endpoint is to be passed over: what to do then is [`Record::eject`].
    pub(crate) fn note(&self, meeting: Meeting, now: u64, rules: &OutlierDetection) -> bool {
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
            return true;
        }
        let Some(percent) = rules.failure_percent else {
            return false;
        };
        self.follow_interval(now, rules, percent);
        let total = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let failed = match bad {
            true => self.bad.fetch_add(1, Ordering::Relaxed) + 1,
            false => self.bad.load(Ordering::Relaxed),
        };
        bad && total >= rules.least_requests
            && u64::from(failed) * 100 >= u64::from(percent) * u64::from(total)
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

    /// Passes it over: each time twice as long as the last. Whether this call did it, and not another worker's.
    pub(crate) fn eject(&self, now: u64, rules: &OutlierDetection) -> bool {
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
