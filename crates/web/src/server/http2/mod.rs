//! HTTP/2 on a connection: its streams, who answers each, and what waits to be sent on it.
//!
//! ```text
//! bytes ─▶ receive.rs ─▶ wire ─┬─ request, all there ─▶ plain handler, in place ─┐
//!                              ├─ body to collect ────▶ its lane ─ end ─▶ ───────┤
//!                              └─ asynchronous ───────▶ Exchange, a task ────────┴▶ answer.rs ─▶ head, body
//!                                                                                     │ no window, or too much unsent
//!                                            send.rs: pump ◀── window, drained ◀── its lane
//! ```
//!
//! An extended CONNECT (RFC 8441) is a request like another until it is answered: see `socket.rs` for what follows.
//!
//! Tasks and the connection share a [`Session`]. A stream has a [`Lane`] only if it is not answered at once; an idle connection
//! has none. Knows no route; what differs from HTTP/1 for handlers is here and in `Line`.

mod answer;
mod collect;
mod deadline;
mod receive;
mod send;
mod socket;

pub(crate) use answer::{Length, not_spoken};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx};
use ringmain_wire::h1::{FieldBlock, FieldTable};
use ringmain_wire::h2::{self, HeadBuffer, PREFACE, Role, Stream};

use self::socket::OpenSocket;
use super::connection::Connection;
use super::deadline::{Allowance, Pace};
use super::exchange::Exchange;
use super::held::{Collected, Held};
use crate::limits;
use crate::local::Local;

/// What every connection of a worker uses in turn.
pub(super) struct Heads {
    pub(super) buffer: HeadBuffer,
    /// For heads that were kept.
    pub(super) table: FieldTable,
    pub(super) stored: Vec<u8>,
}

/// One connection, as it and its tasks share it.
pub(crate) struct Session {
    local: Rc<Local>,
    conn: ConnId,
    core: RefCell<Core>,
    /// Nothing more is read of it: the connection lingers.
    over: Cell<bool>,
    /// Bytes of input that are no whole frame.
    partial: Cell<usize>,
    /// The deadline is that of a frame which has begun.
    begun: Cell<bool>,
    /// The deadline is that of the streams.
    ticking: Cell<bool>,
    /// The deadline is that of the sockets, which are all there is.
    quiet: Cell<bool>,
    /// When the deadline is, if it is one of those two.
    armed: Cell<Time>,
    /// The client has sent its end.
    half: Cell<bool>,
    /// Since when part of a head is there.
    head_since: Cell<Option<Time>>,
    /// Until when it may be idle.
    rest_until: Cell<Option<Time>>,
    /// Bytes of its streams' bodies that are collected.
    collected: Rc<Cell<usize>>,
    /// When something was heard last.
    heard: Cell<Time>,
    /// When the ping was sent that is not answered.
    pinged: Cell<Option<Time>>,
}

/// The connection's hold on its session. Tasks hold it too, and it holds them: dropped, it lets go of all of them.
pub(crate) struct Speaking(Rc<Session>);

impl Speaking {
    /// The session, for a while.
    pub(super) fn share(&self) -> Rc<Session> {
        Rc::clone(&self.0)
    }

    /// Whether the connection lingers, or is over.
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
    /// By slot.
    lanes: Vec<Lane>,
    /// The lane whose turn it is.
    turn: usize,
    /// Lanes of sockets.
    sockets: usize,
}

/// A stream that is not answered yet, or whose answer is not all sent.
#[derive(Default)]
struct Lane {
    stream: Option<Stream>,
    work: Work,
    /// A request that waits for its body: as `h2::store_request` has it.
    head: Vec<u8>,
    body: Vec<u8>,
    /// What that counts in the worker's budget.
    collected: Option<Collected>,
    /// Bytes that its body may have.
    most: u64,
    /// Bytes of the answer's body that the windows did not let through.
    pending: VecDeque<Bytes>,
    /// How many those are.
    waiting: usize,
    /// Those bytes, counted at the worker.
    held: Option<Held>,
    /// The answer ends behind them.
    end: bool,
    trailers: Option<FieldBlock>,
    began: Time,
    /// Of the body that comes, in bytes and time.
    coming: Pace,
    received: u64,
    /// Of the answer that waits.
    going: Allowance,
    sent: u64,
}

/// Who has a stream's request.
#[derive(Default)]
enum Work {
    /// Nobody any more.
    #[default]
    Answered,
    /// Its body is collected.
    Collecting,
    Running(Rc<Exchange>, u64),
    /// It speaks WebSocket.
    Socket(Box<OpenSocket>),
    /// It did: the client is to end the stream by then.
    Leaving(Time),
}

impl Work {
    /// Bytes a second that the response must be taken at; `None`: as the application has it.
    fn rate(&self) -> Option<u32> {
        match self {
            Work::Running(exchange, serial) if exchange.runs(*serial) => exchange.rate(),
            _ => None,
        }
    }
}

/// A task's way to its stream.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) session: Rc<Session>,
    pub(crate) stream: Stream,
}

impl Session {
    pub(super) fn new(
        local: &Rc<Local>,
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

    /// The exchange of a stream, if a task has it.
    fn running(&self, stream: Stream) -> Option<(Rc<Exchange>, u64)> {
        let mut core = self.core.borrow_mut();
        match &core.lane(stream)?.work {
            Work::Running(exchange, serial) => Some((Rc::clone(exchange), *serial)),
            _ => None,
        }
    }

    /// All exchanges.
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

    /// A fresh lane for a stream.
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

    /// The lane of a stream, or a fresh one.
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

    /// Forgets a stream's lane; who had it.
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
    /// Has bytes wait for their turn.
    fn push(&mut self, cx: &Cx, bytes: Bytes) {
        self.waiting += bytes.len();
        self.pending.push_back(bytes);
        let held = self.held.get_or_insert_with(|| Held::new(cx));
        held.set(self.waiting);
    }

    /// So many bytes of them are sent.
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

/// Time as the codec is told it.
fn elapsed(now: Time) -> Duration {
    Duration::from_nanos(now.0)
}

/// Whether a connection in the clear begins as HTTP/2 does (RFC 9113 §3.3): `Some(false)`: so far.
#[inline]
pub(super) fn preface(state: &Connection, input: &[u8]) -> Option<bool> {
    // No other method begins so.
    if state.requests > 0 || state.origin.secure || !input.starts_with(b"PRI ") {
        return None;
    }
    let length = input.len().min(PREFACE.len());
    (input[..length] == PREFACE[..length]).then_some(length == PREFACE.len())
}
