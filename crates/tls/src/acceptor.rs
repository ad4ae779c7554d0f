//! What listeners begin sessions from, replaced as a whole while they serve.
//!
//! Sessions keep what they were begun from. A worker's handle looks at a generation, which changes at a reload alone, and takes
//! the lock only then. A second number changes when a reload demands something else of clients: connections from before are judged
//! again when they are used next ([`Tls::judge`](crate::Tls::judge)).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_wire::tls::{
    Certificate, ClientCertificates, Clock, Facts, Finding, Server, ServerSettings, Tickets, Version,
};

use crate::counters::{All, Counters, Counts};
use crate::error::Refused;
use crate::layer::Tls;

/// Begins the sessions of accepted connections. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    generation: AtomicU64,
    /// The number of changes of [`Demands`].
    demands: AtomicU64,
    server: Mutex<Serving>,
    counters: All,
}

/// What sessions are begun from.
#[derive(Clone, Debug)]
struct Serving {
    server: Arc<Server>,
    demands: Demands,
    tickets: Tickets,
}

/// The demands of settings on clients. A connection that was admitted by equal demands needs no second check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Demands {
    certificates: ClientCertificates,
    minimum_version: Version,
    suites: Vec<String>,
}

impl Demands {
    fn of(settings: &ServerSettings) -> Demands {
        Demands {
            certificates: settings.client_certificates.clone(),
            minimum_version: settings.minimum_version,
            suites: settings.suites.clone(),
        }
    }
}

/// The demands that a connection was admitted by.
#[derive(Debug)]
pub(crate) struct Admission {
    acceptor: Arc<Shared>,
    demands: u64,
    is_admitted: bool,
}

/// A worker's share of an [`Acceptor`].
#[derive(Debug)]
pub struct AcceptHandle {
    shared: Arc<Shared>,
    generation: u64,
    demands: u64,
    server: Arc<Server>,
    counters: Arc<Counters>,
}

/// Settings that were built and checked for an [`Acceptor`], and that no session is begun from yet.
#[derive(Debug)]
pub struct Prepared {
    serving: Serving,
    now: Duration,
}

/// New keys of tickets.
fn tickets(clock: &Clock) -> Result<Tickets, Refused> {
    Tickets::new(clock).map_err(|error| {
        Refused(vec![Finding {
            severity: ringmain_wire::tls::Severity::Error,
            source: "tickets".to_owned(),
            text: error.to_string(),
        }])
    })
}

/// What changed at a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Certificates that are served now, and were not before.
    pub added: Vec<Certificate>,
    /// Certificates that are served no longer.
    pub removed: Vec<Certificate>,
    /// Certificates that are served as before.
    pub kept: usize,
    /// What is likely not meant.
    pub warnings: Vec<Finding>,
    now: u64,
}

impl Acceptor {
    /// Begins sessions from `settings`; `now` is wall time since 1970.
    ///
    /// # Errors
    /// [`Refused`] with all that is wrong. A certificate that has expired, or is not valid yet, is.
    pub fn new(settings: &ServerSettings, now: Duration) -> Result<Self, Refused> {
        let clock = Clock::new(now);
        let tickets = tickets(&clock)?;
        let server = settings.build(&tickets, &[]).map_err(Refused)?;
        let serving = Serving {
            server: Arc::new(server),
            demands: Demands::of(settings),
            tickets,
        };
        Ok(Self(Arc::new(Shared {
            clock,
            generation: AtomicU64::new(0),
            demands: AtomicU64::new(0),
            server: Mutex::new(serving),
            counters: All::default(),
        })))
    }

    /// A handle for one worker.
    #[must_use]
    pub fn handle(&self) -> AcceptHandle {
        let serving = self.0.server();
        AcceptHandle {
            generation: self.0.generation.load(Ordering::Relaxed),
            demands: self.0.demands.load(Ordering::Relaxed),
            server: Arc::clone(&serving.server),
            counters: self.0.counters.one_more(),
            shared: self.0.clone(),
        }
    }

    /// Begins new sessions from `settings`; those under way stay as they are, and their tickets stay good unless other certificates
    /// of clients are asked for now; then, or if versions or suites are no longer spoken, [`Tls::judge`] says which are still admitted.
    /// A certificate that has expired is taken only if it is served already: then it is a warning.
    ///
    /// # Errors
    /// [`Refused`]: everything stays as it was.
    pub fn reload(&self, settings: &ServerSettings, now: Duration) -> Result<Reload, Refused> {
        Ok(self.apply(self.prepare(settings, now)?))
    }

