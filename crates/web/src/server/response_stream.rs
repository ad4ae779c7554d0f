//! Streamed replies: the head with the first chunk, back-pressure on each, event streams.
//!
//! Owns the bytes sent between an asynchronous handler's first chunk and its return.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, WriteError};
use ringmain_wire::h1::{self, BodyEncoder, FieldBlock, Framing, Method, Version};
use ringmain_wire::sse::HEARTBEAT;

use super::drain::LongLived;
use super::exchange::Exchange;
use super::http2::{self, Length, StreamRef};
use super::response;
use crate::Event;
use crate::http::error::{Error, Result};
use crate::http::media_type;
use crate::http::reply::Reply;
use crate::limits;

/// The way in which the connection may end an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventFraming {
    Chunked,
    /// It lasts until the connection closes, or (HEAD) there is none.
    Unframed,
    /// Only its handler ends it, because more must follow. It is aborted when the client shuts down its side.
    Never,
}

/// A body in flight on an HTTP/2 stream.
pub(super) struct StreamBody {
    pub(super) stream_ref: StreamRef,
    /// Declared bytes that are still to be sent.
    left: Option<u64>,
    /// No body is sent.
    silent: bool,
    /// The head ended the stream.
    over: bool,
}

/// Part of a body.
enum BodyPart<'s> {
    Copied(&'s [u8]),
    Shared(Bytes),
}

impl StreamBody {
    /// Returns the body of a tunnel.
    pub(super) fn tunnel(stream_ref: StreamRef) -> StreamBody {
        StreamBody {
            stream_ref,
            left: None,
            silent: false,
            over: false,
        }
    }

    /// Counts bytes that are to be sent against the declared length.
    fn count(&mut self, bytes: u64) -> std::result::Result<(), h1::Misuse> {
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(bytes)
                .ok_or(h1::Misuse::BodyTooLong { left: *left })?;
        }
        Ok(())
    }

    /// Sends part of the body, unless the response has none.
    fn send(&mut self, part: BodyPart<'_>) -> Result<u64> {
        let length = match &part {
            BodyPart::Copied(bytes) => bytes.len(),
            BodyPart::Shared(bytes) => bytes.len(),
        };
        self.count(length as u64).map_err(Error::internal)?;
        if self.silent || length == 0 {
            return Ok(0);
        }
        let StreamRef { session, stream } = &self.stream_ref;
        match part {
            BodyPart::Copied(bytes) => session.data_copied(*stream, bytes)?,
            BodyPart::Shared(bytes) => session.data(*stream, bytes)?,
        }
        Ok(length as u64)
    }

    /// Sends bytes as [`StreamBody::send`] does, for callers outside this module.
    pub(super) fn send_copied(&mut self, bytes: &[u8]) -> Result<u64> {
        self.send(BodyPart::Copied(bytes))
    }

    /// Ends the body.
    fn finish(&mut self, trailers: Option<FieldBlock>) -> std::result::Result<(), h1::Misuse> {
        if self.over {
            return Ok(());
        }
        if let Some(left @ 1..) = self.left {
            return Err(h1::Misuse::BodyTooShort { left });
        }
        self.stream_ref.session.end(self.stream_ref.stream, trailers);
        Ok(())
    }
}

/// The destination of an asynchronous handler's reply.
pub(crate) struct Outgoing<'r> {
    pub(crate) exchange: &'r Rc<Exchange>,
    /// The time at which the request was received.
    started_at: Time,
    /// Body bytes, if the handler has declared them.
    pub(super) length: Option<u64>,
    /// The response has no body.
    pub(super) bodiless: bool,
    /// The reply is sent in chunks: hooks do not see all of its body.
    is_chunked_reply: bool,
    /// The head was sent with a status that forbids content: chunks are dropped.
    pub(super) forbidden: bool,
    /// After 101: bytes are sent unframed.
    pub(super) tunnel: bool,
    /// Present once the head is sent.
    pub(super) body: Option<BodyEncoder>,
    /// The body on an HTTP/2 stream, present once the head is sent.
    pub(super) framed: Option<StreamBody>,
    /// Trailers, if the body is sent in chunks.
    pub(super) trailers: Option<FieldBlock>,
    /// The task's buffer, so that a streamed response allocates none.
    pub(crate) out: &'r mut Vec<u8>,
}

