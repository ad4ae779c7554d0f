//! The body of a streamed response: a buffer of messages, which the response's task sends.
//!
//! ```text
//! send ─▶ framed, pending ─▶ (wakes) ─▶ the task: web's body, which waits for the client ─▶ more of the pushes queued by the hub
//! ```
//!
//! An idle stream has no buffer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use bytes::Bytes;
use ringmain_engine::backend::SocketOption;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::{ConnId, Cx};
use ringmain_hub::protocol::{Disconnect, Format};
use ringmain_web::{Reply, Request, Result, Version};
use ringmain_wire::grpc::Slot;

use crate::client::commands::CommandHandler;
use crate::limits;
use crate::transport::event_id::Positions;
use crate::worker::PushWorker;

/// See the module.
pub(crate) struct HttpStream {
    framing: Framing,
    cx: Cx,
    conn: ConnId,
    /// Set for a stream of an HTTP/2 connection.
    is_framed: bool,
    /// The secret of the session's name, for the client's requests.
    pub(crate) session: Cell<Option<u128>>,
    pending: RefCell<Vec<u8>>,
    /// The positions in the `id` of events.
    pub(crate) positions: RefCell<Option<Box<Positions>>>,
    /// Set once nothing is sent behind the pending messages.
    ended: Cell<Option<Disconnect>>,
    waiting: RefCell<Option<Waker>>,
}

/// Sets `TCP_USER_TIMEOUT` for a request's connection: the kernel closes it once sent bytes remain unacknowledged for as long as a client
/// has for a pong. Other streams of an HTTP/2 connection share that.
pub(crate) fn limit_unacknowledged(request: &Request<'_>, worker: &PushWorker) {
    let limit = worker.options().unacknowledged_within();
    let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    let conn = request.cx().conn(request.connection());
    // A Unix socket has no such option.
    if let Err(error) = conn.set_option(SocketOption::UserTimeout(millis)) {
        log::debug!("TCP_USER_TIMEOUT: {error}");
    }
}

/// The separation of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// JSON, each followed by a line break.
    NdJson,
    /// JSON, each an event of `EventSource`.
    Sse,
    /// Protobuf, each after its length.
    LengthPrefixed,
    /// Protobuf, each after gRPC's prefix.
    Grpc,
}

impl Framing {
    pub(crate) fn format(self) -> Format {
        match self {
            Framing::NdJson | Framing::Sse => Format::Json,
            Framing::LengthPrefixed | Framing::Grpc => Format::Protobuf,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Framing::NdJson => "application/x-ndjson",
            Framing::Sse => "text/event-stream",
            Framing::LengthPrefixed => "application/octet-stream",
            // The type of the call.
            Framing::Grpc => "application/grpc",
        }
    }

    fn write(self, message: &[u8], positions: Option<&mut Positions>, out: &mut Vec<u8>) {
        match self {
            // The lengths are part of the message.
            Framing::LengthPrefixed => out.extend_from_slice(message),
            Framing::NdJson => {
                out.extend_from_slice(message);
                out.push(b'\n');
            }
            Framing::Grpc => {
                for part in protobuf_parts(message) {
                    let slot = Slot::open(out);
                    out.extend_from_slice(part);
                    // Far shorter than the limit of a prefix.
                    let _ = slot.close(out, false);
                }
            }
            // Messages that share a WebSocket frame are separated: a page reads one JSON value from an event.
            Framing::Sse => {
                let mut positions = positions;
                for line in message.split(|&byte| byte == b'\n') {
                    if let Some(positions) = positions.as_deref_mut() {
                        positions.write_id(line, out);
                    }
                    out.extend_from_slice(b"data: ");
                    out.extend_from_slice(line);
                    out.extend_from_slice(b"\n\n");
                }
            }
        }
    }
}

/// Returns the parts of a message in Protobuf, without their lengths.
fn protobuf_parts(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut remaining = message;
    std::iter::from_fn(move || {
        // A varint, seven bits a byte.
        let bytes = remaining.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
        let (varint, rest) = remaining.split_at_checked(bytes)?;
        let length = varint
            .iter()
            .rev()
            .fold(0, |length, &byte| length << 7 | usize::from(byte & 0x7F));
        let (part, rest) = rest.split_at_checked(length)?;
        remaining = rest;
        Some(part)
    })
}

