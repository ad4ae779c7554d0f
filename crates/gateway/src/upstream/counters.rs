//! Counts of retries, mirrored requests and faults of an upstream while its name is configured. These are rare compared with requests,
//! so all workers share the counters.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fault::Fault;
use crate::model::Distance;

/// The result of a mirrored request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorOutcome {
    /// The request was sent in full, whatever the response.
    Sent,
    /// No connection, or the connection or the process ended before the request was sent in full.
    Failed,
    /// A limit was reached: of mirrored requests on the worker, of tasks there, or of requests at the upstream.
    Overloaded,
    /// The body exceeds the mirror's limit or was incomplete.
    BodyTooLarge,
    /// The upstream has no usable endpoint.
    NoEndpoint,
}

impl MirrorOutcome {
    /// Every value, in the order of counters.
    pub const ALL: [MirrorOutcome; 5] = [
        MirrorOutcome::Sent,
        MirrorOutcome::Failed,
        MirrorOutcome::Overloaded,
        MirrorOutcome::BodyTooLarge,
        MirrorOutcome::NoEndpoint,
    ];

    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            MirrorOutcome::Sent => "sent",
            MirrorOutcome::Failed => "failed",
            MirrorOutcome::Overloaded => "no_room",
            MirrorOutcome::BodyTooLarge => "too_long",
            MirrorOutcome::NoEndpoint => "no_endpoint",
        }
    }
}

/// The counters of an upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamCounters {
    granted_retries: AtomicU64,
    refused_retries: AtomicU64,
    /// Mirrored requests, in the order of [`MirrorOutcome::ALL`].
    mirrors: [AtomicU64; MirrorOutcome::ALL.len()],
    /// Attempts by distance, in the order of [`Distance::ALL`], while the upstream prefers near endpoints.
    distances: [AtomicU64; Distance::ALL.len()],
    /// Faults, in the order of [`Fault::ALL`]; allocated when the first occurs.
    faults: OnceLock<Box<[AtomicU64]>>,
}

impl UpstreamCounters {
    /// Counts a retry that the budget has granted or refused.
    pub(crate) fn count_retry(&self, granted: bool) {
        let count = if granted {
            &self.granted_retries
        } else {
            &self.refused_retries
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished mirrored request.
    pub(crate) fn count_mirror(&self, copied: MirrorOutcome) {
        self.mirrors[copied as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt at an endpoint.
    pub(crate) fn count_distance(&self, distance: Distance) {
        self.distances[distance as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of attempts, in the order of [`Distance::ALL`].
    pub(crate) fn distance_counts(&self) -> [u64; Distance::ALL.len()] {
        std::array::from_fn(|at| self.distances[at].load(Ordering::Relaxed))
    }

    /// Counts an attempt at the upstream that ended with a fault.
    pub(crate) fn count_fault(&self, fault: Fault) {
        let faults = self
            .faults
            .get_or_init(|| Fault::ALL.iter().map(|_| AtomicU64::new(0)).collect());
        faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count of each fault that has occurred.
    pub(crate) fn fault_counts(&self) -> Vec<(Fault, u64)> {
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
    pub(crate) fn granted_retries(&self) -> u64 {
        self.granted_retries.load(Ordering::Relaxed)
    }

    /// Returns the number of retries that the budget has refused.
    pub(crate) fn refused_retries(&self) -> u64 {
        self.refused_retries.load(Ordering::Relaxed)
    }

    /// Returns the numbers of mirrored requests, in the order of [`MirrorOutcome::ALL`].
    pub(crate) fn mirror_counts(&self) -> [u64; MirrorOutcome::ALL.len()] {
        std::array::from_fn(|at| self.mirrors[at].load(Ordering::Relaxed))
    }
}
