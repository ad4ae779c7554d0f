//! Counts of attempts at an upstream and of its responses. Each worker has its own counters; they can be read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One worker's counts of one upstream. Only the worker writes them.
#[derive(Debug, Default)]
pub(crate) struct AttemptCounts {
    /// Requests, or forwarded connections, for which an endpoint was selected.
    attempts: AtomicU64,
    /// Responses by the first digit of their status, from 1.
    classes: [AtomicU64; 5],
}

/// Every worker's counts, which outlive the workers' pools.
#[derive(Debug, Default)]
pub(crate) struct AttemptCounters {
    /// One for each pool of the upstream: a worker has one pool while the upstream is configured.
    workers: Mutex<Vec<Arc<AttemptCounts>>>,
}

impl AttemptCounts {
    /// Counts an attempt.
    pub(crate) fn count_attempt(&self) {
        increment(&self.attempts);
    }

    /// Counts a response of the upstream; a tunnel has status 101.
    pub(crate) fn count_response(&self, status: u16) {
        increment(&self.classes[usize::from(status / 100).clamp(1, 5) - 1]);
    }
}

impl AttemptCounters {
    /// Adds the counters of a worker.
    pub(crate) fn add_worker(&self) -> Arc<AttemptCounts> {
        let counts = Arc::new(AttemptCounts::default());
        self.lock().push(Arc::clone(&counts));
        counts
    }

    /// Returns the number of attempts, and of responses by the first digit of their status, from 1.
    pub(crate) fn totals(&self) -> (u64, [u64; 5]) {
        let (mut attempts, mut classes) = (0, [0; 5]);
        for worker in self.lock().iter() {
            attempts += worker.attempts.load(Ordering::Relaxed);
            for (sum, count) in classes.iter_mut().zip(&worker.classes) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        (attempts, classes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<AttemptCounts>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Increments without read-modify-write: only one thread writes.
fn increment(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_sum_of_all_workers() {
        let counters = AttemptCounters::default();
        let workers = [counters.add_worker(), counters.add_worker()];
        for (worker, status) in [
            (0, 101),
            (0, 200),
            (1, 204),
            (1, 301),
            (1, 404),
            (0, 503),
            (0, 999),
        ] {
            workers[worker].count_attempt();
            workers[worker].count_response(status);
        }
        workers[1].count_attempt();
        // The counts of a worker whose pool is closed remain.
        drop(workers);
        assert_eq!(counters.totals(), (8, [1, 2, 1, 1, 2]));
    }
}
