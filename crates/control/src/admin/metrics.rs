//! Counts in the text format of Prometheus (version 0.0.4).
//!
//! Labels have bounded sets of values: routes and upstreams up to a limit, kinds of faults, workers, classes of statuses. None
//! depends on a client.

#[cfg(feature = "kubernetes")]
mod cluster;
mod endpoints;
mod nats;
mod push_cluster;
mod requests;
mod sources;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use ringmain_engine::WorkerReport;
use ringmain_gateway::health::CheckVerdict;
use ringmain_gateway::model::Distance;
use ringmain_gateway::stats::upstreams::CounterState;
use ringmain_gateway::stats::{ConnectionEnd, DatagramDrop, DatagramReport, SessionEnd};
use ringmain_gateway::{MirrorOutcome, UpstreamStatus};
use ringmain_sys::{clock, process};

use super::AdminContext;
use super::status::health_label;
use crate::limits;

/// Renders all metrics.
pub(super) fn render(inner: &AdminContext) -> String {
    let mut page = MetricsPage::default();
    write_process(&mut page, inner);
    write_workers(&mut page, inner);
    requests::write_requests(&mut page, inner);
    write_listeners(&mut page, inner);
    write_handshakes(&mut page, inner);
    write_certificates(&mut page, inner);
    write_streams(&mut page, inner);
    if let Some(report) = inner.gateway.push_report() {
        super::push_metrics::write_push(&mut page, &report);
    }
    write_upstreams(&mut page, inner);
    write_counters(&mut page, inner);
    nats::write_consumers(&mut page, inner);
    sources::write_sources(&mut page, inner);
    push_cluster::write_push_cluster(&mut page, inner);
    #[cfg(feature = "kubernetes")]
    cluster::write_cluster(&mut page, inner);
    write_configuration(&mut page, inner);
    page.0
}

/// Text that is being written.
#[derive(Default)]
pub(super) struct MetricsPage(pub(super) String);

impl MetricsPage {
    /// Writes the head of a metric; its samples follow.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            self.0.push(if number == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn write_process(page: &mut MetricsPage, inner: &AdminContext) {
    let report = inner.board.report();
    let engine = super::engine_name(report.as_ref());
    page.metric("ringmain_info", "gauge", "Version and engine; always 1.");
    page.sample(
        "ringmain_info",
        &[("version", inner.version), ("engine", engine)],
        1,
    );
    page.single(
        "ringmain_draining",
        "gauge",
        "1 during a graceful shutdown, and during the delay before it.",
        u8::from(inner.board.is_draining()),
    );
    if let Some(bytes) = process::resident_bytes() {
        page.single("process_resident_memory_bytes", "gauge", "Memory in use.", bytes);
    }
    let gauges = [
        (
            "process_virtual_memory_bytes",
            "Address space.",
            process::virtual_bytes(),
        ),
        (
            "process_open_fds",
            "Open file descriptors.",
            process::open_descriptors(),
        ),
        (
            "process_max_fds",
            "The limit of open file descriptors.",
            process::max_descriptors(),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            page.single(name, "gauge", help, value);
        }
    }
    if let Some(begun) = process::start_time() {
        let help = "Start time of the process, since the Unix epoch.";
        page.single("process_start_time_seconds", "gauge", help, begun.as_secs_f64());
    }
    page.single(
        "process_cpu_seconds_total",
        "counter",
        "CPU time used.",
        clock::process_cpu().as_secs_f64(),
    );
}

