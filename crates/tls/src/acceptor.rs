//! Server-side TLS settings of listeners, which can be replaced while connections are served.
//!
//! An established session keeps the settings that it was created with. Each worker's handle compares a generation number, which changes
//! only at a reload, and takes the lock only if it has changed. A second number changes when a reload changes the requirements on clients:
//! connections accepted earlier are then checked again before their next request
//! ([`Tls::recheck_admission`](crate::Tls::recheck_admission)).
//!
//! Owns the active settings and the counters of handshakes. Must not know how sessions are encrypted or which protocol they carry.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_wire::tls::{
    Certificate, ClientCertificates, Clock, Facts, Finding, Server, ServerSettings, Tickets, Version,
};

use crate::counters::{Counters, HandshakeCounts, WorkerCounters};
use crate::error::ConfigError;
use crate::layer::Tls;

/// Creates the TLS sessions of accepted connections. Clones share the settings.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<AcceptorState>);

#[derive(Debug)]
struct AcceptorState {
    clock: Clock,
    generation: AtomicU64,
    /// Incremented each time [`ClientRequirements`] change.
    requirements: AtomicU64,
    server: Mutex<ServerState>,
    counters: WorkerCounters,
}

/// The active settings, from which sessions are created.
#[derive(Clone, Debug)]
struct ServerState {
    server: Arc<Server>,
    requirements: ClientRequirements,
    tickets: Tickets,
}

/// The requirements of the settings on clients. A connection that was admitted under equal requirements needs no second check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientRequirements {
    certificates: ClientCertificates,
    minimum_version: Version,
    suites: Vec<String>,
}

impl ClientRequirements {
    fn new(settings: &ServerSettings) -> ClientRequirements {
        ClientRequirements {
            certificates: settings.client_certificates.clone(),
            minimum_version: settings.minimum_version,
            suites: settings.suites.clone(),
        }
    }
}

/// The requirements under which a connection was admitted.
#[derive(Debug)]
pub(crate) struct Admission {
    acceptor: Arc<AcceptorState>,
    requirements: u64,
    is_admitted: bool,
}

/// A worker's handle of an [`Acceptor`].
#[derive(Debug)]
pub struct AcceptHandle {
    shared: Arc<AcceptorState>,
    generation: u64,
    requirements: u64,
    server: Arc<Server>,
    counters: Arc<Counters>,
}

/// Settings that were built and checked for an [`Acceptor`] but are not active yet.
#[derive(Debug)]
pub struct PreparedSettings {
    state: ServerState,
    now: Duration,
}

/// Returns new ticket keys.
fn new_tickets(clock: &Clock) -> Result<Tickets, ConfigError> {
    Tickets::new(clock).map_err(|error| {
        ConfigError(vec![Finding {
            severity: ringmain_wire::tls::Severity::Error,
            source: "tickets".to_owned(),
            text: error.to_string(),
        }])
    })
}

/// The differences between the settings before and after a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadSummary {
    /// Certificates that are served now but were not before.
    pub added: Vec<Certificate>,
    /// Certificates that are no longer served.
    pub removed: Vec<Certificate>,
    /// The number of certificates that are still served.
    pub unchanged: usize,
    /// Warnings about the new settings.
    pub warnings: Vec<Finding>,
    now: u64,
}

impl Acceptor {
    /// Creates an acceptor from `settings`; `now` is the time since the Unix epoch.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors and warnings. A certificate that has expired, or is not valid yet, is an error.
    pub fn new(settings: &ServerSettings, now: Duration) -> Result<Self, ConfigError> {
        let clock = Clock::new(now);
        let tickets = new_tickets(&clock)?;
        let server = settings.build(&tickets, &[]).map_err(ConfigError)?;
        let state = ServerState {
            server: Arc::new(server),
            requirements: ClientRequirements::new(settings),
            tickets,
        };
        Ok(Self(Arc::new(AcceptorState {
            clock,
            generation: AtomicU64::new(0),
            requirements: AtomicU64::new(0),
            server: Mutex::new(state),
            counters: WorkerCounters::default(),
        })))
    }

    /// Returns a handle for one worker.
    #[must_use]
    pub fn handle(&self) -> AcceptHandle {
        let state = self.0.server();
        AcceptHandle {
            generation: self.0.generation.load(Ordering::Relaxed),
            requirements: self.0.requirements.load(Ordering::Relaxed),
            server: Arc::clone(&state.server),
            counters: self.0.counters.register_worker(),
            shared: self.0.clone(),
        }
    }

    /// Replaces the settings for new sessions; `now` is the time since the Unix epoch.
    ///
    /// Established sessions and handshakes in progress are not affected. Their tickets remain valid unless the setting of client
    /// certificates changes. If this setting, the minimum version or the cipher suites change, [`Tls::recheck_admission`] reports which of
    /// the open connections are still admitted. An expired certificate is accepted, with a warning, only if it is already served.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors and warnings; the previous settings remain active.
    pub fn reload(&self, settings: &ServerSettings, now: Duration) -> Result<ReloadSummary, ConfigError> {
        Ok(self.apply(self.prepare(settings, now)?))
    }

