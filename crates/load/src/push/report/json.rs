//! A fan-out as one JSON document, for programs: of kind `push`, in the form of all documents of [`crate::report::json`].
//!
//! Names end in their unit; what there is none of is `null`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::Run;
use crate::figures::Latency;
use crate::push::figures::Disconnects;
use crate::push::knee::Searched;
use crate::push::plan::{BrokerPlan, Format, Transport};
use crate::report::json::{Tls, document};
use crate::report::{Remark, Severity, per_second};

/// The document of a run against a target that the user calls `name`.
#[must_use]
pub fn run(run: &Run, name: &str, remarks: &[Remark]) -> String {
    document("push", &Document::of(run, name, remarks))
}

/// The document of a search, of kind `push-search`: what it has found, and the last of the runs that confirmed it.
#[must_use]
pub fn search(searched: &Searched, name: &str, remarks: &[Remark]) -> String {
    let found = &searched.found;
    let (broke, why) = found
        .broke
        .as_ref()
        .map_or((None, &[][..]), |(rate, why)| (Some(*rate), why));
    let document_of = |run| Document::of(run, name, remarks);
    document(
        "push-search",
        &SearchDocument {
            search: Search {
                held_per_s: found.held,
                held_deliveries_per_s: searched.deliveries_per_second().collect(),
                broke_per_s: broke,
                why: why.iter().map(ToString::to_string).collect(),
                is_clients_limit: searched.is_clients_limit(),
                steps: found.steps,
            },
            run: searched.confirmed.last().map(document_of),
        },
    )
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushSearchDocument")]
pub(crate) struct SearchDocument<'a> {
    search: Search,
    run: Option<Document<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushSearch")]
struct Search {
    /// Publications a second.
    held_per_s: Option<f64>,
    /// Deliveries a second of each run that confirmed it.
    held_deliveries_per_s: Vec<f64>,
    broke_per_s: Option<f64>,
    why: Vec<String>,
    /// Then the server may keep more.
    is_clients_limit: bool,
    steps: u32,
}

impl<'a> Document<'a> {
    fn of(run: &'a Run, name: &'a str, remarks: &'a [Remark]) -> Document<'a> {
        Document {
            name,
            engine: &run.engine,
            plan: Setup::of(run),
            joined: Joined::of(run),
            published: Published::of(run),
            deliveries: Deliveries::of(run),
            latency: Times::of(&run.heard.fast),
            latency_slow: Times::of(&run.heard.slow),
            last: Times::of(&run.totals.last),
            last_common: Times::of(&run.totals.last_common),
            broker: run.plan.broker.as_ref().map(|plan| Broker::of(run, plan)),
            behind: Times::of(&run.heard.fresh),
            behind_slow: Times::of(&run.heard.fresh_slow),
            clients: Clients::of(run),
            nodes: Node::all(run),
            recovery: run.plan.is_positioned().then(|| Recovery::of(run)),
            client: Client::of(run),
            server: run.server.map(|used| Server {
                cpu_s: used.cpu.as_secs_f64(),
                cpu_s_per_million_deliveries: run.server_cpu_per_million().map(|cpu| cpu.as_secs_f64()),
                peak_memory_bytes: used.peak_memory_bytes,
                memory_a_client_bytes: run.server_bytes_a_client(),
            }),
            remarks: remarks
                .iter()
                .map(|Remark { severity, message }| Said {
                    severity: *severity,
                    message,
                })
                .collect(),
        }
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushDocument")]
pub(crate) struct Document<'a> {
    name: &'a str,
    engine: &'a str,
    plan: Setup<'a>,
    joined: Joined,
    published: Published<'a>,
    deliveries: Deliveries,
    /// From a publication's moment to a client that reads as fast as it can.
    latency: Option<Times>,
    latency_slow: Option<Times>,
    /// To the last of a publication's clients.
    last: Option<Times>,
    last_common: Option<Times>,
    /// Of publications that were written to a broker; `null` if they were not.
    broker: Option<Broker<'a>>,
    /// How far clients' newest values were behind the newest published ones.
    behind: Option<Times>,
    behind_slow: Option<Times>,
    clients: Clients<'a>,
    nodes: Vec<Node<'a>>,
    /// Of clients that connected again; `null` if they were not to recover.
    recovery: Option<Recovery>,
    /// What this program used.
    client: Client,
    server: Option<Server>,
    remarks: Vec<Said<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushSetup")]
struct Setup<'a> {
    target: String,
    path: &'a str,
    transport: &'static str,
    /// How clients' connections were to be secured; `null` if not.
    tls: Option<Tls>,
    clients: u32,
    channels: u32,
    channels_a_client: u32,
    prefix: &'a str,
    rate_per_s: f64,
    common_per_s: Option<f64>,
    size_bytes: u32,
    conflated_s: Option<f64>,
    kill_after_s: Option<f64>,
    kill_every_s: Option<f64>,
    kill_server: Option<KillServer>,
    /// The run number of an external producer's publications, hexadecimal.
    listening_run: Option<String>,
    slow_share: f64,
    slow_pace_share: f64,
    warmup_s: f64,
    duration_s: f64,
    threads: usize,
}

impl<'a> Setup<'a> {
    fn of(run: &'a Run) -> Setup<'a> {
        let plan = &run.plan;
        Setup {
            target: plan.nodes[0].target.to_string(),
            path: &plan.nodes[0].path,
            transport: match plan.transport {
                Transport::WebSocket(Format::Json) => "websocket-json",
                Transport::WebSocket(Format::Protobuf) => "websocket-protobuf",
                Transport::Sse => "sse",
            },
            tls: plan.nodes.iter().find_map(|node| node.tls.as_ref()).map(Tls::of),
            clients: plan.clients,
            channels: plan.channels,
            channels_a_client: plan.each,
            prefix: &plan.prefix,
            rate_per_s: plan.rate,
            common_per_s: plan.common,
            size_bytes: plan.size,
            conflated_s: plan.conflated.map(|span| span.as_secs_f64()),
            kill_after_s: plan.kill.map(|kill| kill.after.as_secs_f64()),
            kill_every_s: plan
                .kill
                .and_then(|kill| kill.every)
                .map(|every| every.as_secs_f64()),
            kill_server: plan.kill_server.map(|kill| KillServer {
                pid: kill.pid,
                after_s: kill.after.as_secs_f64(),
            }),
            listening_run: plan.listening.map(|run| format!("{run:08x}")),
            slow_share: plan.slow,
            slow_pace_share: plan.slow_pace,
            warmup_s: plan.warmup.as_secs_f64(),
            duration_s: plan.duration.as_secs_f64(),
            threads: plan.threads,
        }
    }
}

/// A process that received SIGKILL.
#[derive(JsonSchema, Serialize)]
struct KillServer {
    pid: u32,
    /// As planned, from the time at which publications count.
    after_s: f64,
}

/// An endpoint that clients connect to.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushNode")]
struct Node<'a> {
    url: &'a str,
    address: String,
    /// Clients whose first session was there.
    clients: u64,
    clients_at_end: u64,
    /// Sessions that ended without being cut off on purpose.
    sessions_ended: u64,
    /// Of those, after a server was killed.
    sessions_ended_by_kill: u64,
}

impl<'a> Node<'a> {
    fn all(run: &'a Run) -> Vec<Node<'a>> {
        let nodes = run.plan.nodes.iter().enumerate();
        let node = nodes.map(|(number, node)| {
            let counts = run.heard.nodes.get(number).copied().unwrap_or_default();
            Node {
                url: &node.name,
                address: node.target.to_string(),
                clients: counts.joined,
                clients_at_end: counts.at_end,
                sessions_ended: counts.ended,
                sessions_ended_by_kill: counts.ended_by_kill,
            }
        });
        node.collect()
    }
}

#[derive(JsonSchema, Serialize)]
struct Joined {
    took_s: f64,
    clients_per_s: f64,
    connect: Option<Times>,
    /// From having a connection to having it secured; none without TLS.
    handshake: Option<Times>,
    /// Connecting and subscribing, together.
    ready: Option<Times>,
    server_cpu_s: Option<f64>,
}

impl Joined {
    fn of(run: &Run) -> Joined {
        Joined {
            took_s: run.joined.took.as_secs_f64(),
            clients_per_s: run.joins_per_second(),
            connect: Times::of(&run.heard.connect),
            handshake: Times::of(&run.heard.handshake),
            ready: Times::of(&run.heard.ready),
            server_cpu_s: run.joined.server_cpu.map(|cpu| cpu.as_secs_f64()),
        }
    }
}

#[derive(JsonSchema, Serialize)]
struct Published<'a> {
    due: u64,
    accepted: u64,
    refused: Vec<Ended<'a>>,
    unanswered: u64,
    unsent: u64,
    broken_connections: u64,
    /// How late they were sent.
    lag: Option<Times>,
    answer: Option<Times>,
    sent_bytes: u64,
}

impl<'a> Published<'a> {
    fn of(run: &'a Run) -> Published<'a> {
        let published = &run.published;
        Published {
            due: published.due,
            accepted: published.accepted,
            refused: Ended::all(&published.refused),
            unanswered: published.unanswered,
            unsent: published.unsent,
            broken_connections: published.broken,
            lag: Times::of(&published.lag),
            answer: Times::of(&published.answer),
            sent_bytes: published.bytes_sent,
        }
    }
}

/// Publications as records of a broker.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushBroker")]
struct Broker<'a> {
    url: &'a str,
    /// The point at which the broker acknowledges a record.
    acknowledges: &'static str,
    /// Whether values are commands of the server API.
    commands: bool,
    /// From a publication's moment to the broker's acknowledgement.
    acknowledged: Option<Times>,
    /// From the broker's acknowledgement to the last of a publication's clients.
    to_last_client: Option<Times>,
    /// From the broker's acknowledgement to a plain consumer.
    to_consumer: Option<Times>,
    /// From a publication's moment to a plain consumer.
    consumed: Option<Times>,
}

impl<'a> Broker<'a> {
    fn of(run: &'a Run, plan: &'a BrokerPlan) -> Broker<'a> {
        let totals = &run.totals;
        Broker {
            url: plan.broker.url(),
            acknowledges: plan.broker.acknowledges(),
            commands: plan.commands,
            acknowledged: Times::of(&totals.acknowledged),
            to_last_client: Times::of(&totals.last_after),
            to_consumer: Times::of(&totals.consumed_after),
            consumed: Times::of(&totals.consumed),
        }
    }
}

#[derive(JsonSchema, Serialize)]
struct Deliveries {
    expected: u64,
    expected_slow: u64,
    delivered: u64,
    delivered_slow: u64,
    /// `null` for publications of an external producer, which are counted while clients connect, too.
    delivered_per_s: Option<f64>,
    lost: u64,
    lost_slow: u64,
    conflated: u64,
    doubled: u64,
    reordered: u64,
    /// Recoveries reported as complete after which a publication is missing; `null` if they were not checked.
    falsely_recovered: Option<u64>,
    /// Positions (epoch and offset of a channel) under which clients received different publications; `null` if they were not compared.
    conflicting: Option<u64>,
    /// Positions that clients of several nodes received.
    positions_compared: u64,
    /// Deliveries beyond the limit of comparisons.
    deliveries_not_compared: u64,
    too_old_to_tell: u64,
    misdelivered: u64,
    changed: u64,
    /// Subscriptions that lack their channel's last publication at the end.
    without_last: u64,
    /// Publications that not all clients have.
    incomplete_publications: u64,
}

impl Deliveries {
    fn of(run: &Run) -> Deliveries {
        let (counts, conflates) = (&run.heard.counts, run.plan.conflated.is_some());
        let missing = [run.missing(), run.missing_slow()];
        let is_audited = run.plan.is_audited();
        let [lost, lost_slow] = if conflates { [0, 0] } else { missing };
        Deliveries {
            expected: run.totals.expected,
            expected_slow: run.totals.expected_slow,
            delivered: counts.delivered,
            delivered_slow: counts.delivered_slow,
            delivered_per_s: match run.plan.listening {
                None => Some(per_second(run.delivered(), run.plan.duration)),
                Some(_) => None,
            },
            lost,
            lost_slow,
            conflated: if conflates { missing.iter().sum() } else { 0 },
            doubled: counts.doubled,
            reordered: counts.reordered,
            falsely_recovered: is_audited.then_some(counts.falsely_recovered),
            conflicting: is_audited.then_some(counts.conflicting),
            positions_compared: counts.compared,
            deliveries_not_compared: counts.not_compared,
            too_old_to_tell: counts.old,
            misdelivered: counts.misdelivered,
            changed: counts.changed,
            without_last: counts.behind_at_end,
            incomplete_publications: run.totals.incomplete,
        }
    }
}

#[derive(JsonSchema, Serialize)]
struct Clients<'a> {
    slow: u32,
    disconnects: Vec<Ended<'a>>,
    unsubscribes: Vec<Ended<'a>>,
    reconnects: u64,
    gone: u64,
    connect_errors: Vec<Ended<'a>>,
    received_bytes: u64,
    messages: u64,
    pings: u64,
    /// TLS handshakes, by version and suite.
    tls: &'a BTreeMap<String, u64>,
    tls_resumed: u64,
}

impl<'a> Clients<'a> {
    fn of(run: &'a Run) -> Clients<'a> {
        let counts = &run.heard.counts;
        let errors = counts.connect_errors.iter();
        Clients {
            slow: run.totals.slow_clients,
            disconnects: Ended::all(&counts.disconnects),
            unsubscribes: Ended::all(&counts.unsubscribes),
            reconnects: counts.reconnects,
            gone: counts.gone,
            connect_errors: errors.map(|(how, count)| Ended { how, count: *count }).collect(),
            received_bytes: counts.bytes_received,
            messages: counts.messages,
            pings: counts.pings,
            tls: &counts.tls,
            tls_resumed: counts.tls_resumed,
        }
    }
}

#[derive(JsonSchema, Serialize)]
struct Recovery {
    clients_cut: u64,
    clients_back: u64,
    /// Until all stood again, at most; none if some never did.
    all_back_s: Option<f64>,
    /// The same of each client.
    back: Option<Times>,
    /// When the process of `kill_server` received SIGKILL, from the time at which publications count.
    server_killed_after_s: Option<f64>,
    /// Subscriptions of clients that connected again, recovered or not.
    subscriptions_resumed: u64,
    /// Reported as complete (`recovered: true`).
    subscriptions_recovered: u64,
    /// Of those, with a publication missing nevertheless.
    subscriptions_falsely_recovered: u64,
    /// The server does not have all that they missed.
    subscriptions_unrecovered: u64,
    /// Nobody knew where they had stood.
    subscriptions_without_position: u64,
    deliveries: u64,
    /// From a publication's moment to a client that had missed it.
    latency: Option<Times>,
    server_cpu_s_a_client: Option<f64>,
    times: Vec<Cut>,
}

/// One time at which all clients were cut off, or a server was killed.
#[derive(JsonSchema, Serialize)]
struct Cut {
    clients_cut: u64,
    clients_back: u64,
    last_back_s: f64,
    busiest_thread_share: f64,
    server_cpu_s: Option<f64>,
}

impl Recovery {
    fn of(run: &Run) -> Recovery {
        let (counts, (cut, back)) = (&run.heard.counts, run.cut_and_back());
        let times = run.heard.outages.iter().map(|outage| Cut {
            clients_cut: outage.cut,
            clients_back: outage.back,
            last_back_s: outage.took.as_secs_f64(),
            busiest_thread_share: outage.busy,
            server_cpu_s: outage.server_cpu.map(|cpu| cpu.as_secs_f64()),
        });
        Recovery {
            clients_cut: cut,
            clients_back: back,
            all_back_s: run.all_back().map(|took| took.as_secs_f64()),
            back: Times::of(&run.heard.back),
            server_killed_after_s: run.killed_after.map(|after| after.as_secs_f64()),
            subscriptions_resumed: run.recovery_attempts(),
            subscriptions_recovered: counts.recoveries,
            subscriptions_falsely_recovered: counts.falsely_recovered,
            subscriptions_unrecovered: counts.unrecovered,
            subscriptions_without_position: counts.unplaced,
            deliveries: counts.by_recovery,
            latency: Times::of(&run.heard.recovered),
            server_cpu_s_a_client: run.server_cpu_a_return().map(|cpu| cpu.as_secs_f64()),
            times: times.collect(),
        }
    }
}

/// How something ended, and how often.
#[derive(JsonSchema, Serialize)]
struct Ended<'a> {
    how: &'a str,
    count: u64,
}

impl<'a> Ended<'a> {
    fn all(ends: &'a Disconnects) -> Vec<Ended<'a>> {
        ends.iter().map(|(how, count)| Ended { how, count }).collect()
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushClient")]
struct Client {
    /// Of each thread; the last one publishes.
    cpu_s: Vec<f64>,
    memory_a_client_bytes: Option<u64>,
    /// How long bytes waited until they were looked at.
    behind: Option<Times>,
}

impl Client {
    fn of(run: &Run) -> Client {
        Client {
            cpu_s: run
                .efforts
                .iter()
                .map(|effort| effort.cpu.as_secs_f64())
                .collect(),
            memory_a_client_bytes: run.own_bytes_a_client(),
            behind: Times::of(&run.heard.behind),
        }
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PushServer")]
struct Server {
    cpu_s: f64,
    cpu_s_per_million_deliveries: Option<f64>,
    peak_memory_bytes: u64,
    memory_a_client_bytes: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
struct Times {
    count: u64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Times {
    fn of(latency: &Latency) -> Option<Times> {
        let all = latency.percentiles();
        let us = |span: std::time::Duration| span.as_nanos() as f64 / 1000.0;
        (latency.count() > 0).then(|| Times {
            count: latency.count(),
            p50_us: us(all.p50),
            p90_us: us(all.p90),
            p99_us: us(all.p99),
            p999_us: us(all.p999),
            max_us: us(all.max),
        })
    }
}

#[derive(JsonSchema, Serialize)]
struct Said<'a> {
    severity: Severity,
    message: &'a str,
}
