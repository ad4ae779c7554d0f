//! The sending half of a socket: encodes and queues messages, and hands them to the engine as the client takes them.
//!
//! ```text
//! send ─▶ Encoder ─┬─ small, and nothing waits ─▶ transport.write
//!                  └─ else ─▶ backlog ─ as the client takes ─▶ transport.write_frame
//! ```
//!
//! Knows nothing of received frames except the client's Close, to which it replies.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::Reason;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::ws::{Close, CloseCode, Closing, Deflater, Deflation, Encoder, Mask, Message, Role};

use super::transport::{BoundTransport, WsTransport};
use super::worker_state::WsWorkerState;
use super::{CloseCause, WsFrame};
use crate::limits;

/// The sending handle of a socket: borrowed by the methods of its [`Socket`](super::Socket), and cloned by code that sends later on
/// the same worker. Every message is queued and no call waits; once the socket is closed, calls have no effect.
#[derive(Clone)]
pub struct Ws(Rc<SenderState>);

struct SenderState {
    sockets: Rc<WsWorkerState>,
    transport: WsTransport,
    protocol: Option<&'static str>,
    deflation: Option<Deflation>,
    phase: Cell<SendPhase>,
    paused: Cell<bool>,
    /// The reason if this end closes or gives up.
    cause: Cell<Option<CloseCause>>,
    /// The deadline of the closing handshake and of the bytes still to be sent.
    close_deadline: Cell<Time>,
    sending: RefCell<SendQueue>,
}

/// ```text
/// Open ── no more messages: Close was sent, or arrived ──▶ Closing ── told `closed` ──▶ Gone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendPhase {
    Open,
    Closing,
    Closed,
}

struct SendQueue {
    encoder: Encoder,
    /// Present if context takeover was negotiated.
    deflater: Option<Box<Deflater>>,
    backlog: Option<Box<Backlog>>,
}

/// Encoded bytes not yet handed to the engine. Present only while the engine's own queue is above the mark.
#[derive(Default)]
struct Backlog {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

impl Ws {
    pub(super) fn new(
        sockets: &Rc<WsWorkerState>,
        transport: WsTransport,
        protocol: Option<&'static str>,
        deflation: Option<Deflation>,
    ) -> Ws {
        let has_context = deflation.is_some_and(|deflation| has_context(&deflation));
        if has_context {
            sockets.acquire_context();
        }
        Ws(Rc::new(SenderState {
            sockets: Rc::clone(sockets),
            transport,
            protocol,
            deflation,
            phase: Cell::new(SendPhase::Open),
            paused: Cell::new(false),
            cause: Cell::new(None),
            close_deadline: Cell::new(Time::NEVER),
            sending: RefCell::new(SendQueue {
                encoder: Encoder::new(Role::Server, deflation, usize::MAX),
                deflater: None,
                backlog: None,
            }),
        }))
    }

    /// Queues a message. `false`: it is not sent, because the socket is closing or closed. A client with more than
    /// [`WsLimits::unsent_bytes`](crate::limits::WsLimits) queued is disconnected ([`CloseCause::SlowReader`]).
    pub fn send(&self, message: Message<'_>) -> bool {
        if self.0.phase.get() != SendPhase::Open {
            return false;
        }
        self.0.sockets.stats.message_out();
        let mut out = self.0.sockets.acquire_out();
        let sending = &mut *self.0.sending.borrow_mut();
        let queued = self.0.encode(sending, message, &mut out) && self.0.queue(sending, &mut out);
        self.0.sockets.release_out(out);
        queued
    }

    /// Queues a text message; see [`Ws::send`].
    pub fn send_text(&self, text: impl AsRef<str>) -> bool {
        self.send(Message::Text(text.as_ref()))
    }

    /// Queues a binary message; see [`Ws::send`].
    pub fn send_binary(&self, bytes: impl AsRef<[u8]>) -> bool {
        self.send(Message::Binary(bytes.as_ref()))
    }

    /// Queues a message that was encoded once for many sockets, without copying it; see [`Ws::send`].
    pub fn send_frame(&self, frame: &WsFrame) -> bool {
        if self.0.phase.get() != SendPhase::Open {
            return false;
        }
        let sending = &mut *self.0.sending.borrow_mut();
        self.0.sockets.stats.message_out();
        let bytes = frame.variant(self.0.deflation.as_ref()).clone();
        let transport = self.transport();
        if sending.backlog.is_none() && transport.unsent() + bytes.len() <= limits::SEND_CHUNK_BYTES {
            return transport.write_frame(bytes);
        }
        self.0.push_backlog(sending, bytes)
    }

    /// Closes the socket: sends a Close with `code` and `reason` (its first 123 bytes) after the queued messages. The client has
    /// [`WsLimits::close_timeout`](crate::limits::WsLimits) to reply. No message can be sent afterwards; messages that the client
    /// sent before still arrive. `false`: the socket was closing already.
    pub fn close(&self, code: CloseCode, reason: &str) -> bool {
        self.close_because(code, reason, CloseCause::Application)
    }

