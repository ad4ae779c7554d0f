//! When a worker looks through the connections that it keeps: for their age, for those who wait for one, and at its end.

use std::rc::Rc;
use std::task::Poll;

use super::Worker;
use crate::limits;

impl Worker {
    /// Has kept connections looked through, as long as there are any.
    pub(crate) fn sweep_later(self: &Rc<Self>) {
        if self.sweeping.replace(true) {
            return;
        }
        let worker = Rc::clone(self);
        let sweeper = async move {
            let mut calls = worker.gateway.0.room.calls.count();
            worker.give_room();
            loop {
                if worker.next_sweep(calls).await {
                    // Before the look: what is called for during it is looked at again.
                    calls = worker.gateway.0.room.calls.count();
                    worker.give_room();
                } else if !worker.sweep() {
                    return worker.sweeping.set(false);
                }
            }
        };
        if self.cx.spawn(sweeper).is_err() {
            self.sweeping.set(false);
        }
    }

    /// Waits until kept connections are to be looked at again. Whether that is because somebody waits for one, and not for
    /// their age or a shutdown.
    async fn next_sweep(&self, calls: u64) -> bool {
        let room = &self.gateway.0.room;
        // In a shutdown what is still kept has requests under way, which are waited for.
        let ends = self.cx.is_draining();
        let span = if ends { limits::SWEEP_ENDING } else { limits::SWEEP };
        let mut draining = std::pin::pin!(self.cx.draining());
        let mut sleep = std::pin::pin!(self.cx.sleep(span));
        std::future::poll_fn(|context| {
            room.calls.watch(self.cx.worker(), context.waker());
            let begins = !ends && draining.as_mut().poll(context).is_ready();
            if begins || sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            if room.calls.count() != calls {
                return Poll::Ready(true);
            }
            Poll::Pending
        })
        .await
    }

    /// Closes kept connections for those who wait and could not have one: at their upstream, or at all.
    fn give_room(&self) {
        let waiting = &self.gateway.0.room.waiting;
        let locals = self.locals.borrow();
        for local in locals.iter().flatten() {
            while local.shared.waiting.wants() && local.give_room() {}
        }
        for local in locals.iter().flatten() {
            while waiting.wants() && local.give_room() {}
        }
    }

    /// Whether any connection is still kept.
    fn sweep(&self) -> bool {
        let mut is_any = false;
        for local in self.locals.borrow().iter().flatten() {
            local.sweep();
            is_any |= local.holds_any();
        }
        is_any
    }
}
