//! Sources: brokers whose records are published in channels.

use std::sync::Arc;
use std::time::Duration;

use super::{Certificate, ChannelBound, ChannelTemplate, Secret, SubjectPattern};

/// A source of publications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The broker, with the topics, streams or tables that are read.
    pub kind: SourceKind,
    /// The translation of its records into publications.
    pub mapping: Mapping,
    /// Makes the process ready only while this source delivers.
    pub readiness: bool,
}

impl Source {
    /// Returns the bounds of the channel names of its records: at most [`CHANNEL_BOUNDS`](super::CHANNEL_BOUNDS).
    #[must_use]
    pub fn bounds(&self) -> Vec<ChannelBound> {
        match self.mapping.format {
            RecordFormat::Data => self.mapping.channel.bounds(&self.kind.subjects()),
            // Commands name their channels.
            RecordFormat::Commands => vec![ChannelBound::ANY],
        }
    }
}

/// The broker of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Topics of a Kafka cluster.
    Kafka(Kafka),
    /// A JetStream stream of a NATS cluster.
    JetStream(JetStream),
    /// Redis streams.
    RedisStreams(RedisStreams),
    /// Redis pub/sub.
    RedisPubSub(RedisPubSub),
    /// A PostgreSQL outbox table.
    Postgres(Postgres),
}

impl SourceKind {
    /// Returns the name in metrics and logs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            SourceKind::Kafka(_) => "kafka",
            SourceKind::JetStream(_) => "jetstream",
            SourceKind::RedisStreams(_) => "redis_streams",
            SourceKind::RedisPubSub(_) => "redis_pubsub",
            SourceKind::Postgres(_) => "postgres",
        }
    }

    /// Returns the topics, subjects, streams or channels that are read.
    fn subjects(&self) -> Vec<SubjectPattern> {
        let names = |names: &[Arc<str>]| names.iter().map(|name| SubjectPattern::name(name)).collect();
        match self {
            SourceKind::Kafka(kafka) if kafka.pattern.is_none() => names(&kafka.topics),
            SourceKind::JetStream(stream) if !stream.subjects.is_empty() => {
                let filters = stream.subjects.iter();
                filters.map(|filter| SubjectPattern::nats(filter)).collect()
            }
            SourceKind::RedisStreams(redis) => names(&redis.streams),
            SourceKind::RedisPubSub(redis) => {
                let mut subjects: Vec<SubjectPattern> = names(&redis.channels);
                subjects.extend(redis.patterns.iter().map(|pattern| SubjectPattern::glob(pattern)));
                subjects
            }
            SourceKind::Kafka(_) | SourceKind::JetStream(_) | SourceKind::Postgres(_) => {
                vec![SubjectPattern::any()]
            }
        }
    }
}

/// The translation of records into publications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The channel of a record. Not used with [`RecordFormat::Commands`].
    pub channel: ChannelTemplate,
    /// The meaning of a record's value.
    pub format: RecordFormat,
    /// The destination of records that cannot be published: a topic, a subject, a stream, a table. `None`: they are counted and logged.
    pub dead_letters: Option<Arc<str>>,
    /// Limit of records of one partition that are in flight.
    pub in_flight: usize,
}

/// The meaning of a record's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordFormat {
    /// The data of a publication: one JSON value, or any bytes in namespaces whose `data_format` is `binary`.
    #[default]
    Data,
    /// A command of the server API, as Centrifugo's consumers read: `{"method": "publish", "payload": {…}}`.
    Commands,
}

/// TLS to a broker. Without authorities the system's are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerTls {
    /// The name that certificates are verified against. `None`: the server's host.
    pub server_name: Option<Arc<str>>,
    /// Trusted certificate authorities, in PEM.
    pub authorities: Option<Arc<[u8]>>,
    /// The client certificate.
    pub certificate: Option<Arc<Certificate>>,
}

/// A user and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerLogin {
    /// The user.
    pub user: Arc<str>,
    /// The password.
    pub password: Secret,
}

