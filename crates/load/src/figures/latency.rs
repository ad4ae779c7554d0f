//! Latencies in nanoseconds, kept to [`limits::LATENCY_DIGITS`] digits.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::limits;

/// A histogram of latencies. Merging loses nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Histogram<u64>);

/// The latencies that this many percent of all do not exceed, and the longest; zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named by what they are")]
pub struct Percentiles {
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub p9999: Duration,
    pub max: Duration,
}

impl Default for Latency {
    fn default() -> Latency {
        let most = u64::try_from(limits::LATENCY.as_nanos()).expect("an hour in nanoseconds fits");
        let histogram = Histogram::new_with_bounds(1, most, limits::LATENCY_DIGITS);
        Latency(histogram.expect("the bounds are constants that a histogram can have"))
    }
}

impl Latency {
    /// Counts one latency, in nanoseconds; beyond [`limits::LATENCY`] it counts as that.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Counts `count` latencies of the same length.
    pub fn record_n(&mut self, nanoseconds: u64, count: u64) {
        self.0.saturating_record_n(nanoseconds, count);
    }

    /// Adds another one's counts.
    pub fn merge(&mut self, other: &Latency) {
        if !other.0.is_empty() {
            self.0.add(&other.0).expect("all histograms have the same bounds");
        }
    }

    /// As new.
    pub fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.reset();
        }
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of all do not exceed (0 to 100); zero if there are none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// How many were longer than `span`, to the histogram's precision.
    #[must_use]
    pub fn count_above(&self, span: Duration) -> u64 {
        let from = u64::try_from(span.as_nanos())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        self.0.count_between(from, self.0.high())
    }

    /// The longest; zero if there are none.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The shortest; zero if there are none.
    #[must_use]
    pub fn min(&self) -> Duration {
        if self.0.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.0.min())
    }

    /// The mean; zero if there are none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// The standard deviation.
    #[must_use]
    pub fn deviation(&self) -> Duration {
        Duration::from_nanos(self.0.stdev() as u64)
    }

    /// The percentiles that are shown.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50: self.percentile(50.0),
            p90: self.percentile(90.0),
            p99: self.percentile(99.0),
            p999: self.percentile(99.9),
            p9999: self.percentile(99.99),
            max: self.max(),
        }
    }

    /// What it is kept in.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// From a histogram of whatever bounds, such as a file's.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let mut latency = Latency::default();
        for value in histogram.iter_recorded() {
            let (value, count) = (value.value_iterated_to(), value.count_since_last_iteration());
            latency.0.saturating_record_n(value, count);
        }
        latency
    }
}
