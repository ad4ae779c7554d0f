//! Counts of requests by route and upstream: status codes, and durations by class of status.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use super::histogram::{LatencyCounts, LatencyHistogram};
use super::{BUCKETS, BUCKETS_US, add_relaxed};
use crate::limits;
use crate::model::Name;

/// One worker's counts of one route with one upstream. Only the worker writes them.
#[derive(Debug)]
pub(super) struct SeriesCounts {
    /// In the order of first occurrence; 0: free.
    codes: [CodeCount; limits::COUNTED_CODES],
    /// Responses with further codes, by the first digit of the status.
    other: [AtomicU64; 5],
    /// By the first digit of the status, from 1.
    classes: [ClassCounts; 5],
    latencies: LatencyCounts,
}

#[derive(Debug, Default)]
struct CodeCount {
    code: AtomicU16,
    count: AtomicU64,
}

#[derive(Debug, Default)]
struct ClassCounts {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl Default for SeriesCounts {
    fn default() -> SeriesCounts {
        SeriesCounts {
            codes: std::array::from_fn(|_| CodeCount::default()),
            other: Default::default(),
            classes: Default::default(),
            latencies: LatencyCounts::default(),
        }
    }
}

/// Returns the index of a status's class.
fn status_class(status: u16) -> usize {
    usize::from(status / 100).clamp(1, 5) - 1
}

impl SeriesCounts {
    /// Counts a response. The duration of a tunnel (101) is not a latency and is excluded.
    pub(super) fn count_response(&self, status: u16, span: Duration) {
        let class = status_class(status);
        match self.code_counter(status) {
            Some(count) => add_relaxed(count, 1),
            None => add_relaxed(&self.other[class], 1),
        }
        if status == 101 {
            return;
        }
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.partition_point(|end| *end < micros);
        add_relaxed(&self.classes[class].buckets[bucket], 1);
        add_relaxed(&self.classes[class].micros, micros);
        self.latencies.record(micros);
    }

    /// Returns the count of a code; `None`: the limit of codes with a counter of their own is reached.
    fn code_counter(&self, status: u16) -> Option<&AtomicU64> {
        for place in &self.codes {
            match place.code.load(Ordering::Relaxed) {
                0 => {
                    place.code.store(status, Ordering::Relaxed);
                    return Some(&place.count);
                }
                code if code == status => return Some(&place.count),
                _ => {}
            }
        }
        None
    }
}

/// Durations of requests whose responses have statuses of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Counts by bucket; the last bucket has no upper bound. Tunnels are in none.
    pub buckets: [u64; BUCKETS.len() + 1],
    /// The sum of the durations, in microseconds.
    pub micros: u64,
}

/// Counts of one route with one upstream, summed over all workers, which continue meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesReport {
    /// The route's name, or one of the labels of this module.
    pub route: Name,
    /// The upstream's name; empty for requests that were not forwarded.
    pub upstream: Name,
    /// Responses by status code, ascending. Tunnels are 101; clients that left before the response count as 499.
    pub codes: Vec<(u16, u64)>,
    /// Responses with further codes, by the first digit of the status from 1.
    pub other_codes: [u64; 5],
    /// Durations by the first digit of the status, from 1.
    pub durations: [Durations; 5],
    /// All durations in finer buckets, for percentiles.
    pub latencies: LatencyHistogram,
}

impl SeriesReport {
    pub(super) fn new(route: Name, upstream: Name) -> SeriesReport {
        SeriesReport {
            route,
            upstream,
            ..SeriesReport::default()
        }
    }

    pub(super) fn add(&mut self, counts: &SeriesCounts) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for place in &counts.codes {
            let (code, count) = (place.code.load(Ordering::Relaxed), load(&place.count));
            match self.codes.binary_search_by_key(&code, |(code, _)| *code) {
                _ if count == 0 => {}
                Ok(at) => self.codes[at].1 += count,
                Err(at) => self.codes.insert(at, (code, count)),
            }
        }
        for (sum, count) in self.other_codes.iter_mut().zip(&counts.other) {
            *sum += load(count);
        }
        for (sum, counts) in self.durations.iter_mut().zip(&counts.classes) {
            for (sum, count) in sum.buckets.iter_mut().zip(&counts.buckets) {
                *sum += load(count);
            }
            sum.micros += load(&counts.micros);
        }
        self.latencies.count(&counts.latencies);
    }

    /// Returns whether all counts are 0.
    pub(super) fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.other_codes == [0; 5]
    }

    /// Returns the responses by the first digit of their status, from 1.
    #[must_use]
    pub fn classes(&self) -> [u64; 5] {
        let mut classes = self.other_codes;
        for (code, count) in &self.codes {
            classes[status_class(*code)] += count;
        }
        classes
    }
}
