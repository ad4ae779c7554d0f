//! From the command line to the load generator: the traffic of a target, and the plan of its rounds.

use std::fs;
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_load::plan::{Extent, Pace, Plan, Protocol, Tls};
use ringmain_load::run::{RunError, Session};
use ringmain_load::target::{Place, Scheme, Target};
use ringmain_load::traffic::{self, Traffic};

use super::client_tls::{ALPN_HTTP1, ALPN_HTTP2, client_tls};
use super::scenario_file::ScenarioFile;
use crate::args::EngineName;
use crate::args::bench::values::Header;
use crate::args::bench::{self as args, Client, Load, Request, Started};
use crate::error::CliError;
use crate::limits::{CONNECTIONS, ROUNDS};

mod grpc;
#[cfg(test)]
mod tests;

/// Default duration of a round.
const DURATION: Duration = Duration::from_secs(10);
/// Default duration of the warm-up.
const WARMUP: Duration = Duration::from_secs(2);
/// Default timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Default size of an echo message, in bytes.
const ECHO_BYTES: u32 = 64;

/// The workload of a target.
#[derive(Debug)]
pub(super) struct Workload {
    /// The target's address.
    pub(super) place: Place,
    /// The protocol.
    pub(super) protocol: Protocol,
    /// The TLS settings, if any.
    pub(super) tls: Option<Tls>,
    /// The requests or messages to send.
    pub(super) traffic: Traffic,
}

impl Workload {
    /// Returns the workload for a target's URL.
    ///
    /// # Errors
    /// Fails on an invalid URL, on options that do not fit it, and on files that cannot be read.
    pub(super) fn read(
        target: &str,
        scenario: Option<&ScenarioFile>,
        load: &Load,
        request: &Request,
        tls: &args::Tls,
    ) -> Result<Workload, CliError> {
        let target = Target::parse(target).map_err(|error| CliError::Usage(error.to_string()))?;
        let name = target.secured_as.clone();
        let workload = Workload::from_target(target, scenario, load, request)?;
        // Files are read after the other checks.
        let alpn = if workload.protocol.is_http2() {
            ALPN_HTTP2
        } else {
            // Also for WebSocket handshakes.
            ALPN_HTTP1
        };
        let tls = name.map(|name| client_tls(name, alpn, tls)).transpose()?;
        Ok(Workload { tls, ..workload })
    }

    fn from_target(
        target: Target,
        scenario: Option<&ScenarioFile>,
        load: &Load,
        request: &Request,
    ) -> Result<Workload, CliError> {
        if request.deflate && target.scheme != Scheme::WebSocket {
            return Err(CliError::Usage(
                "--deflate is for ws:// targets: drop it, or use ws://".into(),
            ));
        }
        if load.http2 && target.scheme != Scheme::Http {
            return Err(CliError::Usage(
                "--http2 is for http:// and https:// targets: drop it, or use one".into(),
            ));
        }
        if request.grpc.grpc {
            return grpc::call_workload(&target, scenario.is_some(), load, request);
        }
        match (scenario, target.scheme) {
            (Some(scenario), Scheme::Http) => Workload::from_scenario(target, scenario, load),
            (Some(_), Scheme::Tcp) => Err(CliError::Usage(
                "a scenario is for HTTP, and the target is an echo server: use http://".into(),
            )),
            (Some(_), Scheme::WebSocket) => Err(CliError::Usage(
                "a scenario is for HTTP, and the target is a WebSocket: use http://, or options for the messages".into(),
            )),
            (None, Scheme::Http) => Workload::http_workload(target, load, request),
            (None, Scheme::WebSocket) => Workload::websocket_workload(target, load, request),
            (None, Scheme::Tcp) => Workload::echo_workload(target, load, request),
        }
    }

    fn from_scenario(target: Target, scenario: &ScenarioFile, load: &Load) -> Result<Workload, CliError> {
        if load.echo.is_some() {
            return Err(CliError::Usage(
                "--echo is for tcp:// and ws:// targets, and a scenario is for HTTP: drop it".into(),
            ));
        }
        if target.path != "/" {
            return Err(CliError::Usage(format!(
                "the path {} has no meaning with a scenario, which has the paths: drop it",
                target.path
            )));
        }
        Ok(Workload {
            traffic: scenario.traffic(&target.host)?,
            place: target.place,
            protocol: http_protocol(load),
            tls: None,
        })
    }

