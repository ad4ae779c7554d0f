//! The seam to a broker that publications are written to and that the server under test reads.
//!
//! ```text
//! publisher ─ Record ─▶ Producer ─▶ broker ─▶ server under test ─▶ clients
//!           ◀─ Reports ─ acknowledgements, and records that a plain consumer has read
//! ```
//!
//! Knows no broker's protocol and no library: a [`Broker`] is implemented elsewhere, and runs a thread of its own.

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::mail::Inbox;
use ringmain_sys::clock;

use super::calendar::Number;
use super::stamp::{self, Stamp};
use super::worker::Order;

/// A broker that publications are written to.
pub trait Broker: Debug + Send + Sync {
    /// The URL for reports, without secrets.
    fn url(&self) -> &str;

    /// The point at which the broker acknowledges a record, for reports.
    fn acknowledges(&self) -> &'static str;

    /// Starts a thread that connects, starts a plain consumer of the same library if that is wanted, and writes the records. Each record is reported once, as
    /// acknowledged or as refused.
    ///
    /// # Errors
    /// The thread could not be started. A broker that cannot be reached is reported by [`Reports::failed`].
    fn start(&self, reports: Reports) -> io::Result<Box<dyn Producer>>;
}

/// A started [`Broker`]. Dropping it ends its thread.
pub trait Producer: Debug + Send {
    /// Hands records over, which are written in this order. Does not wait.
    fn send(&mut self, records: Vec<Record>);
}

/// A record to be written.
#[derive(Debug)]
pub struct Record {
    /// Identifies it in [`Reports`].
    pub token: Token,
    /// The channel of its publication: the key, or a part of the subject.
    pub channel: String,
    /// Its value.
    pub value: Vec<u8>,
}

/// Identifies a record that was handed over.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub(super) due: Time,
    /// `None`: the record that tries whether publishing works.
    pub(super) number: Option<Number>,
    pub(super) run: u32,
    pub(super) sent: Time,
}

/// An outcome of a record.
#[derive(Debug)]
pub struct Acknowledgement {
    /// The record.
    pub token: Token,
    /// The time, of [`Reports::now`].
    pub at: Duration,
    /// The reason for which the broker has refused it.
    pub refused: Option<String>,
}

/// A record that a plain consumer has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consumed {
    pub(super) run: u32,
    pub(super) stamp: Stamp,
    pub(super) at: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) acknowledged: Vec<Acknowledgement>,
    pub(super) consumed: Vec<Consumed>,
    pub(super) failed: Option<String>,
}

/// The way back from a broker's thread to the publisher.
#[derive(Clone)]
pub struct Reports {
    pending: Arc<Mutex<Pending>>,
    inbox: Inbox<Order>,
}

impl Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reports")
    }
}

impl Reports {
    /// Returns the time of acknowledgements and of values that were consumed: the host's monotonic clock.
    pub fn now() -> Duration {
        clock::monotonic()
    }

    /// Reports outcomes of records.
    pub fn acknowledged(&self, some: impl IntoIterator<Item = Acknowledgement>) {
        let mut pending = lock(&self.pending);
        let is_first = pending.acknowledged.is_empty();
        pending.acknowledged.extend(some);
        let is_needed = is_first && !pending.acknowledged.is_empty();
        drop(pending);
        if is_needed {
            self.wake();
        }
    }

    /// Reports values that a plain consumer read at a time of [`Reports::now`]. Values of others are ignored.
    pub fn consumed<'a>(&self, values: impl IntoIterator<Item = &'a [u8]>, at: Duration) {
        let mut pending = lock(&self.pending);
        for value in values {
            if let Some((run, stamp)) = stamp::identify(value) {
                pending.consumed.push(Consumed { run, stamp, at });
            }
        }
    }

    /// Reports that the broker cannot be used: the run ends with this message.
    pub fn failed(&self, message: String) {
        lock(&self.pending).failed.get_or_insert(message);
        self.wake();
    }

    fn wake(&self) {
        // A worker with a full inbox is awake, and one that has ended needs none.
        let _ = self.inbox.post(Order::Reported);
    }
}

/// The state that the publisher and the thread of a broker share.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pending: Arc<Mutex<Pending>>,
    producer: OnceLock<Mutex<Box<dyn Producer>>>,
}

impl Exchange {
    /// Starts a broker, whose outcomes wake the worker of this inbox.
    pub(super) fn start(&self, broker: &dyn Broker, inbox: &Inbox<Order>) -> io::Result<()> {
        let reports = Reports {
            pending: Arc::clone(&self.pending),
            inbox: inbox.clone(),
        };
        let producer = broker.start(reports.clone())?;
        // It is started once.
        let _ = self.producer.set(Mutex::new(producer));
        reports.wake();
        Ok(())
    }

    /// Hands records over. Returns whether the broker was started.
    pub(super) fn send(&self, records: Vec<Record>) -> bool {
        let Some(producer) = self.producer.get() else {
            return false;
        };
        lock(producer).send(records);
        true
    }

    /// Returns whether the broker was started.
    pub(super) fn is_started(&self) -> bool {
        self.producer.get().is_some()
    }

    /// Takes all reports.
    pub(super) fn take(&self) -> Pending {
        std::mem::take(&mut *lock(&self.pending))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
