//! Keys of the push server's cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField};
use crate::config::fields::{Parsed, ShortOrFull};
use crate::config::scalars::{Fraction, Multiple, ServiceName, ServicePort};
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
    /// again every two seconds. This node may be among them. Or the Pods of a Service of Kubernetes, in place of a list. Example:
    /// `push.internal:7946`.
    pub(in crate::config) nodes: OneOrManyField<ShortOrFull<String, PushNodesSection>>,
    /// The name of this node in logs and metrics. Default: the value of `listen`. Example: `push-1`.
    pub(in crate::config) name: Field<String>,
    /// The tasks of this node. Each cluster needs a node that owns channels. Default: `all`.
    pub(in crate::config) role: Field<PushRole>,
    /// The zone of this node. Default: the top-level key `zone`; with `nodes.kubernetes` otherwise the zone of the Kubernetes Node that the
    /// environment variable NODE_NAME names. Example: `eu-1`.
    pub(in crate::config) zone: Field<String>,
    /// The share of channels that this node owns, and of clients that `rebalance` leaves here, relative to the other nodes: from 1 to 64.
    /// Default: 1.
    pub(in crate::config) weight: Field<u16>,
    /// Sends clients to less loaded nodes. Default: none, clients remain at their node.
    pub(in crate::config) rebalance: Field<PushRebalanceSection>,
    /// Mutual TLS between the nodes. Default: none, links are not encrypted.
    pub(in crate::config) tls: Field<PushClusterTlsSection>,
    /// A log behind the channels with history. Equal on all nodes, which are restarted together when it is added or removed. Default: none,
    /// the channels of a node that is killed start a new epoch.
    pub(in crate::config) log: Field<super::PushLogSection>,
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

/// The tasks of a node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum PushRole {
    /// Serves clients, and owns channels.
    All,
    /// Serves clients, and owns no channels: it mirrors those that its clients subscribe to.
    PushGateway,
    /// Owns channels, and serves the server API. Clients are rejected with 503.
    PushServer,
}

/// A source of the addresses of nodes. Example: `{kubernetes: {service: push-nodes, port: 7946}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushNodes")]
pub(in crate::config) struct PushNodesSection {
    /// The Pods of a Service. Required.
    pub(in crate::config) kubernetes: Field<PushServiceSection>,
}

/// A headless Service of Kubernetes whose Pods are the nodes, by its EndpointSlices. A Pod is added once it is ready, and remains until it
/// is deleted. Set `publishNotReadyAddresses: true` in the Service, so that Pods are linked before they are ready. The ServiceAccount needs
/// the right to list and watch EndpointSlices of the namespace. Needs a build with the feature `kubernetes`. Example: `{service: push-nodes, port: 7946}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushService")]
pub(in crate::config) struct PushServiceSection {
    /// The name of the Service. Required. Example: `push-nodes`.
    pub(in crate::config) service: Field<Parsed<ServiceName>>,
    /// The namespace of the Service. Default: that of the ServiceAccount. Example: `push`.
    pub(in crate::config) namespace: Field<Parsed<ServiceName>>,
    /// The port of the nodes: the name of a port of the Service, or a number. Required. Example: `cluster`.
    pub(in crate::config) port: Field<Parsed<ServicePort>>,
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
    /// The name that the certificates of other nodes are verified against. Default: the host of the entry in `nodes`. Required with
    /// `nodes.kubernetes`, since Pods have no such name.
    pub(in crate::config) server_name: Field<Parsed<Hostname>>,
}
