//! `ringmain run`: creates an engine, logs its properties, serves until a signal.

mod gateway;
mod http;
mod redirect;
mod tls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use ringmain_engine::features::Features;
use ringmain_engine::{Addr, Engine, Report, block_signals};
use ringmain_sys::inherit::Inherited;
use ringmain_sys::signal::Signals;
use ringmain_sys::{cgroup, cpu, limits};
use ringmain_web::{App, ListenerProtocol};

use self::tls::Certificates;
use crate::args::{Run, Serve};
use crate::echo::{Echo, Messages};
use crate::error::CliError;
use crate::logging;
use crate::stats::{Counts, IntervalTimer};
use crate::version::feature_list;

#[cfg(test)]
mod tests;

/// The default address of HTTP; `--help` names it.
const HTTP_ADDR: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));
/// The default address of HTTPS.
const HTTPS_ADDR: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8443));
/// The default address of the echo server.
const ECHO_ADDR: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000));

/// Runs the command: serves until a signal.
///
/// # Errors
/// Fails on conflicting options, an invalid configuration file, or an error at startup.
pub(crate) fn run(serve: &Serve, inherited: Vec<Inherited>) -> Result<(), CliError> {
    let args = &*serve.run;
    logging::format::select(args.output.log_format)?;
    if let Some(what) = serve.contradiction() {
        return Err(CliError::Usage(what));
    }
    // Before the first thread, the writer of the log.
    let signals = block_signals().map_err(CliError::other)?;
    logging::start_log(args.output.log_level())
        .map_err(|error| CliError::Other(format!("cannot start the log thread: {error}")))?;
    let counts = match &serve.file {
        Some(file) => gateway::serve(args, file, inherited, &signals)?,
        None => {
            log_program(args);
            serve_built_in(args, inherited, &signals)?
        }
    };
    log::info!("{counts}");
    log::info!(event = "stopped"; "all connections are closed");
    Ok(())
}

/// Logs the first lines: the version, and deprecated options.
fn log_program(args: &Run) {
    let version = env!("CARGO_PKG_VERSION");
    log::info!(event = "started", version; "ringmain {version}");
    for warning in args.http.deprecations() {
        log::warn!("{warning}");
    }
}

/// Serves the built-in application or the echo server.
fn serve_built_in(args: &Run, inherited: Vec<Inherited>, signals: &Signals) -> Result<String, CliError> {
    let mut engine = Engine::new(args.engine_config()).map_err(CliError::other)?;
    log_startup(args, &engine);
    let certificates = Certificates::open(&args.tls)?;
    let addrs = open_listeners(args, &mut engine, inherited)?;
    let setup = ListenerSetup::new(args, &addrs, certificates)?;
    let mut status_log = StatusLog {
        unreported: Some(addrs),
        page: (!args.http.echo).then_some(if args.tls.is_enabled() { "https" } else { "http" }),
        redirect: setup.redirect.map(|(number, _)| number),
        timer: args.output.stats.map(|every| IntervalTimer::new(every.0)),
    };
    if args.http.echo {
        serve_echo(engine, signals, &mut status_log)
    } else {
        http::serve(args, engine, signals, &mut status_log, setup)
    }
}

fn serve_echo(engine: Engine, signals: &Signals, status_log: &mut StatusLog) -> Result<String, CliError> {
    let messages = Messages::default();
    let counted = messages.clone();
    let summary = engine
        .run_observed(
            signals,
            move |_| Echo::new(&counted),
            |running| status_log.report(&running.report(), || ("messages", messages.total_messages())),
        )
        .map_err(CliError::other)?;
    Ok(format_counts(
        &summary.report,
        ("messages", messages.total_messages()),
    ))
}

/// Logs addresses and counters while the program serves.
struct StatusLog {
    /// Logged as soon as all workers serve.
    unreported: Option<Vec<Addr>>,
    /// The scheme of the welcome page, if there is one.
    page: Option<&'static str>,
    /// The listener without the page: it redirects to HTTPS.
    redirect: Option<u32>,
    timer: Option<IntervalTimer>,
}

impl StatusLog {
    /// Called when all workers serve and signals are handled, and then periodically.
    fn report(&mut self, report: &Report, served: impl FnOnce() -> (&'static str, u64)) {
        // Readers of the log may rely on both.
        for (number, addr) in (0..).zip(self.unreported.take().into_iter().flatten()) {
            log::info!(event = "listening", address:% = addr; "listening on {addr}");
            if let (Some(scheme), Addr::Inet(addr)) = (self.page, addr)
                && self.redirect != Some(number)
            {
                log::info!("open in a browser: {scheme}://{}/", reachable_address(addr));
            }
        }
        if self.timer.as_mut().is_some_and(IntervalTimer::is_due) {
            log::info!("{}", format_counts(report, served()));
        }
    }
}

/// The protocols of the listeners.
struct ListenerSetup {
    certificates: Option<Certificates>,
    /// Number of listeners.
    count: u32,
    /// The plaintext listener that redirects to HTTPS, and the port of HTTPS.
    redirect: Option<(u32, u16)>,
}

impl ListenerSetup {
    fn new(
        args: &Run,
        addrs: &[Addr],
        certificates: Option<Certificates>,
    ) -> Result<ListenerSetup, CliError> {
        let redirect = match &args.tls.redirect_http {
            None => None,
            Some(wanted) => Some(redirect_listener(wanted, addrs).ok_or_else(|| {
                CliError::Other(format!(
                    "expected inherited listeners at {wanted} and at a port for HTTPS; found none"
                ))
            })?),
        };
        Ok(ListenerSetup {
            certificates,
            count: addrs.len() as u32,
            redirect,
        })
    }

