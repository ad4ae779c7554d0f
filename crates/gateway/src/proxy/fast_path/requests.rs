//! A worker's requests that started without a task: those pooled for reuse, those that tasks continue, and those whose time is checked
//! here.
//!
//! A whole connection has a deadline that the engine enforces. A stream of a shared one has none: a request that waits for it is checked
//! every [`EARLY_TICK`](limits::EARLY_TICK), and continues in a task, which enforces its timeouts, once it has waited that long.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringmain_engine::backend::Time;
use ringmain_web::ResponderId;

use super::{FastPathRequest, FastPathState, StartedAttempt};
use crate::gateway::Worker;
use crate::limits;
use crate::proxy::forward::StartedConn;
use crate::upstream::RequestPermit;

/// The requests of one worker that started without a task.
#[derive(Default)]
pub(crate) struct FastPathRequests {
    /// Handed over to tasks that have not started.
    handed_over: RefCell<Vec<(ResponderId, Rc<FastPathRequest>)>>,
    /// Pooled for reuse.
    idle: RefCell<Vec<Rc<FastPathRequest>>>,
    /// Waiting for a stream, each with the start of its wait.
    waiting: RefCell<Vec<(Time, Rc<FastPathRequest>)>>,
    /// Set while a task checks them.
    is_ticking: Cell<bool>,
}

impl std::fmt::Debug for FastPathRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FastPathRequests")
    }
}

impl FastPathRequests {
    /// Returns the state from which a task continues. `None`: its request did not start without a task.
    pub(in crate::proxy) fn take_state(&self, id: Option<ResponderId>) -> Option<FastPathState> {
        let request = self.take_handed_over(id?)?;
        let state = request.take_state();
        self.recycle(request);
        state
    }

    /// Hands a request over to a task.
    pub(super) fn add_handed_over(&self, id: ResponderId, request: Rc<FastPathRequest>) {
        self.handed_over.borrow_mut().push((id, request));
    }

    /// Removes a request from those handed over.
    pub(super) fn take_handed_over(&self, id: ResponderId) -> Option<Rc<FastPathRequest>> {
        let mut handed = self.handed_over.borrow_mut();
        let index = handed.iter().position(|(owner, _)| *owner == id)?;
        Some(handed.swap_remove(index).1)
    }

    /// Returns a pooled request, if there is one.
    pub(super) fn take_idle(&self) -> Option<Rc<FastPathRequest>> {
        self.idle.borrow_mut().pop()
    }

    pub(super) fn recycle(&self, request: Rc<FastPathRequest>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < limits::IDLE_BEGINNINGS {
            idle.push(request);
        }
    }

    /// Adds a request that waits for a stream.
    pub(super) fn add_waiting(&self, now: Time, request: &Rc<FastPathRequest>) {
        let mut waiting = self.waiting.borrow_mut();
        request.waiting_index.set(Some(waiting.len()));
        waiting.push((now, Rc::clone(request)));
    }

    /// Removes a request that waited for a stream.
    pub(super) fn remove_waiting(&self, request: &FastPathRequest) {
        let Some(index) = request.waiting_index.take() else {
            return;
        };
        let mut waiting = self.waiting.borrow_mut();
        waiting.swap_remove(index);
        if let Some((_, moved)) = waiting.get(index) {
            moved.waiting_index.set(Some(index));
        }
    }

    /// Returns the requests that have waited for a tick or longer.
    fn overdue(&self, now: Time) -> Vec<Rc<FastPathRequest>> {
        let waiting = self.waiting.borrow();
        let overdue = waiting
            .iter()
            .filter(|(since, _)| now.since(*since) >= limits::EARLY_TICK);
        overdue.map(|(_, request)| Rc::clone(request)).collect()
    }
}

impl Worker {
    /// Starts checking the requests that wait for streams, as long as there are any. Returns `false` if the worker is at its limit of
    /// tasks.
    pub(super) fn start_timeout_checks(self: &Rc<Self>) -> bool {
        if self.fast_path.is_ticking.replace(true) {
            return true;
        }
        let worker = Rc::clone(self);
        let check_timeouts = async move {
            let requests = &worker.fast_path;
            while !requests.waiting.borrow().is_empty() {
                worker.cx.sleep(limits::EARLY_TICK).await;
                for request in requests.overdue(worker.cx.now()) {
                    request.hand_over_to_task();
                }
            }
            requests.is_ticking.set(false);
        };
        let is_spawned = self.cx.spawn(check_timeouts).is_ok();
        self.fast_path.is_ticking.set(is_spawned);
        is_spawned
    }
}

impl std::fmt::Debug for FastPathRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FastPathRequest")
    }
}

impl StartedAttempt {
    /// Returns the parts that a task needs.
    pub(in crate::proxy) fn into_parts(self) -> (RequestPermit, StartedConn) {
        (self.permit, (self.endpoint, self.conn, self.sent))
    }
}
