//! What is counted of an upstream as long as its name is configured: tries and copies. Rare beside requests, so all workers
//! count in one place.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fault::Fault;

/// What became of a request's copy for another upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// All of it was handed to the upstream, whatever it answers.
    Sent,
    /// No connection, or it ended before all was sent, or the process ended.
    Failed,
    /// There were as many copies on the worker, tasks there, or requests at the upstream as may be.
    NoRoom,
    /// Its body is longer than the mirror's limit, or was not all there.
    TooLong,
    /// The upstream has nobody who could get it.
    NoEndpoint,
}

impl Copied {
    /// All of them.
    pub const ALL: [Copied; 5] = [
        Copied::Sent,
        Copied::Failed,
        Copied::NoRoom,
        Copied::TooLong,
        Copied::NoEndpoint,
    ];

    /// As it stands in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Copied::Sent => "sent",
            Copied::Failed => "failed",
            Copied::NoRoom => "no_room",
            Copied::TooLong => "too_long",
            Copied::NoEndpoint => "no_endpoint",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    retries: AtomicU64,
    refused: AtomicU64,
    /// In the order of [`Copied::ALL`].
    copies: [AtomicU64; Copied::ALL.len()],
    /// In the order of [`Fault::ALL`]; there once a fault has occurred.
    faults: OnceLock<Box<[AtomicU64]>>,
}

impl Counts {
    /// A request that could be tried again asked the budget.
    pub(crate) fn asked(&self, granted: bool) {
        let count = if granted { &self.retries } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy is over.
    pub(crate) fn copied(&self, copied: Copied) {
        self.copies[copied as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt at the upstream ended by a fault.
    pub(crate) fn fault(&self, fault: Fault) {
        let faults = self
            .faults
            .get_or_init(|| Fault::ALL.iter().map(|_| AtomicU64::new(0)).collect());
        faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often each fault has occurred, those that have.
    pub(crate) fn faults(&self) -> Vec<(Fault, u64)> {
        let counts = self.faults.get().into_iter().flatten();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Fault::ALL
            .iter()
            .copied()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Tries that the budget has granted.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Tries that the budget has refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Copies, in the order of [`Copied::ALL`].
    pub(crate) fn copies(&self) -> [u64; Copied::ALL.len()] {
        std::array::from_fn(|at| self.copies[at].load(Ordering::Relaxed))
    }
}
