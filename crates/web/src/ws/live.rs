//! What comes into a socket: frames become messages, the closing handshake is kept to, silence and slowness end it.
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
//! `closed` is told on the way into `Over`, or at the end of the connection, once. An idle socket is this record and the
//! sending half's; a message that arrives whole is handed over where it lies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ringmain_engine::Reason;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::ws::{
    self, Close, CloseCode, Decoder, Deflation, Event, Inflater, Kind, Message, PeerFault, Piece, Role,
};

use super::{Cause, Closed, Socket, Ws};
use crate::error::Result;
use crate::limits;
use crate::server::answer;

/// See the module.
pub(crate) struct Live {
    ws: Ws,
    socket: Box<dyn Socket>,
    decoder: Decoder,
    inflater: Option<Box<Inflater>>,
    assembly: Option<Assembly>,
    /// When bytes last arrived.
    heard: Time,
    /// When the budget of control frames was last filled.
    renewed: Time,
    /// When a ping was sent that nothing has followed.
    pinged: Option<Time>,
    /// When the client's progress was last looked at, and how much it had taken.
    looked: Time,
    taken: u64,
    told: bool,
}

const _: () = assert!(
    size_of::<Live>() <= 320,
    "an idle socket is this, beside the connection, the sending half and the application's own"
);

/// A message that is not whole.
struct Assembly {
    bytes: Vec<u8>,
    began: Time,
}

impl Live {
    pub(super) fn new(ws: Ws, socket: Box<dyn Socket>, deflation: Option<Deflation>) -> Live {
        let sockets = ws.sockets();
        let now = sockets.cx.now();
        let limits = ws::Limits {
            frame_bytes: sockets.limits.frame_bytes,
            message_bytes: sockets.limits.message_bytes,
            control_frames: sockets.limits.control_frames,
        };
        sockets.stats.socket_opened();
        Live {
            decoder: Decoder::new(Role::Server, &limits, deflation),
            ws,
            socket,
            inflater: None,
            assembly: None,
            heard: now,
            renewed: now,
            pinged: None,
            looked: now,
            taken: 0,
            told: false,
        }
    }

    /// The 101 is on its way.
    pub(crate) fn open(&mut self) {
        self.arm();
        self.call(|socket, ws| socket.opened(ws));
    }

    /// Takes what can be taken of `input`; returns how much.
    pub(crate) fn receive(&mut self, input: &mut [u8]) -> usize {
        self.look_at_the_clock();
        let mut inflater = self.inflater.take();
        let mut at = 0;
        loop {
            let step = match self.decoder.decode(&mut input[at..], inflater.as_deref_mut()) {
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
                Event::NeedInflater => match self.lend_inflater() {
                    Some(lent) => inflater = Some(lent),
                    None => self.give_up(Cause::Overloaded, CloseCode::TRY_AGAIN_LATER),
                },
                Event::Piece(piece) => self.piece(&piece),
                Event::Ping(data) => self.ws.pong(data),
                Event::Pong(_) => {}
                Event::Close(close) => self.closed_by_client(close),
            }
            if self.told || self.must_wait() {
                break;
            }
        }
        if let Some(idle) = inflater {
            if self.decoder.keeps_inflater() && !self.told {
                self.inflater = Some(idle);
            } else {
                self.put_inflater(idle);
            }
        }
        if self.told { input.len() } else { at }
    }

    /// Whether the rest is to be looked at later: the engine offers it again when the client has taken what it was sent,
    /// or the application reads on.
    fn must_wait(&self) -> bool {
        self.ws.is_paused() || self.ws.conn().unsent() > WRITE_MARK
    }

    fn look_at_the_clock(&mut self) {
        let now = self.ws.sockets().cx.now();
        self.heard = now;
        self.pinged = None;
        if now.since(self.renewed) >= limits::CONTROL_PERIOD {
            self.renewed = now;
            self.decoder.renew_budget();
        }
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        if piece.first && piece.last {
            return match piece.kind {
                Kind::Text => self.deliver(Message::Text(piece.text.expect("a whole text is text"))),
                Kind::Binary => self.deliver(Message::Binary(piece.data)),
            };
        }
        if !self.assemble(piece.data) {
            return self.give_up(Cause::Overloaded, CloseCode::TRY_AGAIN_LATER);
        }
        if !piece.last {
            return;
        }
        let Some(assembly) = self.assembly.take() else {
            return;
        };
        match piece.kind {
            Kind::Text => match str::from_utf8(&assembly.bytes) {
                Ok(text) => self.deliver(Message::Text(text)),
                Err(_) => unreachable!("the decoder has checked each piece"),
            },
            Kind::Binary => self.deliver(Message::Binary(&assembly.bytes)),
        }
        self.put_assembly(assembly);
    }

    /// Keeps a part of a message; `false`: the worker keeps as many as it may.
    fn assemble(&mut self, data: &[u8]) -> bool {
        let sockets = self.ws.sockets();
        let is_new = self.assembly.is_none();
        let assembly = self.assembly.get_or_insert_with(|| Assembly {
            bytes: sockets.take_buffer(),
            began: sockets.cx.now(),
        });
        if !sockets.reserve(data.len()) {
            return false;
        }
        assembly.bytes.extend_from_slice(data);
        if is_new {
            self.arm();
        }
        true
    }

    fn put_assembly(&mut self, assembly: Assembly) {
        let sockets = self.ws.sockets();
        sockets.release(assembly.bytes.len());
        sockets.put_buffer(assembly.bytes);
    }

