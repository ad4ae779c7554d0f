//! Adapters of the log behind a push cluster's channels: the broker's side of [`ringmain_cluster::log`].
//!
//! ```text
//! node ─ requests ─▶ adapter ─ queue ─ batch, pipelined ─▶ broker        full: the node refuses; too old: refused here
//!      ◀─ events ──         ◀─ acknowledgements, records ─               full: the broker is not read
//! ```
//!
//! An adapter is one task that owns all its state. It waits for requests, for the completion of its [jobs](Jobs), and for the time. After
//! a failure it closes the open partitions and connects again; entries that the broker has not received stay in the queue.
//!
//! Must not know channels, nor lives: it reports the broker's records.

#[cfg(any(feature = "jetstream", feature = "kafka", feature = "redis"))]
mod follows;
#[cfg(feature = "jetstream")]
mod jetstream;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(any(feature = "jetstream", feature = "kafka"))]
mod older;
mod outbox;
mod queue;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "jetstream", feature = "kafka", feature = "redis"))]
mod retry;
#[cfg(any(feature = "jetstream", feature = "kafka", feature = "redis"))]
mod tails;

use std::sync::Arc;

use ringmain_cluster::log::LogPort;
use ringmain_gateway::model::{PushLog, PushLogEngine, RedisLoss};

/// Checks whether this build has the client of a log's broker.
///
/// # Errors
/// The name of the feature that it has to be built with.
pub fn check_support(engine: &PushLogEngine) -> Result<(), &'static str> {
    let is_supported = match engine {
        PushLogEngine::Redis(_) => cfg!(feature = "redis"),
        PushLogEngine::JetStream(_) => cfg!(feature = "jetstream"),
        PushLogEngine::Kafka(_) => cfg!(feature = "kafka"),
    };
    if is_supported { Ok(()) } else { Err(engine.label()) }
}

/// Returns a digest of the settings that must be equal on all nodes of a cluster. Addresses and credentials may differ.
#[must_use]
pub fn digest(log: &PushLog) -> u64 {
    let (name, prefix, detail) = match &log.engine {
        PushLogEngine::Redis(redis) => {
            let loses = match redis.loss {
                RedisLoss::Possible => 1,
                RedisLoss::None { .. } => 0,
            };
            ("", &redis.prefix, redis.access.database << 1 | loses)
        }
        PushLogEngine::JetStream(jetstream) => (&*jetstream.stream, &jetstream.prefix, 0),
        PushLogEngine::Kafka(kafka) => ("", &kafka.topic, 0),
    };
    crate::epoch::hash(&[
        log.engine.label().as_bytes(),
        name.as_bytes(),
        prefix.as_bytes(),
        &detail.to_be_bytes(),
        &log.partitions.to_be_bytes(),
    ])
}

/// Runs the adapter of a log until the node ends: until the other side of its port is dropped.
pub async fn run(log: Arc<PushLog>, port: LogPort) {
    match &log.engine {
        #[cfg(feature = "redis")]
        PushLogEngine::Redis(redis) => redis::run(&log, redis, port).await,
        #[cfg(feature = "jetstream")]
        PushLogEngine::JetStream(jetstream) => jetstream::run(&log, jetstream, port).await,
        #[cfg(feature = "kafka")]
        PushLogEngine::Kafka(kafka) => kafka::run(&log, kafka, port).await,
        #[allow(unreachable_patterns)]
        engine => {
            log::error!("push log ({}): this build has no client for it", engine.label());
            outbox::Outbox::refuse_all(port, engine.label()).await;
        }
    }
}

/// Commands of an adapter that are executed at its broker, each with its completion.
#[cfg(any(feature = "jetstream", feature = "kafka", feature = "redis"))]
type Jobs<'l, D> =
    futures_util::stream::FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = D> + Send + 'l>>>;

/// Identifies the state of a broker, by what tells it from others. SHA-256, so that no two states have the same by accident.
fn binding(parts: &[&[u8]]) -> ringmain_cluster::log::Binding {
    ringmain_cluster::log::Binding(crate::epoch::hash(parts))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringmain_cluster::log::{Beat, Binding, Entry, EntryId, Life};
    use ringmain_cluster::member::Uid;
    use ringmain_gateway::model::{
        KafkaLog, PushLog, PushLogEngine, PushTakeover, RedisAccess, RedisDeployment, RedisLog, RedisLoss,
    };

    use super::digest;

    /// An entry of an append.
    pub(super) fn beat(append: u64) -> Entry {
        Entry::Beat {
            id: EntryId {
                writer: Uid(7),
                append,
            },
            beat: Beat {
                life: Life(1),
                binding: Binding(2),
                seen: append,
            },
        }
    }

    #[test]
    fn nodes_whose_settings_differ_have_other_digests() {
        let redis = |server: &str, prefix: &str, database, loss| {
            PushLogEngine::Redis(RedisLog {
                access: RedisAccess {
                    servers: [server.into()].into(),
                    deployment: RedisDeployment::Single,
                    database,
                    login: None,
                    tls: None,
                },
                prefix: prefix.into(),
                loss,
            })
        };
        let kafka = PushLogEngine::Kafka(KafkaLog {
            servers: ["a:9092".into()].into(),
            topic: "p".into(),
            replicas: 1,
            sasl: None,
            tls: None,
        });
        let of = |engine, partitions| {
            digest(&PushLog {
                engine,
                partitions,
                retention: Duration::from_secs(600),
                takeover: PushTakeover {
                    time: Duration::from_secs(2),
                    bytes: 1 << 20,
                },
            })
        };
        let own = of(redis("a", "p", 0, RedisLoss::Possible), 64);
        assert_eq!(
            of(redis("b", "p", 0, RedisLoss::Possible), 64),
            own,
            "the address may be another one"
        );
        for (name, other) in [
            ("partitions", of(redis("a", "p", 0, RedisLoss::Possible), 65)),
            ("prefix", of(redis("a", "q", 0, RedisLoss::Possible), 64)),
            ("database", of(redis("a", "p", 1, RedisLoss::Possible), 64)),
            (
                "loss",
                of(redis("a", "p", 0, RedisLoss::None { replicas: 0 }), 64),
            ),
            ("engine", of(kafka, 64)),
        ] {
            assert_ne!(other, own, "{name}");
        }
    }
}
