//! This process as a node of a push cluster, and the other nodes, as the administration shows them: one document for the API and the page.

use ringmain_cluster::links::{ClusterReport, LogReport, NodeReport};
use ringmain_cluster::member::{Member, Role, share_of_clients};
use serde::Serialize;

use super::AdminContext;

/// This node, and the others in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct PushClusterStatus {
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) zone: String,
    pub(super) weight: u16,
    /// `active`, `leaving` or `left`.
    pub(super) state: &'static str,
    /// The address for links of other nodes.
    pub(super) listen: String,
    /// Connected clients.
    pub(super) clients: u64,
    /// The clients here, relative to the share of this node by its weight. `None`: it has no clients by its role, or there are none.
    pub(super) load_ratio: Option<f64>,
    /// No other node that owns channels is linked, and this one owns none either.
    pub(super) lacks_servers: bool,
    pub(super) owned_channels: usize,
    pub(super) mirrors: usize,
    /// Publications and queries that wait for another node.
    pub(super) waiting_requests: usize,
    /// Publications that were sent to other nodes.
    pub(super) crossed: u64,
    /// Gaps of channels here.
    pub(super) gaps: u64,
    /// Channels that were handed to other nodes.
    pub(super) moved_channels: u64,
    /// Nodes that were removed because they were silent.
    pub(super) removed: u64,
    /// The log behind the channels, if there is one and this node owns channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<LogRow>,
    /// A node with other settings of the log: this one is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) other_log: Option<String>,
    pub(super) nodes: Vec<NodeRow>,
    /// Further nodes, which are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) more_nodes: usize,
}

/// The log behind the channels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct LogRow {
    /// The broker.
    pub(super) engine: &'static str,
    /// Beats of this node arrive through the log.
    pub(super) ready: bool,
    pub(super) connected: bool,
    /// The reason why it is not connected.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: String,
    pub(super) partitions: usize,
    /// The partitions that this node owns, and the owned ones that it reads.
    pub(super) owned_partitions: usize,
    pub(super) live_partitions: usize,
    /// Channels whose publications in the log this node has.
    pub(super) channels: usize,
    /// Appends in flight.
    pub(super) appends: usize,
    /// The last time from the append of a beat to its arrival, in seconds.
    pub(super) round_trip: f64,
    /// The longest time since a beat of this node has arrived, over its partitions, in seconds.
    pub(super) silent: f64,
    pub(super) appended: u64,
    pub(super) refused: u64,
    pub(super) unknown: u64,
    pub(super) repeated: u64,
    pub(super) records: u64,
    pub(super) unreadable: u64,
    /// Lives that have begun, records that were gone, and records that were deleted before they were read.
    pub(super) lives: u64,
    pub(super) rollbacks: u64,
    pub(super) trimmed: u64,
}

impl LogRow {
    fn new(log: &LogReport, engine: &'static str) -> LogRow {
        LogRow {
            engine,
            ready: log.is_ready,
            connected: log.is_connected,
            reason: if log.is_connected {
                String::new()
            } else {
                log.reason.to_string()
            },
            partitions: log.partitions,
            owned_partitions: log.owned,
            live_partitions: log.live,
            channels: log.channels,
            appends: log.appends,
            round_trip: log.round_trip.as_secs_f64(),
            silent: log.silent.as_secs_f64(),
            appended: log.counts.appended,
            refused: log.counts.refused,
            unknown: log.counts.unknown,
            repeated: log.counts.repeated,
            records: log.counts.records,
            unreadable: log.counts.unreadable,
            lives: log.counts.lives,
            rollbacks: log.counts.rollbacks,
            trimmed: log.counts.trimmed,
        }
    }
}

/// Another node, as it has reported itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct NodeRow {
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) zone: String,
    pub(super) weight: u16,
    pub(super) state: &'static str,
    pub(super) clients: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl PushClusterStatus {
    /// Limits the list of nodes, and counts the rest.
    pub(super) fn truncate(&mut self, max: usize) {
        self.more_nodes += self.nodes.len().saturating_sub(max);
        self.nodes.truncate(max);
    }

    pub(super) fn new(
        member: &Member,
        report: &ClusterReport,
        clients: u64,
        is_leaving: bool,
    ) -> PushClusterStatus {
        let state = match (report.has_left, is_leaving) {
            (true, _) => "left",
            (false, true) => "leaving",
            (false, false) => "active",
        };
        // A push gateway has no connection to the log: its publications go to nodes that own channels.
        let log = report.log.as_ref().filter(|_| member.role.owns_channels());
        PushClusterStatus {
            uid: member.uid.to_string(),
            name: member.name.to_string(),
            role: role_label(member.role),
            zone: member.zone.to_string(),
            weight: member.weight,
            state,
            clients,
            load_ratio: load_ratio(member, report, clients),
            owned_channels: report.counts.owned,
            mirrors: report.counts.mirrors,
            waiting_requests: report.counts.requests,
            crossed: report.counts.crossed,
            gaps: report.counts.gaps,
            moved_channels: report.counts.moved,
            removed: report.counts.removed,
            log: log.map(|log| LogRow::new(log, report.log_engine)),
            other_log: report.other_log.as_ref().map(ToString::to_string),
            nodes: report.nodes.iter().map(NodeRow::from).collect(),
            ..PushClusterStatus::default()
        }
    }
}

impl From<&NodeReport> for NodeRow {
    fn from(node: &NodeReport) -> NodeRow {
        NodeRow {
            uid: node.uid.to_string(),
            name: node.name.to_string(),
            role: role_label(node.role),
            zone: node.zone.to_string(),
            weight: node.weight,
            state: if node.is_leaving { "leaving" } else { "active" },
            clients: node.clients,
        }
    }
}

/// Returns the name of a role in the configuration.
pub(super) const fn role_label(role: Role) -> &'static str {
    match role {
        Role::All => "all",
        Role::Gateway => "push-gateway",
        Role::Server => "push-server",
    }
}

/// Returns the clients here relative to the share of this node among nodes that have clients, by weight.
fn load_ratio(member: &Member, report: &ClusterReport, clients: u64) -> Option<f64> {
    let others = report
        .nodes
        .iter()
        .filter(|node| node.role.has_clients() && !node.is_leaving);
    let others = others.map(|node| (node.weight, u64::from(node.clients)));
    let share = share_of_clients((member.weight, clients), others);
    let has_share = member.role.has_clients() && share > 0.0;
    has_share.then(|| (100.0 * clients as f64 / share).round() / 100.0)
}

/// Returns the state of this node. `None`: the configuration has no cluster.
pub(super) fn push_cluster_status(inner: &AdminContext) -> Option<PushClusterStatus> {
    let node = inner.control.push_cluster()?;
    let cluster = node.links();
    let clients = inner
        .gateway
        .push_report()
        .map(|report| report.clients)
        .unwrap_or_default();
    Some(PushClusterStatus {
        listen: cluster.address().to_string(),
        lacks_servers: node.lacks_servers(),
        ..PushClusterStatus::new(cluster.member(), &cluster.report(), clients, node.is_leaving())
    })
}

#[cfg(test)]
mod tests;
