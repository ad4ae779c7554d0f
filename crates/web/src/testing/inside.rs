//! What a server holds that no client sees, for tests of the server itself.

use std::rc::{Rc, Weak};

use crate::local::Local;
use crate::{Server, Site};

/// Looks into one worker's server, as long as it lives.
pub struct Inside(Weak<Local>);

impl Inside {
    /// Looks into `server`.
    #[must_use]
    pub fn of(server: &Server) -> Inside {
        Inside(Rc::downgrade(server.local()))
    }

    /// Requests of asynchronous handlers that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.upgrade().map_or(0, |local| local.runners.running())
    }

    /// Tasks that wait for a request.
    #[must_use]
    pub fn idle_runners(&self) -> usize {
        self.0.upgrade().map_or(0, |local| local.runners.idle_count())
    }

    /// Bytes of bodies that are collected, as the worker's budget counts them.
    #[must_use]
    pub fn collected(&self) -> usize {
        self.0.upgrade().map_or(0, |local| local.bodies.used())
    }

    /// Whether the server and all that it has spawned are gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} run, {} idle", self.running(), self.idle_runners())
    }
}

/// Addresses in the table of [`Limits::connections_per_address`](crate::Limits).
#[must_use]
pub fn counted_addresses(site: &Site) -> usize {
    site.admission.addresses()
}
