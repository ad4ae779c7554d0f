//! A whole gateway from a configuration file: what `main` does when a program embeds one, and what `ringmain run FILE` does.
//!
//! ```no_run
//! use ringmain_control::Exit;
//! use ringmain_control::edge::Edge;
//!
//! fn main() -> Exit {
//!     Edge::of("edge.yaml").run()
//! }
//! ```
//!
//! Owns the order of setting up: file, engine, listeners, application, control thread, administration. Knows no command line.

mod listeners;
mod admin_server;
pub mod access_log;
mod push_state;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{
    Addr, Config, Cx, Engine, ListenOptions, Listeners, Report, Running, block_signals, inherit,
};
use ringmain_gateway::Gateway;
use ringmain_gateway::filter::{self, Filter, Filters, Options};
use ringmain_gateway::model;
use ringmain_sys::inherit::Inherited;
use ringmain_sys::signal::Signals;
use ringmain_web::{Exit, Limits, Site};

use self::admin_server::Administration;
use self::access_log::Rotated;
use crate::admin::{Admin, Board};
use crate::config::Warning;
use crate::file::{self, Reading, Unreadable};
use crate::reload::{Begun, Control};
use crate::verify::{self, Rejected};

/// What a configuration file has no word for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the engine. Its connections and its grace are the file's.
    pub engine: Config,
    /// Of listeners.
    pub listen: ListenOptions,
    /// Connections that one address may hold at once. `None`: 1024.
    pub connections_per_address: Option<u32>,
    /// How long a request may wait in a busy worker before it is begun. `None`: 250 ms.
    pub patience: Option<Duration>,
    /// The program's, for the administration.
    pub version: &'static str,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine: Config::default(),
            listen: ListenOptions::default(),
            connections_per_address: None,
            patience: None,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The part of the administration that shows metrics and probes alone.
const METRICS: &str = "metrics";

/// Why there is nothing that serves.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(Box<Unreadable>),
    /// Something in the file is wrong, which was logged: nothing of it is served.
    #[error("{0}")]
    Rejected(String),
    /// Anything else, in a line.
    #[error("{0}")]
    Other(String),
}

fn other(error: impl Display) -> EdgeError {
    EdgeError::Other(error.to_string())
}

/// A file that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The configuration, or everything that is wrong with it.
    pub outcome: Result<Arc<model::Config>, Rejected>,
    /// What is right as it is written, and probably not meant.
    pub warnings: Vec<Warning>,
}

/// Who watches a gateway that serves.
pub trait Watch {
    /// The engine is set up; nothing listens yet.
    fn begin(&mut self, engine: &Engine) {
        let _ = engine;
    }

    /// Called when all workers serve at these addresses, and then every quarter of a second. `requests` were answered so far.
    fn look(&mut self, report: &Report, addrs: &[Addr], requests: u64);
}

/// Says where it listens.
#[derive(Default)]
struct Plain {
    said: bool,
}

impl Watch for Plain {
    fn look(&mut self, _: &Report, addrs: &[Addr], _: u64) {
        if !std::mem::replace(&mut self.said, true) {
            for addr in addrs {
                log::info!("listening on {addr}");
            }
        }
    }
}

/// What was served when it is over.
#[derive(Debug)]
pub struct Served {
    /// The engine's last counts.
    pub report: Report,
    /// Requests that were answered.
    pub requests: u64,
}

/// A gateway that follows a file.
#[derive(Clone, Debug)]
pub struct Edge {
    path: PathBuf,
    filters: Filters,
    settings: Settings,
}

impl Edge {
    /// By this file, as [docs/gateway.md](https://github.com/ringmain/ringmain/blob/main/docs/gateway.md) has it.
    #[must_use]
    pub fn of(path: impl Into<PathBuf>) -> Edge {
        Edge {
            path: path.into(),
            filters: Filters::new(),
            settings: Settings::default(),
        }
    }

