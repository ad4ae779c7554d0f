//! `ringmain bench push`: subscribers, publications, and the results of both.

use std::cell::RefCell;
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_load::knee::{Outcome, Phase, Step};
use ringmain_load::limits;
use ringmain_load::plan::Tls;
use ringmain_load::push::knee::Break;
use ringmain_load::push::report::{json, text};
use ringmain_load::push::{
    BrokerPlan, Form, Format, Kill, KillServer, Node, Plan, Progress, Publishing, PushError, Session,
    Transport,
};
use ringmain_load::report::amount;
use ringmain_load::server::{Server, reach};
use ringmain_load::target::{Scheme, Target};
use ringmain_sys::{clock, cpu};

use super::broker;
use super::client_tls::{ALPN_HTTP1, check_tls_used, client_tls};
use super::interrupt::Interrupt;
use super::output;
use super::output::Sinks;
use super::request::{check_sources, client_cpus};
use super::resolve_target::{ServerSource, reach_target, resolve_addresses};
use crate::args::EngineName;
use crate::args::bench::push::{PublishAs, Push};
use crate::error::CliError;
use crate::limits::LIVE_LINE_INTERVAL;
use crate::secret::read_secret;

/// Default paths of the protocol's endpoints.
const WEBSOCKET: &str = "/connection/websocket";
const SSE: &str = "/connection/uni_sse";
const PUBLISH: &str = "/api/publish";

/// The default path for batches.
const BATCH: &str = "/api/batch";

/// Descriptors of a client thread, besides those of its clients.
const SPARE: u64 = 256;

/// Default number of publications per second.
const RATE: f64 = 10.0;

/// Runs the command.
pub(super) fn run(args: &Push) -> Result<(), CliError> {
    if let Some(what) = args.contradiction() {
        return Err(CliError::Usage(what));
    }
    let broker = broker::broker_plan(&args.publications)?;
    let targets = parse_targets(&args.targets)?;
    let target = &targets[0];
    let publishing = publish_target(args, target)?;
    let posts = publishing.as_ref().and_then(|(to, _)| to.secured_as.as_ref());
    let is_secured = targets.iter().any(|target| target.secured_as.is_some());
    check_tls_used(&args.tls, is_secured || posts.is_some())?;
    let names = targets.iter().map(|target| target.secured_as.clone());
    let tls = names.map(|name| {
        name.map(|name| client_tls(name, ALPN_HTTP1, &args.tls))
            .transpose()
    });
    let tls = tls.collect::<Result<Vec<_>, _>>()?;
    let allowed = cpu::allowed();
    let cpus = client_cpus(args.client.cpus.as_ref(), &args.server.started, &allowed)?;
    let sinks = Sinks::json(args.results.json.as_ref(), args.results.quiet)?;
    let interrupt = super::init_process(args.results.quiet)?;
    let started = &args.server.started;
    let watched = match (&args.server.server, args.server.server_pid) {
        (Some(command), _) => ServerSource::Command(command),
        (None, Some(pid)) => ServerSource::Process(pid),
        (None, None) => ServerSource::Nothing,
    };
    let (mut server, mut reached) =
        reach_target(&resolve_addresses(&target.place)?, watched, started, &interrupt)?;
    // Clients connect to one address: their results are those of one server.
    let addr = reached.remove(0);
    let nodes = reach_nodes(args, targets.iter().zip(tls), &addr, &interrupt)?;
    let publishing = publishing
        .map(|(to, form)| connect_publishing(args, target, &addr, to, form))
        .transpose()?;
    let plan = build_plan(args, target.scheme, nodes, publishing, broker, cpus, &allowed)?;
    let shared = shared_cpus(server.as_ref(), args, &plan, &allowed);
    let session = Session::new(plan).map_err(push_error)?;
    interrupt.set_on_interrupt(session.stop());
    let mut live = ProgressLines::new(args.results.quiet);
    if args.search.find_max {
        return search_highest_rate(args, &session, server.as_mut(), &shared, live, sinks);
    }
    let run = session
        .run(server.as_mut(), &mut |progress| live.show_progress(progress))
        .map_err(push_error)?;
    let remarks = run.remarks(&shared);
    let name = run_name(args);
    sinks.write(
        &remarks,
        || text::run(&run, &name, &remarks, output::terminal_style()),
        || json::run(&run, &name, &remarks),
        String::new,
    )?;
    match run.failure() {
        Some(failure) => Err(CliError::Other(format!("{name}: {failure}"))),
        None => Ok(()),
    }
}

