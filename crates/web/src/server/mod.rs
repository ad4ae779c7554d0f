//! An application on one worker: what happens on a connection becomes requests, and replies go back.
//!
//! Owns the order of things on a connection and their deadlines. Knows no route and no framing.

pub(crate) mod admission;
pub(crate) mod answer;
mod connection;
mod deadline;
pub(crate) mod exchange;
mod forward;
mod receive;
pub(crate) mod runner;
mod socket;
pub(crate) mod stream;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::{Addr, Conn, Cx, Handler, Reason, Start, Via};
use ringmain_tls::{AcceptHandle, Tls};
use ringmain_wire::h1::{self, FieldBlock, FieldTable};
use ringmain_wire::proxy;

use self::connection::{Collector, Connection, Phase};
use self::exchange::{EventFraming, Exchange};
use crate::entrance::{Entrance, Kind, StreamHandler};
use crate::error::Error;
use crate::limits;
use crate::local::Local;
use crate::origin::Origin;
use crate::site::Site;
use crate::ws::Live;

/// The handler of one worker: made by [`Site::server`] for an engine.
pub struct Server {
    machine: Machine,
    scratch: Scratch,
}

/// What stays the same from request to request.
struct Machine {
    site: Arc<Site>,
    local: Rc<Local>,
    /// Limits for bodies that are collected.
    http1: h1::Limits,
    #[expect(clippy::vec_box, reason = "they move between here and connections by pointer")]
    collectors: RefCell<Vec<Box<Collector>>>,
    /// Requests until one has its latency taken.
    until_sample: Cell<u32>,
    /// Receipts until the clock is looked at.
    until_timed: Cell<u32>,
    /// What is at hand has waited for longer than patience allows.
    late: Cell<bool>,
    /// By listener; `None` for those in the clear.
    acceptors: Vec<Option<RefCell<AcceptHandle>>>,
}

/// Memory that every plain request of the worker uses in turn. The head that is looked at borrows the table.
struct Scratch {
    table: FieldTable,
    desk: Desk,
}

#[derive(Default)]
struct Desk {
    fields: FieldBlock,
    body: Vec<u8>,
    path: String,
    /// What is written at the end of the step.
    out: Vec<u8>,
}

/// A stream counted at its address leaves the count however it ends.
struct Entered {
    site: Arc<Site>,
    address: Option<IpAddr>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            self.site.admission.leave(address);
        }
    }
}

/// What a connection does after bytes were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Looks at the rest.
    Next,
    /// Waits for more bytes, or for the handler.
    Wait,
    /// Closes when all is sent.
    Close,
    /// The same, reading and dropping meanwhile what the client still sends.
    Linger,
}

impl Server {
    pub(crate) fn new(site: &Arc<Site>, start: Start<Infallible>) -> Server {
        let http1 = h1::Limits {
            body_bytes: Some(site.limits.body_bytes),
            ..site.limits.http1
        };
        if site.access_log.is_some() {
            flush_later(&start.cx, 0);
        }
        Server {
            scratch: Scratch {
                table: FieldTable::new(&site.limits.http1),
                desk: Desk::default(),
            },
            machine: Machine {
                local: Rc::new(Local::new(site, start.cx)),
                http1,
                collectors: RefCell::default(),
                until_sample: Cell::new(0),
                until_timed: Cell::new(0),
                late: Cell::new(false),
                acceptors: site.entrances.iter().map(acceptor).collect(),
                site: Arc::clone(site),
            },
        }
    }
}

#[cfg(feature = "testing")]
impl Server {
    pub(crate) fn local(&self) -> &Rc<Local> {
        &self.machine.local
    }
}

fn acceptor(entrance: &Entrance) -> Option<RefCell<AcceptHandle>> {
    match &entrance.kind {
        Kind::Https(acceptor) => Some(RefCell::new(acceptor.handle())),
        Kind::Http | Kind::Stream(_) => None,
    }
}

