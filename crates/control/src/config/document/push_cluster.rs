//! Keys of the push server's cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField};
use crate::config::fields::Parsed;
use ringmain_gateway::model::Hostname;

/// Nodes that share their channels: publications, presence and commands of the server API reach the clients of every node. Each
/// channel has one owner; if that node ends, the channel starts a new epoch and its clients are notified. Applies after a restart.
/// Example: `{listen: "127.0.0.1:7946", nodes: ["127.0.0.1:7947"]}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushCluster")]
pub(in crate::config) struct PushClusterSection {
    /// The address for links of other nodes, `IP:PORT`. Without `tls` it must be a loopback address. Example: `10.0.0.5:7946`.
    pub(in crate::config) listen: Field<String>,
    /// The nodes, as `HOST:PORT`. Each address of a host's name is a node, so one name in DNS can denote the cluster; names are resolved
    /// again every two seconds. This node may be among them. Example: `push.internal:7946`.
    pub(in crate::config) nodes: OneOrManyField<String>,
    /// The name of this node in logs and metrics. Default: the value of `listen`. Example: `push-1`.
    pub(in crate::config) name: Field<String>,
    /// The share of channels that this node owns relative to the other nodes, from 1 to 64. Default: 1.
    pub(in crate::config) weight: Field<u16>,
    /// Mutual TLS between the nodes. Default: none, links are not encrypted.
    pub(in crate::config) tls: Field<PushClusterTlsSection>,
}

/// Mutual TLS between nodes: each node presents its certificate. Example: `{certificate: node, authorities: nodes}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushClusterTls")]
pub(in crate::config) struct PushClusterTlsSection {
    /// The name of this node's certificate, which is used in both directions. Example: `node`.
    pub(in crate::config) certificate: Field<String>,
    /// The names of the authorities that issue the nodes' certificates. Every holder of their certificates is accepted as a node. Example:
    /// `nodes`.
    pub(in crate::config) authorities: OneOrManyField<String>,
    /// The name that the certificates of other nodes are verified against. Default: the host of the entry in `nodes`.
    pub(in crate::config) server_name: Field<Parsed<Hostname>>,
}
