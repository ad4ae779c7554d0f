//! Counters of NATS consumers. Their names are the configuration's, at most [`NATS_CONSUMERS`](crate::limits::NATS_CONSUMERS).

use super::MetricsPage;
use crate::admin::AdminContext;
use crate::nats::{ConsumerReport, DropReason};

/// Name, kind, help, and the number of a consumer.
type ConsumerColumn = (
    &'static str,
    &'static str,
    &'static str,
    fn(&ConsumerReport) -> f64,
);

const COLUMNS: [ConsumerColumn; 5] = [
    (
        "ringmain_push_nats_connected",
        "gauge",
        "1 while a consumer of NATS is connected.",
        |it| f64::from(u8::from(it.connected)),
    ),
    (
        "ringmain_push_nats_connects_total",
        "counter",
        "Connections that a consumer of NATS has made: all but the first are reconnects.",
        |it| it.connects as f64,
    ),
    (
        "ringmain_push_nats_failures_total",
        "counter",
        "Lost connections and failed attempts of a NATS consumer.",
        |it| it.failures as f64,
    ),
    (
        "ringmain_push_nats_messages_total",
        "counter",
        "Messages received from NATS.",
        |it| it.messages as f64,
    ),
    (
        "ringmain_push_nats_lag_seconds",
        "gauge",
        "Time from the receipt of the last message to its hand-over to a worker; of a waiting message, the time so far.",
        |it| it.lag.as_secs_f64(),
    ),
];

/// Nothing where there are none.
pub(super) fn write_consumers(page: &mut MetricsPage, inner: &AdminContext) {
    let consumers = inner.control.consumers();
    let reports = consumers.reports();
    if reports.is_empty() {
        return;
    }
    for (name, kind, help, pick) in COLUMNS {
        page.metric(name, kind, help);
        for report in &reports {
            page.sample(name, &[("consumer", &report.name)], pick(report));
        }
    }
    let name = "ringmain_push_nats_dropped_total";
    page.metric(
        name,
        "counter",
        "Messages from NATS that were not published, by reason.",
    );
    for report in &reports {
        for (why, count) in DropReason::ALL.iter().zip(report.dropped) {
            let labels = [("consumer", &*report.name), ("reason", why.label())];
            page.sample(name, &labels, count);
        }
    }
    let name = "ringmain_push_nats_hand_over_seconds";
    page.metric(
        name,
        "summary",
        "From the receipt of messages to their hand-over to workers.",
    );
    for report in &reports {
        let labels = [("consumer", &*report.name)];
        page.sample(
            &format!("{name}_sum"),
            &labels,
            report.hand_over_sum.as_secs_f64(),
        );
        page.sample(&format!("{name}_count"), &labels, report.handed_over);
    }
    let help = "Publications from outside the workers, queued for them.";
    page.single("ringmain_push_arriving", "gauge", help, consumers.waiting());
}