/// Returns the settings of publish requests to `to`. Clients connect to `target` at `addr`.
fn connect_publishing(
    args: &Push,
    target: &Target,
    addr: &Addr,
    to: Target,
    form: Form,
) -> Result<Publishing, CliError> {
    let publications = &args.publications;
    Ok(Publishing {
        target: if to.place == target.place {
            addr.clone()
        } else {
            reach(&resolve_addresses(&to.place)?).map_err(CliError::other)?
        },
        tls: publishing_tls(args, target, &to)?,
        host: to.host,
        path: to.path,
        api_key: read_secret(
            publications.api_key.as_deref(),
            publications.api_key_file.as_deref(),
        )?,
        form,
        connections: publications.publishers,
    })
}

/// Searches the highest rate.
fn search_highest_rate(
    args: &Push,
    session: &Session,
    server: Option<&mut Server>,
    shared: &[usize],
    live: ProgressLines,
    sinks: Sinks,
) -> Result<(), CliError> {
    let live = RefCell::new(live);
    let name = run_name(args);
    let searched = session
        .search(
            &args.search.slo,
            server,
            &mut |progress| live.borrow_mut().show_progress(progress),
            &mut |step, outcome| live.borrow().print_step(step, outcome),
        )
        .map_err(push_error)?;
    let Some(last) = searched.confirmed.last() else {
        sinks.write_json(|| json::search(&searched, &name, &[]))?;
        return Err(CliError::Other(text::found(&searched)));
    };
    let remarks = last.remarks(shared);
    sinks.write(
        &remarks,
        || text::search(&searched, &name, &remarks, output::terminal_style()),
        || json::search(&searched, &name, &remarks),
        String::new,
    )
}

fn push_error(error: PushError) -> CliError {
    match error {
        PushError::Plan { .. } => CliError::Usage(error.to_string()),
        _ => CliError::other(error),
    }
}

/// The name of the run in reports: all URLs.
fn run_name(args: &Push) -> String {
    args.targets.join(" ")
}

/// Parses the URLs of the nodes, which must have the same transport.
fn parse_targets(texts: &[String]) -> Result<Vec<Target>, CliError> {
    let targets = texts
        .iter()
        .map(|text| parse_target(text))
        .collect::<Result<Vec<_>, _>>()?;
    let scheme = targets[0].scheme;
    match targets.iter().position(|target| target.scheme != scheme) {
        None => Ok(targets),
        Some(other) => Err(CliError::Usage(format!(
            "{}: expected the transport of the first URL, {}, for all nodes",
            texts[other], texts[0]
        ))),
    }
}

/// Returns the nodes, each of which accepts connections. The first one is reachable at `first`; if this program has started
/// the servers, the others may need some time.
fn reach_nodes<'a>(
    args: &Push,
    targets: impl Iterator<Item = (&'a Target, Option<Tls>)>,
    first: &Addr,
    interrupt: &Interrupt,
) -> Result<Vec<Node>, CliError> {
    let mut nodes = Vec::with_capacity(args.targets.len());
    for (number, ((target, tls), url)) in targets.zip(&args.targets).enumerate() {
        let addr = match number {
            0 => first.clone(),
            _ => reach_node(args, target, interrupt)?,
        };
        nodes.push(Node {
            name: url.clone(),
            target: addr,
            host: target.host.clone(),
            path: target.path.clone(),
            tls,
        });
    }
    Ok(nodes)
}

/// Returns an address of a node that accepts connections.
fn reach_node(args: &Push, target: &Target, interrupt: &Interrupt) -> Result<Addr, CliError> {
    let addrs = resolve_addresses(&target.place)?;
    let patience = match args.server.server {
        Some(_) => args.server.started.server_wait.0,
        None => Duration::ZERO,
    };
    let end = clock::monotonic() + patience;
    loop {
        match reach(&addrs) {
            Ok(addr) => return Ok(addr),
            Err(error) if clock::monotonic() >= end => return Err(CliError::other(error)),
            Err(_) if interrupt.pause(limits::SERVER_LOOK) => {}
            Err(error) => return Err(CliError::other(error)),
        }
    }
}

