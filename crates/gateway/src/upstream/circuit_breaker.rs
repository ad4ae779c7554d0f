//! The caps of an upstream that refuse at once, with counts of their refusals: process-wide.
//!
//! A circuit breaker is a cap: it trips when the limit is reached, refuses at once, and recovers when the first request or connection
//! ends. It makes no guess about the recovery of endpoints; that belongs to health ([`crate::health`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Line, Shared, take};

/// A cap of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cap {
    /// Requests in flight ([`Pool::requests`](crate::model::Pool::requests)).
    Requests,
    /// Requests that wait for a connection ([`Pool::pending`](crate::model::Pool::pending)).
    Pending,
    /// Connections, for as long as a request may wait for one ([`Pool::connections`](crate::model::Pool::connections)).
    Connections,
    /// Retries in flight ([`Pool::retries`](crate::model::Pool::retries)).
    Retries,
    /// Saved retries ([`RetryBudget`](crate::model::RetryBudget)).
    Budget,
}

impl Cap {
    /// Every value, in the order of counters.
    pub const ALL: [Cap; 5] = [
        Cap::Requests,
        Cap::Pending,
        Cap::Connections,
        Cap::Retries,
        Cap::Budget,
    ];

    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Cap::Requests => "requests",
            Cap::Pending => "pending",
            Cap::Connections => "connections",
            Cap::Retries => "retries",
            Cap::Budget => "retry_budget",
        }
    }
}

/// The caps of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Retries in flight.
    retries: Line<AtomicU32>,
    /// Refusals, in the order of [`Cap::ALL`].
    refused: [AtomicU64; Cap::ALL.len()],
    hedged: AtomicU64,
}

/// A retry, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Retrying(Arc<Shared>);

impl Breaker {
    /// Counts a refusal of a cap.
    pub(crate) fn tripped(&self, cap: Cap) {
        self.refused[cap as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refusals of each cap, since the upstream is configured.
    pub(crate) fn refused(&self) -> [(Cap, u64); Cap::ALL.len()] {
        Cap::ALL.map(|cap| (cap, self.refused[cap as usize].load(Ordering::Relaxed)))
    }

    /// Counts a hedged request.
    pub(crate) fn hedged(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of hedged requests.
    pub(crate) fn hedges(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// Returns the number of retries in flight.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.0.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Counts a retry, unless the limit is reached.
    pub(crate) fn begin_retry(self: &Arc<Self>, most: u32) -> Option<Retrying> {
        take(&self.breaker.retries.0, most).then(|| Retrying(Arc::clone(self)))
    }
}

impl Drop for Retrying {
    fn drop(&mut self) {
        self.0.breaker.retries.0.fetch_sub(1, Ordering::Relaxed);
    }
}