impl HttpStream {
    /// Creates the body of the response to a request.
    pub(crate) fn new(request: &Request<'_>, framing: Framing) -> HttpStream {
        HttpStream {
            framing,
            cx: request.cx().clone(),
            conn: request.connection(),
            is_framed: request.version() == Version::Http2,
            session: Cell::default(),
            pending: RefCell::default(),
            positions: RefCell::new((framing == Framing::Sse).then(Box::default)),
            ended: Cell::default(),
            waiting: RefCell::default(),
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.framing.format()
    }

    /// Returns the name of the transport for the application.
    pub(crate) fn transport_name(&self, unidirectional: bool) -> &'static str {
        match (self.framing, unidirectional) {
            (Framing::Sse, false) => "sse",
            (Framing::Sse, true) => "uni_sse",
            (Framing::NdJson | Framing::LengthPrefixed, false) => "http_stream",
            (Framing::NdJson | Framing::LengthPrefixed, true) => "uni_http_stream",
            (Framing::Grpc, false) => "grpc",
            (Framing::Grpc, true) => "uni_grpc",
        }
    }

    /// Returns whether more than a mark is unsent, as with a WebSocket. Not while nothing of this stream is pending: the bytes may be those
    /// of other streams of an HTTP/2 connection, and nothing would wake this one.
    pub(crate) fn is_full(&self) -> bool {
        let has_pending = !self.pending.borrow().is_empty();
        self.ended.get().is_some() || (has_pending && self.unsent_bytes() > WRITE_MARK)
    }

    /// Limits the unsent bytes in the kernel's buffer. An HTTP/2 connection, which other streams share, has its flow control instead.
    pub(crate) fn limit_kernel_buffer(&self, bytes: u32) {
        if self.is_framed {
            return;
        }
        let conn = self.cx.conn(self.conn);
        // A Unix socket has no such option, and a closed one needs none.
        if let Err(error) = conn.set_option(SocketOption::NotSentLowWater(bytes)) {
            log::debug!("TCP_NOTSENT_LOWAT: {error}");
        }
    }

    /// Returns the bytes that are not in the kernel's buffer yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.pending.borrow().len() + self.cx.conn(self.conn).unsent()
    }

    /// Returns the reason why the body ends.
    pub(crate) fn disconnect_reason(&self) -> Option<Disconnect> {
        self.ended.get()
    }

    /// Appends a message. Returns `false` at the limit ([`limits::STREAM_BYTES`]): nothing was appended.
    pub(crate) fn append_message(&self, message: &[u8]) -> bool {
        if self.ended.get().is_some() {
            return true;
        }
        let mut pending = self.pending.borrow_mut();
        if pending.len() + message.len() > limits::STREAM_BYTES {
            return false;
        }
        self.write(message, &mut pending);
        drop(pending);
        self.wake();
        true
    }

    /// Ends the body behind the pending messages and a last one.
    pub(crate) fn finish(&self, disconnect: Disconnect, last: &[u8]) {
        if self.ended.get().is_none() {
            if !last.is_empty() {
                self.write(last, &mut self.pending.borrow_mut());
            }
            self.ended.set(Some(disconnect));
            self.wake();
        }
    }

    fn write(&self, message: &[u8], pending: &mut Vec<u8>) {
        let positions = &mut *self.positions.borrow_mut();
        self.framing.write(message, positions.as_deref_mut(), pending);
    }

    fn wake(&self) {
        let waiting = self.waiting.borrow_mut().take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Starts the response.
    ///
    /// # Errors
    /// As [`Reply::stream_without_rate_limit`].
    pub(crate) async fn start_response(&self, reply: &mut Reply<'_>) -> Result {
        // nginx would buffer the start of the response.
        reply.header("X-Accel-Buffering", "no")?;
        reply
            .stream_without_rate_limit(self.framing.content_type())
            .await?;
        // The worker disconnects clients one after the other.
        reply.outlive_drain();
        Ok(())
    }

    /// Sends the messages of a session until either side ends it.
    ///
    /// # Errors
    /// The client has closed the connection.
    pub(crate) async fn run_session(&self, session: &CommandHandler, reply: &mut Reply<'_>) -> Result {
        while let Some(bytes) = self.next_chunk().await {
            reply.write_bytes(Bytes::from(bytes)).await?;
            session.on_drained();
        }
        Ok(())
    }

    /// Waits until a message is pending, or the body ends.
    pub(crate) async fn wait_readable(&self) {
        poll_fn(|context| {
            if self.pending.borrow().is_empty() && self.ended.get().is_none() {
                *self.waiting.borrow_mut() = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Returns all pending messages. `None`: the body ends.
    pub(crate) async fn next_chunk(&self) -> Option<Vec<u8>> {
        self.wait_readable().await;
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        (!pending.is_empty()).then_some(pending)
    }
}
