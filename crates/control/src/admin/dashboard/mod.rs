//! A page for browsers that shows the gateway at work, each second: routes, upstreams, push, listeners, certificates and faults.
//!
//! Snapshots are made only while a page is open. Without a viewer the only cost is the history: one point a second, of a fixed number.

mod history;
mod listeners;
mod push;
mod snapshot;
mod upstreams;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_engine::Report;
use ringmain_gateway::ListenerReport;
use ringmain_sys::{clock, process};
use ringmain_web::{Event, Reply, Request, Result};

use self::history::{RateHistory, Totals};
use self::listeners::{CertificateCache, ListenerRow};
use self::snapshot::{BrokerFailure, BrokerStatus, ConfigSummary, Sample, SnapshotBuilder};
use super::AdminContext;
use super::cluster_status::cluster_status;
use super::push_cluster_status::push_cluster_status;
use crate::limits::{
    DASHBOARD_INTERVAL, DASHBOARD_LISTENERS, DASHBOARD_PROBLEMS, DASHBOARD_RETRY, DASHBOARD_ROUTES,
};

/// The page: no file beside it, nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// The content security policy of the page: its one script and style, by their digests (a test computes them), and connections to
/// this server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-jkKHezPd5cmfZhoCdTUH8KZwSEvkM1z1ReKYl4wT+Ls='; script-src 'sha256-KZPDiS/Ng8pQXHt9yUJXoM4arc4ln0cqM3s7lk4TJQ8='; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The latest snapshot, shared by all viewers, and the history.
#[derive(Debug, Default)]
pub(super) struct Dashboard {
    latest: Mutex<LatestSnapshot>,
    history: Mutex<RateHistory>,
}

#[derive(Debug, Default)]
struct LatestSnapshot {
    viewers: usize,
    snapshots: SnapshotBuilder,
    /// The time of the snapshot, by the monotonic clock.
    at: Duration,
    /// The number of the snapshot; 0: none has been made.
    number: u64,
    document: Arc<str>,
    certificates: CertificateCache,
}

/// An open page.
struct Viewer<'d>(&'d Dashboard);

impl Dashboard {
    fn lock(&self) -> MutexGuard<'_, LatestSnapshot> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_history(&self) -> MutexGuard<'_, RateHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Viewer<'_> {
        self.lock().viewers += 1;
        Viewer(self)
    }
}

impl Viewer<'_> {
    /// Returns the latest snapshot and its number, and makes a new one if it is due.
    fn latest(&self, inner: &AdminContext) -> (u64, Arc<str>) {
        let mut latest = self.0.lock();
        let now = clock::monotonic();
        if latest.number == 0 || now.saturating_sub(latest.at) >= DASHBOARD_INTERVAL {
            let certificates = latest.certificates.read(&inner.gateway);
            let sample = Sample {
                certificates,
                ..take_sample(inner, now)
            };
            latest.document = latest.snapshots.document(inner.version, sample).into();
            latest.number += 1;
            latest.at = now;
        }
        (latest.number, Arc::clone(&latest.document))
    }

    /// Returns the time until the next snapshot is due.
    fn next_in(&self) -> Duration {
        let next = self.0.lock().at + DASHBOARD_INTERVAL;
        next.saturating_sub(clock::monotonic())
    }
}

impl Drop for Viewer<'_> {
    fn drop(&mut self) {
        let mut latest = self.0.lock();
        latest.viewers -= 1;
        if latest.viewers == 0 {
            *latest = LatestSnapshot::default();
        }
    }
}

/// Records a point of the history, if one is due. Called several times a second.
pub(super) fn record_history(inner: &AdminContext) {
    let wall = clock::realtime();
    let mut history = inner.dashboard.lock_history();
    if !history.is_due(wall) {
        return;
    }
    let responses = inner.site.stats().totals().classes;
    let push = inner.gateway.push_report();
    history.record(Totals {
        at: clock::monotonic(),
        wall,
        cpu: clock::process_cpu(),
        responses: responses.iter().sum(),
        server_errors: responses[5],
        connections: open_connections(inner.board.report().as_ref()),
        push: push.map(|push| (push.clients, push.deliveries)),
    });
}

/// Returns all workers' open connections, upstreams included.
fn open_connections(report: Option<&Report>) -> u64 {
    let workers = report.iter().flat_map(|report| &report.workers);
    workers.map(|worker| u64::from(worker.connections)).sum()
}

/// The page for browsers; `text` for the rest.
pub(super) fn serve_page(text: &str, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply
        .header("Vary", "Accept")?
        .header("Cache-Control", "no-cache")?;
    if request.preferred_type(&["text/plain", "text/html"]) != Some("text/html") {
        return reply.text(text);
    }
    reply
        .header("Content-Security-Policy", POLICY)?
        .header("X-Content-Type-Options", "nosniff")?
        .header("Referrer-Policy", "no-referrer")?;
    reply.html(PAGE)
}

