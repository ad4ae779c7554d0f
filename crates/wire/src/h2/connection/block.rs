//! Header blocks in: put together from their frames, decoded, and taken for what they are on their stream.

use std::time::Duration;

use super::receive::{Came, Taken, is_own, unpadded};
use super::{Block, Connection, Role};
use crate::h1::{Framing, Method};
use crate::h2::fault::FaultKind;
use crate::h2::frame::{self, Header};
use crate::h2::head::{HeadBuffer, Owner};
use crate::h2::streams::{Record, Side, Stream, UNKNOWN};

impl Connection {
    // RFC 9113 §6.2.
    pub(super) fn headers(
        &mut self,
        header: Header,
        payload: &[u8],
        heads: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Taken {
        let id = header.stream;
        if id == 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        let (from, to) = unpadded(header, payload)?;
        let mut fragment = &payload[from..to];
        let mut self_dependent = false;
        if header.has(frame::WITH_PRIORITY) {
            self_dependent = is_own(fragment, id);
            fragment = fragment.get(5..).ok_or(FaultKind::FrameSize.of_connection())?;
        }
        let end = header.has(frame::END_STREAM);
        if header.has(frame::END_HEADERS) {
            return self.block(id, end, self_dependent, fragment, heads, out);
        }
        self.block = Some(Box::new(Block {
            stream: id,
            end,
            self_dependent,
            bytes: fragment.to_vec(),
            continuations: 0,
        }));
        Ok(Came::Nothing)
    }

    // RFC 9113 §6.10.
    pub(super) fn continuation(
        &mut self,
        header: Header,
        payload: &[u8],
        heads: &mut HeadBuffer,
        out: &mut Vec<u8>,
        now: Duration,
    ) -> Taken {
        if payload.is_empty() && !header.has(frame::END_HEADERS) {
            self.charge_empty(now)?;
        }
        let limits = self.limits;
        let Some(block) = self.block.as_mut().filter(|block| block.stream == header.stream) else {
            return Err(FaultKind::Continuation.of_connection());
        };
        block.continuations += 1;
        let length = block.bytes.len() + payload.len();
        if block.continuations > limits.continuations || length > limits.head_bytes as usize {
            return Err(FaultKind::BlockTooLarge.of_connection());
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(frame::END_HEADERS) {
            return Ok(Came::Nothing);
        }
        match self.block.take() {
            Some(block) => self.block(
                block.stream,
                block.end,
                block.self_dependent,
                &block.bytes,
                heads,
                out,
            ),
            None => Ok(Came::Nothing),
        }
    }

    /// A whole block.
    fn block(
        &mut self,
        id: u32,
        end: bool,
        self_dependent: bool,
        bytes: &[u8],
        heads: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Taken {
        // Whatever becomes of it: the next block builds on it.
        let owner = Owner {
            number: &mut self.owner,
            decoder: &mut self.decoder,
        };
        heads
            .decode(bytes, owner, &self.limits)
            .map_err(FaultKind::of_connection)?;
        if let Some(stream) = self.streams.find(id) {
            if self_dependent {
                return Err(FaultKind::SelfDependency.of_stream(id));
            }
            return self.block_on(stream, end, heads, out);
        }
        if self.role == Role::Client {
            return self.late_block(id);
        }
        if !self.is_peers(id) {
            return Err(FaultKind::StreamNumber.of_connection());
        }
        if id <= self.last {
            return self.late_block(id);
        }
        if self.is_ignored(id) {
            return Ok(Came::Nothing);
        }
        self.last = id;
        if self.streams.len() >= self.limits.streams as usize {
            return Err(FaultKind::TooManyStreams.of_stream(id));
        }
        if self_dependent {
            return Err(FaultKind::SelfDependency.of_stream(id));
        }
        self.new_request(id, end, heads)
    }

    /// A block of a stream that is not open.
    fn late_block(&self, id: u32) -> Taken {
        if self.was_reset(id) {
            return Ok(Came::Nothing);
        }
        if self.is_unused(id) {
            return Err(FaultKind::StreamIdle.of_connection());
        }
        // Of the last stream it is known that it was opened, and ended by its opener.
        let kind = if id == self.last {
            FaultKind::StreamClosed
        } else {
            FaultKind::StreamNumber
        };
        Err(kind.of_connection())
    }

    fn new_request(&mut self, id: u32, end: bool, heads: &HeadBuffer) -> Taken {
        self.early.open();
        let mut record = Record::new(id, self.peer.window, self.first_receive());
        record.remote = if end { Side::Ended } else { Side::Open };
        let head = match heads.request(end, &self.limits) {
            Ok(head) => head,
            Err(FaultKind::HeadTooLarge | FaultKind::TooManyFields) => {
                let stream = self.streams.insert(record);
                return Ok(Came::TooLarge { stream, end });
            }
            Err(kind) => return Err(kind.of_stream(id)),
        };
        record.bodiless = head.method == Method::Head;
        if let Framing::Length(length) = head.framing {
            record.expected = length;
        }
        let stream = self.streams.insert(record);
        Ok(Came::Request { stream, end })
    }

    /// A block of an open stream: an answer, or trailers.
    fn block_on(&mut self, stream: Stream, end: bool, heads: &HeadBuffer, out: &mut Vec<u8>) -> Taken {
        let id = stream.id;
        let Some(record) = self.streams.get_mut(stream) else {
            return Ok(Came::Nothing);
        };
        match record.remote {
            Side::Ended => return Err(FaultKind::StreamClosed.of_stream(id)),
            Side::Open => {
                if !end {
                    return Err(FaultKind::Trailers.of_stream(id));
                }
                if record.expected != UNKNOWN && record.expected > 0 {
                    return Err(FaultKind::ContentLengthSum.of_stream(id));
                }
                heads.trailers().map_err(|kind| kind.of_stream(id))?;
                self.end_remote(stream, out);
                return Ok(Came::Trailers(stream));
            }
            Side::Idle => {}
        }
        let bodiless = record.bodiless;
        let head = heads.response(end, bodiless).map_err(|kind| kind.of_stream(id))?;
        if head.status < 200 {
            if end {
                return Err(FaultKind::InterimEnd.of_stream(id));
            }
            return Ok(Came::Response {
                stream,
                end,
                bodiless,
            });
        }
        record.remote = Side::Open;
        match head.framing {
            Framing::Length(length) => record.expected = length,
            Framing::None => record.expected = 0,
            Framing::Chunked | Framing::UntilClose => {}
        }
        if end {
            self.end_remote(stream, out);
        }
        Ok(Came::Response {
            stream,
            end,
            bodiless,
        })
    }
}