/// Whether a TLS handshake is under way.
fn shakes_hands(conn: Conn<'_>) -> bool {
    conn.layer(|tls: &mut Tls| tls.session().is_under_way())
        .unwrap_or(false)
}

/// Ends an event stream in order, whatever its handler waits for: each event is one chunk.
fn end_events(conn: Conn<'_>, exchange: &Exchange) {
    match exchange.events.get() {
        Some(EventFraming::Chunked) => {
            // Refused only when the connection is over.
            let _ = conn.write(b"0\r\n\r\n");
            conn.close();
        }
        Some(EventFraming::Unframed) => conn.close(),
        None => {}
    }
}

/// Lines of the access log are at most so late.
fn flush_later(cx: &Cx, key: u64) {
    // Without a free timer the next full block takes the lines along.
    let _ = cx.timer(limits::ACCESS_LOG_FLUSH, key);
}

impl Machine {
    /// Writes what was encoded, and begins what follows from it.
    fn flush(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>, then: Then) {
        if !out.is_empty() {
            // Refused only when the connection is over, which `closed` tells.
            let _ = conn.write(out);
            out.clear();
            out.shrink_to(limits::SCRATCH_BYTES);
        }
        match then {
            Then::Next | Then::Wait => {}
            Then::Close => conn.close(),
            Then::Linger => self.linger(conn, state),
        }
    }

    /// After the last answer: FIN, and what the client still sends is dropped for a while (RFC 9112 §9.6).
    fn linger(&self, conn: Conn<'_>, state: &mut Connection) {
        state.phase = Phase::Lingering {
            left: self.site.limits.linger_bytes,
        };
        conn.shutdown();
        conn.set_deadline(Some(self.site.limits.linger));
    }

    /// Hands on more of a large answer as the client takes it.
    fn send_rest(&self, conn: Conn<'_>, state: &mut Connection) {
        let Phase::Sending { rest, then, unwanted } = &mut state.phase else {
            return;
        };
        let then = *then;
        while !rest.is_empty() && conn.unsent() <= WRITE_MARK {
            let share = rest.split_to(rest.len().min(limits::SEND_SHARE));
            if conn.write_frame(share).is_err() {
                return;
            }
        }
        if !rest.is_empty() {
            return conn.set_deadline(Some(limits::RATE_TICK));
        }
        state.phase = unwanted.take().map_or(Phase::Head, Phase::Discarding);
        match then {
            Then::Linger => self.linger(conn, state),
            Then::Close => conn.close(),
            // The client may have ended its side meanwhile, or the shutdown has begun.
            _ if state.last => self.linger(conn, state),
            _ => self.arm(conn, state),
        }
    }

    /// A connection as it comes, known by where it comes from.
    fn arrived(&self, conn: Conn<'_>, via: Via) -> Connection {
        let remote = match conn.peer_addr() {
            Ok(Some(Addr::Inet(address))) => Some(address),
            _ => None,
        };
        let listener = match via {
            Via::Listener(number) => number,
            Via::Connect => u32::MAX,
        };
        let origin = Origin {
            conn: conn.id(),
            remote,
            listener,
            secure: false,
        };
        Connection::new(self.local.cx.now(), origin)
    }

    /// Counts it at its address; whether that has room.
    fn admit(&self, state: &mut Connection) -> bool {
        let admission = &self.site.admission;
        match state.origin.remote {
            Some(address) if admission.counts() => {
                state.counted = admission.enter(address.ip());
                state.counted
            }
            _ => true,
        }
    }

    /// Lets a client in whose address is known; whether the connection goes on.
    fn enter(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) -> bool {
        let by_tls = matches!(self.acceptors.get(state.origin.listener as usize), Some(Some(_)));
        if !self.admit(state) {
            if by_tls {
                // There is no saying why before a handshake.
                return false;
            }
            let error = Error::new(503, "this address has as many connections as it may")
                .with_header("Retry-After", "1");
            answer::refuse(&self.local, &error, h1::Exchange::REFUSED, out);
            self.local.stats.answered(503);
            // Its request is on its way already: read and dropped, or the reset for it would cost it the answer.
            self.flush(conn, state, out, Then::Linger);
            return true;
        }
        let limits = &self.site.limits;
        state.origin.secure = self.secure(conn, state.origin.listener);
        let span = if state.origin.secure {
            limits.handshake_timeout
        } else {
            limits.header_timeout
        };
        conn.set_deadline(Some(span));
        true
    }

