//! The state of one connection, and the phases of its exchange of messages.
//!
//! ```text
//! Proxied, Choosing (`entering.rs`) ─► Head, or Taken
//!
//!         ┌────────────────────────── answered ───────────────────────────┐
//!         ▼                                                               │
//! Head ───┬─ plain handler, all there ──────────────────────────► answer ─┼─ large ─► Sending
//!         ├─ body to collect ─► Collecting ─ body is there ─────► answer ─┤
//!         ├─ asynchronous ────► Running ──── handler returns ───► answer ─┤
//!         ├─ unwanted body ───► Discarding (answered before) ─ its end ───┘
//!         ├─ HTTP/2's preface ► Http2 (by ALPN at once) ─ its last stream ─► Lingering
//!         ├─ upgrade, 101 ────► Socket (also from Running) ─ closing handshake ─► Lingering
//!         └─ fault, or an answer that closes ─► Lingering ─ client's end, time, bytes ─► closed
//! ```

use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, BodyDecoder, HeadProgress};

use super::Then;
use super::accept::{Choosing, Way};
use super::exchange::Exchange;
use super::http2::Speaking;
use super::memory_budget::Collected;
use super::rejected::Client;
use crate::server::peer::Origin;
use crate::ws::Live;

/// One connection. An idle one consists of this record, without buffers.
#[derive(Debug)]
pub struct Connection {
    /// The progress of an incomplete head.
    pub(crate) progress: HeadProgress,
    pub(crate) phase: Phase,
    /// The start time of the current head, body or rest of a response.
    pub(crate) began: Time,
    /// Requests received so far.
    pub(crate) requests: u32,
    /// Part of a head was received.
    pub(crate) begun: bool,
    /// The rate of the current transfer is checked each tick.
    pub(crate) ticking: bool,
    /// The next response is the last: shutdown has begun, or the client has shut down its side.
    pub(crate) last: bool,
    /// Counted at its address.
    pub(crate) counted: bool,
    /// It started with a PROXY protocol header.
    pub(crate) proxied: bool,
    /// The generation of entrances by which it was accepted, or last checked.
    pub(crate) entered: u16,
    /// Bytes of the current body that had arrived by then.
    pub(crate) base: u64,
    /// A response is not completely taken: its rate counts from `began`.
    pub(crate) slow: bool,
    pub(crate) origin: Origin,
}

impl Connection {
    /// Returns the client, and the start time of the current request.
    pub(super) fn client(&self) -> Client {
        (self.origin.remote, self.began)
    }
}

/// See the module.
pub(crate) enum Phase {
    /// A PROXY protocol header is expected.
    Proxied(Rc<Way>),
    /// The server name (SNI) decides between HTTP and the stream handler.
    Choosing(Box<Choosing>),
    /// Another owner has the connection: this state is dropped at once.
    Taken,
    Head,
    Collecting(Box<Collector>),
    Running {
        exchange: Rc<Exchange>,
        serial: u64,
    },
    Discarding(Box<BodyDecoder>),
    /// The rest of a large response, handed to the engine as the client takes it.
    Sending(Box<Sending>),
    /// The connection carries WebSocket frames.
    Socket(Box<Live>),
    /// The connection carries HTTP/2.
    Http2(Speaking),
    /// The response is written; up to `left` further bytes from the client are dropped.
    Lingering {
        left: u64,
    },
}

/// See [`Phase::Sending`].
pub(crate) struct Sending {
    pub(crate) rest: Bytes,
    pub(crate) then: Then,
    /// A body that is dropped once the response is sent.
    pub(crate) unwanted: Option<Box<BodyDecoder>>,
}

/// A request whose body is incomplete.
pub(crate) struct Collector {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// The reservation of the body in the worker's budget.
    pub(crate) collected: Option<Collected>,
    pub(crate) decoder: BodyDecoder,
    /// The parts of the head on which an early response depends.
    pub(crate) exchange: h1::Exchange,
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Proxied(_) => "Proxied",
            Phase::Choosing(_) => "Choosing",
            Phase::Taken => "Taken",
            Phase::Head => "Head",
            Phase::Collecting(_) => "Collecting",
            Phase::Running { .. } => "Running",
            Phase::Discarding(_) => "Discarding",
            Phase::Sending(_) => "Sending",
            Phase::Socket(_) => "Socket",
            Phase::Http2(_) => "Http2",
            Phase::Lingering { .. } => "Lingering",
        })
    }
}

const _: () = assert!(
    size_of::<Connection>() <= 112,
    "an idle connection is this, beside the engine's record"
);

impl Connection {
    pub(crate) fn new(began: Time, origin: Origin) -> Connection {
        Connection {
            progress: HeadProgress::default(),
            phase: Phase::Head,
            began,
            requests: 0,
            begun: false,
            ticking: false,
            last: false,
            counted: false,
            proxied: false,
            entered: 0,
            base: 0,
            slow: false,
            origin,
        }
    }

    /// Moves to the next phase after a task has answered.
    pub(crate) fn settle(&mut self, linger_bytes: u64) {
        let (exchange, serial) = match &self.phase {
            Phase::Running { exchange, serial } => (exchange, serial),
            Phase::Http2(session) => {
                if session.is_over() {
                    self.phase = Phase::Lingering { left: linger_bytes };
                }
                return;
            }
            _ => return,
        };
        if exchange.closes(*serial) {
            self.phase = Phase::Lingering { left: linger_bytes };
        } else if !exchange.runs(*serial) {
            let socket = exchange.take_socket(*serial);
            self.phase = socket.map_or(Phase::Head, Phase::Socket);
        }
    }
}
