//! Snapshots of the dashboard: counters turned into rates and percentiles, each second, as one JSON document.
//!
//! Plain functions over plain data; time is a parameter.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_gateway::health::CheckVerdict;
use ringmain_gateway::model::Name;
use ringmain_gateway::stats::upstreams::EndpointStatus;
use ringmain_gateway::stats::{LatencyHistogram, RouteReport, StreamReport};
use ringmain_gateway::{MirrorOutcome, UpstreamStatus, fault::Fault};
use serde::Serialize;

use crate::admin::cluster_status::ClusterStatus;
use crate::limits::{DASHBOARD_ENDPOINTS, DASHBOARD_ROUTES, DASHBOARD_UPSTREAMS, DASHBOARD_WINDOW};

/// All counters at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// By a clock that does not jump.
    pub(super) at: Duration,
    /// Since the Unix epoch.
    pub(super) wall: Duration,
    /// CPU time that the process has used.
    pub(super) cpu: Duration,
    pub(super) uptime: Duration,
    pub(super) memory_bytes: Option<u64>,
    pub(super) engine: &'static str,
    pub(super) workers: usize,
    /// All workers' open connections, including upstreams.
    pub(super) connections: u64,
    pub(super) draining: bool,
    pub(super) config: ConfigSummary,
    /// Invalid HTTP requests.
    pub(super) refused: u64,
    pub(super) routes: Vec<RouteReport>,
    pub(super) streams: Vec<StreamReport>,
    pub(super) upstreams: Vec<UpstreamStatus>,
    pub(super) faults: Vec<(Fault, u64)>,
    pub(super) brokers: Vec<BrokerStatus>,
    /// The cluster that is followed.
    pub(super) kubernetes: Option<ClusterStatus>,
}

/// A source of push: a broker whose records are published.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct BrokerStatus {
    pub(super) name: String,
    /// The kind of its broker.
    pub(super) kind: &'static str,
    pub(super) is_connected: bool,
    /// It cannot deliver its dead letters.
    pub(super) is_degraded: bool,
    /// Connections that were lost, and attempts that led to none.
    pub(super) failures: u64,
    /// Records that were read.
    pub(super) records: u64,
    /// Records that were not published.
    pub(super) dead: u64,
    /// Times at which records were, or may have been, missed.
    pub(super) gaps: Option<u64>,
    /// Records in the broker that were not read yet.
    pub(super) lag: Option<u64>,
    /// The age of the record that was read last, when it was read, in microseconds.
    pub(super) lag_us: Option<u64>,
}

/// The served configuration, and whether it is the one that was read last.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ConfigSummary {
    pub(super) file: String,
    pub(super) is_current: bool,
    pub(super) wrong: usize,
    /// The first error.
    pub(super) first: Option<String>,
}

/// Turns moments into documents.
#[derive(Debug, Default)]
pub(super) struct SnapshotBuilder {
    last: Sample,
    /// Two moments that are a window apart, the older one first: percentiles count from that one.
    windows: [LatencyWindow; 2],
}

#[derive(Debug, Default)]
struct LatencyWindow {
    at: Duration,
    spans: BTreeMap<Name, LatencyHistogram>,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    version: &'a str,
    engine: &'a str,
    workers: usize,
    uptime_s: u64,
    draining: bool,
    config: &'a ConfigSummary,
    memory_bytes: Option<u64>,
    connections: u64,
    /// `None` in the first document: there is nothing to compare with.
    cpu_percent: Option<f64>,
    requests_per_s: Option<f64>,
    errors_per_s: Option<f64>,
    latency_us: Option<Latency>,
    refused: u64,
    routes: Vec<RouteRow<'a>>,
    more_routes: usize,
    streams: Vec<StreamRow<'a>>,
    brokers: Vec<BrokerRow<'a>>,
    more_brokers: usize,
    upstreams: Vec<UpstreamRow<'a>>,
    more_upstreams: usize,
    faults: Vec<FaultRow<'a>>,
    kubernetes: Option<&'a ClusterStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Latency {
    p50: u64,
    p90: u64,
    p99: u64,
}

