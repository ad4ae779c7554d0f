//! What a server keeps of one connection, and where in its exchange of messages it stands.
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
use super::entering::{Choosing, Way};
use super::exchange::Exchange;
use super::held::Collected;
use super::http2::Speaking;
use super::refused::Client;
use crate::origin::Origin;
use crate::ws::Live;

/// One connection. An idle one is this and no buffer.
#[derive(Debug)]
pub struct Connection {
    /// Of a head that is not whole.
    pub(crate) progress: HeadProgress,
    pub(crate) phase: Phase,
    /// When the present head, body or rest of an answer began.
    pub(crate) began: Time,
    /// Requests so far.
    pub(crate) requests: u32,
    /// Part of a head is there.
    pub(crate) begun: bool,
    /// The rate of the present transfer is looked at each tick.
    pub(crate) ticking: bool,
    /// The next answer is the last: shutdown has begun, or the client has sent its end.
    pub(crate) last: bool,
    /// Counted at its address.
    pub(crate) counted: bool,
    /// It began with a PROXY protocol header.
    pub(crate) proxied: bool,
    /// The generation of entrances that it was accepted by, or judged by since.
    pub(crate) entered: u16,
    /// Bytes of the present body that had come by then.
    pub(crate) base: u64,
    /// An answer is not all taken: its rate counts since `began`.
    pub(crate) slow: bool,
    pub(crate) origin: Origin,
}

impl Connection {
    /// The client, and when the present request began.
    pub(super) fn client(&self) -> Client {
        (self.origin.remote, self.began)
    }
}

/// See the module.
pub(crate) enum Phase {
    /// A PROXY protocol header is expected.
    Proxied(Rc<Way>),
    /// The name that the client asks for by TLS says what it is.
    Choosing(Box<Choosing>),
    /// Somebody else has it: this is dropped at once.
    Taken,
    Head,
    Collecting(Box<Collector>),
    Running {
        exchange: Rc<Exchange>,
        serial: u64,
    },
    Discarding(Box<BodyDecoder>),
    /// The rest of a large answer, handed to the engine as the client takes it.
    Sending(Box<Sending>),
    /// It speaks WebSocket.
    Socket(Box<Live>),
    /// It speaks HTTP/2.
    Http2(Speaking),
    /// The answer is written; what still comes is dropped, so many bytes of it at most.
    Lingering {
        left: u64,
    },
}

/// See [`Phase::Sending`].
pub(crate) struct Sending {
    pub(crate) rest: Bytes,
    pub(crate) then: Then,
    /// A body that is to be dropped when the answer is sent.
    pub(crate) unwanted: Option<Box<BodyDecoder>>,
}

/// A request whose body is not there yet.
pub(crate) struct Collector {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// What that counts in the worker's budget.
    pub(crate) collected: Option<Collected>,
    pub(crate) decoder: BodyDecoder,
    /// What an answer depends on that comes before the body is there.
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

    /// Follows a task that has answered meanwhile.
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
