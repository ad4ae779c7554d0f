//! The state of one connection, and the phases of its exchange of messages.
//!
//! ```text
//! AwaitingProxyHeader, SniffingHello (`accept.rs`) ─► Head, or Detached
//!
//!         ┌──────────────────────────── answered ─────────────────────────────┐
//!         ▼                                                                   │
//! Head ───┬─ plain handler, whole request ──────────────────────► response ─┬─┤
//!         │                                                                 └─ large ─► PendingResponse
//!         ├─ body to aggregate ► Aggregating ─ body complete ───► response ───┤
//!         ├─ asynchronous ─────► Running ──── handler returns ──► response ───┤
//!         ├─ unwanted body ────► Discarding (answered before) ─ its end ──────┘
//!         ├─ HTTP/2 preface ───► Http2 (by ALPN at once) ─ its last stream ─► Lingering
//!         ├─ upgrade, 101 ─────► Socket (also from Running) ─ closing handshake ─► Lingering
//!         └─ fault, or a response that closes ─► Lingering ─ client's end, time, bytes ─► closed
//! ```

use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, BodyDecoder, HeadProgress};

use super::NextAction;
use super::accept::{ListenerState, SniffingHello};
use super::exchange::Exchange;
use super::http2::SessionHandle;
use super::memory_budget::BodyReservation;
use super::rejected::RequestClient;
use crate::server::peer::PeerInfo;
use crate::ws::WsSession;

/// One connection. An idle one consists of this record, without buffers.
#[derive(Debug)]
pub struct Connection {
    /// The progress of an incomplete head.
    pub(crate) progress: HeadProgress,
    pub(crate) phase: ConnPhase,
    /// The start time of the current head, body or rest of a response.
    pub(crate) started_at: Time,
    /// Requests received so far.
    pub(crate) requests: u32,
    /// Part of a head was received.
    pub(crate) head_started: bool,
    /// The rate of the current transfer is checked each tick.
    pub(crate) ticking: bool,
    /// The next response is the last: shutdown has begun, or the client has shut down its side.
    pub(crate) last: bool,
    /// Counted at its address.
    pub(crate) counted: bool,
    /// It started with a PROXY protocol header.
    pub(crate) has_proxy_header: bool,
    /// The generation of listener protocols by which it was accepted, or last checked.
    pub(crate) listener_generation: u16,
    /// Bytes of the current body that had arrived by then.
    pub(crate) base: u64,
    /// A response is not completely taken: its rate counts from `started_at`.
    pub(crate) slow: bool,
    pub(crate) peer: PeerInfo,
}

impl Connection {
    /// Returns the client, and the start time of the current request.
    pub(super) fn client(&self) -> RequestClient {
        self.client_since(self.started_at)
    }

    /// Returns the client, and the start time of one of its requests.
    pub(super) fn client_since(&self, started_at: Time) -> RequestClient {
        RequestClient {
            remote: self.peer.remote,
            started_at,
        }
    }
}

/// See the module.
pub(crate) enum ConnPhase {
    /// A PROXY protocol header is expected.
    AwaitingProxyHeader(Rc<ListenerState>),
    /// The server name (SNI) decides between HTTP and the stream handler.
    SniffingHello(Box<SniffingHello>),
    /// Another owner has the connection: this state is dropped at once.
    Detached,
    Head,
    Aggregating(Box<BodyAggregator>),
    Running {
        exchange: Rc<Exchange>,
        serial: u64,
    },
    Discarding(Box<BodyDecoder>),
    /// The rest of a large response, handed to the engine as the client takes it.
    PendingResponse(Box<PendingResponse>),
    /// The connection carries WebSocket frames.
    Socket(Box<WsSession>),
    /// The connection carries HTTP/2.
    Http2(SessionHandle),
    /// The response is written; up to `left` further bytes from the client are dropped.
    Lingering {
        left: u64,
    },
}

/// See [`ConnPhase::PendingResponse`].
pub(crate) struct PendingResponse {
    pub(crate) rest: Bytes,
    pub(crate) next: NextAction,
    /// A body that is dropped once the response is sent.
    pub(crate) unwanted: Option<Box<BodyDecoder>>,
}

/// A request whose body is incomplete.
pub(crate) struct BodyAggregator {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// The reservation of the body in the worker's budget.
    pub(crate) collected: Option<BodyReservation>,
    pub(crate) decoder: BodyDecoder,
    /// The parts of the head on which an early response depends.
    pub(crate) exchange: h1::Exchange,
}

impl std::fmt::Debug for ConnPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ConnPhase::AwaitingProxyHeader(_) => "AwaitingProxyHeader",
            ConnPhase::SniffingHello(_) => "SniffingHello",
            ConnPhase::Detached => "Detached",
            ConnPhase::Head => "Head",
            ConnPhase::Aggregating(_) => "Aggregating",
            ConnPhase::Running { .. } => "Running",
            ConnPhase::Discarding(_) => "Discarding",
            ConnPhase::PendingResponse(_) => "Sending",
            ConnPhase::Socket(_) => "Socket",
            ConnPhase::Http2(_) => "Http2",
            ConnPhase::Lingering { .. } => "Lingering",
        })
    }
}

const _: () = assert!(
    size_of::<Connection>() <= 112,
    "an idle connection is this, beside the engine's record"
);

impl Connection {
    pub(crate) fn new(started_at: Time, peer: PeerInfo) -> Connection {
        Connection {
            progress: HeadProgress::default(),
            phase: ConnPhase::Head,
            started_at,
            requests: 0,
            head_started: false,
            ticking: false,
            last: false,
            counted: false,
            has_proxy_header: false,
            listener_generation: 0,
            base: 0,
            slow: false,
            peer,
        }
    }

    /// Moves to the next phase after a task has answered.
    pub(crate) fn advance_phase(&mut self, linger_bytes: u64) {
        let (exchange, serial) = match &self.phase {
            ConnPhase::Running { exchange, serial } => (exchange, serial),
            ConnPhase::Http2(session) => {
                if session.is_closed() {
                    self.phase = ConnPhase::Lingering { left: linger_bytes };
                }
                return;
            }
            _ => return,
        };
        if exchange.has_closed(*serial) {
            self.phase = ConnPhase::Lingering { left: linger_bytes };
        } else if !exchange.is_running(*serial) {
            let socket = exchange.take_socket(*serial);
            self.phase = socket.map_or(ConnPhase::Head, ConnPhase::Socket);
        }
    }
}
