//! A page for browsers that shows the gateway at work: routes, upstreams and what goes wrong, each second.
//!
//! Figures are made while somebody looks and by nobody else: without a viewer the page costs nothing and holds nothing.

mod snapshot;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_sys::{clock, process};
use ringmain_web::{Event, Reply, Request, Result};

use self::snapshot::{Broker, Config, Figures, Moment};
use super::Inner;
use super::cluster_status::followed;
use crate::limits::{DASHBOARD_EVERY, DASHBOARD_PROBLEMS, DASHBOARD_RETRY};

/// The page: no file beside it, nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// What a browser may do for the page: run its one script and style, by their digests (a test computes them), and ask this
/// server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-nVrpbT7utzuuMmRSkWda2NDoOp6UBi+ta9iuDKF5tsA='; script-src 'sha256-w25TgBMnV7ZfxGczW/I0DtENKzPOWJB1BZH9E1XGtEU='; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What viewers see.
#[derive(Debug, Default)]
pub(super) struct Dashboard(Mutex<Newest>);

#[derive(Debug, Default)]
struct Newest {
    viewers: usize,
    figures: Figures,
    /// When the document was made.
    at: Duration,
    /// Counts up with each document; none is there at 0.
    number: u64,
    document: Arc<str>,
}

/// Somebody who looks.
struct Viewer<'d>(&'d Dashboard);

impl Dashboard {
    fn lock(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Viewer<'_> {
        self.lock().viewers += 1;
        Viewer(self)
    }
}

impl Viewer<'_> {
    /// The newest document and its number, made anew if it is time.
    fn newest(&self, inner: &Inner) -> (u64, Arc<str>) {
        let mut newest = self.0.lock();
        let now = clock::monotonic();
        if newest.number == 0 || now.saturating_sub(newest.at) >= DASHBOARD_EVERY {
            newest.document = newest.figures.document(inner.version, moment(inner, now)).into();
            newest.number += 1;
            newest.at = now;
        }
        (newest.number, Arc::clone(&newest.document))
    }

    /// When there is a next one.
    fn next_in(&self) -> Duration {
        let next = self.0.lock().at + DASHBOARD_EVERY;
        next.saturating_sub(clock::monotonic())
    }
}

impl Drop for Viewer<'_> {
    fn drop(&mut self) {
        let mut newest = self.0.lock();
        newest.viewers -= 1;
        if newest.viewers == 0 {
            *newest = Newest::default();
        }
    }
}

/// The page for browsers; `text` for the rest.
pub(super) fn front(text: &str, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
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
pub(super) async fn live(inner: &Inner, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let viewer = inner.dashboard.enter();
    let mut events = reply.events().await?;
    events.send(&Event::new().retry(DASHBOARD_RETRY)).await?;
    let mut seen = 0;
    loop {
        let (number, document) = viewer.newest(inner);
        if number != seen {
            seen = number;
            events.send(&Event::new().data(&document)).await?;
        }
        request.cx().sleep(viewer.next_in()).await;
    }
}

fn brokers(inner: &Inner) -> Vec<Broker> {
    let reports = inner.control.consumers().reports();
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let broker = |report: &crate::nats::Report| Broker {
        name: report.name.to_string(),
        kind: "nats",
        is_connected: report.connected,
        is_degraded: false,
        failures: report.failures,
        records: report.messages,
        dead: report.dropped.iter().sum(),
        ..Broker::default()
    };
    let source = |report: &ringmain_sources::Report| Broker {
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

/// What is counted now.
fn moment(inner: &Inner, at: Duration) -> Moment {
    let state = inner.control.state();
    let report = inner.board.report();
    let workers = report.as_ref().map(|report| report.workers.len());
    let connections = report.as_ref().map(|report| {
        let open = report.workers.iter().map(|worker| u64::from(worker.connections));
        open.sum()
    });
    Moment {
        at,
        wall: clock::realtime(),
        cpu: clock::process_cpu(),
        uptime: at.saturating_sub(inner.since),
        memory_bytes: process::resident_bytes(),
        engine: super::engine(report.as_ref()),
        workers: workers.unwrap_or_default(),
        connections: connections.unwrap_or_default(),
        draining: inner.board.is_draining(),
        config: Config {
            file: state.path.display().to_string(),
            is_current: state.is_current,
            wrong: state.wrong.len(),
            first: state.wrong.first().map(ToString::to_string),
        },
        refused: inner.site.stats().totals().refused,
        routes: inner.gateway.requests(),
        streams: inner.gateway.streams(),
        upstreams: inner.gateway.upstreams(),
        faults: inner.gateway.faults(),
        brokers: brokers(inner),
        kubernetes: followed(inner).map(|mut followed| {
            followed.truncate(DASHBOARD_PROBLEMS);
            followed
        }),
    }
}
