//! How far a streamed body is that comes, in either protocol. Knows nobody who reads it.

use std::time::Duration;

use ringmain_wire::h1::BodyDecoder;

/// How far a body is that comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming {
    Http1(BodyDecoder),
    Http2 {
        received: u64,
        /// Bytes that it may have.
        most: Option<u64>,
        over: bool,
    },
}

impl Coming {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Coming::Http1(decoder) => decoder.is_over(),
            Coming::Http2 { over, .. } => *over,
        }
    }

    /// Bytes so far.
    pub(super) fn consumed(&self) -> u64 {
        match self {
            Coming::Http1(decoder) => decoder.consumed(),
            Coming::Http2 { received, .. } => *received,
        }
    }
}

/// How a streamed body comes in.
pub(crate) struct Receiving {
    /// Framed bytes so far.
    pub(crate) bytes: u64,
    /// The handler has held it up: the rate is measured anew.
    pub(crate) anew: bool,
    /// Time since the last look in which the handler did not wait.
    pub(crate) away: Duration,
}
