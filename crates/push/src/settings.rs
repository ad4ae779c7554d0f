//! What all workers of a process have in common: the settings that hold, and the queues between desks.
//!
//! ```text
//! Push::replace ─▶ options, generation + 1 ─▶ desks look at the number at each command, and begin where there was none
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::hand_over::HandOver;
use crate::metrics::{Metrics, Report};
use crate::options::ValidOptions;
use crate::worker::mesh::SharedMesh;

/// See the module.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) mesh: SharedMesh,
    pub(crate) metrics: Metrics,
    pub(crate) hand_over: HandOver,
    /// Of `current`, which it is looked at before.
    generation: AtomicU64,
    current: Mutex<CurrentOptions>,
    /// Prefixes of channels whose logs are not read yet, for workers that have not begun.
    pub(crate) expected: Mutex<Vec<Arc<str>>>,
    /// Sources so far: their numbers.
    pub(crate) sources: AtomicU32,
}

#[derive(Default)]
struct CurrentOptions {
    /// `None`: nothing is pushed yet.
    options: Option<ValidOptions>,
    /// Of workers that wait for the first.
    waiting: Vec<Waker>,
}

impl Settings {
    pub(crate) fn replace_options(&self, options: ValidOptions) {
        let mut current = self.current_options();
        current.options = Some(options);
        self.generation.fetch_add(1, Ordering::Release);
        let waiting = std::mem::take(&mut current.waiting);
        drop(current);
        waiting.iter().for_each(Waker::wake_by_ref);
    }

    /// What has been counted so far, of all workers.
    pub(crate) fn report(&self) -> Report {
        Report {
            users: self.mesh.user_count(),
            ..self.metrics.report()
        }
    }

    /// What holds, with its number, unless it is what was `seen`; 0: nothing yet.
    pub(crate) fn newer_than(&self, seen: u64) -> Option<(u64, ValidOptions)> {
        if self.generation.load(Ordering::Acquire) == seen {
            return None;
        }
        let current = self.current_options();
        // It is only changed under the lock.
        let generation = self.generation.load(Ordering::Acquire);
        current.options.clone().map(|options| (generation, options))
    }

    /// Whether there is something to push.
    pub(crate) fn has_options(&self) -> bool {
        self.generation.load(Ordering::Acquire) > 0
    }

    /// Ready once there is something to push.
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
