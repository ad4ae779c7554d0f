//! Sources: brokers whose records are published in channels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits::NAME_BYTES;
use ringmain_gateway::model::{
    self, BrokerLogin, ChannelTemplate, Mapping, NatsAccess, RecordFormat, RedisAccess, RedisDeployment,
    SaslMechanism, Secret, Source, SourceKind, Start, SubjectPattern,
};
use ringmain_sources::limits::{IN_FLIGHT, IN_FLIGHT_MOST};

use super::{Builder, text, texts, value};
use crate::config::document::{self, BrokerServer, MappingKeys, Maybe, RedisAccessKeys, Some1};
use crate::config::error::{Position, quoted, suggestion};
use crate::config::fields::{Pairs, Text};
use crate::limits::SOURCES;

/// The default distance from which a log is read back: as much as clients that reconnect may have missed.
const START: Start = Start::Back(Duration::from_secs(60));

fn servers(servers: Some1<Text<BrokerServer>>) -> Vec<Arc<str>> {
    let servers = texts(servers).into_iter();
    servers.map(|server| server.0.into()).collect()
}

/// Returns whether a source reads a topic, subject, stream or table. Subjects of a JetStream stream that is read whole are known to its server
/// alone.
fn reads(kind: &SourceKind, name: &str) -> bool {
    match kind {
        SourceKind::Kafka(kafka) => {
            let pattern = kafka
                .pattern
                .as_ref()
                .and_then(|pattern| regex::Regex::new(pattern).ok());
            kafka.topics.iter().any(|topic| **topic == *name)
                || pattern.is_some_and(|pattern| pattern.is_match(name))
        }
        SourceKind::JetStream(stream) => {
            let mut filters = stream.subjects.iter();
            filters.any(|filter| SubjectPattern::nats(filter).matches(name))
        }
        SourceKind::RedisStreams(streams) => streams.streams.iter().any(|stream| **stream == *name),
        SourceKind::Postgres(postgres) => *postgres.table == *name,
        SourceKind::RedisPubSub(_) => false,
    }
}

