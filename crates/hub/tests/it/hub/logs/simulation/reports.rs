//! The reports of nodes, which the checks use.

use ringmain_hub::history::Epoch;
use ringmain_hub::subscribers::SubscriberEvent;

/// The part of a log that a shard has processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) position: u64,
    pub(super) live: u64,
    /// True if only a predecessor has read the log.
    pub(super) is_restored: bool,
}

/// Records that a shard cannot publish and has reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordGap {
    pub(super) epoch: Epoch,
    pub(super) log: usize,
    /// The missing records: above the first offset, up to the second. `None`: the epoch has ended.
    pub(super) missing: Option<(u64, u64)>,
}

/// A record that a shard has published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processed {
    pub(super) clock: u64,
    pub(super) epoch: Epoch,
    pub(super) id: u64,
    /// True if it was published first by this process.
    pub(super) is_live: bool,
}

/// The messages to a connection.
#[derive(Debug)]
pub(super) enum Received {
    Event(SubscriberEvent),
    Push { channel: String, offset: u64, id: u64 },
}

/// The expected outcome of a subscription: rejected for a retry, or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Behind,
    Reply,
    Either,
}

/// Returns the identifier of a record, which is its data.
pub(super) fn record_id(data: &[u8]) -> u64 {
    let text = std::str::from_utf8(data).expect("a number");
    text.parse().expect("a number")
}
