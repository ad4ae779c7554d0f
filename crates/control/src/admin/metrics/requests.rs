//! Requests by route, upstream and status, responses, and faults.

use ringmain_gateway::stats::{BUCKETS, SeriesReport};

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
    write_series(page, &inner.gateway.series_reports());
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

fn write_histograms(page: &mut MetricsPage, name: &str, series: &SeriesReport) {
    let (bucket, sum_name, count_name) = (
        format!("{name}_bucket"),
        format!("{name}_sum"),
        format!("{name}_count"),
    );
    for (class, durations) in CLASSES.iter().zip(&series.durations) {
        if durations.buckets.iter().all(|count| *count == 0) {
            continue;
        }
        let labels = [
            ("route", &*series.route),
            ("upstream", &*series.upstream),
            ("class", *class),
        ];
        let mut sum = 0;
        for (index, count) in durations.buckets.iter().enumerate() {
            sum += count;
            let end = BUCKETS
                .get(index)
                .map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let [route, upstream, class] = labels;
            page.sample(&bucket, &[route, upstream, class, ("le", &end)], sum);
        }
        page.sample(&sum_name, &labels, durations.micros as f64 / 1e6);
        page.sample(&count_name, &labels, sum);
    }
}
