//! HTTP/2 on a connection: its streams, the task of each, and the bytes queued for sending.
//!
//! ```text
//! bytes ─▶ receive.rs ─▶ wire ─┬─ request, all there ─▶ plain handler, in place ─┐
//!                              ├─ body to collect ────▶ its lane ─ end ─▶ ───────┤
//!                              └─ asynchronous ───────▶ Exchange, a task ────────┴▶ answer.rs ─▶ head, body
//!                                                                                     │ no window, or too much unsent
//!                                            send.rs: pump ◀── window, drained ◀── its lane
//! ```
//!
//! An extended CONNECT (RFC 8441) is an ordinary request until it is answered: see `socket.rs` for its stream.
//!
//! Tasks and the connection share a [`Session`]. A stream has a [`Lane`] only if it is not answered at once; an idle connection has
//! none. Knows no route; the differences from HTTP/1 for handlers are here and in `Line`.

mod aggregate;
mod deadline;
mod receive;
mod response;
mod send;
mod websocket;

pub(crate) use response::{Length, not_spoken};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx};
use ringmain_wire::h1::{FieldBlock, FieldTable};
use ringmain_wire::h2::{self, HeadBuffer, PREFACE, Role, Stream};

use self::websocket::OpenSocket;
use super::connection::Connection;
use super::deadline::{Allowance, Pace};
use super::exchange::Exchange;
use super::memory_budget::{Collected, Held};
use crate::limits;
use crate::server::worker_context::WorkerContext;

/// Buffers that all connections of a worker use one after another.
pub(super) struct Heads {
    pub(super) buffer: HeadBuffer,
    /// For stored heads.
    pub(super) table: FieldTable,
    pub(super) stored: Vec<u8>,
}

/// The state of one connection, shared with its tasks.
pub(crate) struct Session {
    local: Rc<WorkerContext>,
    conn: ConnId,
    core: RefCell<Core>,
    /// Input is discarded: the connection lingers.
    over: Cell<bool>,
    /// Bytes of an incomplete frame at the end of the input.
    partial: Cell<usize>,
    /// The deadline is that of an incomplete frame.
    begun: Cell<bool>,
    /// The deadline is that of the streams.
    ticking: Cell<bool>,
    /// The deadline is that of the sockets, the only streams.
    quiet: Cell<bool>,
    /// The time of the deadline, if it is one of those two.
    armed: Cell<Time>,
    /// The client has shut down its side.
    half: Cell<bool>,
    /// The time since when part of a head is received.
    head_since: Cell<Option<Time>>,
    /// The time until which the connection may stay idle.
    rest_until: Cell<Option<Time>>,
    /// Collected bytes of its streams' bodies.
    collected: Rc<Cell<usize>>,
    /// The time of the last receipt.
    heard: Cell<Time>,
    /// The time of the pending PING.
    pinged: Cell<Option<Time>>,
}

/// The connection's reference to its session. Tasks hold the session too, and it holds them: dropping this releases all tasks.
pub(crate) struct Speaking(Rc<Session>);

impl Speaking {
    /// Returns a shared reference to the session.
    pub(super) fn share(&self) -> Rc<Session> {
        Rc::clone(&self.0)
    }

    /// Returns true if the connection lingers or is closed.
    pub(super) fn is_over(&self) -> bool {
        self.0.over.get()
    }
}

impl Drop for Speaking {
    fn drop(&mut self) {
        let lanes = std::mem::take(&mut self.0.core.borrow_mut().lanes);
        drop(lanes);
    }
}

struct Core {
    wire: h2::Connection,
    /// Lanes by slot.
    lanes: Vec<Lane>,
    /// The lane that is served next.
    turn: usize,
    /// The number of lanes with sockets.
    sockets: usize,
}

/// A stream that is not answered yet, or whose response is not completely sent.
#[derive(Default)]
struct Lane {
    stream: Option<Stream>,
    work: Work,
    /// The head of a request that waits for its body, in the form of `h2::store_request`.
    head: Vec<u8>,
    body: Vec<u8>,
    /// The reservation of the body in the worker's budget.
    collected: Option<Collected>,
    /// Limit of the body in bytes.
    most: u64,
    /// Body bytes of the response that exceed the windows.
    pending: VecDeque<Bytes>,
    /// Sum of the bytes in `pending`.
    waiting: usize,
    /// Those bytes in the worker's count.
    held: Option<Held>,
    /// The response ends behind `pending`.
    end: bool,
    trailers: Option<FieldBlock>,
    began: Time,
    /// The pace of the received body.
    coming: Pace,
    received: u64,
    /// The allowance of the response.
    going: Allowance,
    sent: u64,
}

/// The owner of a stream's request.
#[derive(Default)]
enum Work {
    /// None any more.
    #[default]
    Answered,
    /// Its body is collected.
    Collecting,
    Running(Rc<Exchange>, u64),
    /// The stream carries WebSocket frames.
    Socket(Box<OpenSocket>),
    /// The socket has closed: the deadline for the client to end the stream.
    Leaving(Time),
}

