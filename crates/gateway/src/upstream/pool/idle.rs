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
                .map(|endpoint| endpoint.sessions.idle_count())
                .sum(),
        }
    }

    /// Closes a pooled connection of any endpoint in favor of a new one.
    pub(super) fn close_idle(&self) -> Option<ConnectionPermit> {
        let snapshot = self.snapshot.borrow();
        let idle = snapshot
            .endpoints
            .iter()
            .find_map(|endpoint| endpoint.idle.borrow_mut().pop());
        let Some(idle) = idle else {
            return snapshot
                .endpoints
                .iter()
                .find_map(|endpoint| endpoint.sessions.close_idle());
        };
        self.idle_count.set(self.idle_count.get() - 1);
        Some(idle.permit)
    }

    /// Pools a connection for the next request, if it may be used again.
    pub(crate) fn release(&self, endpoint: &Rc<PoolEndpoint>, conn: PooledConnection) {
        let snapshot = self.refresh_snapshot();
        let pool = &snapshot.upstream.config.pool;
        let requests = conn.requests + 1;
        let is_exhausted = pool
            .requests_per_connection
            .is_some_and(|limit| requests >= limit);
        if is_exhausted
            || conn.has_client_preamble
            || pool.idle.is_zero()
            || endpoint.is_removed.get()
            || self.cx.is_draining()
            || !conn.stream.is_quiet()
        {
            return;
        }
        drop(snapshot);
        conn.stream.set_deadline(None);
        endpoint.idle.borrow_mut().push(IdleConnection {
            stream: conn.stream,
            permit: conn.permit,
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
            let closed = endpoint.idle.borrow_mut().pop();
            self.idle_count.set(self.idle_count.get() - 1);
            drop(closed);
        }
    }

    /// Closes pooled connections that the endpoint has closed or whose idle timeout has expired; every one during a shutdown.
    pub(crate) fn sweep_idle(&self) {
        let snapshot = self.refresh_snapshot();
        let now = self.cx.now();
        let limit = snapshot.upstream.config.pool.idle;
        let all = self.cx.is_draining();
        for endpoint in &snapshot.endpoints {
            let is_usable =
                |idle: &IdleConnection| !all && idle.stream.is_quiet() && now.since(idle.since) < limit;
            let mut idle = endpoint.idle.borrow_mut();
            let before = idle.len();
            idle.retain(is_usable);
            self.idle_count.set(self.idle_count.get() - (before - idle.len()));
            endpoint.sessions.sweep(now, limit, all);
        }
    }
}
