//! Durations of requests, fine enough for percentiles, in a fixed number of counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::add_relaxed;

/// Eight buckets for each power of two of microseconds: a bucket is at most 12.5 % wide. The last one is for
/// durations from 2³³ µs (143 minutes) on. Two kilobytes for each route that a worker has served.
const COUNT: usize = 8 * 30 + 1;

/// One worker's counts. Only the worker writes them.
#[derive(Debug)]
pub(super) struct LatencyCounts([AtomicU64; COUNT]);

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        LatencyCounts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LatencyCounts {
    pub(super) fn record(&self, micros: u64) {
        add_relaxed(&self.0[bucket_of(micros)], 1);
    }
}

/// Durations of requests, summed over all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram(Box<[u64; COUNT]>);

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram(Box::new([0; COUNT]))
    }
}

impl LatencyHistogram {
    pub(super) fn count(&mut self, counts: &LatencyCounts) {
        for (sum, count) in self.0.iter_mut().zip(&counts.0) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// Adds the counts of another set.
    pub fn add(&mut self, other: &LatencyHistogram) {
        for (sum, count) in self.0.iter_mut().zip(other.0.iter()) {
            *sum += count;
        }
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &LatencyHistogram) -> LatencyHistogram {
        let mut difference = self.clone();
        for (now, then) in difference.0.iter_mut().zip(earlier.0.iter()) {
            *now = now.saturating_sub(*then);
        }
        difference
    }

    /// Returns the duration that `quantile` (0 to 1) of the requests did not exceed, to within 12.5 % and at least 8 µs; `None` without
    /// requests. A duration is from the loop turn in which the request was received to the one in which its response was fully written.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let rank = ((all as f64 * quantile).ceil() as u64).clamp(1, all.max(1));
        let mut total = 0;
        let bucket = self.0.iter().position(|count| {
            total += count;
            total >= rank
        });
        bucket.filter(|_| all > 0).map(bucket_limit)
    }
}

/// Returns the bucket of a duration: its highest bit and the three below, from 8 µs on.
fn bucket_of(micros: u64) -> usize {
    let micros = micros.max(8);
    let power = micros.ilog2();
    let eighth = (micros >> (power - 3)) & 7;
    (8 * (power as usize - 3) + eighth as usize).min(COUNT - 1)
}

/// Returns the largest duration of a bucket.
fn bucket_limit(bucket: usize) -> Duration {
    let (power, eighth) = (bucket / 8, bucket as u64 % 8);
    Duration::from_micros(((9 + eighth) << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = Duration::ZERO;
        for at in 0..COUNT - 1 {
            let end = bucket_limit(at);
            assert!(end > last || at == 0);
            let micros = end.as_micros() as u64;
            assert_eq!((bucket_of(micros), bucket_of(micros + 1)), (at, at + 1));
            let width = (end - last).as_secs_f64() / end.as_secs_f64();
            assert!(at == 0 || width <= 0.125, "{at}: {width}");
            last = end;
        }
        assert_eq!(bucket_of(u64::MAX), COUNT - 1);
        assert_eq!(bucket_of(0), 0);
    }

    #[test]
    fn quantiles_are_those_of_the_counts() {
        let counts = LatencyCounts::default();
        for micros in 1..=1000 {
            counts.record(micros * 100);
        }
        let mut spans = LatencyHistogram::default();
        assert_eq!(spans.quantile(0.5), None);
        spans.count(&counts);
        for (quantile, micros) in [(0.0, 100.0), (0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let bucket = spans.quantile(quantile).unwrap().as_secs_f64() * 1e6;
            assert!(
                bucket >= micros && bucket <= micros * 1.125,
                "{quantile}: {bucket}"
            );
        }
        let earlier = spans.clone();
        counts.record(7);
        let mut later = LatencyHistogram::default();
        later.count(&counts);
        assert_eq!(
            later.since(&earlier).quantile(1.0),
            Some(Duration::from_micros(8))
        );
        later.add(&earlier);
        assert_eq!(
            later.since(&earlier).since(&earlier).quantile(0.0),
            Some(Duration::from_micros(8))
        );
    }
}
