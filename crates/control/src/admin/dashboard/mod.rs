//! A page for browsers that shows the gateway at work: routes, upstreams and faults, each second.
//!
//! Snapshots are made only while a page is open: without a viewer the page costs no time and holds no memory.

mod snapshot;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_sys::{clock, process};
use ringmain_web::{Event, Reply, Request, Result};

use self::snapshot::{BrokerStatus, ConfigSummary, Sample, SnapshotBuilder};
use super::AdminContext;
use super::cluster_status::cluster_status;
use crate::limits::{DASHBOARD_INTERVAL, DASHBOARD_PROBLEMS, DASHBOARD_RETRY};

/// The page: no file beside it, nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// The content security policy of the page: its one script and style, by their digests (a test computes them), and connections to
/// this server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-nVrpbT7utzuuMmRSkWda2NDoOp6UBi+ta9iuDKF5tsA='; script-src 'sha256-ZLmFAIa9FJ7+xNarSORxCPAHRqzZr/FLblJwyc6Wnlg='; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The latest snapshot, shared by all viewers.
#[derive(Debug, Default)]
pub(super) struct Dashboard(Mutex<LatestSnapshot>);

#[derive(Debug, Default)]
struct LatestSnapshot {
    viewers: usize,
    snapshots: SnapshotBuilder,
    /// The time of the snapshot, by the monotonic clock.
    at: Duration,
    /// The number of the snapshot; 0: none has been made.
    number: u64,
    document: Arc<str>,
}

/// An open page.
struct Viewer<'d>(&'d Dashboard);

impl Dashboard {
    fn lock(&self) -> MutexGuard<'_, LatestSnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            latest.document = latest
                .snapshots
                .document(inner.version, take_sample(inner, now))
                .into();
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

/// The figures, an event for each second.
pub(super) async fn stream_events(
    inner: &AdminContext,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result {
    let viewer = inner.dashboard.enter();
    let mut events = reply.events().await?;
    events.send(&Event::new().retry(DASHBOARD_RETRY)).await?;
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
    let broker = |report: &crate::nats::ConsumerReport| BrokerStatus {
        name: report.name.to_string(),
        kind: "nats",
        is_connected: report.connected,
        is_degraded: false,
        failures: report.failures,
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

/// Reads all counters.
fn take_sample(inner: &AdminContext, at: Duration) -> Sample {
    let status = inner.control.status();
    let report = inner.board.report();
    let workers = report.as_ref().map(|report| report.workers.len());
    let connections = report.as_ref().map(|report| {
        let open = report.workers.iter().map(|worker| u64::from(worker.connections));
        open.sum()
    });
    Sample {
        at,
        wall: clock::realtime(),
        cpu: clock::process_cpu(),
        uptime: at.saturating_sub(inner.since),
        memory_bytes: process::resident_bytes(),
        engine: super::engine_name(report.as_ref()),
        workers: workers.unwrap_or_default(),
        connections: connections.unwrap_or_default(),
        draining: inner.board.is_draining(),
        config: ConfigSummary {
            file: status.path.display().to_string(),
            is_current: status.is_current,
            wrong: status.errors.len(),
            first: status.errors.first().map(ToString::to_string),
        },
        refused: inner.site.stats().totals().refused,
        routes: inner.gateway.route_reports(),
        streams: inner.gateway.stream_reports(),
        upstreams: inner.gateway.upstreams(),
        faults: inner.gateway.fault_counts(),
        brokers: brokers(inner),
        kubernetes: cluster_status(inner).map(|mut followed| {
            followed.truncate(DASHBOARD_PROBLEMS);
            followed
        }),
    }
}
