//! The node of this process in a push cluster. Names of other nodes are no labels: they change with each Pod.

use super::MetricsPage;
use crate::admin::AdminContext;
use crate::admin::push_cluster_status::{LogRow, PushClusterStatus, push_cluster_status};

/// Nothing without a cluster.
pub(super) fn write_push_cluster(page: &mut MetricsPage, inner: &AdminContext) {
    if let Some(status) = push_cluster_status(inner) {
        write_status(page, &status);
    }
}

fn write_status(page: &mut MetricsPage, status: &PushClusterStatus) {
    page.metric(
        "ringmain_push_cluster_info",
        "gauge",
        "Name, role and zone of this node; always 1.",
    );
    page.sample(
        "ringmain_push_cluster_info",
        &[
            ("name", &status.name),
            ("role", status.role),
            ("zone", &status.zone),
        ],
        1,
    );
    let flag = |is_set: bool| u64::from(is_set);
    for (name, help, value) in [
        (
            "ringmain_push_cluster_nodes",
            "Other nodes that are linked.",
            (status.nodes.len() + status.more_nodes) as u64,
        ),
        (
            "ringmain_push_cluster_leaving",
            "1 while this node hands its channels over, and afterwards.",
            flag(status.state != "active"),
        ),
        (
            "ringmain_push_cluster_lacks_servers",
            "1 while no node is linked that owns channels, and this one owns none by its role.",
            flag(status.lacks_servers),
        ),
        (
            "ringmain_push_cluster_owned_channels",
            "Channels that this node owns.",
            status.owned_channels as u64,
        ),
        (
            "ringmain_push_cluster_mirrors",
            "Channels that this node mirrors for its subscribers, its own included.",
            status.mirrors as u64,
        ),
        (
            "ringmain_push_cluster_waiting_requests",
            "Publications, queries and calls that wait for other nodes.",
            status.waiting_requests as u64,
        ),
    ] {
        page.single(name, "gauge", help, value);
    }
    if let Some(ratio) = status.load_ratio {
        let help = "Clients of this node relative to its share by weight.";
        page.single("ringmain_push_cluster_load_ratio", "gauge", help, ratio);
    }
    write_totals(page, status);
    if let Some(log) = &status.log {
        write_log(page, log);
    }
}

fn write_log(page: &mut MetricsPage, log: &LogRow) {
    for (name, help, value) in [
        (
            "ringmain_push_log_ready",
            "1 while beats of this node arrive through the log.",
            u64::from(log.ready),
        ),
        (
            "ringmain_push_log_connected",
            "1 while the broker of the log is reached.",
            u64::from(log.connected),
        ),
        (
            "ringmain_push_log_owned_partitions",
            "Partitions of the log that this node owns.",
            log.owned_partitions as u64,
        ),
        (
            "ringmain_push_log_live_partitions",
            "Partitions that this node owns and whose entries it reads.",
            log.live_partitions as u64,
        ),
        (
            "ringmain_push_log_appends_in_flight",
            "Entries that were appended and not read yet.",
            log.appends as u64,
        ),
    ] {
        page.single(name, "gauge", help, value);
    }
    for (name, help, value) in [
        (
            "ringmain_push_log_round_trip_seconds",
            "The last time from the append of a beat to its arrival.",
            log.round_trip,
        ),
        (
            "ringmain_push_log_silent_seconds",
            "The longest time since a beat of this node has arrived, over its partitions.",
            log.silent,
        ),
    ] {
        page.single(name, "gauge", help, value);
    }
    write_log_totals(page, log);
}

fn write_log_totals(page: &mut MetricsPage, log: &LogRow) {
    for (name, help, value) in [
        (
            "ringmain_push_log_appended_total",
            "Publications that are in the log.",
            log.appended,
        ),
        (
            "ringmain_push_log_refused_total",
            "Attempts to append a publication that were refused; most are repeated.",
            log.refused,
        ),
        (
            "ringmain_push_log_unknown_total",
            "Publications that may be in the log or not.",
            log.unknown,
        ),
        (
            "ringmain_push_log_repeated_total",
            "Publications whose idempotency key was used before.",
            log.repeated,
        ),
        (
            "ringmain_push_log_records_total",
            "Entries that were read.",
            log.records,
        ),
        (
            "ringmain_push_log_unreadable_total",
            "Entries that were left out: they are of another version, or of another program.",
            log.unreadable,
        ),
        (
            "ringmain_push_log_lives_total",
            "New epochs of partitions that were read.",
            log.lives,
        ),
        (
            "ringmain_push_log_rollbacks_total",
            "Times that the broker had lost entries which were read before.",
            log.rollbacks,
        ),
        (
            "ringmain_push_log_trimmed_total",
            "Times that entries were deleted before they were read.",
            log.trimmed,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
}

fn write_totals(page: &mut MetricsPage, status: &PushClusterStatus) {
    for (name, help, value) in [
        (
            "ringmain_push_cluster_crossed_total",
            "Publications that were sent to other nodes, once for each node.",
            status.crossed,
        ),
        (
            "ringmain_push_cluster_gaps_total",
            "Gaps of channels here: their owner has ended, or a link was too slow.",
            status.gaps,
        ),
        (
            "ringmain_push_cluster_moved_channels_total",
            "Channels that were handed to other nodes.",
            status.moved_channels,
        ),
        (
            "ringmain_push_cluster_removed_nodes_total",
            "Nodes that were removed because they were silent.",
            status.removed,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
}
