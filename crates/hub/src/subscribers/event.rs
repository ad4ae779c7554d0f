//! Notifications about connections, and replies to requests.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::history::StreamPosition;
use crate::mail::QueryResult;
use crate::protocol::{Disconnect, Fault, Published, Unsubscribed};

/// The ID of a connection. It is not reused once the connection is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(super) index: u32,
    /// Not 0, so that an optional ID takes no more memory.
    pub(super) generation: NonZeroU32,
}

const _: () = assert!(size_of::<Option<ConnId>>() == 8, "each client has one");

impl ConnId {
    /// Returns the index of the connection at its worker. Another connection may reuse it later.
    #[must_use]
    pub fn slot(self) -> usize {
        self.index as usize
    }
}

/// A reply to a program.
#[derive(Debug)]
pub enum ProgramReply {
    /// The publication was accepted: see [`ShardEvent::Published`](crate::mail::ShardEvent::Published).
    Published(Option<StreamPosition>),
    /// The result of a query, or the reason why a publication was rejected.
    QueryResult(Box<QueryResult>),
}

/// A notification of a connection.
#[derive(Debug)]
pub enum SubscriberEvent {
    /// The connection is subscribed.
    Subscribed {
        /// The connection.
        conn: ConnId,
        /// The channel.
        channel: Arc<str>,
        /// The position of the channel; see [`ShardSubscribed::position`](crate::mail::ShardSubscribed::position).
        position: Option<StreamPosition>,
        /// The missed publications; see [`ShardSubscribed::missed`](crate::mail::ShardSubscribed::missed).
        missed: Option<Vec<(u64, Arc<Published>)>>,
    },
    /// The subscription was rejected.
    Rejected {
        /// The connection.
        conn: ConnId,
        /// The channel.
        channel: Arc<str>,
        /// The fault.
        fault: Fault,
    },
    /// The subscription was ended.
    Unsubscribed {
        /// The connection.
        conn: ConnId,
        /// The channel.
        channel: Arc<str>,
        /// The reason.
        reason: Unsubscribed,
    },
    /// The publication was accepted.
    Published {
        /// The connection.
        conn: ConnId,
        /// The number of the request.
        number: u32,
        /// See [`ShardEvent::Published`](crate::mail::ShardEvent::Published).
        position: Option<StreamPosition>,
    },
    /// The result of a query, or the reason why a publication was rejected.
    QueryResult {
        /// The connection.
        conn: ConnId,
        /// The number of the request.
        number: u32,
        /// The result.
        result: Box<QueryResult>,
    },
    /// The connection was removed with its queue, and the owner must disconnect the client.
    Disconnected {
        /// The connection.
        conn: ConnId,
        /// The reason.
        reason: Disconnect,
    },
}
