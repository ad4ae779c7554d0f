//! One connection of the client, over all its lives: what is in flight on it and where its flow stands.
//!
//! Plain state; `client` decides what happens.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::ConnId;
use ringmain_engine::backend::Time;

use super::{http1, websocket};
use crate::traffic::Values;

/// A request without its answer yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// When it was sent.
    pub(crate) sent: Time,
    /// When the schedule meant it to be sent; the same in a closed loop.
    pub(crate) intended: Time,
    pub(crate) flow: u32,
    pub(crate) step: u32,
}

/// ```text
///                           no handshake
///                       ┌────────────────┐
/// Waiting ─▶ Dialling ──┴─▶ Opening ─────┴▶ Open ─┐
///    ▲           │ failed      │ failed           │ closed, by whichever side
///    └───────────┴─────────────┴──────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Wants to be dialled.
    Waiting,
    /// Asked for since then.
    Dialling(Time),
    /// Connected; a handshake is under way.
    Opening(Opening),
    /// It stands.
    Open(ConnId),
}

/// A connection before it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) id: ConnId,
    /// What connecting took.
    pub(crate) connect: Duration,
    /// What its handshake is at.
    pub(crate) stage: Stage,
    /// Since when it is at that.
    pub(crate) since: Time,
}

/// The handshakes of a connection, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Tls,
    WebSocket,
}

/// A step that a flow goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) flow: u32,
    pub(crate) step: u32,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// Which life this is; what belongs to a former one is stale.
    pub(crate) life: u32,
    pub(crate) state: State,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The step to come in a flow that is under way.
    pub(crate) next: Option<Next>,
    /// When the step to come is meant to leave; it may wait for a connection still.
    pub(crate) due: Time,
    pub(crate) values: Values,
    /// Requests sent in this life.
    pub(crate) requests: u64,
    /// Whether a deadline of the connection is set.
    pub(crate) watched: bool,
    /// What of long requests has not been handed to the engine yet.
    pub(crate) unsent: VecDeque<Bytes>,
    /// Places in the list of free ones.
    pub(crate) offered: u32,
    pub(crate) reading: Reading,
    /// Messages sent over all lives, for those that number theirs.
    pub(crate) messages: u64,
}

/// What is known of an answer that is on its way.
#[derive(Debug)]
pub(crate) enum Reading {
    Http1(http1::Reading),
    /// Bytes of the echoed message that have come back.
    Echo(u32),
    WebSocket(Box<websocket::Reading>),
}

impl Link {
    pub(crate) fn new(reading: Reading, pipeline: u32) -> Link {
        Link {
            life: 0,
            state: State::Waiting,
            in_flight: VecDeque::with_capacity(pipeline as usize),
            next: None,
            due: Time(0),
            values: Values::default(),
            requests: 0,
            watched: false,
            unsent: VecDeque::new(),
            offered: 0,
            reading,
            messages: 0,
        }
    }

    /// Ends this life. What was in flight is the caller's to count first. A flow goes on in the next life with the step
    /// that was to come.
    pub(crate) fn end_life(&mut self) {
        self.life = self.life.wrapping_add(1);
        self.state = State::Waiting;
        self.in_flight.clear();
        self.requests = 0;
        self.watched = false;
        self.unsent.clear();
        self.offered = 0;
        match &mut self.reading {
            Reading::Http1(reading) => *reading = http1::Reading::default(),
            Reading::Echo(received) => *received = 0,
            Reading::WebSocket(reading) => reading.forget(),
        }
    }
}
