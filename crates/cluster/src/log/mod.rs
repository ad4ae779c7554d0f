//! The log behind the channels of a cluster: the messages between a node and the adapter of a broker.
//!
//! ```text
//! node ─ LogRequest: Append, Follow, Unfollow, Tail ─▶ adapter ─ broker
//!      ◀─ LogEvent: Appended, Opened, Records, Older, Trimmed, Closed, Health ─
//! ```
//!
//! A channel belongs to a *partition* of the log ([`partition_of`]). The offset of a publication is its *number* in the partition, and the
//! epoch is the [`Life`] of the partition: a sequence of numbers that no broker has taken back. All nodes that read a partition derive the
//! same offsets and epochs from it.
//!
//! # Lives
//!
//! Each life begins with an entry of the log itself ([`LifeEntry`]), so that all readers agree. Nodes append one where
//! - the partition is new,
//! - [`Opened::binding`] is not the one of the current life: the broker is another server than the one that acknowledged before,
//! - a record that was read is gone or is another one: the broker has returned with an older state.
//!
//! The adapter decides none of this. It reports the records of the broker.
//!
//! # Duties of an adapter
//!
//! - *Numbers* are above 0, at most [`NUMBER_MAX`], and increase within a partition. They may have holes.
//! - *Append* keeps the order of the requests of a partition. It reports [`Appended`](LogEvent::Appended) once for each request, within
//!   [`LOG_APPEND_TIMEOUT`](crate::limits::LOG_APPEND_TIMEOUT): [`Refused`](AppendOutcome::Refused) only if the entry is not and will not
//!   be in the log, and [`Unknown`](AppendOutcome::Unknown) where that is not certain. It never appends an entry twice, except where the
//!   broker recognizes the repetition.
//! - *Follow* reports [`Opened`](LogEvent::Opened) first, as soon as the broker can be reached, and then all records from the requested
//!   one on, in order, each once. Its number is *included*: the node compares the record with the one that it has read before.
//!   Entries of other nodes may wait for the next append of this node where it appends to the partition, and otherwise for two seconds after
//!   its last one: the broker then reports them together with that append.
//! - *An interruption* of a partition is reported as [`Closed`](LogEvent::Closed): the loss of the connection, another server, an error. The
//!   adapter then reports nothing about the partition until the node follows it again. While a partition is open its binding is constant.
//! - *Records that were deleted* before they could be read, because the retention has passed, are reported as
//!   [`Trimmed`](LogEvent::Trimmed). Deleted by compaction is no gap.
//! - *A full queue* refuses appends, and stops reading the broker; it drops nothing.
//!
//! Pure types without sockets and clocks. Must not know brokers.

mod entry;
#[cfg(feature = "ports")]
mod port;
pub(crate) mod reader;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::Epoch;

use crate::member::hash;
pub use entry::{Beat, Entry, EntryError, EntryId, LifeEntry};
#[cfg(feature = "ports")]
pub use port::{LogPort, NodePort, ports};

/// The largest number of a record: JavaScript clients represent larger ones inexactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The number of a partition, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition(pub u16);

/// A life of a partition: random, so that equal lives denote the same sequence of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Life(pub u64);

impl Life {
    /// Returns the epoch of the channels in this life.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        Epoch::new(self.0)
    }
}

/// The identity of the broker's state that acknowledged records: for Redis its run ID, for JetStream the name and creation time of the
/// stream, for Kafka the ID of the topic. An adapter hashes it. A constant if the broker is configured to lose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding(pub u64);

/// Returns the partition of a channel in a log with this number of partitions.
#[must_use]
pub fn partition_of(channel: &str, partitions: u16) -> Partition {
    Partition((hash(channel) % u64::from(partitions.max(1))) as u16)
}

/// A record of a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number in the partition.
    pub number: u64,
    /// The time at which the broker, or else the writer, has appended it, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// A hash of its bytes, to recognize it.
    pub digest: u64,
    /// Its entry. An error if it is not one of this program's versions: it is counted and left out.
    pub entry: Result<Entry, EntryError>,
}

impl Record {
    /// Reads a record.
    #[must_use]
    pub fn read(number: u64, time_ms: i64, bytes: &[u8]) -> Record {
        Record {
            number,
            time_ms,
            digest: digest(bytes),
            entry: Entry::decode(bytes),
        }
    }

    /// Returns the record of an entry that this node has appended.
    #[must_use]
    pub fn own(number: u64, time_ms: i64, append: &Append) -> Record {
        Record {
            number,
            time_ms,
            digest: digest(&append.entry),
            entry: Ok(Entry::clone(&append.decoded)),
        }
    }

