//! A body that arrives in parts, over either protocol: its progress and its queue.
//!
//! Knows nothing of the code that reads it.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{BodyDecoder, FieldBlock};

use crate::http::error::Error;
use crate::limits;

/// The progress of a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyProgress {
    Http1(BodyDecoder),
    Http2 {
        received: u64,
        /// The limit in bytes.
        most: Option<u64>,
        ended: bool,
    },
}

impl BodyProgress {
    pub(super) fn is_complete(&self) -> bool {
        match self {
            BodyProgress::Http1(decoder) => decoder.is_over(),
            BodyProgress::Http2 { ended, .. } => *ended,
        }
    }

    /// Returns the bytes received so far.
    pub(super) fn consumed(&self) -> u64 {
        match self {
            BodyProgress::Http1(decoder) => decoder.consumed(),
            BodyProgress::Http2 { received, .. } => *received,
        }
    }
}

/// The progress of a streamed body, for the check of its rate.
pub(crate) struct ReceiveProgress {
    /// Framed bytes received so far.
    pub(crate) bytes: u64,
    /// The handler has paused the body: the measurement restarts.
    pub(crate) restart: bool,
    /// Time since the last check in which the handler did not wait.
    pub(crate) handler_time: Duration,
    /// Minimum rate in bytes per second; `None`: the application's.
    pub(crate) minimum_rate: Option<u32>,
}

/// A request body in transit to a streaming handler.
#[derive(Default)]
pub(super) struct BodyQueue {
    pub(super) progress: Option<BodyProgress>,
    pub(super) queue: Vec<u8>,
    /// Trailers of the body.
    pub(super) trailers: FieldBlock,
    /// The reason why the body ended early.
    pub(super) fault: Option<Error>,
    /// The client waits for `100 Continue`.
    pub(super) expects_continue: bool,
    /// The client has received it, so that its body is in flight.
    pub(super) continue_sent: bool,
    pub(super) paused: bool,
    /// The handler has paused the body since the last check of the rate.
    pub(super) was_paused: bool,
    /// The handler waits, and the rate is checked each tick.
    pub(super) has_rate_deadline: bool,
    /// The time at which the handler took the last chunk, or its request began; `None` while it waits for one.
    pub(super) taken_at: Option<Time>,
    /// Time in which the handler did not wait, since the last check of the rate.
    pub(super) handler_time: Duration,
    /// After 101: the bytes are not a body.
    pub(super) tunnel: bool,
    /// Exempt from the minimum rate: the sender is silent at times.
    pub(super) rate_exempt: bool,
    /// Minimum rate of body and response in bytes per second, if the handler has set one.
    pub(super) minimum_rate: Option<u32>,
    /// The client has sent its last byte of a tunnel.
    pub(super) client_ended: bool,
    /// The tunnel's sending side is shut down; the client may still send.
    pub(super) half_closed: bool,
    /// An incomplete chunk size line or trailer section in a body without a minimum rate: its offset in the body, and its deadline.
    pub(super) partial_line: Option<(u64, Time)>,
}

impl BodyQueue {
    /// Returns the deadline of an incomplete chunk size line or trailer section: `span` after its first byte. `None`: there is
    /// none, or the minimum rate of the body bounds it. A live stream may send data as slowly as it likes; a sender has no reason
    /// to split framing.
    pub(super) fn line_deadline(&mut self, now: Time, span: Duration) -> Option<Time> {
        let started_at = match &self.progress {
            Some(BodyProgress::Http1(decoder))
                if self.rate_exempt && !self.paused && self.fault.is_none() =>
            {
                decoder.unfinished_line()
            }
            _ => None,
        };
        self.partial_line = started_at.map(|started_at| match self.partial_line {
            // Setting it again at each byte would postpone it.
            Some((last_start, due)) if last_start == started_at => (last_start, due),
            _ => (started_at, now.after(span)),
        });
        self.partial_line.map(|(_, due)| due)
    }

    /// Queues bytes of a tunnel, up to the limit.
    pub(super) fn feed_tunnel(&mut self, conn: Conn<'_>, input: &[u8]) -> usize {
        let room = limits::BODY_QUEUE_BYTES.saturating_sub(self.queue.len());
        let taken = input.len().min(room);
        self.queue.extend_from_slice(&input[..taken]);
        if taken < input.len() {
            self.paused = true;
            conn.pause();
        }
        taken
    }
}
