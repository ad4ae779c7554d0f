//! What clients begin sessions from. Its sessions are resumed on any worker.

use std::sync::Arc;
use std::time::Duration;

use ringmain_wire::tls::{Client, ClientSettings, Clock, Finding, PeerName};

use crate::counters::{All, Counters, Counts};
use crate::error::Refused;
use crate::layer::Tls;

/// Begins the sessions of connections to servers. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Connector(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    client: Client,
    counters: All,
}

/// A worker's share of a [`Connector`].
#[derive(Debug)]
pub struct ConnectHandle {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
}

impl Connector {
    /// Begins sessions from `settings`; `now` is wall time since 1970.
    ///
    /// # Errors
    /// [`Refused`] with all that is wrong.
    pub fn new(settings: &ClientSettings, now: Duration) -> Result<Self, Refused> {
        let clock = Clock::new(now);
        let client = settings.build(&clock).map_err(Refused)?;
        Ok(Self(Arc::new(Shared {
            clock,
            client,
            counters: All::default(),
        })))
    }

    /// A handle for one worker.
    #[must_use]
    pub fn handle(&self) -> ConnectHandle {
        ConnectHandle {
            shared: self.0.clone(),
            counters: self.0.counters.one_more(),
        }
    }

    /// What is likely not meant, in the settings.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        self.0.client.warnings()
    }

    /// Handshakes of all workers since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }
}

impl ConnectHandle {
    /// Begins a session with `peer`, whose certificate has to be for that name; `now` is wall time since 1970.
    #[must_use]
    pub fn connect(&self, peer: &PeerName, now: Duration) -> Tls {
        self.shared.clock.set(now);
        Tls::new(self.shared.client.session(peer), &self.counters)
    }
}
