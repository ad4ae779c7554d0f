//! The log behind the channels of a push cluster.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    self, JetStreamLog, KafkaLog, NatsAccess, PUSH_LOG_PARTITIONS, PushLog, PushLogEngine, PushTakeover,
    RedisLog, RedisLoss,
};

use super::{Builder, field_value, parsed_items, parsed_value, time_value};
use crate::config::document::{self, Field, RedisAccessKeys};
use crate::config::error::{FilePosition, quote};
use crate::config::scalars::ByteSize;

const DEFAULT_PARTITIONS: u16 = 64;
const DEFAULT_RETENTION: Duration = Duration::from_secs(3600);
const DEFAULT_TAKEOVER: PushTakeover = PushTakeover {
    time: Duration::from_secs(2),
    bytes: 64 << 20,
};

/// The shortest `retention`: nodes read entries before the broker deletes them.
const LEAST_RETENTION: Duration = Duration::from_mins(1);

/// The longest `takeover.time`: a client waits for the state of its channel no longer.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(4);

impl Builder<'_> {
    /// Builds the log. `None`: an error was reported.
    pub(super) fn build_push_log(
        &self,
        part: document::PushLogSection,
        position: FilePosition,
        push: &model::Push,
    ) -> Option<Arc<PushLog>> {
        let errors = self.errors.count();
        let given = [
            part.redis.is_some(),
            part.jetstream.is_some(),
            part.kafka.is_some(),
        ];
        let count = given.into_iter().filter(|is_given| *is_given).count();
        if count != 1 {
            let found = if count == 0 { "none" } else { "several" };
            let expected = "exactly one of the keys `redis`, `jetstream` and `kafka`";
            self.errors.report(position, expected, found);
            return None;
        }
        let partitions = self.build_number(part.partitions, DEFAULT_PARTITIONS, 1..=PUSH_LOG_PARTITIONS);
        let takeover = part
            .takeover
            .and_then(|at| self.build_takeover(at.value?, at.position));
        let retention_at = part.retention.as_ref().map_or(position, |at| at.position);
        let retention = time_value(part.retention).unwrap_or(DEFAULT_RETENTION);
        self.check_log_retention(retention, retention_at, push);
        let engine = if let Some(at) = part.redis {
            self.build_redis_log(at.value?, at.position)?
        } else if let Some(at) = part.jetstream {
            self.build_jetstream_log(at.value?, at.position)?
        } else {
            let at = part.kafka?;
            self.build_kafka_log(at.value?, at.position)?
        };
        if let Err(feature) = ringmain_sources::log::check_support(&engine) {
            let expected = format!("a build with the feature `{feature}` (cargo build --features brokers)");
            let found = format!("`{}`, which this build has no client for", engine.label());
            self.errors.report(position, expected, found);
        }
        (self.errors.count() == errors).then(|| {
            Arc::new(PushLog {
                engine,
                partitions,
                retention,
                takeover: takeover.unwrap_or(DEFAULT_TAKEOVER),
            })
        })
    }

    /// Reports a log that is shorter than the history of a namespace, or than idempotency keys are remembered: a node that begins to read it
    /// would not know all of these.
    fn check_log_retention(&self, retention: Duration, position: FilePosition, push: &model::Push) {
        let named = push
            .namespaces
            .iter()
            .map(|(name, options)| (Some(name), options));
        let histories = named
            .chain([(None, &push.plain)])
            .filter_map(|(name, options)| Some((options.channel_options.history?.ttl, name)));
        let longest = histories.max_by_key(|(ttl, _)| *ttl);
        let expected = match longest {
            Some((ttl, name)) if ttl > retention.max(LEAST_RETENTION) => {
                let owner = match name {
                    Some(name) => format!("`push.namespaces.{name}`"),
                    None => "`push.channels`".to_owned(),
                };
                format!(
                    "a `retention` of the log of at least {ttl:?}, which is `retention.time` of {owner}: raise the one, or lower the other"
                )
            }
            _ if retention < LEAST_RETENTION => {
                format!("a `retention` of the log of at least {LEAST_RETENTION:?}")
            }
            _ if retention < push.keys_remembered => format!(
                "a `retention` of the log of at least {:?}, which is `push.limits.idempotency`: raise the one, or lower the other",
                push.keys_remembered
            ),
            _ => return,
        };
        self.errors.report(position, expected, format!("{retention:?}"));
    }

    fn build_takeover(
        &self,
        part: document::PushTakeoverSection,
        position: FilePosition,
    ) -> Option<PushTakeover> {
        let time = time_value(part.time).unwrap_or(DEFAULT_TAKEOVER.time);
        if time > TAKEOVER_TIME_MAX {
            let expected = "a `time` of at most 4s: clients wait no longer";
            self.errors.report(position, expected, format!("{time:?}"));
            return None;
        }
        let bytes = parsed_value(part.bytes).map(|ByteSize(bytes)| bytes as usize);
        Some(PushTakeover {
            time,
            bytes: bytes.unwrap_or(DEFAULT_TAKEOVER.bytes),
        })
    }

    /// Reads a whole number within limits, which are reported.
    fn build_number<T>(&self, at: Field<T>, default: u16, range: std::ops::RangeInclusive<u16>) -> u16
    where
        T: Copy + Into<u32>,
    {
        let Some(at) = at else { return default };
        let Some(number) = at.value.map(Into::into) else {
            return default;
        };
        let (from, to) = (*range.start(), *range.end());
        match u16::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(number) => number,
            None => {
                let expected = format!("a whole number from {from} to {to}");
                self.errors.report(at.position, expected, format!("`{number}`"));
                default
            }
        }
    }

    /// Reads a name in which a broker allows only some characters.
    fn build_log_name(&self, at: Field<String>, default: &str, extra: &str) -> Arc<str> {
        let Some(at) = at else { return default.into() };
        let Some(name) = at.value else {
            return default.into();
        };
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
        if name.is_empty() || name.len() > 200 || !name.chars().all(is_allowed) {
            let expected = format!("a name of 1 to 200 letters, digits and the characters {extra}");
            self.errors.report(at.position, expected, quote(&name));
        }
        name.into()
    }

    fn build_redis_log(
        &self,
        part: document::PushLogRedisSection,
        position: FilePosition,
    ) -> Option<PushLogEngine> {
        let keys = RedisAccessKeys {
            servers: part.servers,
            cluster: part.cluster,
            sentinel: part.sentinel,
            user: part.user,
            password: part.password,
            tls: part.tls,
        };
        let access = self.build_redis_access(keys, part.database, position)?;
        let replicas_at = part.replicas.as_ref().map(|at| at.position);
        let replicas = self.build_number(part.replicas, 1, 0..=9);
        let loss = match field_value(part.loss) {
            Some(document::PushLogLoss::None) => RedisLoss::None { replicas },
            Some(document::PushLogLoss::Possible) | None => {
                if let Some(position) = replicas_at {
                    let expected = "the key `loss: none` beside `replicas`";
                    self.errors.report(position, expected, "none");
                }
                RedisLoss::Possible
            }
        };
        Some(PushLogEngine::Redis(RedisLog {
            access,
            prefix: self.build_log_name(part.prefix, "ringmain", "-_.:/"),
            loss,
        }))
    }

    fn build_jetstream_log(
        &self,
        part: document::PushLogJetStreamSection,
        position: FilePosition,
    ) -> Option<PushLogEngine> {
        if part.servers.is_none() {
            self.errors
                .report(position, "the key `servers` with at least one", "none");
        }
        let login = self.build_nats_login(part.user, part.password, part.token, part.credentials)?;
        let tls = part.tls.and_then(|at| at.value);
        Some(PushLogEngine::JetStream(JetStreamLog {
            access: NatsAccess {
                servers: parsed_items(part.servers),
                login,
                tls: tls.map(|part| self.build_nats_tls(part)),
            },
            stream: self.build_log_name(part.stream, "RINGMAIN", "-_"),
            prefix: self.build_log_name(part.prefix, "ringmain.log", "-_."),
            replicas: self.build_number(part.replicas, 1, 1..=5),
        }))
    }

    fn build_kafka_log(
        &self,
        part: document::PushLogKafkaSection,
        position: FilePosition,
    ) -> Option<PushLogEngine> {
        if part.servers.is_none() {
            self.errors
                .report(position, "the key `servers` with at least one", "none");
        }
        Some(PushLogEngine::Kafka(KafkaLog {
            servers: super::sources::server_addresses(part.servers),
            topic: self.build_log_name(part.topic, "ringmain-log", "-_."),
            replicas: self.build_number(part.replicas, 1, 1..=9),
            sasl: self.build_kafka_sasl(part.sasl),
            tls: self.build_broker_tls(part.tls),
        }))
    }
}