    /// Builds and checks settings for [`Acceptor::apply`] by the rules of [`Acceptor::reload`], without activating them.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors and warnings.
    pub fn prepare(&self, settings: &ServerSettings, now: Duration) -> Result<PreparedSettings, ConfigError> {
        self.0.clock.set(now);
        let before = self.0.server().clone();
        let served = before.server.certificates().iter();
        let served: Vec<[u8; 32]> = served.map(|certificate| certificate.fingerprint).collect();
        // A resumed session presents no certificate: if the setting of client certificates changes, earlier sessions must not be resumed.
        let tickets = if before.requirements.certificates == settings.client_certificates {
            before.tickets
        } else {
            new_tickets(&self.0.clock)?
        };
        let server = settings.build(&tickets, &served).map_err(ConfigError)?;
        Ok(PreparedSettings {
            state: ServerState {
                server: Arc::new(server),
                requirements: ClientRequirements::new(settings),
                tickets,
            },
            now,
        })
    }

    /// Activates prepared settings for new sessions and returns the differences. Cannot fail.
    pub fn apply(&self, prepared: PreparedSettings) -> ReloadSummary {
        let PreparedSettings { state, now } = prepared;
        let mut current = self.0.server();
        let reload = ReloadSummary::compare(current.server.certificates(), &state.server, now.as_secs());
        if current.requirements != state.requirements {
            self.0.requirements.fetch_add(1, Ordering::Release);
        }
        *current = state;
        // Incremented under the lock, so that a worker that sees the new generation also finds the new settings.
        self.0.generation.fetch_add(1, Ordering::Relaxed);
        reload
    }

    /// Returns the served certificates, the default one first.
    #[must_use]
    pub fn certificates(&self) -> Vec<Certificate> {
        self.0.server().server.certificates().to_vec()
    }

    /// Returns the warnings about the active settings.
    #[must_use]
    pub fn warnings(&self) -> Vec<Finding> {
        self.0.server().server.warnings().to_vec()
    }

    /// Returns the handshake counts since the start, summed over the workers.
    #[must_use]
    pub fn counts(&self) -> HandshakeCounts {
        self.0.counters.counts()
    }
}

impl AcceptorState {
    fn server(&self) -> MutexGuard<'_, ServerState> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcceptHandle {
    /// Creates a session for an accepted connection; `now` is the time since the Unix epoch.
    #[must_use]
    pub fn accept(&mut self, now: Duration) -> Tls {
        self.shared.clock.set(now);
        if self.generation != self.shared.generation.load(Ordering::Relaxed) {
            let state = self.shared.server();
            self.generation = self.shared.generation.load(Ordering::Relaxed);
            self.requirements = self.shared.requirements.load(Ordering::Relaxed);
            self.server = Arc::clone(&state.server);
        }
        let admission = Admission {
            acceptor: Arc::clone(&self.shared),
            requirements: self.requirements,
            is_admitted: true,
        };
        Tls::accepted(self.server.session(), &self.counters, admission)
    }
}

impl Admission {
    /// Returns the outcome of the last check, or `None` if the requirements have changed since.
    pub(crate) fn cached_outcome(&self) -> Option<bool> {
        let is_current = self.acceptor.requirements.load(Ordering::Acquire) == self.requirements;
        is_current.then_some(self.is_admitted)
    }

    /// Checks a session against the current requirements.
    #[cold]
    pub(crate) fn recheck_admission(&mut self, facts: Option<&Facts>, now: Duration) -> bool {
        self.acceptor.clock.set(now);
        let server = {
            let state = self.acceptor.server();
            self.requirements = self.acceptor.requirements.load(Ordering::Relaxed);
            Arc::clone(&state.server)
        };
        self.is_admitted = facts.is_some_and(|facts| server.admits(facts));
        self.is_admitted
    }
}

impl ReloadSummary {
    fn compare(before: &[Certificate], server: &Server, now: u64) -> Self {
        let now_served = server.certificates();
        let missing_from = |of: &[Certificate], from: &[Certificate]| -> Vec<Certificate> {
            let served = |certificate: &&Certificate| {
                from.iter()
                    .any(|other| other.fingerprint == certificate.fingerprint)
            };
            of.iter()
                .filter(|certificate| !served(certificate))
                .cloned()
                .collect()
        };
        let added = missing_from(now_served, before);
        Self {
            unchanged: now_served.len() - added.len(),
            added,
            removed: missing_from(before, now_served),
            warnings: server.warnings().to_vec(),
            now,
        }
    }
}

impl fmt::Display for ReloadSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sign, certificates) in [("+", &self.added), ("-", &self.removed)] {
            for certificate in certificates {
                let names = certificate.names.join(", ");
                writeln!(
                    f,
                    "{sign} {names} ({}): {} days left",
                    certificate.source,
                    certificate.days_left(self.now)
                )?;
            }
        }
        write!(f, "{} unchanged", self.unchanged)?;
        for warning in &self.warnings {
            write!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}
