//! Snapshots of the dashboard: counters turned into rates and percentiles, each second, as one JSON document.
//!
//! Plain functions over plain data; time is a parameter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::Name;
use ringmain_gateway::stats::{DatagramReport, LatencyHistogram, RouteReport, StreamReport};
use ringmain_gateway::{UpstreamStatus, fault::Fault};
use ringmain_push::metrics::Report as PushReport;
use serde::Serialize;

use super::listeners::{CertificateFacts, CertificateRow, ListenerRow, certificate_rows};
use super::push::PushRow;
use super::upstreams::UpstreamRow;
use crate::admin::cluster_status::ClusterStatus;
use crate::admin::push_cluster_status::PushClusterStatus;
use crate::limits::{DASHBOARD_ROUTES, DASHBOARD_UPSTREAMS, DASHBOARD_WINDOW};

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
    /// Responses by the first digit of their status, including requests that were rejected before routing.
    pub(super) responses: [u64; 6],
    /// TLS handshakes of clients that were finished, and that failed.
    pub(super) handshakes: (u64, u64),
    pub(super) listeners: Vec<ListenerRow>,
    pub(super) certificates: Arc<[CertificateFacts]>,
    /// `None`: push is not configured.
    pub(super) push: Option<PushReport>,
    pub(super) routes: Vec<RouteReport>,
    pub(super) streams: Vec<StreamReport>,
    pub(super) datagrams: Vec<DatagramReport>,
    pub(super) upstreams: Vec<UpstreamStatus>,
    pub(super) faults: Vec<(Fault, u64)>,
    pub(super) brokers: Vec<BrokerStatus>,
    /// This node of a push cluster.
    pub(super) push_cluster: Option<PushClusterStatus>,
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
    /// Lost connections, and failed attempts.
    pub(super) failures: u64,
    pub(super) last_failure: Option<BrokerFailure>,
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

/// The last failure of a broker's connection. Instants are in seconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct BrokerFailure {
    pub(super) reason: String,
    pub(super) at: u64,
    /// The first failure since the last connection.
    pub(super) since: u64,
}

/// The served configuration, and the result of the last reload. Instants are in seconds since the Unix epoch.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ConfigSummary {
    pub(super) file: String,
    /// The file as last read is the served configuration.
    pub(super) is_current: bool,
    /// The time at which the served configuration was loaded.
    pub(super) loaded_at: u64,
    /// The time of the last reload, successful or not.
    pub(super) attempted_at: u64,
    /// Applied reloads since the start.
    pub(super) reloads: u64,
    /// Rejected reloads since the start.
    pub(super) rejected: u64,
    /// The number of errors of the last reload.
    pub(super) wrong: usize,
    /// The first errors of the last reload, up to the limit of the page.
    pub(super) errors: Vec<String>,
    /// Keys whose new values apply after a restart only.
    pub(super) restart_required: Vec<String>,
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
    /// Seconds since the Unix epoch.
    at: u64,
    requests_per_s: Option<f64>,
    errors_per_s: Option<f64>,
    latency_us: Option<Latency>,
    refused: u64,
    /// Failed TLS handshakes of clients, and finished ones.
    handshakes_failed: u64,
    handshakes: u64,
    push: Option<PushRow>,
    push_cluster: Option<PushClusterRow<'a>>,
    listeners: &'a [ListenerRow],
    certificates: Vec<CertificateRow<'a>>,
    more_certificates: usize,
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
    /// Rates of responses with a status 1xx to 5xx, since the previous snapshot.
    classes_per_s: [f64; 5],
    latency_us: Option<Latency>,
}

#[derive(Serialize)]
struct StreamRow<'a> {
    name: &'a str,
    /// `tcp`, also for TLS, or `udp`.
    protocol: &'static str,
    /// Open connections, or sessions.
    open: u64,
    total: u64,
    per_s: f64,
    bytes_per_s: f64,
    /// Rates of datagrams in both directions, and of those that were dropped. `None`: it forwards connections.
    datagrams_per_s: Option<f64>,
    dropped_per_s: Option<f64>,
}

#[derive(Serialize)]
struct BrokerRow<'a> {
    #[serde(flatten)]
    broker: &'a BrokerStatus,
    per_s: f64,
}

