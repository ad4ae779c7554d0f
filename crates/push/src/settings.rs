//! State shared by all workers of a process: the current options, the queues between workers, counters and the hand-over.
//!
//! ```text
//! Push::replace ─▶ options, generation + 1 ─▶ workers compare the generation at each command, and start with the first options
//! ```

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::cluster::queue::ClusterQueue;
use crate::hand_over::HandOver;
use crate::metrics::{Metrics, Report};
use crate::options::ValidOptions;
use crate::worker::mesh::SharedMesh;

/// See the module.
#[derive(Default)]
pub(crate) struct SharedSettings {
    pub(crate) mesh: SharedMesh,
    pub(crate) metrics: Metrics,
    pub(crate) hand_over: HandOver,
    /// The name of this node; unset without a cluster.
    pub(crate) name: OnceLock<Arc<str>>,
    /// The node has no clients.
    pub(crate) refuses_clients: AtomicBool,
    /// The worker that receives the next remainder of clients to move.
    pub(crate) next_move: AtomicUsize,
    /// The workers' requests for the other nodes; unset without a cluster.
    pub(crate) cluster: OnceLock<ClusterQueue>,
    /// Compared before `current` is locked.
    generation: AtomicU64,
    current: Mutex<CurrentOptions>,
    /// Prefixes of channels whose logs are not read yet, for workers that have not started.
    pub(crate) expected: Mutex<Vec<Arc<str>>>,
    /// The number of sources so far.
    pub(crate) sources: AtomicU32,
}

#[derive(Default)]
struct CurrentOptions {
    /// `None`: no options were set yet.
    options: Option<ValidOptions>,
    /// Workers that wait for the first options.
    waiting: Vec<Waker>,
}

impl SharedSettings {
    pub(crate) fn replace_options(&self, options: ValidOptions) {
        let mut current = self.current_options();
        current.options = Some(options);
        self.generation.fetch_add(1, Ordering::Release);
        let waiting = std::mem::take(&mut current.waiting);
        drop(current);
        waiting.iter().for_each(Waker::wake_by_ref);
    }

    /// Returns the name of this process for programs.
    pub(crate) fn node_name(&self) -> &str {
        self.name.get().map_or("ringmain", |name| name)
    }

    /// Returns the counters across all workers.
    pub(crate) fn report(&self) -> Report {
        Report {
            users: self.mesh.user_count(),
            ..self.metrics.report()
        }
    }

    /// Returns the current options with their generation, unless the generation is `last`. Before the first options it is 0.
    pub(crate) fn newer_than(&self, last: u64) -> Option<(u64, ValidOptions)> {
        if self.generation.load(Ordering::Acquire) == last {
            return None;
        }
        let current = self.current_options();
        // The generation changes only under the lock.
        let generation = self.generation.load(Ordering::Acquire);
        current.options.clone().map(|options| (generation, options))
    }

    /// Returns whether options were set.
    pub(crate) fn has_options(&self) -> bool {
        self.generation.load(Ordering::Acquire) > 0
    }

    /// Returns `Ready` once options were set.
    pub(crate) fn poll_options(&self, context: &Context<'_>) -> Poll<()> {
        let mut current = self.current_options();
        if current.options.is_some() {
            return Poll::Ready(());
        }
        current.waiting.push(context.waker().clone());
        Poll::Pending
    }

    fn current_options(&self) -> MutexGuard<'_, CurrentOptions> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SharedSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSettings")
    }
}
