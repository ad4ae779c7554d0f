//! Counters of a source. Written by its task, read by any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_sys::clock;
use tokio::sync::SetOnce;

/// The reason for which a record was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReason {
    /// The template makes no channel: a part is missing, the name is invalid, or its namespace does not exist.
    NoChannel,
    /// It is not of the format: no JSON, or no command.
    BadFormat,
    /// It is longer than [`RECORD_BYTES`](crate::limits::RECORD_BYTES), or addresses too many channels.
    TooLarge,
    /// The limit of channels is reached.
    NoRoom,
}

impl DeadReason {
    /// All reasons, in their order.
    pub const ALL: [DeadReason; 4] = [
        DeadReason::NoChannel,
        DeadReason::BadFormat,
        DeadReason::TooLarge,
        DeadReason::NoRoom,
    ];

    /// The label in metrics, and the header of a dead letter.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            DeadReason::NoChannel => "no_channel",
            DeadReason::BadFormat => "bad_format",
            DeadReason::TooLarge => "too_large",
            DeadReason::NoRoom => "no_room",
        }
    }
}

/// The last failure of a source or a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// The reason.
    pub reason: Arc<str>,
    /// The time, since the Unix epoch.
    pub at: Duration,
    /// The first failure since the last connection, since the Unix epoch.
    pub since: Duration,
}

/// The record of failures. Its owner writes it, any thread reads it.
#[derive(Debug, Default)]
pub struct FailureRecord(Mutex<Option<LastFailure>>);