impl<'r> Outgoing<'r> {
    pub(crate) fn new(exchange: &'r Rc<Exchange>, started_at: Time, out: &'r mut Vec<u8>) -> Outgoing<'r> {
        out.clear();
        Outgoing {
            exchange,
            started_at,
            length: None,
            bodiless: false,
            is_chunked_reply: false,
            forbidden: false,
            tunnel: false,
            body: None,
            framed: None,
            trailers: None,
            out,
        }
    }

    /// Returns true if the client can detect a truncated body by its framing.
    pub(crate) fn is_delimited(&self, version: Version) -> bool {
        self.length.is_some() || version != Version::Http10
    }

    /// Discards the declarations about a body that is not sent.
    pub(crate) fn discard(&mut self) {
        self.length = None;
        self.bodiless = false;
        self.trailers = None;
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.body.is_some() || self.framed.is_some() || self.tunnel
    }

    pub(crate) fn has_complete_body(&self) -> bool {
        !self.is_chunked_reply && !self.has_begun()
    }

    /// Returns true if chunks are dropped: the response to HEAD, and statuses without content.
    pub(super) fn is_silent(&self) -> bool {
        self.forbidden
            || self.body.as_ref().is_some_and(BodyEncoder::is_silent)
            || self.framed.as_ref().is_some_and(|framed| framed.silent)
    }
}

