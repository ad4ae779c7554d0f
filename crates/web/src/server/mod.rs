//! An application on one worker: turns the events of a connection into requests, and sends the replies.
//!
//! Owns the order of events on a connection and their deadlines. Knows no route and no framing.

pub(crate) mod accept;
mod aggregate;
mod body_progress;
mod connection;
pub(crate) mod connection_limit;
mod deadline;
pub(crate) mod exchange;
pub(crate) mod fast_path;
mod forward;
pub(crate) mod http2;
pub(crate) mod memory_budget;
pub(crate) mod overload;
pub(crate) mod peer;
pub(crate) mod preamble;
mod receive;
pub(crate) mod rejected;
pub(crate) mod response;
pub(crate) mod response_stream;
pub(crate) mod stream_connection;
pub(crate) mod task_pool;
mod websocket;
pub(crate) mod worker_context;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::{Conn, Cx, Handler, Reason, Start, Via};
use ringmain_tls::Tls;
use ringmain_wire::h1::{self, FieldBlock, FieldTable};
use ringmain_wire::h2::{self, HeadBuffer};

pub use self::fast_path::{Early, Ticket, TicketId};
pub use self::response_stream::EventStream;
pub use self::stream_connection::{Incoming, Logging, Passed};

use self::accept::Ways;
use self::connection::{Collector, Connection, Phase, Sending};
use self::exchange::Exchange;
use self::http2::Heads;
use self::overload::Overload;
use self::response_stream::EventFraming;
use crate::app::compiled::Site;
use crate::limits;
use crate::server::worker_context::WorkerContext;
use crate::ws::Live;

/// The handler of one worker, made by [`Site::server`] for an engine.
pub struct Server {
    machine: Machine,
    scratch: Scratch,
}

/// State that lasts from request to request.
struct Machine {
    site: Arc<Site>,
    local: Rc<WorkerContext>,
    /// Limits for collected bodies.
    http1: h1::Limits,
    http2: h2::Limits,
    #[expect(clippy::vec_box, reason = "they move between here and connections by pointer")]
    collectors: RefCell<Vec<Box<Collector>>>,
    /// Requests until the next sample of latency.
    until_sample: Cell<u32>,
    /// Receipts until the next read of the clock.
    until_timed: Cell<u32>,
    /// The current requests waited longer than [`limits::Limits::patience`] in an overloaded worker.
    late: Cell<bool>,
    overload: Overload,
    ways: Ways,
}

/// Memory that the worker's plain requests use one after another. The head being processed borrows the table.
struct Scratch {
    table: FieldTable,
    heads: Heads,
    desk: Desk,
}

#[derive(Default)]
struct Desk {
    fields: FieldBlock,
    body: Vec<u8>,
    path: String,
    /// Bytes written at the end of the step.
    out: Vec<u8>,
}

/// The next action of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Processes the remaining bytes.
    Next,
    /// Waits for more bytes, or for the handler.
    Wait,
    /// Closes once everything is sent.
    Close,
    /// Closes as well, and reads and drops further bytes from the client.
    Linger,
}

impl Server {
    pub(crate) fn new(site: &Arc<Site>, start: Start<Infallible>) -> Server {
        let http1 = h1::Limits {
            body_bytes: Some(site.limits.body_bytes),
            ..site.limits.http1
        };
        let http2 = http2_limits(&site.limits);
        if site.access_log.is_some() {
            flush_later(&start.cx, 0);
        }
        Server {
            scratch: Scratch {
                table: FieldTable::new(&site.limits.http1),
                heads: Heads {
                    buffer: HeadBuffer::new(&http2),
                    table: FieldTable::new(&site.limits.http1),
                    stored: Vec::new(),
                },
                desk: Desk::default(),
            },
            machine: Machine {
                local: Rc::new(WorkerContext::new(site, start.cx)),
                http1,
                http2,
                collectors: RefCell::default(),
                until_sample: Cell::new(0),
                until_timed: Cell::new(0),
                late: Cell::new(false),
                overload: Overload::default(),
                ways: Ways::new(&site.entrances),
                site: Arc::clone(site),
            },
        }
    }
}

#[cfg(feature = "testing")]
impl Server {
    pub(crate) fn local(&self) -> &Rc<WorkerContext> {
        &self.machine.local
    }
}

/// Returns the HTTP/2 limits of a connection; the limits of heads are those of HTTP/1.
fn http2_limits(limits: &limits::Limits) -> h2::Limits {
    h2::Limits {
        head_bytes: limits.http1.head_bytes,
        fields: limits.http1.fields,
        streams: limits.streams,
        stream_window: limits::STREAM_WINDOW as u32,
        connection_window: limits::CONNECTION_WINDOW as u32,
        // Routes that serve no other protocol reject an extended CONNECT.
        extended_connect: true,
        ..h2::Limits::INTERNET
    }
}

/// Returns true during a TLS handshake.
fn shakes_hands(conn: Conn<'_>) -> bool {
    conn.layer(|tls: &mut Tls| tls.session().is_under_way())
        .unwrap_or(false)
}

/// Returns true if ALPN selected HTTP/2 (RFC 9113 §3.2).
fn has_agreed_on_http2(conn: Conn<'_>) -> bool {
    let facts = conn.layer(|tls: &mut Tls| tls.session().shared_facts()).flatten();
    facts.is_some_and(|facts| facts.alpn.as_deref() == Some(b"h2"))
}

