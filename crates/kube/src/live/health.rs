//! The state of following Kubernetes, for readiness, metrics and the administration. Knows no objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state of following Kubernetes. Instants are given since 1970.
#[derive(Debug, Default)]
pub struct Health {
    is_synced: AtomicBool,
    leads: AtomicBool,
    translations: AtomicU64,
    /// Microseconds.
    delays: AtomicU64,
    details: Mutex<Details>,
}

/// The details of a state, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The URL of the API server.
    pub api_server: String,
    /// The `spec.controllerName` of the GatewayClasses that are served.
    pub controller: String,
    /// The name of this replica.
    pub identity: String,
    /// The instant at which all lists had arrived and were served.
    pub synced_at: Option<Duration>,
    /// The instant at which this replica began or ceased to write statuses.
    pub leads_since: Option<Duration>,
    /// The replica that holds the Lease, as far as it is known.
    pub holder: Option<String>,
    /// The instant of the last translation that was applied.
    pub translated_at: Option<Duration>,
    /// The number of objects by kind, as of the last translation.
    pub objects: BTreeMap<&'static str, usize>,
    /// The lists and watches that fail. Earlier objects are served.
    pub failing: BTreeMap<String, Failure>,
}

/// The failure of a list or a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The instant of the first failure in a row.
    pub since: Duration,
    /// The last error.
    pub error: String,
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

    /// The sum over these translations of the time from the first change that was received until it was served.
    #[must_use]
    pub fn delays(&self) -> Duration {
        Duration::from_micros(self.delays.load(Ordering::Relaxed))
    }

    /// A copy of the details.
    #[must_use]
    pub fn details(&self) -> Details {
        self.lock().clone()
    }

    pub(super) fn begin(&self, api_server: &str, controller: &str, identity: &str) {
        let mut details = self.lock();
        details.api_server = api_server.to_owned();
        details.controller = controller.to_owned();
        details.identity = identity.to_owned();
    }

    pub(super) fn set_synced(&self, now: Duration) {
        self.lock().synced_at.get_or_insert(now);
        self.is_synced.store(true, Ordering::Release);
    }

    pub(super) fn set_leads(&self, leads: bool, now: Duration) {
        if self.leads.swap(leads, Ordering::Relaxed) != leads {
            self.lock().leads_since = Some(now);
        }
    }

    /// Sets the holder of the Lease; `None`: it has none.
    pub(super) fn set_holder(&self, holder: Option<&str>) {
        self.lock().holder = holder.filter(|holder| !holder.is_empty()).map(str::to_owned);
    }

    /// Counts a translation of so many objects, which was served after `delay`.
    pub(super) fn count_translation(
        &self,
        objects: impl Iterator<Item = (&'static str, usize)>,
        delay: Duration,
        now: Duration,
    ) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.delays.fetch_add(micros, Ordering::Relaxed);
        self.translations.fetch_add(1, Ordering::Relaxed);
        let mut details = self.lock();
        details.translated_at = Some(now);
        details.objects = objects.collect();
    }

    pub(super) fn fail(&self, topic: String, error: String, now: Duration) {
        let mut details = self.lock();
        let since = details.failing.get(&topic).map_or(now, |failure| failure.since);
        details.failing.insert(topic, Failure { since, error });
    }

    pub(super) fn recover(&self, topic: &str) {
        self.lock().failing.remove(topic);
    }

    fn lock(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
