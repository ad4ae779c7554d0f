//! The waker of a worker's task: one wake-up a turn, however many parts request it.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// See the module.
#[derive(Default)]
pub(super) struct Wakeup {
    waker: RefCell<Option<Waker>>,
    is_woken: Cell<bool>,
}

impl Wakeup {
    /// Stores the waker of the task. Returns whether it is the first one.
    pub(super) fn register(&self, waker: &Waker) -> bool {
        let mut stored = self.waker.borrow_mut();
        let is_first = stored.is_none();
        if is_first {
            *stored = Some(waker.clone());
        }
        is_first
    }

    /// Wakes the task unless it was woken since the last [`reset`](Wakeup::reset).
    pub(super) fn wake(&self) {
        if !self.is_woken.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Allows the next wake-up, at the start of a turn.
    pub(super) fn reset(&self) {
        self.is_woken.set(false);
    }
}
