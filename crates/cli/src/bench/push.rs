//! `ringmain bench push`: clients that listen, publications to them, and what came of both.

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
use super::interrupt::Interrupt;
use super::output;
use super::output::Sinks;
use super::place::{Watched, addresses, open};
use super::secure::{ALPN_HTTP1, check_used, secured};
use super::task::{check_sources, cpus};
use crate::args::EngineName;
use crate::args::bench::push::{PublishAs, Push};
use crate::failure::Failure;
use crate::limits::LIVE_LINE;
use crate::secret::secret;

/// Where servers of the protocol have it, unless the URL says otherwise.
const WEBSOCKET: &str = "/connection/websocket";
const SSE: &str = "/connection/uni_sse";
const PUBLISH: &str = "/api/publish";

/// The same for several at once.
const BATCH: &str = "/api/batch";

/// Descriptors that a thread of clients needs besides theirs.
const SPARE: u64 = 256;

/// Publications a second if nobody says how many.
const RATE: f64 = 10.0;

/// Carries it out.
pub(super) fn run(args: &Push) -> Result<(), Failure> {
    if let Some(what) = args.contradiction() {
        return Err(Failure::Usage(what));
    }
    let broker = broker::broker(&args.publications)?;
    let targets = targets(&args.targets)?;
    let target = &targets[0];
    let publishing = publishing(args, target)?;
    let posts = publishing.as_ref().and_then(|(to, _)| to.secured_as.as_ref());
    let is_secured = targets.iter().any(|target| target.secured_as.is_some());
    check_used(&args.tls, is_secured || posts.is_some())?;
    let names = targets.iter().map(|target| target.secured_as.clone());
    let tls = names.map(|name| name.map(|name| secured(name, ALPN_HTTP1, &args.tls)).transpose());
    let tls = tls.collect::<Result<Vec<_>, _>>()?;
    let allowed = cpu::allowed();
    let cpus = cpus(args.client.cpus.as_ref(), &args.server.started, &allowed)?;
    let sinks = Sinks::json(args.results.json.as_ref(), args.results.quiet)?;
    let interrupt = super::prepare(args.results.quiet)?;
    let started = &args.server.started;
    let watched = match (&args.server.server, args.server.server_pid) {
        (Some(command), _) => Watched::Command(command),
        (None, Some(pid)) => Watched::Process(pid),
        (None, None) => Watched::Nothing,
    };
    let (mut server, mut reached) = open(&addresses(&target.place)?, watched, started, &interrupt)?;
    // Clients of push go to one address: what they receive is accounted for as one server's.
    let addr = reached.remove(0);
    let nodes = nodes(args, targets.iter().zip(tls), &addr, &interrupt)?;
    let publishing = match publishing {
        Some((to, form)) => Some(Publishing {
            target: match to.place == target.place {
                true => addr.clone(),
                false => reach(&addresses(&to.place)?).map_err(Failure::other)?,
            },
            tls: publishing_tls(args, target, &to)?,
            host: to.host,
            path: to.path,
            api_key: secret(
                args.publications.api_key.as_deref(),
                args.publications.api_key_file.as_deref(),
            )?,
            form,
            connections: args.publications.publishers,
        }),
        None => None,
    };
    let plan = plan(args, target.scheme, nodes, (publishing, broker), cpus, &allowed)?;
    let shared = shared(server.as_ref(), args, &plan, &allowed);
    let session = Session::new(plan).map_err(failed)?;
    interrupt.tells(session.stop());
    let mut live = Live::new(args.results.quiet);
    if args.search.find_max {
        return find_max(args, &session, server.as_mut(), &shared, live, sinks);
    }
    let run = session
        .run(server.as_mut(), &mut |progress| live.show(progress))
        .map_err(failed)?;
    let remarks = run.remarks(&shared);
    let name = name(args);
    sinks.write(
        &remarks,
        || text::run(&run, &name, &remarks, output::style()),
        || json::run(&run, &name, &remarks),
        String::new,
    )?;
    match run.failure() {
        Some(failure) => Err(Failure::Other(format!("{name}: {failure}"))),
        None => Ok(()),
    }
}

/// Searches the highest rate.
fn find_max(
    args: &Push,
    session: &Session,
    server: Option<&mut Server>,
    shared: &[usize],
    live: Live,
    sinks: Sinks,
) -> Result<(), Failure> {
    let live = RefCell::new(live);
    let name = name(args);
    let searched = session
        .search(
            &args.search.slo,
            server,
            &mut |progress| live.borrow_mut().show(progress),
            &mut |step, outcome| live.borrow().told(step, outcome),
        )
        .map_err(failed)?;
    let Some(last) = searched.confirmed.last() else {
        sinks.write_json(|| json::search(&searched, &name, &[]))?;
        return Err(Failure::Other(text::found(&searched)));
    };
    let remarks = last.remarks(shared);
    sinks.write(
        &remarks,
        || text::search(&searched, &name, &remarks, output::style()),
        || json::search(&searched, &name, &remarks),
        String::new,
    )
}

