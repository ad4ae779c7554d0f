//! One client over all its lives. Plain state; `listen` decides what happens.
//!
//! ```text
//!                     ┌──── failed, or closed by whichever side, to come back after a while
//!                     ▼
//! Waiting ─▶ Dialling ─▶ Joining ─▶ Live ─ cut off on purpose ─▶ Waiting
//!    ▲           │          │         │  told not to come back
//!    └───────────┴──────────┴─────────┴─────────────────────────▶ Gone
//! ```

use ringmain_engine::ConnId;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{BodyDecoder, HeadScanner};
use ringmain_wire::ws::Decoder;

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Wants to be dialled, now or after a while.
    Waiting,
    /// Asked for since then.
    Dialling { id: ConnId, since: Time },
    /// Connected; the handshake, `connect` or subscriptions are under way.
    Joining { id: ConnId, since: Time },
    /// All its subscriptions stand.
    Live { id: ConnId },
    /// Does not come back.
    Gone,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: State,
    /// Which life this is; what belongs to a former one is stale.
    pub(super) life: u32,
    /// Whether it reads slowly: bytes that it may read now, and whether it waits for more.
    pub(super) slow: bool,
    pub(super) paused: bool,
    pub(super) budget: i32,
    /// Whether it has stood before.
    pub(super) stood: bool,
    /// The number of the time at which all were cut off that it has not come back from, if there is one.
    pub(super) outage: Option<u16>,
    /// The endpoint that it is connected to, or connects to next.
    pub(super) node: u16,
    /// What is known of its connection, while there is one.
    pub(super) talk: Option<Box<Talk>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) reading: Reading,
    /// Of a message that is not whole yet, what has come; or a line.
    pub(super) carry: Vec<u8>,
    /// Since when it is there.
    pub(super) since: Time,
    /// Subscriptions that do not stand yet; counted from when the session stands.
    pub(super) left: u32,
    /// Whether pings are to be answered.
    pub(super) pong: bool,
    /// Whether the session stands.
    pub(super) connected: bool,
}

/// What comes next on a connection.
#[derive(Debug)]
pub(super) enum Reading {
    /// The head of the answer that opens it.
    Head { scanner: HeadScanner, nonce: [u8; 16] },
    /// Frames.
    Frames(Decoder),
    /// A body of events.
    Events(BodyDecoder),
}

const _: () = assert!(
    size_of::<Link>() <= 72 && size_of::<Talk>() <= 256,
    "a client is a small record"
);

impl Link {
    pub(super) fn new(slow: bool, node: u16) -> Link {
        Link {
            state: State::Waiting,
            life: 0,
            slow,
            paused: false,
            budget: 0,
            stood: false,
            outage: None,
            node,
            talk: None,
        }
    }

    /// Its connection, if it has one.
    pub(super) fn id(&self) -> Option<ConnId> {
        match self.state {
            State::Dialling { id, .. } | State::Joining { id, .. } | State::Live { id } => Some(id),
            State::Waiting | State::Gone => None,
        }
    }

    /// Connects to the next endpoint the next time.
    pub(super) fn fail_over(&mut self, nodes: usize) {
        self.node = (self.node + 1) % nodes as u16;
    }

    pub(super) fn end_life(&mut self, state: State) {
        self.life = self.life.wrapping_add(1);
        self.state = state;
        self.paused = false;
        self.talk = None;
    }
}

impl Talk {
    pub(super) fn new(nonce: [u8; 16], since: Time) -> Talk {
        Talk {
            reading: Reading::Head {
                scanner: HeadScanner::new(),
                nonce,
            },
            carry: Vec::new(),
            since,
            left: 0,
            pong: false,
            connected: false,
        }
    }
}
