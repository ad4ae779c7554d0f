//! The state of a consumer. Written by its task alone, read by any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringmain_sources::{FailureRecord, LastFailure};
use ringmain_sys::clock;

/// The reason why a message was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its subject makes no channel: too few words, a name that cannot be, an unknown namespace.
    NoChannel,
    /// It is no JSON.
    NotJson,
    /// It is longer than [`NATS_PAYLOAD_BYTES`](crate::limits::NATS_PAYLOAD_BYTES).
    TooLarge,
    /// Its worker had no room within [`NATS_QUEUE_TIMEOUT`](crate::limits::NATS_QUEUE_TIMEOUT).
    Full,
}

impl DropReason {
    /// All reasons, by number.
    pub const ALL: [DropReason; 4] = [
        DropReason::NoChannel,
        DropReason::NotJson,
        DropReason::TooLarge,
        DropReason::Full,
    ];

    /// Returns the label in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            DropReason::NoChannel => "no_channel",
            DropReason::NotJson => "not_json",
            DropReason::TooLarge => "too_large",
            DropReason::Full => "full",
        }
    }

    /// Returns a description for messages.
    pub(super) const fn description(self) -> &'static str {
        match self {
            DropReason::NoChannel => "their subjects map to no channel",
            DropReason::NotJson => "they are not JSON",
            DropReason::TooLarge => "they are too large",
            DropReason::Full => "the channel's worker has no room",
        }
    }
}

/// The state and counters of one consumer, since its name was first configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerReport {
    /// Its name.
    pub name: Arc<str>,
    /// The consumer is connected.
    pub connected: bool,
    /// The server has confirmed all subscriptions of this connection.
    pub delivers: bool,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that were lost, and failed attempts.
    pub failures: u64,
    /// The last failure.
    pub last_failure: Option<LastFailure>,
    /// Received messages.
    pub messages: u64,
    /// Those that were not published, by [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Those that were handed over to workers.
    pub handed_over: u64,
    /// From receipt to there, all of those together.
    pub hand_over_sum: Duration,
    /// The same of the last one; of one that waits for room, how long it has.
    pub lag: Duration,
}

#[derive(Debug, Default)]
pub(super) struct ConsumerStatus {
    connected: AtomicBool,
    delivers: AtomicBool,
    connects: AtomicU64,
    failures: AtomicU64,
    last_failure: FailureRecord,
    /// A failure has followed the last connection.
    is_failing: AtomicBool,
    messages: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    handed_over: AtomicU64,
    sum_micros: AtomicU64,
    last_micros: AtomicU64,
    /// Since when one waits, by the monotonic clock; 0: none does.
    waits_since_micros: AtomicU64,
}

/// Adds to a counter that has one writer.
fn add(counter: &AtomicU64, amount: u64) -> u64 {
    let sum = counter.load(Ordering::Relaxed) + amount;
    counter.store(sum, Ordering::Relaxed);
    sum
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl ConsumerStatus {
    pub(super) fn connected(&self) {
        add(&self.connects, 1);
        self.connected.store(true, Ordering::Relaxed);
        self.is_failing.store(false, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connected.store(false, Ordering::Relaxed);
        self.delivers(false);
        self.waits_since_micros.store(0, Ordering::Relaxed);
    }

    pub(super) fn delivers(&self, delivers: bool) {
        self.delivers.store(delivers, Ordering::Relaxed);
    }

    /// Returns whether this is the first connection.
    pub(super) fn is_first(&self) -> bool {
        self.connects.load(Ordering::Relaxed) == 1
    }

    /// Counts a lost connection, or an attempt that failed.
    pub(super) fn failed(&self, reason: &str) {
        add(&self.failures, 1);
        let has_failed_before = self.is_failing.swap(true, Ordering::Relaxed);
        self.last_failure
            .record(reason, has_failed_before, clock::realtime());
    }

    pub(super) fn message(&self) {
        add(&self.messages, 1);
    }

    /// Returns how many were dropped for that.
    pub(super) fn dropped(&self, reason: DropReason) -> u64 {
        self.waits_since_micros.store(0, Ordering::Relaxed);
        add(&self.dropped[reason as usize], 1)
    }

    pub(super) fn waits(&self, received: Duration) {
        self.waits_since_micros
            .store(micros(received).max(1), Ordering::Relaxed);
    }

    pub(super) fn handed_over(&self, duration: Duration) {
        self.waits_since_micros.store(0, Ordering::Relaxed);
        add(&self.handed_over, 1);
        add(&self.sum_micros, micros(duration));
        self.last_micros.store(micros(duration), Ordering::Relaxed);
    }

    pub(super) fn report(&self, name: &Arc<str>) -> ConsumerReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lag = match of(&self.waits_since_micros) {
            0 => of(&self.last_micros),
            since => micros(clock::monotonic()).saturating_sub(since),
        };
        ConsumerReport {
            name: Arc::clone(name),
            connected: self.connected.load(Ordering::Relaxed),
            delivers: self.delivers.load(Ordering::Relaxed),
            connects: of(&self.connects),
            failures: of(&self.failures),
            last_failure: self.last_failure.last(),
            messages: of(&self.messages),
            dropped: std::array::from_fn(|index| of(&self.dropped[index])),
            handed_over: of(&self.handed_over),
            hand_over_sum: Duration::from_micros(of(&self.sum_micros)),
            lag: Duration::from_micros(lag),
        }
    }
}
