//! `ringmain run`: sets an engine up, says what it is, serves until a signal.

mod gateway;
mod http;
mod redirect;
mod tls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use ringmain_engine::features::Features;
use ringmain_engine::{Addr, Engine, Report, block_signals};
use ringmain_sys::inherit::Inherited;
use ringmain_sys::limits;
use ringmain_sys::signal::Signals;
use ringmain_web::{App, Entrance};

use self::tls::Certificates;
use crate::args::{Run, Serve};
use crate::echo::{Echo, Messages};
use crate::error::CliError;
use crate::logging;
use crate::stats::{Counts, IntervalTimer};
use crate::version::feature_list;

#[cfg(test)]
mod tests;

/// Where it listens if nobody says where; `--help` says so too.
const HTTP_ADDR: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));
/// The same with TLS.
const HTTPS_ADDR: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8443));
/// The same for the echo server.
const ECHO_ADDR: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000));

/// Serves until a signal ends it.
pub(crate) fn run(serve: &Serve, inherited: Vec<Inherited>) -> Result<(), CliError> {
    if let Some(what) = serve.contradiction() {
        return Err(CliError::Usage(what));
    }
    let args = &*serve.run;
    // Before the first thread, which is the log's writer.
    let signals = block_signals().map_err(CliError::other)?;
    logging::start_log(args.output.log_level())
        .map_err(|error| CliError::Other(format!("cannot start the log's thread: {error}")))?;
    log::info!("ringmain {}", env!("CARGO_PKG_VERSION"));
    let counts = match &serve.file {
        Some(file) => gateway::serve(args, file, inherited, &signals)?,
        None => serve_built_in(args, inherited, &signals)?,
    };
    log::info!("{counts}");
    log::info!("all connections are closed");
    Ok(())
}

/// Serves what needs no file.
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

/// What is said while it runs.
struct StatusLog {
    /// Said as soon as all workers serve.
    unreported: Option<Vec<Addr>>,
    /// There is a page to look at, by this scheme.
    page: Option<&'static str>,
    /// The listener that has none: it sends to the others.
    redirect: Option<u32>,
    timer: Option<IntervalTimer>,
}

impl StatusLog {
    /// Called when all workers serve and signals are heard, and then again and again.
    fn report(&mut self, report: &Report, served: impl FnOnce() -> (&'static str, u64)) {
        // What follows the line may rely on both.
        for (number, addr) in (0..).zip(self.unreported.take().into_iter().flatten()) {
            log::info!("listening on {addr}");
            if let (Some(scheme), Addr::Inet(addr)) = (self.page, addr)
                && self.redirect != Some(number)
            {
                log::info!(
                    "a browser shows it at work: {scheme}://{}/",
                    reachable_address(addr)
                );
            }
        }
        if self.timer.as_mut().is_some_and(IntervalTimer::is_due) {
            log::info!("{}", format_counts(report, served()));
        }
    }
}

/// What comes in where.
struct ListenerSetup {
    certificates: Option<Certificates>,
    /// How many listeners there are.
    count: u32,
    /// The listener in the clear that sends clients to https, and to which port.
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
                    "expected a listener at {wanted} and one with a port for https, found neither among those handed over"
                ))
            })?),
        };
        Ok(ListenerSetup {
            certificates,
            count: addrs.len() as u32,
            redirect,
        })
    }

    /// The application with them.
    fn apply_to(&self, mut app: App) -> App {
        let plain = self.redirect.map(|(number, _)| number);
        if let Some(certificates) = &self.certificates {
            for number in (0..self.count).filter(|number| Some(*number) != plain) {
                app = app.listener(number, Entrance::https(&certificates.acceptor));
            }
        }
        match self.redirect {
            Some((number, port)) => redirect::redirect_to_https(app, number, port),
            None => app,
        }
    }
}

/// Which listener stands for the wanted address (it was opened last, or handed over), and where https is.
fn redirect_listener(wanted: &Addr, addrs: &[Addr]) -> Option<(u32, u16)> {
    let is_it = |addr: &Addr| match (wanted, addr) {
        (Addr::Inet(wanted), Addr::Inet(addr)) if wanted.port() == 0 => wanted.ip() == addr.ip(),
        _ => wanted == addr,
    };
    let number = addrs.iter().rposition(is_it)? as u32;
    Some((number, redirect::https_port(addrs, number)?))
}

/// Where this host reaches an address: any address is loopback too.
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

/// Says what was chosen, why, and how large it is.
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
            log::info!("engine uring without {} (-v says why)", feature_list(missing));
        }
    } else {
        log::info!("engine epoll");
    }
    let (descriptors, _) = limits::open_files();
    log::info!(
        "workers {}, connections up to {}, descriptors up to {descriptors}",
        engine.workers(),
        engine.max_connections()
    );
}

/// Takes over what was handed to this process, and opens the addresses that are not among it.
fn open_listeners(args: &Run, engine: &mut Engine, inherited: Vec<Inherited>) -> Result<Vec<Addr>, CliError> {
    let mut addrs = engine.inherit(inherited).map_err(CliError::other)?;
    if !addrs.is_empty() {
        let list: Vec<String> = addrs.iter().map(Addr::to_string).collect();
        log::info!("handed over to this process: {}", list.join(", "));
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

/// The wanted addresses that are not among the inherited ones. Port 0 is any port: it stands for an inherited
/// one of the same address that nothing else stands for.
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