/// Name, kind, help, and the number of a worker.
type WorkerColumn = (&'static str, &'static str, &'static str, fn(&WorkerReport) -> u64);

/// The metrics of each worker.
const WORKER_METRICS: [WorkerColumn; 11] = [
    ("ringmain_connections", "gauge", "Connections open.", |w| {
        u64::from(w.connections)
    }),
    (
        "ringmain_connections_accepted_total",
        "counter",
        "Connections accepted.",
        |w| w.accepted,
    ),
    (
        "ringmain_connections_closed_total",
        "counter",
        "Connections closed.",
        |w| w.closed,
    ),
    (
        "ringmain_received_bytes_total",
        "counter",
        "Bytes received, including upstreams.",
        |w| w.bytes_received,
    ),
    (
        "ringmain_sent_bytes_total",
        "counter",
        "Bytes sent, including upstreams.",
        |w| w.bytes_sent,
    ),
    (
        "ringmain_loop_iterations_total",
        "counter",
        "Iterations of the worker's event loop.",
        |w| w.turns,
    ),
    (
        "ringmain_turns_total",
        "counter",
        "Deprecated: ringmain_loop_iterations_total.",
        |w| w.turns,
    ),
    (
        "ringmain_completions_total",
        "counter",
        "Completed operations.",
        |w| w.completions,
    ),
    (
        "ringmain_accept_pauses_total",
        "counter",
        "Pauses of accepting at a limit.",
        |w| w.accept_pauses,
    ),
    (
        "ringmain_no_buffers_total",
        "counter",
        "Reads without a free receive buffer.",
        |w| w.no_buffers,
    ),
    ("ringmain_panics_total", "counter", "Caught panics.", |w| w.panics),
];

fn write_workers(page: &mut MetricsPage, inner: &AdminContext) {
    let Some(report) = inner.board.report() else {
        return;
    };
    for (name, kind, help, pick) in WORKER_METRICS {
        page.metric(name, kind, help);
        for (number, worker) in report.workers.iter().enumerate() {
            page.sample(name, &[("worker", &number.to_string())], pick(worker));
        }
    }
}

fn write_listeners(page: &mut MetricsPage, inner: &AdminContext) {
    let name = "ringmain_listener_connections";
    page.metric(name, "gauge", "Open connections of clients, by listen address.");
    let stats = inner.site.stats();
    // Several addresses may have port 0: they are one sample.
    let mut by_address: BTreeMap<String, u64> = BTreeMap::new();
    for listener in inner.gateway.listener_reports() {
        let open = listener
            .number
            .and_then(|number| stats.listener_connections(number));
        if let Some(open) = open {
            *by_address.entry(listener.addr.to_string()).or_default() += open;
        }
    }
    for (address, open) in by_address.iter().take(limits::METRIC_LISTENERS) {
        page.sample(name, &[("address", address)], open);
    }
}

fn write_handshakes(page: &mut MetricsPage, inner: &AdminContext) {
    let handshakes = inner.gateway.handshake_counts();
    let name = "ringmain_tls_handshakes_total";
    page.metric(name, "counter", "TLS handshakes of clients.");
    let full = handshakes.finished.saturating_sub(handshakes.resumed);
    for (outcome, count) in [
        ("full", full),
        ("resumed", handshakes.resumed),
        ("failed", handshakes.failed),
    ] {
        page.sample(name, &[("outcome", outcome)], count);
    }
}

fn write_certificates(page: &mut MetricsPage, inner: &AdminContext) {
    let name = "ringmain_certificate_expiry_timestamp_seconds";
    page.metric(
        name,
        "gauge",
        "Expiry of a configured certificate, since the Unix epoch.",
    );
    let certificates = inner.gateway.certificates();
    for (name_in_file, certificate) in certificates.iter().take(limits::METRIC_CERTIFICATES) {
        page.sample(name, &[("certificate", name_in_file)], certificate.not_after);
    }
}

fn write_streams(page: &mut MetricsPage, inner: &AdminContext) {
    let streams = inner.gateway.stream_reports();
    let datagrams = inner.gateway.datagram_reports();
    let (tcp, udp) = (("protocol", "tcp"), ("protocol", "udp"));
    let name = "ringmain_streams_open";
    page.metric(
        name,
        "gauge",
        "Forwarded connections in progress and open UDP sessions, by stream route.",
    );
    for stream in &streams {
        page.sample(name, &[("route", &stream.name), tcp], stream.open_connections());
    }
    for route in &datagrams {
        page.sample(name, &[("route", &route.name), udp], route.open_sessions());
    }
    let name = "ringmain_streams_total";
    page.metric(
        name,
        "counter",
        "Finished connections and UDP sessions, by stream route and outcome.",
    );
    for stream in &streams {
        for (ended, count) in ConnectionEnd::ALL
            .iter()
            .zip(stream.ended)
            .filter(|(_, count)| *count > 0)
        {
            page.sample(
                name,
                &[("route", &stream.name), tcp, ("ended", ended.label())],
                count,
            );
        }
    }
    for route in &datagrams {
        let ended = SessionEnd::ALL.iter().zip(route.ended);
        for (ended, count) in ended.filter(|(_, count)| *count > 0) {
            page.sample(
                name,
                &[("route", &route.name), udp, ("ended", ended.label())],
                count,
            );
        }
    }
    let name = "ringmain_stream_bytes_total";
    page.metric(name, "counter", "Forwarded bytes, from and to clients.");
    for stream in &streams {
        for (direction, count) in [("received", stream.received), ("sent", stream.sent)] {
            page.sample(
                name,
                &[("route", &stream.name), tcp, ("direction", direction)],
                count,
            );
        }
    }
    for route in &datagrams {
        for (direction, count) in [("received", route.received), ("sent", route.sent)] {
            page.sample(
                name,
                &[("route", &route.name), udp, ("direction", direction)],
                count,
            );
        }
    }
    write_datagrams(page, &datagrams);
}

/// The counts that only datagrams have.
fn write_datagrams(page: &mut MetricsPage, datagrams: &[DatagramReport]) {
    let name = "ringmain_stream_datagrams_total";
    page.metric(name, "counter", "UDP datagrams, from and to clients.");
    for route in datagrams {
        for (direction, count) in [
            ("received", route.received_datagrams),
            ("sent", route.sent_datagrams),
        ] {
            page.sample(name, &[("route", &route.name), ("direction", direction)], count);
        }
    }
    let name = "ringmain_stream_datagrams_dropped_total";
    page.metric(
        name,
        "counter",
        "Dropped UDP datagrams, by stream route and cause.",
    );
    for route in datagrams {
        let dropped = DatagramDrop::ALL.iter().zip(route.dropped);
        for (cause, count) in dropped.filter(|(_, count)| *count > 0) {
            page.sample(name, &[("route", &route.name), ("cause", cause.label())], count);
        }
    }
}

fn write_upstreams(page: &mut MetricsPage, inner: &AdminContext) {
    let mut upstreams = inner.gateway.upstreams();
    upstreams.truncate(limits::METRIC_UPSTREAMS);
    type UpstreamColumn = (&'static str, &'static str, fn(&UpstreamStatus) -> u32);
    let columns: [UpstreamColumn; 4] = [
        (
            "ringmain_upstream_requests",
            "Requests in flight to an upstream.",
            |it| it.requests,
        ),
        (
            "ringmain_upstream_connections",
            "Connections to an upstream, idle ones included.",
            |it| it.connections,
        ),
        (
            "ringmain_upstream_waiting",
            "Requests queued for a connection.",
            |it| it.waiting,
        ),
        ("ringmain_upstream_retrying", "Retries in flight.", |it| {
            it.retrying
        }),
    ];
    for (name, help, pick) in columns {
        page.metric(name, "gauge", help);
        for upstream in &upstreams {
            page.sample(name, &[("upstream", &upstream.name)], pick(upstream));
        }
    }
    let name = "ringmain_upstream_hedged_total";
    page.metric(name, "counter", "Hedged requests.");
    for upstream in &upstreams {
        page.sample(name, &[("upstream", &upstream.name)], upstream.hedged);
    }
    let name = "ringmain_upstream_refused_total";
    page.metric(
        name,
        "counter",
        "Requests rejected by a limit of an upstream, by limit.",
    );
    for upstream in &upstreams {
        for (cap, count) in upstream.refused {
            page.sample(name, &[("upstream", &upstream.name), ("cap", cap.label())], count);
        }
    }
    write_distances(page, &upstreams);
    write_retries(page, &upstreams);
    write_upstream_faults(page, &upstreams);
    endpoints::write_endpoints(page, &upstreams);
    write_endpoint_health(page, &upstreams);
}

fn write_endpoint_health(page: &mut MetricsPage, upstreams: &[UpstreamStatus]) {
    let name = "ringmain_upstream_endpoints";
    page.metric(
        name,
        "gauge",
        "Endpoints of an upstream, by the result of active health checks.",
    );
    for upstream in upstreams {
        for health in [
            CheckVerdict::Unknown,
            CheckVerdict::Healthy,
            CheckVerdict::Unhealthy,
        ] {
            let count = upstream
                .endpoints
                .iter()
                .filter(|it| it.verdict == health)
                .count();
            page.sample(
                name,
                &[("upstream", &upstream.name), ("health", health_label(health))],
                count,
            );
        }
    }
}

fn write_upstream_faults(page: &mut MetricsPage, upstreams: &[UpstreamStatus]) {
    let name = "ringmain_upstream_faults_total";
    page.metric(
        name,
        "counter",
        "Faults of attempts at an upstream by kind (docs/faults.md), retried ones included; kinds without an occurrence are omitted.",
    );
    for upstream in upstreams {
        for (fault, count) in &upstream.faults {
            let labels = [("upstream", &*upstream.name), ("fault", fault.label())];
            page.sample(name, &labels, count);
        }
    }
}

/// Writes the counters of policies, by name.
fn write_counters(page: &mut MetricsPage, inner: &AdminContext) {
    let mut counters = inner.gateway.counters();
    counters.truncate(limits::METRIC_COUNTERS);
    let requests = "ringmain_concurrency_requests";
    page.metric(
        requests,
        "gauge",
        "Requests in flight counted by a concurrency limit.",
    );
    for counter in &counters {
        if let CounterState::InFlight(count) = counter.state {
            page.sample(requests, &[("name", &counter.name)], count);
        }
    }
    let forgotten = "ringmain_rate_limit_forgotten_total";
    let help = "Keys that a rate limit has evicted at its limit of keys before they were idle.";
    page.metric(forgotten, "counter", help);
    for counter in &counters {
        if let CounterState::RateLimitKeys { forgotten: count, .. } = counter.state {
            page.sample(forgotten, &[("name", &counter.name)], count);
        }
    }
}

/// Writes the attempts by distance of upstreams that prefer near endpoints.
fn write_distances(page: &mut MetricsPage, upstreams: &[UpstreamStatus]) {
    let name = "ringmain_upstream_attempts_by_distance_total";
    let help = "Attempts at endpoints of the same node, of the same zone, and elsewhere.";
    page.metric(name, "counter", help);
    for upstream in upstreams {
        let counts = Distance::ALL.into_iter().zip(upstream.distances.iter().flatten());
        // Thousands of upstreams of a cluster may have no near endpoint, and no requests.
        for (distance, count) in counts.filter(|(_, count)| **count > 0) {
            let labels = [("upstream", &*upstream.name), ("distance", distance.label())];
            page.sample(name, &labels, *count);
        }
    }
}

fn write_retries(page: &mut MetricsPage, upstreams: &[UpstreamStatus]) {
    let name = "ringmain_upstream_retries_total";
    page.metric(
        name,
        "counter",
        "Retries, by whether the upstream's retry budget allowed them.",
    );
    for upstream in upstreams {
        for (outcome, count) in [("done", upstream.retries), ("refused", upstream.retries_refused)] {
            page.sample(name, &[("upstream", &upstream.name), ("outcome", outcome)], count);
        }
    }
    let name = "ringmain_upstream_mirrored_total";
    page.metric(
        name,
        "counter",
        "Mirrored requests, by target upstream and outcome; upstreams without any are omitted.",
    );
    for upstream in upstreams
        .iter()
        .filter(|it| it.mirrors.iter().any(|count| *count > 0))
    {
        for (copied, count) in MirrorOutcome::ALL.iter().zip(upstream.mirrors) {
            page.sample(
                name,
                &[("upstream", &upstream.name), ("outcome", copied.label())],
                count,
            );
        }
    }
    let name = "ringmain_upstream_ejected_endpoints";
    page.metric(name, "gauge", "Ejected endpoints of an upstream.");
    let wall = clock::realtime();
    for upstream in upstreams {
        let ejected = upstream.endpoints.iter().filter_map(|it| it.ejection);
        let count = ejected.filter(|it| it.until > wall).count();
        page.sample(name, &[("upstream", &upstream.name)], count);
    }
}

fn write_configuration(page: &mut MetricsPage, inner: &AdminContext) {
    let reloads = inner.control.reloads();
    let status = inner.control.status();
    let name = "ringmain_config_reloads_total";
    page.metric(
        name,
        "counter",
        "Reloads of the configuration: good, applied; bad, rejected.",
    );
    page.sample(name, &[("outcome", "good")], reloads.succeeded);
    page.sample(name, &[("outcome", "bad")], reloads.failed);
    page.single(
        "ringmain_config_last_reload_successful",
        "gauge",
        "1 if the configuration as last read is served, 0 if it was rejected and the previous one is served.",
        u8::from(status.is_current),
    );
    page.single(
        "ringmain_config_last_reload_timestamp_seconds",
        "gauge",
        "Time of the last reload, successful or not.",
        status.attempted_at.as_secs_f64(),
    );
    page.single(
        "ringmain_config_last_reload_success_timestamp_seconds",
        "gauge",
        "Time at which the served configuration was loaded.",
        status.loaded_at.as_secs_f64(),
    );
    page.single(
        "ringmain_config_current",
        "gauge",
        "The same as ringmain_config_last_reload_successful.",
        u8::from(status.is_current),
    );
    page.single(
        "ringmain_config_errors",
        "gauge",
        "Errors of the configuration as last read.",
        status.errors.len(),
    );
    page.single(
        "ringmain_config_read_timestamp_seconds",
        "gauge",
        "The same as ringmain_config_last_reload_success_timestamp_seconds, in whole seconds.",
        status.loaded_at.as_secs(),
    );
    if let Some(log) = inner.site.access_log() {
        page.single(
            "ringmain_access_log_lost_lines_total",
            "counter",
            "Lost lines of the access log: its destination was too slow or has failed.",
            log.lost_lines(),
        );
    }
}