    fn http_workload(target: Target, load: &Load, args: &Request) -> Result<Workload, CliError> {
        if load.echo.is_some() {
            return Err(CliError::Usage(
                "--echo is for tcp:// and ws:// targets: drop it, or use one".into(),
            ));
        }
        let mut request = build_request(&target, args)?;
        request.method = match (&args.method, &request.body) {
            (Some(method), _) => method.clone(),
            (None, traffic::Body::None) => "GET".into(),
            (None, _) => "POST".into(),
        };
        if let Some(statuses) = &args.expect_status {
            request.expect.statuses.clone_from(&statuses.0);
        }
        if let Some(text) = &args.expect_body {
            let check = traffic::Check::Body(traffic::Test::Contains(text.clone()));
            request.expect.checks.push(check);
        }
        Ok(Workload {
            place: target.place,
            protocol: http_protocol(load),
            tls: None,
            traffic: Traffic::single(request).map_err(|error| CliError::Usage(error.to_string()))?,
        })
    }

    /// The body is the message; without a body, messages are generated bytes.
    fn websocket_workload(target: Target, load: &Load, args: &Request) -> Result<Workload, CliError> {
        let given = [
            ("--method", args.method.is_some()),
            ("--expect-status", args.expect_status.is_some()),
            ("--expect-body", args.expect_body.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(CliError::Usage(format!(
                "{option} is for HTTP, and the target is a WebSocket that must echo its messages: drop it"
            )));
        }
        let body = [
            ("--body", args.body.is_some()),
            ("--body-file", args.body_file.is_some()),
        ];
        if let (Some((option, _)), true) = (body.into_iter().find(|(_, given)| *given), load.echo.is_some()) {
            return Err(CliError::Usage(format!(
                "--echo and {option} both set the message: drop one"
            )));
        }
        let request = build_request(&target, args)?;
        let bytes = load.echo.unwrap_or(ECHO_BYTES);
        let traffic = Traffic::messages(request, bytes, args.deflate);
        let traffic = traffic.map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Workload {
            place: target.place,
            tls: None,
            protocol: traffic.socket().expect("it was made of messages").protocol(),
            traffic,
        })
    }

    fn echo_workload(target: Target, load: &Load, request: &Request) -> Result<Workload, CliError> {
        if let Some(option) = request.first_given_option() {
            return Err(CliError::Usage(format!(
                "{option} is for HTTP, and the target is an echo server: drop it"
            )));
        }
        Ok(Workload {
            place: target.place,
            tls: None,
            protocol: Protocol::Echo {
                bytes: load.echo.unwrap_or(ECHO_BYTES),
            },
            // Only the size of messages matters for an echo server.
            traffic: Traffic::single(traffic::Request::get("/", "echo")).map_err(CliError::other)?,
        })
    }
}

/// Returns the version of HTTP.
fn http_protocol(load: &Load) -> Protocol {
    if load.http2 {
        Protocol::Http2
    } else {
        Protocol::Http1
    }
}

/// Returns the request of the options, without the parts that depend on the protocol.
fn build_request(target: &Target, args: &Request) -> Result<traffic::Request, CliError> {
    let host = args.host.as_ref().unwrap_or(&target.host);
    let headers = args.header.iter();
    let headers = headers.map(|Header(name, value)| (name.clone(), value.clone()));
    Ok(traffic::Request {
        headers: headers.collect(),
        body: read_body(args)?,
        ..traffic::Request::get(&target.path, host)
    })
}

fn read_body(args: &Request) -> Result<traffic::Body, CliError> {
    if let Some(text) = &args.body {
        return Ok(traffic::Body::Text(text.clone()));
    }
    let Some(path) = &args.body_file else {
        return Ok(traffic::Body::None);
    };
    match fs::read(path) {
        Ok(bytes) => Ok(traffic::Body::Bytes(bytes.into())),
        Err(error) => Err(CliError::Usage(format!(
            "--body-file: cannot read {}: {error}",
            path.display()
        ))),
    }
}

/// The CPUs and threads of the load generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Threads {
    pub(super) count: usize,
    /// Empty: not pinned.
    pub(super) cpus: Vec<usize>,
}

/// Returns the CPUs of the client, among those `allowed`, and its number of threads.
pub(super) fn client_threads(
    load: &Load,
    client: &Client,
    started: &Started,
    allowed: &[usize],
) -> Result<Threads, CliError> {
    let cpus = client_cpus(client.cpus.as_ref(), started, allowed)?;
    let default = if cpus.is_empty() {
        allowed.len()
    } else {
        cpus.len()
    };
    let connections = load.connections.unwrap_or(CONNECTIONS);
    let connections = usize::try_from(connections).unwrap_or(usize::MAX);
    Ok(Threads {
        count: client.threads.unwrap_or(default).min(connections).max(1),
        cpus,
    })
}

