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
//! or for an incomplete message belongs to the worker ([`Busy`]) and is borrowed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ringmain_engine::Reason;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Event, Inflater, Kind, Message, PeerFault, Piece, Resting, Role,
};

use super::worker_state::Sockets;
use super::{Cause, Closed, Socket, Ws};
use crate::http::error::Result;
use crate::limits;
use crate::server::response;

/// See the module.
pub(crate) struct Live {
    ws: Ws,
    socket: Box<dyn Socket>,
    /// The state of the decoder while `busy` has none.
    resting: Resting,
    /// Present while a message is incomplete, or an inflater has its context.
    busy: Option<Box<Busy>>,
    /// The time at which bytes last arrived.
    heard: Time,
    /// The time of the last refill of the budget of control frames.
    renewed: Time,
    /// The time of a ping that nothing has followed; `NEVER`: none is pending.
    pinged: Time,
    /// The time of the last check of the client's progress, and the bytes that it had taken by then.
    looked: Time,
    taken: u64,
    told: bool,
}

const _: () = assert!(
    size_of::<Live>() <= 96,
    "an idle socket is this, beside the connection, the sending half and the application's own"
);

/// The decoding state of an active socket.
pub(super) struct Busy {
    decoder: Decoder,
    inflater: Option<Box<Inflater>>,
    assembly: Option<Assembly>,
}

/// An incomplete message.
struct Assembly {
    bytes: Vec<u8>,
    began: Time,
}

impl Busy {
    pub(super) fn new(decoder: Decoder) -> Busy {
        Busy {
            decoder,
            inflater: None,
            assembly: None,
        }
    }

    /// Returns the compact state to retain until more arrives, unless borrowed state is in use.
    fn rest(&self) -> Option<Resting> {
        let is_empty = self.inflater.is_none() && self.assembly.is_none();
        self.decoder.rest().filter(|_| is_empty)
    }

    /// Releases the state borrowed for an incomplete message.
    fn give_back(&mut self, ws: &Ws) {
        if let Some(assembly) = self.assembly.take() {
            assembly.put_back(ws.sockets());
        }
        if let Some(inflater) = self.inflater.take() {
            put_inflater(ws, inflater);
        }
    }
}

impl Assembly {
    fn put_back(self, sockets: &Sockets) {
        sockets.release(self.bytes.len());
        sockets.put_buffer(self.bytes);
    }
}

/// Takes an inflater for a message that needs one; `None`: the worker's memory for incomplete messages is used up.
fn lend_inflater(ws: &Ws) -> Option<Box<Inflater>> {
    let sockets = ws.sockets();
    let fits = ws.keeps_inflater() || sockets.reserve(limits::INFLATER_BYTES);
    fits.then(|| sockets.take_inflater())
}

fn put_inflater(ws: &Ws, inflater: Box<Inflater>) {
    let sockets = ws.sockets();
    if !ws.keeps_inflater() {
        sockets.release(limits::INFLATER_BYTES);
    }
    sockets.put_inflater(inflater);
}

impl Live {
    pub(super) fn new(ws: Ws, socket: Box<dyn Socket>) -> Live {
        let sockets = ws.sockets();
        let now = sockets.cx.now();
        sockets.stats.socket_opened();
        Live {
            resting: Resting::new(&sockets.frame_limits()),
            busy: None,
            ws,
            socket,
            heard: now,
            renewed: now,
            pinged: Time::NEVER,
            looked: now,
            taken: 0,
            told: false,
        }
    }

    /// Called when the 101 was sent.
    pub(crate) fn open(&mut self) {
        self.arm(None);
        self.call(|socket, ws| socket.opened(ws));
    }

