//! A whole gateway from a configuration file, for programs that embed one and for `ringmain run FILE`.
//!
//! ```no_run
//! use ringmain_control::Exit;
//! use ringmain_control::edge::Edge;
//!
//! fn main() -> Exit {
//!     Edge::from_file("edge.yaml").run()
//! }
//! ```
//!
//! Owns the order of setting up: file, engine, listeners, application, control thread, administration. Knows no command line.

pub mod access_log;
mod admin_server;
mod listeners;
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
use ringmain_push::Push;
use ringmain_sys::inherit::Inherited;
use ringmain_sys::signal::Signals;
use ringmain_web::{CompiledApp, Exit, Limits};

use self::access_log::LogRotation;
use self::admin_server::{AdminListener, AdminServer};
use crate::admin::{AdminApp, StatusBoard};
use crate::config::{ConfigSource, Warning};
use crate::file::{self, LoadedFile, UnreadableFile};
use crate::process_log;
use crate::reload::{ConfigWatcher, InitialConfig};
use crate::verify::{self, Rejected};

/// Settings that a configuration file does not have.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Settings of the engine. The number of connections and the times of a shutdown are taken from the file.
    pub engine: Config,
    /// Options of listeners.
    pub listen: ListenOptions,
    /// Connections that one address may hold at once. `None`: 1024.
    pub connections_per_address: Option<u32>,
    /// The maximum time that a request may be queued in a busy worker. `None`: 250 ms.
    pub patience: Option<Duration>,
    /// The program's, for the administration.
    pub version: &'static str,
}