impl Work {
    /// Returns the minimum rate of the response in bytes per second; `None`: the application's.
    fn rate(&self) -> Option<u32> {
        match self {
            Work::Running(exchange, serial) if exchange.runs(*serial) => exchange.rate(),
            _ => None,
        }
    }
}

/// A task's handle of its stream.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) session: Rc<Session>,
    pub(crate) stream: Stream,
}

impl Session {
    pub(super) fn new(
        local: &Rc<WorkerContext>,
        conn: Conn<'_>,
        limits: &h2::Limits,
        out: &mut Vec<u8>,
    ) -> Rc<Session> {
        let now = local.cx.now();
        Rc::new(Session {
            local: Rc::clone(local),
            conn: conn.id(),
            core: RefCell::new(Core {
                wire: h2::Connection::new(Role::Server, limits, elapsed(now), out),
                lanes: Vec::new(),
                turn: 0,
                sockets: 0,
            }),
            over: Cell::new(false),
            partial: Cell::new(0),
            begun: Cell::new(false),
            ticking: Cell::new(false),
            quiet: Cell::new(false),
            armed: Cell::new(Time::NEVER),
            half: Cell::new(false),
            head_since: Cell::new(None),
            rest_until: Cell::new(None),
            collected: Rc::default(),
            heard: Cell::new(now),
            pinged: Cell::new(None),
        })
    }

    fn conn(&self) -> Conn<'_> {
        self.local.cx.conn(self.conn)
    }

    /// Returns the exchange of a stream, if a task has it.
    fn running(&self, stream: Stream) -> Option<(Rc<Exchange>, u64)> {
        let mut core = self.core.borrow_mut();
        match &core.lane(stream)?.work {
            Work::Running(exchange, serial) => Some((Rc::clone(exchange), *serial)),
            _ => None,
        }
    }

    /// Returns the exchange of every stream.
    fn all_running(&self) -> Vec<(Stream, Rc<Exchange>, u64)> {
        let core = self.core.borrow();
        let lanes = core.lanes.iter();
        lanes
            .filter_map(|lane| match (&lane.work, lane.stream) {
                (Work::Running(exchange, serial), Some(stream)) => {
                    Some((stream, Rc::clone(exchange), *serial))
                }
                _ => None,
            })
            .collect()
    }
}

impl Core {
    fn lane(&mut self, stream: Stream) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(stream.slot())?;
        (lane.stream == Some(stream)).then_some(lane)
    }

    /// Returns a new lane for a stream.
    fn open(&mut self, stream: Stream, now: Time) -> &mut Lane {
        let slot = stream.slot();
        if self.lanes.len() <= slot {
            self.lanes.resize_with(slot + 1, Lane::default);
        }
        let lane = &mut self.lanes[slot];
        lane.clear();
        lane.stream = Some(stream);
        lane.began = now;
        lane.coming = Pace::new(now);
        lane.going = Allowance::default();
        lane
    }

    /// Returns the lane of a stream, or a new one.
    fn lane_or_new(&mut self, stream: Stream, now: Time) -> &mut Lane {
        let slot = stream.slot();
        if self
            .lanes
            .get(slot)
            .is_none_or(|lane| lane.stream != Some(stream))
        {
            return self.open(stream, now);
        }
        &mut self.lanes[slot]
    }

    /// Drops a stream's lane and returns its owner.
    fn drop_lane(&mut self, stream: Stream) -> Work {
        let Some(lane) = self.lane(stream) else {
            return Work::Answered;
        };
        let work = std::mem::take(&mut lane.work);
        lane.clear();
        if matches!(work, Work::Socket(_)) {
            self.sockets -= 1;
        }
        if self.wire.is_idle() && self.lanes.len() > limits::IDLE_LANES {
            self.lanes = Vec::new();
        }
        work
    }
}

impl Lane {
    /// Queues bytes.
    fn push(&mut self, cx: &Cx, bytes: Bytes) {
        self.waiting += bytes.len();
        self.pending.push_back(bytes);
        let held = self.held.get_or_insert_with(|| Held::new(cx));
        held.set(self.waiting);
    }

    /// Counts queued bytes as sent.
    fn pulled(&mut self, bytes: usize) {
        self.waiting -= bytes;
        if self.waiting == 0 {
            self.held = None;
        } else if let Some(held) = &mut self.held {
            held.set(self.waiting);
        }
    }

    fn forget_pending(&mut self) {
        self.pending.clear();
        self.waiting = 0;
        self.held = None;
    }

    fn clear(&mut self) {
        self.stream = None;
        self.work = Work::Answered;
        self.collected = None;
        for buffer in [&mut self.head, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(limits::LANE_BYTES);
        }
        self.forget_pending();
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
    if state.requests > 0 || state.origin.secure || !input.starts_with(b"PRI ") {
        return None;
    }
    let length = input.len().min(PREFACE.len());
    (input[..length] == PREFACE[..length]).then_some(length == PREFACE.len())
}