    /// An inflater for a message that needs one; `None`: the worker keeps as much as it may.
    fn lend_inflater(&self) -> Option<Box<Inflater>> {
        let sockets = self.ws.sockets();
        let fits = self.ws.keeps_inflater() || sockets.reserve(limits::INFLATER_BYTES);
        fits.then(|| sockets.take_inflater())
    }

    fn put_inflater(&self, inflater: Box<Inflater>) {
        let sockets = self.ws.sockets();
        if !self.ws.keeps_inflater() {
            sockets.release(limits::INFLATER_BYTES);
        }
        sockets.put_inflater(inflater);
    }

    /// Gives back what is lent for a message under way.
    fn give_back(&mut self) {
        if let Some(assembly) = self.assembly.take() {
            self.put_assembly(assembly);
        }
        if let Some(inflater) = self.inflater.take() {
            self.put_inflater(inflater);
        }
    }

    fn deliver(&mut self, message: Message<'_>) {
        self.ws.sockets().stats.message_in();
        self.call(|socket, ws| socket.message(ws, message));
    }

    /// Has the application do something; what it fails with closes the socket.
    fn call(&mut self, call: impl FnOnce(&mut dyn Socket, &Ws) -> Result) {
        let (socket, ws) = (&mut *self.socket, &self.ws);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(socket, ws)));
        if let Err(error) = outcome.unwrap_or_else(|_| Err(answer::panicked())) {
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

    /// Sends a Close and waits for no answer (RFC 6455 §7.1.7).
    fn give_up(&mut self, cause: Cause, code: CloseCode) {
        self.ws.close_because(code, "", cause);
        self.tell(&Closed {
            code: code.number(),
            reason: "",
            cause,
        });
    }

    /// Tells the application the end, once.
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

    /// Whether the connection has nothing left to do but to send what the engine has, and FIN.
    pub(crate) fn is_over(&self) -> bool {
        self.told && self.ws.is_handed_over()
    }

    /// The client has taken most of what it was sent.
    pub(crate) fn drained(&mut self) {
        self.ws.refill();
        if !self.told && !self.ws.is_full() {
            self.call(|socket, ws| socket.drained(ws));
        }
    }

    /// The client has sent its last byte.
    pub(crate) fn end(&mut self) {
        let _ = self.decoder.end_of_input();
        self.lost();
    }

    /// The connection is over.
    pub(crate) fn lost(&mut self) {
        self.tell(&Closed {
            code: LOST,
            reason: "",
            cause: self.ws.cause().unwrap_or(Cause::Lost),
        });
    }

    /// The process is shutting down.
    pub(crate) fn drain(&mut self) {
        self.ws.close_because(CloseCode::GOING_AWAY, "", Cause::Shutdown);
    }

    /// Looks at what has become of the client: a ping, more patience, or the end.
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
            .assembly
            .as_ref()
            .is_some_and(|assembly| now >= assembly.began.after(message_timeout))
        {
            return self.give_up(Cause::SlowMessage, CloseCode::POLICY_VIOLATION);
        }
        if takes || self.ws.is_paused() {
            // It has other things to do than to answer, or is not listened to.
            self.heard = now;
            self.pinged = None;
        }
        match (self.pinged, ping_interval) {
            (Some(pinged), _) if now >= pinged.after(pong_timeout) => {
                self.tell(&Closed {
                    code: LOST,
                    reason: "",
                    cause: Cause::Silent,
                });
                return self.ws.conn().abort_because(Reason::Deadline);
            }
            (None, Some(interval)) if now >= self.heard.after(interval) => {
                self.ws.ping();
                self.pinged = Some(now);
            }
            _ => {}
        }
        self.arm();
    }

    fn wait_for_the_end(&mut self, now: Time, takes: bool, span: Duration) {
        let conn = self.ws.conn();
        if takes {
            self.ws.close_later(span);
        }
        let by = self.ws.close_by();
        if now < by {
            return conn.set_deadline(Some(by.since(now)));
        }
        conn.abort_because(Reason::Deadline);
        self.lost();
    }

    /// Whether the client has taken what it was sent fast enough since the last look.
    fn takes(&mut self, now: Time) -> bool {
        let conn = self.ws.conn();
        let (sent, unsent) = (conn.sent(), conn.unsent());
        let (span, taken) = (now.since(self.looked), sent - self.taken);
        self.looked = now;
        self.taken = sent;
        if unsent == 0 {
            return false;
        }
        // For the next look.
        conn.count_sent();
        let due = span.as_secs_f64() * f64::from(self.ws.sockets().rate_bytes);
        taken > 0 && taken as f64 >= due
    }

    /// Sets the deadline to what comes next. Costs nothing while messages come: what they put off is seen when it fires.
    fn arm(&self) {
        if self.ws.close_by() != Time::NEVER {
            return;
        }
        let limits = &self.ws.sockets().limits;
        let message = self
            .assembly
            .as_ref()
            .map(|assembly| assembly.began.after(limits.message_timeout));
        let sign = match (self.pinged, limits.ping_interval) {
            (Some(pinged), _) => Some(pinged.after(limits.pong_timeout)),
            (None, interval) => interval.map(|interval| self.heard.after(interval)),
        };
        let next = message.into_iter().chain(sign).min();
        let now = self.ws.sockets().cx.now();
        self.ws.conn().set_deadline(next.map(|next| next.since(now)));
    }
}

impl Drop for Live {
    /// A worker that stops at once tells nobody, but what is counted is counted back.
    fn drop(&mut self) {
        self.ws.gone();
        self.give_back();
    }
}

/// RFC 6455 §7.4.1: a Close without a code; the end without a Close.
const NO_CODE: u16 = 1005;
const LOST: u16 = 1006;
