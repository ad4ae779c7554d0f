//! Requests without a response in the latencies: a request that got none took at least as long as the client waited for it.
//!
//! Owns the two bounds between which a percentile of all requests lies. Knows no threshold.

use super::{Figures, Latency};

/// Waiting times of requests without a response, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// From the sending to the instant at which the client stopped waiting; a request that was never sent has none.
    pub service: Latency,
    /// From the scheduled time; empty in a closed loop.
    pub response: Latency,
}

/// The smallest and the largest value, in nanoseconds, that a figure can have; the largest is infinite where the figure depends on
/// requests that failed without a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// As if each request without a response had been answered at the instant the client stopped waiting.
    pub low: f64,
    /// As if each failed request had never been answered.
    pub high: f64,
}

impl Waits {
    /// Adds the counts of another worker or interval.
    pub fn merge(&mut self, other: &Waits) {
        self.service.merge(&other.service);
        self.response.merge(&other.response);
    }
}

impl Bounds {
    /// A figure that is known exactly.
    #[must_use]
    pub fn exact(value: f64) -> Bounds {
        Bounds {
            low: value,
            high: value,
        }
    }

    /// Returns whether the figure is known exactly.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }
}

/// All requests of a round by one clock: those with a response, those that the end of the run cut off, and those that failed.
#[derive(Clone, Debug)]
pub(crate) struct Population {
    /// Responses, and the waits of requests in flight at the end. The latter are cut off by the client, not by the server, so
    /// they count with the time they had waited.
    known: Latency,
    failed: Latency,
}

impl Population {
    /// All requests of a round: from their scheduled times, or from their sending.
    /// `missing` requests were never sent ([`Figures::missing`]): of them not even a wait is known.
    pub(crate) fn of(figures: &Figures, from_schedule: bool, missing: u64) -> Population {
        let waits = |waits: &Option<Box<Waits>>| {
            let waits = waits.as_deref()?;
            Some(
                if from_schedule {
                    &waits.response
                } else {
                    &waits.service
                }
                .clone(),
            )
        };
        let answered = if from_schedule {
            &figures.response
        } else {
            &figures.service
        };
        let (unfinished, failed) = (waits(&figures.unfinished), waits(&figures.failed));
        let mut population = Population::new(answered, unfinished.as_ref(), failed.as_ref());
        population.failed.record_n(0, missing);
        population
    }

    fn new(answered: &Latency, unfinished: Option<&Latency>, failed: Option<&Latency>) -> Population {
        let mut known = answered.clone();
        if let Some(unfinished) = unfinished {
            known.merge(unfinished);
        }
        Population {
            known,
            failed: failed.cloned().unwrap_or_default(),
        }
    }

    /// Returns the latency that `percent` (above 0, at most 100) of all requests do not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> Bounds {
        let low = self.all().percentile(percent).as_nanos() as f64;
        let rank = (self.count() as f64 * percent / 100.0).ceil().max(1.0);
        let known = self.known.count() as f64;
        if rank > known {
            return Bounds {
                low,
                high: f64::INFINITY,
            };
        }
        if self.failed.count() == 0 {
            return Bounds::exact(low);
        }
        let high = self.known.percentile((rank / known * 100.0).min(100.0));
        Bounds {
            low,
            high: (high.as_nanos() as f64).max(low),
        }
    }

    /// Returns the mean latency.
    pub(crate) fn mean(&self) -> Bounds {
        self.with_failed(self.all().mean().as_nanos() as f64)
    }

    /// Returns the longest latency.
    pub(crate) fn max(&self) -> Bounds {
        self.with_failed(self.all().max().as_nanos() as f64)
    }

    fn with_failed(&self, low: f64) -> Bounds {
        match self.failed.count() {
            0 => Bounds::exact(low),
            _ => Bounds {
                low,
                high: f64::INFINITY,
            },
        }
    }

    fn count(&self) -> u64 {
        self.known.count() + self.failed.count()
    }

    fn all(&self) -> Latency {
        let mut all = self.known.clone();
        all.merge(&self.failed);
        all
    }
}
