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
use crate::options::Checked;
use crate::worker::mesh::Mesh;

/// See the module.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) mesh: Mesh,
    pub(crate) metrics: Metrics,
    pub(crate) hand_over: HandOver,
    /// Of `held`, which it is looked at before.
    generation: AtomicU64,
    held: Mutex<Held>,
    /// Prefixes of channels whose logs are not read yet, for workers that have not begun.
    pub(crate) expected: Mutex<Vec<Arc<str>>>,
    /// Sources so far: their numbers.
    pub(crate) sources: AtomicU32,
}

#[derive(Default)]
struct Held {
    /// `None`: nothing is pushed yet.
    options: Option<Checked>,
    /// Of workers that wait for the first.
    waiting: Vec<Waker>,
}

impl Settings {
    pub(crate) fn replace(&self, options: Checked) {
        let mut held = self.held();
        held.options = Some(options);
        self.generation.fetch_add(1, Ordering::Release);
        let waiting = std::mem::take(&mut held.waiting);
        drop(held);
        waiting.iter().for_each(Waker::wake_by_ref);
    }

    /// What has been counted so far, of all workers.
    pub(crate) fn report(&self) -> Report {
        Report {
            users: self.mesh.users(),
            ..self.metrics.report()
        }
    }

    /// What holds, with its number, unless it is what was `seen`; 0: nothing yet.
    pub(crate) fn newer(&self, seen: u64) -> Option<(u64, Checked)> {
        if self.generation.load(Ordering::Acquire) == seen {
            return None;
        }
        let held = self.held();
        // It is only changed under the lock.
        let generation = self.generation.load(Ordering::Acquire);
        held.options.clone().map(|options| (generation, options))
    }

    /// Whether there is something to push.
    pub(crate) fn is_there(&self) -> bool {
        self.generation.load(Ordering::Acquire) > 0
    }

    /// Ready once there is something to push.
    pub(crate) fn poll_first(&self, context: &Context<'_>) -> Poll<()> {
        let mut held = self.held();
        if held.options.is_some() {
            return Poll::Ready(());
        }
        held.waiting.push(context.waker().clone());
        Poll::Pending
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