fn failed(error: PushError) -> Failure {
    match error {
        PushError::Plan { .. } => Failure::Usage(error.to_string()),
        _ => Failure::other(error),
    }
}

/// The name of the run in reports: all URLs.
fn name(args: &Push) -> String {
    args.targets.join(" ")
}

/// Reads the URLs of all nodes, which clients speak the same to.
fn targets(texts: &[String]) -> Result<Vec<Target>, Failure> {
    let targets = texts
        .iter()
        .map(|text| target(text))
        .collect::<Result<Vec<_>, _>>()?;
    let scheme = targets[0].scheme;
    match targets.iter().position(|target| target.scheme != scheme) {
        None => Ok(targets),
        Some(other) => Err(Failure::Usage(format!(
            "{}: expected the transport of the first URL, {}, for all nodes",
            texts[other], texts[0]
        ))),
    }
}

/// Returns the nodes, each of which accepts connections. The first one has been reached at `first`; where this program has started the
/// servers, the others may take a while.
fn nodes<'a>(
    args: &Push,
    targets: impl Iterator<Item = (&'a Target, Option<Tls>)>,
    first: &Addr,
    interrupt: &Interrupt,
) -> Result<Vec<Node>, Failure> {
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
fn reach_node(args: &Push, target: &Target, interrupt: &Interrupt) -> Result<Addr, Failure> {
    let addrs = addresses(&target.place)?;
    let patience = match args.server.server {
        Some(_) => args.server.started.server_wait.0,
        None => Duration::ZERO,
    };
    let end = clock::monotonic() + patience;
    loop {
        match reach(&addrs) {
            Ok(addr) => return Ok(addr),
            Err(error) if clock::monotonic() >= end => return Err(Failure::other(error)),
            Err(_) if interrupt.pause(limits::SERVER_LOOK) => {}
            Err(error) => return Err(Failure::other(error)),
        }
    }
}

/// Where clients connect to.
fn target(text: &str) -> Result<Target, Failure> {
    let mut target = Target::parse(text).map_err(|error| Failure::Usage(error.to_string()))?;
    let usual = match target.scheme {
        Scheme::WebSocket => WEBSOCKET,
        Scheme::Http => SSE,
        Scheme::Tcp => {
            return Err(Failure::Usage(format!(
                "{text}: expected ws://HOST[:PORT][/PATH] or http://HOST[:PORT][/PATH], or wss:// or https://"
            )));
        }
    };
    if target.path == "/" {
        usual.clone_into(&mut target.path);
    }
    Ok(target)
}

/// Where publications are posted to, and in what form.
fn publishing(args: &Push, clients: &Target) -> Result<Option<(Target, Form)>, Failure> {
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
    let to = Target::parse(text).map_err(|error| Failure::Usage(format!("--publish: {error}")))?;
    if to.scheme != Scheme::Http {
        return Err(Failure::Usage(format!(
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

/// How publishing is secured. The name of `--sni` is that of the host that clients connect to.
fn publishing_tls(args: &Push, clients: &Target, to: &Target) -> Result<Option<Tls>, Failure> {
    let Some(name) = to.secured_as.clone() else {
        return Ok(None);
    };
    let mut tls = secured(name.clone(), ALPN_HTTP1, &args.tls)?;
    if clients.secured_as.as_ref().is_some_and(|other| *other != name) {
        tls.name = name;
    }
    Ok(Some(tls))
}

fn plan(
    args: &Push,
    scheme: Scheme,
    nodes: Vec<Node>,
    (publishing, broker): (Option<Publishing>, Option<BrokerPlan>),
    cpus: Vec<usize>,
    allowed: &[usize],
) -> Result<Plan, Failure> {
    let (audience, publications, time) = (&args.audience, &args.publications, &args.time);
    let sources: Vec<Addr> = args.client.source.iter().flatten().cloned().collect();
    for node in &nodes {
        check_sources(&sources, &node.target)?;
    }
    let default_rate = if publications.common.is_some() { 0.0 } else { RATE };
    let listening = publications.listen_only;
    let publishes = publishing.is_some() || broker.is_some();
    Ok(Plan {
        nodes,
        transport: transport(scheme, audience.protobuf)?,
        token: audience.token.clone(),
        sources,
        clients: audience.clients,
        channels: audience.channels,
        each: audience.each,
        prefix: audience.prefix.clone(),
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
        slow: audience.slow,
        slow_pace: audience.slow_pace,
        connect_rate: audience.connect_rate,
        kill: audience.kill.map(|after| Kill {
            after: after.0,
            every: audience.kill_every.map(|every| every.0),
        }),
        kill_server: audience.kill_server.map(|kill| KillServer {
            pid: kill.pid,
            after: kill.after.0,
        }),
        reconnect: audience.reconnect.0,
        listening,
        timeout: audience.timeout.0,
        connect_timeout: audience.connect_timeout.0,
        warmup: if listening.is_some() {
            Duration::ZERO
        } else {
            time.warmup.0
        },
        duration: time.duration.0,
        settle: time.settle.0,
        threads: threads(args, if cpus.is_empty() { allowed } else { &cpus }.len()),
        cpus,
        engine: match args.client.engine {
            EngineName::Auto => Choice::Auto,
            EngineName::Uring => Choice::Uring,
            EngineName::Epoll => Choice::Epoll,
        },
    })
}

/// Returns what clients speak.
fn transport(scheme: Scheme, protobuf: bool) -> Result<Transport, Failure> {
    Ok(match (scheme, protobuf) {
        (Scheme::WebSocket, false) => Transport::WebSocket(Format::Json),
        (Scheme::WebSocket, true) => Transport::WebSocket(Format::Protobuf),
        (_, false) => Transport::Sse,
        (_, true) => {
            return Err(Failure::Usage(
                "--protobuf is for ws:// targets: events are text; drop it".into(),
            ));
        }
    })
}

/// Threads of clients: one a CPU, and as many more as there must be tables of descriptors, none of which holds more than the
/// process may open.
fn threads(args: &Push, cpus: usize) -> usize {
    let clients = args.audience.clients as usize;
    let files =
        ringmain_sys::limits::raise_open_files().unwrap_or_else(|_| ringmain_sys::limits::open_files().0);
    let table = usize::try_from(files.saturating_sub(SPARE))
        .unwrap_or(usize::MAX)
        .max(1);
    let default = cpus.max(clients.div_ceil(table));
    args.client.threads.unwrap_or(default).min(clients).max(1)
}

/// The CPUs that both sides may run on.
fn shared(server: Option<&Server>, args: &Push, plan: &Plan, allowed: &[usize]) -> Vec<usize> {
    let pinned = args.server.started.server_cpus.clone();
    let servers = server.and_then(|server| pinned.or_else(|| cpu::allowed_of(server.pid()).ok()));
    let clients = if plan.cpus.is_empty() { allowed } else { &plan.cpus };
    let mut shared: Vec<usize> = servers.unwrap_or_default();
    shared.retain(|cpu| clients.contains(cpu));
    shared
}

/// A line now and then, on standard error.
struct Live {
    quiet: bool,
    said: Duration,
    delivered: u64,
    step: u8,
}

impl Live {
    fn new(quiet: bool) -> Live {
        Live {
            quiet,
            said: clock::monotonic(),
            delivered: 0,
            step: 0,
        }
    }

    /// How a step of a search went.
    fn told(&self, step: &Step, outcome: &Outcome<Break>) {
        if self.quiet {
            return;
        }
        let phase = match step.phase {
            Phase::Ramp => "looking for the range",
            Phase::Bisect => "closing in",
            Phase::Confirm(_) => "confirming",
        };
        let broke: Vec<String> = outcome.broke.iter().map(ToString::to_string).collect();
        let how = if broke.is_empty() {
            "kept".to_owned()
        } else {
            broke.join("; ")
        };
        output::to_standard_error(&format!(
            "{} publications/s ({phase}): {how}",
            amount::number(step.rate)
        ));
    }

    fn show(&mut self, progress: Progress) {
        let now = clock::monotonic();
        let passed = now.saturating_sub(self.said);
        let step = match progress {
            Progress::Joining(_) => 0,
            Progress::Warming => 1,
            Progress::Counting(_) => 2,
            Progress::Settling => 3,
        };
        let is_new = std::mem::replace(&mut self.step, step) != step;
        if self.quiet || (!is_new && passed < LIVE_LINE) {
            return;
        }
        self.said = now;
        output::to_standard_error(&match progress {
            Progress::Joining(standing) => format!("{} clients stand", amount::count(standing.into())),
            Progress::Warming => "all clients stand; warming up".into(),
            Progress::Counting(_) if is_new => {
                self.delivered = 0;
                "counting".into()
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
            Progress::Settling => "all is published; waiting for what is on its way".into(),
        });
    }
}
