//! How long a turn and its steps last: what was written leaves a turn that lasts, and a long step is not taken for a queue.
//!
//! A step is what one completion, one poll of a task or one letter leads to. The clock is the back-end's rough one.

use std::collections::VecDeque;
use std::time::Duration;

use super::core::Core;
use crate::backend::Time;
use crate::limits;

/// One worker's turn.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// When the present step began, at the earliest.
    step_at: Time,
    /// When what was written left last.
    flushed_at: Time,
    /// The last long steps: from, until.
    long: VecDeque<(Time, Time)>,
}

impl Core {
    /// A turn begins.
    pub(crate) fn begin_steps(&mut self) {
        let now = self.backend.now();
        self.steps.step_at = now;
        self.steps.flushed_at = now;
    }

    /// A step has ended: a turn that has lasted for [`limits::FLUSH_WITHIN`] lets go of what was written.
    pub(crate) fn end_step(&mut self) {
        let now = self.backend.rough_clock();
        let began = std::mem::replace(&mut self.steps.step_at, now);
        if now.since(began) >= limits::LONG_STEP {
            self.note_long_step(began, now);
        }
        self.flush_if_due(now);
    }

    /// The same in the middle of a step that writes to many connections.
    pub(crate) fn within_step(&mut self) {
        let now = self.backend.rough_clock();
        self.flush_if_due(now);
    }

    fn flush_if_due(&mut self, now: Time) {
        if now.since(self.steps.flushed_at) >= limits::FLUSH_WITHIN && !self.dirty.is_empty() {
            self.steps.flushed_at = now;
            self.flush_dirty();
            self.backend.submit();
        }
    }

    #[cold]
    fn note_long_step(&mut self, began: Time, ended: Time) {
        if self.steps.long.len() == limits::LONG_STEPS {
            self.steps.long.pop_front();
        }
        self.steps.long.push_back((began, ended));
    }

    /// Whether the present step has lasted for [`limits::FLUSH_WITHIN`].
    pub(crate) fn step_is_long(&self) -> bool {
        self.backend.rough_clock().since(self.steps.step_at) >= limits::FLUSH_WITHIN
    }

    /// How long the bytes at hand have waited, long steps left out.
    pub(crate) fn queued(&self) -> Duration {
        let now = self.backend.clock();
        let from = self.ready_at;
        let mut waited = now.since(from);
        for (began, ended) in self.steps.long.iter().rev() {
            if *ended <= from {
                break;
            }
            waited = waited.saturating_sub(ended.since((*began).max(from)));
        }
        let present = now.since(self.steps.step_at);
        if present >= limits::LONG_STEP {
            waited = waited.saturating_sub(now.since(self.steps.step_at.max(from)));
        }
        waited
    }
}
