//! Requests by route, upstream and status, responses, and faults.

use ringmain_gateway::stats::{BUCKETS, Durations, ExtensionOutcome, ExtensionReport, SeriesReport};

use super::MetricsPage;
use crate::admin::AdminContext;
use crate::admin::status::CLASSES;

pub(super) fn write_requests(page: &mut MetricsPage, inner: &AdminContext) {
    let totals = inner.site.stats().totals();
    for (name, help) in [
        (
            "ringmain_responses_total",
            "Responses to clients, including requests rejected before routing.",
        ),
        ("ringmain_answers_total", "Deprecated: ringmain_responses_total."),
    ] {
        page.metric(name, "counter", help);
        for (class, count) in CLASSES.iter().zip(&totals.classes[1..]) {
            page.sample(name, &[("class", class)], count);
        }
    }
    page.single(
        "ringmain_requests_refused_total",
        "counter",
        "Invalid HTTP requests.",
        totals.refused,
    );
    let name = "ringmain_requests_rejected_total";
    page.metric(
        name,
        "counter",
        "Requests rejected with 503 by a limit of the server, whatever their route, by limit.",
    );
    for (rejection, count) in totals.rejected {
        page.sample(name, &[("limit", rejection.label())], count);
    }
    write_series(page, &inner.gateway.series_reports());
    write_extensions(page, &inner.gateway.extension_reports());
    let name = "ringmain_faults_total";
    page.metric(name, "counter", "Faults by kind: docs/faults.md.");
    for (fault, count) in inner.gateway.fault_counts() {
        page.sample(
            name,
            &[("fault", fault.label()), ("side", fault.side().label())],
            count,
        );
    }
}

/// The counts of each pair of a route and an upstream.
pub(super) fn write_series(page: &mut MetricsPage, all: &[SeriesReport]) {
    let name = "ringmain_requests_total";
    page.metric(
        name,
        "counter",
        "Requests by route, upstream and status code. No route: none matched; no upstream: not forwarded.",
    );
    for series in all {
        let mut sample = |code: &str, count: u64| {
            let labels = [
                ("route", &*series.route),
                ("upstream", &*series.upstream),
                ("code", code),
            ];
            page.sample(name, &labels, count);
        };
        for (code, count) in &series.codes {
            sample(&code.to_string(), *count);
        }
        for (class, count) in CLASSES.iter().zip(series.other_codes) {
            if count > 0 {
                sample(class, count);
            }
        }
    }
    let name = "ringmain_request_duration_seconds";
    page.metric(
        name,
        "histogram",
        "From a request's head to the end of its response, by route, upstream and class of status; not of tunnels.",
    );
    for series in all {
        write_histograms(page, name, series);
    }
}

/// The calls to external services, by extension and upstream.
fn write_extensions(page: &mut MetricsPage, all: &[ExtensionReport]) {
    let name = "ringmain_extension_calls_total";
    page.metric(
        name,
        "counter",
        "Calls to external services that take part in requests, by kind, upstream and outcome.",
    );
    for report in all {
        for (outcome, count) in ExtensionOutcome::ALL.iter().zip(report.outcomes) {
            let labels = [
                ("extension", report.kind.label()),
                ("upstream", &*report.upstream),
                ("outcome", outcome.label()),
            ];
            page.sample(name, &labels, count);
        }
    }
    let name = "ringmain_extension_duration_seconds";
    page.metric(
        name,
        "histogram",
        "Durations of these calls, failed ones included.",
    );
    for report in all {
        let labels = [
            ("extension", report.kind.label()),
            ("upstream", &*report.upstream),
        ];
        write_histogram(page, name, &labels, &report.durations);
    }
}

fn write_histograms(page: &mut MetricsPage, name: &str, series: &SeriesReport) {
    for (class, durations) in CLASSES.iter().zip(&series.durations) {
        if durations.buckets.iter().all(|count| *count == 0) {
            continue;
        }
        let labels = [
            ("route", &*series.route),
            ("upstream", &*series.upstream),
            ("class", *class),
        ];
        write_histogram(page, name, &labels, durations);
    }
}

fn write_histogram(page: &mut MetricsPage, name: &str, labels: &[(&str, &str)], durations: &Durations) {
    let mut sum = 0;
    for (index, count) in durations.buckets.iter().enumerate() {
        sum += count;
        let end = BUCKETS
            .get(index)
            .map_or_else(|| "+Inf".to_owned(), f64::to_string);
        let labels = [labels, &[("le", &*end)]].concat();
        page.sample(&format!("{name}_bucket"), &labels, sum);
    }
    page.sample(&format!("{name}_sum"), labels, durations.micros as f64 / 1e6);
    page.sample(&format!("{name}_count"), labels, sum);
}
