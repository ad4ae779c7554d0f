//! The nodes that share the channels of the push server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{BrokerTls, Certificate, Fraction, KafkaSasl, NatsAccess, RedisAccess};

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
    /// The log behind the channels. `None`: their owners assign offsets, and the channels of an owner that is killed start a new epoch.
    pub log: Option<Arc<PushLog>>,
}

/// The log behind the channels of a cluster. Equal on all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushLog {
    /// The broker.
    pub engine: PushLogEngine,
    /// The number of partitions, from 1 to [`PUSH_LOG_PARTITIONS`].
    pub partitions: u16,
    /// The time for which the broker retains entries, where the adapter sets it: Redis at each append, the others when they create the
    /// stream or topic.
    pub retention: Duration,
    /// The part of the log that a new owner of a partition reads.
    pub takeover: PushTakeover,
}

/// The most partitions of a log.
pub const PUSH_LOG_PARTITIONS: u16 = 1024;

/// The part of the log that a new owner of a partition reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushTakeover {
    /// Entries of this age are read before clients are served.
    pub time: Duration,
    /// The bytes of older entries that are read in the background.
    pub bytes: usize,
}

/// The broker of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushLogEngine {
    /// Streams of Redis or Valkey, one for each partition.
    Redis(RedisLog),
    /// A stream of JetStream, with a subject for each partition.
    JetStream(JetStreamLog),
    /// A topic of Kafka.
    Kafka(KafkaLog),
}

impl PushLogEngine {
    /// Returns the name in metrics, logs and the configuration.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            PushLogEngine::Redis(_) => "redis",
            PushLogEngine::JetStream(_) => "jetstream",
            PushLogEngine::Kafka(_) => "kafka",
        }
    }
}

/// Streams of Redis or Valkey. The key of a partition is `{PREFIX:NUMBER}`, a hash tag as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisLog {
    /// The servers.
    pub access: RedisAccess,
    /// The beginning of the keys.
    pub prefix: Arc<str>,
    /// The entries that a failover may lose.
    pub loss: RedisLoss,
}

/// The entries that the restart of a Redis server, or the promotion of a replica, may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisLoss {
    /// Acknowledged ones: another run ID is another life.
    Possible,
    /// None: each batch waits until the append-only file and so many replicas have it (`WAITAOF`), and the life outlives servers.
    None {
        /// The replicas.
        replicas: u16,
    },
}

/// A stream of JetStream, with the subjects `PREFIX.NUMBER`. It is created if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JetStreamLog {
    /// The cluster, and how to log in.
    pub access: NatsAccess,
    /// The name of the stream.
    pub stream: Arc<str>,
    /// The beginning of the subjects.
    pub prefix: Arc<str>,
    /// The replicas of a stream that is created.
    pub replicas: u16,
}

/// A topic of Kafka. It is created if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaLog {
    /// Bootstrap servers, `HOST:PORT`.
    pub servers: Vec<Arc<str>>,
    /// The topic. Its number of partitions must be that of the log.
    pub topic: Arc<str>,
    /// The replication factor of a topic that is created.
    pub replicas: u16,
    /// SASL. `None`: not used.
    pub sasl: Option<KafkaSasl>,
    /// TLS. `None`: not used.
    pub tls: Option<BrokerTls>,
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