/// Returns the CPUs of the client, among those `allowed`; empty if none is configured.
pub(super) fn client_cpus(
    wanted: Option<&Vec<usize>>,
    started: &Started,
    allowed: &[usize],
) -> Result<Vec<usize>, CliError> {
    let servers = started.server_cpus.as_ref();
    for (option, cpus) in [("--cpus", wanted), ("--server-cpus", servers)] {
        let missing = cpus.into_iter().flatten().find(|cpu| !allowed.contains(cpu));
        if let Some(cpu) = missing {
            return Err(CliError::Usage(format!(
                "{option}: CPU {cpu} is not available to this process, which may use {}",
                format_cpus(allowed)
            )));
        }
    }
    Ok(match (wanted, servers) {
        (Some(cpus), _) => cpus.clone(),
        // Without a free CPU both share, and the report has a warning.
        (None, Some(servers)) => allowed
            .iter()
            .filter(|cpu| !servers.contains(cpu))
            .copied()
            .collect(),
        (None, None) => Vec::new(),
    })
}

/// Formats CPUs as the kernel does: `0-3,8`.
pub(super) fn format_cpus(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let written = ranges.iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    written.collect::<Vec<_>>().join(",")
}

/// Returns the plan of a target at these addresses, at least one.
pub(super) fn build_plan(
    workload: &Workload,
    mut targets: Vec<Addr>,
    threads: &Threads,
    load: &Load,
    client: &Client,
    interval: Duration,
) -> Result<Plan, CliError> {
    let sources: Vec<Addr> = client.source.iter().flatten().cloned().collect();
    let target = targets.remove(0);
    check_sources(&sources, &target)?;
    Ok(Plan {
        target,
        others: targets,
        sources,
        protocol: workload.protocol,
        tls: workload.tls.clone(),
        connections: load.connections.unwrap_or(CONNECTIONS),
        pipeline: if workload.protocol.is_http2() {
            load.streams.unwrap_or(1)
        } else {
            load.pipeline.unwrap_or(1)
        },
        reconnect_after: load.reconnect_every,
        pace: match (load.rate, load.poisson) {
            (None, _) => Pace::Closed,
            (Some(rate), false) => Pace::Constant(rate),
            (Some(rate), true) => Pace::Poisson(rate),
        },
        extent: match (load.requests, load.duration) {
            (Some(count), Some(time)) => Extent::Either { count, time: time.0 },
            (Some(count), None) => Extent::Count(count),
            (None, time) => Extent::Time(time.map_or(DURATION, |time| time.0)),
        },
        warmup: load.warmup.map_or(WARMUP, |warmup| warmup.0),
        rounds: load.rounds.unwrap_or(ROUNDS),
        timeout: load.timeout.map_or(TIMEOUT, |timeout| timeout.0),
        connect_timeout: load.connect_timeout.0,
        interval,
        threads: threads.count,
        cpus: threads.cpus.clone(),
        engine: match client.engine {
            EngineName::Auto => Choice::Auto,
            EngineName::Uring => Choice::Uring,
            EngineName::Epoll => Choice::Epoll,
        },
        seed: client.seed.unwrap_or_else(ringmain_sys::clock::random),
    })
}

/// Returns a session that is ready to run.
pub(super) fn open_session(plan: Plan, workload: &Workload) -> Result<Session, CliError> {
    Session::new(plan, workload.traffic.clone()).map_err(|error| match error {
        // Conflicting settings of options and scenario.
        RunError::Plan { .. } | RunError::Tls(_) => CliError::Usage(error.to_string()),
        _ => CliError::other(error),
    })
}

/// Fails if a source address is not of the target's address family.
pub(super) fn check_sources(sources: &[Addr], target: &Addr) -> Result<(), CliError> {
    let fits = |source: &&Addr| match (source, target) {
        (Addr::Inet(source), Addr::Inet(target)) => source.is_ipv4() == target.is_ipv4(),
        _ => false,
    };
    match sources.iter().find(|source| !fits(source)) {
        None => Ok(()),
        Some(Addr::Inet(source)) => Err(CliError::Usage(format!(
            "--source: cannot connect from {} to {target}: expected an address of the same family",
            source.ip()
        ))),
        Some(other) => Err(CliError::Usage(format!(
            "--source: expected an IP address, found {other}"
        ))),
    }
}
