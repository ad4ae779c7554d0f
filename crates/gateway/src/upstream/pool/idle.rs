//! Pooled connections: retention for the next request, expiry, and release in favor of other waiters.

use std::rc::Rc;

use super::{End, Idle, Local, Sole};
use crate::upstream::Permit;
use crate::upstream::wait_queue::Handover;

impl Local {
    /// Closes a pooled connection in favor of a waiter elsewhere, if there is one that is not reserved for a called waiter.
    pub(crate) fn give_room(&self) -> bool {
        let idle = self.kept.get() + self.idle_sessions();
        idle > self.shared.waiting.called(self.cx.worker()) && self.close_one().is_some()
    }

    fn idle_sessions(&self) -> usize {
        match self.common.open() {
            0 => 0,
            _ => self
                .seen
                .borrow()
                .ends
                .iter()
                .map(|end| end.sessions.idle())
                .sum(),
        }
    }

    /// Closes a pooled connection of any endpoint in favor of a new one.
    pub(super) fn close_one(&self) -> Option<Permit> {
        let seen = self.seen.borrow();
        let idle = seen.ends.iter().find_map(|end| end.idle.borrow_mut().pop());
        let Some(idle) = idle else {
            return seen.ends.iter().find_map(|end| end.sessions.close_one());
        };
        self.kept.set(self.kept.get() - 1);
        Some(idle.permit)
    }

    /// Pools a connection for the next request, if it may be used again.
    pub(crate) fn keep(&self, end: &Rc<End>, link: Sole) {
        let seen = self.follow();
        let pool = &seen.current.config.pool;
        let requests = link.requests + 1;
        let worn = pool.requests_per_connection.is_some_and(|most| requests >= most);
        if worn
            || link.is_greeted
            || pool.idle.is_zero()
            || end.gone.get()
            || self.cx.is_draining()
            || !link.stream.is_quiet()
        {
            return;
        }
        drop(seen);
        link.stream.set_deadline(None);
        end.idle.borrow_mut().push(Idle {
            stream: link.stream,
            permit: link.permit,
            requests,
            since: self.cx.now(),
        });
        self.kept.set(self.kept.get() + 1);
        let close = match self.shared.waiting.hand_over(self.cx.worker()) {
            Handover::Close => true,
            Handover::Handed => self.shared.room.wants_handed(),
            Handover::Keep => self.shared.room.wants_idle(),
        };
        if close {
            let closed = end.idle.borrow_mut().pop();
            self.kept.set(self.kept.get() - 1);
            drop(closed);
        }
    }

    /// Closes pooled connections that the endpoint has closed or whose idle timeout has expired; every one during a shutdown.
    pub(crate) fn sweep(&self) {
        let seen = self.follow();
        let now = self.cx.now();
        let most = seen.current.config.pool.idle;
        let all = self.cx.is_draining();
        for end in &seen.ends {
            let good = |idle: &Idle| !all && idle.stream.is_quiet() && now.since(idle.since) < most;
            let mut idle = end.idle.borrow_mut();
            let before = idle.len();
            idle.retain(good);
            self.kept.set(self.kept.get() - (before - idle.len()));
            end.sessions.sweep(now, most, all);
        }
    }
}
