//! When an open loop sends: the moments of one worker's arrivals.
//!
//! Pure; knows nothing of connections, and nothing that happens moves a moment.

use ringmain_engine::backend::Time;

use crate::plan::Pace;

#[cfg(test)]
mod tests;

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// One worker's arrivals, without end.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    start: Time,
    next: Time,
    gaps: Gaps,
}

#[derive(Clone, Debug)]
enum Gaps {
    /// Arrival `number` of the whole run is due `number / rate` seconds after the start; this worker has every
    /// `stride`-th of them. Reckoned from the start each time, so that nothing adds up.
    Even { number: u64, stride: u64, rate: f64 },
    /// The sum of independent Poisson processes is one of the sum of their rates: each worker draws its own.
    Random {
        elapsed: f64,
        mean: f64,
        random: fastrand::Rng,
    },
}

impl Schedule {
    /// The arrivals of `worker` (from 0) of `workers`; `None` in a closed loop.
    pub(crate) fn new(pace: Pace, worker: usize, workers: usize, seed: u64, start: Time) -> Option<Schedule> {
        let gaps = match pace {
            Pace::Closed => return None,
            Pace::Constant(rate) => Gaps::Even {
                number: worker as u64,
                stride: workers as u64,
                rate,
            },
            Pace::Poisson(rate) => Gaps::Random {
                elapsed: 0.0,
                mean: SECOND * workers as f64 / rate,
                random: fastrand::Rng::with_seed(seed),
            },
        };
        let mut schedule = Schedule {
            start,
            next: start,
            gaps,
        };
        schedule.place();
        Some(schedule)
    }

    /// The next arrival.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Goes on to the one after it.
    pub(crate) fn advance(&mut self) {
        if let Gaps::Even { number, stride, .. } = &mut self.gaps {
            *number += *stride;
        }
        self.place();
    }

    /// Goes on to the first arrival at `end` or later; returns how many were before it.
    pub(crate) fn skip(&mut self, end: Time) -> u64 {
        let mut skipped = 0;
        if let Gaps::Even { number, stride, rate } = &mut self.gaps
            && self.next < end
        {
            // All but the last few at once: there may be billions.
            let before = end.since(self.start).as_nanos() as f64 * *rate / SECOND;
            skipped = ((before as u64).saturating_sub(*number) / *stride).saturating_sub(1);
            *number += skipped * *stride;
            self.place();
        }
        while self.next < end {
            self.advance();
            skipped += 1;
        }
        skipped
    }

    fn place(&mut self) {
        let after = match &mut self.gaps {
            Gaps::Even { number, rate, .. } => *number as f64 * SECOND / *rate,
            Gaps::Random {
                elapsed,
                mean,
                random,
            } => {
                // 1 - [0, 1) is never zero, so that the logarithm is finite.
                *elapsed -= (1.0 - random.f64()).ln() * *mean;
                *elapsed
            }
        };
        self.next = Time(self.start.0.saturating_add(after as u64));
    }
}
