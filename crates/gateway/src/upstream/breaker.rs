//! The caps of an upstream that refuse instead of having wait, and how often each of them did: process-wide.
//!
//! A breaker here is a cap: it trips when as many as may be are there, refuses at once, and recovers with the first that ends.
//! Nothing is guessed of when somebody may be well again; that is health's ([`crate::health`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Line, Shared, take};

/// What an upstream has as much of as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cap {
    /// Requests under way ([`Pool::requests`](crate::model::Pool::requests)).
    Requests,
    /// Requests that wait for a connection ([`Pool::pending`](crate::model::Pool::pending)).
    Pending,
    /// Connections, for as long as a request may wait for one ([`Pool::connections`](crate::model::Pool::connections)).
    Connections,
    /// Requests that are tried again ([`Pool::retries`](crate::model::Pool::retries)).
    Retries,
    /// Tries that were saved up ([`RetryBudget`](crate::model::RetryBudget)).
    Budget,
}

impl Cap {
    /// All of them.
    pub const ALL: [Cap; 5] = [
        Cap::Requests,
        Cap::Pending,
        Cap::Connections,
        Cap::Retries,
        Cap::Budget,
    ];

    /// As it stands in metrics.
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Requests that are tried again at this moment.
    retries: Line<AtomicU32>,
    /// In the order of [`Cap::ALL`]: written by refusals alone.
    refused: [AtomicU64; Cap::ALL.len()],
    hedged: AtomicU64,
}

/// A request that is tried again, counted until it is over.
#[derive(Debug)]
pub(crate) struct Retrying(Arc<Shared>);

impl Breaker {
    /// A cap has refused something.
    pub(crate) fn tripped(&self, cap: Cap) {
        self.refused[cap as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each cap has refused something, since the upstream is known.
    pub(crate) fn refused(&self) -> [(Cap, u64); Cap::ALL.len()] {
        Cap::ALL.map(|cap| (cap, self.refused[cap as usize].load(Ordering::Relaxed)))
    }

    /// A request is tried at two endpoints at once.
    pub(crate) fn hedged(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were.
    pub(crate) fn hedges(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// Requests that are tried again at this moment.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.0.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Counts a request that is tried again, unless there are as many as may be.
    pub(crate) fn begin_retry(self: &Arc<Self>, most: u32) -> Option<Retrying> {
        take(&self.breaker.retries.0, most).then(|| Retrying(Arc::clone(self)))
    }
}

impl Drop for Retrying {
    fn drop(&mut self) {
        self.0.breaker.retries.0.fetch_sub(1, Ordering::Relaxed);
    }
}
