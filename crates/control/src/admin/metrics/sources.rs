//! Counters of sources. Their names are the configuration's, of which there are at most [`SOURCES`](crate::limits::SOURCES).

use ringmain_sources::{DeadReason, Report};

use super::MetricsPage;
use crate::admin::AdminContext;

/// Name, kind, help, and the value of a source; `None`: unknown at the moment.
type SourceColumn = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Report) -> Option<f64>,
);

fn flag(is_set: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_set)))
}

const COLUMNS: [SourceColumn; 17] = [
    (
        "ringmain_push_source_connected",
        "gauge",
        "1 while a source is connected to its broker.",
        |it| flag(it.connected),
    ),
    (
        "ringmain_push_source_delivers",
        "gauge",
        "1 while the broker of a source delivers.",
        |it| flag(it.delivers),
    ),
    (
        "ringmain_push_source_connects_total",
        "counter",
        "Connections that a source has made: all but the first are reconnects.",
        |it| Some(it.connects as f64),
    ),
    (
        "ringmain_push_source_failures_total",
        "counter",
        "Connections that a source has lost, and attempts that failed.",
        |it| Some(it.failures as f64),
    ),
    (
        "ringmain_push_source_records_total",
        "counter",
        "Records that a source has read.",
        |it| Some(it.records as f64),
    ),
    (
        "ringmain_push_source_published_total",
        "counter",
        "Publications of a source that channels have taken.",
        |it| Some(it.published as f64),
    ),
    (
        "ringmain_push_source_repeated_total",
        "counter",
        "Publications of a source that channels had before, and that were not sent again.",
        |it| Some(it.repeated as f64),
    ),
    (
        "ringmain_push_source_dead_letters_waiting",
        "gauge",
        "Dead letters of a source that wait for their destination.",
        |it| Some(it.letters_waiting as f64),
    ),
    (
        "ringmain_push_source_dead_letter_failures_total",
        "counter",
        "Attempts of a source to deliver a dead letter that failed.",
        |it| Some(it.letter_failures as f64),
    ),
    (
        "ringmain_push_source_degraded",
        "gauge",
        "1 while a source cannot deliver its dead letters.",
        |it| flag(it.letters_fail),
    ),
    (
        "ringmain_push_source_commits_total",
        "counter",
        "Commits and acknowledgements that the broker of a source has confirmed.",
        |it| Some(it.commits as f64),
    ),
    (
        "ringmain_push_source_gaps_total",
        "counter",
        "Times at which a source has, or may have, missed records: positioned clients were notified.",
        |it| Some(it.gaps as f64),
    ),
    (
        "ringmain_push_source_partitions",
        "gauge",
        "Partitions that a source reads.",
        |it| Some(it.partitions as f64),
    ),
    (
        "ringmain_push_source_paused_partitions",
        "gauge",
        "Partitions that a source does not read at the moment, because workers of their channels have no room, or too many dead letters wait.",
        |it| Some(it.paused as f64),
    ),
    (
        "ringmain_push_source_in_flight",
        "gauge",
        "Records that were read and are not done.",
        |it| Some(it.in_flight as f64),
    ),
    (
        "ringmain_push_source_lag_records",
        "gauge",
        "Records in the broker that a source has not read yet.",
        |it| it.lag.map(|lag| lag as f64),
    ),
    (
        "ringmain_push_source_lag_seconds",
        "gauge",
        "The age of the record that a source has read last, when it was read.",
        |it| it.lag_time.map(|age| age.as_secs_f64()),
    ),
];

/// Nothing without sources.
pub(super) fn write_sources(page: &mut MetricsPage, inner: &AdminContext) {
    let reports = inner.control.sources().reports();
    if reports.is_empty() {
        return;
    }
    for (name, kind, help, pick) in COLUMNS {
        page.metric(name, kind, help);
        for report in &reports {
            if let Some(value) = pick(report) {
                page.sample(name, &[("source", &*report.name), ("kind", report.kind)], value);
            }
        }
    }
    let name = "ringmain_push_source_dead_letters_total";
    page.metric(name, "counter", "Records that were not published, by reason.");
    for report in &reports {
        for (reason, count) in DeadReason::ALL.iter().zip(report.dead) {
            let labels = [
                ("source", &*report.name),
                ("kind", report.kind),
                ("reason", reason.label()),
            ];
            page.sample(name, &labels, count);
        }
    }
}
