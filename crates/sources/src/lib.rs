//! Sources: brokers whose records are published in channels, at least once and in order.
//!
//! ```text
//! broker ─ client (a library) ─▶ partition ─ ThreadPublisher ─▶ worker of the channel
//!                                  ◀───── receipt ────┘
//!        ◀─ commit, acknowledgement: once all records before are done
//! ```
//!
//! One thread with tokio runs all of them, started with the first. A source that fails is started again; workers continue with what they
//! have, and never wait for this thread. Where the source is a log (Kafka, JetStream), publications have the log's own offsets: see
//! `ringmain_hub`'s logs.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(
        feature = "kafka",
        feature = "jetstream",
        feature = "redis",
        feature = "postgres"
    )),
    allow(
        dead_code,
        unused_imports,
        reason = "each broker uses a part of the shared code"
    )
)]

mod commands;
mod epoch;
mod failure;
mod feed;
#[cfg(feature = "jetstream")]
mod jetstream;
#[cfg(feature = "kafka")]
mod kafka;
mod letters;
pub mod limits;
mod linger;
pub mod log;
mod outbox;
mod parked;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod status;
pub mod supervisor;
#[cfg(any(feature = "jetstream", feature = "postgres"))]
mod tls;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_gateway::model::{RecordFormat, Source, SourceKind};
use ringmain_push::ThreadPublisher;
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::sleep;

pub use self::failure::Failure;
pub use self::outbox::{OUTBOX_SQL, outbox_sql};
pub use self::status::{DeadReason, FailureRecord, LastFailure, Report};

use self::feed::Feed;
use self::linger::Linger;
use self::status::Status;
use self::supervisor::{Abort, Member, Supervisor};

/// Checks whether this build has the client of a source's broker.
///
/// # Errors
/// The name of the feature that it has to be built with.
pub fn check_support(kind: &SourceKind) -> Result<(), &'static str> {
    let (is_supported, feature) = match kind {
        SourceKind::Kafka(_) => (cfg!(feature = "kafka"), "kafka"),
        SourceKind::JetStream(_) => (cfg!(feature = "jetstream"), "jetstream"),
        SourceKind::RedisStreams(_) | SourceKind::RedisPubSub(_) => (cfg!(feature = "redis"), "redis"),
        SourceKind::Postgres(_) => (cfg!(feature = "postgres"), "postgres"),
    };
    if is_supported { Ok(()) } else { Err(feature) }
}

/// The sources of this process's start that have not begun to read their logs, with what their channels' names begin with.
#[derive(Debug)]
pub(crate) struct Expected {
    inlet: ThreadPublisher,
    prefixes: Mutex<BTreeMap<Arc<str>, Vec<Arc<str>>>>,
}

impl Expected {
    fn prefixes(&self) -> Vec<Arc<str>> {
        let prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        prefixes.values().flatten().cloned().collect()
    }

    /// Adds a source, before the workers start.
    fn add(&self, name: &Arc<str>, source: &Source) {
        // Those that deliver at most once repeat nothing.
        let may_repeat = !matches!(source.kind, SourceKind::RedisPubSub(_));
        if !may_repeat || source.mapping.format != RecordFormat::Data || self.inlet.workers() > 0 {
            return;
        }
        let of_source = source
            .bounds()
            .iter()
            .map(|bound| bound.prefix().into())
            .collect();
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        prefixes.insert(Arc::clone(name), of_source);
        drop(prefixes);
        self.inlet.expect_logs(self.prefixes());
    }

    /// Notes that a source reads its logs, or that it was waited for long enough.
    pub(crate) async fn remove(&self, name: &str) {
        let removed = {
            let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
            prefixes.remove(name)
        };
        if removed.is_none() {
            return;
        }
        let prefixes = self.prefixes();
        self.inlet.expect_logs(prefixes.clone());
        for worker in 0..self.inlet.workers() {
            while !self.inlet.submit_expected(worker, &prefixes) {
                sleep(limits::READY_CHECK_INTERVAL).await;
            }
        }
    }
}

/// All sources of a process. Dropping it ends them.
#[derive(Debug)]
pub struct Sources {
    expected: Arc<Expected>,
    tasks: Supervisor<Source, Status>,
}

impl Sources {
    /// Without sources.
    #[must_use]
    pub fn new(inlet: ThreadPublisher) -> Sources {
        let expected = Arc::new(Expected {
            inlet: inlet.clone(),
            prefixes: Mutex::default(),
        });
        let linger: Arc<Linger> = Arc::default();
        let (task_expected, task_linger) = (Arc::clone(&expected), Arc::clone(&linger));
        Sources {
            expected,
            tasks: Supervisor::new("ringmain-sources", inlet, move |member, stopped| {
                let (expected, linger) = (Arc::clone(&task_expected), Arc::clone(&task_linger));
                Box::pin(retry(member, expected, linger, stopped))
            })
            .with_linger(linger),
        }
    }