#[derive(Serialize)]
struct RouteRow<'a> {
    name: &'a str,
    total: u64,
    per_s: f64,
    /// Rates since the previous snapshot.
    client_errors_per_s: f64,
    server_errors_per_s: f64,
    latency_us: Option<Latency>,
}

#[derive(Serialize)]
struct StreamRow<'a> {
    name: &'a str,
    open: u64,
    total: u64,
    per_s: f64,
    bytes_per_s: f64,
}

#[derive(Serialize)]
struct BrokerRow<'a> {
    #[serde(flatten)]
    broker: &'a BrokerStatus,
    per_s: f64,
}

#[derive(Serialize)]
struct UpstreamRow<'a> {
    name: &'a str,
    requests: u32,
    connections: u32,
    waiting: u32,
    retries: u64,
    retries_refused: u64,
    copies: u64,
    copies_lost: u64,
    endpoints: Vec<EndpointRow>,
    more_endpoints: usize,
}

#[derive(Serialize)]
struct EndpointRow {
    address: String,
    /// `healthy`, `unhealthy`, `unknown`, `ejected`, `unreachable` or `draining`.
    state: &'static str,
    /// The reason for the state, if known, and its remaining time.
    why: Option<String>,
    seconds_left: Option<u64>,
    requests: u32,
}

#[derive(Serialize)]
struct FaultRow<'a> {
    fault: &'a str,
    side: &'a str,
    total: u64,
    per_s: f64,
}

