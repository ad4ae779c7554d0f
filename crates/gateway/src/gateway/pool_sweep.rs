//! The task that sweeps a worker's pools: for expired connections, for requests that wait for one, and during a shutdown.

use std::rc::Rc;
use std::task::Poll;

use super::Worker;
use crate::limits;

impl Worker {
    /// Starts sweeping the pools, as long as they have connections.
    pub(crate) fn sweep_later(self: &Rc<Self>) {
        if self.sweeping.replace(true) {
            return;
        }
        let worker = Rc::clone(self);
        let sweeper = async move {
            let mut calls = worker.gateway.0.room.idle_requests.count();
            worker.give_room();
            loop {
                if worker.next_sweep(calls).await {
                    // Read before the sweep: calls that arrive during the sweep start another one.
                    calls = worker.gateway.0.room.idle_requests.count();
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

    /// Waits until the pools must be swept. Returns whether a request waits for a connection; otherwise the interval has elapsed or a
    /// shutdown has started.
    async fn next_sweep(&self, calls: u64) -> bool {
        let room = &self.gateway.0.room;
        // In a shutdown the remaining connections have requests in flight, which are waited for.
        let ends = self.cx.is_draining();
        let span = if ends { limits::SWEEP_ENDING } else { limits::SWEEP };
        let mut draining = std::pin::pin!(self.cx.draining());
        let mut sleep = std::pin::pin!(self.cx.sleep(span));
        std::future::poll_fn(|context| {
            room.idle_requests.watch(self.cx.worker(), context.waker());
            let begins = !ends && draining.as_mut().poll(context).is_ready();
            if begins || sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            if room.idle_requests.count() != calls {
                return Poll::Ready(true);
            }
            Poll::Pending
        })
        .await
    }

    /// Closes pooled connections in favor of requests that wait: at the limit of their upstream, or of the process.
    fn give_room(&self) {
        let waiting = &self.gateway.0.room.wait_queue;
        let locals = self.locals.borrow();
        for local in locals.iter().flatten() {
            while local.upstream.wait_queue.has_uncalled_waiter() && local.release_idle() {}
        }
        for local in locals.iter().flatten() {
            while waiting.has_uncalled_waiter() && local.release_idle() {}
        }
    }

    /// Closes expired connections. Returns whether any are left.
    fn sweep(&self) -> bool {
        let mut is_any = false;
        for local in self.locals.borrow().iter().flatten() {
            local.sweep_idle();
            is_any |= local.has_connections();
        }
        is_any
    }
}
