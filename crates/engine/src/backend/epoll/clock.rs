//! A worker's reading of the clocks.
//!
//! Owns the last reading of both. They are read through the vDSO: no system call.

use std::time::Duration;

use ringmain_sys::clock;

use crate::backend::Time;

#[derive(Debug)]
pub(super) struct Clock {
    /// The monotonic clock when the group was made: the zero of its [`Time`].
    start: Duration,
    now: Time,
    wall: Duration,
}

impl Clock {
    pub(super) fn new(start: Duration) -> Clock {
        let mut clock = Clock {
            start,
            now: Time(0),
            wall: Duration::ZERO,
        };
        clock.read();
        clock
    }

    pub(super) fn read(&mut self) {
        self.now = self.precise();
        self.wall = clock::realtime();
    }

    pub(super) fn precise(&self) -> Time {
        Time::default().after(clock::monotonic().saturating_sub(self.start))
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn wall(&self) -> Duration {
        self.wall
    }
}