impl SnapshotBuilder {
    /// The document at `now`, on one line; rates are those since the last call.
    pub(super) fn document(&mut self, version: &str, now: Sample) -> String {
        self.rotate_windows(&now);
        let is_first = self.last.at.is_zero();
        let span = now.at.saturating_sub(self.last.at).as_secs_f64();
        let per_s = |count: u64, before: u64| {
            if is_first || span <= 0.0 {
                0.0
            } else {
                round_to_tenth(count.saturating_sub(before) as f64 / span)
            }
        };
        let cpu = now.cpu.saturating_sub(self.last.cpu).as_secs_f64() / span;
        let routes = self.routes_rows(&now, per_s);
        let sum = |of: fn(&RouteRow<'_>) -> f64| routes.iter().map(of).sum::<f64>();
        let later = |number: f64| (!is_first).then(|| round_to_tenth(number));
        let mut document = Snapshot {
            version,
            engine: now.engine,
            workers: now.workers,
            uptime_s: now.uptime.as_secs(),
            draining: now.draining,
            config: &now.config,
            memory_bytes: now.memory_bytes,
            connections: now.connections,
            cpu_percent: later(100.0 * cpu),
            requests_per_s: later(sum(|route| route.per_s)),
            errors_per_s: later(sum(|route| route.server_errors_per_s)),
            latency_us: self.total_latency(&now),
            refused: now.refused,
            more_routes: routes.len().saturating_sub(DASHBOARD_ROUTES),
            routes,
            streams: self.streams_rows(&now, per_s),
            more_brokers: now.brokers.len().saturating_sub(DASHBOARD_ROUTES),
            brokers: self.brokers_rows(&now, per_s),
            more_upstreams: now.upstreams.len().saturating_sub(DASHBOARD_UPSTREAMS),
            upstreams: now
                .upstreams
                .iter()
                .take(DASHBOARD_UPSTREAMS)
                .map(|upstream| UpstreamRow::of(upstream, now.wall))
                .collect(),
            faults: self.faults_rows(&now, per_s),
            kubernetes: now.kubernetes.as_ref(),
        };
        document.routes.truncate(DASHBOARD_ROUTES);
        document.streams.truncate(DASHBOARD_ROUTES);
        document.brokers.truncate(DASHBOARD_ROUTES);
        let document = serde_json::to_string(&document).expect("text and finite numbers under text names");
        self.last = now;
        document
    }

    /// Begins the next window when it is time.
    fn rotate_windows(&mut self, now: &Sample) {
        let [older, newer] = &mut self.windows;
        if newer.at.is_zero() || now.at.saturating_sub(newer.at) >= DASHBOARD_WINDOW {
            let spans = now
                .routes
                .iter()
                .map(|route| (route.name.clone(), route.latencies.clone()));
            let next = LatencyWindow {
                at: now.at,
                spans: spans.collect(),
            };
            *older = std::mem::replace(newer, next);
        }
    }

    /// Returns the latencies since the older window.
    fn spans_in_window(&self, route: &RouteReport) -> LatencyHistogram {
        let [older, newer] = &self.windows;
        // The first window has no predecessor: latencies before the page was opened do not count.
        let window = if older.at.is_zero() { newer } else { older };
        match window.spans.get(&route.name) {
            Some(before) => route.latencies.since(before),
            None => route.latencies.clone(),
        }
    }

    fn total_latency(&self, now: &Sample) -> Option<Latency> {
        let mut all = LatencyHistogram::default();
        now.routes
            .iter()
            .for_each(|route| all.add(&self.spans_in_window(route)));
        Latency::of(&all)
    }

    /// Those with most requests at present first.
    fn routes_rows<'a>(&self, now: &'a Sample, per_s: impl Fn(u64, u64) -> f64) -> Vec<RouteRow<'a>> {
        let none = [0; 5];
        let mut routes: Vec<RouteRow<'a>> = now
            .routes
            .iter()
            .map(|route| {
                let before = self.last.routes.iter().find(|before| before.name == route.name);
                let before = before.map_or(&none, |before| &before.classes);
                RouteRow {
                    name: &route.name,
                    total: route.classes.iter().sum(),
                    per_s: per_s(route.classes.iter().sum(), before.iter().sum()),
                    client_errors_per_s: per_s(route.classes[3], before[3]),
                    server_errors_per_s: per_s(route.classes[4], before[4]),
                    latency_us: Latency::of(&self.spans_in_window(route)),
                }
            })
            .collect();
        routes.sort_by(|one, other| {
            let by_rate = other.per_s.total_cmp(&one.per_s);
            by_rate
                .then_with(|| other.total.cmp(&one.total))
                .then_with(|| one.name.cmp(other.name))
        });
        routes
    }

    fn streams_rows<'a>(&self, now: &'a Sample, per_s: impl Fn(u64, u64) -> f64) -> Vec<StreamRow<'a>> {
        let stream = |stream: &'a StreamReport| {
            let before = self.last.streams.iter().find(|before| before.name == stream.name);
            let (begun, moved) = before.map_or((0, 0), |it| (it.opened, it.received + it.sent));
            StreamRow {
                name: &stream.name,
                open: stream.open_connections(),
                total: stream.opened,
                per_s: per_s(stream.opened, begun),
                bytes_per_s: per_s(stream.received + stream.sent, moved),
            }
        };
        now.streams.iter().map(stream).collect()
    }

    /// Those that do not deliver first.
    fn brokers_rows<'a>(&self, now: &'a Sample, per_s: impl Fn(u64, u64) -> f64) -> Vec<BrokerRow<'a>> {
        let row = |broker: &'a BrokerStatus| {
            let mut before = self.last.brokers.iter();
            let before = before.find(|before| before.name == broker.name && before.kind == broker.kind);
            BrokerRow {
                broker,
                // A source that was restarted counts from 0 again.
                per_s: per_s(broker.records, before.map_or(0, |before| before.records)),
            }
        };
        let mut brokers: Vec<BrokerRow<'a>> = now.brokers.iter().map(row).collect();
        brokers.sort_by_key(|row| row.broker.is_connected);
        brokers
    }

    /// Lists the faults that have occurred, most frequent first.
    fn faults_rows(&self, now: &Sample, per_s: impl Fn(u64, u64) -> f64) -> Vec<FaultRow<'static>> {
        let mut faults: Vec<FaultRow<'static>> = now
            .faults
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(fault, count)| {
                let before = self.last.faults.iter().find(|(before, _)| before == fault);
                FaultRow {
                    fault: fault.label(),
                    side: fault.side().label(),
                    total: *count,
                    per_s: per_s(*count, before.map_or(0, |(_, count)| *count)),
                }
            })
            .collect();
        faults.sort_by_key(|row| std::cmp::Reverse(row.total));
        faults
    }
}

