//! Sources: brokers whose records are published in channels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits::NAME_BYTES;
use ringmain_gateway::model::{
    self, BrokerLogin, ChannelTemplate, Mapping, NatsAccess, RecordFormat, RedisAccess, RedisDeployment,
    SaslMechanism, Secret, Source, SourceKind, StartPosition, SubjectPattern,
};
use ringmain_sources::limits::{IN_FLIGHT, IN_FLIGHT_MOST};

use super::{Builder, field_value, parsed_items, parsed_value, time_value};
use crate::config::document::{self, BrokerServer, Field, MappingKeys, OneOrManyField, RedisAccessKeys};
use crate::config::error::{FilePosition, quote, suggest};
use crate::config::fields::{OrderedMap, Parsed};
use crate::limits::SOURCES;

/// The default distance from which a log is read back: as much as clients that reconnect may have missed.
const DEFAULT_START: StartPosition = StartPosition::Back(Duration::from_secs(60));

pub(super) fn server_addresses(servers: OneOrManyField<Parsed<BrokerServer>>) -> Vec<Arc<str>> {
    let servers = parsed_items(servers).into_iter();
    servers.map(|server| server.0.into()).collect()
}

/// Returns whether a source reads a topic, subject, stream or table. Subjects of a JetStream stream that is read whole are known to its server
/// alone.
fn reads_destination(kind: &SourceKind, name: &str) -> bool {
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
    pub(super) fn add_kafka_sources(
        &self,
        push: &mut model::Push,
        parts: OrderedMap<document::KafkaSection>,
    ) {
        self.add_sources(&mut push.sources, parts, Builder::build_kafka);
    }

    pub(super) fn add_jetstream_sources(
        &self,
        push: &mut model::Push,
        parts: OrderedMap<document::JetStreamSection>,
    ) {
        self.add_sources(&mut push.sources, parts, Builder::build_jetstream);
    }

    pub(super) fn add_redis_sources(
        &self,
        push: &mut model::Push,
        streams: OrderedMap<document::RedisStreamsSection>,
        pubsub: OrderedMap<document::RedisPubSubSection>,
    ) {
        self.add_sources(&mut push.sources, streams, Builder::build_redis_streams);
        self.add_sources(&mut push.sources, pubsub, Builder::build_redis_pubsub);
    }

    pub(super) fn add_postgres_sources(
        &self,
        push: &mut model::Push,
        parts: OrderedMap<document::PostgresSection>,
    ) {
        self.add_sources(&mut push.sources, parts, Builder::build_postgres);
    }

    fn add_sources<T>(
        &self,
        sources: &mut BTreeMap<Arc<str>, Arc<Source>>,
        parts: OrderedMap<T>,
        build: fn(&Self, T, FilePosition) -> Option<Source>,
    ) {
        for (key, at) in parts.0 {
            let Some(name) = key.value else { continue };
            if name.is_empty() || name.len() > NAME_BYTES {
                let expected = format!("a name of 1 to {NAME_BYTES} bytes");
                self.errors.report(key.position, expected, quote(&name));
                continue;
            }
            if sources.contains_key(&*name) {
                let expected = "a name that no other source has";
                self.errors.report(key.position, expected, quote(&name));
                continue;
            }
            if sources.len() >= SOURCES {
                let expected = format!("at most {SOURCES} sources");
                self.errors.report(key.position, expected, "one more");
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
                    self.errors.report(key.position, expected, found);
                }
            }
        }
    }

    fn require_key<T>(&self, is_set: bool, kind: &str, position: FilePosition, built: T) -> Option<T> {
        if !is_set {
            self.errors.report(position, format!("the key {kind}"), "none");
        }
        is_set.then_some(built)
    }

    /// Builds the source of a broker. `None`: an error was reported since there were `errors`.
    fn build_source(
        &self,
        keys: MappingKeys,
        default_channel: &ChannelTemplate,
        kind: SourceKind,
        errors: usize,
    ) -> Option<Source> {
        let position = keys.in_flight.as_ref().map(|at| at.position);
        let in_flight = field_value(keys.in_flight).map_or(IN_FLIGHT, |number| number as usize);
        if let Some(position) = position
            && !(1..=IN_FLIGHT_MOST).contains(&in_flight)
        {
            let expected = format!("a whole number from 1 to {IN_FLIGHT_MOST}");
            self.errors.report(position, expected, format!("`{in_flight}`"));
        }
        if let Some(at) = &keys.dead_letters
            && let Some(name) = &at.value
            && reads_destination(&kind, name)
        {
            let expected =
                "a destination that the source does not read, as it would read its dead letters again";
            self.errors.report(at.position, expected, quote(name));
        }
        let channel_at = keys.channel.as_ref().map(|at| at.position);
        let channel = parsed_value(keys.channel).unwrap_or_else(|| default_channel.clone());
        self.check_namespace(channel_at, &channel);
        if let Some(position) = channel_at
            && matches!(kind, SourceKind::RedisPubSub(_))
            && !channel.reads_subject_only()
        {
            let expected = "a channel's name with parts of the Redis channel alone: messages of pub/sub have no keys and no headers";
            self.errors
                .report(position, expected, "`{key}` or `{header:NAME}`");
        }
        let mapping = Mapping {
            channel,
            format: match field_value(keys.format) {
                Some(document::RecordFormat::Commands) => RecordFormat::Commands,
                Some(document::RecordFormat::Data) | None => RecordFormat::Data,
            },
            dead_letters: field_value(keys.dead_letters).map(Arc::from),
            in_flight,
        };
        let readiness = field_value(keys.readiness).unwrap_or(true);
        (self.errors.count() == errors).then_some(Source {
            kind,
            mapping,
            readiness,
        })
    }

    /// Reports a channel whose namespace is not configured: no record could be published.
    pub(super) fn check_namespace(&self, position: Option<FilePosition>, channel: &ChannelTemplate) {
        if let Some(position) = position
            && let Some(name) = channel.namespace()
            && !self.namespaces.contains(name)
        {
            let names: Vec<String> = self.namespaces.iter().map(|name| quote(name)).collect();
            let expected = if names.is_empty() {
                "a channel without a namespace, as `push.namespaces` has none".to_owned()
            } else {
                format!("a channel of one of the namespaces {}", names.join(", "))
            };
            let advice = suggest(name, self.namespaces.iter().map(String::as_str))
                .map(|name| format!("did you mean `{name}`?"))
                .unwrap_or_default();
            self.errors.report_part(
                position,
                "",
                expected,
                format!("the namespace {}", quote(name)),
                &advice,
            );
        }
    }

    pub(super) fn build_broker_tls(
        &self,
        part: Field<document::BrokerTlsSection>,
    ) -> Option<model::BrokerTls> {
        let part = field_value(part)?;
        let tls = self.build_nats_tls(document::NatsTlsSection {
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

    /// Returns the names of a list; an empty name is an error.
    fn non_empty_names(&self, field: OneOrManyField<String>) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for at in super::list_items(field) {
            match at.value {
                Some(name) if name.is_empty() => self.errors.report(at.position, "a name", "``"),
                Some(name) => names.push(name.into()),
                None => {}
            }
        }
        names
    }

    fn build_kafka(&self, mut part: document::KafkaSection, position: FilePosition) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        let has_topics = part.topics.is_some() != part.pattern.is_some();
        self.require_key(
            part.servers.is_some(),
            "`servers` with at least one",
            position,
            (),
        );
        if !has_topics {
            let found = if part.topics.is_some() { "both" } else { "none" };
            self.errors
                .report(position, "either the key `topics` or the key `pattern`", found);
        }
        if let Some(at) = &part.pattern
            && let Some(pattern) = &at.value
            && let Err(error) = regex::Regex::new(pattern)
        {
            let found = format!("{}: {error}", quote(pattern));
            self.errors.report(at.position, "a regular expression", found);
        }
        let sasl = self.build_kafka_sasl(part.sasl);
        let kafka = model::Kafka {
            servers: server_addresses(part.servers),
            topics: self.non_empty_names(part.topics),
            pattern: field_value(part.pattern).map(Arc::from),
            group: field_value(part.group).map(Arc::from),
            start: parsed_value(part.start).unwrap_or(DEFAULT_START),
            read_committed: field_value(part.read_committed).unwrap_or(true),
            sasl,
            tls: self.build_broker_tls(part.tls),
        };
        self.build_source(mapping, &ChannelTemplate::key(), SourceKind::Kafka(kafka), errors)
    }

    pub(super) fn build_kafka_sasl(
        &self,
        part: Field<document::KafkaSaslSection>,
    ) -> Option<model::KafkaSasl> {
        let at = part?;
        let sasl = at.value?;
        self.require_key(sasl.user.is_some(), "`user`", at.position, ());
        self.require_key(sasl.password.is_some(), "`password`", at.position, ());
        Some(model::KafkaSasl {
            mechanism: parsed_value(sasl.mechanism).unwrap_or(SaslMechanism::ScramSha512),
            login: BrokerLogin {
                user: field_value(sasl.user)?.into(),
                password: Secret::new(field_value(sasl.password)?.into_bytes()),
            },
        })
    }

    fn build_jetstream(
        &self,
        mut part: document::JetStreamSection,
        position: FilePosition,
    ) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        self.require_key(
            part.servers.is_some(),
            "`servers` with at least one",
            position,
            (),
        );
        self.require_key(part.stream.is_some(), "`stream`", position, ());
        for at in [&part.stream, &part.durable].into_iter().flatten() {
            if let Some(name) = &at.value
                && (name.is_empty() || name.contains(|c: char| c.is_whitespace() || ".*>/\\".contains(c)))
            {
                let expected = "a name without spaces and none of the characters . * > / \\";
                self.errors.report(at.position, expected, quote(name));
            }
        }
        let login = self.build_nats_login(part.user, part.password, part.token, part.credentials)?;
        let stream = model::JetStream {
            access: NatsAccess {
                servers: parsed_items(part.servers),
                login,
                tls: part
                    .tls
                    .and_then(|at| at.value)
                    .map(|part| self.build_nats_tls(part)),
            },
            stream: field_value(part.stream).unwrap_or_default().into(),
            subjects: parsed_items(part.subjects)
                .into_iter()
                .map(|filter| filter.0.into())
                .collect(),
            durable: field_value(part.durable).map(Arc::from),
            start: parsed_value(part.start).unwrap_or(DEFAULT_START),
        };
        self.build_source(
            mapping,
            &ChannelTemplate::subject(),
            SourceKind::JetStream(stream),
            errors,
        )
    }

    pub(super) fn build_redis_access(
        &self,
        keys: RedisAccessKeys,
        database: Field<u32>,
        position: FilePosition,
    ) -> Option<RedisAccess> {
        self.require_key(
            keys.servers.is_some(),
            "`servers` with at least one",
            position,
            (),
        );
        let is_cluster = field_value(keys.cluster).unwrap_or(false);
        let deployment = match (is_cluster, field_value(keys.sentinel)) {
            (true, Some(_)) => {
                let expected = "either the key `cluster` or the key `sentinel`";
                self.errors.report(position, expected, "both");
                return None;
            }
            (true, None) => RedisDeployment::Cluster,
            (false, Some(name)) => RedisDeployment::Sentinel(name.into()),
            (false, None) => RedisDeployment::Single,
        };
        let login = match (field_value(keys.user), field_value(keys.password)) {
            (None, None) => None,
            (user, Some(password)) => Some(BrokerLogin {
                user: user.unwrap_or_default().into(),
                password: Secret::new(password.into_bytes()),
            }),
            (Some(_), None) => {
                self.errors
                    .report(position, "the key `password` beside `user`", "none");
                return None;
            }
        };
        Some(RedisAccess {
            servers: server_addresses(keys.servers),
            deployment,
            database: field_value(database).map_or(0, i64::from),
            login,
            tls: self.build_broker_tls(keys.tls),
        })
    }

    fn build_redis_streams(
        &self,
        mut part: document::RedisStreamsSection,
        position: FilePosition,
    ) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        self.require_key(
            part.streams.is_some(),
            "`streams` with at least one",
            position,
            (),
        );
        let access = self.build_redis_access(part.take_access(), part.database.take(), position)?;
        let or = |part: Field<String>, default: &str| -> Arc<str> {
            field_value(part)
                .filter(|text| !text.is_empty())
                .unwrap_or(default.to_owned())
                .into()
        };
        let host = ringmain_sys::process::host_name();
        let streams = model::RedisStreams {
            access,
            streams: self.non_empty_names(part.streams),
            group: or(part.group, "ringmain"),
            consumer: or(part.consumer, &host),
            field: or(part.field, "data"),
            claim_after: time_value(part.claim_after).unwrap_or(Duration::from_secs(30)),
            start: parsed_value(part.start).unwrap_or(StartPosition::Latest),
        };
        self.build_source(
            mapping,
            &ChannelTemplate::header("channel"),
            SourceKind::RedisStreams(streams),
            errors,
        )
    }

    fn build_redis_pubsub(
        &self,
        mut part: document::RedisPubSubSection,
        position: FilePosition,
    ) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        let has_some = part.channels.is_some() || part.patterns.is_some();
        self.require_key(
            has_some,
            "`channels` or the key `patterns` with at least one",
            position,
            (),
        );
        let access = self.build_redis_access(part.take_access(), None, position)?;
        let pubsub = model::RedisPubSub {
            access,
            channels: self.non_empty_names(part.channels),
            patterns: self.non_empty_names(part.patterns),
        };
        self.build_source(
            mapping,
            &ChannelTemplate::subject(),
            SourceKind::RedisPubSub(pubsub),
            errors,
        )
    }

    fn build_postgres(&self, mut part: document::PostgresSection, position: FilePosition) -> Option<Source> {
        let errors = self.errors.count();
        let mapping = part.take_mapping();
        for (is_set, kind) in [
            (part.server.is_some(), "`server`"),
            (part.database.is_some(), "`database`"),
            (part.user.is_some(), "`user`"),
        ] {
            self.require_key(is_set, kind, position, ());
        }
        if let Some(at) = &part.server
            && let Some(server) = at.value.as_ref().filter(|server| server.contains("://"))
        {
            let expected = "HOST:PORT, such as db.internal:5432, or the directory of its socket";
            self.errors.report(at.position, expected, quote(server));
        }
        let partitions = part.partitions.as_ref().and_then(|at| at.value).unwrap_or(1);
        if let Some(at) = &part.partitions
            && !(1..=1024).contains(&partitions)
        {
            let found = format!("`{partitions}`");
            self.errors
                .report(at.position, "a whole number from 1 to 1024", found);
        }
        let postgres = model::Postgres {
            server: field_value(part.server).unwrap_or_default().into(),
            database: field_value(part.database).unwrap_or_default().into(),
            login: BrokerLogin {
                user: field_value(part.user).unwrap_or_default().into(),
                password: Secret::new(field_value(part.password).unwrap_or_default().into_bytes()),
            },
            tls: self.build_broker_tls(part.tls),
            table: field_value(part.table)
                .unwrap_or("ringmain_outbox".to_owned())
                .into(),
            partitions: u16::try_from(partitions).unwrap_or(1),
            poll_interval: time_value(part.poll_interval).unwrap_or(Duration::from_secs(1)),
            notify: Some(
                field_value(part.notify)
                    .unwrap_or("ringmain_outbox".to_owned())
                    .into(),
            ),
        };
        self.build_source(
            mapping,
            &ChannelTemplate::header("channel"),
            SourceKind::Postgres(postgres),
            errors,
        )
    }
}
