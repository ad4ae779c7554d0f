//! One connection that publishes, and the publications that are due on it.

use std::collections::VecDeque;

use ringmain_engine::ConnId;
use ringmain_engine::backend::Time;

use super::exchange::Reading;
use crate::push::calendar::Number;

/// One connection, with its requests in flight.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) id: Option<ConnId>,
    pub(super) life: u32,
    /// It is established.
    pub(super) open: bool,
    /// Publications that were sent and have no answer yet.
    pub(super) in_flight: VecDeque<Flight>,
    /// The number of publications in each request.
    pub(super) requests: VecDeque<u16>,
    /// Publications that are due and wait for room.
    pub(super) waiting: VecDeque<Due>,
    pub(super) reading: Reading,
}

/// A publication that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) due: Time,
    /// `None`: the one that tries whether publishing works.
    pub(super) number: Option<Number>,
    /// The run that it belongs to. Outcomes of an earlier run are not counted.
    pub(super) run: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) due: Due,
    pub(super) sent: Time,
}

impl Line {
    pub(super) fn new() -> Line {
        Line {
            id: None,
            life: 0,
            open: false,
            in_flight: VecDeque::new(),
            requests: VecDeque::new(),
            waiting: VecDeque::new(),
            reading: Reading::default(),
        }
    }

    /// Returns what was on its way.
    pub(super) fn end_life(&mut self) -> VecDeque<Flight> {
        self.id = None;
        self.open = false;
        self.life = self.life.wrapping_add(1);
        self.reading = Reading::default();
        self.requests.clear();
        std::mem::take(&mut self.in_flight)
    }
}