    /// Builds what [`Acceptor::apply`] serves, by the rules of [`Acceptor::reload`]. Nothing changes yet.
    ///
    /// # Errors
    /// [`Refused`] with all that is wrong.
    pub fn prepare(&self, settings: &ServerSettings, now: Duration) -> Result<Prepared, Refused> {
        self.0.clock.set(now);
        let before = self.0.server().clone();
        let served = before.server.certificates().iter();
        let served: Vec<[u8; 32]> = served.map(|one| one.fingerprint).collect();
        // A ticket resumes a session without a certificate being shown: those of sessions to which other clients were admitted are
        // not resumed.
        let tickets = match before.demands.certificates == settings.client_certificates {
            true => before.tickets,
            false => tickets(&self.0.clock)?,
        };
        let server = settings.build(&tickets, &served).map_err(Refused)?;
        Ok(Prepared {
            serving: Serving {
                server: Arc::new(server),
                demands: Demands::of(settings),
                tickets,
            },
            now,
        })
    }

    /// Begins new sessions from prepared settings; returns the difference to those before. Cannot fail.
    pub fn apply(&self, prepared: Prepared) -> Reload {
        let Prepared { serving, now } = prepared;
        let mut current = self.0.server();
        let reload = Reload::of(current.server.certificates(), &serving.server, now.as_secs());
        if current.demands != serving.demands {
            self.0.demands.fetch_add(1, Ordering::Release);
        }
        *current = serving;
        // Within the lock: who sees the number finds what it stands for.
        self.0.generation.fetch_add(1, Ordering::Relaxed);
        reload
    }

    /// The certificates that are served, the default one first.
    #[must_use]
    pub fn certificates(&self) -> Vec<Certificate> {
        self.0.server().server.certificates().to_vec()
    }

    /// What is likely not meant, in the settings that are used.
    #[must_use]
    pub fn warnings(&self) -> Vec<Finding> {
        self.0.server().server.warnings().to_vec()
    }

    /// Handshakes of all workers since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }
}

impl Shared {
    fn server(&self) -> MutexGuard<'_, Serving> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcceptHandle {
    /// Begins a session for a connection that was accepted; `now` is wall time since 1970.
    #[must_use]
    pub fn accept(&mut self, now: Duration) -> Tls {
        self.shared.clock.set(now);
        if self.generation != self.shared.generation.load(Ordering::Relaxed) {
            let serving = self.shared.server();
            self.generation = self.shared.generation.load(Ordering::Relaxed);
            self.demands = self.shared.demands.load(Ordering::Relaxed);
            self.server = Arc::clone(&serving.server);
        }
        let admission = Admission {
            acceptor: Arc::clone(&self.shared),
            demands: self.demands,
            is_admitted: true,
        };
        Tls::accepted(self.server.session(), &self.counters, admission)
    }
}

impl Admission {
    /// Returns the outcome by the acceptor's current demands. `None`: these have changed since the connection was judged.
    pub(crate) fn outcome(&self) -> Option<bool> {
        let is_current = self.acceptor.demands.load(Ordering::Acquire) == self.demands;
        is_current.then_some(self.is_admitted)
    }

    /// Judges a session by the acceptor's current demands.
    #[cold]
    pub(crate) fn judge(&mut self, facts: Option<&Facts>, now: Duration) -> bool {
        self.acceptor.clock.set(now);
        let server = {
            let serving = self.acceptor.server();
            self.demands = self.acceptor.demands.load(Ordering::Relaxed);
            Arc::clone(&serving.server)
        };
        self.is_admitted = facts.is_some_and(|facts| server.admits(facts));
        self.is_admitted
    }
}

impl Reload {
    fn of(before: &[Certificate], server: &Server, now: u64) -> Self {
        let now_served = server.certificates();
        let missing = |of: &[Certificate], from: &[Certificate]| -> Vec<Certificate> {
            let served = |one: &&Certificate| from.iter().any(|other| other.fingerprint == one.fingerprint);
            of.iter().filter(|one| !served(one)).cloned().collect()
        };
        let added = missing(now_served, before);
        Self {
            kept: now_served.len() - added.len(),
            added,
            removed: missing(before, now_served),
            warnings: server.warnings().to_vec(),
            now,
        }
    }
}

impl fmt::Display for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sign, certificates) in [("+", &self.added), ("-", &self.removed)] {
            for one in certificates {
                let names = one.names.join(", ");
                writeln!(
                    f,
                    "{sign} {names} ({}): {} days left",
                    one.source,
                    one.days_left(self.now)
                )?;
            }
        }
        write!(f, "{} as before", self.kept)?;
        for warning in &self.warnings {
            write!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}