/// Terminates an event stream properly, whatever its handler waits for: each event is one chunk.
fn end_events(conn: Conn<'_>, exchange: &Exchange) {
    match exchange.events.get() {
        Some(EventFraming::Chunked) => {
            // Fails only when the connection is closed.
            let _ = conn.write(b"0\r\n\r\n");
            conn.close();
        }
        Some(EventFraming::Unframed) => conn.close(),
        Some(EventFraming::Never) | None => {}
    }
}

/// Schedules the flush of the access log, which bounds the delay of its lines.
fn flush_later(cx: &Cx, key: u64) {
    // Without a free timer the lines leave with the next full block.
    let _ = cx.timer(limits::ACCESS_LOG_FLUSH, key);
}

impl Machine {
    /// Writes the encoded bytes, and starts the next action.
    fn flush(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>, then: Then) {
        if !out.is_empty() {
            // Fails only when the connection is closed, which `closed` reports.
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

    /// Sends FIN after the last response, and drops further bytes from the client for a while (RFC 9112 §9.6).
    fn linger(&self, conn: Conn<'_>, state: &mut Connection) {
        state.phase = Phase::Lingering {
            left: self.site.limits.linger_bytes,
        };
        conn.shutdown();
        conn.set_deadline(Some(self.site.limits.linger));
    }

    /// Hands over more of a large response as the client takes it.
    fn send_rest(&self, conn: Conn<'_>, state: &mut Connection) {
        let Phase::Sending(sending) = &mut state.phase else {
            return;
        };
        let Sending { rest, then, unwanted } = &mut **sending;
        let then = *then;
        while !rest.is_empty() && conn.has_room(0) {
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
            // The client may have shut down its side meanwhile, or the shutdown may have begun.
            _ if state.last => self.linger(conn, state),
            _ => self.arm(conn, state),
        }
    }
}

impl Handler for Server {
    type Conn = Connection;
    type Mail = Infallible;

    fn name(&self) -> &'static str {
        "app"
    }

    fn open(&mut self, conn: Conn<'_>, via: Via) -> Option<Connection> {
        self.machine.open(conn, via, &mut self.scratch.desk.out)
    }

    fn secured(&mut self, conn: Conn<'_>, state: &mut Connection) {
        conn.set_deadline(Some(self.machine.site.limits.header_timeout));
        if matches!(state.phase, Phase::Head) && has_agreed_on_http2(conn) {
            self.machine.begin_http2(conn, state, &mut self.scratch.desk.out);
        }
    }

    fn insecure(&mut self, conn: Conn<'_>, state: &mut Connection) {
        self.machine.refused_by_tls(conn, state);
    }

    fn data(&mut self, conn: Conn<'_>, state: &mut Connection, bytes: &mut [u8]) -> usize {
        state.settle(self.machine.site.limits.linger_bytes);
        let mut consumed = 0;
        if matches!(state.phase, Phase::Proxied(_) | Phase::Choosing(_)) {
            consumed = self.machine.begin(conn, state, bytes, &mut self.scratch.desk.out);
            // The bytes that follow may have to be decrypted first, or belong to another owner.
            if state.origin.secure
                || matches!(state.phase, Phase::Proxied(_) | Phase::Choosing(_) | Phase::Taken)
            {
                return consumed;
            }
        }
        if matches!(state.phase, Phase::Http2(_)) {
            return consumed
                + self
                    .machine
                    .receive_http2(conn, state, &bytes[consumed..], &mut self.scratch);
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
            // The rest of a head or body can no longer arrive; an incomplete request gets no response.
            Phase::Proxied(_)
            | Phase::Choosing(_)
            | Phase::Head
            | Phase::Collecting(_)
            | Phase::Discarding(_)
            | Phase::Lingering { .. } => conn.close(),
            // A client may shut down its side after its last request and still read.
            Phase::Sending(_) | Phase::Taken => {}
            Phase::Http2(session) => {
                self.machine.end_http2(&session.share());
            }
            Phase::Socket(_) => {
                self.machine.on_socket(conn, state, Live::end);
                conn.close();
            }
            Phase::Running { exchange, .. } => {
                exchange.last.set(true);
                exchange.end_of_input();
                exchange.wake();
                end_events(conn, exchange);
                if exchange.events.get() == Some(EventFraming::Never) {
                    conn.close();
                }
            }
        }
    }

    fn drained(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.settle(self.machine.site.limits.linger_bytes);
        match &state.phase {
            Phase::Sending(_) => self.machine.send_rest(conn, state),
            Phase::Running { exchange, .. } => exchange.wake(),
            Phase::Http2(session) => self.machine.drained_http2(&session.share()),
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
            // A client in a handshake is about to send a request: it gets its response, after which the connection closes.
            Phase::Head if !state.begun && shakes_hands(conn) => {}
            Phase::Proxied(_) => conn.close(),
            Phase::Head if !state.begun => conn.close(),
            Phase::Socket(_) => {
                self.machine.on_socket(conn, state, Live::drain);
            }
            Phase::Http2(session) => self.machine.drain_http2(&session.share()),
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

    fn closed(&mut self, _cx: &Cx, state: Connection, reason: Reason) {
        self.machine.leave(&state);
        match state.phase {
            Phase::Running { exchange, .. } if reason == Reason::Closed && exchange.outlives_connection() => {
            }
            Phase::Running { exchange, serial } if exchange.runs(serial) => {
                fast_path::cancel(&exchange, &self.machine.local);
            }
            Phase::Running { exchange, serial } => {
                if let Some(mut live) = exchange.take_socket(serial) {
                    live.lost();
                }
            }
            Phase::Collecting(collector) => self.machine.put_collector(collector),
            Phase::Http2(session) => self.machine.drop_all(&session.share()),
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
