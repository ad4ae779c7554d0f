//! The body of an answer that lasts: messages wait here until the answer's task takes them.
//!
//! ```text
//! send ─▶ framed, pending ─▶ (wakes) ─▶ the task: web's body, which waits for the client ─▶ more of what waits in `hub`
//! ```
//!
//! One that nothing waits for holds no buffer.

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

use crate::desk::Desk;
use crate::event_id::Positions;
use crate::limits;
use crate::session::Session;

/// See the module.
pub(crate) struct Stream {
    framing: Framing,
    cx: Cx,
    conn: ConnId,
    /// It is a stream of HTTP/2.
    is_framed: bool,
    /// By which requests of their own bring what the client says.
    pub(crate) session: Cell<Option<u128>>,
    pending: RefCell<Vec<u8>>,
    /// Of events, what their `id` is made of.
    pub(crate) positions: RefCell<Option<Box<Positions>>>,
    /// Nothing is sent behind what is pending.
    ended: Cell<Option<Disconnect>>,
    waiting: RefCell<Option<Waker>>,
}

/// Has the kernel close the connection of a request once what was sent stays unacknowledged for as long as a client has to answer a ping.
/// Others on a connection of HTTP/2 share that.
pub(crate) fn limit_silence(request: &Request<'_>, desk: &Desk) {
    let silence = desk.options().unacknowledged_within();
    let millis = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    let conn = request.cx().conn(request.connection());
    // A Unix socket has no such option.
    if let Err(error) = conn.set_option(SocketOption::UserTimeout(millis)) {
        log::debug!("TCP_USER_TIMEOUT: {error}");
    }
}

/// How messages are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// JSON, each with a line break behind it.
    Lines,
    /// JSON, each an event of `EventSource`'s.
    Events,
    /// Protobuf, each with its length before it.
    Lengths,
    /// Protobuf, each with gRPC's prefix before it.
    Calls,
}

impl Framing {
    pub(crate) fn format(self) -> Format {
        match self {
            Framing::Lines | Framing::Events => Format::Json,
            Framing::Lengths | Framing::Calls => Format::Protobuf,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Framing::Lines => "application/x-ndjson",
            Framing::Events => "text/event-stream",
            Framing::Lengths => "application/octet-stream",
            // As the call says.
            Framing::Calls => "application/grpc",
        }
    }

    fn write(self, message: &[u8], positions: Option<&mut Positions>, out: &mut Vec<u8>) {
        match self {
            // The lengths are there.
            Framing::Lengths => out.extend_from_slice(message),
            Framing::Lines => {
                out.extend_from_slice(message);
                out.push(b'\n');
            }
            Framing::Calls => {
                for part in parts(message) {
                    let slot = Slot::open(out);
                    out.extend_from_slice(part);
                    // Far shorter than what a prefix can say.
                    let _ = slot.close(out, false);
                }
            }
            // What stands together on a WebSocket comes apart: a page reads one JSON value from an event.
            Framing::Events => {
                let mut positions = positions;
                for line in message.split(|&byte| byte == b'\n') {
                    if let Some(positions) = positions.as_deref_mut() {
                        positions.write(line, out);
                    }
                    out.extend_from_slice(b"data: ");
                    out.extend_from_slice(line);
                    out.extend_from_slice(b"\n\n");
                }
            }
        }
    }
}

/// The parts of a message in Protobuf, without their lengths.
fn parts(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = message;
    std::iter::from_fn(move || {
        // A varint, seven bits a byte.
        let bytes = left.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
        let (varint, rest) = left.split_at_checked(bytes)?;
        let length = varint
            .iter()
            .rev()
            .fold(0, |length, &byte| length << 7 | usize::from(byte & 0x7F));
        let (part, rest) = rest.split_at_checked(length)?;
        left = rest;
        Some(part)
    })
}

impl Stream {
    /// For the answer to this request.
    pub(crate) fn new(request: &Request<'_>, framing: Framing) -> Stream {
        Stream {
            framing,
            cx: request.cx().clone(),
            conn: request.connection(),
            is_framed: request.version() == Version::Http2,
            session: Cell::default(),
            pending: RefCell::default(),
            positions: RefCell::new((framing == Framing::Events).then(Box::default)),
            ended: Cell::default(),
            waiting: RefCell::default(),
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.framing.format()
    }

    /// What the application calls it; `bare`: it only brings.
    pub(crate) fn transport(&self, bare: bool) -> &'static str {
        match (self.framing, bare) {
            (Framing::Events, false) => "sse",
            (Framing::Events, true) => "uni_sse",
            (Framing::Lines | Framing::Lengths, false) => "http_stream",
            (Framing::Lines | Framing::Lengths, true) => "uni_http_stream",
            (Framing::Calls, _) => "uni_grpc",
        }
    }

    /// As a WebSocket: more waits than a mark, wherever it waits. Not while nothing of its own does: other streams of a connection of
    /// HTTP/2 may be what waits there, and nothing would wake this one.
    pub(crate) fn is_full(&self) -> bool {
        let has_pending = !self.pending.borrow().is_empty();
        self.ended.get().is_some() || (has_pending && self.unsent() > WRITE_MARK)
    }

    /// Has the kernel take so many bytes beyond what is on its way. On a connection of HTTP/2, which others share, windows see to that.
    pub(crate) fn limit_kernel(&self, bytes: u32) {
        if self.is_framed {
            return;
        }
        let conn = self.cx.conn(self.conn);
        // A Unix socket has no such option, and one that is over needs none.
        if let Err(error) = conn.set_option(SocketOption::NotSentLowWater(bytes)) {
            log::debug!("TCP_NOTSENT_LOWAT: {error}");
        }
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn unsent(&self) -> usize {
        self.pending.borrow().len() + self.cx.conn(self.conn).unsent()
    }

    /// Why it is about to end.
    pub(crate) fn ended(&self) -> Option<Disconnect> {
        self.ended.get()
    }

    /// Queues a message. `false`: it is not queued, for more waits than may ([`limits::STREAM_BYTES`]).
    pub(crate) fn put(&self, message: &[u8]) -> bool {
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

    /// Ends the body behind what waits and a last message.
    pub(crate) fn end(&self, why: Disconnect, last: &[u8]) {
        if self.ended.get().is_none() {
            if !last.is_empty() {
                self.write(last, &mut self.pending.borrow_mut());
            }
            self.ended.set(Some(why));
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

    /// Begins the answer.
    ///
    /// # Errors
    /// As [`Reply::stream_without_rate_limit`].
    pub(crate) async fn begin(&self, reply: &mut Reply<'_>) -> Result {
        // nginx would keep the beginning back.
        reply.header("X-Accel-Buffering", "no")?;
        reply.stream_without_rate_limit(self.framing.content_type()).await
    }

    /// Sends what a session has for its client, until either ends.
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) async fn run(&self, session: &Session, reply: &mut Reply<'_>) -> Result {
        while let Some(bytes) = self.next().await {
            reply.write_bytes(Bytes::from(bytes)).await?;
            session.drained();
        }
        Ok(())
    }

    /// Waits until something waits for the client, or the end is there.
    pub(crate) async fn news(&self) {
        poll_fn(|context| {
            if self.pending.borrow().is_empty() && self.ended.get().is_none() {
                *self.waiting.borrow_mut() = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// All that waits; `None`: nothing more comes.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        self.news().await;
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        (!pending.is_empty()).then_some(pending)
    }
}
