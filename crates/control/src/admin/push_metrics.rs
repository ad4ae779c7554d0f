//! Counts of clients that are pushed to, and of channels.

use ringmain_push::metrics::{Report, slow_label};

use super::metrics::MetricsPage;

/// Name, kind, help and the number.
type PushColumn = (&'static str, &'static str, &'static str, fn(&Report) -> u64);

const COLUMNS: [PushColumn; 12] = [
    (
        "ringmain_push_clients",
        "gauge",
        "Clients that are connected.",
        |it| it.clients,
    ),
    (
        "ringmain_push_users",
        "gauge",
        "Users of whom clients are connected.",
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
        "Channels that are known, for their subscribers or for what they keep.",
        |it| it.channels,
    ),
    (
        "ringmain_push_heard_channels",
        "gauge",
        "Channels with subscribers.",
        |it| it.heard_channels,
    ),
    (
        "ringmain_push_connects_total",
        "counter",
        "Clients that were let in.",
        |it| it.connects,
    ),
    (
        "ringmain_push_publications_total",
        "counter",
        "Publications, whether or not anybody listened.",
        |it| it.publications,
    ),
    (
        "ringmain_push_repeated_total",
        "counter",
        "Publications that were not done again, since one of the same idempotency key was.",
        |it| it.repeated,
    ),
    (
        "ringmain_push_forgotten_keys_total",
        "counter",
        "Idempotency keys that were forgotten before their time for want of room.",
        |it| it.forgotten_keys,
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
        "What was put among what waits for a client, each client counted.",
        |it| it.deliveries,
    ),
    (
        "ringmain_push_lost_total",
        "counter",
        "Subscribers that missed something since a queue between workers was full.",
        |it| it.lost,
    ),
];

/// All of them.
pub(super) fn write_push(page: &mut MetricsPage, report: &Report) {
    for (name, kind, help, pick) in COLUMNS {
        page.single(name, kind, help, pick(report));
    }
    let name = "ringmain_push_refused_total";
    page.metric(name, "counter", "Clients that were not let in, by why.");
    for (why, count) in report.refused {
        page.sample(name, &[("reason", why.label())], count);
    }
    let name = "ringmain_push_disconnects_total";
    page.metric(name, "counter", "Clients that were sent away, by code.");
    for (code, count) in &report.disconnects {
        let code = code.map_or_else(|| "other".to_owned(), |code| code.to_string());
        page.sample(name, &[("code", &code)], count);
    }
    let name = "ringmain_push_slow_total";
    page.metric(
        name,
        "counter",
        "Publications that a client was too slow for, by the rule of their channel.",
    );
    for (slow, count) in report.slow {
        page.sample(name, &[("rule", slow_label(slow))], count);
    }
    let name = "ringmain_push_recoveries_total";
    page.metric(
        name,
        "counter",
        "Clients that came back to a channel, by whether they got all that they had missed.",
    );
    for (outcome, count) in [("complete", report.recovered), ("gap", report.unrecovered)] {
        page.sample(name, &[("outcome", outcome)], count);
    }
}
