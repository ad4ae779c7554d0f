//! Keys of sources: brokers whose records are published in channels.

use ringmain_gateway::model::{ChannelTemplate, Hostname, NatsServer, SaslMechanism, Start};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, NatsFilter, Some1};
use crate::config::error::quoted;
use crate::config::scalars::Time;
use crate::config::fields::{Parse, Text, secret};

/// Defines the keys of a source: its own, and those that translate records, which all sources have. Their documentation differs.
/// `serde(flatten)` would accept unknown keys.
macro_rules! source_keys {
    (
        $(#[$meta:meta])*
        struct $name:ident { $($(#[$own_meta:meta])* $own:ident: $type:ty,)* }
        mapping { $(#[$channel:meta])* channel, $(#[$format:meta])* format, $($(#[$more_meta:meta])* $more:ident,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(in crate::config) struct $name {
            $($(#[$own_meta])* pub(in crate::config) $own: $type,)*
            $(#[$channel])*
            channel: Maybe<Text<ChannelTemplate>>,
            $(#[$format])*
            format: Maybe<RecordFormat>,
            $($(#[$more_meta])* $more: source_keys!(@type $more),)*
            /// Includes this source in readiness: `/readyz` of the administration returns 503 while it does not deliver. Default: `true`.
            readiness: Maybe<bool>,
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
    (@type dead_letters) => { Maybe<String> };
    (@type in_flight) => { Maybe<u32> };
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
                servers: Some1<Text<BrokerServer>>,
                /// The servers are nodes of a Redis Cluster. Default: `false`.
                cluster: Maybe<bool>,
                /// The name of the master, which the servers (Sentinels) know. Default: none.
                sentinel: Maybe<String>,
                /// The user name; requires `password`. Default: the default user.
                user: Maybe<String>,
                /// The password; best as `${env:…}` or `${file:…}`.
                #[serde(deserialize_with = "secret")]
                #[schemars(extend("writeOnly" = true))]
                password: Maybe<String>,
                /// TLS settings. Default: none, the connection is not encrypted.
                tls: Maybe<BrokerTls>,
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
    pub(in crate::config) channel: Maybe<Text<ChannelTemplate>>,
    pub(in crate::config) format: Maybe<RecordFormat>,
    pub(in crate::config) dead_letters: Maybe<String>,
    pub(in crate::config) in_flight: Maybe<u32>,
    pub(in crate::config) readiness: Maybe<bool>,
}

/// The keys of the access to Redis.
#[derive(Debug)]
pub(in crate::config) struct RedisAccessKeys {
    pub(in crate::config) servers: Some1<Text<BrokerServer>>,
    pub(in crate::config) cluster: Maybe<bool>,
    pub(in crate::config) sentinel: Maybe<String>,
    pub(in crate::config) user: Maybe<String>,
    pub(in crate::config) password: Maybe<String>,
    pub(in crate::config) tls: Maybe<BrokerTls>,
}

source_keys! {
    /// Topics of a Kafka cluster whose records are published in channels, at least once and in the order of each partition.
    /// Publications have the offsets of their records: a client that moves to another node recovers there.
    struct Kafka {
        /// The bootstrap servers, `HOST:PORT`.
        servers: Some1<Text<BrokerServer>>,
        /// The topics. Either this, or `pattern`.
        topics: Some1<String>,
        /// A regular expression for the names of topics. Topics that are created later are found within 30 seconds.
        pattern: Maybe<String>,
        /// The consumer group, whose members share the partitions: a record is published by one node. Offsets are committed once channels
        /// have their records. Default: none, every node reads all partitions.
        group: Maybe<String>,
        /// The start without a committed offset: a time (so far back), `earliest` or `latest`. Records before the start of the
        /// process fill the history of channels and are sent to no subscriber; a time also applies behind a committed offset.
        /// Default: `1m`.
        start: Maybe<Text<Start>>,
        /// Reads records of committed transactions only. Default: `true`.
        read_committed: Maybe<bool>,
        /// SASL authentication. Default: none.
        sasl: Maybe<KafkaSasl>,
        /// TLS settings. Default: none, the connection is not encrypted.
        tls: Maybe<BrokerTls>,
    }
    mapping {
        /// The channel that a record is published in. `{key}` is replaced by the record's key, `{topic}` by the topic, `{2}` by the second
        /// word of the topic, `{2..}` by all words from the second on, `{header:NAME}` by a header. Default: `{key}`.
        channel,
        /// The meaning of a record's value. Default: `data`.
        format,
        /// The topic that records are sent to which cannot be published. Default: none, they are counted and logged.
        dead_letters,
        /// The maximum number of records of a partition in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

/// SASL authentication at a Kafka cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct KafkaSasl {
    /// The mechanism: `plain`, `scram-sha-256` or `scram-sha-512`. Default: `scram-sha-512`.
    pub(in crate::config) mechanism: Maybe<Text<SaslMechanism>>,
    /// The user. Required.
    pub(in crate::config) user: Maybe<String>,
    /// The password; best as `${env:…}` or `${file:…}`. Required.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Maybe<String>,
}

/// TLS to a broker.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct BrokerTls {
    /// The name that the certificate is verified against. Default: the server's host.
    pub(in crate::config) server_name: Maybe<Text<Hostname>>,
    /// The names of trusted authorities. Default: the system's trusted authorities.
    pub(in crate::config) authorities: Some1<String>,
    /// The name of the client certificate, which is presented on request.
    pub(in crate::config) certificate: Maybe<String>,
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
    /// A JetStream stream of a NATS cluster whose messages are published in channels, at least once and in their order. Publications have
    /// the sequence numbers of their messages: a client that moves to another node recovers there.
    struct JetStream {
        /// The servers of one cluster. Each is tried when the one before is unreachable.
        servers: Some1<Text<NatsServer>>,
        /// The stream. Required.
        stream: Maybe<String>,
        /// Filters of subjects, optionally with `*` and `>`. Default: all subjects of the stream.
        subjects: Some1<Text<NatsFilter>>,
        /// The durable consumer, which is created if it does not exist: nodes with the same one share the messages. Default: none, every
        /// node reads all messages.
        durable: Maybe<String>,
        /// The start without a durable consumer: a time (so far back), `earliest` or `latest`. Messages before the start of the
        /// process fill the history of channels and are sent to no subscriber. Default: `1m`.
        start: Maybe<Text<Start>>,
        /// The user name; requires `password`.
        user: Maybe<String>,
        /// The password of `user`; best as `${env:…}` or `${file:…}`.
        #[serde(deserialize_with = "secret")]
        #[schemars(extend("writeOnly" = true))]
        password: Maybe<String>,
        /// An authentication token, in place of `user`; best as `${env:…}` or `${file:…}`.
        #[serde(deserialize_with = "secret")]
        #[schemars(extend("writeOnly" = true))]
        token: Maybe<String>,
        /// A credentials file, in place of the keys above: as written by `nsc` (JWT and NKey seed), or with an NKey seed only.
        credentials: Maybe<String>,
        /// TLS settings. With this key TLS is required; without it TLS is used if the server requires it.
        tls: Maybe<super::NatsTls>,
    }
    mapping {
        /// The channel that a message is published in. `{subject}` is replaced by the subject, `{2}` by its second word, `{2..}` by all
        /// words from the second on, `{header:NAME}` by a header. Default: `{subject}`.
        channel,
        /// The meaning of a message's payload. Default: `data`.
        format,
        /// The subject that messages are sent to which cannot be published. Default: none, they are counted and logged.
        dead_letters,
        /// The maximum number of messages in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

redis_keys! {
    /// Streams of Redis whose entries are published in channels, at least once and in the order of each stream.
    struct RedisStreams {
        /// The database. Default: 0.
        database: Maybe<u32>,
        /// The streams. Required.
        streams: Some1<String>,
        /// The consumer group, which is created if it does not exist. Default: `ringmain`.
        group: Maybe<String>,
        /// The name of this node in the group; it must differ between nodes. Default: the host name.
        consumer: Maybe<String>,
        /// The field that holds the value of an entry. Default: `data`.
        field: Maybe<String>,
        /// The time after which entries that another consumer has not acknowledged are claimed. Default: `30s`.
        claim_after: Maybe<Text<Time>>,
        /// The start of a new group: a time (so far back), `earliest` or `latest`. Default: `latest`.
        start: Maybe<Text<Start>>,
    }
    mapping {
        /// The channel that an entry is published in. `{key}` is replaced by its field `key`, `{stream}` by the stream, `{header:NAME}` by
        /// a field. Default: `{header:channel}`.
        channel,
        /// The meaning of an entry's value. Default: `data`.
        format,
        /// The stream that entries are added to which cannot be published. Default: none, they are counted and logged.
        dead_letters,
        /// The maximum number of entries of a stream in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

redis_keys! {
    /// Redis pub/sub, whose messages are published in channels, at most once: after a reconnect the channels start a new epoch, and
    /// positioned clients are notified.
    struct RedisPubSub {
        /// The channels of Redis to subscribe to.
        channels: Some1<String>,
        /// The patterns of channels of Redis to subscribe to, as in `PSUBSCRIBE`.
        patterns: Some1<String>,
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
    /// An outbox table of PostgreSQL whose rows are published in channels, at least once and in the order of each partition. The application
    /// inserts rows in its own transactions; published rows are deleted. docs/outbox.sql creates the table.
    struct Postgres {
        /// The server, `HOST:PORT`, or the directory of its Unix socket. Required.
        server: Maybe<String>,
        /// The database. Required.
        database: Maybe<String>,
        /// The user. Required.
        user: Maybe<String>,
        /// The password; best as `${env:…}` or `${file:…}`. Default: none.
        #[serde(deserialize_with = "secret")]
        #[schemars(extend("writeOnly" = true))]
        password: Maybe<String>,
        /// TLS settings. Default: none, the connection is not encrypted.
        tls: Maybe<BrokerTls>,
        /// The table, optionally with its schema. Default: `ringmain_outbox`.
        table: Maybe<String>,
        /// The number of partitions, numbered from 0 in the column `partition`: rows of one are published in order. Default: 1.
        partitions: Maybe<u32>,
        /// The interval at which the table is polled without a notification. Default: `1s`.
        poll_interval: Maybe<Text<Time>>,
        /// The channel of `NOTIFY` that wakes the source. Default: `ringmain_outbox`.
        notify: Maybe<String>,
    }
    mapping {
        /// The channel that a row is published in. `{header:channel}` is its column `channel`, `{key}` its column `key`. Default:
        /// `{header:channel}`.
        channel,
        /// The meaning of a row's data. Default: `data`.
        format,
        /// The table that rows are moved to which cannot be published. Default: none, they are counted, logged and deleted.
        dead_letters,
        /// The maximum number of rows of a partition in flight, from 1 to 65536. Default: 4096.
        in_flight,
    }
}

/// The address of a broker.
#[derive(Clone, Debug)]
pub(in crate::config) struct BrokerServer(pub(in crate::config) String);

impl Parse for BrokerServer {
    const NAME: &'static str = "broker";
    const ABOUT: &'static str =
        "The address of a broker, `HOST:PORT`: `queue.internal:9092`, `10.0.0.1:6379`, `[::1]:6379`.";
    const SHAPE: &'static str = "^[^/]+:[0-9]+$";

    fn parse(text: &str) -> Result<BrokerServer, String> {
        let wrong = || {
            Err(format!(
                "expected HOST:PORT, such as queue.internal:9092, found {}",
                quoted(text)
            ))
        };
        let Some((host, port)) = text.rsplit_once(':') else {
            return wrong();
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        match Hostname::parse(host) {
            Ok(name) if name.wildcard_suffix().is_none() && is_port => Ok(BrokerServer(text.to_owned())),
            _ => wrong(),
        }
    }
}

impl Parse for ChannelTemplate {
    const NAME: &'static str = "channel of a record";
    const ABOUT: &'static str = "A channel's name with parts of a record in it: `{key}`, `{topic}` (or `{subject}`, `{stream}`, `{channel}`), `{2}` for its second word, `{2..}` for all words from the second on, `{header:NAME}`: `prices:{key}`.";

    fn parse(text: &str) -> Result<ChannelTemplate, String> {
        ChannelTemplate::parse(text)
    }
}

impl Parse for SaslMechanism {
    const NAME: &'static str = "SASL mechanism";
    const ABOUT: &'static str = "A SASL mechanism: `plain`, `scram-sha-256` or `scram-sha-512`.";
    const SHAPE: &'static str = "^(plain|scram-sha-256|scram-sha-512)$";

    fn parse(text: &str) -> Result<SaslMechanism, String> {
        match text {
            "plain" => Ok(SaslMechanism::Plain),
            "scram-sha-256" => Ok(SaslMechanism::ScramSha256),
            "scram-sha-512" => Ok(SaslMechanism::ScramSha512),
            _ => Err(format!(
                "expected `plain`, `scram-sha-256` or `scram-sha-512`, found {}",
                quoted(text)
            )),
        }
    }
}

impl Parse for Start {
    const NAME: &'static str = "start";
    const ABOUT: &'static str =
        "Where reading starts: a time with its unit, so far back, such as `1m`; `earliest` or `latest`.";
    const SHAPE: &'static str = "^([0-9]+ ?(us|ms|s|m|h|d)|earliest|latest)$";

    fn parse(text: &str) -> Result<Start, String> {
        match text {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            _ => match Time::parse(text) {
                Ok(Time(time)) => Ok(Start::Back(time)),
                Err(message) => Err(message.replacen(
                    "a time with its unit",
                    "`earliest`, `latest`, or a time with its unit",
                    1,
                )),
            },
        }
    }
}