/// Parses the URL of a node.
fn parse_target(text: &str) -> Result<Target, CliError> {
    let mut target = Target::parse(text).map_err(|error| CliError::Usage(error.to_string()))?;
    let usual = match target.scheme {
        Scheme::WebSocket => WEBSOCKET,
        Scheme::Http => SSE,
        Scheme::Tcp => {
            return Err(CliError::Usage(format!(
                "{text}: expected ws://HOST[:PORT][/PATH] or http://HOST[:PORT][/PATH], or wss:// or https://"
            )));
        }
    };
    if target.path == "/" {
        usual.clone_into(&mut target.path);
    }
    Ok(target)
}

/// Returns the URL of the publish endpoint, and the format of requests.
fn publish_target(args: &Push, clients: &Target) -> Result<Option<(Target, Form)>, CliError> {
    let publications = &args.publications;
    let is_external = publications.listen_only.is_some() || publications.publish_to.is_some();
    if publications.idle || is_external {
        return Ok(None);
    }
    let (form, path) = match (args.publications.publish_as, args.publications.batch) {
        (PublishAs::Api, 1) => (Form::Api, PUBLISH),
        (PublishAs::Api, most) => (Form::Batch(most), BATCH),
        (PublishAs::Lines, most) => (Form::Lines(most), PUBLISH),
    };
    let Some(text) = &args.publications.publish else {
        let own = Target {
            path: format!("{}{path}", api_prefix(&clients.path)),
            scheme: Scheme::Http,
            ..clients.clone()
        };
        return Ok(Some((own, form)));
    };
    let to = Target::parse(text).map_err(|error| CliError::Usage(format!("--publish: {error}")))?;
    if to.scheme != Scheme::Http {
        return Err(CliError::Usage(format!(
            "--publish: expected http://HOST[:PORT]/PATH or https://…, found {text}"
        )));
    }
    Ok(Some((to, form)))
}

/// Returns the part of the path that precedes the server's own endpoints, such as `/live` of `/live/connection/websocket`: the HTTP API
/// of a server behind such a prefix has it, too.
fn api_prefix(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    path.find("/connection/").map_or("", |at| &path[..at])
}

/// Returns the TLS settings of publish requests. `--sni` applies to the host that clients connect to.
fn publishing_tls(args: &Push, clients: &Target, to: &Target) -> Result<Option<Tls>, CliError> {
    let Some(name) = to.secured_as.clone() else {
        return Ok(None);
    };
    let mut tls = client_tls(name.clone(), ALPN_HTTP1, &args.tls)?;
    if clients.secured_as.as_ref().is_some_and(|other| *other != name) {
        tls.name = name;
    }
    Ok(Some(tls))
}

fn build_plan(
    args: &Push,
    scheme: Scheme,
    nodes: Vec<Node>,
    publishing: Option<Publishing>,
    broker: Option<BrokerPlan>,
    cpus: Vec<usize>,
    allowed: &[usize],
) -> Result<Plan, CliError> {
    let (subscribers, publications, time) = (&args.subscribers, &args.publications, &args.time);
    let sources: Vec<Addr> = args.client.source.iter().flatten().cloned().collect();
    for node in &nodes {
        check_sources(&sources, &node.target)?;
    }
    let default_rate = if publications.common.is_some() { 0.0 } else { RATE };
    let listening = publications.listen_only;
    let publishes = publishing.is_some() || broker.is_some();
    Ok(Plan {
        nodes,
        transport: select_transport(scheme, subscribers.protobuf)?,
        token: subscribers.token.clone(),
        sources,
        clients: subscribers.clients,
        channels: subscribers.channels,
        each: subscribers.each,
        prefix: subscribers.prefix.clone(),
        publishing,
        broker,
        rate: if publishes {
            publications.rate.unwrap_or(default_rate)
        } else {
            0.0
        },
        common: publications.common,
        size: publications.size,
        conflated: publications.conflated.map(|time| time.0),
        slow: subscribers.slow,
        slow_pace: subscribers.slow_pace,
        connect_rate: subscribers.connect_rate,
        kill: subscribers.kill.map(|after| Kill {
            after: after.0,
            every: subscribers.kill_every.map(|every| every.0),
        }),
        kill_server: subscribers.kill_server.map(|kill| KillServer {
            pid: kill.pid,
            after: kill.after.0,
        }),
        reconnect: subscribers.reconnect.0,
        listening,
        timeout: subscribers.timeout.0,
        connect_timeout: subscribers.connect_timeout.0,
        warmup: if listening.is_some() {
            Duration::ZERO
        } else {
            time.warmup.0
        },
        duration: time.duration.0,
        settle: time.settle.0,
        threads: thread_count(args, if cpus.is_empty() { allowed } else { &cpus }.len()),
        cpus,
        engine: match args.client.engine {
            EngineName::Auto => Choice::Auto,
            EngineName::Uring => Choice::Uring,
            EngineName::Epoll => Choice::Epoll,
        },
    })
}

