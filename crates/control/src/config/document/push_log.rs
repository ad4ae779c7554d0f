//! Keys of the log behind the channels of a push cluster.

use ringmain_gateway::model::NatsServer;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{BrokerServer, BrokerTlsSection, Field, KafkaSaslSection, NatsTlsSection, OneOrManyField};
use crate::config::fields::{Parsed, deserialize_secret};
use crate::config::scalars::{ByteSize, Time};

/// A log behind the channels of a cluster: publications of channels with history are appended to it before they are acknowledged, offsets
/// and epochs are those of the log, and clients recover at any node after any other one has ended. Exactly one of `redis`, `jetstream` and
/// `kafka`, and equal on all nodes. Example: `{redis: {servers: "10.0.0.1:6379"}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushLog")]
pub(in crate::config) struct PushLogSection {
    /// Streams of Redis or Valkey.
    pub(in crate::config) redis: Field<PushLogRedisSection>,
    /// A stream of JetStream.
    pub(in crate::config) jetstream: Field<PushLogJetStreamSection>,
    /// A topic of Kafka.
    pub(in crate::config) kafka: Field<PushLogKafkaSection>,
    /// The number of partitions, from 1 to 1024. A partition is read by one node, so a log has more partitions than nodes. It cannot be changed
    /// without another prefix, stream or topic. Default: 64.
    pub(in crate::config) partitions: Field<u32>,
    /// The time for which the broker retains entries: set at each append to Redis, and when a stream or topic is created. Not less than the
    /// longest `retention.time` of a namespace, and at least `1m`. Default: `1h`. Example: `24h`.
    pub(in crate::config) retention: Field<Parsed<Time>>,
    /// The part of the log that a new owner of a partition reads.
    pub(in crate::config) takeover: Field<PushTakeoverSection>,
}

/// The part of the log that a new owner of a partition reads. Example: `{time: 2s, bytes: 64MiB}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushTakeover")]
pub(in crate::config) struct PushTakeoverSection {
    /// The age of the entries that are read before clients are served, and the longest time for which clients wait that need older ones.
    /// Default: `2s`.
    pub(in crate::config) time: Field<Parsed<Time>>,
    /// The size of the older entries of a partition that are read in the background. Default: `64MiB`.
    pub(in crate::config) bytes: Field<Parsed<ByteSize>>,
}

/// Streams of Redis 6.2 or Valkey, one for each partition. Example: `{servers: "10.0.0.1:6379"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushLogRedis")]
pub(in crate::config) struct PushLogRedisSection {
    /// The server, `HOST:PORT`; the nodes of a cluster; or the Sentinels of `sentinel`.
    pub(in crate::config) servers: OneOrManyField<Parsed<BrokerServer>>,
    /// The servers are nodes of a Redis Cluster. Default: `false`.
    pub(in crate::config) cluster: Field<bool>,
    /// The name of the master, which the servers (Sentinels) know. Default: none. Example: `main`.
    pub(in crate::config) sentinel: Field<String>,
    /// The user name; requires `password`. Default: the default user. Example: `ringmain`.
    pub(in crate::config) user: Field<String>,
    /// The password; best as `${env:…}` or `${file:…}`. Example: `${env:REDIS_PASSWORD}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Field<String>,
    /// TLS settings. Default: none, the connection is not encrypted.
    pub(in crate::config) tls: Field<BrokerTlsSection>,
    /// The database; 0 in a cluster. Default: 0.
    pub(in crate::config) database: Field<u32>,
    /// The beginning of the keys. Default: `ringmain`.
    pub(in crate::config) prefix: Field<String>,
    /// The acknowledged entries that a restart or a failover of Redis may lose. Default: `possible`.
    pub(in crate::config) loss: Field<PushLogLoss>,
    /// With `loss: none`, the replicas that must have an entry before it is acknowledged; one if omitted. Example: `2`.
    pub(in crate::config) replicas: Field<u16>,
}

/// The acknowledged entries that a restart or a failover of Redis may lose.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushLogLoss {
    /// Some: after a restart or a failover channels start a new epoch, and clients are notified.
    Possible,
    /// None: entries are acknowledged once the append-only file and `replicas` have them (`WAITAOF`, Redis 7.2 or later), and epochs
    /// continue after a failover.
    None,
}

/// A stream of JetStream, with a subject for each partition. It is created if it does not exist. Example:
/// `{servers: "nats://queue.internal:4222", replicas: 3}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushLogJetStream")]
pub(in crate::config) struct PushLogJetStreamSection {
    /// The servers of one cluster. Each is tried when the one before is unreachable.
    pub(in crate::config) servers: OneOrManyField<Parsed<NatsServer>>,
    /// The name of the stream. Default: `RINGMAIN`.
    pub(in crate::config) stream: Field<String>,
    /// The beginning of the subjects. Default: `ringmain.log`.
    pub(in crate::config) prefix: Field<String>,
    /// The replicas of a stream that is created, from 1 to 5. Default: 1.
    pub(in crate::config) replicas: Field<u16>,
    /// The user name; requires `password`. Example: `ringmain`.
    pub(in crate::config) user: Field<String>,
    /// The password of `user`; best as `${env:…}` or `${file:…}`. Example: `${env:NATS_PASSWORD}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Field<String>,
    /// An authentication token, in place of `user`; best as `${env:…}` or `${file:…}`. Example: `${env:NATS_TOKEN}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) token: Field<String>,
    /// A credentials file, in place of the keys above: as written by `nsc` (JWT and NKey seed), or with an NKey seed only.
    /// Example: `ringmain.creds`.
    pub(in crate::config) credentials: Field<String>,
    /// TLS settings. With this key TLS is required; without it TLS is used if the server requires it.
    pub(in crate::config) tls: Field<NatsTlsSection>,
}

/// A topic of Kafka. It is created if it does not exist. Example: `{servers: "queue.internal:9092", replicas: 3}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushLogKafka")]
pub(in crate::config) struct PushLogKafkaSection {
    /// The bootstrap servers, `HOST:PORT`.
    pub(in crate::config) servers: OneOrManyField<Parsed<BrokerServer>>,
    /// The topic, which has as many partitions as the log. Default: `ringmain-log`.
    pub(in crate::config) topic: Field<String>,
    /// The replication factor of a topic that is created. Default: 1.
    pub(in crate::config) replicas: Field<u16>,
    /// SASL authentication. Default: none.
    pub(in crate::config) sasl: Field<KafkaSaslSection>,
    /// TLS settings. Default: none, the connection is not encrypted.
    pub(in crate::config) tls: Field<BrokerTlsSection>,
}
