//! An application on one worker: turns the events of a connection into requests, and sends the replies.
//!
//! Owns the order of events on a connection and their deadlines. Knows no route and no framing.

pub(crate) mod accept;
mod aggregate;
mod body_progress;
mod connection;
pub(crate) mod connection_limit;
mod deadline;
mod dispatch;
pub(crate) mod drain;
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
pub(crate) mod task;
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

pub use self::fast_path::{AbortHandle, Responder, ResponderId};
pub use self::response_stream::EventStream;
pub use self::stream_connection::{StartedWorker, StreamConnection, StreamLog, StreamLogRecord, StreamLogs};

use self::accept::ListenerTable;
use self::connection::{BodyAggregator, ConnPhase, Connection, PendingResponse};
use self::drain::{LongLived, end_events};
use self::http2::HeadScratch;
use self::overload::Overload;
use self::response_stream::EventFraming;
use crate::app::compiled::CompiledApp;
use crate::limits;
use crate::server::worker_context::WorkerContext;
use crate::ws::WsSession;

/// The handler of one worker, made by [`CompiledApp::server`] for an engine.
pub struct Server {
    http: HttpServer,
    scratch: WorkerScratch,
}

/// State that lasts from request to request.
struct HttpServer {
    app: Arc<CompiledApp>,
    worker: Rc<WorkerContext>,
    /// Limits for collected bodies.
    http1: h1::Limits,
    http2: h2::Limits,
    #[expect(clippy::vec_box, reason = "they move between here and connections by pointer")]
    aggregators: RefCell<Vec<Box<BodyAggregator>>>,
    /// Requests until the next sample of latency.
    until_sample: Cell<u32>,
    /// Receipts until the next read of the clock.
    until_timed: Cell<u32>,
    /// The current requests waited longer than [`limits::Limits::max_queue_delay`] in an overloaded worker.
    is_late: Cell<bool>,
    overload: Overload,
    listeners: ListenerTable,
}

/// Memory that the worker's plain requests use one after another. The head being processed borrows the table.
struct WorkerScratch {
    table: FieldTable,
    heads: HeadScratch,
    buffers: ReplyBuffers,
}

#[derive(Default)]
struct ReplyBuffers {
    fields: FieldBlock,
    body: Vec<u8>,
    path: String,
    /// Bytes written at the end of the step.
    out: Vec<u8>,
}

/// The next action of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Processes the remaining bytes.
    Continue,
    /// Waits for more bytes, or for the handler.
    Wait,
    /// Closes once everything is sent.
    Close,
    /// Closes as well, and reads and drops further bytes from the client.
    Linger,
}

impl Server {
    pub(crate) fn new(app: &Arc<CompiledApp>, start: Start<Infallible>) -> Server {
        let http1 = h1::Limits {
            body_bytes: Some(app.limits.body_bytes),
            ..app.limits.http1
        };
        let http2 = http2_limits(&app.limits);
        if app.access_log.is_some() {
            flush_later(&start.cx, 0);
        }
        let worker = Rc::new(WorkerContext::new(app, start.cx));
        for hook in &app.on_worker_start {
            hook(&StartedWorker::new(&worker));
        }
        Server {
            scratch: WorkerScratch {
                table: FieldTable::new(&app.limits.http1),
                heads: HeadScratch {
                    buffer: HeadBuffer::new(&http2),
                    table: FieldTable::new(&app.limits.http1),
                    stored: Vec::new(),
                },
                buffers: ReplyBuffers::default(),
            },
            http: HttpServer {
                worker,
                http1,
                http2,
                aggregators: RefCell::default(),
                until_sample: Cell::new(0),
                until_timed: Cell::new(0),
                is_late: Cell::new(false),
                overload: Overload::default(),
                listeners: ListenerTable::new(&app.listener_protocols),
                app: Arc::clone(app),
            },
        }
    }
}

