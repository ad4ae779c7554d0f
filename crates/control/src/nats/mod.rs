//! Consumers of NATS, whose messages are published in channels of push.
//!
//! ```text
//! NATS ─ connection ─▶ consumer: subject → channel ─▶ ThreadPublisher ─▶ the channel's worker
//!         (protocol, stream, login)
//! ```
//!
//! One thread with tokio runs all consumers of a process; it starts with the first. A consumer that fails reconnects by itself; workers
//! never wait for this thread.

mod backoff;
mod connection;
mod consumer;
mod credentials;
pub mod protocol;
mod publisher;
mod status;
mod transport;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::Nats;
use ringmain_push::ThreadPublisher;
use ringmain_sources::supervisor::Supervisor;
pub use ringmain_sources::supervisor::runtime;

pub use self::connection::{ConnectOptions, Connection, ConnectionError, ServerInfo};
pub use self::publisher::Publisher;
pub use self::status::{ConsumerReport, DropReason};

use self::consumer::Consumer;
use self::status::ConsumerStatus;

/// All consumers of a process. Dropping it ends them.
#[derive(Debug)]
pub struct Consumers {
    inlet: ThreadPublisher,
    tasks: Supervisor<Nats, ConsumerStatus>,
}

impl Consumers {
    /// Creates the set without consumers.
    #[must_use]
    pub fn new(inlet: ThreadPublisher) -> Consumers {
        Consumers {
            tasks: Supervisor::new("ringmain-nats", inlet.clone(), |member, mut stopped| {
                let consumer = Consumer::new(member);
                Box::pin(async move {
                    tokio::select! {
                        () = consumer.run() => {}
                        _ = stopped.changed() => {}
                    }
                })
            }),
            inlet,
        }
    }

    /// Runs the configured consumers. Those that have not changed continue; the counters of a name continue in any case.
    pub fn follow(&self, configured: &BTreeMap<Arc<str>, Arc<Nats>>) {
        self.tasks.follow(configured, |_, _| {});
    }

    /// Returns the state of each consumer, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<ConsumerReport> {
        let members = self.tasks.members().into_iter();
        members.map(|member| member.status.report(&member.name)).collect()
    }

    /// Returns the consumers that readiness depends on and whose servers do not deliver at present, by name.
    #[must_use]
    pub fn undelivered(&self) -> Vec<Arc<str>> {
        let members = self.tasks.members().into_iter();
        members
            .filter(|member| member.config.readiness && !member.status.report(&member.name).delivers)
            .map(|member| member.name)
            .collect()
    }

    /// Returns whether the servers deliver to every consumer.
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

/// Checks that a credentials file can be used.
///
/// # Errors
/// The expected contents.
pub fn check_credentials(file: &[u8]) -> Result<(), &'static str> {
    credentials::Credentials::parse(str::from_utf8(file).unwrap_or_default()).map(drop)
}
