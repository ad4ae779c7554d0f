//! The HTTP server of `ringmain run`: its application with the limits of the command line, watched for its figures.

use std::collections::VecDeque;
use std::sync::Arc;

use ringmain_control::edge::access_log::{self, LogRotation};
use ringmain_engine::features::Features;
use ringmain_engine::{Engine, Report};
use ringmain_sys::signal::Signals;
use ringmain_sys::{clock, cpu, process};
use ringmain_web::access_log::Format;
use ringmain_web::stats::Totals;
use ringmain_web::{AccessLog, Limits, Site};

use super::{Entrances, Monitor, counts};
use crate::args::{AccessLogFormat, Destination, Http, Run};
use crate::failure::Failure;
use crate::limits::{FIGURES_EVERY, LATENCY_SECONDS};
use crate::stats::Ticker;
use crate::welcome::figures::{Facts, Figures, Latency, Sample};
use crate::welcome::{self, Board};

/// Serves until a signal; returns the last counts.
pub(super) fn serve(
    args: &Run,
    engine: Engine,
    signals: &Signals,
    monitor: &mut Monitor,
    mut entrances: Entrances,
) -> Result<String, Failure> {
    let facts = facts(&engine);
    let board = Board::default();
    let mut app = entrances.apply(welcome::app(&facts, &board).limits(limits(&args.http)));
    if let Some(log) = access_log(&args.http)? {
        app = app.access_log(log).request_ids();
    }
    let site = app.build().map_err(Failure::other)?;
    let mut watch = Watch::new(facts, board, Arc::clone(&site));
    let served = Arc::clone(&site);
    let requests = || ("requests", site.stats().totals().requests());
    let mut log_rotation = LogRotation::default();
    let summary = engine
        .run_observed(
            signals,
            move |start| served.server(start),
            |running| {
                if let Some(certificates) = &mut entrances.certificates {
                    certificates.follow(running.hangups());
                }
                log_rotation.reopen_on_signal(running, &site);
                let report = running.report();
                // First: who reads that it listens finds figures there.
                watch.look(&report);
                monitor.look(&report, requests);
            },
        )
        .map_err(Failure::other)?;
    access_log::flush(&site);
    Ok(counts(&summary.report, requests()))
}

/// The log of requests, if one is wanted.
fn access_log(http: &Http) -> Result<Option<AccessLog>, Failure> {
    let log = match http.access_log.as_ref() {
        None | Some(Destination::Off) => return Ok(None),
        Some(Destination::StandardOutput) => AccessLog::to_stdout(),
        Some(Destination::File(path)) => AccessLog::to_file(path),
    };
    let log = log.map_err(|error| Failure::from(access_log::open_error(&error)))?;
    let format = match http.access_log_format {
        Some(AccessLogFormat::Common) => Format::Common,
        Some(AccessLogFormat::Combined) | None => Format::Combined,
        Some(AccessLogFormat::Json) => Format::Json,
    };
    Ok(Some(log.format(format)))
}

/// The application's limits: the defaults but for what was said.
fn limits(http: &Http) -> Limits {
    let mut limits = Limits::default();
    limits.connections_per_address = http.per_address.or(limits.connections_per_address);
    if let Some(time) = http.header_timeout {
        limits.header_timeout = time.0;
    }
    if let Some(time) = http.patience {
        limits.patience = Some(time.0);
    }
    if let Some(time) = http.idle_timeout {
        limits.idle_timeout = time.0;
    }
    if let Some(size) = http.body_limit {
        limits.body_bytes = size.0;
    }
    limits
}

fn facts(engine: &Engine) -> Facts {
    let selection = engine.selection();
    let names = |features: Features| {
        let names = features.to_string();
        names
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let missing = if selection.uring {
        Features::by_default().minus(selection.features)
    } else {
        Features::none()
    };
    Facts {
        version: env!("CARGO_PKG_VERSION"),
        engine: if selection.uring { "uring" } else { "epoll" },
        features: names(selection.features),
        missing: names(missing),
        why_not: selection.why_not.as_ref().map(ToString::to_string),
        workers: engine.workers(),
        cpus: cpu::allowed().len(),
    }
}

/// Makes the welcome page's figures.
struct Watch {
    site: Arc<Site>,
    board: Board,
    figures: Option<Figures>,
    facts: Facts,
    ticker: Ticker,
    /// The last seconds' totals, the oldest first.
    window: VecDeque<Totals>,
}

impl Watch {
    fn new(facts: Facts, board: Board, site: Arc<Site>) -> Watch {
        Watch {
            site,
            board,
            figures: None,
            facts,
            ticker: Ticker::new(FIGURES_EVERY),
            window: VecDeque::with_capacity(LATENCY_SECONDS),
        }
    }

    /// Makes new figures if it is time for them, and the first ones at once.
    fn look(&mut self, report: &Report) {
        if !self.ticker.due() && self.figures.is_some() {
            return;
        }
        let totals = self.site.stats().totals();
        let sample = self.sample(report, &totals);
        let facts = &self.facts;
        let figures = self
            .figures
            .get_or_insert_with(|| Figures::new(facts.clone(), sample));
        self.board.put(figures.document(sample));
        if self.window.len() == LATENCY_SECONDS {
            self.window.pop_front();
        }
        self.window.push_back(totals);
    }

    fn sample(&self, report: &Report, totals: &Totals) -> Sample {
        let recent = self.window.front().map(|oldest| totals.since(oldest));
        let latency = recent.and_then(|recent| {
            Some(Latency {
                p50: recent.latency(0.5)?,
                p90: recent.latency(0.9)?,
                p99: recent.latency(0.99)?,
                p999: recent.latency(0.999)?,
            })
        });
        Sample {
            at: clock::monotonic(),
            cpu: clock::process_cpu(),
            requests: totals.requests(),
            connections: report.workers.iter().map(|w| u64::from(w.connections)).sum(),
            accepted: report.workers.iter().map(|w| w.accepted).sum(),
            memory_bytes: process::resident_bytes(),
            latency,
        }
    }
}
