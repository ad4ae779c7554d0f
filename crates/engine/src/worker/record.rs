//! What a worker keeps for each slot: listeners, connections and datagram sockets.
//!
//! The connection's life, all transitions in `core.rs` and `closing.rs`:
//!
//! ```text
//! Connecting ──connected──► Open ──close()──► Flushing ──all sent──► Closing ──no operation──► Closed
//!     │                      │                   │                    ▲         in flight        │ close completes
//!     │                      └──failure, abort()─┴────────────────────┤                  Released: slot is free
//!     └──refused, abort()─────────────────────────────────────────────┘
//! Giving ──taken by the other worker──► slot is free
//!     └──refused──► Open
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Waker;

use super::layered::Layered;
use super::output::Output;
use crate::backend::{DatagramInfo, Socket, Time};
use crate::stream::Receiver;
use crate::timer::TimerId;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The application closed it; all it had written was handed to the kernel.
    Closed,
    /// The application aborted it; unsent bytes were dropped.
    Aborted,
    /// The connection failed: reset by the peer, timed out by TCP, and the like.
    Failed(io::ErrorKind),
    /// Its deadline passed.
    Deadline,
    /// More than [`crate::limits::WRITE_LIMIT`] unsent bytes.
    WriteLimit,
    /// [`crate::limits::READ_MARK`] received bytes of which the handler consumed nothing.
    ReadLimit,
    /// The peer did not take the last bytes within [`crate::Config::flush`].
    FlushTimeout,
    /// The worker shut down before the connection was done.
    Shutdown,
    /// The handler panicked while it had this connection.
    Panicked,
    /// What lies between the wire and the owner has found a fault ([`crate::LayerEvent::Failed`]); it says which.
    Layer,
    /// The attempt to connect failed.
    NotConnected(io::ErrorKind),
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Open,
    Giving,
    Flushing,
    Closing,
    Closed,
    /// The close operation has completed.
    Released,
}

impl Phase {
    /// Returns whether the connection has ended for the application.
    pub(crate) fn has_ended(self) -> bool {
        matches!(self, Phase::Closing | Phase::Closed | Phase::Released)
    }
}

/// One bit each; grouped so that a record stays small.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) recv_armed: bool,
    pub(crate) recv_cancelled: bool,
    pub(crate) send_in_flight: bool,
    pub(crate) send_held: bool,
    /// On the list of connections to flush at the end of the turn.
    pub(crate) dirty: bool,
    /// Waits for a receive buffer.
    pub(crate) parked: bool,
    /// The application wants no data now.
    pub(crate) paused: bool,
    /// Unsent bytes are above the mark.
    pub(crate) blocked: bool,
    /// Took its share of this turn; receives again in the next.
    pub(crate) sated: bool,
    /// The peer's last byte is in.
    pub(crate) eof: bool,
    /// The handler or stream has been told of `eof`.
    pub(crate) eof_told: bool,
    /// Our last byte is queued: FIN follows it.
    pub(crate) fin_wanted: bool,
    pub(crate) fin_sent: bool,
    /// The connect operation is in flight.
    pub(crate) connecting: bool,
    /// A send has failed, for the reason in [`Connection::reason`] if a stream owns it: nothing more is sent, and bytes that arrived
    /// before are still received.
    pub(crate) broken: bool,
    /// A [`crate::stream::Stream`] owns it, not the handler.
    pub(crate) streamed: bool,
    /// The handler wants no more in this turn: it is offered what it left in the next.
    pub(crate) yielded: bool,
}

/// Bytes of a unit in which a turn's receipts are counted.
pub(crate) const TURN_UNIT: usize = 16;

const _: () = assert!(crate::limits::READ_PER_TURN / TURN_UNIT < u16::MAX as usize);

// In this order: what is needed to send to a connection that was idle comes first and is two cache lines, with the place's
// generation before it; what receiving needs besides is in the third.
#[repr(C)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) phase: Phase,
    pub(crate) flags: Flags,
    /// See [`super::resets`].
    pub(crate) check: Check,
    pub(crate) reason: Option<Reason>,
    /// What the connection counts in [`super::holding`], in units.
    pub(crate) held_unsent: u8,
    pub(crate) held_unread: u8,
    /// The turn in which it received last, its lowest digits, and how much in that turn, in units of [`TURN_UNIT`].
    pub(crate) turn: u16,
    pub(crate) turn_units: u16,
    pub(crate) layer: Option<Box<Layered>>,
    pub(crate) stream: Option<Box<StreamState>>,
    /// Bytes handed to the kernel.
    pub(crate) sent: u64,
    pub(crate) output: Output,
    pub(crate) unread: Vec<u8>,
    /// Since when it has waited for a receive buffer with bytes to be had. `Time(0)`: it did not.
    pub(crate) parked_at: Time,
    /// `Time(0)`: none. Only stored when it moves; the timer looks at it when it fires.
    pub(crate) deadline: Time,
    pub(crate) timer_at: Time,
    pub(crate) timer: Option<TimerId>,
    pub(crate) listener: u32,
}