/// Streams the history as an event `history`, then a snapshot each second.
pub(super) async fn stream_events(
    inner: &AdminContext,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result {
    let viewer = inner.dashboard.enter();
    let mut events = reply.events().await?;
    let history = inner.dashboard.lock_history().document();
    let first = Event::new()
        .retry(DASHBOARD_RETRY)
        .event("history")
        .data(&history);
    events.send(&first).await?;
    let mut seen = 0;
    loop {
        let (number, document) = viewer.latest(inner);
        if number != seen {
            seen = number;
            events.send(&Event::new().data(&document)).await?;
        }
        request.cx().sleep(viewer.next_in()).await;
    }
}

fn brokers(inner: &AdminContext) -> Vec<BrokerStatus> {
    let reports = inner.control.consumers().reports();
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let failure = |failure: &ringmain_sources::LastFailure| BrokerFailure {
        reason: failure.reason.to_string(),
        at: failure.at.as_secs(),
        since: failure.since.as_secs(),
    };
    let broker = |report: &crate::nats::ConsumerReport| BrokerStatus {
        name: report.name.to_string(),
        kind: "nats",
        is_connected: report.connected,
        is_degraded: false,
        failures: report.failures,
        last_failure: report.last_failure.as_ref().map(failure),
        records: report.messages,
        dead: report.dropped.iter().sum(),
        ..BrokerStatus::default()
    };
    let source = |report: &ringmain_sources::Report| BrokerStatus {
        name: report.name.to_string(),
        kind: report.kind,
        is_connected: report.delivers,
        is_degraded: report.letters_fail,
        failures: report.failures,
        last_failure: report.last_failure.as_ref().map(failure),
        records: report.records,
        dead: report.dead.iter().sum(),
        gaps: Some(report.gaps),
        lag: report.lag,
        lag_us: report.lag_time.map(micros),
    };
    let sources = inner.control.sources().reports();
    let sources = sources.iter().map(source);
    reports.iter().map(broker).chain(sources).collect()
}

/// Reads all counters. Certificates are left out: they change with the configuration only.
fn take_sample(inner: &AdminContext, at: Duration) -> Sample {
    let report = inner.board.report();
    let workers = report.as_ref().map(|report| report.workers.len());
    let stats = inner.site.stats();
    let totals = stats.totals();
    let handshakes = inner.gateway.handshake_counts();
    let listener =
        |listener: &ListenerReport| ListenerRow::of(listener, |number| stats.listener_connections(number));
    let listeners = inner.gateway.listener_reports();
    Sample {
        at,
        wall: clock::realtime(),
        cpu: clock::process_cpu(),
        uptime: at.saturating_sub(inner.since),
        memory_bytes: process::resident_bytes(),
        engine: super::engine_name(report.as_ref()),
        workers: workers.unwrap_or_default(),
        connections: open_connections(report.as_ref()),
        draining: inner.board.is_draining(),
        config: config_summary(inner),
        refused: totals.refused,
        responses: totals.classes,
        handshakes: (handshakes.finished, handshakes.failed),
        listeners: listeners.iter().take(DASHBOARD_LISTENERS).map(listener).collect(),
        push: inner.gateway.push_report(),
        routes: inner.gateway.route_reports(),
        streams: inner.gateway.stream_reports(),
        datagrams: inner.gateway.datagram_reports(),
        upstreams: inner.gateway.upstreams(),
        faults: inner.gateway.fault_counts(),
        brokers: brokers(inner),
        push_cluster: push_cluster_status(inner).map(|mut status| {
            status.truncate(DASHBOARD_ROUTES);
            status
        }),
        kubernetes: cluster_status(inner).map(|mut followed| {
            followed.truncate(DASHBOARD_PROBLEMS);
            followed
        }),
        ..Sample::default()
    }
}

fn config_summary(inner: &AdminContext) -> ConfigSummary {
    let status = inner.control.status();
    let reloads = inner.control.reloads();
    let errors = status.unreadable.iter().cloned();
    let errors = errors.chain(status.errors.iter().map(ToString::to_string));
    ConfigSummary {
        file: status.path.display().to_string(),
        is_current: status.is_current,
        loaded_at: status.loaded_at.as_secs(),
        attempted_at: status.attempted_at.as_secs(),
        reloads: reloads.succeeded,
        rejected: reloads.failed,
        wrong: status.errors.len() + usize::from(status.unreadable.is_some()),
        errors: errors.take(DASHBOARD_PROBLEMS).collect(),
        restart_required: status.restart_required,
    }
}
