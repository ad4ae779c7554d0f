//! The frames between nodes: a length of four bytes (little endian), a kind, and the fields of the kind.
//!
//! ```text
//! length: u32 │ kind: u8 │ fields          Hello is the first frame in each direction, LogSettings the second
//! ```
//!
//! Each side sends frames of the smaller one of both versions only. Integers are little endian; texts and bytes are preceded by their length (u32). A frame of an unknown kind from a node of a newer version
//! is skipped. Must not know the state of a node.

mod handover;
mod read;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::{Epoch, HistoryOptions, StreamPosition};
use ringmain_hub::mail::{ChannelQuery, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

use crate::limits;
use crate::member::{Member, Status, Uid};
pub use handover::{HandoverHead, HandoverPart};
pub(crate) use read::Fields;
pub use read::FrameDecoder;
pub(crate) use write::write_publish;

/// The version of the frames that this node sends.
pub const VERSION: u16 = 4;

/// The oldest version of another node that this one can work with.
pub const OLDEST_VERSION: u16 = 1;

/// The options of a channel that its owner needs. Nodes send them, so that nodes with different configurations can work together while one
/// is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// The history. `None`: publications have no offsets.
    pub history: Option<HistoryOptions>,
    /// The time for which offsets are retained after the last use.
    pub position_ttl: Duration,
    /// True if the owner knows the members, for queries and pushes.
    pub members: bool,
}

/// A publication for a channel's owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    /// The channel.
    pub channel: Arc<str>,
    /// The options of the channel.
    pub settings: ChannelSettings,
    /// The publication.
    pub published: Arc<Published>,
    /// Unusual options.
    pub options: PublishOptions,
}

/// The outcome of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Published; the position after it, if it has an offset.
    Published(Option<StreamPosition>),
    /// Not published: the node does not own the channel, or has no link to the owner. It may be published again.
    Refused,
    /// Not published: the limit of channels is reached.
    ChannelLimit,
    /// Unknown: the owner has not responded.
    Unknown,
}

/// The answer to a query of a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The selected publications, and the position of the channel.
    History {
        /// The publications with their offsets.
        publications: Vec<(u64, Arc<Published>)>,
        /// The position.
        position: StreamPosition,
    },
    /// The members.
    Presence(Vec<Arc<ClientInfo>>),
    /// The numbers of clients and of distinct users.
    PresenceStats {
        /// Clients.
        clients: u32,
        /// Users.
        users: u32,
    },
    /// The history was cleared.
    HistoryCleared,
    /// The position of the query is of another epoch.
    Unrecoverable,
    /// The options of the channel do not allow the query.
    NotAvailable,
    /// The answer exceeds [`FRAME_BYTES`](limits::FRAME_BYTES).
    TooLarge,
    /// The node does not own the channel, or the owner has not responded.
    Unreachable,
}