impl Builder<'_> {
    pub(super) fn push_kafka(&self, push: &mut model::Push, parts: Pairs<document::Kafka>) {
        self.sources(&mut push.sources, parts, Builder::kafka);
    }

    pub(super) fn push_jetstream(&self, push: &mut model::Push, parts: Pairs<document::JetStream>) {
        self.sources(&mut push.sources, parts, Builder::jetstream);
    }

    pub(super) fn push_redis(
        &self,
        push: &mut model::Push,
        streams: Pairs<document::RedisStreams>,
        pubsub: Pairs<document::RedisPubSub>,
    ) {
        self.sources(&mut push.sources, streams, Builder::redis_streams);
        self.sources(&mut push.sources, pubsub, Builder::redis_pubsub);
    }

    pub(super) fn push_postgres(&self, push: &mut model::Push, parts: Pairs<document::Postgres>) {
        self.sources(&mut push.sources, parts, Builder::postgres);
    }

    fn sources<T>(
        &self,
        sources: &mut BTreeMap<Arc<str>, Arc<Source>>,
        parts: Pairs<T>,
        build: fn(&Self, T, Position) -> Option<Source>,
    ) {
        for (key, at) in parts.0 {
            let Some(name) = key.value else { continue };
            if name.is_empty() || name.len() > NAME_BYTES {
                let expected = format!("a name of 1 to {NAME_BYTES} bytes");
                self.errors.tell(key.position, expected, quoted(&name));
                continue;
            }
            if sources.contains_key(&*name) {
                let expected = "a name that no other source has";
                self.errors.tell(key.position, expected, quoted(&name));
                continue;
            }
            if sources.len() >= SOURCES {
                let expected = format!("at most {SOURCES} sources");
                self.errors.tell(key.position, expected, "one more");
                return;
            }
            let Some(source) = at.value.and_then(|part| build(self, part, key.position)) else {
                continue;
            };
            match ringmain_sources::check_support(&source.kind) {
                Ok(()) => drop(sources.insert(name.into(), Arc::new(source))),
                Err(feature) => {
                    let expected =
                        format!("a build with the feature `{feature}` (cargo build --features brokers)");
                    let found = format!("`{}`, which this build has no client for", source.kind.label());
                    self.errors.tell(key.position, expected, found);
                }
            }
        }
    }

    fn required<T>(&self, is_set: bool, what: &str, position: Position, built: T) -> Option<T> {
        if !is_set {
            self.errors.tell(position, format!("the key {what}"), "none");
        }
        is_set.then_some(built)
    }

    /// The source of a broker. `None`: there are more `errors` than before it.
    fn source(
        &self,
        (keys, channel): (MappingKeys, ChannelTemplate),
        kind: SourceKind,
        errors: usize,
    ) -> Option<Source> {
        let position = keys.in_flight.as_ref().map(|at| at.position);
        let in_flight = value(keys.in_flight).map_or(IN_FLIGHT, |number| number as usize);
        if let Some(position) = position
            && !(1..=IN_FLIGHT_MOST).contains(&in_flight)
        {
            let expected = format!("a whole number from 1 to {IN_FLIGHT_MOST}");
            self.errors.tell(position, expected, format!("`{in_flight}`"));
        }
        if let Some(at) = &keys.dead_letters
            && let Some(name) = &at.value
            && reads(&kind, name)
        {
            let expected =
                "a destination that the source does not read, as it would read its dead letters again";
            self.errors.tell(at.position, expected, quoted(name));
        }
        let channel_at = keys.channel.as_ref().map(|at| at.position);
        let channel = text(keys.channel).unwrap_or(channel);
        self.check_namespace(channel_at, &channel);
        if let Some(position) = channel_at
            && matches!(kind, SourceKind::RedisPubSub(_))
            && !channel.reads_subject_only()
        {
            let expected = "a channel's name with parts of the Redis channel alone: messages of pub/sub have no keys and no headers";
            self.errors.tell(position, expected, "`{key}` or `{header:NAME}`");
        }
        let mapping = Mapping {
            channel,
            format: match value(keys.format) {
                Some(document::RecordFormat::Commands) => RecordFormat::Commands,
                Some(document::RecordFormat::Data) | None => RecordFormat::Data,
            },
            dead_letters: value(keys.dead_letters).map(Arc::from),
            in_flight,
        };
        let readiness = value(keys.readiness).unwrap_or(true);
        (self.errors.count() == errors).then_some(Source {
            kind,
            mapping,
            readiness,
        })
    }

    /// Reports a channel whose namespace is not configured: no record could be published.
    pub(super) fn check_namespace(&self, position: Option<Position>, channel: &ChannelTemplate) {
        if let Some(position) = position
            && let Some(name) = channel.namespace()
            && !self.namespaces.contains(name)
        {
            let names: Vec<String> = self.namespaces.iter().map(|name| quoted(name)).collect();
            let expected = match names.is_empty() {
                true => "a channel without a namespace, as `push.namespaces` has none".to_owned(),
                false => format!("a channel of one of the namespaces {}", names.join(", ")),
            };
            let advice = suggestion(name, self.namespaces.iter().map(String::as_str))
                .map(|name| format!("did you mean `{name}`?"))
                .unwrap_or_default();
            self.errors.add(
                position,
                "",
                expected,
                format!("the namespace {}", quoted(name)),
                &advice,
            );
        }
    }

    fn broker_tls(&self, part: Maybe<document::BrokerTls>) -> Option<model::BrokerTls> {
        let part = value(part)?;
        let tls = self.nats_tls(document::NatsTls {
            server_name: part.server_name,
            authorities: part.authorities,
            certificate: part.certificate,
        });
        Some(model::BrokerTls {
            server_name: tls.server_name,
            authorities: tls.authorities,
            certificate: tls.certificate,
        })
    }

    /// The names of a list; an empty one is an error.
    fn names(&self, some: Some1<String>) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for at in super::list(some) {
            match at.value {
                Some(name) if name.is_empty() => self.errors.tell(at.position, "a name", "``"),
                Some(name) => names.push(name.into()),
                None => {}
            }
        }
        names
    }

    fn kafka(&self, mut part: document::Kafka, position: Position) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        let has_topics = part.topics.is_some() != part.pattern.is_some();
        self.required(
            part.servers.is_some(),
            "`servers` with at least one",
            position,
            (),
        );
        if !has_topics {
            let found = if part.topics.is_some() { "both" } else { "none" };
            self.errors
                .tell(position, "either the key `topics` or the key `pattern`", found);
        }
        if let Some(at) = &part.pattern
            && let Some(pattern) = &at.value
            && let Err(error) = regex::Regex::new(pattern)
        {
            let found = format!("{}: {error}", quoted(pattern));
            self.errors.tell(at.position, "a regular expression", found);
        }
        let sasl = part.sasl.and_then(|at| {
            let sasl = at.value?;
            self.required(sasl.user.is_some(), "`user`", at.position, ());
            self.required(sasl.password.is_some(), "`password`", at.position, ());
            Some(model::KafkaSasl {
                mechanism: text(sasl.mechanism).unwrap_or(SaslMechanism::ScramSha512),
                login: BrokerLogin {
                    user: value(sasl.user)?.into(),
                    password: Secret::new(value(sasl.password)?.into_bytes()),
                },
            })
        });
        let kafka = model::Kafka {
            servers: servers(part.servers),
            topics: self.names(part.topics),
            pattern: value(part.pattern).map(Arc::from),
            group: value(part.group).map(Arc::from),
            start: text(part.start).unwrap_or(START),
            read_committed: value(part.read_committed).unwrap_or(true),
            sasl,
            tls: self.broker_tls(part.tls),
        };
        self.source(
            (mapping, ChannelTemplate::key()),
            SourceKind::Kafka(kafka),
            errors,
        )
    }

    fn jetstream(&self, mut part: document::JetStream, position: Position) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        self.required(
            part.servers.is_some(),
            "`servers` with at least one",
            position,
            (),
        );
        self.required(part.stream.is_some(), "`stream`", position, ());
        for at in [&part.stream, &part.durable].into_iter().flatten() {
            if let Some(name) = &at.value
                && (name.is_empty() || name.contains(|c: char| c.is_whitespace() || ".*>/\\".contains(c)))
            {
                let expected = "a name without spaces and none of the characters . * > / \\";
                self.errors.tell(at.position, expected, quoted(name));
            }
        }
        let login = self.nats_login(part.user, part.password, part.token, part.credentials)?;
        let stream = model::JetStream {
            access: NatsAccess {
                servers: texts(part.servers),
                login,
                tls: part.tls.and_then(|at| at.value).map(|part| self.nats_tls(part)),
            },
            stream: value(part.stream).unwrap_or_default().into(),
            subjects: texts(part.subjects)
                .into_iter()
                .map(|filter| filter.0.into())
                .collect(),
            durable: value(part.durable).map(Arc::from),
            start: text(part.start).unwrap_or(START),
        };
        self.source(
            (mapping, ChannelTemplate::subject()),
            SourceKind::JetStream(stream),
            errors,
        )
    }

    fn redis_access(
        &self,
        keys: RedisAccessKeys,
        database: Maybe<u32>,
        position: Position,
    ) -> Option<RedisAccess> {
        self.required(
            keys.servers.is_some(),
            "`servers` with at least one",
            position,
            (),
        );
        let is_cluster = value(keys.cluster).unwrap_or(false);
        let deployment = match (is_cluster, value(keys.sentinel)) {
            (true, Some(_)) => {
                let expected = "either the key `cluster` or the key `sentinel`";
                self.errors.tell(position, expected, "both");
                return None;
            }
            (true, None) => RedisDeployment::Cluster,
            (false, Some(name)) => RedisDeployment::Sentinel(name.into()),
            (false, None) => RedisDeployment::Single,
        };
        let login = match (value(keys.user), value(keys.password)) {
            (None, None) => None,
            (user, Some(password)) => Some(BrokerLogin {
                user: user.unwrap_or_default().into(),
                password: Secret::new(password.into_bytes()),
            }),
            (Some(_), None) => {
                self.errors
                    .tell(position, "the key `password` beside `user`", "none");
                return None;
            }
        };
        Some(RedisAccess {
            servers: servers(keys.servers),
            deployment,
            database: value(database).map_or(0, i64::from),
            login,
            tls: self.broker_tls(keys.tls),
        })
    }

    fn redis_streams(&self, mut part: document::RedisStreams, position: Position) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        self.required(
            part.streams.is_some(),
            "`streams` with at least one",
            position,
            (),
        );
        let access = self.redis_access(part.take_access(), part.database.take(), position)?;
        let or = |part: Maybe<String>, default: &str| -> Arc<str> {
            value(part)
                .filter(|text| !text.is_empty())
                .unwrap_or(default.to_owned())
                .into()
        };
        let host = ringmain_sys::process::host_name();
        let streams = model::RedisStreams {
            access,
            streams: self.names(part.streams),
            group: or(part.group, "ringmain"),
            consumer: or(part.consumer, &host),
            field: or(part.field, "data"),
            claim_after: text(part.claim_after).map_or(Duration::from_secs(30), |time| time.0),
            start: text(part.start).unwrap_or(Start::Latest),
        };
        self.source(
            (mapping, ChannelTemplate::header("channel")),
            SourceKind::RedisStreams(streams),
            errors,
        )
    }

    fn redis_pubsub(&self, mut part: document::RedisPubSub, position: Position) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        let has_some = part.channels.is_some() || part.patterns.is_some();
        self.required(
            has_some,
            "`channels` or the key `patterns` with at least one",
            position,
            (),
        );
        let access = self.redis_access(part.take_access(), None, position)?;
        let pubsub = model::RedisPubSub {
            access,
            channels: self.names(part.channels),
            patterns: self.names(part.patterns),
        };
        self.source(
            (mapping, ChannelTemplate::subject()),
            SourceKind::RedisPubSub(pubsub),
            errors,
        )
    }

    fn postgres(&self, mut part: document::Postgres, position: Position) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        for (is_set, what) in [
            (part.server.is_some(), "`server`"),
            (part.database.is_some(), "`database`"),
            (part.user.is_some(), "`user`"),
        ] {
            self.required(is_set, what, position, ());
        }
        if let Some(at) = &part.server
            && let Some(server) = at.value.as_ref().filter(|server| server.contains("://"))
        {
            let expected = "HOST:PORT, such as db.internal:5432, or the directory of its socket";
            self.errors.tell(at.position, expected, quoted(server));
        }
        let partitions = part.partitions.as_ref().and_then(|at| at.value).unwrap_or(1);
        if let Some(at) = &part.partitions
            && !(1..=1024).contains(&partitions)
        {
            let found = format!("`{partitions}`");
            self.errors
                .tell(at.position, "a whole number from 1 to 1024", found);
        }
        let postgres = model::Postgres {
            server: value(part.server).unwrap_or_default().into(),
            database: value(part.database).unwrap_or_default().into(),
            login: BrokerLogin {
                user: value(part.user).unwrap_or_default().into(),
                password: Secret::new(value(part.password).unwrap_or_default().into_bytes()),
            },
            tls: self.broker_tls(part.tls),
            table: value(part.table).unwrap_or("ringmain_outbox".to_owned()).into(),
            partitions: u16::try_from(partitions).unwrap_or(1),
            poll_interval: text(part.poll_interval).map_or(Duration::from_secs(1), |time| time.0),
            notify: Some(value(part.notify).unwrap_or("ringmain_outbox".to_owned()).into()),
        };
        self.source(
            (mapping, ChannelTemplate::header("channel")),
            SourceKind::Postgres(postgres),
            errors,
        )
    }
}