    /// Returns true if messages can be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.phase.get() == SendPhase::Open
    }

    /// Returns the queued bytes that the kernel has not taken yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        let backlog = self
            .0
            .sending
            .borrow()
            .backlog
            .as_ref()
            .map_or(0, |backlog| backlog.bytes);
        self.transport().unsent() + backlog
    }

    /// Limits the kernel's queue to about this many unsent bytes (`TCP_NOTSENT_LOWAT`); by default it accepts megabytes for a
    /// client that does not read, and messages become stale there. On an HTTP/2 stream windows have this effect, on a Unix socket
    /// nothing does.
    pub fn limit_kernel_queue(&self, bytes: u32) {
        self.transport().limit_kernel_queue(bytes);
    }

    /// Returns true if the client is slow: more than [`WRITE_MARK`] bytes are queued. Code that can wait should, until
    /// [`Socket::drained`](super::Socket::drained).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.unsent() > WRITE_MARK
    }

    /// Returns the negotiated subprotocol.
    #[must_use]
    pub fn protocol(&self) -> Option<&'static str> {
        self.0.protocol
    }

    /// Returns true if messages to this client are deflated.
    #[must_use]
    pub fn is_deflated(&self) -> bool {
        self.0.deflation.is_some()
    }

    // Called by the receiving half.

    pub(super) fn sockets(&self) -> &Rc<WsWorkerState> {
        &self.0.sockets
    }

    /// Returns the negotiated parameters of permessage-deflate.
    pub(super) fn deflation(&self) -> Option<Deflation> {
        self.0.deflation
    }

    /// Returns true if the socket retains its inflater between messages, for its context.
    pub(super) fn retains_inflater(&self) -> bool {
        self.0.deflation.is_some_and(|deflation| deflation.peer_context)
    }

    pub(super) fn transport(&self) -> BoundTransport<'_> {
        self.0.transport.on(&self.0.sockets.cx)
    }

    /// Closes the socket in a shutdown: clients reconnect, to another process.
    pub(crate) fn close_for_restart(&self) {
        self.close_because(CloseCode::SERVICE_RESTART, "", CloseCause::Shutdown);
    }

    pub(super) fn close_because(&self, code: CloseCode, reason: &str, cause: CloseCause) -> bool {
        if self.0.phase.get() != SendPhase::Open {
            return false;
        }
        self.0.cause.set(Some(cause));
        let reason = truncate_reason(reason);
        let span = self.0.sockets.limits.close_timeout;
        self.0.start_closing(span, |encoder, out| {
            encoder.close(out, Some(Close { code, reason }), Mask::None)
        });
        true
    }

    /// Replies to the client's Close, unless it is the reply to ours.
    pub(super) fn reply_close(&self, code: Option<CloseCode>) {
        let closing = self.0.sending.borrow_mut().encoder.close_received();
        if closing == Closing::Received {
            let close = code.map(|code| Close { code, reason: "" });
            let span = self.0.sockets.limits.close_timeout;
            self.0
                .start_closing(span, |encoder, out| encoder.close(out, close, Mask::None));
        }
    }

    pub(super) fn ping(&self) {
        self.0.control(|encoder, out| encoder.ping(out, b"", Mask::None));
    }

    pub(super) fn pong(&self, data: &[u8]) {
        self.0.control(|encoder, out| encoder.pong(out, data, Mask::None));
    }

    /// Stops receiving until [`Ws::resume`].
    pub(super) fn pause(&self) {
        self.0.paused.set(true);
        self.transport().pause();
    }

    pub(super) fn resume(&self) {
        if self.0.paused.replace(false) {
            self.transport().resume();
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.0.paused.get()
    }

    /// Returns the reason why this end closes or has given up.
    pub(super) fn cause(&self) -> Option<CloseCause> {
        self.0.cause.get()
    }

    /// Returns the deadline for closing; `NEVER` while the socket is open.
    pub(super) fn close_deadline(&self) -> Time {
        self.0.close_deadline.get()
    }

    /// Extends the deadline for a client that still takes bytes.
    pub(super) fn extend_close_deadline(&self, span: Duration) {
        self.0.close_deadline.set(self.0.sockets.cx.now().after(span));
    }

    /// Returns true if only the engine's own queue holds unsent bytes.
    pub(super) fn is_backlog_empty(&self) -> bool {
        self.0.sending.borrow().backlog.is_none()
    }

    /// Hands over as much as the engine has room for.
    pub(super) fn refill(&self) {
        self.0.refill(&mut self.0.sending.borrow_mut());
    }

    /// Returns whether [`Ws::mark_closed`] was called.
    pub(super) fn is_marked_closed(&self) -> bool {
        self.0.phase.get() == SendPhase::Closed
    }

    /// Marks the socket as closed: further calls have no effect.
    pub(super) fn mark_closed(&self) {
        if self.0.phase.replace(SendPhase::Closed) != SendPhase::Closed {
            if self.0.deflation.is_some_and(|deflation| has_context(&deflation)) {
                self.0.sockets.release_context();
            }
            self.0.sending.borrow_mut().deflater = None;
        }
    }
}