/// Topics of a Kafka cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// Bootstrap servers, `HOST:PORT`.
    pub servers: Vec<Arc<str>>,
    /// Names of topics.
    pub topics: Vec<Arc<str>>,
    /// A regular expression for topic names, in place of names.
    pub pattern: Option<Arc<str>>,
    /// The consumer group, whose members share the partitions. `None`: this node reads all partitions, and commits nothing.
    pub group: Option<Arc<str>>,
    /// The start without a committed offset.
    pub start: StartPosition,
    /// Reads records of committed transactions only.
    pub read_committed: bool,
    /// SASL. `None`: not used.
    pub sasl: Option<KafkaSasl>,
    /// TLS. `None`: not used.
    pub tls: Option<BrokerTls>,
}

/// The position at which reading starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// At the oldest record that is retained.
    Earliest,
    /// At the next record.
    Latest,
    /// At least this far back.
    Back(Duration),
}

/// SASL to Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSasl {
    /// The mechanism.
    pub mechanism: SaslMechanism,
    /// The user and its password.
    pub login: BrokerLogin,
}

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// RFC 4616.
    Plain,
    /// RFC 5802 with SHA-256.
    ScramSha256,
    /// RFC 5802 with SHA-512.
    ScramSha512,
}

/// A JetStream stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JetStream {
    /// The cluster, and how to log in.
    pub access: super::NatsAccess,
    /// The stream.
    pub stream: Arc<str>,
    /// Subject filters; none: the whole stream.
    pub subjects: Vec<Arc<str>>,
    /// The durable consumer. `None`: an ordered consumer of this node, which acknowledges nothing.
    pub durable: Option<Arc<str>>,
    /// The start without a durable consumer.
    pub start: StartPosition,
}

/// The servers of a Redis deployment, with the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAccess {
    /// One server; the nodes of a cluster; or the Sentinels of a master.
    pub servers: Vec<Arc<str>>,
    /// The kind of deployment.
    pub deployment: RedisDeployment,
    /// The database; zero in a cluster.
    pub database: i64,
    /// The user and password; an empty user for a password alone.
    pub login: Option<BrokerLogin>,
    /// TLS. `None`: not used.
    pub tls: Option<BrokerTls>,
}

/// The kind of a Redis deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisDeployment {
    /// One server.
    Single,
    /// Redis Cluster.
    Cluster,
    /// The master of this name, located through Sentinels.
    Sentinel(Arc<str>),
}

/// Redis streams that are read with a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStreams {
    /// The servers.
    pub access: RedisAccess,
    /// The streams.
    pub streams: Vec<Arc<str>>,
    /// The consumer group, which is created if it does not exist.
    pub group: Arc<str>,
    /// This node's name in the group.
    pub consumer: Arc<str>,
    /// The field that holds the value of a record.
    pub field: Arc<str>,
    /// Time after which entries that another consumer has not acknowledged are claimed.
    pub claim_after: Duration,
    /// The start of a new group.
    pub start: StartPosition,
}

/// Redis pub/sub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisPubSub {
    /// The servers.
    pub access: RedisAccess,
    /// Redis channels.
    pub channels: Vec<Arc<str>>,
    /// Patterns of Redis channels.
    pub patterns: Vec<Arc<str>>,
}

/// A PostgreSQL outbox table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postgres {
    /// The server, `HOST:PORT`, or a directory of Unix sockets.
    pub server: Arc<str>,
    /// The database.
    pub database: Arc<str>,
    /// The user and its password, which may be empty.
    pub login: BrokerLogin,
    /// TLS. `None`: not used.
    pub tls: Option<BrokerTls>,
    /// The table, optionally with its schema.
    pub table: Arc<str>,
    /// Number of partitions, at least one; rows of one partition are published in order.
    pub partitions: u16,
    /// The interval at which the table is polled without a notification.
    pub poll_interval: Duration,
    /// The channel of `NOTIFY` that wakes the source.
    pub notify: Option<Arc<str>>,
}