    /// With a filter that the file may name in `policies.filters` ([`Filters::add`]).
    #[must_use]
    pub fn filter<F, C, W>(mut self, name: &str, configure: C) -> Edge
    where
        F: Filter,
        C: Fn(&Options) -> Result<W, filter::Error> + Send + Sync + 'static,
        W: Fn(&Cx) -> F + Send + Sync + 'static,
    {
        self.filters = self.filters.add(name, configure);
        self
    }

    /// With other settings than the defaults.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Edge {
        self.settings = settings;
        self
    }

    /// Serves until a termination signal, then lets requests finish; its listeners are taken over by a new process after SIGUSR2,
    /// and the file is followed. Unless the program has set a logger of its own, lines from `info` on go to standard error.
    #[must_use]
    pub fn run(self) -> Exit {
        Exit::from(self.run_plainly())
    }

    fn run_plainly(self) -> Result<(), Box<dyn std::error::Error>> {
        let inherited = inherit::take()?;
        // Before any thread is there: they inherit what is blocked.
        let signals = block_signals()?;
        ringmain_web::log_plainly();
        self.serve(inherited, &signals, &mut Plain::default())?;
        Ok(())
    }

    /// Checks the file as a start and a reload do, without opening an address. Returns the configuration, and what is probably not
    /// meant.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn check(&self) -> Result<Checked, EdgeError> {
        let Reading { mut loaded, .. } = file::read(&self.path).map_err(EdgeError::Unreadable)?;
        let outcome = verify::start(&mut loaded, &self.filters);
        Ok(Checked {
            outcome: outcome.map(|gateway| Arc::clone(gateway.table().config())),
            warnings: loaded.warnings,
        })
    }

    /// Serves until a signal, with listeners that were handed over, and signals that were blocked before the first thread.
    ///
    /// # Errors
    /// There is nothing that could be served, or nowhere to serve it.
    pub fn serve(
        &self,
        mut inherited: Vec<Inherited>,
        signals: &Signals,
        watch: &mut dyn Watch,
    ) -> Result<Served, EdgeError> {
        let settings = &self.settings;
        let (gateway, begun) = self.load()?;
        let config = Arc::clone(&begun.config);
        let mut engine = self.engine(&config, begun.kubernetes.is_some())?;
        watch.begin(&engine);
        let may_wait = !inherited.is_empty();
        let addrs = listeners::open(settings, &mut engine, &mut inherited, &gateway.addrs())?;
        let for_admin = admin_listeners(&config, &mut inherited);
        listeners::say_unused(&inherited);
        // Behind what can fail: a file of state is used once.
        push_state::begin(&gateway.pushing(), config.push.as_deref()).map_err(other)?;
        let mut app = gateway.app().limits(self.limits(gateway.limits()));
        if let Some(wanted) = &config.access_log {
            app = app.access_log(access_log::open(wanted)?);
        }
        let site = app.build().map_err(other)?;
        let control = Control::start(gateway.clone(), begun)
            .map_err(|error| EdgeError::Other(format!("cannot start the control thread: {error}")))?;
        let control = Arc::new(control);
        let board = Board::default();
        let admin = Admin::new(
            gateway.clone(),
            Arc::clone(&control),
            Arc::clone(&site),
            board.clone(),
            settings.version,
        );
        let administration = for_admin.into_iter().map(|(name, addrs, inherited)| {
            let app = match name {
                METRICS => admin.metrics(),
                _ => admin.app(),
            };
            Administration::start(settings, (name, addrs), inherited, app, may_wait)
        });
        let administration = administration.collect::<Result<Vec<_>, _>>()?;
        let mut serving = Serving {
            settings,
            listening: Some(gateway),
            control,
            site: Arc::clone(&site),
            board,
            administration,
            hangups: 0,
            rotated: Rotated::default(),
        };
        let (served, consumers) = (Arc::clone(&site), Arc::clone(&serving.control));
        // Sources have to deliver here before they end in the process before this one.
        let is_ready = || consumers.consumers().all_deliver() && consumers.sources().undelivered().is_empty();
        let observe = |running: &Running<_>| {
            let report = serving.look(running);
            watch.look(&report, &addrs, site.stats().totals().requests());
        };
        let summary =
            engine.run_observed_until_ready(signals, move |start| served.server(start), observe, is_ready);
        let summary = summary.map_err(other)?;
        access_log::finish(&site);
        Ok(Served {
            report: summary.report,
            requests: site.stats().totals().requests(),
        })
    }

    /// `has_objects`: listeners may be added by a second source.
    fn engine(&self, config: &model::Config, has_objects: bool) -> Result<Engine, EdgeError> {
        let mut engine = self.settings.engine.clone();
        engine.clients_only |= has_objects && config.listeners.is_empty();
        engine.max_connections = config.limits.connections;
        engine.grace = config.limits.drain;
        Engine::new(engine).map_err(other)
    }

    /// Reads the file, and logs what is wrong with it: then nothing of it is served.
    fn load(&self) -> Result<(Gateway, Begun), EdgeError> {
        let Reading {
            mut loaded,
            text,
            print,
        } = file::read_settled(&self.path).map_err(EdgeError::Unreadable)?;
        let name = self.path.display();
        let gateway = verify::start(&mut loaded, &self.filters).map_err(|rejected| {
            for error in &rejected.errors {
                log::error!("{error}");
            }
            EdgeError::Rejected(format!("{name}: invalid configuration: {}", rejected.summary()))
        })?;
        for warning in &loaded.warnings {
            log::warn!("{warning}");
        }
        let config = Arc::clone(gateway.table().config());
        let begun = Begun {
            path: self.path.clone(),
            print,
            text,
            config,
            kubernetes: loaded.kubernetes,
        };
        Ok((gateway, begun))
    }

    fn limits(&self, mut limits: Limits) -> Limits {
        let settings = &self.settings;
        limits.connections_per_address = settings
            .connections_per_address
            .or(limits.connections_per_address);
        if settings.patience.is_some() {
            limits.patience = settings.patience;
        }
        limits
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What is looked at again and again while it serves.
struct Serving<'e> {
    settings: &'e Settings,
    /// Whose listeners are to follow the configuration from the first look on.
    listening: Option<Gateway>,
    control: Arc<Control>,
    site: Arc<Site>,
    board: Board,
    administration: Vec<Administration>,
    hangups: u64,
    rotated: Rotated,
}