/// The state of a connection in the list of those to check for a reset that was not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Unlisted,
    /// It is, and has received bytes since the last check.
    Fed,
    /// It is, and has received none.
    Quiet,
}

/// The part that only connections owned by a stream have.
#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// Told once, at the next call.
    pub(crate) error: Option<io::Error>,
    /// Who is shown bytes as they come.
    pub(crate) receiver: Option<Rc<dyn Receiver>>,
}

const _: () = assert!(
    size_of::<Record>() + 8 <= 3 * 64,
    "an idle connection is a record of three cache lines, with its place's generation"
);
const _: () = assert!(
    std::mem::offset_of!(Connection, unread) + 8 <= 2 * 64,
    "what sending needs is in the first two of them"
);

impl Connection {
    pub(crate) fn new(socket: Socket, listener: u32, phase: Phase) -> Connection {
        Connection {
            socket,
            phase,
            flags: Flags::default(),
            listener,
            check: Check::Unlisted,
            output: Output::default(),
            sent: 0,
            held_unsent: 0,
            held_unread: 0,
            turn: 0,
            turn_units: 0,
            unread: Vec::new(),
            parked_at: Time(0),
            deadline: Time(0),
            timer: None,
            timer_at: Time(0),
            reason: None,
            stream: None,
            layer: None,
        }
    }

    /// Whether an operation of the kernel still names this slot.
    pub(crate) fn busy(&self) -> bool {
        self.flags.recv_armed || self.flags.send_in_flight || self.flags.send_held
    }

    /// Who is shown what comes now, if nothing is kept that came before.
    pub(crate) fn receiver(&self) -> Option<Rc<dyn Receiver>> {
        if !self.unread.is_empty() || self.flags.paused {
            return None;
        }
        self.stream.as_ref()?.receiver.clone()
    }

    /// Whether its owner has looked at all that is kept and waits for what follows it: then [`crate::limits::READ_MARK`] holds,
    /// or a message longer than the present mark would never be whole.
    fn needs_more(&self) -> bool {
        self.unread.len() < crate::limits::READ_MARK
            && self
                .stream
                .as_ref()
                .is_none_or(|stream| stream.reader.is_some() || stream.receiver.is_some())
    }

    /// Whether the application may still write.
    pub(crate) fn writable(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Connecting) && !self.flags.fin_wanted && !self.flags.broken
    }

    /// Whether bytes should be received now; `mark`: the present value of [`crate::limits::READ_MARK`]. A handler's connection receives
    /// nothing while its peer does not take what was written: its next request would only be answered behind that. The two directions of
    /// a stream are independent: a server may answer, and must be heard, while it reads nothing (RFC 9112 §9.5).
    pub(crate) fn wants_data(&self, mark: usize) -> bool {
        let f = &self.flags;
        let blocked = f.blocked && !f.streamed;
        self.phase == Phase::Open
            && !(f.paused || blocked || f.sated || f.eof || f.parked || f.yielded)
            && (self.unread.len() < mark || self.needs_more())
            && self
                .layer
                .as_ref()
                .is_none_or(|layered| layered.wire.len() < crate::limits::READ_MARK)
    }
}

pub(crate) struct Listener {
    pub(crate) socket: Socket,
    /// The listener's number, alike on all workers.
    pub(crate) tag: u32,
    pub(crate) accepting: bool,
    /// The accept in flight ends with one connection.
    pub(crate) one: bool,
    pub(crate) cancelled: bool,
    /// Not to be armed before this time.
    pub(crate) not_before: Time,
    /// Being emptied and closed.
    pub(crate) draining: bool,
    pub(crate) closed: bool,
    /// Who waits for its end; dropped with this.
    pub(crate) told: Option<mpsc::Sender<()>>,
}

/// A datagram that has arrived, or several that the kernel has joined.
pub(crate) struct QueuedDatagram {
    pub(crate) data: Vec<u8>,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) info: DatagramInfo,
}

pub(crate) struct Datagrams {
    pub(crate) socket: Socket,
    pub(crate) armed: bool,
    pub(crate) cancelled: bool,
    pub(crate) closing: bool,
    pub(crate) parked: bool,
    /// The connect operation is in flight.
    pub(crate) connecting: bool,
    pub(crate) sends_in_flight: u32,
    pub(crate) queue: VecDeque<QueuedDatagram>,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) error: Option<io::Error>,
}

pub(crate) enum Record {
    Listener(Listener),
    Connection(Connection),
    Datagrams(Box<Datagrams>),
}
