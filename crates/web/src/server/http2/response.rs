//! Responses over HTTP/2: the same status, fields and bodies as over HTTP/1, in frames.

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, FieldBlock, Framing, Method};
use ringmain_wire::h2::{ErrorCode, Misuse, Stream};

use super::{H2Session, SessionState, StreamPhase};
use crate::http::error::Error;
use crate::http::reply::{ContentKind, Reply};
use crate::http::request_id::RequestId;
use crate::limits;
use crate::server::preamble::Omitted;
use crate::server::response::{ForwardedResponse, ResponseParts};
use crate::server::worker_context::WorkerContext;

/// The length of a body, as its head declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// No body, and no length.
    None,
    /// This number of bytes.
    Known(u64),
    /// Unknown until the body ends.
    Unknown,
}

impl From<Framing> for Length {
    fn from(framing: Framing) -> Length {
        match framing {
            Framing::None => Length::None,
            Framing::Length(bytes) => Length::Known(bytes),
            Framing::Chunked | Framing::UntilClose => Length::Unknown,
        }
    }
}

impl SessionState {
    /// Writes a head. `end`: nothing follows.
    pub(super) fn head(
        &mut self,
        worker: &WorkerContext,
        parts: &ResponseParts<'_>,
        stream: Stream,
        length: Length,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let mut head = self.wire.respond(stream, parts.status, out)?;
        if !parts.forwarded {
            let preamble = worker.preamble.borrow();
            if parts.omitted.is_none() {
                head.known_block(preamble.id(parts.kind), preamble.fields(parts.kind));
            } else {
                preamble.write_fields(parts.kind, parts.omitted, |name, value| head.field(name, value))?;
            }
        }
        if !parts.fields.is_empty() {
            head.block(parts.fields);
        }
        if let Some(id) = parts.id {
            // Generated here, or validated on arrival.
            let _ = head.field("x-request-id", id.as_str().as_bytes());
        }
        if let Length::Known(bytes) = length {
            head.length(bytes);
        }
        head.finish(end);
        Ok(())
    }

    /// Writes a whole response, or as much as may be sent; the rest is queued in the stream's entry.
    pub(super) fn reply(&mut self, conn: Conn<'_>, reply: &mut Reply<'_>, stream: Stream, out: &mut Vec<u8>) {
        if reply.request.head.protocol.is_some() && (200..300).contains(&reply.status) {
            // A 2xx would announce bytes of that protocol.
            reply.fail(&unsupported_protocol());
        }
        let parts = ResponseParts {
            status: reply.status,
            kind: reply.kind,
            omitted: reply.omitted,
            fields: reply.fields,
            id: reply.request.id(),
            forwarded: reply.forwarded,
            handshake: None,
        };
        let length = reply.frame.as_ref().map_or(reply.body.len(), Bytes::len);
        let bodiless = !h1::allows_content(reply.status);
        let bodiless_reply = bodiless || reply.request.head.method == Method::Head;
        let declared = if bodiless {
            Length::None
        } else {
            Length::Known(length as u64)
        };
        let end = bodiless_reply || length == 0;
        let worker = reply.request.worker;
        if let Err(misuse) = self.head(worker, &parts, stream, declared, end, out) {
            // The client has reset the stream.
            log::debug!("{:?}: no response was sent: {misuse}", reply.request);
            return;
        }
        if end {
            return self.end_stream(stream, out);
        }
        reply.sent = length as u64;
        let body = match reply.frame.take() {
            Some(frame) => frame,
            None if length <= limits::COPIED_BODY_BYTES => {
                // The most common case.
                let sent = self.wire.data(stream, reply.body, true, out).unwrap_or(0);
                if sent == length {
                    return self.end_stream(stream, out);
                }
                Bytes::copy_from_slice(&reply.body[sent..])
            }
            None => Bytes::from(std::mem::take(reply.body)),
        };
        self.send_last(conn, stream, worker.cx.now(), body, out);
    }