impl Serving<'_> {
    fn look<M: Send + 'static>(&mut self, running: &Running<M>) -> Report {
        if let Some(gateway) = self.listening.take() {
            let (push, control) = (gateway.pushing(), Arc::clone(&self.control));
            running.before_drain(move |successor| push_state::save(&push, &control, successor));
            self.follow(&gateway, running.listeners());
        }
        if std::mem::replace(&mut self.hangups, running.hangups()) != running.hangups() {
            self.control.reload();
        }
        self.rotated.follow(running, &self.site);
        let report = running.report();
        self.board.put(report.clone(), running.is_draining());
        if self.board.take_drain() {
            running.shut_down();
        }
        for administration in &mut self.administration {
            administration.look(self.settings, running);
        }
        report
    }

    /// Has listeners follow the configuration from now on.
    fn follow(&self, gateway: &Gateway, listeners: Listeners) {
        let missed = gateway.listen_by(listeners, self.settings.listen.clone());
        if missed {
            self.control.reload();
        }
        if let Some(cluster) = self.control.cluster() {
            cluster.begin();
        }
    }
}

/// Returns the administration's listeners by name: the addresses of each, and those of them that were inherited.
fn admin_listeners<'c>(
    config: &'c ringmain_gateway::model::Config,
    inherited: &mut Vec<Inherited>,
) -> Vec<(&'static str, &'c Vec<Addr>, Vec<Inherited>)> {
    let admin = config.admin.iter();
    let all = admin.flat_map(|admin| [("administration", &admin.addresses), (METRICS, &admin.metrics)]);
    let used = all.filter(|(_, addrs)| !addrs.is_empty());
    used.map(|(name, addrs)| {
        let taken = listeners::take(inherited, |addr: &Addr| addrs.contains(addr));
        (name, addrs, taken)
    })
    .collect()
}
