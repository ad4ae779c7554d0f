//! A body that comes in pieces, in either protocol: how far it is, and what of it waits. Knows nobody who reads it.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{BodyDecoder, FieldBlock};

use crate::error::Error;
use crate::limits;

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
    /// Bytes a second that the body must bring; `None`: as the application has it.
    pub(crate) rate: Option<u32>,
}

/// A request body on its way to a streaming handler.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) coming: Option<Coming>,
    pub(super) queue: Vec<u8>,
    /// Fields behind the body.
    pub(super) trailers: FieldBlock,
    /// Why there will be no more of it.
    pub(super) fault: Option<Error>,
    /// The client waits for `100 Continue`.
    pub(super) expects: bool,
    /// It has received it, so that its body is on its way.
    pub(super) invited: bool,
    pub(super) paused: bool,
    /// The handler has held it up since the rate was last looked at.
    pub(super) held: bool,
    /// The handler waits, and the rate is looked at each tick.
    pub(super) ticking: bool,
    /// When the handler took the last piece, or its request began; `None` while it waits for one.
    pub(super) taken: Option<Time>,
    /// How long it did not wait, since the rate was last looked at.
    pub(super) away: Duration,
    /// After 101: what comes is not a body.
    pub(super) tunnel: bool,
    /// No rate is asked of it: who sends has nothing to say at times.
    pub(super) patient: bool,
    /// Bytes a second that the body must bring in, and the response be taken at, if the handler has set them.
    pub(super) rate: Option<u32>,
    /// The client has sent its last byte of a tunnel.
    pub(super) ended: bool,
    /// Nothing more is written to a tunnel's client, which may still send.
    pub(super) half: bool,
    /// The chunk's size line or trailer section of a body without a minimum rate that is not whole: where it begins in the body, and
    /// when it must be whole.
    pub(super) line: Option<(u64, Time)>,
}

impl Incoming {
    /// Returns when the chunk's size line or the trailer section that was received in part must be whole: within `span` of its first
    /// byte. `None`: there is none, or the minimum rate of the body bounds it. A live stream may send data
    /// as slowly as it likes; a sender has no reason to split framing.
    pub(super) fn line_due(&mut self, now: Time, span: Duration) -> Option<Time> {
        let begins = match &self.coming {
            Some(Coming::Http1(decoder)) if self.patient && !self.paused && self.fault.is_none() => {
                decoder.unfinished_line()
            }
            _ => None,
        };
        self.line = begins.map(|begins| match self.line {
            // Each byte would put it off, if it were set again.
            Some((same, due)) if same == begins => (same, due),
            _ => (begins, now.after(span)),
        });
        self.line.map(|(_, due)| due)
    }

    /// Takes bytes of a tunnel, as many as may wait.
    pub(super) fn feed_tunnel(&mut self, conn: Conn<'_>, input: &[u8]) -> usize {
        let room = limits::BODY_QUEUE.saturating_sub(self.queue.len());
        let taken = input.len().min(room);
        self.queue.extend_from_slice(&input[..taken]);
        if taken < input.len() {
            self.paused = true;
            conn.pause();
        }
        taken
    }
}