/// The state of a channel that an owner sends to a mirror: all publications above `floor`, before those that follow. A mirror of the same
/// epoch whose position is not below the floor has missed nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelState {
    /// The position after the last publication. `None`: publications have no offsets.
    pub position: Option<StreamPosition>,
    /// The offset up to which publications are left out.
    pub floor: u64,
    /// The publications with their offsets, in order.
    pub publications: Vec<(u64, Arc<Published>)>,
}

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The first frame.
    Hello {
        /// The version of the sender's frames.
        version: u16,
        /// The oldest version that the sender can work with.
        oldest: u16,
        /// The sender.
        member: Member,
    },
    /// The sender is alive.
    Beat,
    /// The sender may receive so many more bytes of publications.
    Credit(u64),
    /// A mirror subscribes. The number denotes the channel in this direction of the link.
    Subscribe {
        /// The number.
        number: u32,
        /// The channel.
        channel: Arc<str>,
        /// The options of the channel.
        settings: ChannelSettings,
        /// The position of the mirror.
        position: Option<StreamPosition>,
    },
    /// The sender has subscribed again, after the link was opened, with all mirrors that it has at the receiver.
    Resumed,
    /// A mirror has ended.
    Unsubscribe {
        /// The channel's number.
        number: u32,
        /// The channel.
        channel: Arc<str>,
    },
    /// The reply to a subscription, and later the report of a gap.
    State {
        /// The channel's number.
        number: u32,
        /// The state.
        state: ChannelState,
    },
    /// The sender does not own the channel (any more).
    NotOwner {
        /// The channel's number.
        number: u32,
    },
    /// A publication for a mirror.
    Publication {
        /// The channel's number.
        number: u32,
        /// The offset; 0 for none.
        offset: u64,
        /// The publication.
        published: Arc<Published>,
    },
    /// A publication for the owner.
    Publish {
        /// The request.
        request: u64,
        /// The publication.
        publish: Publish,
    },
    /// The outcome of a publication.
    Published {
        /// The request.
        request: u64,
        /// The outcome.
        outcome: PublishOutcome,
    },
    /// All members of a channel at the sender, in one or several frames.
    Members {
        /// The channel.
        channel: Arc<str>,
        /// The members.
        members: Vec<Arc<ClientInfo>>,
        /// True if another frame follows.
        has_more: bool,
    },
    /// A member that has joined or left at the sender, for the owner.
    Member {
        /// The channel.
        channel: Arc<str>,
        /// The member.
        info: Arc<ClientInfo>,
        /// True if it has joined.
        is_join: bool,
    },
    /// A member that has joined or left at another node, for a mirror.
    Presence {
        /// The channel's number.
        number: u32,
        /// The member.
        info: Arc<ClientInfo>,
        /// True if it has joined.
        is_join: bool,
    },
    /// A query for the owner.
    Query {
        /// The request.
        request: u64,
        /// The channel.
        channel: Arc<str>,
        /// The options of the channel.
        settings: ChannelSettings,
        /// The query.
        query: ChannelQuery,
    },
    /// The answer to a query.
    Answer {
        /// The request.
        request: u64,
        /// The answer.
        answer: Answer,
    },
    /// A request that each node runs.
    Call {
        /// The request.
        request: u64,
        /// Its content, which nodes do not interpret.
        payload: Bytes,
    },
    /// The result of such a request.
    CallResult {
        /// The request.
        request: u64,
        /// The result, which nodes do not interpret.
        payload: Bytes,
    },
    /// The sender owned the channel and has published in this epoch, which has ended.
    Ended {
        /// The channel.
        channel: Arc<str>,
        /// The epoch.
        epoch: Epoch,
    },
    /// The state of the sender: after a link is opened, and when it has changed. Since version 2.
    Status(Status),
    /// All nodes that are linked to the sender. Since version 2.
    Peers(Vec<Uid>),
    /// A part of a channel that the receiver owns from its last part on. Since version 2.
    Handover {
        /// The channel.
        channel: Arc<str>,
        /// The part.
        part: HandoverPart,
        /// True if the channel is complete.
        is_last: bool,
    },
    /// The sender has received all parts of a channel. Since version 2.
    HandoverTaken {
        /// The channel.
        channel: Arc<str>,
    },
    /// The sender has no channels for the receiver any more, as of these states of both. Since version 2.
    HandedOver {
        /// The sender's [`Status::serial`].
        sender: u32,
        /// The receiver's.
        receiver: u32,
    },
    /// The sender needs a channel at once that the receiver may have. Since version 2.
    Wanted {
        /// The channel.
        channel: Arc<str>,
    },
    /// The sender does not have the channel. Since version 2.
    Absent {
        /// The channel.
        channel: Arc<str>,
        /// The node that has taken it from the sender, if it was sent at all.
        passed_to: Option<Uid>,
    },
    /// The channel of a mirror has another owner now. Since version 2.
    Moved {
        /// The channel's number.
        number: u32,
        /// The owner.
        to: Uid,
    },
    /// A publication for the owner that another node has sent to the sender. Since version 2.
    RelayedPublish {
        /// The nodes that have relayed it.
        hops: u8,
        /// The request of the sender.
        request: u64,
        /// The publication.
        publish: Publish,
    },
    /// A query for the owner that another node has sent to the sender. Since version 2.
    RelayedQuery {
        /// The nodes that have relayed it.
        hops: u8,
        /// The request of the sender.
        request: u64,
        /// The channel.
        channel: Arc<str>,
        /// The options of the channel.
        settings: ChannelSettings,
        /// The query.
        query: ChannelQuery,
    },
    /// The sender has read a partition of the log up to a record: the receiver's live mirrors of its channels have missed nothing up to
    /// there. Since version 3.
    Progress {
        /// The partition.
        partition: u16,
        /// The epoch of its channels.
        epoch: Epoch,
        /// The number of the record.
        number: u64,
    },
    /// A digest of the settings of the sender's log, which are equal on all nodes. `None`: it has no log. Directly after the first frame.
    /// Since version 4.
    LogSettings(Option<u64>),
}

/// The reason why bytes are not a frame. The link must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length exceeds [`FRAME_BYTES`](limits::FRAME_BYTES).
    #[error("a frame of {0} bytes exceeds the limit of {max}", max = limits::FRAME_BYTES)]
    TooLong(usize),
    /// The kind is unknown to this version.
    #[error("unknown kind of frame: {0}")]
    UnknownKind(u8),
    /// The fields are incomplete, too long or invalid.
    #[error("invalid fields in a frame of kind {0}")]
    Invalid(u8),
}

impl ChannelState {
    /// Returns the credit that the publications cost, in bytes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.publications
            .iter()
            .map(|(_, published)| cost(published))
            .sum()
    }
}

/// Returns the credit that a publication costs, in bytes.
#[must_use]
pub fn cost(published: &Published) -> u64 {
    published.data.len() as u64 + limits::PUBLICATION_OVERHEAD
}

type Tags = BTreeMap<String, String>;
