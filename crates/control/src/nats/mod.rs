//! Consumers of NATS: what is published there reaches who is pushed to.
//!
//! ```text
//! NATS ─ connection ─▶ consumer: subject → channel ─▶ Inlet ─▶ the channel's worker
//!         (protocol, stream, login)
//! ```
//!
//! One thread with tokio has all of them, started with the first. A consumer that fails comes back by itself; workers go on with
//! what they have, and never wait for this thread.

mod backoff;
mod connection;
mod consumer;
mod login;
pub mod protocol;
mod publisher;
mod status;
mod stream;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringmain_gateway::model::Nats;
use ringmain_push::Inlet;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use self::connection::{Access, Connection, Failure, Info};
pub use self::publisher::Publisher;
pub use self::status::{Dropped, Report};

use self::consumer::Consumer;
use self::status::Status;

/// All consumers of a process. Dropping it ends them.
#[derive(Debug)]
pub struct Consumers {
    inlet: Inlet,
    running: Mutex<Running>,
}

/// What is wanted, by name.
type Wanted = BTreeMap<Arc<str>, (Arc<Nats>, Arc<Status>)>;

#[derive(Debug, Default)]
struct Running {
    wanted: Wanted,
    thread: Option<(watch::Sender<Wanted>, JoinHandle<()>)>,
}

impl Consumers {
    /// Without any yet.
    #[must_use]
    pub fn new(inlet: Inlet) -> Consumers {
        Consumers {
            inlet,
            running: Mutex::default(),
        }
    }

    /// Has those at work that are wanted. Those that are wanted as they are go on; of a name what is counted goes on, too.
    pub fn follow(&self, wanted: &BTreeMap<Arc<str>, Arc<Nats>>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let status = |name| running.wanted.get(name).map(|(_, status)| Arc::clone(status));
        let wanted: Wanted = wanted
            .iter()
            .map(|(name, nats)| {
                let status = status(name).unwrap_or_default();
                (Arc::clone(name), (Arc::clone(nats), status))
            })
            .collect();
        running.wanted.clone_from(&wanted);
        match &running.thread {
            // It is gone only if it could not begin, which was said.
            Some((sender, _)) => drop(sender.send(wanted)),
            None if wanted.is_empty() => {}
            None => {
                let (sender, receiver) = watch::channel(wanted);
                let inlet = self.inlet.clone();
                let builder = std::thread::Builder::new().name("ringmain-nats".into());
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the one thread of consumers: they wait for brokers, which no worker may"
                )]
                let thread = builder.spawn(move || serve(receiver, &inlet));
                match thread {
                    Ok(thread) => running.thread = Some((sender, thread)),
                    Err(error) => log::error!("nothing is heard of NATS: no thread for it: {error}"),
                }
            }
        }
    }

    /// What they do, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = running.wanted.iter();
        reports.map(|(name, (_, status))| status.report(name)).collect()
    }

    /// The consumers that readiness depends on and whose servers do not deliver at the moment, by name.
    #[must_use]
    pub fn undelivered(&self) -> Vec<Arc<str>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = running.wanted.iter();
        wanted
            .filter(|(name, (nats, status))| nats.readiness && !status.report(name).delivers)
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// Whether the servers of all consumers deliver.
    #[must_use]
    pub fn all_deliver(&self) -> bool {
        self.reports().iter().all(|report| report.delivers)
    }

    /// Publications that wait for workers.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inlet.waiting()
    }
}

impl Drop for Consumers {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((sender, thread)) = running.thread.take() {
            drop(sender);
            // What it panicked of was said.
            let _ = thread.join();
        }
    }
}

/// Whether a file of credentials can be used.
///
/// # Errors
/// What was expected.
pub fn check_credentials(file: &[u8]) -> Result<(), &'static str> {
    login::Credentials::parse(str::from_utf8(file).unwrap_or_default()).map(drop)
}

/// Ends a task with itself.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The thread's work, until whoever wants something is gone.
fn serve(mut wanted: watch::Receiver<Wanted>, inlet: &Inlet) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return log::error!("nothing is heard of NATS: {error}"),
    };
    runtime.block_on(async {
        let mut running: BTreeMap<Arc<str>, (Arc<Nats>, Task)> = BTreeMap::new();
        loop {
            let now = wanted.borrow_and_update().clone();
            running.retain(|name, (nats, _)| now.get(name).is_some_and(|(now, _)| now == nats));
            for (name, (nats, status)) in now {
                running.entry(name).or_insert_with_key(|name| {
                    let consumer = Consumer::new(name, &nats, inlet, &status);
                    let task = tokio::spawn(supervise(consumer));
                    (nats, Task(task.abort_handle()))
                });
            }
            if wanted.changed().await.is_err() {
                return;
            }
        }
    });
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
}

/// A runtime of one thread, its own, for connections.
///
/// # Errors
/// No descriptors.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
}

/// Has a consumer begin again that has panicked.
async fn supervise(consumer: Consumer) {
    loop {
        let task = tokio::spawn(consumer.clone().run());
        let _ends_with_this = Task(task.abort_handle());
        if let Err(error) = task.await {
            log::error!("NATS {}: {error}; it begins again", consumer.name());
        }
        tokio::time::sleep(backoff::LONGEST).await;
    }
}
