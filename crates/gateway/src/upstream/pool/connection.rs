//! A request's connection to an endpoint: a whole connection, or a stream of a shared one, behind one interface.

use std::time::Duration;

use super::Sole;
use crate::upstream::h2::Channel;

/// A request's connection to an endpoint.
#[derive(Debug)]
pub(crate) enum Link {
    /// A whole connection.
    Sole(Sole),
    /// A stream of a shared connection.
    Shared(Channel),
}

impl Link {
    /// Returns the number of requests on the connection before this one.
    pub(crate) fn requests(&self) -> u32 {
        match self {
            Link::Sole(sole) => sole.requests,
            Link::Shared(channel) => channel.requests(),
        }
    }

    /// Returns the bytes that were handed to the kernel; for a stream, those that its connection has accepted.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Link::Sole(sole) => sole.stream.sent(),
            Link::Shared(channel) => channel.sent(),
        }
    }

    /// Updates [`Link::sent`].
    pub(crate) fn count_sent(&self) {
        match self {
            Link::Sole(sole) if sole.stream.unsent() > 0 => sole.stream.count_sent(),
            Link::Sole(_) | Link::Shared(_) => {}
        }
    }

    /// Handles a timeout of the endpoint: a shared connection is checked by a PING.
    pub(crate) fn suspect(&self) {
        match self {
            Link::Sole(_) => {}
            Link::Shared(channel) => channel.suspect(),
        }
    }

    /// Drops the connection without sending the rest of its request: a whole connection is closed, a stream of a shared one is reset.
    pub(crate) fn discard(self) {
        match self {
            Link::Sole(sole) => sole.stream.discard(),
            Link::Shared(channel) => drop(channel),
        }
    }

    /// Sets the deadline of the next wait; `None`: no deadline.
    pub(crate) fn set_deadline(&self, span: Option<Duration>) {
        match self {
            Link::Sole(sole) => sole.stream.set_deadline(span),
            Link::Shared(channel) => channel.set_deadline(span),
        }
    }
}
