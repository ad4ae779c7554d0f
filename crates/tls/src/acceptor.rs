//! What listeners begin sessions from, replaced as a whole while they serve.
//!
//! Sessions keep what they were begun from. A worker's handle looks at a generation, which changes at a reload alone, and takes
//! the lock only then.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_wire::tls::{Certificate, Clock, Finding, Server, ServerSettings, Tickets};

use crate::counters::{All, Counters, Counts};
use crate::layer::Tls;
use crate::refused::Refused;

/// Begins the sessions of accepted connections. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    tickets: Tickets,
    generation: AtomicU64,
    server: Mutex<Arc<Server>>,
    counters: All,
}

/// A worker's share of an [`Acceptor`].
#[derive(Debug)]
pub struct AcceptHandle {
    shared: Arc<Shared>,
    generation: u64,
    server: Arc<Server>,
    counters: Arc<Counters>,
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
        let tickets = Tickets::new(&clock).map_err(|error| {
            Refused(vec![Finding {
                severity: ringmain_wire::tls::Severity::Error,
                source: "tickets".to_owned(),
                text: error.to_string(),
            }])
        })?;
        let server = settings.build(&tickets, &[]).map_err(Refused)?;
        Ok(Self(Arc::new(Shared {
            clock,
            tickets,
            generation: AtomicU64::new(0),
            server: Mutex::new(Arc::new(server)),
            counters: All::default(),
        })))
    }

    /// A handle for one worker.
    #[must_use]
    pub fn handle(&self) -> AcceptHandle {
        let server = self.0.server();
        AcceptHandle {
            generation: self.0.generation.load(Ordering::Relaxed),
            server: server.clone(),
            counters: self.0.counters.one_more(),
            shared: self.0.clone(),
        }
    }

    /// Begins new sessions from `settings`; those under way go on as they are, and their tickets stay good. A certificate that
    /// has expired is taken only if it is served already: then it is a warning.
    ///
    /// # Errors
    /// [`Refused`]: everything stays as it was.
    pub fn reload(&self, settings: &ServerSettings, now: Duration) -> Result<Reload, Refused> {
        self.0.clock.set(now);
        let before = self.0.server().clone();
        let serving: Vec<[u8; 32]> = before.certificates().iter().map(|one| one.fingerprint).collect();
        let server = Arc::new(settings.build(&self.0.tickets, &serving).map_err(Refused)?);
        let reload = Reload::of(before.certificates(), &server, now.as_secs());
        let mut current = self.0.server();
        *current = server;
        // Within the lock: who sees the number finds what it stands for.
        self.0.generation.fetch_add(1, Ordering::Relaxed);
        Ok(reload)
    }

    /// The certificates that are served, the default one first.
    #[must_use]
    pub fn certificates(&self) -> Vec<Certificate> {
        self.0.server().certificates().to_vec()
    }

    /// What is likely not meant, in the settings that are used.
    #[must_use]
    pub fn warnings(&self) -> Vec<Finding> {
        self.0.server().warnings().to_vec()
    }

    /// Handshakes of all workers since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }
}

impl Shared {
    fn server(&self) -> MutexGuard<'_, Arc<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcceptHandle {
    /// Begins a session for a connection that was accepted; `now` is wall time since 1970.
    #[must_use]
    pub fn accept(&mut self, now: Duration) -> Tls {
        self.shared.clock.set(now);
        if self.generation != self.shared.generation.load(Ordering::Relaxed) {
            let server = self.shared.server();
            self.generation = self.shared.generation.load(Ordering::Relaxed);
            self.server = server.clone();
        }
        Tls::new(self.server.session(), &self.counters)
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
