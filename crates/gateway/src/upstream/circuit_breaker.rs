//! The caps of an upstream that refuse at once, with counts of their refusals: process-wide.
//!
//! A circuit breaker is a cap: it trips when the limit is reached, refuses at once, and recovers when the first request or connection
//! ends. It makes no guess about the recovery of endpoints; that belongs to health ([`crate::health`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{CacheLine, UpstreamState, increment_below};

/// A cap of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamLimit {
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

impl UpstreamLimit {
    /// Every value, in the order of counters.
    pub const ALL: [UpstreamLimit; 5] = [
        UpstreamLimit::Requests,
        UpstreamLimit::Pending,
        UpstreamLimit::Connections,
        UpstreamLimit::Retries,
        UpstreamLimit::Budget,
    ];

    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            UpstreamLimit::Requests => "requests",
            UpstreamLimit::Pending => "pending",
            UpstreamLimit::Connections => "connections",
            UpstreamLimit::Retries => "retries",
            UpstreamLimit::Budget => "retry_budget",
        }
    }
}

/// The caps of an upstream.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    /// Retries in flight.
    retries: CacheLine<AtomicU32>,
    /// Refusals, in the order of [`UpstreamLimit::ALL`].
    refusals: [AtomicU64; UpstreamLimit::ALL.len()],
    hedges: AtomicU64,
}

/// A retry, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct RetryPermit(Arc<UpstreamState>);

impl CircuitBreaker {
    /// Counts a refusal of a cap.
    pub(crate) fn count_refusal(&self, cap: UpstreamLimit) {
        self.refusals[cap as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refusals of each cap, since the upstream is configured.
    pub(crate) fn refusals(&self) -> [(UpstreamLimit, u64); UpstreamLimit::ALL.len()] {
        UpstreamLimit::ALL.map(|cap| (cap, self.refusals[cap as usize].load(Ordering::Relaxed)))
    }

    /// Counts a hedged request.
    pub(crate) fn count_hedge(&self) {
        self.hedges.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of hedged requests.
    pub(crate) fn hedge_count(&self) -> u64 {
        self.hedges.load(Ordering::Relaxed)
    }

    /// Returns the number of retries in flight.
    pub(crate) fn retries_in_flight(&self) -> u32 {
        self.retries.0.load(Ordering::Relaxed)
    }
}

impl UpstreamState {
    /// Counts a retry, unless the limit is reached.
    pub(crate) fn acquire_retry(self: &Arc<Self>, max: u32) -> Option<RetryPermit> {
        increment_below(&self.circuit_breaker.retries.0, max).then(|| RetryPermit(Arc::clone(self)))
    }
}

impl Drop for RetryPermit {
    fn drop(&mut self) {
        self.0.circuit_breaker.retries.0.fetch_sub(1, Ordering::Relaxed);
    }
}