impl FailureRecord {
    /// Records a failure. `has_failed_before`: also since the last connection. `wall` is the time since the Unix epoch.
    pub fn record(&self, reason: &str, has_failed_before: bool, wall: Duration) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = last.as_ref().filter(|_| has_failed_before).map(|last| last.since);
        *last = Some(LastFailure {
            reason: reason.into(),
            at: wall,
            since: since.unwrap_or(wall),
        });
    }

    /// Returns the last failure; `None`: there was none.
    #[must_use]
    pub fn last(&self) -> Option<LastFailure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The state of a source since it was configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its name.
    pub name: Arc<str>,
    /// The kind of its broker.
    pub kind: &'static str,
    /// It is connected.
    pub connected: bool,
    /// The broker delivers: it is connected, has partitions or none were assigned, and has responded lately.
    pub delivers: bool,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that were lost, and attempts that failed.
    pub failures: u64,
    /// The last failure.
    pub last_failure: Option<LastFailure>,
    /// Records that were read.
    pub records: u64,
    /// Publications that channels have taken.
    pub published: u64,
    /// Publications that channels had before.
    pub repeated: u64,
    /// Records that were not published, by [`DeadReason::ALL`].
    pub dead: [u64; DeadReason::ALL.len()],
    /// Dead letters that wait for their destination.
    pub letters_waiting: u64,
    /// Attempts to deliver a dead letter that failed.
    pub letter_failures: u64,
    /// Dead letters wait, and the last attempt to deliver one failed.
    pub letters_fail: bool,
    /// Commits, or acknowledgements, that the broker confirmed.
    pub commits: u64,
    /// Times at which records were, or may have been, missed.
    pub gaps: u64,
    /// Partitions that are read.
    pub partitions: u64,
    /// Partitions that are not read, because their workers are full.
    pub paused: u64,
    /// Records that are in flight.
    pub in_flight: u64,
    /// Records in the broker that were not read yet. `None`: unknown.
    pub lag: Option<u64>,
    /// The age of the record that was read last, when it was read. `None`: unknown.
    pub lag_time: Option<Duration>,
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Status {
    connected: AtomicBool,
    /// The instant until which the source counts as delivering, in microseconds of the monotonic clock.
    delivers_until: AtomicU64,
    connects: AtomicU64,
    /// Set at the first connection.
    reached: SetOnce<()>,
    failures: AtomicU64,
    last_failure: FailureRecord,
    /// A failure has followed the last connection.
    is_failing: AtomicBool,
    records: AtomicU64,
    published: AtomicU64,
    repeated: AtomicU64,
    dead: [AtomicU64; DeadReason::ALL.len()],
    letters_waiting: AtomicU64,
    letter_failures: AtomicU64,
    letters_fail: AtomicBool,
    commits: AtomicU64,
    gaps: AtomicU64,
    partitions: AtomicU64,
    paused: AtomicU64,
    in_flight: AtomicU64,
    /// One more than the lag; zero: unknown.
    lag: AtomicU64,
    lag_micros: AtomicU64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Adds without a locked instruction: the source's task alone writes.
fn add(counter: &AtomicU64, more: u64) -> u64 {
    let sum = counter.load(Ordering::Relaxed) + more;
    counter.store(sum, Ordering::Relaxed);
    sum
}

impl Status {
    pub(crate) fn connected(&self) {
        add(&self.connects, 1);
        self.connected.store(true, Ordering::Relaxed);
        self.is_failing.store(false, Ordering::Relaxed);
        // It may be set already.
        let _ = self.reached.set(());
    }

    /// Waits for the first connection to the broker.
    pub(crate) async fn reached(&self) {
        self.reached.wait().await;
    }

    pub(crate) fn disconnected(&self) {
        self.set_delivers(false);
        self.set_partitions(0, 0, 0);
        self.set_lag(None);
        // Last: a report of a lost connection has the others, too.
        self.connected.store(false, Ordering::Release);
    }

    /// Sets whether the source delivers, until that changes.
    pub(crate) fn set_delivers(&self, delivers: bool) {
        let until = if delivers { u64::MAX } else { 0 };
        self.delivers_until.store(until, Ordering::Relaxed);
    }

    /// Notes that the broker responded, so long ago: the source delivers for [`SILENT_AFTER`](crate::limits::SILENT_AFTER) from then on, also
    /// if its task is blocked in a call of the broker's client.
    #[cfg(any(feature = "kafka", feature = "jetstream", feature = "postgres"))]
    pub(crate) fn responded(&self, ago: Duration) {
        let until = (clock::monotonic() + crate::limits::SILENT_AFTER).saturating_sub(ago);
        self.delivers_until.store(micros(until), Ordering::Relaxed);
    }

    /// Connections that were made.
    pub(crate) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Counts a lost connection, or an attempt that failed.
    pub(crate) fn failed(&self, reason: &str) {
        add(&self.failures, 1);
        let has_failed_before = self.is_failing.swap(true, Ordering::Relaxed);
        self.last_failure
            .record(reason, has_failed_before, clock::realtime());
    }

    pub(crate) fn read(&self, records: u64) {
        add(&self.records, records);
    }

    pub(crate) fn published(&self, publications: u64) {
        add(&self.published, publications);
    }

    pub(crate) fn repeated(&self, publications: u64) {
        add(&self.repeated, publications);
    }

    /// Counts a dead letter. Returns how many there are of this reason.
    pub(crate) fn dead(&self, reason: DeadReason) -> u64 {
        add(&self.dead[reason as usize], 1)
    }

    pub(crate) fn set_letters_waiting(&self, letters: u64) {
        self.letters_waiting.store(letters, Ordering::Relaxed);
    }

    /// Counts an attempt to deliver a dead letter that failed.
    pub(crate) fn letter_failed(&self) {
        add(&self.letter_failures, 1);
        self.set_letters_fail(true);
    }

    pub(crate) fn set_letters_fail(&self, fail: bool) {
        self.letters_fail.store(fail, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self) {
        add(&self.commits, 1);
    }

    pub(crate) fn gap(&self) {
        add(&self.gaps, 1);
    }

    pub(crate) fn set_partitions(&self, partitions: usize, paused: usize, in_flight: u64) {
        self.partitions.store(partitions as u64, Ordering::Relaxed);
        self.paused.store(paused as u64, Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Relaxed);
    }

    pub(crate) fn set_lag(&self, lag: Option<u64>) {
        let stored = lag.map_or(0, |lag| lag.saturating_add(1));
        self.lag.store(stored, Ordering::Relaxed);
    }

    /// Notes the age of a record that was read, by the broker's time stamp.
    pub(crate) fn set_age(&self, age: Duration) {
        self.lag_micros.store(micros(age).max(1), Ordering::Relaxed);
    }

    pub(crate) fn report(&self, name: &Arc<str>, kind: &'static str) -> Report {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            name: Arc::clone(name),
            kind,
            // First; see `disconnected`.
            connected: self.connected.load(Ordering::Acquire),
            delivers: of(&self.delivers_until) > micros(clock::monotonic()),
            connects: of(&self.connects),
            failures: of(&self.failures),
            last_failure: self.last_failure.last(),
            records: of(&self.records),
            published: of(&self.published),
            repeated: of(&self.repeated),
            dead: std::array::from_fn(|index| of(&self.dead[index])),
            letters_waiting: of(&self.letters_waiting),
            letter_failures: of(&self.letter_failures),
            letters_fail: self.letters_fail.load(Ordering::Relaxed),
            commits: of(&self.commits),
            gaps: of(&self.gaps),
            partitions: of(&self.partitions),
            paused: of(&self.paused),
            in_flight: of(&self.in_flight),
            lag: of(&self.lag).checked_sub(1),
            lag_time: Some(of(&self.lag_micros))
                .filter(|micros| *micros > 0)
                .map(Duration::from_micros),
        }
    }
}

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Status;
    use crate::limits::SILENT_AFTER;

    #[test]
    fn a_broker_that_is_silent_does_not_deliver() {
        let status = Status::default();
        let delivers = || status.report(&Arc::from("s"), "kafka").delivers;
        assert!(!delivers());
        status.responded(SILENT_AFTER / 2);
        assert!(delivers());
        // The task of the source may be blocked: nothing else has to happen.
        status.responded(SILENT_AFTER + Duration::from_millis(1));
        assert!(!delivers());
        status.set_delivers(true);
        assert!(delivers());
        status.disconnected();
        assert!(!delivers());
    }
}