impl<'r> Reply<'r> {
    /// Declares the length of a streamed body in bytes; without it the body is sent in chunks. Must be called before the first
    /// chunk.
    pub fn length(&mut self, bytes: u64) -> &mut Self {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.length = Some(bytes);
        }
        self
    }

    /// Adds a trailer field (RFC 9110 §6.5) without replacing others; allowed until the handler returns, also after the head and
    /// chunks were sent. The response is then sent in chunks, without a length unless one was [declared](Reply::length). A client
    /// that does not accept trailers ([`Request::accepts_trailers`](crate::Request::accepts_trailers)) receives none; neither has a
    /// response without content (204, 205, 304) or that of a plain handler.
    ///
    /// # Errors
    /// 500 if the name is not a token, the value has control characters, or the field belongs to the framing.
    pub fn trailer(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<&mut Self> {
        if let Some(outgoing) = &mut self.outgoing
            && self.request.accepts_trailers()
        {
            let trailers = outgoing.trailers.get_or_insert_default();
            trailers
                .push(name, value.as_ref())
                .map_err(|misuse| Error::internal(format!("trailer `{}`: {misuse}", name.escape_debug())))?;
        }
        Ok(self)
    }

    /// Returns true if a whole response has trailers, and is therefore sent in chunks.
    pub(super) fn ends_in_trailers(&self) -> bool {
        let outgoing = self.outgoing.as_ref();
        outgoing.is_some_and(|outgoing| outgoing.trailers.is_some()) && h1::allows_content(self.status)
    }

    /// Sends a whole response as a streamed one, so that trailers may follow.
    pub(super) async fn send_whole(&mut self) -> Result {
        // Before the body is taken: hooks may read and change the whole body.
        response::run_after(self);
        let long = match &mut self.frame {
            Some(frame) if frame.len() > limits::COPIED_BODY_BYTES => std::mem::take(frame),
            None if self.body.len() > limits::COPIED_BODY_BYTES => Bytes::from(std::mem::take(self.body)),
            _ => Bytes::new(),
        };
        self.send_stream_head()?;
        self.write_bytes(long).await
    }

    /// Sends a chunk of the body; the first one sends the head. Waits while more than
    /// [`WRITE_MARK`](ringmain_engine::limits::WRITE_MARK) bytes are queued for the client. For asynchronous handlers; in a plain
    /// one the chunk is appended to the body.
    ///
    /// # Errors
    /// The client disconnected, or needs only the head (HEAD, and statuses without content: 204, 205, 304): end the handler with
    /// `?`. Or the chunk exceeds the declared [length](Reply::length) (500, and the connection closes: a response that has started
    /// cannot be replaced).
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> Result {
        let bytes = bytes.as_ref();
        if self.outgoing.is_none() {
            self.body().extend_from_slice(bytes);
            return Ok(());
        }
        for part in bytes.chunks(limits::SEND_CHUNK_BYTES) {
            self.write_part(BodyPart::Copied(part)).await?;
        }
        Ok(())
    }

    /// Sends a chunk as [`Reply::write`] does, without a copy: for chunks of some kilobytes and more.
    ///
    /// # Errors
    /// As [`Reply::write`].
    pub async fn write_bytes(&mut self, mut bytes: Bytes) -> Result {
        if self.outgoing.is_none() {
            self.body().extend_from_slice(&bytes);
            return Ok(());
        }
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(limits::SEND_CHUNK_BYTES));
            self.write_part(BodyPart::Shared(part)).await?;
        }
        Ok(())
    }

    /// Starts a stream of server-sent events (WHATWG HTML §9.2): the head is sent at once.
    ///
    /// # Errors
    /// As [`Reply::stream_without_rate_limit`].
    pub async fn events(&mut self) -> Result<EventStream<'_, 'r>> {
        self.stream_without_rate_limit(media_type::EVENT_STREAM).await?;
        Ok(EventStream {
            reply: self,
            buffer: Vec::new(),
        })
    }

    /// Starts a body of messages that lasts until the handler returns: the head is sent at once, and each [`Reply::write`] sends a
    /// message. When the client shuts down its side, the body is ended between two messages (of up to
    /// [`SEND_CHUNK_BYTES`](limits::SEND_CHUNK_BYTES) bytes), and the handler is dropped at its next await. When the process shuts down,
    /// this happens in the response's turn, for which the event streams of a worker are spread over
    /// [`Cx::drain_spread`](ringmain_engine::Cx::drain_spread); the handler may send more until then, and can detect the shutdown by
    /// [`Cx::draining`](ringmain_engine::Cx::draining).
    ///
    /// # Errors
    /// The client disconnected, or needs only the head (HEAD): end the handler with `?`. 500 in a handler that is not asynchronous,
    /// and if `content_type` is not a valid field value.
    pub async fn stream_without_rate_limit(&mut self, content_type: &str) -> Result {
        if self.outgoing.is_none() {
            return Err(Error::internal(
                "streaming requires an asynchronous handler (get_async)",
            ));
        }
        self.header("Content-Type", content_type)?;
        self.header("Cache-Control", "no-store")?;
        self.start_stream()?;
        if let Some(outgoing) = &mut self.outgoing {
            let chunked = self.request.version() != Version::Http10;
            let silent = outgoing.body.as_ref().is_none_or(BodyEncoder::is_silent);
            let framing = if chunked && !silent {
                EventFraming::Chunked
            } else {
                EventFraming::Unframed
            };
            outgoing.exchange.events.set(Some(framing));
            let worker = self.request.worker;
            if worker.cx.is_draining() {
                let response = LongLived::Events(Rc::clone(outgoing.exchange), outgoing.exchange.serial());
                worker.drain_queue.push(response);
            }
            if let Some(framed) = &outgoing.framed {
                return if framed.silent {
                    Err(Error::head_sent())
                } else {
                    Ok(())
                };
            }
            let conn = outgoing.exchange.conn();
            conn.write(outgoing.out).map_err(disconnected)?;
            outgoing.out.clear();
            if outgoing.is_silent() {
                return Err(Error::head_sent());
            }
        }
        Ok(())
    }

    /// Lets a started body of messages continue when the process shuts down: the handler ends it within the time that connections have to
    /// finish. For clients that reconnect, whose number makes it necessary to spread that
    /// ([`Cx::drain_turn`](ringmain_engine::Cx::drain_turn)).
    pub fn outlive_drain(&mut self) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.exchange.outlives_drain.set(true);
        }
    }

    /// Lets a started response last until its handler ends it, also while the process shuts down. The handler is dropped when the client shuts
    /// down its side.
    #[cfg(feature = "grpc")]
    pub(crate) fn set_ended_by_handler(&mut self) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.exchange.events.set(Some(EventFraming::Never));
        }
    }

    /// Sends part of the body, framed.
    async fn write_part(&mut self, part: BodyPart<'_>) -> Result {
        self.start_stream()?;
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        if let Some(framed) = &mut outgoing.framed {
            self.sent += framed.send(part)?;
            if framed.silent {
                return Err(Error::head_sent());
            }
            return wait_for_room(outgoing.exchange).await;
        }
        let conn = outgoing.exchange.conn();
        let out = &mut *outgoing.out;
        let length = match &part {
            BodyPart::Copied(bytes) => bytes.len(),
            BodyPart::Shared(bytes) => bytes.len(),
        } as u64;
        if outgoing.tunnel {
            append_part(part, conn, out).map_err(disconnected)?;
            self.sent += length;
            conn.write(out).map_err(disconnected)?;
            out.clear();
            return wait_for_room(outgoing.exchange).await;
        }
        let Some(body) = &mut outgoing.body else {
            return Ok(());
        };
        if !outgoing.forbidden && body.begin(out, length).map_err(Error::internal)? {
            append_part(part, conn, out).map_err(disconnected)?;
            body.end(out);
            self.sent += length;
        }
        conn.write(out).map_err(disconnected)?;
        out.clear();
        if outgoing.is_silent() {
            return Err(Error::head_sent());
        }
        wait_for_room(outgoing.exchange).await
    }

    /// Runs the `after` hooks and encodes the head, unless that was done.
    pub(super) fn start_stream(&mut self) -> Result {
        if self.is_streaming() {
            return Ok(());
        }
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.is_chunked_reply = true;
        }
        response::run_after(self);
        self.send_stream_head()
    }

    /// Encodes the head, and the part of the body that was written before the first chunk.
    fn send_stream_head(&mut self) -> Result {
        let forbidden = !h1::allows_content(self.status);
        self.request.worker.refresh_date();
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        outgoing.forbidden = forbidden;
        outgoing.exchange.start_response();
        if let Some(stream_ref) = outgoing.exchange.stream_ref() {
            return self.start_stream_on_http2(stream_ref);
        }
        let request = self.request;
        let mut exchange = request.head.exchange();
        // An unfinished request body might never end: the handler need not read it all.
        exchange.keep_alive &=
            !outgoing.exchange.is_last() && outgoing.exchange.is_body_complete() && !self.closes_after;
        if !exchange.keep_alive {
            outgoing.exchange.last.set(true);
        }
        let framing = match (outgoing.length, exchange.version) {
            _ if outgoing.bodiless => Framing::None,
            // The length is that of the 200 response (RFC 9110 §8.6).
            (Some(length), _) if self.status == 304 => Framing::Length(length),
            _ if forbidden => Framing::None,
            (Some(length), _) => Framing::Length(length),
            (None, Version::Http11 | Version::Http2) => Framing::Chunked,
            (None, Version::Http10) => {
                outgoing.exchange.last.set(true);
                Framing::UntilClose
            }
        };
        let parts = response::ResponseParts {
            status: self.status,
            kind: self.kind,
            omitted: self.omitted,
            fields: self.fields,
            id: request.id(),
            forwarded: self.forwarded,
            handshake: None,
        };
        let out = &mut *outgoing.out;
        let mut body =
            response::head(request.worker, &parts, exchange, framing, out).map_err(Error::internal)?;
        let pending_body = self.frame.as_deref().unwrap_or(self.body);
        if !pending_body.is_empty() && !forbidden {
            self.sent += pending_body.len() as u64;
            body.data(out, pending_body).map_err(Error::internal)?;
        }
        outgoing.body = Some(body);
        let worker = request.worker;
        worker.stats.took(worker.cx.clock().since(outgoing.started_at));
        Ok(())
    }

    /// Sends the head on an HTTP/2 stream.
    fn start_stream_on_http2(&mut self, stream_ref: StreamRef) -> Result {
        let request = self.request;
        if request.head.protocol.is_some() && (200..300).contains(&self.status) {
            // A 2xx would announce bytes of that protocol.
            return Err(http2::unsupported_protocol());
        }
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        let bodiless = outgoing.bodiless || outgoing.forbidden;
        let silent = bodiless || request.head.method == Method::Head;
        let length = match outgoing.length {
            _ if bodiless => Length::None,
            Some(length) => Length::Known(length),
            None => Length::Unknown,
        };
        let parts = response::ResponseParts {
            status: self.status,
            kind: self.kind,
            omitted: self.omitted,
            fields: self.fields,
            id: request.id(),
            forwarded: self.forwarded,
            handshake: None,
        };
        // END_STREAM on the head itself: gRPC clients distinguish this from an end after it.
        let over = silent || self.forwarded && outgoing.length == Some(0);
        stream_ref
            .session
            .head(request.worker, &parts, stream_ref.stream, length, over)?;
        let mut framed = StreamBody {
            stream_ref,
            left: outgoing.length.filter(|_| !silent),
            silent,
            over,
        };
        let pending_body = self.frame.as_deref().unwrap_or(self.body);
        if !pending_body.is_empty() {
            self.sent += framed.send_copied(pending_body)?;
        }
        outgoing.framed = Some(framed);
        let worker = request.worker;
        worker.stats.took(worker.cx.clock().since(outgoing.started_at));
        Ok(())
    }

    /// Ends a streamed body. Returns whether the connection can be reused.
    pub(crate) fn finish_stream(&mut self) -> std::result::Result<bool, h1::Misuse> {
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(true);
        };
        if let Some(framed) = &mut outgoing.framed {
            return framed.finish(outgoing.trailers.take()).map(|()| true);
        }
        if let Some(body) = &mut outgoing.body {
            match outgoing.trailers.take().filter(|_| body.is_chunked()) {
                Some(trailers) => body.finish_with_trailers(outgoing.out, &trailers)?,
                None => body.finish(outgoing.out)?,
            }
            // Fails only when the connection is closed.
            let _ = outgoing.exchange.conn().write(outgoing.out);
            outgoing.out.clear();
        }
        Ok(!outgoing.exchange.last.get())
    }
}