    /// Processes `input` as far as possible and returns the number of consumed bytes.
    pub(crate) fn receive(&mut self, input: &mut [u8]) -> usize {
        let mut busy = self.busy.take().unwrap_or_else(|| self.wake());
        self.look_at_the_clock(&mut busy.decoder);
        let mut inflater = busy.inflater.take();
        let mut at = 0;
        loop {
            let step = match busy.decoder.decode(&mut input[at..], inflater.as_deref_mut()) {
                Ok(step) => step,
                Err(fault) => {
                    self.fault(&fault);
                    at = input.len();
                    break;
                }
            };
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::NeedInflater => match lend_inflater(&self.ws) {
                    Some(lent) => inflater = Some(lent),
                    None => self.give_up(Cause::Overloaded, CloseCode::TRY_AGAIN_LATER),
                },
                Event::Piece(piece) => self.piece(&piece, &mut busy.assembly),
                Event::Ping(data) => self.ws.pong(data),
                Event::Pong(_) => {}
                Event::Close(close) => self.closed_by_client(close),
            }
            if self.told || self.must_wait() {
                break;
            }
        }
        if let Some(idle) = inflater {
            if busy.decoder.keeps_inflater() && !self.told {
                busy.inflater = Some(idle);
            } else {
                put_inflater(&self.ws, idle);
            }
        }
        self.settle(busy);
        if self.told { input.len() } else { at }
    }

    /// Restores the decoder into state borrowed from the worker.
    fn wake(&self) -> Box<Busy> {
        let sockets = self.ws.sockets();
        let limits = sockets.frame_limits();
        let decoder = self.resting.wake(Role::Server, &limits, self.ws.deflation());
        sockets.take_busy(decoder)
    }

    /// Retains the state that is needed when more arrives.
    fn settle(&mut self, mut busy: Box<Busy>) {
        if self.told {
            busy.give_back(&self.ws);
        } else if let Some(resting) = busy.rest() {
            self.resting = resting;
        } else {
            self.busy = Some(busy);
            return;
        }
        self.ws.sockets().put_busy(busy);
    }

    /// Returns true if the remaining bytes must wait: the connection offers them again when the client has taken the queued bytes,
    /// or the application resumes reading.
    pub(crate) fn must_wait(&self) -> bool {
        self.ws.is_paused() || self.ws.carrier().unsent() > WRITE_MARK
    }

    fn look_at_the_clock(&mut self, decoder: &mut Decoder) {
        let now = self.ws.sockets().cx.now();
        self.heard = now;
        self.pinged = Time::NEVER;
        if now.since(self.renewed) >= limits::CONTROL_PERIOD {
            self.renewed = now;
            decoder.renew_budget();
        }
    }

    fn piece(&mut self, piece: &Piece<'_>, assembly: &mut Option<Assembly>) {
        if piece.first && piece.last {
            return match piece.kind {
                Kind::Text => self.deliver(Message::Text(piece.text.expect("a whole text is text"))),
                Kind::Binary => self.deliver(Message::Binary(piece.data)),
            };
        }
        if !self.assemble(piece.data, assembly) {
            return self.give_up(Cause::Overloaded, CloseCode::TRY_AGAIN_LATER);
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
        assembly.put_back(self.ws.sockets());
    }

    /// Appends a part of a message; `false`: it exceeds the worker's memory for incomplete messages.
    fn assemble(&mut self, data: &[u8], assembly: &mut Option<Assembly>) -> bool {
        let sockets = self.ws.sockets();
        let is_new = assembly.is_none();
        let assembly = assembly.get_or_insert_with(|| Assembly {
            bytes: sockets.take_buffer(),
            began: sockets.cx.now(),
        });
        if !sockets.reserve(data.len()) {
            return false;
        }
        assembly.bytes.extend_from_slice(data);
        if is_new {
            self.arm(Some(assembly.began));
        }
        true
    }

    fn deliver(&mut self, message: Message<'_>) {
        self.ws.sockets().stats.message_in();
        self.call(|socket, ws| socket.message(ws, message));
    }

    /// Calls the application; an error or a panic closes the socket.
    fn call(&mut self, call: impl FnOnce(&mut dyn Socket, &Ws) -> Result) {
        let (socket, ws) = (&mut *self.socket, &self.ws);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(socket, ws)));
        if let Err(error) = outcome.unwrap_or_else(|panic| Err(response::panicked(&*panic))) {
            super::stream::close_for(ws, &error);
        }
    }

    fn closed_by_client(&mut self, close: Option<Close<'_>>) {
        self.ws.answer_close(close.map(|close| close.code));
        self.tell(&Closed {
            code: close.map_or(NO_CODE, |close| close.code.number()),
            reason: close.map_or("", |close| close.reason),
            cause: self.ws.cause().unwrap_or(Cause::Client),
        });
    }

    fn fault(&mut self, fault: &PeerFault) {
        log::debug!("{:?}: {fault}", self.ws);
        let cause = Cause::Fault(fault.kind);
        match fault.close_code() {
            Some(code) => self.give_up(cause, code),
            None => self.lost(),
        }
    }

    /// Sends a Close without waiting for the client's (RFC 6455 §7.1.7).
    fn give_up(&mut self, cause: Cause, code: CloseCode) {
        self.ws.close_because(code, "", cause);
        self.tell(&Closed {
            code: code.number(),
            reason: "",
            cause,
        });
    }

    /// Notifies the application of the end, once.
    fn tell(&mut self, closed: &Closed<'_>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        self.ws.sockets().stats.socket_closed();
        self.ws.gone();
        self.give_back();
        let socket = &mut *self.socket;
        if catch_unwind(AssertUnwindSafe(|| socket.closed(closed))).is_err() {
            log::error!("{:?}: the socket panicked at its end", self.ws);
        }
    }

    /// Releases the state borrowed for an incomplete message.
    fn give_back(&mut self) {
        if let Some(mut busy) = self.busy.take() {
            busy.give_back(&self.ws);
            self.ws.sockets().put_busy(busy);
        }
    }

    /// Returns the start time of the incomplete message.
    fn began(&self) -> Option<Time> {
        let assembly = self.busy.as_ref()?.assembly.as_ref()?;
        Some(assembly.began)
    }

    /// Returns true if only the engine's queued bytes and FIN remain to be sent.
    pub(crate) fn is_over(&self) -> bool {
        self.told && self.ws.is_handed_over()
    }

    /// Called when the client has taken most of the queued bytes.
    pub(crate) fn drained(&mut self) {
        self.ws.refill();
        if !self.told && !self.ws.is_full() {
            self.call(|socket, ws| socket.drained(ws));
        }
    }

    /// Called when the client has sent its last byte.
    pub(crate) fn end(&mut self) {
        self.lost();
    }

    /// Called when the connection is lost.
    pub(crate) fn lost(&mut self) {
        self.tell(&Closed {
            code: LOST,
            reason: "",
            cause: self.ws.cause().unwrap_or(Cause::Lost),
        });
    }

    /// Called when the process shuts down.
    pub(crate) fn drain(&mut self) {
        let mut closes_itself = false;
        if !self.told {
            self.call(|socket, ws| {
                closes_itself = socket.shuts_down(ws);
                Ok(())
            });
        }
        if !closes_itself {
            self.ws.close_because(CloseCode::GOING_AWAY, "", Cause::Shutdown);
        }
    }

    /// Handles the deadline: sends a ping, extends the deadline, or ends the socket.
    pub(crate) fn on_deadline(&mut self) {
        let limits = &self.ws.sockets().limits;
        let (pong_timeout, message_timeout, close_timeout) =
            (limits.pong_timeout, limits.message_timeout, limits.close_timeout);
        let ping_interval = limits.ping_interval;
        let now = self.ws.sockets().cx.now();
        let takes = self.takes(now);
        if self.ws.close_by() != Time::NEVER {
            return self.wait_for_the_end(now, takes, close_timeout);
        }
        if self
            .began()
            .is_some_and(|began| now >= began.after(message_timeout))
        {
            return self.give_up(Cause::SlowMessage, CloseCode::POLICY_VIOLATION);
        }
        if takes || self.ws.is_paused() {
            // The client is busy receiving, or the application does not read: silence proves nothing.
            self.heard = now;
            self.pinged = Time::NEVER;
        }
        match (self.pinged(), ping_interval) {
            (Some(pinged), _) if now >= pinged.after(pong_timeout) => {
                self.tell(&Closed {
                    code: LOST,
                    reason: "",
                    cause: Cause::Silent,
                });
                return self.ws.carrier().abort_because(Reason::Deadline);
            }
            (None, Some(interval)) if now >= self.heard.after(interval) => {
                self.ws.ping();
                self.pinged = now;
            }
            _ => {}
        }
        self.arm(self.began());
    }

    fn pinged(&self) -> Option<Time> {
        (self.pinged != Time::NEVER).then_some(self.pinged)
    }

    fn wait_for_the_end(&mut self, now: Time, takes: bool, span: Duration) {
        let carrier = self.ws.carrier();
        if takes {
            self.ws.close_later(span);
        }
        let by = self.ws.close_by();
        if now < by {
            return carrier.set_deadline(Some(by.since(now)));
        }
        carrier.abort_because(Reason::Deadline);
        self.lost();
    }

    /// Returns true if the client has taken queued bytes fast enough since the last check.
    fn takes(&mut self, now: Time) -> bool {
        let carrier = self.ws.carrier();
        let (sent, unsent) = (carrier.sent(), carrier.unsent());
        let (span, taken) = (now.since(self.looked), sent - self.taken);
        self.looked = now;
        self.taken = sent;
        if unsent == 0 {
            return false;
        }
        // For the next check.
        carrier.count_sent();
        let due = span.as_secs_f64() * f64::from(self.ws.sockets().rate_bytes);
        taken > 0 && taken as f64 >= due
    }

    /// Sets the next deadline; the incomplete message `began` then. Messages that postpone the deadline cost nothing: the
    /// postponement is computed when it fires.
    fn arm(&self, began: Option<Time>) {
        if self.ws.close_by() != Time::NEVER {
            return;
        }
        let limits = &self.ws.sockets().limits;
        let message = began.map(|began| began.after(limits.message_timeout));
        let sign = match (self.pinged(), limits.ping_interval) {
            (Some(pinged), _) => Some(pinged.after(limits.pong_timeout)),
            (None, interval) => interval.map(|interval| self.heard.after(interval)),
        };
        let next = message.into_iter().chain(sign).min();
        let now = self.ws.sockets().cx.now();
        self.ws.carrier().set_deadline(next.map(|next| next.since(now)));
    }
}

impl Drop for Live {
    /// Decrements the counters. A worker that stops at once does not call `closed`.
    fn drop(&mut self) {
        self.ws.gone();
        self.give_back();
    }
}

/// RFC 6455 §7.4.1: a Close without a code; the end without a Close.
const NO_CODE: u16 = 1005;
const LOST: u16 = 1006;