#[cfg(feature = "testing")]
impl Server {
    pub(crate) fn local(&self) -> &Rc<WorkerContext> {
        &self.http.worker
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

/// Schedules the flush of the access log, which bounds the delay of its lines.
fn flush_later(cx: &Cx, key: u64) {
    // Without a free timer the lines leave with the next full block.
    let _ = cx.timer(limits::ACCESS_LOG_FLUSH, key);
}

impl HttpServer {
    /// Writes the encoded bytes, and starts the next action.
    fn flush(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>, next: NextAction) {
        if !out.is_empty() {
            // Fails only when the connection is closed, which `closed` reports.
            let _ = conn.write(out);
            out.clear();
            out.shrink_to(limits::SCRATCH_BYTES);
        }
        match next {
            NextAction::Continue | NextAction::Wait => {}
            NextAction::Close => conn.close(),
            NextAction::Linger => self.linger(conn, state),
        }
    }

    /// Sends FIN after the last response, and drops further bytes from the client for a while (RFC 9112 §9.6).
    fn linger(&self, conn: Conn<'_>, state: &mut Connection) {
        state.phase = ConnPhase::Lingering {
            left: self.app.limits.linger_bytes,
        };
        conn.shutdown();
        conn.set_deadline(Some(self.app.limits.linger));
    }

    /// Hands over more of a large response as the client takes it.
    fn send_rest(&self, conn: Conn<'_>, state: &mut Connection) {
        let ConnPhase::PendingResponse(sending) = &mut state.phase else {
            return;
        };
        let PendingResponse { rest, next, unwanted } = &mut **sending;
        let next = *next;
        while !rest.is_empty() && conn.has_room(0) {
            let share = rest.split_to(rest.len().min(limits::SEND_CHUNK_BYTES));
            if conn.write_frame(share).is_err() {
                return;
            }
        }
        if !rest.is_empty() {
            return conn.set_deadline(Some(limits::RATE_TICK));
        }
        state.phase = unwanted.take().map_or(ConnPhase::Head, ConnPhase::Discarding);
        match next {
            NextAction::Linger => self.linger(conn, state),
            NextAction::Close => conn.close(),
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
        self.http.open(conn, via, &mut self.scratch.buffers.out)
    }

    fn secured(&mut self, conn: Conn<'_>, state: &mut Connection) {
        conn.set_deadline(Some(self.http.app.limits.header_timeout));
        if matches!(state.phase, ConnPhase::Head) && has_agreed_on_http2(conn) {
            self.http.begin_http2(conn, state, &mut self.scratch.buffers.out);
        }
    }

    fn insecure(&mut self, conn: Conn<'_>, state: &mut Connection) {
        self.http.on_tls_failure(conn, state);
    }

    fn data(&mut self, conn: Conn<'_>, state: &mut Connection, bytes: &mut [u8]) -> usize {
        state.advance_phase(self.http.app.limits.linger_bytes);
        let mut consumed = 0;
        if matches!(
            state.phase,
            ConnPhase::AwaitingProxyHeader(_) | ConnPhase::SniffingHello(_)
        ) {
            consumed = self
                .http
                .receive_before_http(conn, state, bytes, &mut self.scratch.buffers.out);
            // The bytes that follow may have to be decrypted first, or belong to another owner.
            if state.peer.secure
                || matches!(
                    state.phase,
                    ConnPhase::AwaitingProxyHeader(_) | ConnPhase::SniffingHello(_) | ConnPhase::Detached
                )
            {
                return consumed;
            }
        }
        if matches!(state.phase, ConnPhase::Http2(_)) {
            return consumed
                + self
                    .http
                    .receive_http2(conn, state, &bytes[consumed..], &mut self.scratch);
        }
        if !matches!(state.phase, ConnPhase::Socket(_)) {
            consumed += self
                .http
                .receive(conn, state, &bytes[consumed..], &mut self.scratch);
        }
        consumed + self.http.socket_data(conn, state, &mut bytes[consumed..])
    }

    fn end(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.advance_phase(self.http.app.limits.linger_bytes);
        state.last = true;
        match &state.phase {
            // The rest of a head or body can no longer arrive; an incomplete request gets no response.
            ConnPhase::AwaitingProxyHeader(_)
            | ConnPhase::SniffingHello(_)
            | ConnPhase::Head
            | ConnPhase::Aggregating(_)
            | ConnPhase::Discarding(_)
            | ConnPhase::Lingering { .. } => conn.close(),
            // A client may shut down its side after its last request and still read.
            ConnPhase::PendingResponse(_) | ConnPhase::Detached => {}
            ConnPhase::Http2(session) => {
                self.http.on_end_http2(&session.share());
            }
            ConnPhase::Socket(_) => {
                self.http.on_socket(conn, state, WsSession::end);
                conn.close();
            }
            ConnPhase::Running { exchange, .. } => {
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
        state.advance_phase(self.http.app.limits.linger_bytes);
        match &state.phase {
            ConnPhase::PendingResponse(_) => self.http.send_rest(conn, state),
            ConnPhase::Running { exchange, .. } => exchange.wake(),
            ConnPhase::Http2(session) => self.http.drained_http2(&session.share()),
            ConnPhase::Socket(_) => {
                self.http.on_socket(conn, state, WsSession::drained);
            }
            _ => {}
        }
    }

    fn deadline(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.advance_phase(self.http.app.limits.linger_bytes);
        self.http.on_deadline(conn, state, &mut self.scratch.buffers.out);
    }

    /// The responses of HTTP/1.1 close the connection from now on: see [`HttpServer::process_request`].
    fn drain_pending(&mut self, _: Conn<'_>, state: &mut Connection) {
        if let ConnPhase::Http2(session) = &state.phase {
            self.http.announce_drain_http2(&session.share());
        }
    }

    fn drain(&mut self, conn: Conn<'_>, state: &mut Connection) {
        state.advance_phase(self.http.app.limits.linger_bytes);
        state.last = true;
        match &state.phase {
            // A client in a handshake is about to send a request: it gets its response, after which the connection closes.
            ConnPhase::Head if !state.head_started && shakes_hands(conn) => {}
            ConnPhase::AwaitingProxyHeader(_) => conn.close(),
            ConnPhase::Head if !state.head_started => conn.close(),
            ConnPhase::Socket(_) => {
                let mut due = None;
                self.http
                    .on_socket(conn, state, |ws_session| due = ws_session.drain());
                if let Some(ws) = due {
                    self.http.worker.drain_queue.push(LongLived::Socket(ws));
                }
            }
            ConnPhase::Http2(session) => self.http.drain_http2(&session.share()),
            ConnPhase::Running { exchange, serial } => {
                exchange.last.set(true);
                let response = LongLived::Events(Rc::clone(exchange), *serial);
                self.http.worker.drain_queue.push(response);
            }
            _ => {}
        }
    }

    fn timer(&mut self, cx: &Cx, key: u64) {
        if let Some(access) = &self.http.worker.access {
            access.borrow_mut().flush();
            flush_later(cx, key);
        }
    }

    fn closed(&mut self, _cx: &Cx, state: Connection, reason: Reason) {
        self.http.uncount_connection(&state);
        match state.phase {
            ConnPhase::Running { exchange, .. }
                if reason == Reason::Closed && exchange.outlives_connection() => {}
            ConnPhase::Running { exchange, serial } if exchange.is_running(serial) => {
                fast_path::cancel(&exchange, &self.http.worker);
            }
            ConnPhase::Running { exchange, serial } => {
                if let Some(mut ws_session) = exchange.take_socket(serial) {
                    ws_session.lost();
                }
            }
            ConnPhase::Aggregating(aggregator) => self.http.recycle_aggregator(aggregator),
            ConnPhase::Http2(session) => self.http.drop_all_streams(&session.share()),
            ConnPhase::Socket(mut ws_session) => ws_session.lost(),
            _ => {}
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server on worker {}", self.http.worker.cx.worker())
    }
}
