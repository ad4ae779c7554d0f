//! A worker's reading of the clocks.
//!
//! Owns the last reading of both. They are read through the vDSO: no system call.

use std::time::Duration;

use ringmain_sys::clock;
use ringmain_sys::ticks::TickClock;

use crate::backend::Time;

#[derive(Debug)]
pub(super) struct Clock {
    /// The monotonic clock when the group was made: the zero of its [`Time`].
    start: Duration,
    now: Time,
    wall: Duration,
    ticks: TickClock,
}

impl Clock {
    pub(super) fn new(start: Duration) -> Clock {
        let mut clock = Clock {
            start,
            now: Time(0),
            wall: Duration::ZERO,
            ticks: TickClock::new(),
        };
        clock.read();
        clock
    }

    pub(super) fn read(&mut self) {
        self.now = self.precise();
        self.ticks.anchor(self.now.0);
        self.wall = clock::realtime();
    }

    pub(super) fn precise(&self) -> Time {
        Time::default().after(clock::monotonic().saturating_sub(self.start))
    }

    /// The time by the CPU's tick counter, where it has one.
    pub(super) fn rough(&self) -> Time {
        self.ticks.read().map_or_else(|| self.precise(), Time)
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn wall(&self) -> Duration {
        self.wall
    }
}