    /// Returns its approximate size in memory, in bytes.
    #[must_use]
    pub fn cost(&self) -> usize {
        let data = match &self.entry {
            Ok(Entry::Publication { publish, .. }) => publish.published.data.len() + publish.channel.len(),
            _ => 0,
        };
        data + crate::limits::PUBLICATION_OVERHEAD as usize
    }
}

/// Recognizes a record in this process, and need not be secret: FNV-1a of eight bytes at a time.
fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words
        .iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64, |hash, word| {
            step(hash, u64::from_le_bytes(*word))
        });
    rest.iter().fold(hash, |hash, byte| step(hash, u64::from(*byte)))
}

/// A request of the node.
#[derive(Clone, Debug, PartialEq)]
pub enum LogRequest {
    /// Appends an entry. The outcome is [`LogEvent::Appended`].
    Append(Append),
    /// Reads a partition, which is closed. Replies with [`LogEvent::Opened`] and records, until [`Closed`](LogEvent::Closed) or
    /// [`Unfollow`](LogRequest::Unfollow).
    Follow {
        /// The partition.
        partition: Partition,
        /// The first record.
        from: FollowFrom,
    },
    /// Reads a partition no more. No event follows, except those that are in the queue.
    Unfollow {
        /// The partition.
        partition: Partition,
    },
    /// Reads a part of the partition that is directly below a number. The reply is one [`LogEvent::Older`], or
    /// [`Closed`](LogEvent::Closed). The node has at most one such request for a partition, and only while it is open.
    Tail {
        /// The partition.
        partition: Partition,
        /// The number above the part.
        before: u64,
        /// The bytes to read, approximately; at most [`LOG_TAIL_BYTES`](crate::limits::LOG_TAIL_BYTES).
        bytes: usize,
    },
}

/// An entry to append.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Identifies the request.
    pub id: u64,
    /// The partition.
    pub partition: Partition,
    /// The encoded entry.
    pub entry: Bytes,
    /// The entry, for adapters that report its record without reading it.
    pub decoded: Box<Entry>,
    /// The identity of the publication, if it has one.
    pub key: Option<AppendKey>,
}

/// The identity of a publication. A broker that can appends only the first one of a key within the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendKey {
    /// The channel.
    pub channel: Arc<str>,
    /// The idempotency key within the channel and its life.
    pub key: Box<str>,
    /// The time for which the key is remembered.
    pub window: Duration,
}

/// The first record to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowFrom {
    /// The record with this number, or the first one above it.
    Number(u64),
    /// The first record that was appended within this time. If there is none, the next record.
    Recent(Duration),
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The broker has acknowledged the entry, under this number.
    Appended(u64),
    /// The broker has had the key under this number, and has appended nothing.
    Repeated(u64),
    /// The entry is not in the log, and will not be.
    Refused,
    /// The entry may be in the log, or may yet arrive there.
    Unknown,
}

/// An event of the adapter.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// The outcome of an append.
    Appended {
        /// The request.
        id: u64,
        /// The outcome.
        outcome: AppendOutcome,
    },
    /// A partition is read.
    Opened(Opened),
    /// The next records of an open partition, in order.
    Records {
        /// The partition.
        partition: Partition,
        /// The records; at most [`LOG_BATCH_RECORDS`](crate::limits::LOG_BATCH_RECORDS).
        records: Vec<Record>,
        /// The current time of the broker, or else of this node, in milliseconds since the Unix epoch: [`Record::time_ms`] below it is an
        /// age.
        now_ms: i64,
    },
    /// The reply to [`LogRequest::Tail`]: all records from `from` up to the requested number.
    Older {
        /// The partition.
        partition: Partition,
        /// The number from which on the records are complete.
        from: u64,
        /// The records, in order.
        records: Vec<Record>,
        /// True if the log has no records below `from`.
        is_first: bool,
        /// See [`LogEvent::Records::now_ms`].
        now_ms: i64,
    },
    /// Records of an open partition were deleted before they could be read.
    Trimmed {
        /// The partition.
        partition: Partition,
        /// The number of the first record that may follow.
        first: u64,
    },
    /// A partition is read no more, or could not be opened for a reason that does not pass by waiting.
    Closed {
        /// The partition.
        partition: Partition,
    },
    /// The state of the adapter has changed.
    Health(Health),
}

/// The state of a partition when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The partition.
    pub partition: Partition,
    /// See [`Binding`].
    pub binding: Binding,
    /// The number of the oldest record, or of the first one that may follow if the partition is empty.
    pub first: u64,
    /// The number of the newest record that the partition has; the one below `first` if it has none. Records up to this one follow.
    pub end: u64,
    /// The number from which on all records follow: the requested one, or the one above all older records.
    pub from: u64,
}

/// The state of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// True if the broker can be reached, and appends are accepted.
    pub is_connected: bool,
    /// The reason, for logs and the administration, if it is not.
    pub reason: Arc<str>,
}
