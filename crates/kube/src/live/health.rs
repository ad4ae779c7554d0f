//! The state of following Kubernetes: whether all lists have arrived, and which watches fail. Knows no objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state of following Kubernetes, for readiness and metrics.
#[derive(Debug, Default)]
pub struct Health {
    is_synced: AtomicBool,
    leads: AtomicBool,
    translations: AtomicU64,
    failing: Mutex<BTreeMap<String, Duration>>,
}

impl Health {
    /// Returns `true` once all lists have arrived and are served.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::Acquire)
    }

    /// Returns `true` while this replica writes statuses.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// The number of translations that were applied.
    #[must_use]
    pub fn translations(&self) -> u64 {
        self.translations.load(Ordering::Relaxed)
    }

    /// The lists and watches that fail, and since when (since 1970). Earlier objects are served.
    #[must_use]
    pub fn failing(&self) -> BTreeMap<String, Duration> {
        self.failures().clone()
    }

    pub(super) fn set_synced(&self) {
        self.is_synced.store(true, Ordering::Release);
    }

    pub(super) fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    pub(super) fn count_translation(&self) {
        self.translations.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, topic: String, now: Duration) {
        self.failures().entry(topic).or_insert(now);
    }

    pub(super) fn recover(&self, topic: &str) {
        self.failures().remove(topic);
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
