//! HTTP/2 on a connection: its streams, the task of each, and the bytes queued for sending.
//!
//! ```text
//! bytes ─▶ receive.rs ─▶ wire ─┬─ whole request ─────▶ plain handler, in place ─┐
//!                              ├─ body to aggregate ─▶ its entry ─ end ─▶ ──────┤
//!                              └─ asynchronous ──────▶ Exchange, a task ────────┴▶ response.rs ─▶ head, body
//!                                                                                    │ no window, or too much unsent
//!                                           send.rs: pump ◀── window, drained ◀── its entry
//! ```
//!
//! An extended CONNECT (RFC 8441) is an ordinary request until it is answered: see `websocket.rs` for its stream.
//!
//! Tasks and the connection share an [`H2Session`]. A stream has a [`StreamState`] only if it is not answered at once; an idle
//! connection has none. Knows no route; the differences from HTTP/1 for handlers are here and in `StreamRef`.

mod aggregate;
mod deadline;
mod receive;
mod response;
mod send;
mod websocket;

pub(crate) use response::{Length, unsupported_protocol};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx};
use ringmain_wire::h1::{FieldBlock, FieldTable};
use ringmain_wire::h2::{self, HeadBuffer, PREFACE, Role, Stream};

use self::websocket::StreamSocket;
use super::connection::Connection;
use super::deadline::{Allowance, Pace};
use super::exchange::Exchange;
use super::memory_budget::{BodyReservation, QueuedBytes};
use crate::limits;
use crate::server::worker_context::WorkerContext;

/// Buffers that all connections of a worker use one after another.
pub(super) struct HeadScratch {
    pub(super) buffer: HeadBuffer,
    /// For stored heads.
    pub(super) table: FieldTable,
    pub(super) stored: Vec<u8>,
}

/// The state of one connection, shared with its tasks.
pub(crate) struct H2Session {
    worker: Rc<WorkerContext>,
    conn: ConnId,
    core: RefCell<SessionState>,
    /// Input is discarded: the connection lingers.
    closed: Cell<bool>,
    /// Bytes of an incomplete frame at the end of the input.
    partial_frame: Cell<usize>,
    /// The deadline is that of an incomplete frame.
    has_frame_deadline: Cell<bool>,
    /// The deadline is that of the streams.
    ticking: Cell<bool>,
    /// The deadline is that of the sockets, the only streams.
    has_only_sockets: Cell<bool>,
    /// The time of the deadline, if it is one of those two.
    deadline: Cell<Time>,
    /// The client has shut down its side.
    client_ended: Cell<bool>,
    /// The time since when part of a head is received.
    head_since: Cell<Option<Time>>,
    /// The time until which the connection may stay idle.
    idle_until: Cell<Option<Time>>,
    /// Collected bytes of its streams' bodies.
    collected: Rc<Cell<usize>>,
    /// The time of the last receipt.
    last_received: Cell<Time>,
    /// The time of the pending PING.
    ping_sent_at: Cell<Option<Time>>,
}

/// The connection's reference to its session. Tasks hold the session too, and it holds them: dropping this releases all tasks.
pub(crate) struct SessionHandle(Rc<H2Session>);

impl SessionHandle {
    /// Returns a shared reference to the session.
    pub(super) fn share(&self) -> Rc<H2Session> {
        Rc::clone(&self.0)
    }

    /// Returns true if the connection lingers or is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.0.closed.get()
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut self.0.core.borrow_mut().streams);
        drop(streams);
    }
}

struct SessionState {
    wire: h2::Connection,
    /// Streams by slot.
    streams: Vec<StreamState>,
    /// The slot that is served next.
    next_served: usize,
    /// The number of streams with sockets.
    sockets: usize,
}

/// A stream that is not answered yet, or whose response is not completely sent.
#[derive(Default)]
struct StreamState {
    stream: Option<Stream>,
    phase: StreamPhase,
    /// The head of a request that waits for its body, in the form of `h2::store_request`.
    head: Vec<u8>,
    body: Vec<u8>,
    /// The reservation of the body in the worker's budget.
    collected: Option<BodyReservation>,
    /// Limit of the body in bytes.
    most: u64,
    /// Body bytes of the response that exceed the windows.
    pending: VecDeque<Bytes>,
    /// Sum of the bytes in `pending`.
    waiting: usize,
    /// Those bytes in the worker's count.
    held: Option<QueuedBytes>,
    /// The response ends behind `pending`.
    end: bool,
    trailers: Option<FieldBlock>,
    started_at: Time,
    /// The pace of the received body.
    receive_pace: Pace,
    received: u64,
    /// The allowance of the response.
    send_allowance: Allowance,
    sent: u64,
}

/// The phase of a stream: the owner of its request.
#[derive(Default)]
enum StreamPhase {
    /// None any more.
    #[default]
    Done,
    /// Its body is collected.
    Aggregating,
    Running(Rc<Exchange>, u64),
    /// The stream carries WebSocket frames.
    Socket(Box<StreamSocket>),
    /// The socket has closed: the deadline for the client to end the stream.
    AwaitingEnd(Time),
}

impl StreamPhase {
    /// Returns the minimum rate of the response in bytes per second; `None`: the application's.
    fn minimum_rate(&self) -> Option<u32> {
        match self {
            StreamPhase::Running(exchange, serial) if exchange.is_running(*serial) => exchange.minimum_rate(),
            _ => None,
        }
    }
}

/// A task's handle of its stream.
#[derive(Clone)]
pub(crate) struct StreamRef {
    pub(crate) session: Rc<H2Session>,
    pub(crate) stream: Stream,
}

