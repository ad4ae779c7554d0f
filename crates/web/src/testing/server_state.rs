//! Internal state of a server that no client sees, for tests of the server itself.

use std::rc::{Rc, Weak};

use crate::CompiledApp;
use crate::Server;
use crate::server::worker_context::WorkerContext;

/// Inspects one worker's server while it lives.
pub struct ServerInternals(Weak<WorkerContext>);

impl ServerInternals {
    /// Returns an inspector of `server`.
    #[must_use]
    pub fn new(server: &Server) -> ServerInternals {
        ServerInternals(Rc::downgrade(server.local()))
    }

    /// Returns the number of running requests of asynchronous handlers.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.upgrade().map_or(0, |worker| worker.tasks.running())
    }

    /// Returns the number of tasks that wait for a request.
    #[must_use]
    pub fn idle_tasks(&self) -> usize {
        self.0.upgrade().map_or(0, |worker| worker.tasks.idle_count())
    }

    /// Returns the bytes of collected bodies in the worker's budget.
    #[must_use]
    pub fn collected(&self) -> usize {
        self.0.upgrade().map_or(0, |worker| worker.bodies.used())
    }

    /// Returns true if the server and all its tasks are dropped.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl std::fmt::Debug for ServerInternals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} run, {} idle", self.running(), self.idle_tasks())
    }
}

/// Returns the number of addresses in the table of [`Limits::connections_per_address`](crate::Limits).
#[must_use]
pub fn counted_addresses(app: &CompiledApp) -> usize {
    app.connection_limit.addresses()
}
