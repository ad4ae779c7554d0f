//! Client-side TLS settings. A session can be resumed on any worker.
//!
//! Owns the settings and the counters of handshakes. Must not know which protocol a connection carries.

use std::sync::Arc;
use std::time::Duration;

use ringmain_wire::tls::{Client, ClientSettings, Clock, Finding, PeerName};

use crate::counters::{Counters, HandshakeCounts, WorkerCounters};
use crate::error::ConfigError;
use crate::layer::Tls;

/// Creates the TLS sessions of connections to servers. Clones share the settings.
#[derive(Clone, Debug)]
pub struct Connector(Arc<ConnectorState>);

#[derive(Debug)]
struct ConnectorState {
    clock: Clock,
    client: Client,
    counters: WorkerCounters,
}

/// A worker's handle of a [`Connector`].
#[derive(Debug)]
pub struct ConnectHandle {
    shared: Arc<ConnectorState>,
    counters: Arc<Counters>,
}

impl Connector {
    /// Creates a connector from `settings`; `now` is the time since the Unix epoch.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors and warnings.
    pub fn new(settings: &ClientSettings, now: Duration) -> Result<Self, ConfigError> {
        let clock = Clock::new(now);
        let client = settings.build(&clock).map_err(ConfigError)?;
        Ok(Self(Arc::new(ConnectorState {
            clock,
            client,
            counters: WorkerCounters::default(),
        })))
    }

    /// Returns a handle for one worker.
    #[must_use]
    pub fn handle(&self) -> ConnectHandle {
        ConnectHandle {
            shared: self.0.clone(),
            counters: self.0.counters.register_worker(),
        }
    }

    /// Returns the warnings about the settings.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        self.0.client.warnings()
    }

    /// Returns the handshake counts since the start, summed over the workers.
    #[must_use]
    pub fn counts(&self) -> HandshakeCounts {
        self.0.counters.counts()
    }
}

impl ConnectHandle {
    /// Creates a session with `peer`, whose certificate must be valid for that name; `now` is the time since the Unix epoch.
    #[must_use]
    pub fn connect(&self, peer: &PeerName, now: Duration) -> Tls {
        self.shared.clock.set(now);
        Tls::new(self.shared.client.session(peer), &self.counters)
    }
}