impl Latency {
    fn of(spans: &LatencyHistogram) -> Option<Latency> {
        let micros = |share| Some(u64::try_from(spans.quantile(share)?.as_micros()).unwrap_or(u64::MAX));
        Some(Latency {
            p50: micros(0.5)?,
            p90: micros(0.9)?,
            p99: micros(0.99)?,
        })
    }
}

impl<'a> UpstreamRow<'a> {
    fn of(status: &'a UpstreamStatus, wall: Duration) -> UpstreamRow<'a> {
        let sent = status.mirrors[MirrorOutcome::Sent as usize];
        UpstreamRow {
            name: &status.name,
            requests: status.requests,
            connections: status.connections,
            waiting: status.waiting,
            retries: status.retries,
            retries_refused: status.retries_refused,
            copies: sent,
            copies_lost: status.mirrors.iter().sum::<u64>() - sent,
            endpoints: endpoint_rows(&status.endpoints, wall),
            more_endpoints: status.endpoints.len().saturating_sub(DASHBOARD_ENDPOINTS),
        }
    }
}

/// Those that are not as they should be first.
fn endpoint_rows(endpoints: &[EndpointStatus], wall: Duration) -> Vec<EndpointRow> {
    let mut endpoint_rows: Vec<EndpointRow> = endpoints
        .iter()
        .map(|endpoint| EndpointRow::of(endpoint, wall))
        .collect();
    endpoint_rows.sort_by_key(|end| matches!(end.state, "healthy" | "unknown"));
    endpoint_rows.truncate(DASHBOARD_ENDPOINTS);
    endpoint_rows
}

impl EndpointRow {
    fn of(endpoint: &EndpointStatus, wall: Duration) -> EndpointRow {
        let left = |until: Duration| until.checked_sub(wall).filter(|left| !left.is_zero());
        let ejected = endpoint
            .ejection
            .and_then(|it| Some((it.reason, left(it.until)?)));
        let unreachable = endpoint.unreachable_until.and_then(left);
        let (state, why, until) = match (endpoint.verdict, ejected, unreachable) {
            (CheckVerdict::Unhealthy, ..) => {
                let reason = endpoint
                    .check_error
                    .as_deref()
                    .unwrap_or("the health check fails");
                ("unhealthy", Some(reason.to_owned()), None)
            }
            (_, Some((why, until)), _) => ("ejected", Some(why.to_string()), Some(until)),
            (.., Some(until)) => ("unreachable", Some("connecting failed".to_owned()), Some(until)),
            _ if endpoint.draining => ("draining", None, None),
            (CheckVerdict::Healthy, ..) => ("healthy", None, None),
            (CheckVerdict::Unknown, ..) => ("unknown", None, None),
        };
        EndpointRow {
            address: endpoint.addr.to_string(),
            state,
            why,
            seconds_left: until.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0)),
            requests: endpoint.requests,
        }
    }
}

/// Rounds to one decimal place.
fn round_to_tenth(number: f64) -> f64 {
    if number.is_finite() {
        // An empty sum of floats is -0.
        (number * 10.0).round() / 10.0 + 0.0
    } else {
        0.0
    }
}
