//! The HTTP server of `ringmain run`: the built-in application, its limits, and its metrics.

use std::collections::VecDeque;
use std::sync::Arc;

use ringmain_control::edge::access_log::{self, LogRotation};
use ringmain_engine::features::Features;
use ringmain_engine::{Engine, Report};
use ringmain_sys::signal::Signals;
use ringmain_sys::{clock, cpu, process};
use ringmain_web::access_log::Format;
use ringmain_web::stats::Totals;
use ringmain_web::{AccessLog, CompiledApp, Limits};

use super::{ListenerSetup, StatusLog, format_counts};
use crate::args::{AccessLogFormat, Destination, Http, Run};
use crate::error::CliError;
use crate::limits::{LATENCY_SECONDS, METRICS_INTERVAL};
use crate::stats::IntervalTimer;
use crate::welcome::metrics::{Latency, MetricsBuilder, Sample, ServerInfo};
use crate::welcome::{self, MetricsBoard};

/// Serves until a signal; returns the final counters.
pub(super) fn serve(
    args: &Run,
    engine: Engine,
    signals: &Signals,
    status_log: &mut StatusLog,
    mut setup: ListenerSetup,
) -> Result<String, CliError> {
    let server_info = gather_server_info(&engine);
    let board = MetricsBoard::default();
    let mut app = setup.apply_to(welcome::build_app(&server_info, &board).limits(app_limits(&args.http)));
    if let Some(log) = open_access_log(&args.http)? {
        app = app.access_log(log).request_ids();
    }
    let site = app.build().map_err(CliError::other)?;
    let mut updater = MetricsUpdater::new(server_info, board, Arc::clone(&site));
    let served = Arc::clone(&site);
    let requests = || ("requests", site.stats().totals().requests());
    let mut log_rotation = LogRotation::default();
    let summary = engine
        .run_observed(
            signals,
            move |start| served.server(start),
            |running| {
                if let Some(certificates) = &mut setup.certificates {
                    certificates.reload_on_hangup(running.hangups());
                }
                log_rotation.reopen_on_signal(running, &site);
                let report = running.report();
                // Metrics exist before the addresses are logged.
                updater.update(&report);
                status_log.report(&report, requests);
            },
        )
        .map_err(CliError::other)?;
    access_log::flush(&site);
    Ok(format_counts(&summary.report, requests()))
}

/// Opens the access log, if there is one.
fn open_access_log(http: &Http) -> Result<Option<AccessLog>, CliError> {
    let log = match http.access_log.as_ref() {
        None | Some(Destination::Off) => return Ok(None),
        Some(Destination::StandardOutput) => AccessLog::to_stdout(),
        Some(Destination::File(path)) => AccessLog::to_file(path),
    };
    let log = log.map_err(|error| CliError::from(access_log::open_error(&error)))?;
    let format = match http.access_log_format {
        Some(AccessLogFormat::Common) => Format::Common,
        Some(AccessLogFormat::Combined) | None => Format::Combined,
        Some(AccessLogFormat::Json) => Format::Json,
    };
    Ok(Some(log.format(format)))
}

/// Returns the default limits, changed by the options.
fn app_limits(http: &Http) -> Limits {
    let mut limits = Limits::default();
    limits.connections_per_address = http.per_address.or(limits.connections_per_address);
    if let Some(time) = http.header_timeout {
        limits.header_timeout = time.0;
    }
    if let Some(limit) = http.queue_delay_limit() {
        limits.max_queue_delay = Some(limit);
    }
    if let Some(time) = http.idle_timeout {
        limits.idle_timeout = time.0;
    }
    if let Some(size) = http.body_limit {
        limits.body_bytes = size.0;
    }
    limits
}

fn gather_server_info(engine: &Engine) -> ServerInfo {
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
    ServerInfo {
        version: env!("CARGO_PKG_VERSION"),
        engine: if selection.uring { "uring" } else { "epoll" },
        features: names(selection.features),
        missing: names(missing),
        why_not: selection.why_not.as_ref().map(ToString::to_string),
        workers: engine.workers(),
        cpus: cpu::allowed().len(),
    }
}

/// Updates the metrics of the welcome page.
struct MetricsUpdater {
    site: Arc<CompiledApp>,
    board: MetricsBoard,
    metrics: Option<MetricsBuilder>,
    server_info: ServerInfo,
    timer: IntervalTimer,
    /// Totals of the last seconds, the oldest first.
    window: VecDeque<Totals>,
}

impl MetricsUpdater {
    fn new(server_info: ServerInfo, board: MetricsBoard, site: Arc<CompiledApp>) -> MetricsUpdater {
        MetricsUpdater {
            site,
            board,
            metrics: None,
            server_info,
            timer: IntervalTimer::new(METRICS_INTERVAL),
            window: VecDeque::with_capacity(LATENCY_SECONDS),
        }
    }

    /// Publishes metrics if the interval has elapsed, and on the first call.
    fn update(&mut self, report: &Report) {
        if !self.timer.is_due() && self.metrics.is_some() {
            return;
        }
        let totals = self.site.stats().totals();
        let sample = self.take_sample(report, &totals);
        let server_info = &self.server_info;
        let metrics = self
            .metrics
            .get_or_insert_with(|| MetricsBuilder::new(server_info.clone(), sample));
        self.board.publish(metrics.next_document(sample));
        if self.window.len() == LATENCY_SECONDS {
            self.window.pop_front();
        }
        self.window.push_back(totals);
    }

    fn take_sample(&self, report: &Report, totals: &Totals) -> Sample {
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