impl SenderState {
    fn encode(&self, sending: &mut SendQueue, message: Message<'_>, out: &mut Vec<u8>) -> bool {
        let SendQueue {
            encoder, deflater, ..
        } = sending;
        let encoded = match &self.deflation {
            Some(deflation) if message.data().len() >= limits::MIN_DEFLATE_BYTES => {
                let window = deflation.own_window;
                if deflation.own_context {
                    let own = deflater
                        .get_or_insert_with(|| Box::new(Deflater::new(window, limits::DEFLATE_LEVEL)));
                    encoder.deflated(out, message, own, Mask::None)
                } else {
                    self.sockets.with_deflater(window, |deflater| {
                        encoder.deflated(out, message, deflater, Mask::None)
                    })
                }
            }
            _ => encoder.message(out, message, Mask::None),
        };
        debug_assert!(encoded.is_ok(), "an open socket takes any message: {encoded:?}");
        encoded.is_ok()
    }

    /// Queues a control frame, unless a Close was sent.
    fn control(
        &self,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>) -> Result<(), ringmain_wire::ws::Misuse>,
    ) {
        if self.phase.get() == SendPhase::Closed {
            return;
        }
        let sending = &mut *self.sending.borrow_mut();
        let mut out = self.sockets.acquire_out();
        if encode(&mut sending.encoder, &mut out).is_ok() {
            self.queue(sending, &mut out);
        }
        self.sockets.release_out(out);
    }

    /// Sends the last frame, and sets the deadline for closing.
    fn start_closing(
        &self,
        span: Duration,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>) -> Result<(), ringmain_wire::ws::Misuse>,
    ) {
        self.control(encode);
        if self.phase.get() == SendPhase::Open {
            self.phase.set(SendPhase::Closing);
        }
        self.close_deadline.set(self.sockets.cx.now().after(span));
        self.transport.on(&self.sockets.cx).set_deadline(Some(span));
    }

    /// Queues encoded bytes behind those already queued.
    fn queue(&self, sending: &mut SendQueue, out: &mut Vec<u8>) -> bool {
        let transport = self.transport.on(&self.sockets.cx);
        if sending.backlog.is_some() || transport.unsent() + out.len() > limits::SEND_CHUNK_BYTES {
            return self.push_backlog(sending, Bytes::from(std::mem::take(out)));
        }
        if out.len() <= limits::COPIED_BODY_BYTES {
            transport.write(out)
        } else {
            transport.write_frame(Bytes::from(std::mem::take(out)))
        }
    }

    /// Queues bytes that the engine has no room for, or disconnects the client.
    fn push_backlog(&self, sending: &mut SendQueue, bytes: Bytes) -> bool {
        let transport = self.transport.on(&self.sockets.cx);
        let backlog = sending.backlog.get_or_insert_default();
        if transport.unsent() + backlog.bytes + bytes.len() > self.sockets.limits.unsent_bytes {
            self.cause.set(Some(CloseCause::SlowReader));
            self.phase.set(SendPhase::Closing);
            sending.backlog = None;
            transport.abort_because(Reason::WriteLimit);
            return false;
        }
        backlog.bytes += bytes.len();
        backlog.frames.push_back(bytes);
        self.refill(sending);
        true
    }

    fn refill(&self, sending: &mut SendQueue) {
        let Some(backlog) = &mut sending.backlog else {
            return;
        };
        let transport = self.transport.on(&self.sockets.cx);
        while transport.unsent() <= WRITE_MARK
            && let Some(frame) = backlog.frames.front_mut()
        {
            let chunk = frame.split_to(frame.len().min(limits::SEND_CHUNK_BYTES));
            backlog.bytes -= chunk.len();
            if frame.is_empty() {
                backlog.frames.pop_front();
            }
            if !transport.write_frame(chunk) {
                // The connection is closed, which `closed` reports.
                backlog.frames.clear();
            }
        }
        if backlog.frames.is_empty() {
            sending.backlog = None;
        }
    }
}

/// Returns true if the parameters need memory per socket between messages.
fn has_context(deflation: &Deflation) -> bool {
    deflation.own_context || deflation.peer_context
}

/// Returns the longest prefix of whole characters that fits the reason of a Close.
pub(super) fn truncate_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(limits::CLOSE_REASON_BYTES)]
}

impl fmt::Debug for Ws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ws {:?}, {:?}", self.0.transport, self.0.phase.get())
    }
}