    /// Sends the rest of a body as far as allowed, and queues the remainder.
    fn send_last(&mut self, conn: Conn<'_>, stream: Stream, now: Time, body: Bytes, out: &mut Vec<u8>) {
        let entry = self.entry_or_new(stream, now);
        entry.push(conn.cx(), body);
        entry.end = true;
        self.send_queued(conn, stream, out);
    }

    /// Writes another server's whole response, in place of a task.
    fn forward(
        &mut self,
        worker: &WorkerContext,
        conn: Conn<'_>,
        stream: Stream,
        response: &ForwardedResponse<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let body = response.body;
        self.head(
            worker,
            &response.parts(),
            stream,
            response.framing.into(),
            body.is_empty(),
            out,
        )?;
        if let Some(entry) = self.entry(stream) {
            entry.phase = StreamPhase::Done;
        }
        if body.is_empty() {
            self.end_stream(stream, out);
            return Ok(());
        }
        let mut sent = 0;
        if body.len() <= limits::COPIED_BODY_BYTES {
            // The head was sent: bytes beyond the windows are queued.
            sent = self.wire.data(stream, body, true, out).unwrap_or(0);
        }
        if sent == body.len() {
            self.end_stream(stream, out);
        } else {
            let rest = Bytes::copy_from_slice(&body[sent..]);
            self.send_last(conn, stream, worker.cx.now(), rest, out);
        }
        Ok(())
    }

    /// Writes an error as the response to a request that no handler sees.
    pub(super) fn reject(
        &mut self,
        worker: &WorkerContext,
        error: &Error,
        stream: Stream,
        id: Option<&RequestId>,
        out: &mut Vec<u8>,
    ) {
        worker.refresh_date();
        let mut problem = Vec::new();
        error.write_problem(&mut problem);
        let mut fields = FieldBlock::new();
        if let Some((name, value)) = error.field() {
            // Validated when the error was created.
            let _ = fields.push(name, value.as_bytes());
        }
        let parts = ResponseParts {
            status: error.status(),
            kind: ContentKind::Problem,
            omitted: Omitted::default(),
            fields: &fields,
            id,
            forwarded: false,
            handshake: None,
        };
        let length = Length::Known(problem.len() as u64);
        if self.head(worker, &parts, stream, length, false, out).is_ok() {
            let sent = self.wire.data(stream, &problem, true, out);
            if sent != Ok(problem.len()) {
                self.wire.reset(stream, ErrorCode::REFUSED_STREAM, out);
            }
        }
        self.end_stream(stream, out);
    }

    /// Ends a stream after its response: the rest of the client's body is not wanted (RFC 9113 §8.1).
    pub(super) fn end_stream(&mut self, stream: Stream, out: &mut Vec<u8>) {
        self.wire.reset(stream, ErrorCode::NO_ERROR, out);
        self.remove_entry(stream);
    }
}

/// Returns the error for an extended CONNECT to a handler that serves any request but speaks no other protocol.
pub(crate) fn unsupported_protocol() -> Error {
    Error::new(501, "this route does not support WebSocket")
}

impl H2Session {
    /// Writes a task's whole response. The task need not wait until it is sent.
    pub(crate) fn reply(&self, reply: &mut Reply<'_>, stream: Stream) {
        self.write(|core, conn, out| {
            // The rest of the task's work is not for its client.
            if let Some(entry) = core.entry(stream) {
                entry.phase = StreamPhase::Done;
            }
            core.reply(conn, reply, stream, out);
        });
    }

    /// Writes another server's whole response, in place of a task.
    pub(crate) fn forward(&self, response: &ForwardedResponse<'_>, stream: Stream) -> Result<(), Misuse> {
        self.write(|core, conn, out| core.forward(&self.worker, conn, stream, response, out))
    }

    /// Responds with an error, in place of a task.
    pub(crate) fn reject(&self, error: &Error, stream: Stream) {
        self.write(|core, _, out| core.reject(&self.worker, error, stream, None, out));
    }

    /// Returns the time of the worker's clock.
    pub(super) fn now(&self) -> Time {
        self.worker.cx.now()
    }
}