impl H2Session {
    pub(super) fn new(
        worker: &Rc<WorkerContext>,
        conn: Conn<'_>,
        limits: &h2::Limits,
        out: &mut Vec<u8>,
    ) -> Rc<H2Session> {
        let now = worker.cx.now();
        Rc::new(H2Session {
            worker: Rc::clone(worker),
            conn: conn.id(),
            core: RefCell::new(SessionState {
                wire: h2::Connection::new(Role::Server, limits, elapsed(now), out),
                streams: Vec::new(),
                next_served: 0,
                sockets: 0,
            }),
            closed: Cell::new(false),
            partial_frame: Cell::new(0),
            has_frame_deadline: Cell::new(false),
            ticking: Cell::new(false),
            has_only_sockets: Cell::new(false),
            deadline: Cell::new(Time::NEVER),
            client_ended: Cell::new(false),
            head_since: Cell::new(None),
            idle_until: Cell::new(None),
            collected: Rc::default(),
            last_received: Cell::new(now),
            ping_sent_at: Cell::new(None),
        })
    }

    fn conn(&self) -> Conn<'_> {
        self.worker.cx.conn(self.conn)
    }

    /// Returns the exchange of a stream, if a task has it.
    fn running(&self, stream: Stream) -> Option<(Rc<Exchange>, u64)> {
        let mut core = self.core.borrow_mut();
        match &core.entry(stream)?.phase {
            StreamPhase::Running(exchange, serial) => Some((Rc::clone(exchange), *serial)),
            _ => None,
        }
    }

    /// Returns the streams whose body is being collected.
    fn all_aggregating(&self) -> Vec<Stream> {
        let core = self.core.borrow();
        let collecting = core
            .streams
            .iter()
            .filter(|entry| matches!(entry.phase, StreamPhase::Aggregating));
        collecting.filter_map(|entry| entry.stream).collect()
    }

    /// Returns the exchange of every stream.
    fn all_running(&self) -> Vec<(Stream, Rc<Exchange>, u64)> {
        let core = self.core.borrow();
        let streams = core.streams.iter();
        streams
            .filter_map(|entry| match (&entry.phase, entry.stream) {
                (StreamPhase::Running(exchange, serial), Some(stream)) => {
                    Some((stream, Rc::clone(exchange), *serial))
                }
                _ => None,
            })
            .collect()
    }
}

impl SessionState {
    fn entry(&mut self, stream: Stream) -> Option<&mut StreamState> {
        let entry = self.streams.get_mut(stream.slot())?;
        (entry.stream == Some(stream)).then_some(entry)
    }

    /// Returns a new entry for a stream.
    fn open(&mut self, stream: Stream, now: Time) -> &mut StreamState {
        let slot = stream.slot();
        if self.streams.len() <= slot {
            self.streams.resize_with(slot + 1, StreamState::default);
        }
        let entry = &mut self.streams[slot];
        entry.clear();
        entry.stream = Some(stream);
        entry.started_at = now;
        entry.receive_pace = Pace::new(now);
        entry.send_allowance = Allowance::default();
        entry
    }

    /// Returns the entry of a stream, or a new one.
    fn entry_or_new(&mut self, stream: Stream, now: Time) -> &mut StreamState {
        let slot = stream.slot();
        if self
            .streams
            .get(slot)
            .is_none_or(|entry| entry.stream != Some(stream))
        {
            return self.open(stream, now);
        }
        &mut self.streams[slot]
    }

    /// Removes a stream's entry and returns its phase.
    fn remove_entry(&mut self, stream: Stream) -> StreamPhase {
        let Some(entry) = self.entry(stream) else {
            return StreamPhase::Done;
        };
        let phase = std::mem::take(&mut entry.phase);
        entry.clear();
        if matches!(phase, StreamPhase::Socket(_)) {
            self.sockets -= 1;
        }
        if self.wire.is_idle() && self.streams.len() > limits::IDLE_STREAM_RECORDS {
            self.streams = Vec::new();
        }
        phase
    }
}

impl StreamState {
    /// Queues bytes.
    fn push(&mut self, cx: &Cx, bytes: Bytes) {
        self.waiting += bytes.len();
        self.pending.push_back(bytes);
        let held = self.held.get_or_insert_with(|| QueuedBytes::new(cx));
        held.set(self.waiting);
    }

    /// Counts queued bytes as sent.
    fn remove_queued(&mut self, bytes: usize) {
        self.waiting -= bytes;
        if self.waiting == 0 {
            self.held = None;
        } else if let Some(held) = &mut self.held {
            held.set(self.waiting);
        }
    }

    fn clear_pending(&mut self) {
        self.pending.clear();
        self.waiting = 0;
        self.held = None;
    }

    fn clear(&mut self) {
        self.stream = None;
        self.phase = StreamPhase::Done;
        self.collected = None;
        for buffer in [&mut self.head, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(limits::STREAM_RECORD_BYTES);
        }
        self.clear_pending();
        self.end = false;
        self.trailers = None;
        self.received = 0;
        self.sent = 0;
    }
}

/// Returns the time in the form of the codec.
fn elapsed(now: Time) -> Duration {
    Duration::from_nanos(now.0)
}

/// Checks whether an unencrypted connection starts with the HTTP/2 preface (RFC 9113 §3.3). `Some(false)`: as far as received.
#[inline]
pub(super) fn preface(state: &Connection, input: &[u8]) -> Option<bool> {
    // No other method starts so.
    if state.requests > 0 || state.peer.secure || !input.starts_with(b"PRI ") {
        return None;
    }
    let length = input.len().min(PREFACE.len());
    (input[..length] == PREFACE[..length]).then_some(length == PREFACE.len())
}