    /// Takes the header that says who the client is; how many bytes that were.
    fn proxied(&self, conn: Conn<'_>, state: &mut Connection, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        match proxy::parse(bytes) {
            Ok(proxy::Parsed::Partial) => 0,
            Ok(proxy::Parsed::Complete {
                header,
                bytes: length,
            }) => {
                if let Some(addresses) = header.addresses {
                    state.origin.remote = Some(addresses.from);
                }
                state.phase = Phase::Head;
                state.began = self.local.cx.now();
                if self.enter(conn, state, out) {
                    return length;
                }
                conn.close();
                bytes.len()
            }
            Err(fault) => {
                log::debug!("{:?}: {fault}", state.origin.remote);
                conn.close();
                bytes.len()
            }
        }
    }

    /// Takes it from the count at its address.
    fn leave(&self, state: &Connection) {
        if state.counted
            && let Some(remote) = state.origin.remote
        {
            self.site.admission.leave(remote.ip());
        }
    }

    /// Puts TLS in place where the listener has it.
    fn secure(&self, conn: Conn<'_>, listener: u32) -> bool {
        let Some(Some(acceptor)) = self.acceptors.get(listener as usize) else {
            return false;
        };
        let session = acceptor.borrow_mut().accept(self.local.cx.wall());
        conn.secure(Box::new(session));
        true
    }

    fn entrance(&self, listener: u32) -> Option<&Entrance> {
        self.site.entrances.get(listener as usize)
    }

    /// Hands a connection to a handler of bytes.
    fn stream(&self, conn: Conn<'_>, state: &Connection, handler: &Arc<StreamHandler>) {
        let place = state.counted.then(|| Entered {
            site: Arc::clone(&self.site),
            address: state.origin.remote.map(|address| address.ip()),
        });
        let served = handler(conn.into_stream());
        let task = async move {
            served.await;
            drop(place);
        };
        // Without room for a task the stream is dropped, which closes the connection.
        let _ = self.local.cx.spawn(task);
    }

    fn refuse(&self, state: &Connection, error: &Error, exchange: h1::Exchange, out: &mut Vec<u8>) -> Then {
        self.local
            .log_refused(state.origin.remote, error.status(), state.began);
        self.local.stats.answered(error.status());
        self.local.stats.refused();
        answer::refuse(&self.local, error, exchange, out);
        Then::Linger
    }
}

impl Handler for Server {
    type Conn = Connection;
    type Mail = Infallible;

