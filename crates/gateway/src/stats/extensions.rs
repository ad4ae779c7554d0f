//! Counts of calls to external services that take part in requests, by extension and upstream: outcomes and durations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::series::Durations;
use super::{BUCKETS, BUCKETS_US, OTHERS_LABEL, add_relaxed, lock};
use crate::limits;
use crate::model::Name;

/// The kind of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionKind {
    /// External authorization over HTTP.
    AuthzHttp,
    /// External authorization over gRPC.
    AuthzGrpc,
    /// A rate limit service.
    RateLimit,
    /// An external processor: each message to it is a call.
    Processor,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionOutcome {
    /// The service has allowed the request.
    Allowed,
    /// The service has refused the request.
    Denied,
    /// There was no decision.
    Failed,
}

impl ExtensionKind {
    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            ExtensionKind::AuthzHttp => "authz_http",
            ExtensionKind::AuthzGrpc => "authz_grpc",
            ExtensionKind::RateLimit => "rate_limit",
            ExtensionKind::Processor => "ext_proc",
        }
    }
}

impl ExtensionOutcome {
    /// Every outcome.
    pub const ALL: [ExtensionOutcome; 3] = [
        ExtensionOutcome::Allowed,
        ExtensionOutcome::Denied,
        ExtensionOutcome::Failed,
    ];

    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            ExtensionOutcome::Allowed => "allowed",
            ExtensionOutcome::Denied => "denied",
            ExtensionOutcome::Failed => "failed",
        }
    }
}

/// One worker's counts of one extension. Only the worker writes them.
#[derive(Debug, Default)]
pub(super) struct ExtensionCounts {
    outcomes: [AtomicU64; ExtensionOutcome::ALL.len()],
    buckets: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

/// Counts of the calls of one extension to one upstream, summed over all workers, which continue meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionReport {
    /// The kind of the extension.
    pub kind: ExtensionKind,
    /// The name of the service's upstream, or [`OTHERS_LABEL`].
    pub upstream: Name,
    /// Calls, in the order of [`ExtensionOutcome::ALL`].
    pub outcomes: [u64; ExtensionOutcome::ALL.len()],
    /// The durations of calls.
    pub durations: Durations,
}

type ByExtension = BTreeMap<(ExtensionKind, Name), Arc<ExtensionCounts>>;

/// The counters of one worker.
#[derive(Debug, Default)]
pub(super) struct SharedExtensions(Mutex<ByExtension>);

/// The worker's own view of its counters, without the lock.
#[derive(Debug, Default)]
pub(super) struct OwnExtensions(RefCell<ByExtension>);

impl OwnExtensions {
    /// Counts a call.
    pub(super) fn count(
        &self,
        shared: &SharedExtensions,
        (kind, upstream): (ExtensionKind, &Name),
        outcome: ExtensionOutcome,
        span: Duration,
    ) {
        let mut own = self.0.borrow_mut();
        let is_new = !own.contains_key(&(kind, Arc::clone(upstream)));
        let upstream = if is_new && own.len() >= limits::COUNTED_EXTENSIONS {
            Name::from(OTHERS_LABEL)
        } else {
            Arc::clone(upstream)
        };
        let counts = own.entry((kind, Arc::clone(&upstream))).or_insert_with(|| {
            let counts = Arc::new(ExtensionCounts::default());
            lock(&shared.0).insert((kind, upstream), Arc::clone(&counts));
            counts
        });
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.partition_point(|end| *end < micros);
        add_relaxed(&counts.outcomes[outcome as usize], 1);
        add_relaxed(&counts.buckets[bucket], 1);
        add_relaxed(&counts.micros, micros);
    }
}

/// Sums the counters of workers.
pub(super) fn sum<'w>(workers: impl Iterator<Item = &'w SharedExtensions>) -> Vec<ExtensionReport> {
    let mut reports: BTreeMap<(ExtensionKind, Name), ExtensionReport> = BTreeMap::new();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    for worker in workers {
        for ((kind, upstream), counts) in lock(&worker.0).iter() {
            let key = (*kind, Arc::clone(upstream));
            let report = reports.entry(key).or_insert_with(|| ExtensionReport {
                kind: *kind,
                upstream: Arc::clone(upstream),
                outcomes: Default::default(),
                durations: Durations::default(),
            });
            for (sum, count) in report.outcomes.iter_mut().zip(&counts.outcomes) {
                *sum += load(count);
            }
            for (sum, count) in report.durations.buckets.iter_mut().zip(&counts.buckets) {
                *sum += load(count);
            }
            report.durations.micros += load(&counts.micros);
        }
    }
    reports.into_values().collect()
}
