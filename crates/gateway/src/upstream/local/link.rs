//! What a request has of an endpoint: a whole connection, or a stream of one that others use too, alike for whoever moves bytes.

use std::time::Duration;

use super::Sole;
use crate::upstream::h2::Channel;

/// What a request has of an endpoint.
#[derive(Debug)]
pub(crate) enum Link {
    /// A whole connection.
    Sole(Sole),
    /// A stream of one that others use too.
    Shared(Channel),
}

impl Link {
    /// Requests before this one by the same connection.
    pub(crate) fn requests(&self) -> u32 {
        match self {
            Link::Sole(sole) => sole.requests,
            Link::Shared(channel) => channel.requests(),
        }
    }

    /// Bytes that the endpoint has taken of what was written: for a stream, that its connection has.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Link::Sole(sole) => sole.stream.sent(),
            Link::Shared(channel) => channel.sent(),
        }
    }

    /// Brings [`Link::sent`] up to date.
    pub(crate) fn count_sent(&self) {
        match self {
            Link::Sole(sole) if sole.stream.unsent() > 0 => sole.stream.count_sent(),
            Link::Sole(_) | Link::Shared(_) => {}
        }
    }

    /// A time has passed in which the endpoint was to do something: a connection that others share is asked for a sign of life.
    pub(crate) fn suspect(&self) {
        match self {
            Link::Sole(_) => {}
            Link::Shared(channel) => channel.suspect(),
        }
    }

    /// Gives it up without sending what is left of its request: a whole connection is closed, a stream of a shared one is reset.
    pub(crate) fn discard(self) {
        match self {
            Link::Sole(sole) => sole.stream.discard(),
            Link::Shared(channel) => drop(channel),
        }
    }

    /// When what is waited for must be there; `None`: at any time.
    pub(crate) fn set_deadline(&self, span: Option<Duration>) {
        match self {
            Link::Sole(sole) => sole.stream.set_deadline(span),
            Link::Shared(channel) => channel.set_deadline(span),
        }
    }
}
