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
//! sending half's; a message that arrives whole is handed over where it lies. What is needed while bytes are looked at, or a
//! message is not whole, is the worker's ([`Busy`]) and lent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ringmain_engine::Reason;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Event, Inflater, Kind, Message, PeerFault, Piece, Resting, Role,
};

use super::worker::Sockets;
use super::{Cause, Closed, Socket, Ws};
use crate::error::Result;
use crate::limits;
use crate::server::answer;

/// See the module.
pub(crate) struct Live {
    ws: Ws,
    socket: Box<dyn Socket>,
    /// Where the decoder stands if there is no other one in `busy`.
    resting: Resting,
    /// There while a message is not whole, or an inflater has its context.
    busy: Option<Box<Busy>>,
    /// When bytes last arrived.
    heard: Time,
    /// When the budget of control frames was last filled.
    renewed: Time,
    /// When a ping was sent that nothing has followed; `NEVER`: none was.
    pinged: Time,
    /// When the client's progress was last looked at, and how much it had taken.
    looked: Time,
    taken: u64,
    told: bool,
}

const _: () = assert!(
    size_of::<Live>() <= 96,
    "an idle socket is this, beside the connection, the sending half and the application's own"
);

/// A socket on which something happens.
pub(super) struct Busy {
    decoder: Decoder,
    inflater: Option<Box<Inflater>>,
    assembly: Option<Assembly>,
}

/// A message that is not whole.
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

    /// What is to be kept of it until more arrives, if it is nothing that is lent.
    fn rest(&self) -> Option<Resting> {
        let is_empty = self.inflater.is_none() && self.assembly.is_none();
        self.decoder.rest().filter(|_| is_empty)
    }

    /// Gives back what is lent for a message under way.
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

/// An inflater for a message that needs one; `None`: the worker keeps as much as it may.
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

    /// The 101 is on its way.
    pub(crate) fn open(&mut self) {
        self.arm(None);
        self.call(|socket, ws| socket.opened(ws));
    }

    /// Takes what can be taken of `input`; returns how much.
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

    /// The decoder where it stood, in what the worker lends.
    fn wake(&self) -> Box<Busy> {
        let sockets = self.ws.sockets();
        let limits = sockets.frame_limits();
        let decoder = self.resting.wake(Role::Server, &limits, self.ws.deflation());
        sockets.take_busy(decoder)
    }

    /// Keeps of it what is needed when more arrives.
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

    /// Whether the rest is to be looked at later: the connection offers it again when the client has taken what it was sent,
    /// or the application reads on.
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

    /// Keeps a part of a message; `false`: the worker keeps as many as it may.
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

    /// Has the application do something; what it fails with closes the socket.
    fn call(&mut self, call: impl FnOnce(&mut dyn Socket, &Ws) -> Result) {
        let (socket, ws) = (&mut *self.socket, &self.ws);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(socket, ws)));
        if let Err(error) = outcome.unwrap_or_else(|panic| Err(answer::panicked(&*panic))) {
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

    /// Gives back what is lent for a message under way.
    fn give_back(&mut self) {
        if let Some(mut busy) = self.busy.take() {
            busy.give_back(&self.ws);
            self.ws.sockets().put_busy(busy);
        }
    }

    /// When the message began that is not whole.
    fn began(&self) -> Option<Time> {
        let assembly = self.busy.as_ref()?.assembly.as_ref()?;
        Some(assembly.began)
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
            .began()
            .is_some_and(|began| now >= began.after(message_timeout))
        {
            return self.give_up(Cause::SlowMessage, CloseCode::POLICY_VIOLATION);
        }
        if takes || self.ws.is_paused() {
            // It has other things to do than to answer, or is not listened to.
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

    /// Whether the client has taken what it was sent fast enough since the last look.
    fn takes(&mut self, now: Time) -> bool {
        let carrier = self.ws.carrier();
        let (sent, unsent) = (carrier.sent(), carrier.unsent());
        let (span, taken) = (now.since(self.looked), sent - self.taken);
        self.looked = now;
        self.taken = sent;
        if unsent == 0 {
            return false;
        }
        // For the next look.
        carrier.count_sent();
        let due = span.as_secs_f64() * f64::from(self.ws.sockets().rate_bytes);
        taken > 0 && taken as f64 >= due
    }

    /// Sets the deadline to what comes next; a message that is not whole `began` then. Costs nothing while messages come: what
    /// they put off is seen when it fires.
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
    /// A worker that stops at once tells nobody, but what is counted is counted back.
    fn drop(&mut self) {
        self.ws.gone();
        self.give_back();
    }
}

/// RFC 6455 §7.4.1: a Close without a code; the end without a Close.
const NO_CODE: u16 = 1005;
const LOST: u16 = 1006;
