//! The nodes that share the channels of the push server.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Certificate, Fraction};

/// This node of a push cluster, and the addresses of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCluster {
    /// The name of this node, for logs and status.
    pub name: Arc<str>,
    /// The tasks of this node.
    pub role: PushRole,
    /// The zone of this node. `None`: that of its Kubernetes Node, if it may be read.
    pub zone: Option<Arc<str>>,
    /// Its share of channels relative to other nodes.
    pub weight: u16,
    /// The address for links of other nodes.
    pub listen: SocketAddr,
    /// The other nodes.
    pub nodes: PushMembership,
    /// `None`: clients remain at their node.
    pub rebalance: Option<PushRebalance>,
    /// `None`: links are not encrypted, which is for loopback addresses only.
    pub tls: Option<PushClusterTls>,
}

/// The limits within which a node sends clients to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushRebalance {
    /// The load, in percent of the node's share, above which it starts.
    pub above_percent: u16,
    /// The load at which it stops.
    pub until_percent: u16,
    /// The part of its clients that it sends away in a second.
    pub rate: Fraction,
}

impl Default for PushRebalance {
    fn default() -> PushRebalance {
        PushRebalance {
            above_percent: 120,
            until_percent: 105,
            rate: Fraction { part: 5, of: 1000 },
        }
    }
}

/// The tasks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushRole {
    /// Serves clients, and owns channels.
    #[default]
    All,
    /// Serves clients, and owns no channels.
    PushGateway,
    /// Owns channels.
    PushServer,
}

/// The source of the addresses of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushMembership {
    /// Names, as `HOST:PORT`; each address of a name is a node.
    Names(Vec<Arc<str>>),
    /// The endpoints of a Service of Kubernetes.
    Kubernetes(PushService),
}

/// A Service whose Pods are the nodes of a push cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushService {
    /// The name of the Service.
    pub service: Arc<str>,
    /// Its namespace. `None`: that of the ServiceAccount.
    pub namespace: Option<Arc<str>>,
    /// The port of the nodes.
    pub port: PushServicePort,
}

/// A port of a Service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushServicePort {
    /// The name of a port of the Service.
    Name(Arc<str>),
    /// The number of the Pods' port.
    Number(u16),
}

/// Mutual TLS between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushClusterTls {
    /// The certificate of this node, for both directions.
    pub certificate: Arc<Certificate>,
    /// The authorities that issue the nodes' certificates, in PEM.
    pub authorities: Arc<[u8]>,
    /// The name that certificates are verified for. `None`: the host of the entry in `nodes`.
    pub server_name: Option<Arc<str>>,
}
