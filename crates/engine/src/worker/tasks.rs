//! The worker's tasks: `!Send` futures that run only while they have something to do.
//!
//! Knows nothing of sockets. A waker of a former life of a slot wakes its present one for nothing,
//! which is harmless.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::backend::Slot;
use crate::limits;
use crate::slab::Slab;
use crate::wake::{Doorbell, WakeSet};

type Future1 = Pin<Box<dyn Future<Output = ()>>>;

/// The worker runs [`limits::TASKS_PER_WORKER`] tasks already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker runs {} tasks already", limits::TASKS_PER_WORKER)]
pub struct TooManyTasks;

/// Names a spawned task, for [`crate::Cx::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(Slot);

struct Task {
    /// `None` while it is being polled.
    future: Option<Future1>,
    cancelled: bool,
}

pub(crate) struct Tasks {
    slots: RefCell<Slab<Task>>,
    /// One waker a slot, made once.
    wakers: RefCell<Vec<Waker>>,
    ready: RefCell<VecDeque<u32>>,
    wake_set: Arc<WakeSet>,
    panics: Cell<u64>,
}

impl Tasks {
    pub(crate) fn new(doorbell: Arc<Doorbell>) -> Tasks {
        Tasks {
            slots: RefCell::new(Slab::new(limits::TASKS_PER_WORKER)),
            wakers: RefCell::new(Vec::new()),
            ready: RefCell::new(VecDeque::new()),
            wake_set: Arc::new(WakeSet::new(limits::TASKS_PER_WORKER, doorbell)),
            panics: Cell::new(0),
        }
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) -> Result<TaskId, TooManyTasks> {
        let task = Task {
            future: Some(Box::pin(future)),
            cancelled: false,
        };
        // A refused future is dropped only after the borrow: its destructor may come back here.
        let outcome = self.slots.borrow_mut().insert(task);
        let slot = outcome.map_err(|_refused| TooManyTasks)?;
        let mut wakers = self.wakers.borrow_mut();
        while wakers.len() <= slot.index as usize {
            let next = wakers.len() as u32;
            wakers.push(self.wake_set.waker(next));
        }
        self.ready.borrow_mut().push_back(slot.index);
        Ok(TaskId(slot))
    }

    /// Drops the task's future, at once or, if it is running, when it returns.
    pub(crate) fn cancel(&self, id: TaskId) {
        let mut slots = self.slots.borrow_mut();
        let Some(task) = slots.get_mut(id.0) else { return };
        task.cancelled = true;
        if task.future.is_some() {
            let dropped = slots.remove(id.0);
            drop(slots);
            drop(dropped);
        }
    }

    /// Drops all futures.
    pub(crate) fn clear(&self) {
        let all: Vec<Slot> = self.slots.borrow().slots().collect();
        for slot in all {
            self.cancel(TaskId(slot));
        }
    }

    /// Panics since the last call.
    pub(crate) fn take_panics(&self) -> u64 {
        self.panics.take()
    }

    pub(crate) fn count(&self) -> u32 {
        self.slots.borrow().len()
    }

    /// Whether a task is ready to run.
    pub(crate) fn pending(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.wake_set.is_empty()
    }

    /// Polls the tasks that were woken, at most [`limits::TASKS_PER_TURN`], and calls `polled` after each.
    pub(crate) fn run(&self, polled: impl Fn()) {
        if !self.wake_set.is_empty() {
            let mut ready = self.ready.borrow_mut();
            self.wake_set.drain(|index| ready.push_back(index));
        }
        for _ in 0..limits::TASKS_PER_TURN {
            let next = self.ready.borrow_mut().pop_front();
            let Some(index) = next else { return };
            self.poll(index);
            polled();
        }
    }

    fn poll(&self, index: u32) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.living(index) else { return };
        let Some(mut future) = slots.get_mut(slot).and_then(|task| task.future.take()) else {
            return;
        };
        drop(slots);
        let waker = self.wakers.borrow()[index as usize].clone();
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context).is_ready()));
        let over = polled.unwrap_or_else(|_| {
            self.panics.set(self.panics.get() + 1);
            log::error!("a task panicked and was ended; the worker goes on");
            true
        });
        let mut slots = self.slots.borrow_mut();
        match slots.get_mut(slot) {
            Some(task) if !over && !task.cancelled => task.future = Some(future),
            _ => {
                slots.remove(slot);
                // The destructor may come back here.
                drop(slots);
                drop(future);
            }
        }
    }
}
