//! The node of this process in a push cluster. Names of other nodes are no labels: they change with each Pod.

use super::MetricsPage;
use crate::admin::AdminContext;
use crate::admin::push_cluster_status::{PushClusterStatus, push_cluster_status};

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
