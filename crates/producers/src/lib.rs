//! Brokers for `ringmain bench push`: a producer that reports acknowledgements, and a plain consumer to compare with.
//!
//! ```text
//! publisher of `load` ─ records ─▶ thread: producer ─▶ broker ─▶ thread: plain consumer
//!                     ◀─ Reports ──────┴──────────────────────────────┘
//! ```
//!
//! Each of the two has a thread with tokio, so that neither delays the other. The libraries are those of `ringmain-sources`; nothing here
//! knows that crate, which reads the same records for a server.
#![forbid(unsafe_code)]

mod jetstream;
mod kafka;
mod redis;
mod url;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_load::push::broker::{Acknowledgement, Broker, Producer, Record, Reports, Token};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use self::url::Target;
pub use self::url::UrlError;

/// The time that connecting to a broker may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a record without an acknowledgement is refused.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(30);

/// An error of a library.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the broker at a URL: `kafka://HOST[:PORT][,HOST…]/TOPIC`, `nats://HOST[:PORT]/SUBJECT` or `redis://HOST[:PORT]/STREAM`. A record
/// has its channel as the key (Kafka), in the place of `{channel}` in the subject (JetStream), or in the field `channel` (Redis). With
/// `consumer` a plain consumer of the same library reads the records.
///
/// # Errors
/// An error in the URL: the expected form, and the part that was found.
pub fn broker(url: &str, consumer: bool) -> Result<Arc<dyn Broker>, UrlError> {
    let target = Target::parse(url)?;
    Ok(Arc::new(Remote {
        url: target.redacted(),
        target,
        consumer,
    }))
}

/// A broker that is reached by a library.
#[derive(Debug)]
struct Remote {
    url: String,
    target: Target,
    consumer: bool,
}

impl Broker for Remote {
    fn url(&self) -> &str {
        &self.url
    }

    fn acknowledges(&self) -> &'static str {
        match &self.target {
            Target::Kafka(_) => "written by all in-sync replicas",
            Target::JetStream(_) => "stored by the stream",
            Target::Redis(_) => "response to XADD",
        }
    }

    fn start(&self, reports: Reports) -> io::Result<Box<dyn Producer>> {
        let (records, receiver) = mpsc::unbounded_channel();
        let mut threads = Vec::new();
        let mut consumer = None;
        let mut is_reading = None;
        if self.consumer {
            let (ready, reading) = oneshot::channel();
            let (stop, stopped) = oneshot::channel();
            let (target, reports) = (self.target.clone(), reports.clone());
            threads.push(spawn("ringmain-consumer", move |runtime| {
                runtime.block_on(async {
                    tokio::select! {
                        failed = consume(&target, &reports, ready) => report(&reports, &target, "read", failed),
                        _ = stopped => {}
                    }
                });
            })?);
            consumer = Some(stop);
            is_reading = Some(reading);
        }
        let target = self.target.clone();
        threads.push(spawn("ringmain-producer", move |runtime| {
            runtime.block_on(async {
                if let Some(reading) = is_reading
                    && reading.await.is_err()
                {
                    // Its failure was reported.
                    return;
                }
                let outcome = produce(&target, &reports, receiver).await;
                report(&reports, &target, "written to", outcome);
            });
        })?);
        Ok(Box::new(Handle {
            records: Some(records),
            consumer,
            threads,
        }))
    }
}

/// Records on their way to the producer.
type Batches = mpsc::UnboundedReceiver<Vec<Record>>;

async fn produce(target: &Target, reports: &Reports, batches: Batches) -> Result<(), Error> {
    match target {
        Target::Kafka(topic) => kafka::produce(topic, reports, batches).await,
        Target::JetStream(subject) => jetstream::produce(subject, reports, batches).await,
        Target::Redis(stream) => redis::produce(stream, reports, batches).await,
    }
}

/// Reads until it fails; `ready` is notified once every later record will be read.
async fn consume(target: &Target, reports: &Reports, ready: oneshot::Sender<()>) -> Result<(), Error> {
    match target {
        Target::Kafka(topic) => kafka::consume(topic, reports, ready).await,
        Target::JetStream(subject) => jetstream::consume(subject, reports, ready).await,
        Target::Redis(stream) => redis::consume(stream, reports, ready).await,
    }
}

fn report(reports: &Reports, target: &Target, verb: &str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        let (url, hint) = (target.redacted(), target.hint());
        reports.failed(format!("{url} cannot be {verb}: {error}; {hint}"));
    }
}

/// Starts a thread with a runtime of its own.
fn spawn(name: &str, run: impl FnOnce(&Runtime) + Send + 'static) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let builder = std::thread::Builder::new().name(name.into());
    #[expect(
        clippy::disallowed_methods,
        reason = "threads of libraries that wait for brokers, which no worker may"
    )]
    builder.spawn(move || {
        run(&runtime);
        // A name that is being looked up is not waited for.
        runtime.shutdown_background();
    })
}

/// The threads of a broker that was started.
#[derive(Debug)]
struct Handle {
    records: Option<mpsc::UnboundedSender<Vec<Record>>>,
    consumer: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Producer for Handle {
    fn send(&mut self, records: Vec<Record>) {
        if let Some(sender) = &self.records {
            // The thread has ended only if it has reported why.
            let _ = sender.send(records);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.records = None;
        self.consumer = None;
        for thread in self.threads.drain(..) {
            // A panic was logged.
            let _ = thread.join();
        }
    }
}

/// The outcome of a record at this instant.
fn outcome(token: Token, refused: Option<String>) -> Acknowledgement {
    Acknowledgement {
        token,
        at: Reports::now(),
        refused,
    }
}