/// Returns the transport of clients.
fn select_transport(scheme: Scheme, protobuf: bool) -> Result<Transport, CliError> {
    Ok(match (scheme, protobuf) {
        (Scheme::WebSocket, false) => Transport::WebSocket(Format::Json),
        (Scheme::WebSocket, true) => Transport::WebSocket(Format::Protobuf),
        (_, false) => Transport::Sse,
        (_, true) => {
            return Err(CliError::Usage(
                "--protobuf is for ws:// targets, since server-sent events are text: drop it".into(),
            ));
        }
    })
}

/// Returns the number of client threads: one per CPU, and more if the clients need more descriptor tables than that; a table
/// has at most the descriptors that the process may open.
fn thread_count(args: &Push, cpus: usize) -> usize {
    let clients = args.subscribers.clients as usize;
    let files =
        ringmain_sys::limits::raise_open_files().unwrap_or_else(|_| ringmain_sys::limits::open_files().0);
    let table = usize::try_from(files.saturating_sub(SPARE))
        .unwrap_or(usize::MAX)
        .max(1);
    let default = cpus.max(clients.div_ceil(table));
    args.client.threads.unwrap_or(default).min(clients).max(1)
}

/// Returns the CPUs that client and server share.
fn shared_cpus(server: Option<&Server>, args: &Push, plan: &Plan, allowed: &[usize]) -> Vec<usize> {
    let pinned = args.server.started.server_cpus.clone();
    let servers = server.and_then(|server| pinned.or_else(|| cpu::allowed_of(server.pid()).ok()));
    let clients = if plan.cpus.is_empty() { allowed } else { &plan.cpus };
    let mut shared: Vec<usize> = servers.unwrap_or_default();
    shared.retain(|cpu| clients.contains(cpu));
    shared
}

/// Progress lines on standard error.
struct ProgressLines {
    quiet: bool,
    last_output: Duration,
    delivered: u64,
    step: u8,
}

impl ProgressLines {
    fn new(quiet: bool) -> ProgressLines {
        ProgressLines {
            quiet,
            last_output: clock::monotonic(),
            delivered: 0,
            step: 0,
        }
    }

    /// Prints the result of a search step.
    fn print_step(&self, step: &Step, outcome: &Outcome<Break>) {
        if self.quiet {
            return;
        }
        let phase = match step.phase {
            Phase::Ramp => "ramping up",
            Phase::Bisect => "bisecting",
            Phase::Confirm(_) => "confirming",
        };
        let broke: Vec<String> = outcome.broke.iter().map(ToString::to_string).collect();
        let how = if broke.is_empty() {
            "met".to_owned()
        } else {
            broke.join("; ")
        };
        output::to_standard_error(&format!(
            "{} publications/s ({phase}): {how}",
            amount::number(step.rate)
        ));
    }

    fn show_progress(&mut self, progress: Progress) {
        let now = clock::monotonic();
        let passed = now.saturating_sub(self.last_output);
        let step = match progress {
            Progress::Joining(_) => 0,
            Progress::Warming => 1,
            Progress::Counting(_) => 2,
            Progress::Settling => 3,
        };
        let is_new = std::mem::replace(&mut self.step, step) != step;
        if self.quiet || (!is_new && passed < LIVE_LINE_INTERVAL) {
            return;
        }
        self.last_output = now;
        output::to_standard_error(&match progress {
            Progress::Joining(connected) => format!("{} clients connected", amount::count(connected.into())),
            Progress::Warming => "all clients connected; warming up".into(),
            Progress::Counting(_) if is_new => {
                self.delivered = 0;
                "measuring".into()
            }
            Progress::Counting(delivered) => {
                let since = delivered.saturating_sub(std::mem::replace(&mut self.delivered, delivered));
                let pace = since as f64 / passed.as_secs_f64();
                format!(
                    "{} deliveries, {}/s",
                    amount::count(delivered),
                    amount::number(pace)
                )
            }
            Progress::Settling => "publishing finished; waiting for deliveries in flight".into(),
        });
    }
}
