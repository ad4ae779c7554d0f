//! Keys of the push server's cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField};
use crate::config::fields::Parsed;
use crate::config::scalars::{Fraction, Multiple};
use ringmain_gateway::model::Hostname;

/// Nodes that share their channels: publications, presence and commands of the server API reach the clients of every node. Each
/// channel has one owner, which hands it over when it is stopped; if it is killed, the channel starts a new epoch and its clients are
/// notified. Applies after a restart.
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
    /// The share of channels that this node owns, and of clients that `rebalance` leaves here, relative to the other nodes: from 1 to 64.
    /// Default: 1.
    pub(in crate::config) weight: Field<u16>,
    /// Sends clients to less loaded nodes. Default: none, clients remain at their node.
    pub(in crate::config) rebalance: Field<PushRebalanceSection>,
    /// Mutual TLS between the nodes. Default: none, links are not encrypted.
    pub(in crate::config) tls: Field<PushClusterTlsSection>,
}

/// Sends clients of a node with more than its share to other nodes: they are disconnected with code 3011, on which SDKs reconnect at once.
/// The share is by `weight`, among nodes that have clients and are not leaving. Example: `{above: 1.2, until: 1.05, rate: 0.5%}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushRebalance")]
pub(in crate::config) struct PushRebalanceSection {
    /// The multiple of its share above which a node starts to send clients away. Default: 1.2.
    pub(in crate::config) above: Field<Parsed<Multiple>>,
    /// The multiple at which it stops: less than `above`. Default: 1.05.
    pub(in crate::config) until: Field<Parsed<Multiple>>,
    /// The part of its clients that it sends away in a second, at most all. Default: 0.5%.
    pub(in crate::config) rate: Field<Parsed<Fraction>>,
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