impl Default for EdgeSettings {
    fn default() -> EdgeSettings {
        EdgeSettings {
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

/// The reason why a gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(Box<UnreadableFile>),
    /// The configuration is invalid and was not applied. Its errors were logged.
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
pub struct CheckedFile {
    /// The configuration, or all of its errors.
    pub outcome: Result<Arc<model::Config>, Rejected>,
    /// Warnings: valid settings that are probably not intended.
    pub warnings: Vec<Warning>,
    /// The file's text.
    pub source: ConfigSource,
}

/// An observer of a serving gateway.
pub trait ServeObserver {
    /// Called when the file was read, before the first line of the log about it: the log has the format of the file.
    fn on_file_read(&mut self) {}

    /// Called when the engine is set up; no listener is open yet.
    fn on_engine_ready(&mut self, engine: &Engine) {
        let _ = engine;
    }

    /// Called when all workers serve at these addresses, and then every quarter of a second. `requests`: the number of responses so
    /// far.
    fn on_tick(&mut self, report: &Report, addrs: &[Addr], requests: u64);
}

/// Says where it listens.
#[derive(Default)]
struct ListenLogger {
    logged: bool,
}

impl ServeObserver for ListenLogger {
    fn on_tick(&mut self, _: &Report, addrs: &[Addr], _: u64) {
        if !std::mem::replace(&mut self.logged, true) {
            for addr in addrs {
                log::info!(event = "listening", address:% = addr; "listening on {addr}");
            }
        }
    }
}

/// The totals after serving.
#[derive(Debug)]
pub struct ServeSummary {
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
    settings: EdgeSettings,
}

impl Edge {
    /// Creates a gateway with this configuration file ([docs/gateway.md](https://github.com/ringmain/ringmain/blob/main/docs/gateway.md)).
    #[must_use]
    pub fn from_file(path: impl Into<PathBuf>) -> Edge {
        Edge {
            path: path.into(),
            filters: Filters::new(),
            settings: EdgeSettings::default(),
        }
    }

    /// Adds a filter that the file may name in `policies.filters` ([`Filters::add`]).
    #[must_use]
    pub fn filter<F, C, W>(mut self, name: &str, configure: C) -> Edge
    where
        F: Filter,
        C: Fn(&Options) -> Result<W, filter::FilterError> + Send + Sync + 'static,
        W: Fn(&Cx) -> F + Send + Sync + 'static,
    {
        self.filters = self.filters.add(name, configure);
        self
    }

    /// Replaces the default settings.
    #[must_use]
    pub fn settings(mut self, settings: EdgeSettings) -> Edge {
        self.settings = settings;
        self
    }

    /// Serves until a termination signal, then completes requests in flight; a new process takes over the listeners after SIGUSR2,
    /// and changes of the file are applied. Unless the program has set its own logger, messages from level `info` are written to
    /// standard error.
    #[must_use]
    pub fn run(self) -> Exit {
        Exit::from(self.serve_until_signal())
    }

    fn serve_until_signal(self) -> Result<(), Box<dyn std::error::Error>> {
        let inherited = inherit::take()?;
        // Before the first thread: threads inherit blocked signals.
        let signals = block_signals()?;
        ringmain_web::init_stderr_logger();
        self.serve(inherited, &signals, &mut ListenLogger::default())?;
        Ok(())
    }

    /// Checks the file as at a start and a reload, without opening an address. Returns the configuration, and warnings.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn check(&self) -> Result<CheckedFile, EdgeError> {
        let read = file::read(&self.path).map_err(EdgeError::Unreadable)?;
        Ok(self.check_loaded(read))
    }

    /// As [`Edge::check`], with this text as the contents of the file: paths in it are relative to the file's directory.
    #[must_use]
    pub fn check_text(&self, text: String) -> CheckedFile {
        self.check_loaded(file::read_text(&self.path, text))
    }

    fn check_loaded(&self, LoadedFile { mut loaded, text, .. }: LoadedFile) -> CheckedFile {
        let outcome = verify::build_gateway(&mut loaded, &self.filters);
        CheckedFile {
            outcome: outcome.map(|gateway| Arc::clone(gateway.table().config())),
            warnings: loaded.warnings,
            source: ConfigSource::new(&text),
        }
    }

    /// Serves until a signal, with listeners that were handed over, and signals that were blocked before the first thread.
    ///
    /// # Errors
    /// There is nothing that could be served, or nowhere to serve it.
    pub fn serve(
        &self,
        mut inherited: Vec<Inherited>,
        signals: &Signals,
        observer: &mut dyn ServeObserver,
    ) -> Result<ServeSummary, EdgeError> {
        let settings = &self.settings;
        let (gateway, initial) = self.load(observer)?;
        let config = Arc::clone(&initial.config);
        let mut engine = self.engine(&config, initial.kubernetes.is_some())?;
        observer.on_engine_ready(&engine);
        let can_wait = !inherited.is_empty();
        let addrs =
            listeners::open_listeners(settings, &mut engine, &mut inherited, &gateway.listen_addrs())?;
        listeners::bind_datagrams(&gateway, engine.workers())?;
        let for_admin = admin_listeners(&config, &mut inherited);
        listeners::log_unused(&inherited);
        // After all steps that can fail: a state file is used once.
        push_state::restore_at_start(&gateway.push_server(), config.push.as_deref()).map_err(other)?;
        let mut app = gateway.app().limits(self.limits(gateway.limits()));
        if let Some(wanted) = &config.access_log {
            app = app.access_log(access_log::open(wanted)?);
        }
        let site = app.build().map_err(other)?;
        let control = ConfigWatcher::start(gateway.clone(), initial)
            .map_err(|error| EdgeError::Other(format!("cannot start the control thread: {error}")))?;
        let control = Arc::new(control);
        let board = StatusBoard::default();
        let admin = AdminApp::new(
            gateway.clone(),
            Arc::clone(&control),
            Arc::clone(&site),
            board.clone(),
            settings.version,
        );
        let admin_servers = start_admin(settings, &admin, for_admin, can_wait)?;
        let mut serving = ServeLoop {
            settings,
            push: gateway.push_server(),
            pending_listeners: Some(gateway),
            control,
            site: Arc::clone(&site),
            board,
            admin: Some(admin).filter(|_| config.admin.is_some()),
            admin_servers,
            hangups: 0,
            log_rotation: LogRotation::default(),
        };
        let (served, consumers) = (Arc::clone(&site), Arc::clone(&serving.control));
        // Sources have to deliver here before they end in the process before this one.
        let is_ready = || consumers.consumers().all_deliver() && consumers.sources().undelivered().is_empty();
        let observe = |running: &Running<_>| {
            let report = serving.tick(running);
            observer.on_tick(&report, &addrs, site.stats().totals().requests());
        };
        let summary =
            engine.run_observed_until_ready(signals, move |start| served.server(start), observe, is_ready);
        let summary = summary.map_err(other)?;
        access_log::flush(&site);
        Ok(ServeSummary {
            report: summary.report,
            requests: site.stats().totals().requests(),
        })
    }

    /// Sets up the engine. `has_objects`: a second source may add listeners.
    fn engine(&self, config: &model::Config, has_objects: bool) -> Result<Engine, EdgeError> {
        let mut engine = self.settings.engine.clone();
        let mut connections = config.listeners.iter().filter(|it| !it.protocol.is_datagram());
        let has_other_source = has_objects || !config.listeners.is_empty();
        engine.clients_only |= has_other_source && connections.next().is_none();
        engine.max_connections = config.limits.connections;
        engine.grace = config.limits.drain;
        engine.drain_delay = config.limits.drain_delay;
        engine.drain_spread = config.limits.drain_spread;
        Engine::new(engine).map_err(other)
    }

    /// Reads the file, and logs its errors: an invalid file is not applied.
    fn load(&self, observer: &mut dyn ServeObserver) -> Result<(Gateway, InitialConfig), EdgeError> {
        let LoadedFile {
            mut loaded,
            text,
            fingerprint,
        } = file::read_stable(&self.path).map_err(EdgeError::Unreadable)?;
        // Also with errors, which are then logged in this format.
        if let Some(config) = &loaded.config {
            process_log::apply_format(config);
        }
        observer.on_file_read();
        let name = self.path.display();
        let gateway = verify::build_gateway(&mut loaded, &self.filters).map_err(|rejected| {
            rejected.errors.iter().for_each(process_log::log_config_error);
            EdgeError::Rejected(format!("{name}: invalid configuration: {}", rejected.summary()))
        })?;
        loaded.warnings.iter().for_each(process_log::log_config_warning);
        let config = Arc::clone(gateway.table().config());
        let initial = InitialConfig {
            path: self.path.clone(),
            fingerprint,
            text,
            config,
            kubernetes: loaded.kubernetes,
        };
        Ok((gateway, initial))
    }

    fn limits(&self, mut limits: Limits) -> Limits {
        let settings = &self.settings;
        limits.connections_per_address = settings
            .connections_per_address
            .or(limits.connections_per_address);
        if settings.patience.is_some() {
            limits.max_queue_delay = settings.patience;
        }
        limits
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The state of the periodic tasks while the gateway serves.
struct ServeLoop<'e> {
    settings: &'e EdgeSettings,
    /// The gateway whose listeners follow the configuration from the first tick on.
    pending_listeners: Option<Gateway>,
    push: Push,
    control: Arc<ConfigWatcher>,
    site: Arc<CompiledApp>,
    board: StatusBoard,
    /// `None`: no administration is configured.
    admin: Option<AdminApp>,
    admin_servers: Vec<AdminServer>,
    hangups: u64,
    log_rotation: LogRotation,
}

impl ServeLoop<'_> {
    fn tick<M: Send + 'static>(&mut self, running: &Running<M>) -> Report {
        if let Some(gateway) = self.pending_listeners.take() {
            let (push, control) = (gateway.push_server(), Arc::clone(&self.control));
            let board = self.board.clone();
            running.before_drain(move |successor| {
                if let Some(node) = control.push_cluster() {
                    // Load balancers stop sending clients before the channels move.
                    board.set_draining();
                    node.leave();
                }
                push_state::save(&push, &control, successor);
            });
            self.open_listeners(&gateway, running.listeners());
        }
        if std::mem::replace(&mut self.hangups, running.hangups()) != running.hangups() {
            match running.take_reload() {
                Some(request) => self.control.reload_as(request),
                None => self.control.reload(),
            }
        }
        self.log_rotation.reopen_on_signal(running, &self.site);
        if let Some(node) = self.control.push_cluster() {
            node.balance(&self.push);
            if running.is_drain_pending() {
                node.begin_leave();
            }
        }
        let report = running.report();
        self.board.publish(report.clone(), running.is_drain_pending());
        if let Some(admin) = &self.admin {
            admin.record_history();
        }
        if self.board.is_drain_requested() {
            running.begin_drain();
        }
        for server in &mut self.admin_servers {
            server.poll(self.settings, running);
        }
        report
    }

    /// Lets listeners follow the configuration from now on.
    fn open_listeners(&self, gateway: &Gateway, listeners: Listeners) {
        let missed = gateway.manage_listeners(listeners, self.settings.listen.clone());
        if missed {
            self.control.reload();
        }
        if let Some(cluster) = self.control.cluster() {
            cluster.start_sync();
        }
    }
}

/// Starts the administration on its listeners.
fn start_admin(
    settings: &EdgeSettings,
    admin: &AdminApp,
    listeners: Vec<AdminListener<'_>>,
    can_wait: bool,
) -> Result<Vec<AdminServer>, EdgeError> {
    let servers = listeners.into_iter().map(|listener| {
        let app = match listener.name {
            METRICS => admin.metrics(),
            _ => admin.app(),
        };
        AdminServer::start(settings, listener, app, can_wait)
    });
    servers.collect()
}

/// Returns the listeners of the administration, with their inherited sockets.
fn admin_listeners<'c>(
    config: &'c ringmain_gateway::model::Config,
    inherited: &mut Vec<Inherited>,
) -> Vec<AdminListener<'c>> {
    let admin = config.admin.iter();
    let all = admin.flat_map(|admin| [("administration", &admin.addresses), (METRICS, &admin.metrics)]);
    let in_use = all.filter(|(_, addrs)| !addrs.is_empty());
    in_use
        .map(|(name, addrs)| {
            let inherited = listeners::take_matching(inherited, |addr: &Addr| addrs.contains(addr));
            AdminListener {
                name,
                addrs,
                inherited,
            }
        })
        .collect()
}