    /// Returns the application with its listeners.
    fn apply_to(&self, mut app: App) -> App {
        let plain = self.redirect.map(|(number, _)| number);
        if let Some(certificates) = &self.certificates {
            for number in (0..self.count).filter(|number| Some(*number) != plain) {
                app = app.listener(number, ListenerProtocol::https(&certificates.acceptor));
            }
        }
        match self.redirect {
            Some((number, port)) => redirect::redirect_to_https(app, number, port),
            None => app,
        }
    }
}

/// Returns the number of the listener at the wanted address (opened last, or inherited), and the port of HTTPS.
fn redirect_listener(wanted: &Addr, addrs: &[Addr]) -> Option<(u32, u16)> {
    let is_it = |addr: &Addr| match (wanted, addr) {
        (Addr::Inet(wanted), Addr::Inet(addr)) if wanted.port() == 0 => wanted.ip() == addr.ip(),
        _ => wanted == addr,
    };
    let number = addrs.iter().rposition(is_it)? as u32;
    Some((number, redirect::https_port(addrs, number)?))
}

/// Returns an address that this host can connect to: loopback for an unspecified address.
fn reachable_address(addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, addr.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, addr.port()).into(),
        _ => addr,
    }
}

fn format_counts(report: &Report, served: (&'static str, u64)) -> String {
    Counts { report, served }.to_string()
}

/// Logs the selected engine, the reason, and its limits.
fn log_startup(args: &Run, engine: &Engine) {
    let selection = engine.selection();
    if let Some(why_not) = &selection.why_not {
        log::warn!("{why_not}; using epoll");
        for option in args.uring_options() {
            log::warn!("{option} has no effect on epoll");
        }
    }
    if selection.uring {
        let missing = Features::by_default().minus(selection.features);
        log::info!("engine uring with {}", feature_list(selection.features));
        if missing != Features::none() {
            log::info!(
                "engine uring without {} (-v logs the reasons)",
                feature_list(missing)
            );
        }
    } else {
        log::info!("engine epoll");
    }
    let (descriptors, _) = limits::open_files();
    log::info!(
        "workers {}, connections up to {}, descriptors up to {descriptors}{}",
        engine.workers(),
        engine.max_connections(),
        format_container_limits(cpu::quota(), cgroup::memory_limit())
    );
}

/// Returns the limits of the control group, for the end of a line.
fn format_container_limits(cpus: Option<f64>, memory: Option<u64>) -> String {
    let cpus = cpus.map_or_else(String::new, |cpus| format!(", CPU quota {cpus}"));
    let memory = memory.map_or_else(String::new, |bytes| format!(", memory up to {} MiB", bytes >> 20));
    cpus + &memory
}

/// Takes the inherited listeners, and opens the other addresses.
fn open_listeners(args: &Run, engine: &mut Engine, inherited: Vec<Inherited>) -> Result<Vec<Addr>, CliError> {
    let mut addrs = engine.inherit(inherited).map_err(CliError::other)?;
    if !addrs.is_empty() {
        let list: Vec<String> = addrs.iter().map(Addr::to_string).collect();
        log::info!("inherited listeners: {}", list.join(", "));
    }
    let default = Addr::from(match (args.http.echo, args.tls.is_enabled()) {
        (true, _) => ECHO_ADDR,
        (false, true) => HTTPS_ADDR,
        (false, false) => HTTP_ADDR,
    });
    let mut wanted = args.listen.listen.clone();
    if wanted.is_empty() && addrs.is_empty() {
        wanted.push(default);
    }
    wanted.extend(args.tls.redirect_http.clone());
    for addr in missing_addresses(&wanted, &addrs) {
        addrs.push(
            engine
                .listen(addr, &args.listen_options())
                .map_err(CliError::other)?,
        );
    }
    Ok(addrs)
}

/// Returns the wanted addresses that are not inherited. Port 0 matches any inherited port of the same address that no other
/// wanted address matches.
fn missing_addresses<'a>(wanted: &'a [Addr], inherited: &[Addr]) -> Vec<&'a Addr> {
    let mut left: Vec<&Addr> = inherited.iter().collect();
    let mut take = |fits: &dyn Fn(&Addr) -> bool| {
        let found = left.iter().position(|addr| fits(addr));
        found.map(|index| left.remove(index)).is_some()
    };
    let mut missing: Vec<&Addr> = wanted.iter().collect();
    missing.retain(|wanted| !take(&|addr| addr == *wanted));
    missing.retain(|wanted| match wanted {
        Addr::Inet(wanted) if wanted.port() == 0 => {
            !take(&|addr| matches!(addr, Addr::Inet(inet) if inet.ip() == wanted.ip()))
        }
        _ => true,
    });
    missing
}