    /// Runs the configured sources. Those that have not changed continue; the counters of a name continue in any case.
    pub fn follow(&self, configured: &BTreeMap<Arc<str>, Arc<Source>>) {
        self.tasks
            .follow(configured, |name, source| self.expected.add(name, source));
    }

    /// The state of each source, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let members = self.tasks.members().into_iter();
        members
            .map(|member| member.status.report(&member.name, member.config.kind.label()))
            .collect()
    }

    /// The sources that readiness depends on and that do not deliver at the moment, by name.
    #[must_use]
    pub fn undelivered(&self) -> Vec<Arc<str>> {
        let members = self.tasks.members().into_iter();
        members
            .filter(|member| member.config.readiness && !member.status.report(&member.name, "").delivers)
            .map(|member| member.name)
            .collect()
    }

    /// The sources that cannot deliver their dead letters at the moment, by name. They publish all other records.
    #[must_use]
    pub fn degraded(&self) -> Vec<Arc<str>> {
        let reports = self.reports().into_iter();
        let degraded = reports.filter(|report| report.letters_fail);
        degraded.map(|report| report.name).collect()
    }
}

/// Runs a source until it is to end, and starts it again after a failure.
async fn retry(
    member: Member<Source, Status>,
    expected: Arc<Expected>,
    linger: Arc<Linger>,
    mut stopped: watch::Receiver<()>,
) {
    let Member {
        name,
        config: source,
        status,
        inlet,
        number: reader,
    } = member;
    let mut feed = Feed::new(&name, &source, reader, &inlet, &status);
    feed.expected = Some(Arc::clone(&expected));
    feed.linger = linger;
    let late = tokio::spawn(stop_expecting(
        Arc::clone(&expected),
        Arc::clone(&name),
        Arc::clone(&status),
    ));
    let _late = Abort(late);
    let followed = follow(&source, &mut feed, &mut stopped);
    followed.await;
    // A source that is removed before it has reached its broker is waited for no longer.
    expected.remove(&name).await;
}

/// Ends the wait for the logs of a source some time after its broker was reached: before, their positions cannot be known, and
/// clients that receive `recovered: false` would receive the records of before again.
async fn stop_expecting(expected: Arc<Expected>, name: Arc<str>, status: Arc<Status>) {
    status.reached().await;
    sleep(limits::LOG_EXPECTED).await;
    expected.remove(&name).await;
}

/// Runs a source again after each failure.
async fn follow(source: &Source, feed: &mut Feed, stopped: &mut watch::Receiver<()>) {
    let (name, status) = (Arc::clone(&feed.name), Arc::clone(&feed.status));
    let mut random = fastrand::Rng::with_seed(clock::realtime().as_nanos() as u64);
    let mut wait = limits::BACKOFF[0];
    let mut logged: Option<(String, Duration)> = None;
    loop {
        let began = clock::monotonic();
        let failure = run(&source.kind, feed, stopped).await;
        status.disconnected();
        let Some(failure) = failure else { return };
        let text = failure.to_string();
        status.failed(&text);
        let now = clock::monotonic();
        if now - began >= limits::BACKOFF_RESET_AFTER {
            wait = limits::BACKOFF[0];
        }
        let is_new = logged
            .as_ref()
            .is_none_or(|(last, at)| *last != text || now - *at >= limits::LOG_INTERVAL);
        if is_new {
            ::log::warn!("source {name} ({}): {text}; retrying", source.kind.label());
            logged = Some((text, now));
        }
        // Nodes that lost the same broker do not return at the same instant.
        let jittered = wait.mul_f64(0.5 + random.f64());
        wait = (2 * wait).min(limits::BACKOFF[1]);
        tokio::select! {
            _ = stopped.changed() => return,
            () = sleep(jittered) => {}
        }
    }
}

/// Runs a source. `None`: it was to end, and has committed the completed records.
async fn run(kind: &SourceKind, feed: &mut Feed, stopped: &mut watch::Receiver<()>) -> Option<Failure> {
    match kind {
        #[cfg(feature = "kafka")]
        SourceKind::Kafka(kafka) => kafka::run(kafka, feed, stopped).await,
        #[cfg(feature = "jetstream")]
        SourceKind::JetStream(stream) => jetstream::run(stream, feed, stopped).await,
        #[cfg(feature = "postgres")]
        SourceKind::Postgres(postgres) => postgres::run(postgres, feed, stopped).await,
        #[cfg(feature = "redis")]
        SourceKind::RedisStreams(streams) => redis::run_streams(streams, feed, stopped).await,
        #[cfg(feature = "redis")]
        SourceKind::RedisPubSub(pubsub) => redis::run_pubsub(pubsub, feed, stopped).await,
        #[allow(unreachable_patterns)]
        other => {
            let _ = (feed, stopped);
            let feature = check_support(other).err().unwrap_or_default();
            Some(Failure::Settings(format!(
                "this build has no client for it: build with the feature `{feature}`"
            )))
        }
    }
}
