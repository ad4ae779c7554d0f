//! The task that sweeps a worker's pools: for expired connections, for requests that wait for one, and during a shutdown.

use std::rc::Rc;
use std::task::Poll;

use super::Worker;
use crate::limits;

impl Worker {
    /// Starts sweeping the pools, as long as they have connections.
    pub(crate) fn start_sweeping(self: &Rc<Self>) {
        if self.is_sweeping.replace(true) {
            return;
        }
        let worker = Rc::clone(self);
        let sweeper = async move {
            let mut calls = worker.gateway.0.connection_budget.idle_requests.count();
            worker.release_idle();
            loop {
                if worker.wait_for_sweep(calls).await {
                    // Read before the sweep: calls that arrive during the sweep start another one.
                    calls = worker.gateway.0.connection_budget.idle_requests.count();
                    worker.release_idle();
                } else if !worker.sweep_pools() {
                    return worker.is_sweeping.set(false);
                }
            }
        };
        if self.cx.spawn(sweeper).is_err() {
            self.is_sweeping.set(false);
        }
    }

    /// Waits until the pools must be swept. Returns whether a request waits for a connection; otherwise the interval has elapsed or a
    /// shutdown has started.
    async fn wait_for_sweep(&self, calls: u64) -> bool {
        let budget = &self.gateway.0.connection_budget;
        // In a shutdown the remaining connections have requests in flight, which are waited for.
        let is_draining = self.cx.is_draining();
        let span = if is_draining {
            limits::SWEEP_ENDING
        } else {
            limits::SWEEP
        };
        let mut draining = std::pin::pin!(self.cx.draining());
        let mut sleep = std::pin::pin!(self.cx.sleep(span));
        std::future::poll_fn(|context| {
            budget.idle_requests.register(self.cx.worker(), context.waker());
            let drain_started = !is_draining && draining.as_mut().poll(context).is_ready();
            if drain_started || sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            if budget.idle_requests.count() != calls {
                return Poll::Ready(true);
            }
            Poll::Pending
        })
        .await
    }

    /// Closes pooled connections in favor of requests that wait: at the limit of their upstream, or of the process.
    fn release_idle(&self) {
        let waiting = &self.gateway.0.connection_budget.wait_queue;
        let pools = self.pools.borrow();
        for pool in pools.iter().flatten() {
            while pool.upstream.wait_queue.has_uncalled_waiter() && pool.release_idle() {}
        }
        for pool in pools.iter().flatten() {
            while waiting.has_uncalled_waiter() && pool.release_idle() {}
        }
    }

    /// Closes expired connections. Returns whether any are left.
    fn sweep_pools(&self) -> bool {
        let mut is_any = false;
        for pool in self.pools.borrow().iter().flatten() {
            pool.sweep_idle();
            is_any |= pool.has_connections();
        }
        is_any
    }
}
