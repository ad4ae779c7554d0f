//! What comes of what connections do.

use std::sync::Arc;

use crate::history::Place;
use crate::mail::Told;
use crate::protocol::{Disconnect, Fault, Published, Unsubscribed};

/// A connection. One that is closed is known by nobody, whatever comes in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl ConnId {
    /// Its place among the connections of its worker, which another one may have after it.
    #[must_use]
    pub fn slot(self) -> usize {
        self.index as usize
    }
}

/// What a program is to be told.
#[derive(Debug)]
pub enum Answer {
    /// What it published is published: see [`ToWorker::Published`](crate::mail::ToWorker::Published).
    Published(Option<Place>),
    /// What it wanted to know; or what it published is not ([`Told::Full`]).
    Told(Box<Told>),
}

/// What a connection is to be told, or what is to be done to it.
#[derive(Debug)]
pub enum Event {
    /// It is subscribed.
    Subscribed {
        /// Which connection.
        conn: ConnId,
        /// To which channel.
        channel: Arc<str>,
        /// Where the channel stands; see [`Subscribed::place`](crate::mail::Subscribed::place).
        place: Option<Place>,
        /// What it has missed; see [`Subscribed::missed`](crate::mail::Subscribed::missed).
        missed: Option<Vec<(u64, Arc<Published>)>>,
    },
    /// It is not.
    Refused {
        /// Which connection.
        conn: ConnId,
        /// To which channel.
        channel: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// It is subscribed no longer.
    Unsubscribed {
        /// Which connection.
        conn: ConnId,
        /// From which channel.
        channel: Arc<str>,
        /// Why.
        why: Unsubscribed,
    },
    /// What it published is published.
    Published {
        /// Which connection.
        conn: ConnId,
        /// What it called it.
        number: u32,
        /// See [`ToWorker::Published`](crate::mail::ToWorker::Published).
        place: Option<Place>,
    },
    /// What it wanted to know.
    Told {
        /// Which connection.
        conn: ConnId,
        /// What it called its question.
        number: u32,
        /// What is known.
        told: Box<Told>,
    },
    /// It is to be ended. Nothing waits for it any more.
    Disconnected {
        /// Which connection.
        conn: ConnId,
        /// Why.
        why: Disconnect,
    },
}