    fn name(&self) -> &'static str {
        "app"
    }

    fn open(&mut self, conn: Conn<'_>, via: Via) -> Option<Connection> {
        let mut state = self.machine.arrived(conn, via);
        let entrance = self.machine.entrance(state.origin.listener);
        if let Some(Entrance {
            kind: Kind::Stream(handler),
            ..
        }) = entrance
        {
            // It closes: there is no saying why in a protocol that is not known.
            if self.machine.admit(&mut state) {
                self.machine.stream(conn, &state, handler);
            }
            return None;
        }
        if let Some(proxied) = entrance.and_then(|entrance| entrance.proxied.as_ref()) {
            let peer = state.origin.remote.map(|address| address.ip());
            if !(proxied.trusts)(peer) {
                return None;
            }
            state.phase = Phase::Proxied;
            conn.set_deadline(Some(proxied.timeout));
            return Some(state);
        }
        let entered = self.machine.enter(conn, &mut state, &mut self.scratch.desk.out);
        entered.then_some(state)
    }

    fn secured(&mut self, conn: Conn<'_>, _state: &mut Connection) {
        conn.set_deadline(Some(self.machine.site.limits.header_timeout));
    }

    fn insecure(&mut self, conn: Conn<'_>, state: &mut Connection) {
        let fault = conn.layer(|tls: &mut Tls| tls.fault().map(ToString::to_string));
        let remote = state
            .origin
            .remote
            .map_or_else(|| "unix".to_owned(), |address| address.to_string());
        log::debug!("{remote}: TLS: {}", fault.flatten().unwrap_or_default());
    }

    fn data(&mut self, conn: Conn<'_>, state: &mut Connection, bytes: &mut [u8]) -> usize {
        state.settle(self.machine.site.limits.linger_bytes);
        let mut consumed = 0;
        if matches!(state.phase, Phase::Proxied) {
            consumed = self
                .machine
                .proxied(conn, state, bytes, &mut self.scratch.desk.out);
            // What is behind the header may have to be decrypted first.
            if matches!(state.phase, Phase::Proxied) || state.origin.secure {
                return consumed;
            }
        }
        if !matches!(state.phase, Phase::Socket(_)) {
            consumed += self
                .machine
                .receive(conn, state, &bytes[consumed..], &mut self.scratch);
        }
        consumed + self.machine.socket_data(conn, state, &mut bytes[consumed..])
    }

    fn end(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.settle(self.machine.site.limits.linger_bytes);
        state.last = true;
        match &state.phase {
            // Nobody can send the rest of a head or body any more; what is not whole is not answered.
            Phase::Proxied
            | Phase::Head
            | Phase::Collecting(_)
            | Phase::Discarding(_)
            | Phase::Lingering { .. } => conn.close(),
            // A client may end its side after its last request and still read.
            Phase::Sending { .. } => {}
            Phase::Socket(_) => {
                self.machine.on_socket(conn, state, Live::end);
                conn.close();
            }
            Phase::Running { exchange, .. } => {
                exchange.last.set(true);
                exchange.end_of_input();
                exchange.wake();
                end_events(conn, exchange);
            }
        }
    }

    fn drained(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.settle(self.machine.site.limits.linger_bytes);
        match &state.phase {
            Phase::Sending { .. } => self.machine.send_rest(conn, state),
            Phase::Running { exchange, .. } => exchange.wake(),
            Phase::Socket(_) => {
                self.machine.on_socket(conn, state, Live::drained);
            }
            _ => {}
        }
    }

    fn deadline(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.settle(self.machine.site.limits.linger_bytes);
        self.machine.on_deadline(conn, state, &mut self.scratch.desk.out);
    }

    fn drain(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.settle(self.machine.site.limits.linger_bytes);
        state.last = true;
        match &state.phase {
            // Who is agreeing on keys is about to ask: it gets its answer, and is closed with that.
            Phase::Head if !state.begun && shakes_hands(conn) => {}
            Phase::Proxied => conn.close(),
            Phase::Head if !state.begun => conn.close(),
            Phase::Socket(_) => {
                self.machine.on_socket(conn, state, Live::drain);
            }
            Phase::Running { exchange, .. } => {
                exchange.last.set(true);
                end_events(conn, exchange);
            }
            _ => {}
        }
    }

    fn timer(&mut self, cx: &Cx, key: u64) {
        if let Some(access) = &self.machine.local.access {
            access.borrow_mut().flush();
            flush_later(cx, key);
        }
    }

    fn closed(&mut self, cx: &Cx, state: Connection, _reason: Reason) {
        self.machine.leave(&state);
        match state.phase {
            Phase::Running { exchange, serial } if exchange.runs(serial) => {
                if let Some(task) = exchange.task() {
                    cx.cancel(task);
                }
                if exchange.was_not_begun() {
                    // Its task would have done so.
                    self.machine.local.runners.leave();
                }
            }
            Phase::Collecting(collector) => self.machine.put_collector(collector),
            Phase::Socket(mut live) => live.lost(),
            _ => {}
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server on worker {}", self.machine.local.cx.worker())
    }
}
