//! The receiving half of a socket: turns frames into messages, runs the closing handshake, and ends silent and slow sockets.
//!
//! ```text
//!        ┌── messages, pings, pongs ──┐
//!        ▼                            │
//! Open ──┴────────────────────────────┘
//!  ├─ Close from the client, answered ─────────────────┐
//!  ├─ fault: Close with its code ──────────────────────┤
//!  ├─ Close from here ─▶ Waiting ─ client's Close ─────┼─▶ Over ─ all is sent ─▶ FIN (the server's `Lingering`)
//!  │                        └─ time ─▶ reset           │
//!  └─ end or reset of the connection, silence ─▶ closed┘
//! ```
//!
//! `closed` is called once, on the transition to `Over` or at the end of the connection. An idle socket consists of this record and
//! the sending half's; a message that arrives in one piece is delivered from the receive buffer. State needed only during decoding
//! or for an incomplete message belongs to the worker ([`ActiveDecoder`]) and is borrowed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ringmain_engine::Reason;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Event, Inflater, Kind, Message, PeerFault, Piece, Resting, Role,
};

use super::worker_state::WsWorkerState;
use super::{CloseCause, Closed, Socket, Ws};
use crate::http::error::Result;
use crate::limits;
use crate::server::response;

/// See the module.
pub(crate) struct WsSession<S: ?Sized = dyn Socket> {
    ws: Ws,
    /// The state of the decoder while `active` has none.
    compact: Resting,
    /// Present while a message is incomplete, or an inflater has its context.
    active: Option<Box<ActiveDecoder>>,
    /// The time at which bytes last arrived.
    last_activity: Time,
    /// The time of the last refill of the budget of control frames.
    control_budget_refilled_at: Time,
    /// The time of a ping that nothing has followed; `NEVER`: none is pending.
    ping_sent_at: Time,
    /// The time of the last check of the client's progress, and the bytes that it had taken by then.
    last_progress_check: Time,
    bytes_taken: u64,
    /// The application's part, in the same allocation.
    socket: S,
}

const _: () = assert!(
    size_of::<WsSession<()>>() <= 72,
    "an idle socket is this with the application's own part, beside the connection and the sending half"
);

/// The decoding state of an active socket.
pub(super) struct ActiveDecoder {
    decoder: Decoder,
    inflater: Option<Box<Inflater>>,
    assembly: Option<PartialMessage>,
}

/// An incomplete message.
struct PartialMessage {
    bytes: Vec<u8>,
    started_at: Time,
}

impl ActiveDecoder {
    pub(super) fn new(decoder: Decoder) -> ActiveDecoder {
        ActiveDecoder {
            decoder,
            inflater: None,
            assembly: None,
        }
    }

    /// Returns the compact state to retain until more arrives, unless borrowed state is in use.
    fn compact_state(&self) -> Option<Resting> {
        let is_empty = self.inflater.is_none() && self.assembly.is_none();
        self.decoder.rest().filter(|_| is_empty)
    }

    /// Releases the state borrowed for an incomplete message.
    fn release_partial(&mut self, ws: &Ws) {
        if let Some(assembly) = self.assembly.take() {
            assembly.release(ws.sockets());
        }
        if let Some(inflater) = self.inflater.take() {
            release_inflater(ws, inflater);
        }
    }
}

impl PartialMessage {
    fn release(self, sockets: &WsWorkerState) {
        sockets.release(self.bytes.len());
        sockets.release_buffer(self.bytes);
    }
}

/// Takes an inflater for a message that needs one; `None`: the worker's memory for incomplete messages is used up.
fn acquire_inflater(ws: &Ws) -> Option<Box<Inflater>> {
    let sockets = ws.sockets();
    let has_memory = ws.retains_inflater() || sockets.reserve(limits::INFLATER_BYTES);
    has_memory.then(|| sockets.acquire_inflater())
}

fn release_inflater(ws: &Ws, inflater: Box<Inflater>) {
    let sockets = ws.sockets();
    if !ws.retains_inflater() {
        sockets.release(limits::INFLATER_BYTES);
    }
    sockets.release_inflater(inflater);
}

/// A socket of an application, before the client is notified of the upgrade.
pub(crate) trait IntoSession {
    /// Creates the session of the socket.
    fn into_session(self: Box<Self>, ws: Ws) -> Box<WsSession>;
}

