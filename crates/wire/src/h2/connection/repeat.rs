//! Heads of requests that are sent again and again, as load generators and probes do: encoded once for as long as the table of
//! fields stays as it is.

use super::{Connection, Life, Role};
use crate::h1::FieldBlock;
use crate::h2::connection::Request;
use crate::h2::frame;
use crate::h2::limits::FRAME_BYTES;
use crate::h2::misuse::Misuse;
use crate::h2::streams::Stream;

/// What a head was encoded to, on one connection. It serves one head there: the same fields each time.
#[derive(Clone, Debug, Default)]
pub struct Repeated {
    /// The header block that was sent last; empty: none, or one that cannot be sent again.
    block: Vec<u8>,
    /// The table's version that it builds on.
    version: u64,
    /// It came out the same twice: what could go into the table has.
    settled: bool,
    end: bool,
    bodiless: bool,
}

impl Repeated {
    /// Of no connection yet, with the memory of the last one.
    pub fn forget(&mut self) {
        self.block.clear();
        self.settled = false;
    }
}

impl Connection {
    /// Sends a request's head, as [`request`](Self::request) does. From the third or fourth time on it is not encoded any more: the
    /// arguments have to be the same as before, and `repeated` has to be of this connection.
    ///
    /// # Errors
    /// As [`request`](Self::request). Nothing was written.
    pub fn request_again(
        &mut self,
        repeated: &mut Repeated,
        request: &Request<'_>,
        fields: &FieldBlock,
        length: Option<u64>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<Stream, Misuse> {
        if repeated.settled && self.encoder.version() == Some(repeated.version) && self.can_open() {
            let flags = if repeated.end { frame::END_STREAM } else { 0 } | frame::END_HEADERS;
            let id = self.next;
            out.extend_from_slice(&frame::header(repeated.block.len(), frame::HEADERS, flags, id));
            out.extend_from_slice(&repeated.block);
            return Ok(self.open_stream(repeated.end, repeated.bodiless));
        }
        let start = out.len();
        let version = self.encoder.version();
        let stream = self.request(request, fields, length, end, out)?;
        let block = &out[start + frame::HEADER..];
        match version {
            // Of one frame, and nothing went into the table.
            Some(version) if block.len() <= FRAME_BYTES && self.encoder.version() == Some(version) => {
                repeated.settled = repeated.version == version && repeated.block == block;
                repeated.version = version;
                repeated.block.clear();
                repeated.block.extend_from_slice(block);
                repeated.end = end;
                repeated.bodiless = self.is_bodiless(stream);
            }
            _ => repeated.forget(),
        }
        Ok(stream)
    }

    fn is_bodiless(&self, stream: Stream) -> bool {
        self.streams.get(stream).is_some_and(|record| record.bodiless)
    }

    /// Streams that the peer lets be open at once; `None`: it has set no limit.
    #[must_use]
    pub fn streams_allowed(&self) -> Option<u32> {
        (self.peer.streams != u32::MAX).then_some(self.peer.streams)
    }

    /// Whether no stream can be opened any more, however many are over: the peer is going away, or all numbers are used up.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.role == Role::Client
            && (self.last_taken.is_some() || self.life != Life::Serving || self.is_out_of_numbers())
    }
}
