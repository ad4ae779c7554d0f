//! Counts of clients that are pushed to, and of channels.

use ringmain_push::metrics::{Report, slow_label};

use super::metrics::MetricsPage;

/// Name, kind, help and the number.
type PushColumn = (&'static str, &'static str, &'static str, fn(&Report) -> u64);

const COLUMNS: [PushColumn; 12] = [
    ("ringmain_push_clients", "gauge", "Connected clients.", |it| {
        it.clients
    }),
    (
        "ringmain_push_users",
        "gauge",
        "Users with connected clients.",
        |it| it.users,
    ),
    (
        "ringmain_push_subscriptions",
        "gauge",
        "Subscriptions of clients.",
        |it| it.subscriptions,
    ),
    (
        "ringmain_push_channels",
        "gauge",
        "Channels with subscribers or retained publications.",
        |it| it.channels,
    ),
    (
        "ringmain_push_heard_channels",
        "gauge",
        "Channels with subscribers.",
        |it| it.subscribed_channels,
    ),
    (
        "ringmain_push_connects_total",
        "counter",
        "Admitted clients.",
        |it| it.connects,
    ),
    (
        "ringmain_push_publications_total",
        "counter",
        "Publications, with or without subscribers.",
        |it| it.publications,
    ),
    (
        "ringmain_push_repeated_total",
        "counter",
        "Publications ignored because their idempotency key was used before.",
        |it| it.duplicates,
    ),
    (
        "ringmain_push_forgotten_keys_total",
        "counter",
        "Idempotency keys that were evicted early at the limit.",
        |it| it.dropped_keys,
    ),
    (
        "ringmain_push_evicted_channels_total",
        "counter",
        "Unused channels that were removed before their time, to make room for others at the limit of channels.",
        |it| it.evicted_channels,
    ),
    (
        "ringmain_push_deliveries_total",
        "counter",
        "Publications queued for clients, once per client.",
        |it| it.deliveries,
    ),
    (
        "ringmain_push_lost_total",
        "counter",
        "Subscriptions with a gap: a queue between workers was full, or the channel's source or owner was interrupted.",
        |it| it.lost,
    ),
];

/// Writes all metrics of push.
pub(super) fn write_push(page: &mut MetricsPage, report: &Report) {
    for (name, kind, help, pick) in COLUMNS {
        page.single(name, kind, help, pick(report));
    }
    let name = "ringmain_push_refused_total";
    page.metric(name, "counter", "Rejected clients, by reason.");
    for (why, count) in report.refused {
        page.sample(name, &[("reason", why.label())], count);
    }
    let name = "ringmain_push_disconnects_total";
    page.metric(name, "counter", "Disconnected clients, by code.");
    for (code, count) in &report.disconnects {
        let code = code.map_or_else(|| "other".to_owned(), |code| code.to_string());
        page.sample(name, &[("code", &code)], count);
    }
    let name = "ringmain_push_slow_total";
    page.metric(
        name,
        "counter",
        "Publications for slow clients, by the policy of their channel.",
    );
    for (slow, count) in report.slow {
        page.sample(name, &[("rule", slow_label(slow))], count);
    }
    let name = "ringmain_push_recoveries_total";
    page.metric(
        name,
        "counter",
        "Recoveries of subscriptions, by whether all missed publications were available.",
    );
    for (outcome, count) in [("complete", report.recovered), ("gap", report.unrecovered)] {
        page.sample(name, &[("outcome", outcome)], count);
    }
}
