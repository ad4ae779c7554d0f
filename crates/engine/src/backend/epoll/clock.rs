//! Time and randomness of a real worker.
//!
//! Owns the last reading of both clocks and a small store of kernel randomness. Both clocks are
//! read through the vDSO: no system call.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::backend::Time;

/// A reading of the monotonic clock, the zero of a group's [`Time`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Start(u64);

impl Start {
    pub(super) fn now() -> Start {
        Start(nanoseconds(clock_gettime(ClockId::Monotonic)))
    }

    pub(super) fn elapsed(self) -> Time {
        Time(nanoseconds(clock_gettime(ClockId::Monotonic)).saturating_sub(self.0))
    }
}

#[derive(Debug)]
pub(super) struct Clock {
    start: Start,
    now: Time,
    wall: Duration,
}

impl Clock {
    pub(super) fn new(start: Start) -> Clock {
        let mut clock = Clock {
            start,
            now: Time(0),
            wall: Duration::ZERO,
        };
        clock.read();
        clock
    }

    pub(super) fn read(&mut self) {
        let monotonic = nanoseconds(clock_gettime(ClockId::Monotonic));
        self.now = Time(monotonic.saturating_sub(self.start.0));
        // Coarse is enough for dates and log lines (4 ms at worst), and cheaper.
        self.wall = Duration::from_nanos(nanoseconds(clock_gettime(ClockId::RealtimeCoarse)));
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn wall(&self) -> Duration {
        self.wall
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    // Neither clock is before its epoch, and 2^64 ns are 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Random numbers from the kernel, fetched by the block.
#[derive(Debug, Default)]
pub(super) struct Entropy {
    store: [u64; 32],
    left: usize,
}

impl Entropy {
    pub(super) fn take(&mut self) -> u64 {
        if self.left == 0 {
            self.fill();
        }
        self.left -= 1;
        // Never give the same number twice, nor leave it behind in memory.
        std::mem::take(&mut self.store[self.left])
    }

    fn fill(&mut self) {
        let bytes = size_of_val(&self.store);
        loop {
            // SAFETY: pointer and length describe `store`, which is plain integers.
            let count = unsafe { libc::getrandom(self.store.as_mut_ptr().cast(), bytes, 0) };
            // Up to 256 bytes come whole once the kernel's pool is ready; before, a signal may interrupt.
            if usize::try_from(count).is_ok_and(|count| count == bytes) {
                self.left = self.store.len();
                return;
            }
            let error = std::io::Error::last_os_error();
            let again = error.kind() == std::io::ErrorKind::Interrupted;
            assert!(
                again,
                "getrandom(2) failed: {error}; without randomness no worker can run"
            );
        }
    }
}
