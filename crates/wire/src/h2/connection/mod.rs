//! One connection of HTTP/2, either role: its settings, streams, windows and budgets.
//!
//! ```text
//! receive (`receive.rs`): frame ─┬─ of a header block ─▶ `block.rs` ─▶ Head, Trailers
//!                                ├─ DATA ──────────────▶ Data
//!                                └─ all others ────────▶ answered here, or told
//! send (`send.rs`): head, data, trailers, reset, ping, GOAWAY ─▶ out
//! ```
//!
//! ```text
//!            GOAWAY(2³¹-1), PING                 its answer               last stream over
//! Serving ───────────────────────▶ Announced ─────────────▶ GoingAway ─────────────────▶ idle: close
//! ```

mod block;
mod receive;
mod repeat;
mod send;

use std::time::Duration;

use super::budget::{Budget, EarlyResets};
use super::code::ErrorCode;
use super::fault::PeerFault;
use super::frame;
use super::hpack::{Decoder, Encoder};
use super::limits::{FRAME_BYTES, Limits, RESET_MEMORY, Rate};
use super::streams::{Stream, Streams};
use crate::h1::{Fields, RequestHead, ResponseHead};

pub use repeat::Repeated;
pub use send::{Request, ResponseWriter};

/// The window that either side has before it says another (RFC 9113 §6.9.2).
const FIRST_WINDOW: i32 = 65_535;
const WINDOW_MOST: i64 = i32::MAX as i64;

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers.
    Server,
    /// Asks.
    Client,
}

/// What became of some input.
#[derive(Debug)]
pub struct Step<'a> {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// What they said.
    pub event: Event<'a>,
}

/// What a peer says.
#[derive(Debug)]
pub enum Event<'a> {
    /// Nothing more until there is more input.
    NeedMore,
    /// A request has come.
    Request {
        /// Its stream.
        stream: Stream,
        /// Its head.
        head: RequestHead<'a>,
        /// It has no body, and no trailers.
        end: bool,
    },
    /// A request whose head is beyond its limits: to be answered 431, as any other.
    TooLarge {
        /// Its stream.
        stream: Stream,
        /// It has no body, and no trailers.
        end: bool,
    },
    /// An answer, interim ones included.
    Response {
        /// Its stream.
        stream: Stream,
        /// Its head.
        head: ResponseHead<'a>,
        /// It has no body, and no trailers.
        end: bool,
    },
    /// Part of a body: to be [consumed](Connection::consume) once there is room for as much again.
    Data {
        /// Its stream.
        stream: Stream,
        /// The bytes; perhaps none.
        data: &'a [u8],
        /// These were the last.
        end: bool,
    },
    /// What follows a body, and its end.
    Trailers {
        /// Their stream.
        stream: Stream,
        /// The fields.
        fields: Fields<'a>,
    },
    /// The peer has given up a stream. It is gone.
    Reset {
        /// The stream.
        stream: Stream,
        /// Why.
        code: ErrorCode,
    },
    /// The peer has broken a rule on a stream, which is gone: it was told.
    Broken {
        /// The stream; `None` for one of which nothing was told before, such as a malformed request.
        stream: Option<Stream>,
        /// The rule.
        fault: PeerFault,
    },
    /// More may be sent: on a stream, or (`None`) on all of them.
    Window {
        /// The stream.
        stream: Option<Stream>,
    },
    /// The peer's settings have changed; windows may have, too.
    Settings,
    /// The peer opens no more streams and takes none above `last`: those are gone and may be asked elsewhere.
    GoAway {
        /// The highest stream that it may have done something for.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
    /// The answer to a [ping](Connection::ping).
    Pong {
        /// What the ping said.
        payload: [u8; 8],
    },
}

/// What the peer has said of itself.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Of each new stream.
    window: i32,
    frame: usize,
    streams: u32,
    extended_connect: bool,
    /// Its first SETTINGS were there.
    known: bool,
}

/// How far the end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Serving,
    /// The peer was told that the end is near, and asked to confirm.
    Announced,
    /// Streams above that number are ignored.
    GoingAway(u32),
    /// A rule was broken: nothing is read.
    Faulted(PeerFault),
}

/// A header block that is not whole.
#[derive(Debug)]
struct Block {
    stream: u32,
    end: bool,
    self_dependent: bool,
    bytes: Vec<u8>,
    continuations: u16,
}

#[derive(Debug)]
struct Spending {
    resets: Budget,
    control: Budget,
    window_updates: Budget,
    empty: Budget,
    small: Budget,
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    limits: Limits,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    peer: Peer,
    life: Life,
    /// Bytes of the preface that were there.
    preface: usize,
    /// Bytes that may be sent on all streams together.
    send: i32,
    /// Bytes that the peer may send still.
    receive: i32,
    /// Bytes consumed of which the peer was not told.
    consumed: u32,
    /// The highest stream that the peer has opened.
    last: u32,
    /// The next stream to be opened here.
    next: u32,
    /// The highest stream that the peer takes, once it has said so.
    last_taken: Option<u32>,
    block: Option<Box<Block>>,
    /// By which a head buffer knows this connection.
    owner: u64,
    spending: Spending,
    early: EarlyResets,
    /// Streams that were reset here, of which frames may still be on their way.
    resets: Vec<u32>,
    /// The peer goes by the settings of this side.
    is_heeded: bool,
}

