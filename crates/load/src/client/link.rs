//! One connection of the client, over all its lives: what is in flight on it and where its flows stand.
//!
//! Plain state; `client` decides what happens.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::ConnId;
use ringmain_engine::backend::Time;

use super::{http1, http2, websocket};
use crate::traffic::Values;

/// A request without its answer yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    /// When it was sent.
    pub(crate) sent: Time,
    /// When the schedule meant it to be sent; the same in a closed loop.
    pub(crate) intended: Time,
    /// The lane of its connection that its flow takes.
    pub(crate) lane: u32,
    pub(crate) flow: u32,
    pub(crate) step: u32,
    /// How often it was sent before without being processed.
    pub(crate) attempt: u8,
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
    Http2,
}

/// A step that a flow goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) flow: u32,
    pub(crate) step: u32,
}

/// A place for one flow on a connection, which has as many as requests may be in flight on it.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// The step to come in a flow that is under way.
    pub(crate) next: Option<Next>,
    /// When the step to come is meant to leave; it may wait for a connection still.
    pub(crate) due: Time,
    pub(crate) values: Values,
    /// The request that the step to come sends again, if the server declared it unprocessed.
    pub(crate) unprocessed: Option<InFlight>,
    /// The idle lane behind this one, if it is idle.
    behind: u32,
}

/// The number of no lane.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Link {
    /// Which life this is; what belongs to a former one is stale.
    pub(crate) life: u32,
    pub(crate) state: State,
    /// Of protocols whose answers come in the order of requests.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The first of the lanes that no flow takes.
    idle: u32,
    /// Lanes that flows take.
    pub(crate) busy: u32,
    /// How many of them may be, in this life.
    pub(crate) most: u32,
    /// A step is due that the server does not take yet.
    pub(crate) stalled: bool,
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
    /// The start of the first attempt to connect that failed since the connection was last open.
    pub(crate) down: Option<Time>,
}

/// What is known of an answer that is on its way.
#[derive(Debug)]
pub(crate) enum Reading {
    Http1(http1::Reading),
    Http2(Box<http2::Session>),
    /// Bytes of the echoed message that have come back.
    Echo(u32),
    WebSocket(Box<websocket::Reading>),
}

impl Link {
    /// With `lanes`, all idle.
    pub(crate) fn new(reading: Reading, lanes: &mut [Lane]) -> Link {
        let in_order = !matches!(reading, Reading::Http2(_));
        let mut link = Link {
            life: 0,
            state: State::Waiting,
            in_flight: VecDeque::with_capacity(if in_order { lanes.len() } else { 0 }),
            idle: NONE,
            busy: 0,
            most: lanes.len() as u32,
            stalled: false,
            requests: 0,
            watched: false,
            unsent: VecDeque::new(),
            offered: 0,
            reading,
            messages: 0,
            down: None,
        };
        link.free_lanes(lanes);
        link
    }

    /// Requests without an answer.
    pub(crate) fn under_way(&self) -> usize {
        match &self.reading {
            Reading::Http2(session) => session.under_way(),
            _ => self.in_flight.len(),
        }
    }

    /// Returns the requests without a response.
    pub(crate) fn requests(&self) -> impl Iterator<Item = InFlight> {
        let session = match &self.reading {
            Reading::Http2(session) => Some(session.requests()),
            _ => None,
        };
        let in_order = self.in_flight.iter().copied();
        session.into_iter().flatten().chain(in_order)
    }

    /// Whether this life has sent so many requests.
    pub(crate) fn has_done(&self, most: Option<u64>) -> bool {
        most.is_some_and(|most| self.requests >= most)
    }

    /// An idle lane, for a flow.
    pub(crate) fn take_lane(&mut self, lanes: &[Lane]) -> Option<u32> {
        let lane = self.idle;
        self.idle = lanes.get(lane as usize)?.behind;
        self.busy += 1;
        Some(lane)
    }

    /// The flow on a lane is over.
    pub(crate) fn leave_lane(&mut self, lane: u32, lanes: &mut [Lane]) {
        lanes[lane as usize].behind = self.idle;
        self.idle = lane;
        self.busy -= 1;
    }

    /// Flows that have no step to come are over.
    fn free_lanes(&mut self, lanes: &mut [Lane]) {
        self.idle = NONE;
        self.busy = lanes.len() as u32;
        for number in (0..lanes.len()).rev() {
            if lanes[number].next.is_none() {
                self.leave_lane(number as u32, lanes);
            }
        }
    }

    /// Ends this life. What was in flight is the caller's to count first. A flow goes on in the next life with the step
    /// that was to come.
    pub(crate) fn end_life(&mut self, lanes: &mut [Lane]) {
        self.free_lanes(lanes);
        self.most = lanes.len() as u32;
        self.stalled = false;
        self.life = self.life.wrapping_add(1);
        self.state = State::Waiting;
        self.in_flight.clear();
        self.requests = 0;
        self.watched = false;
        self.unsent.clear();
        self.offered = 0;
        match &mut self.reading {
            Reading::Http1(reading) => *reading = http1::Reading::default(),
            Reading::Http2(session) => session.forget(),
            Reading::Echo(received) => *received = 0,
            Reading::WebSocket(reading) => reading.forget(),
        }
    }
}
