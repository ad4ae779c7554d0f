//! From the command line to what the load generator carries out: the traffic of a target, the plan of its rounds.

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

/// A round measures for so long, if nobody says how long.
const DURATION: Duration = Duration::from_secs(10);
/// Load before it, if nobody says how long.
const WARMUP: Duration = Duration::from_secs(2);
/// An answer may take so long, if nobody says how long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an echoed message if nobody says how many.
const ECHO_BYTES: u32 = 64;

/// What is done to one target.
#[derive(Debug)]
pub(super) struct Workload {
    /// Where it is.
    pub(super) place: Place,
    /// What is spoken.
    pub(super) protocol: Protocol,
    /// How connections are secured.
    pub(super) tls: Option<Tls>,
    /// What is sent.
    pub(super) traffic: Traffic,
}

impl Workload {
    /// Of a target as it is written, with what is sent there.
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
        // Files are read when all else is right.
        let alpn = match workload.protocol.is_http2() {
            true => ALPN_HTTP2,
            // WebSockets are opened by it, too.
            false => ALPN_HTTP1,
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
                "--deflate is for ws:// targets: drop it, or write ws://".into(),
            ));
        }
        if load.http2 && target.scheme != Scheme::Http {
            return Err(CliError::Usage(
                "--http2 is for http:// and https:// targets: drop it, or write one of these".into(),
            ));
        }
        if request.grpc.grpc {
            return grpc::call_workload(&target, scenario.is_some(), load, request);
        }
        match (scenario, target.scheme) {
            (Some(scenario), Scheme::Http) => Workload::from_scenario(target, scenario, load),
            (Some(_), Scheme::Tcp) => Err(CliError::Usage(
                "a scenario is for HTTP, and an echo server is asked: write http://".into(),
            )),
            (Some(_), Scheme::WebSocket) => Err(CliError::Usage(
                "a scenario is for HTTP, and a WebSocket is asked for: write http://, or say by options what is sent".into(),
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
                "the path {} has no meaning with a scenario, which says what is asked for: drop it",
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
                "--echo is for tcp:// and ws:// targets: drop it, or write one of these".into(),
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

    /// A body is the message; without one it is bytes that tell messages apart.
    fn websocket_workload(target: Target, load: &Load, args: &Request) -> Result<Workload, CliError> {
        let given = [
            ("--method", args.method.is_some()),
            ("--expect-status", args.expect_status.is_some()),
            ("--expect-body", args.expect_body.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(CliError::Usage(format!(
                "{option} is for HTTP, and a WebSocket is asked for, whose messages must come back as they were: drop it"
            )));
        }
        let body = [
            ("--body", args.body.is_some()),
            ("--body-file", args.body_file.is_some()),
        ];
        if let (Some((option, _)), true) = (body.into_iter().find(|(_, given)| *given), load.echo.is_some()) {
            return Err(CliError::Usage(format!(
                "--echo and {option} both say what a message is: drop one of them"
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
                "{option} is for HTTP, and an echo server is asked: drop it"
            )));
        }
        Ok(Workload {
            place: target.place,
            tls: None,
            protocol: Protocol::Echo {
                bytes: load.echo.unwrap_or(ECHO_BYTES),
            },
            // Of an echo server's traffic only its length counts.
            traffic: Traffic::single(traffic::Request::get("/", "echo")).map_err(CliError::other)?,
        })
    }
}

/// The HTTP that is spoken.
fn http_protocol(load: &Load) -> Protocol {
    match load.http2 {
        true => Protocol::Http2,
        false => Protocol::Http1,
    }
}

/// What the options say of a request, as far as it is the same for all who make one of it.
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

/// The CPUs and threads that the load comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Threads {
    pub(super) count: usize,
    /// Empty leaves it to the kernel.
    pub(super) cpus: Vec<usize>,
}

/// Which CPUs the client takes of those `allowed`, and how many threads it has.
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

/// Which CPUs the client takes of those `allowed`; none named: all of them.
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
                "{option}: CPU {cpu} may not be used by this process; it may use {}",
                format_cpus(allowed)
            )));
        }
    }
    Ok(match (wanted, servers) {
        (Some(cpus), _) => cpus.clone(),
        // With no CPU left both share, which the report doubts.
        (None, Some(servers)) => allowed
            .iter()
            .filter(|cpu| !servers.contains(cpu))
            .copied()
            .collect(),
        (None, None) => Vec::new(),
    })
}

/// As the kernel lists CPUs: `0-3,8`.
pub(super) fn format_cpus(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let written = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(",")
}

/// The plan of a target at these addresses, of which there is at least one.
pub(super) fn build_plan(
    workload: &Workload,
    mut targets: Vec<Addr>,
    threads: &Threads,
    (load, client): (&Load, &Client),
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
        pipeline: match workload.protocol.is_http2() {
            true => load.streams.unwrap_or(1),
            false => load.pipeline.unwrap_or(1),
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

/// Ready to be carried out.
pub(super) fn open_session(plan: Plan, workload: &Workload) -> Result<Session, CliError> {
    Session::new(plan, workload.traffic.clone()).map_err(|error| match error {
        // What flags and scenario say together makes no sense.
        RunError::Plan { .. } | RunError::Tls(_) => CliError::Usage(error.to_string()),
        _ => CliError::other(error),
    })
}

/// A connection has both ends in one family.
pub(super) fn check_sources(sources: &[Addr], target: &Addr) -> Result<(), CliError> {
    let fits = |source: &&Addr| match (source, target) {
        (Addr::Inet(source), Addr::Inet(target)) => source.is_ipv4() == target.is_ipv4(),
        _ => false,
    };
    match sources.iter().find(|source| !fits(source)) {
        None => Ok(()),
        Some(Addr::Inet(source)) => Err(CliError::Usage(format!(
            "--source: nothing can connect from {} to {target}: expected an address of its family",
            source.ip()
        ))),
        Some(other) => Err(CliError::Usage(format!(
            "--source: expected an IP address, found {other}"
        ))),
    }
}
