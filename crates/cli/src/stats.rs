//! The counter line of `--stats`.

use std::fmt;
use std::time::{Duration, Instant};

use ringmain_engine::Report;

/// A timer with a fixed interval.
pub(crate) struct IntervalTimer {
    every: Duration,
    next: Instant,
}

impl IntervalTimer {
    /// Returns a timer that is due after one interval.
    pub(crate) fn new(every: Duration) -> IntervalTimer {
        IntervalTimer {
            every,
            next: monotonic_now() + every,
        }
    }

    /// Returns whether the interval has elapsed, and starts the next one. Missed intervals are skipped.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = monotonic_now();
        if now < self.next {
            return false;
        }
        self.next += self.every;
        if self.next <= now {
            self.next = now + self.every;
        }
        true
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the interval of a line on standard error: no simulation runs a command line"
)]
fn monotonic_now() -> Instant {
    Instant::now()
}

/// The counters since startup, summed over the workers, displayed as `name=value` pairs.
pub(crate) struct Counts<'a> {
    pub(crate) report: &'a Report,
    /// Name and number of the served messages or requests.
    pub(crate) served: (&'static str, u64),
}

impl fmt::Display for Counts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = &self.report.workers;
        let sum = |pick: fn(&ringmain_engine::WorkerReport) -> u64| workers.iter().map(pick).sum::<u64>();
        write!(
            f,
            "connections={} accepted={} closed={} {}={} received_bytes={} sent_bytes={} \
             accept_pauses={} no_buffers={} panics={}",
            sum(|w| w.connections.into()),
            sum(|w| w.accepted),
            sum(|w| w.closed),
            self.served.0,
            self.served.1,
            sum(|w| w.bytes_received),
            sum(|w| w.bytes_sent),
            sum(|w| w.accept_pauses),
            sum(|w| w.no_buffers),
            sum(|w| w.panics),
        )
    }
}
