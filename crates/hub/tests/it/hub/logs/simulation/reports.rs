//! Reports of nodes to the checks.

use ringmain_hub::history::Epoch;
use ringmain_hub::subscribers::Event;

/// The part of a log that a home has processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) position: u64,
    pub(super) live: u64,
    /// A predecessor has read it, and no reader has begun here.
    pub(super) is_restored: bool,
}

/// Records that a home cannot publish, and has reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) epoch: Epoch,
    pub(super) log: usize,
    /// The records above the first offset up to the second are missing. `None`: the life has ended.
    pub(super) missing: Option<(u64, u64)>,
}

/// A record that a home has published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processed {
    pub(super) clock: u64,
    pub(super) epoch: Epoch,
    pub(super) id: u64,
    /// It was not published before this process.
    pub(super) is_live: bool,
}

/// The messages to a connection.
#[derive(Debug)]
pub(super) enum Received {
    Event(Event),
    Push { channel: String, offset: u64, id: u64 },
}

/// Returns whether a subscription has to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Behind,
    ProgramReply,
    Either,
}
