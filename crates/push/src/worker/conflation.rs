//! One timer for two releases of conflated updates: of channels to workers, and of workers to their clients.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_engine::backend::Time;

use super::PushWorker;
use crate::limits;

/// The timer: the waker of its task, and the release for which it sleeps.
#[derive(Default)]
pub(super) struct ConflationTimer {
    waker: RefCell<Option<Waker>>,
    next: Cell<Option<Duration>>,
}

impl ConflationTimer {
    /// Returns whether a release is due before the one for which the task sleeps.
    fn is_sooner(&self, release: Option<Duration>) -> bool {
        release.is_some_and(|release| self.next.get().is_none_or(|next| release < next))
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl PushWorker {
    /// Queues the latest updates for clients whose tick is due, and wakes the timer if the next one is sooner. Returns whether more are
    /// due.
    pub(super) fn release_conflated(&self) -> bool {
        let now = self.0.cx.now().since(Time(0));
        self.0.subscribers.borrow_mut().release(now);
        if self.0.conflation.is_sooner(self.next_release()) {
            self.0.conflation.wake();
        }
        let next = self.0.subscribers.borrow().next_release();
        next.is_some_and(|next| next <= now)
    }

    /// Releases the held updates of channels when they are due, and wakes the worker for those of clients. These are released
    /// [elsewhere](PushWorker::release_conflated), some a turn: publications are received between them.
    pub(super) async fn run_conflation(&self) {
        let timer = &self.0.conflation;
        loop {
            let now = self.0.cx.now().since(Time(0));
            self.0.shard.borrow_mut().release(now);
            let next = self.next_release();
            timer.next.set(next);
            let wait = next.map_or(limits::IDLE_RELEASE, |next| next.saturating_sub(now));
            let mut sleep = pin!(self.0.cx.sleep(wait));
            poll_fn(|context| {
                *timer.waker.borrow_mut() = Some(context.waker().clone());
                if timer.is_sooner(self.next_release()) {
                    return Poll::Ready(());
                }
                sleep.as_mut().poll(context)
            })
            .await;
            self.wake();
        }
    }

    /// Returns the time of the next release; ticks of clients that have passed are being processed already.
    fn next_release(&self) -> Option<Duration> {
        let now = self.0.cx.now().since(Time(0));
        let (shard, subscribers) = (self.0.shard.borrow(), self.0.subscribers.borrow());
        let tick = subscribers.next_release().filter(|next| *next > now);
        [shard.next_release(), tick].into_iter().flatten().min()
    }
}