impl<S: Socket> IntoSession for S {
    fn into_session(self: Box<Self>, ws: Ws) -> Box<WsSession> {
        let sockets = ws.sockets();
        let now = sockets.cx.now();
        sockets.stats.socket_opened();
        Box::new(WsSession {
            compact: Resting::new(&sockets.frame_limits()),
            active: None,
            ws,
            last_activity: now,
            control_budget_refilled_at: now,
            ping_sent_at: Time::NEVER,
            last_progress_check: now,
            bytes_taken: 0,
            socket: *self,
        })
    }
}

impl<S: ?Sized> WsSession<S> {
    /// Releases the state borrowed for an incomplete message.
    fn release_partial(&mut self) {
        if let Some(mut active) = self.active.take() {
            active.release_partial(&self.ws);
            self.ws.sockets().release_decoder(active);
        }
    }
}

impl WsSession {
    /// Returns true once the application was notified of the end.
    fn is_close_notified(&self) -> bool {
        self.ws.is_marked_closed()
    }

    /// Called when the 101 was sent.
    pub(crate) fn open(&mut self) {
        self.arm(None);
        self.call_socket(|socket, ws| socket.opened(ws));
    }

    /// Processes `input` as far as possible and returns the number of consumed bytes.
    pub(crate) fn receive(&mut self, input: &mut [u8]) -> usize {
        let mut active = self.active.take().unwrap_or_else(|| self.wake());
        self.record_activity(&mut active.decoder);
        let mut inflater = active.inflater.take();
        let mut at = 0;
        loop {
            let step = match active.decoder.decode(&mut input[at..], inflater.as_deref_mut()) {
                Ok(step) => step,
                Err(fault) => {
                    self.on_fault(&fault);
                    at = input.len();
                    break;
                }
            };
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::NeedInflater => match acquire_inflater(&self.ws) {
                    Some(acquired) => inflater = Some(acquired),
                    None => self.close_with(CloseCause::Overloaded, CloseCode::TRY_AGAIN_LATER),
                },
                Event::Piece(piece) => self.on_piece(&piece, &mut active.assembly),
                Event::Ping(data) => self.ws.pong(data),
                Event::Pong(_) => {}
                Event::Close(close) => self.on_client_close(close),
            }
            if self.is_close_notified() || self.is_blocked() {
                break;
            }
        }
        if let Some(idle) = inflater {
            if active.decoder.keeps_inflater() && !self.is_close_notified() {
                active.inflater = Some(idle);
            } else {
                release_inflater(&self.ws, idle);
            }
        }
        self.retain_decoder(active);
        if self.is_close_notified() { input.len() } else { at }
    }

    /// Restores the decoder into state borrowed from the worker.
    fn wake(&self) -> Box<ActiveDecoder> {
        let sockets = self.ws.sockets();
        let limits = sockets.frame_limits();
        let decoder = self.compact.wake(Role::Server, &limits, self.ws.deflation());
        sockets.acquire_decoder(decoder)
    }

    /// Retains the state that is needed when more arrives.
    fn retain_decoder(&mut self, mut active: Box<ActiveDecoder>) {
        if self.is_close_notified() {
            active.release_partial(&self.ws);
        } else if let Some(compact) = active.compact_state() {
            self.compact = compact;
        } else {
            self.active = Some(active);
            return;
        }
        self.ws.sockets().release_decoder(active);
    }

    /// Returns true if the remaining bytes must wait: the connection offers them again when the client has taken the queued bytes,
    /// or the application resumes reading.
    pub(crate) fn is_blocked(&self) -> bool {
        self.ws.is_paused() || self.ws.transport().unsent() > WRITE_MARK
    }

    fn record_activity(&mut self, decoder: &mut Decoder) {
        let now = self.ws.sockets().cx.now();
        self.last_activity = now;
        self.ping_sent_at = Time::NEVER;
        if now.since(self.control_budget_refilled_at) >= limits::CONTROL_FRAME_PERIOD {
            self.control_budget_refilled_at = now;
            decoder.renew_budget();
        }
    }

    fn on_piece(&mut self, piece: &Piece<'_>, assembly: &mut Option<PartialMessage>) {
        if piece.first && piece.last {
            return match piece.kind {
                Kind::Text => self.deliver(Message::Text(piece.text.expect("a whole text is text"))),
                Kind::Binary => self.deliver(Message::Binary(piece.data)),
            };
        }
        if !self.assemble(piece.data, assembly) {
            return self.close_with(CloseCause::Overloaded, CloseCode::TRY_AGAIN_LATER);
        }
        if !piece.last {
            return;
        }
        let Some(assembly) = assembly.take() else {
            return;
        };
        match piece.kind {
            Kind::Text => match str::from_utf8(&assembly.bytes) {
                Ok(text) => self.deliver(Message::Text(text)),
                Err(_) => unreachable!("the decoder has checked each piece"),
            },
            Kind::Binary => self.deliver(Message::Binary(&assembly.bytes)),
        }
        assembly.release(self.ws.sockets());
    }

    /// Appends a part of a message; `false`: it exceeds the worker's memory for incomplete messages.
    fn assemble(&mut self, data: &[u8], assembly: &mut Option<PartialMessage>) -> bool {
        let sockets = self.ws.sockets();
        let is_new = assembly.is_none();
        let assembly = assembly.get_or_insert_with(|| PartialMessage {
            bytes: sockets.acquire_buffer(),
            started_at: sockets.cx.now(),
        });
        if !sockets.reserve(data.len()) {
            return false;
        }
        assembly.bytes.extend_from_slice(data);
        if is_new {
            self.arm(Some(assembly.started_at));
        }
        true
    }

    fn deliver(&mut self, message: Message<'_>) {
        self.ws.sockets().stats.message_in();
        self.call_socket(|socket, ws| socket.message(ws, message));
    }

    /// Calls the application; an error or a panic closes the socket.
    fn call_socket(&mut self, call: impl FnOnce(&mut dyn Socket, &Ws) -> Result) {
        let (socket, ws) = (&mut self.socket, &self.ws);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(socket, ws)));
        if let Err(error) = outcome.unwrap_or_else(|panic| Err(response::panicked(&*panic))) {
            super::stream::close_for(ws, &error);
        }
    }

    fn on_client_close(&mut self, close: Option<Close<'_>>) {
        self.ws.reply_close(close.map(|close| close.code));
        self.notify_closed(&Closed {
            code: close.map_or(NO_CODE, |close| close.code.number()),
            reason: close.map_or("", |close| close.reason),
            cause: self.ws.cause().unwrap_or(CloseCause::Client),
        });
    }

    fn on_fault(&mut self, fault: &PeerFault) {
        log::debug!("{:?}: {fault}", self.ws);
        let cause = CloseCause::Fault(fault.kind);
        match fault.close_code() {
            Some(code) => self.close_with(cause, code),
            None => self.lost(),
        }
    }

    /// Sends a Close without waiting for the client's (RFC 6455 §7.1.7).
    fn close_with(&mut self, cause: CloseCause, code: CloseCode) {
        self.ws.close_because(code, "", cause);
        self.notify_closed(&Closed {
            code: code.number(),
            reason: "",
            cause,
        });
    }

    /// Notifies the application of the end, once.
    fn notify_closed(&mut self, closed: &Closed<'_>) {
        if self.is_close_notified() {
            return;
        }
        self.ws.sockets().stats.socket_closed();
        self.ws.mark_closed();
        self.release_partial();
        let socket = &mut self.socket;
        if catch_unwind(AssertUnwindSafe(|| socket.closed(closed))).is_err() {
            log::error!("{:?}: `Socket::closed` panicked", self.ws);
        }
    }

    /// Returns the start time of the incomplete message.
    fn started_at(&self) -> Option<Time> {
        let assembly = self.active.as_ref()?.assembly.as_ref()?;
        Some(assembly.started_at)
    }

    /// Returns true if only the engine's queued bytes and FIN remain to be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_close_notified() && self.ws.is_backlog_empty()
    }

    /// Called when the client has taken most of the queued bytes.
    pub(crate) fn drained(&mut self) {
        self.ws.refill();
        if !self.is_close_notified() && !self.ws.is_full() {
            self.call_socket(|socket, ws| socket.drained(ws));
        }
    }

    /// Called when the client has sent its last byte.
    pub(crate) fn end(&mut self) {
        self.lost();
    }

    /// Called when the connection is lost.
    pub(crate) fn lost(&mut self) {
        self.notify_closed(&Closed {
            code: LOST,
            reason: "",
            cause: self.ws.cause().unwrap_or(CloseCause::Lost),
        });
    }

    /// Called when the process shuts down. Returns the handle of a socket that is to be closed in its turn; the application closes others.
    #[must_use]
    pub(crate) fn drain(&mut self) -> Option<Ws> {
        let mut closes_itself = false;
        if !self.is_close_notified() {
            self.call_socket(|socket, ws| {
                closes_itself = socket.shuts_down(ws);
                Ok(())
            });
        }
        (!closes_itself && self.ws.is_open()).then(|| self.ws.clone())
    }

    /// Handles the deadline: sends a ping, extends the deadline, or ends the socket.
    pub(crate) fn on_deadline(&mut self) {
        let limits = &self.ws.sockets().limits;
        let (pong_timeout, message_timeout, close_timeout) =
            (limits.pong_timeout, limits.message_timeout, limits.close_timeout);
        let ping_interval = limits.ping_interval;
        let now = self.ws.sockets().cx.now();
        let makes_progress = self.makes_progress(now);
        if self.ws.close_deadline() != Time::NEVER {
            return self.await_close(now, makes_progress, close_timeout);
        }
        if self
            .started_at()
            .is_some_and(|started_at| now >= started_at.after(message_timeout))
        {
            return self.close_with(CloseCause::SlowMessage, CloseCode::POLICY_VIOLATION);
        }
        if makes_progress || self.ws.is_paused() {
            // The client is busy receiving, or the application does not read: silence proves nothing.
            self.last_activity = now;
            self.ping_sent_at = Time::NEVER;
        }
        match (self.ping_sent_at(), ping_interval) {
            (Some(ping_sent_at), _) if now >= ping_sent_at.after(pong_timeout) => {
                self.notify_closed(&Closed {
                    code: LOST,
                    reason: "",
                    cause: CloseCause::Silent,
                });
                return self.ws.transport().abort_because(Reason::Deadline);
            }
            (None, Some(interval)) if now >= self.last_activity.after(interval) => {
                self.ws.ping();
                self.ping_sent_at = now;
            }
            _ => {}
        }
        self.arm(self.started_at());
    }

    fn ping_sent_at(&self) -> Option<Time> {
        (self.ping_sent_at != Time::NEVER).then_some(self.ping_sent_at)
    }

    fn await_close(&mut self, now: Time, makes_progress: bool, span: Duration) {
        let transport = self.ws.transport();
        if makes_progress {
            self.ws.extend_close_deadline(span);
        }
        let by = self.ws.close_deadline();
        if now < by {
            return transport.set_deadline(Some(by.since(now)));
        }
        transport.abort_because(Reason::Deadline);
        self.lost();
    }

    /// Returns true if the client has taken queued bytes fast enough since the last check.
    fn makes_progress(&mut self, now: Time) -> bool {
        let transport = self.ws.transport();
        let (sent, unsent) = (transport.sent(), transport.unsent());
        let (span, bytes_taken) = (now.since(self.last_progress_check), sent - self.bytes_taken);
        self.last_progress_check = now;
        self.bytes_taken = sent;
        if unsent == 0 {
            return false;
        }
        // For the next check.
        transport.count_sent();
        let min_bytes = span.as_secs_f64() * f64::from(self.ws.sockets().rate_bytes);
        bytes_taken > 0 && bytes_taken as f64 >= min_bytes
    }

    /// Sets the next deadline; the incomplete message `started_at` then. Messages that postpone the deadline cost nothing: the
    /// postponement is computed when it fires.
    fn arm(&self, started_at: Option<Time>) {
        if self.ws.close_deadline() != Time::NEVER {
            return;
        }
        let limits = &self.ws.sockets().limits;
        let message = started_at.map(|started_at| started_at.after(limits.message_timeout));
        let liveness = match (self.ping_sent_at(), limits.ping_interval) {
            (Some(ping_sent_at), _) => Some(ping_sent_at.after(limits.pong_timeout)),
            (None, interval) => interval.map(|interval| self.last_activity.after(interval)),
        };
        let next = message.into_iter().chain(liveness).min();
        let now = self.ws.sockets().cx.now();
        self.ws.transport().set_deadline(next.map(|next| next.since(now)));
    }
}

impl<S: ?Sized> Drop for WsSession<S> {
    /// Decrements the counters. A worker that stops at once does not call `closed`.
    fn drop(&mut self) {
        self.ws.mark_closed();
        self.release_partial();
    }
}

/// RFC 6455 §7.4.1: a Close without a code; the end without a Close.
const NO_CODE: u16 = 1005;
const LOST: u16 = 1006;
