//! A request's connection to an endpoint: a whole connection, or a stream of a shared one, behind one interface.

use std::time::Duration;

use super::PooledConnection;
use crate::upstream::h2::H2Stream;

/// A request's connection to an endpoint.
#[derive(Debug)]
pub(crate) enum UpstreamConn {
    /// A whole connection.
    Http1(PooledConnection),
    /// A stream of a shared connection.
    H2(H2Stream),
}

impl UpstreamConn {
    /// Returns the number of requests on the connection before this one.
    pub(crate) fn requests_before(&self) -> u32 {
        match self {
            UpstreamConn::Http1(pooled) => pooled.requests,
            UpstreamConn::H2(channel) => channel.requests_before(),
        }
    }

    /// Returns the bytes that were handed to the kernel; for a stream, those that its connection has accepted.
    pub(crate) fn bytes_sent(&self) -> u64 {
        match self {
            UpstreamConn::Http1(pooled) => pooled.stream.sent(),
            UpstreamConn::H2(channel) => channel.bytes_sent(),
        }
    }

    /// Updates [`UpstreamConn::bytes_sent`].
    pub(crate) fn update_bytes_sent(&self) {
        match self {
            UpstreamConn::Http1(pooled) if pooled.stream.unsent() > 0 => pooled.stream.count_sent(),
            UpstreamConn::Http1(_) | UpstreamConn::H2(_) => {}
        }
    }

    /// Handles a timeout of the endpoint: a shared connection is checked by a PING.
    pub(crate) fn check_connection(&self) {
        match self {
            UpstreamConn::Http1(_) => {}
            UpstreamConn::H2(channel) => channel.check_connection(),
        }
    }

    /// Drops the connection without sending the rest of its request: a whole connection is closed, a stream of a shared one is reset.
    pub(crate) fn discard(self) {
        match self {
            UpstreamConn::Http1(pooled) => pooled.stream.discard(),
            UpstreamConn::H2(channel) => drop(channel),
        }
    }

    /// Sets the deadline of the next wait; `None`: no deadline.
    pub(crate) fn set_deadline(&self, span: Option<Duration>) {
        match self {
            UpstreamConn::Http1(pooled) => pooled.stream.set_deadline(span),
            UpstreamConn::H2(channel) => channel.set_deadline(span),
        }
    }
}
