//! Keys of sources: brokers whose records are published in channels.

use ringmain_gateway::model::{ChannelTemplate, Hostname, NatsServer, SaslMechanism, StartPosition};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, NatsFilter, OneOrManyField};
use crate::config::error::quote;
use crate::config::fields::{ParseScalar, Parsed, deserialize_secret};
use crate::config::scalars::Time;

/// Defines the keys of a source: its own, and those that translate records, which all sources have. Their documentation differs.
/// `serde(flatten)` would accept unknown keys.
macro_rules! source_keys {
    (
        $(#[$meta:meta])*
        struct $name:ident { $($(#[$own_meta:meta])* $own:ident: $type:ty,)* }
        mapping { $(#[$channel:meta])* channel, $(#[$format:meta])* format, $($(#[$more_meta:meta])* $more:ident,)* }
    ) => {
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$meta])*
        pub(in crate::config) struct $name {
            $($(#[$own_meta])* pub(in crate::config) $own: $type,)*
            $(#[$channel])*
            channel: Field<Parsed<ChannelTemplate>>,
            $(#[$format])*
            format: Field<RecordFormat>,
            $($(#[$more_meta])* $more: source_keys!(@type $more),)*
            /// Includes this source in readiness: `/readyz` of the administration returns 503 while it does not deliver. Default: `true`.
            readiness: Field<bool>,
        }

        impl $name {
            /// Takes the keys that all sources have.
            pub(in crate::config) fn take_mapping(&mut self) -> MappingKeys {
                #[allow(unused_mut, reason = "not all sources have more keys")]
                let mut keys = MappingKeys {
                    channel: self.channel.take(),
                    format: self.format.take(),
                    dead_letters: None,
                    in_flight: None,
                    readiness: self.readiness.take(),
                };
                $(keys.$more = self.$more.take();)*
                keys
            }
        }
    };
    (@type dead_letters) => { Field<String> };
    (@type in_flight) => { Field<u32> };
}

/// Defines the keys of a source that reads Redis: those of its access, and as [`source_keys`].
macro_rules! redis_keys {
    (
        $(#[$meta:meta])*
        struct $name:ident { $($own:tt)* }
        $($mapping:tt)*
    ) => {
        source_keys! {
            $(#[$meta])*
            struct $name {
                /// The server, `HOST:PORT`; the nodes of a cluster; or the Sentinels of `sentinel`.
                servers: OneOrManyField<Parsed<BrokerServer>>,
                /// The servers are nodes of a Redis Cluster. Default: `false`.
                cluster: Field<bool>,
                /// The name of the master, which the servers (Sentinels) know. Default: none. Example: `main`.
                sentinel: Field<String>,
                /// The user name; requires `password`. Default: the default user. Example: `ringmain`.
                user: Field<String>,
                /// The password; best as `${env:…}` or `${file:…}`. Example: `${env:REDIS_PASSWORD}`.
                #[serde(deserialize_with = "deserialize_secret")]
                #[schemars(extend("writeOnly" = true))]
                password: Field<String>,
                /// TLS settings. Default: none, the connection is not encrypted.
                tls: Field<BrokerTlsSection>,
                $($own)*
            }
            $($mapping)*
        }

        impl $name {
            /// Takes the keys of the access.
            pub(in crate::config) fn take_access(&mut self) -> RedisAccessKeys {
                RedisAccessKeys {
                    servers: self.servers.take(),
                    cluster: self.cluster.take(),
                    sentinel: self.sentinel.take(),
                    user: self.user.take(),
                    password: self.password.take(),
                    tls: self.tls.take(),
                }
            }
        }
    };
}

/// The keys that translate the records of a source.
#[derive(Debug)]
pub(in crate::config) struct MappingKeys {
    pub(in crate::config) channel: Field<Parsed<ChannelTemplate>>,
    pub(in crate::config) format: Field<RecordFormat>,
    pub(in crate::config) dead_letters: Field<String>,
    pub(in crate::config) in_flight: Field<u32>,
    pub(in crate::config) readiness: Field<bool>,
}

/// The keys of the access to Redis.
#[derive(Debug)]
pub(in crate::config) struct RedisAccessKeys {
    pub(in crate::config) servers: OneOrManyField<Parsed<BrokerServer>>,
    pub(in crate::config) cluster: Field<bool>,
    pub(in crate::config) sentinel: Field<String>,
    pub(in crate::config) user: Field<String>,
    pub(in crate::config) password: Field<String>,
    pub(in crate::config) tls: Field<BrokerTlsSection>,
}

source_keys! {
    /// Topics of a Kafka cluster whose records are published in channels, at least once and in the order of each partition.
    /// Publications have the offsets of their records: a client that moves to another node recovers there. Example:
    /// `{servers: "queue.internal:9092", topics: prices}`.
    #[schemars(rename = "Kafka")]
    struct KafkaSection {
        /// The bootstrap servers, `HOST:PORT`.
        servers: OneOrManyField<Parsed<BrokerServer>>,
        /// The topics. Either this, or `pattern`. Example: `prices`.
        topics: OneOrManyField<String>,
        /// A regular expression for the names of topics. Topics that are created later are found within 30 seconds. Example:
        /// `prices-[a-z]+`.
        pattern: Field<String>,
        /// The consumer group, whose members share the partitions: a record is published by one node. Offsets are committed
        /// once channels have their records. Default: none, every node reads all partitions. Example: `ringmain`.
        group: Field<String>,
        /// The start without a committed offset: a time (so far back), `earliest` or `latest`. Records before the start of the
        /// process fill the history of channels and are sent to no subscriber; a time also applies behind a committed offset.
        /// Default: `1m`.
        start: Field<Parsed<StartPosition>>,
        /// Reads records of committed transactions only. Default: `true`.
        read_committed: Field<bool>,
        /// SASL authentication. Default: none.
        sasl: Field<KafkaSaslSection>,
        /// TLS settings. Default: none, the connection is not encrypted.
        tls: Field<BrokerTlsSection>,
    }
    mapping {
        /// The channel that a record is published in. `{key}` is replaced by the record's key, `{topic}` by the topic, `{2}` by the second
        /// word of the topic, `{2..}` by all words from the second on, `{header:NAME}` by a header. Default: `{key}`.
        channel,
        /// The meaning of a record's value. Default: `data`.
        format,
        /// The topic that records are sent to which cannot be published. Default: none, they are counted and logged. Example:
        /// `dead-prices`.
        dead_letters,
        /// The maximum number of records of a partition in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

/// SASL authentication at a Kafka cluster. Example: `{user: ringmain, password: "${env:SECRET}"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "KafkaSasl")]
pub(in crate::config) struct KafkaSaslSection {
    /// The mechanism: `plain`, `scram-sha-256` or `scram-sha-512`. Default: `scram-sha-512`.
    pub(in crate::config) mechanism: Field<Parsed<SaslMechanism>>,
    /// The user. Required. Example: `ringmain`.
    pub(in crate::config) user: Field<String>,
    /// The password; best as `${env:…}` or `${file:…}`. Required. Example: `${env:KAFKA_PASSWORD}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Field<String>,
}

/// TLS to a broker. Example: `{authorities: staff}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "BrokerTls")]
pub(in crate::config) struct BrokerTlsSection {
    /// The name that the certificate is verified against. Default: the server's host.
    pub(in crate::config) server_name: Field<Parsed<Hostname>>,
    /// The names of trusted authorities. Default: the system's trusted authorities. Example: `staff`.
    pub(in crate::config) authorities: OneOrManyField<String>,
    /// The name of the client certificate, which is presented on request. Example: `site`.
    pub(in crate::config) certificate: Field<String>,
}

/// The meaning of a record's value.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum RecordFormat {
    /// The data of a publication: JSON, or any bytes in namespaces with `data_format: binary`.
    Data,
    /// A command of the server API, as Centrifugo's consumers read: `{"method": "publish", "payload": {…}}`, or `broadcast`,
    /// `subscribe`, `unsubscribe`, `disconnect`, `refresh`.
    Commands,
}

source_keys! {
    /// A JetStream stream of a NATS cluster whose messages are published in channels, at least once and in their order.
    /// Publications have the sequence numbers of their messages: a client that moves to another node recovers there. Example:
    /// `{servers: "nats://queue.internal:4222", stream: PRICES}`.
    #[schemars(rename = "JetStream")]
    struct JetStreamSection {
        /// The servers of one cluster. Each is tried when the one before is unreachable.
        servers: OneOrManyField<Parsed<NatsServer>>,
        /// The stream. Required. Example: `PRICES`.
        stream: Field<String>,
        /// Filters of subjects, optionally with `*` and `>`. Default: all subjects of the stream.
        subjects: OneOrManyField<Parsed<NatsFilter>>,
        /// The durable consumer, which is created if it does not exist: nodes with the same one share the messages. Default:
        /// none, every node reads all messages. Example: `ringmain`.
        durable: Field<String>,
        /// The start without a durable consumer: a time (so far back), `earliest` or `latest`. Messages before the start of the
        /// process fill the history of channels and are sent to no subscriber. Default: `1m`.
        start: Field<Parsed<StartPosition>>,
        /// The user name; requires `password`. Example: `ringmain`.
        user: Field<String>,
        /// The password of `user`; best as `${env:…}` or `${file:…}`. Example: `${env:NATS_PASSWORD}`.
        #[serde(deserialize_with = "deserialize_secret")]
        #[schemars(extend("writeOnly" = true))]
        password: Field<String>,
        /// An authentication token, in place of `user`; best as `${env:…}` or `${file:…}`. Example: `${env:NATS_TOKEN}`.
        #[serde(deserialize_with = "deserialize_secret")]
        #[schemars(extend("writeOnly" = true))]
        token: Field<String>,
        /// A credentials file, in place of the keys above: as written by `nsc` (JWT and NKey seed), or with an NKey seed only.
        /// Example: `ringmain.creds`.
        credentials: Field<String>,
        /// TLS settings. With this key TLS is required; without it TLS is used if the server requires it.
        tls: Field<super::NatsTlsSection>,
    }
    mapping {
        /// The channel that a message is published in. `{subject}` is replaced by the subject, `{2}` by its second word, `{2..}` by all
        /// words from the second on, `{header:NAME}` by a header. Default: `{subject}`.
        channel,
        /// The meaning of a message's payload. Default: `data`.
        format,
        /// The subject that messages are sent to which cannot be published. Default: none, they are counted and logged.
        /// Example: `dead.prices`.
        dead_letters,
        /// The maximum number of messages in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

redis_keys! {
    /// Streams of Redis whose entries are published in channels, at least once and in the order of each stream. Example:
    /// `{servers: "10.0.0.1:6379", streams: prices}`.
    #[schemars(rename = "RedisStreams")]
    struct RedisStreamsSection {
        /// The database. Default: 0.
        database: Field<u32>,
        /// The streams. Required. Example: `prices`.
        streams: OneOrManyField<String>,
        /// The consumer group, which is created if it does not exist. Default: `ringmain`.
        group: Field<String>,
        /// The name of this node in the group; it must differ between nodes. Default: the host name. Example: `node-1`.
        consumer: Field<String>,
        /// The field that holds the value of an entry. Default: `data`.
        field: Field<String>,
        /// The time after which entries that another consumer has not acknowledged are claimed. Default: `30s`.
        claim_after: Field<Parsed<Time>>,
        /// The start of a new group: a time (so far back), `earliest` or `latest`. Default: `latest`.
        start: Field<Parsed<StartPosition>>,
    }
    mapping {
        /// The channel that an entry is published in. `{key}` is replaced by its field `key`, `{stream}` by the stream, `{header:NAME}` by
        /// a field. Default: `{header:channel}`.
        channel,
        /// The meaning of an entry's value. Default: `data`.
        format,
        /// The stream that entries are added to which cannot be published. Default: none, they are counted and logged. Example:
        /// `dead-prices`.
        dead_letters,
        /// The maximum number of entries of a stream in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

redis_keys! {
    /// Redis pub/sub, whose messages are published in channels, at most once: after a reconnect the channels start a new epoch,
    /// and positioned clients are notified. Example: `{servers: "10.0.0.1:6379", channels: prices}`.
    #[schemars(rename = "RedisPubSub")]
    struct RedisPubSubSection {
        /// The channels of Redis to subscribe to. Example: `prices`.
        channels: OneOrManyField<String>,
        /// The patterns of channels of Redis to subscribe to, as in `PSUBSCRIBE`. Example: `prices.*`.
        patterns: OneOrManyField<String>,
    }
    mapping {
        /// The channel that a message is published in. `{channel}` is replaced by the channel of Redis, `{2}` by its second word.
        /// Default: `{channel}`.
        channel,
        /// The meaning of a message. Default: `data`.
        format,
    }
}

source_keys! {
    /// An outbox table of PostgreSQL whose rows are published in channels, at least once and in the order of each partition.
    /// The application inserts rows in its own transactions; published rows are deleted. docs/outbox.sql creates the table.
    /// Example: `{server: "db.internal:5432", database: shop, user: ringmain}`.
    #[schemars(rename = "Postgres")]
    struct PostgresSection {
        /// The server, `HOST:PORT`, or the directory of its Unix socket. Required. Example: `db.internal:5432`.
        server: Field<String>,
        /// The database. Required. Example: `shop`.
        database: Field<String>,
        /// The user. Required. Example: `ringmain`.
        user: Field<String>,
        /// The password; best as `${env:…}` or `${file:…}`. Default: none. Example: `${env:PGPASSWORD}`.
        #[serde(deserialize_with = "deserialize_secret")]
        #[schemars(extend("writeOnly" = true))]
        password: Field<String>,
        /// TLS settings. Default: none, the connection is not encrypted.
        tls: Field<BrokerTlsSection>,
        /// The table, optionally with its schema. Default: `ringmain_outbox`.
        table: Field<String>,
        /// The number of partitions, numbered from 0 in the column `partition`: rows of one are published in order. Default: 1.
        partitions: Field<u32>,
        /// The interval at which the table is polled without a notification. Default: `1s`.
        poll_interval: Field<Parsed<Time>>,
        /// The channel of `NOTIFY` that wakes the source. Default: `ringmain_outbox`.
        notify: Field<String>,
    }
    mapping {
        /// The channel that a row is published in. `{header:channel}` is its column `channel`, `{key}` its column `key`. Default:
        /// `{header:channel}`.
        channel,
        /// The meaning of a row's data. Default: `data`.
        format,
        /// The table that rows are moved to which cannot be published. Default: none, they are counted, logged and deleted.
        /// Example: `ringmain_dead`.
        dead_letters,
        /// The maximum number of rows of a partition in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

/// The address of a broker.
#[derive(Clone, Debug)]
pub(in crate::config) struct BrokerServer(pub(in crate::config) String);

impl ParseScalar for BrokerServer {
    const NAME: &'static str = "broker";
    const DESCRIPTION: &'static str =
        "The address of a broker, `HOST:PORT`: `queue.internal:9092`, `10.0.0.1:6379`, `[::1]:6379`.";
    const EXAMPLES: &'static [&'static str] = &["queue.internal:9092", "10.0.0.1:6379"];
    const PATTERN: &'static str = "^[^/]+:[0-9]+$";

    fn parse(text: &str) -> Result<BrokerServer, String> {
        let invalid = || {
            Err(format!(
                "expected HOST:PORT, such as queue.internal:9092, found {}",
                quote(text)
            ))
        };
        let Some((host, port)) = text.rsplit_once(':') else {
            return invalid();
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        match Hostname::parse(host) {
            Ok(name) if name.wildcard_suffix().is_none() && is_port => Ok(BrokerServer(text.to_owned())),
            _ => invalid(),
        }
    }
}

impl ParseScalar for ChannelTemplate {
    const NAME: &'static str = "channel of a record";
    const DESCRIPTION: &'static str = "The name of a channel with placeholders for parts of a record: `{key}`, `{topic}` (or `{subject}`, `{stream}`, `{channel}`), `{2}` for its second word, `{2..}` for all words from the second on, `{header:NAME}`: `prices:{key}`.";
    const EXAMPLES: &'static [&'static str] = &["prices:{2}", "{2..}"];

    fn parse(text: &str) -> Result<ChannelTemplate, String> {
        ChannelTemplate::parse(text)
    }
}

impl ParseScalar for SaslMechanism {
    const NAME: &'static str = "SASL mechanism";
    const DESCRIPTION: &'static str = "A SASL mechanism: `plain`, `scram-sha-256` or `scram-sha-512`.";
    const EXAMPLES: &'static [&'static str] = &["scram-sha-512", "plain"];
    const PATTERN: &'static str = "^(plain|scram-sha-256|scram-sha-512)$";

    fn parse(text: &str) -> Result<SaslMechanism, String> {
        match text {
            "plain" => Ok(SaslMechanism::Plain),
            "scram-sha-256" => Ok(SaslMechanism::ScramSha256),
            "scram-sha-512" => Ok(SaslMechanism::ScramSha512),
            _ => Err(format!(
                "expected `plain`, `scram-sha-256` or `scram-sha-512`, found {}",
                quote(text)
            )),
        }
    }
}

impl ParseScalar for StartPosition {
    const NAME: &'static str = "start";
    const DESCRIPTION: &'static str = "The start position of reading: a time with its unit (so far back), such as `1m`; `earliest` or `latest`.";
    const EXAMPLES: &'static [&'static str] = &["1m", "earliest"];
    const PATTERN: &'static str = "^([0-9]+ ?(us|ms|s|m|h|d)|earliest|latest)$";

    fn parse(text: &str) -> Result<StartPosition, String> {
        match text {
            "earliest" => Ok(StartPosition::Earliest),
            "latest" => Ok(StartPosition::Latest),
            _ => match Time::parse(text) {
                Ok(Time(time)) => Ok(StartPosition::Back(time)),
                Err(message) => Err(message.replacen(
                    "a time with its unit",
                    "`earliest`, `latest`, or a time with its unit",
                    1,
                )),
            },
        }
    }
}
