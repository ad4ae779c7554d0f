//! What one worker of a fan-out does: it listens, or it publishes. Both are told to begin and to end, and both tell the run.
//!
//! Only hands on; `listen` and `publish` know what happens.

use std::io;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx, Handler, Reason, Via};

use super::audit::Findings;
use super::calendar::Calendar;
use super::figures::{Heard, Published, Spread};
use super::listen::Listeners;
use super::publish::Publisher;

/// What the run tells a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Publications are due from then on, these, told by this number.
    Begin { at: Time, calendar: Calendar, run: u32 },
    /// A broker's thread has reported something.
    Reported,
    /// Tell what has been counted; after the last time nothing more is to come.
    End { is_last: bool },
}

/// What a worker tells the run.
#[derive(Debug)]
pub(super) enum News {
    /// All that it has to open stands.
    Standing { now: Time },
    /// A connection did not come about, to this node or to publish; another attempt may.
    NotConnected { node: Option<u16>, error: io::Error },
    /// The server does not want to, and would not a second time.
    Refused { message: String },
    /// Publications count from now on.
    Counting,
    /// They count no more.
    Counted,
    /// All are out, and what answers came in time is there; of those that count, which were accepted.
    Published {
        figures: Box<Published>,
        accepted: Vec<bool>,
    },
    /// For each publication that counts and was written to a broker, microseconds since it was due until the broker acknowledged it, and
    /// until a plain consumer had it; `u32::MAX`: not.
    Recorded {
        acknowledged: Vec<u32>,
        consumed: Vec<u32>,
    },
    /// One thread cuts off its clients, for the time of this number.
    Cut { number: u16 },
    /// Those of its clients stand again.
    Back { number: u16 },
    /// What one thread of clients has heard.
    Heard {
        figures: Box<Heard>,
        spreads: Vec<Spread>,
        findings: Option<Box<Findings>>,
    },
    /// What one thread has used since counting began, and how long it was without a CPU that it wanted.
    Effort {
        worker: usize,
        cpu: Duration,
        waited: Option<Duration>,
    },
}

/// The life of a connection's owner that the engine's connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) index: u32,
    pub(super) life: u32,
}

/// One of both.
pub(super) enum Worker {
    Listen(Box<Listeners>),
    Publish(Box<Publisher>),
}

impl Handler for Worker {
    type Conn = Place;
    type Mail = Order;

    fn name(&self) -> &'static str {
        match self {
            Worker::Listen(_) => "load: listen",
            Worker::Publish(_) => "load: publish",
        }
    }

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<Place> {
        match self {
            Worker::Listen(listeners) => listeners.connected(conn),
            Worker::Publish(publisher) => publisher.connected(conn),
        }
    }

    fn not_connected(&mut self, _cx: &Cx, conn: ConnId, reason: Reason) {
        match self {
            Worker::Listen(listeners) => listeners.not_connected(conn, reason),
            Worker::Publish(publisher) => publisher.not_connected(conn, reason),
        }
    }

    fn secured(&mut self, conn: Conn<'_>, place: &mut Place) {
        if let Worker::Listen(listeners) = self {
            listeners.secured(conn, *place);
        }
    }

    fn insecure(&mut self, conn: Conn<'_>, place: &mut Place) {
        match self {
            Worker::Listen(listeners) => listeners.insecure(conn, *place),
            Worker::Publish(publisher) => publisher.insecure(conn, *place),
        }
    }

    fn data(&mut self, conn: Conn<'_>, place: &mut Place, bytes: &mut [u8]) -> usize {
        match self {
            Worker::Listen(listeners) => listeners.received(conn, *place, bytes),
            Worker::Publish(publisher) => publisher.received(conn, *place, bytes),
        }
    }

    fn end(&mut self, conn: Conn<'_>, place: &mut Place) {
        match self {
            Worker::Listen(listeners) => listeners.ended(*place),
            Worker::Publish(publisher) => publisher.lost(*place, "closed by the server"),
        }
        conn.close();
    }

    fn drained(&mut self, conn: Conn<'_>, place: &mut Place) {
        if let Worker::Publish(publisher) = self {
            publisher.drained(conn, *place);
        }
    }

    fn deadline(&mut self, conn: Conn<'_>, place: &mut Place) {
        match self {
            Worker::Listen(listeners) => listeners.late(*place),
            Worker::Publish(publisher) => publisher.lost(*place, "no response in time"),
        }
        conn.abort();
    }

    fn drain(&mut self, conn: Conn<'_>, _place: &mut Place) {
        if let Worker::Listen(listeners) = self {
            listeners.say_goodbye(conn);
        }
        conn.close();
    }

    fn closed(&mut self, _cx: &Cx, place: Place, reason: Reason) {
        match self {
            Worker::Listen(listeners) => listeners.closed(place, reason),
            Worker::Publish(publisher) => publisher.lost(place, "connection lost"),
        }
    }

    fn alarm(&mut self, cx: &Cx) {
        match self {
            Worker::Listen(listeners) => listeners.alarm(cx.now()),
            Worker::Publish(publisher) => publisher.alarm(cx.now()),
        }
    }

    fn mail(&mut self, cx: &Cx, order: Order) {
        match (self, order) {
            (Worker::Listen(listeners), Order::Begin { at, calendar, run }) => {
                listeners.begin(at, calendar, run)
            }
            (Worker::Listen(listeners), Order::End { is_last }) => listeners.tell(is_last),
            (Worker::Publish(publisher), Order::Begin { at, calendar, run }) => {
                publisher.begin(at, calendar, run);
                publisher.alarm(cx.now());
            }
            (Worker::Publish(publisher), Order::End { is_last }) => publisher.end(is_last),
            (Worker::Publish(publisher), Order::Reported) => publisher.reported(cx.now()),
            (Worker::Listen(_), Order::Reported) => {}
        }
    }
}