/// Waits until the client has taken enough of the written bytes.
pub(crate) async fn wait_for_room(exchange: &Exchange) -> Result {
    let conn = exchange.conn();
    if let Some(stream_ref) = exchange.stream_ref() {
        return poll_fn(|context| {
            if !stream_ref.session.is_open(stream_ref.stream) {
                return Poll::Ready(Err(Error::disconnected()));
            }
            if stream_ref.session.may_send(stream_ref.stream) {
                return Poll::Ready(Ok(()));
            }
            exchange.wait(context)
        })
        .await;
    }
    poll_fn(|context| {
        if conn.has_room(0) {
            return Poll::Ready(Ok(()));
        }
        if !conn.is_open() {
            return Poll::Ready(Err(Error::disconnected()));
        }
        conn.set_deadline(Some(limits::RATE_TICK));
        exchange.wait(context)
    })
    .await
}

/// Appends part of a body, or hands it over behind the appended bytes.
fn append_part(part: BodyPart<'_>, conn: Conn<'_>, out: &mut Vec<u8>) -> std::result::Result<(), WriteError> {
    match part {
        BodyPart::Copied(bytes) => {
            out.extend_from_slice(bytes);
            Ok(())
        }
        BodyPart::Shared(bytes) => {
            conn.write(out)?;
            out.clear();
            conn.write_frame(bytes)
        }
    }
}

pub(crate) fn disconnected(_: WriteError) -> Error {
    Error::disconnected()
}

/// A stream of server-sent events. It ends when the handler returns, when the client disconnects (the handler is dropped at its
/// next await), and in its turn when the process shuts down ([`Reply::stream_without_rate_limit`]): the stream is then ended properly, and
/// `EventSource` reconnects.
pub struct EventStream<'a, 'r> {
    reply: &'a mut Reply<'r>,
    buffer: Vec<u8>,
}

impl EventStream<'_, '_> {
    /// Sends an event. Waits while too much is queued for the client.
    ///
    /// # Errors
    /// The client disconnected; 500 for an invalid event name or id, in which case nothing is sent.
    pub async fn send(&mut self, event: &Event<'_>) -> Result {
        self.buffer.clear();
        event.write(&mut self.buffer)?;
        self.reply.write(&self.buffer).await
    }

    /// Sends a comment, which clients ignore: it keeps proxies from closing an idle stream.
    ///
    /// # Errors
    /// The client disconnected.
    pub async fn heartbeat(&mut self) -> Result {
        self.reply.write(HEARTBEAT).await
    }
}

impl std::fmt::Debug for EventStream<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventStream of {:?}", self.reply)
    }
}
