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

use std::sync::Arc;

use ringmain_cluster::log::LogPort;
use ringmain_gateway::model::{PushLog, PushLogEngine};

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