impl Connection {
    /// A connection at its beginning. `now`: time since any moment that stays the same; budgets fill by it.
    ///
    /// Appends what is to be sent first.
    #[must_use]
    pub fn new(role: Role, limits: &Limits, now: Duration, out: &mut Vec<u8>) -> Connection {
        let budgets = limits.budgets;
        let budget = |rate: Rate| Budget::new(rate, now);
        let mut connection = Connection {
            role,
            limits: *limits,
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            streams: Streams::new(),
            peer: Peer {
                window: FIRST_WINDOW,
                frame: FRAME_BYTES,
                streams: u32::MAX,
                extended_connect: false,
                known: false,
            },
            life: Life::Serving,
            preface: 0,
            send: FIRST_WINDOW,
            receive: FIRST_WINDOW,
            consumed: 0,
            last: 0,
            next: 1,
            last_taken: None,
            block: None,
            owner: 0,
            spending: Spending {
                resets: budget(budgets.resets),
                control: budget(budgets.control),
                window_updates: budget(budgets.window_updates),
                empty: budget(budgets.empty),
                small: budget(budgets.small),
            },
            early: EarlyResets::default(),
            resets: Vec::new(),
            is_heeded: false,
        };
        connection.write_preface(out);
        connection
    }

    /// Which side this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.len() == 0
    }

    /// Streams that are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// All open streams.
    pub fn streams(&self) -> impl Iterator<Item = Stream> {
        self.streams.iter()
    }

    /// Whether a stream is open.
    #[must_use]
    pub fn is_open(&self, stream: Stream) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Whether no more than what is there will be answered: [`announce_end`](Self::announce_end) was confirmed, or
    /// [`go_away`](Self::go_away) was called.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        matches!(self.life, Life::GoingAway(_) | Life::Faulted(_))
    }

    /// The rule that the peer broke, if it has; nothing is read any more.
    #[must_use]
    pub fn fault(&self) -> Option<PeerFault> {
        match self.life {
            Life::Faulted(fault) => Some(fault),
            _ => None,
        }
    }

    /// Whether the peer's preface and first settings were there.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.peer.known
    }

    /// Whether part of a header block is there: its rest is to come in time.
    #[must_use]
    pub fn is_within_a_head(&self) -> bool {
        self.block.is_some()
    }

    /// Bytes of data that the peer may send on all streams together: few, when what came was not consumed. Who sends nothing then is
    /// not to be blamed.
    #[must_use]
    pub fn peer_window(&self) -> usize {
        self.receive.max(0) as usize
    }

    /// Whether the peer understands extended CONNECT (RFC 8441).
    #[must_use]
    pub fn takes_extended_connect(&self) -> bool {
        self.peer.extended_connect
    }

    /// Bytes of memory beside the value itself.
    #[must_use]
    pub fn memory(&self) -> usize {
        let block = self
            .block
            .as_ref()
            .map_or(0, |block| size_of::<Block>() + block.bytes.capacity());
        let resets = self.resets.capacity() * size_of::<u32>();
        self.decoder.memory() + self.encoder.memory() + self.streams.memory() + block + resets
    }

    /// Bytes of data that may come on a new stream. Who has not read the settings of this side may go by the first window, were it
    /// larger (RFC 9113 §6.9.2).
    fn first_receive(&self) -> i32 {
        let window = self.limits.stream_window as i32;
        if self.is_heeded {
            window
        } else {
            window.max(FIRST_WINDOW)
        }
    }

    /// The peer has read the settings of this side: windows are what these say, below 0 where more has come before.
    fn heeded(&mut self) {
        let less = self.first_receive() - self.limits.stream_window as i32;
        self.is_heeded = true;
        for record in self.streams.iter_mut() {
            record.receive -= less;
        }
    }

    /// Whether the peer could have opened a stream by that number.
    fn is_peers(&self, id: u32) -> bool {
        (id % 2 == 1) == (self.role == Role::Server)
    }

    /// Whether nobody has opened a stream by that number.
    fn is_unused(&self, id: u32) -> bool {
        if self.is_peers(id) {
            // Those behind the last one are closed, too.
            id > self.last && !self.is_ignored(id)
        } else {
            // A server opens none.
            self.role == Role::Server || id >= self.next
        }
    }

    /// Notes that a stream is reset here, and tells the peer.
    fn write_reset(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if self.role == Role::Server {
            if self.resets.len() == RESET_MEMORY {
                self.resets.remove(0);
            }
            self.resets.push(id);
        }
        frame::write(frame::RST_STREAM, 0, id, &code.0.to_be_bytes(), out);
    }

    /// Whether late frames of a stream are to be expected: a client gives up as many as it likes.
    fn was_reset(&self, id: u32) -> bool {
        match self.role {
            Role::Client => !self.is_unused(id),
            Role::Server => self.resets.contains(&id),
        }
    }

    /// Frees a stream of which both sides were ended.
    fn settle(&mut self, stream: Stream, out: &mut Vec<u8>) {
        if self
            .streams
            .get(stream)
            .is_some_and(super::streams::Record::is_over)
        {
            self.forget(stream, out);
        }
    }

    /// Frees a stream. What nobody has consumed of it nobody will: the connection's window has it back.
    fn forget(&mut self, stream: Stream, out: &mut Vec<u8>) {
        let held = self.streams.get(stream).map_or(0, |record| record.held);
        self.streams.remove(stream);
        self.replenish(held, out);
    }
}

const _: () = assert!(size_of::<Connection>() <= 648, "an idle connection is this");
