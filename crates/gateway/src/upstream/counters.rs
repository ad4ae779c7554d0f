//! Counts of retries, mirrored requests and faults of an upstream while its name is configured. These are rare compared with requests,
//! so all workers share the counters.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fault::Fault;

/// The result of a mirrored request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The request was sent in full, whatever the response.
    Sent,
    /// No connection, or the connection or the process ended before the request was sent in full.
    Failed,
    /// A limit was reached: of mirrored requests on the worker, of tasks there, or of requests at the upstream.
    NoRoom,
    /// The body exceeds the mirror's limit or was incomplete.
    TooLong,
    /// The upstream has no usable endpoint.
    NoEndpoint,
}

impl Copied {
    /// Every value, in the order of counters.
    pub const ALL: [Copied; 5] = [
        Copied::Sent,
        Copied::Failed,
        Copied::NoRoom,
        Copied::TooLong,
        Copied::NoEndpoint,
    ];

    /// Returns the name for metrics.
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

/// The counters of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    retries: AtomicU64,
    refused: AtomicU64,
    /// Mirrored requests, in the order of [`Copied::ALL`].
    copies: [AtomicU64; Copied::ALL.len()],
    /// Faults, in the order of [`Fault::ALL`]; allocated when the first occurs.
    faults: OnceLock<Box<[AtomicU64]>>,
}

impl Counts {
    /// Counts a retry that the budget has granted or refused.
    pub(crate) fn asked(&self, granted: bool) {
        let count = if granted { &self.retries } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished mirrored request.
    pub(crate) fn copied(&self, copied: Copied) {
        self.copies[copied as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt at the upstream that ended with a fault.
    pub(crate) fn fault(&self, fault: Fault) {
        let faults = self
            .faults
            .get_or_init(|| Fault::ALL.iter().map(|_| AtomicU64::new(0)).collect());
        faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count of each fault that has occurred.
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

    /// Returns the number of retries that the budget has granted.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Returns the number of retries that the budget has refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the numbers of mirrored requests, in the order of [`Copied::ALL`].
    pub(crate) fn copies(&self) -> [u64; Copied::ALL.len()] {
        std::array::from_fn(|at| self.copies[at].load(Ordering::Relaxed))
    }
}
