//! Pooled connections: retention for the next request, expiry, and release in favor of other waiters.

use std::rc::Rc;

use super::{IdleConnection, PoolEndpoint, PooledConnection, UpstreamPool};
use crate::upstream::ConnectionPermit;
use crate::upstream::wait_queue::Disposition;

impl UpstreamPool {
    /// Closes a pooled connection in favor of a waiter elsewhere, if there is one that is not reserved for a called waiter.
    pub(crate) fn release_idle(&self) -> bool {
        let idle = self.idle_count.get() + self.idle_sessions();
        idle > self.upstream.wait_queue.called_waiters(self.cx.worker()) && self.close_idle().is_some()
    }

    fn idle_sessions(&self) -> usize {
        match self.h2.open_sessions() {
            0 => 0,
            _ => self
                .snapshot
                .borrow()
                .endpoints
                .iter()
                .map(|end| end.sessions.idle_count())
                .sum(),
        }
    }

    /// Closes a pooled connection of any endpoint in favor of a new one.
    pub(super) fn close_idle(&self) -> Option<ConnectionPermit> {
        let seen = self.snapshot.borrow();
        let idle = seen.endpoints.iter().find_map(|end| end.idle.borrow_mut().pop());
        let Some(idle) = idle else {
            return seen.endpoints.iter().find_map(|end| end.sessions.close_idle());
        };
        self.idle_count.set(self.idle_count.get() - 1);
        Some(idle.permit)
    }

    /// Pools a connection for the next request, if it may be used again.
    pub(crate) fn release(&self, end: &Rc<PoolEndpoint>, link: PooledConnection) {
        let seen = self.refresh_snapshot();
        let pool = &seen.upstream.config.pool;
        let requests = link.requests + 1;
        let worn = pool.requests_per_connection.is_some_and(|most| requests >= most);
        if worn
            || link.has_client_preamble
            || pool.idle.is_zero()
            || end.is_removed.get()
            || self.cx.is_draining()
            || !link.stream.is_quiet()
        {
            return;
        }
        drop(seen);
        link.stream.set_deadline(None);
        end.idle.borrow_mut().push(IdleConnection {
            stream: link.stream,
            permit: link.permit,
            requests,
            since: self.cx.now(),
        });
        self.idle_count.set(self.idle_count.get() + 1);
        let close = match self.upstream.wait_queue.assign_connection(self.cx.worker()) {
            Disposition::Close => true,
            Disposition::Reserved => self.upstream.connection_budget.must_close_reserved(),
            Disposition::Pool => self.upstream.connection_budget.must_close_idle(),
        };
        if close {
            let closed = end.idle.borrow_mut().pop();
            self.idle_count.set(self.idle_count.get() - 1);
            drop(closed);
        }
    }

    /// Closes pooled connections that the endpoint has closed or whose idle timeout has expired; every one during a shutdown.
    pub(crate) fn sweep_idle(&self) {
        let seen = self.refresh_snapshot();
        let now = self.cx.now();
        let most = seen.upstream.config.pool.idle;
        let all = self.cx.is_draining();
        for end in &seen.endpoints {
            let good = |idle: &IdleConnection| !all && idle.stream.is_quiet() && now.since(idle.since) < most;
            let mut idle = end.idle.borrow_mut();
            let before = idle.len();
            idle.retain(good);
            self.idle_count.set(self.idle_count.get() - (before - idle.len()));
            end.sessions.sweep(now, most, all);
        }
    }
}