#[derive(Serialize)]
struct PushClusterRow<'a> {
    #[serde(flatten)]
    status: &'a PushClusterStatus,
    crossed_per_s: f64,
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
            if is_first {
                0.0
            } else {
                saturating_rate(count, before, span)
            }
        };
        let cpu = now.cpu.saturating_sub(self.last.cpu).as_secs_f64() / span;
        let routes = self.routes_rows(&now, per_s);
        let (certificates, more_certificates) = certificate_rows(&now.certificates, now.wall);
        let sum = |counts: &[u64; 6]| -> u64 { counts.iter().sum() };
        let push = now.push.as_ref();
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
            at: now.wall.as_secs(),
            requests_per_s: later(per_s(sum(&now.responses), sum(&self.last.responses))),
            errors_per_s: later(per_s(now.responses[5], self.last.responses[5])),
            latency_us: self.total_latency(&now),
            refused: now.refused,
            handshakes: now.handshakes.0,
            handshakes_failed: now.handshakes.1,
            push: push.map(|push| PushRow::of(push, self.last.push.as_ref(), per_s)),
            push_cluster: now.push_cluster.as_ref().map(|status| {
                let before = self.last.push_cluster.as_ref();
                PushClusterRow {
                    status,
                    crossed_per_s: per_s(status.crossed, before.map_or(status.crossed, |it| it.crossed)),
                }
            }),
            listeners: &now.listeners,
            certificates,
            more_certificates,
            more_routes: routes.len().saturating_sub(DASHBOARD_ROUTES),
            routes,
            streams: self.streams_rows(&now, per_s),
            more_brokers: now.brokers.len().saturating_sub(DASHBOARD_ROUTES),
            brokers: self.brokers_rows(&now, per_s),
            more_upstreams: now.upstreams.len().saturating_sub(DASHBOARD_UPSTREAMS),
            upstreams: self.upstreams_rows(&now, per_s),
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
                    classes_per_s: std::array::from_fn(|class| per_s(route.classes[class], before[class])),
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
                protocol: "tcp",
                open: stream.open_connections(),
                total: stream.opened,
                per_s: per_s(stream.opened, begun),
                bytes_per_s: per_s(stream.received + stream.sent, moved),
                datagrams_per_s: None,
                dropped_per_s: None,
            }
        };
        let datagrams = |route: &'a DatagramReport| {
            let before = self
                .last
                .datagrams
                .iter()
                .find(|before| before.name == route.name);
            let rate = |count: fn(&DatagramReport) -> u64| per_s(count(route), before.map_or(0, count));
            StreamRow {
                name: &route.name,
                protocol: "udp",
                open: route.open_sessions(),
                total: route.opened,
                per_s: rate(|it| it.opened),
                bytes_per_s: rate(|it| it.received + it.sent),
                datagrams_per_s: Some(rate(|it| it.received_datagrams + it.sent_datagrams)),
                dropped_per_s: Some(rate(|it| it.dropped.iter().sum())),
            }
        };
        let connections = now.streams.iter().map(stream);
        connections.chain(now.datagrams.iter().map(datagrams)).collect()
    }

    fn upstreams_rows<'a>(&self, now: &'a Sample, per_s: impl Fn(u64, u64) -> f64) -> Vec<UpstreamRow<'a>> {
        let row = |upstream: &'a UpstreamStatus| {
            let before = self.last.upstreams.iter().find(|it| it.name == upstream.name);
            UpstreamRow::of(upstream, before, &per_s, now.wall)
        };
        now.upstreams.iter().take(DASHBOARD_UPSTREAMS).map(row).collect()
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

/// Returns the rate of a count over `span` seconds; a count that was reset, or no time, gives 0.
pub(super) fn saturating_rate(count: u64, before: u64, span: f64) -> f64 {
    if span > 0.0 {
        round_to_tenth(count.saturating_sub(before) as f64 / span)
    } else {
        0.0
    }
}

/// Rounds to one decimal place.
pub(super) fn round_to_tenth(number: f64) -> f64 {
    if number.is_finite() {
        // An empty sum of floats is -0.
        (number * 10.0).round() / 10.0 + 0.0
    } else {
        0.0
    }
}
