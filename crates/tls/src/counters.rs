//! Counters of handshakes, written by each worker and read at any time. Must not know settings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The numbers of handshakes since the start, summed over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Sessions that were started. Those that neither finished nor failed are still in progress, or their connections were closed before.
    pub started: u64,
    /// Handshakes that were completed.
    pub finished: u64,
    /// The completed handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that failed.
    pub failed: u64,
}

/// The counters of one worker, which is their only writer.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) started: Counter,
    pub(crate) finished: Counter,
    pub(crate) resumed: Counter,
    pub(crate) failed: Counter,
}

/// A counter with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        // There is one writer, so a load and a store suffice; an atomic addition would lock the bus.
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of the workers, with one entry for each handle.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters(Mutex<Vec<Arc<Counters>>>);

impl WorkerCounters {
    /// Adds and returns the counters of a new worker.
    pub(crate) fn register_worker(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(counters.clone());
        counters
    }

    pub(crate) fn counts(&self) -> HandshakeCounts {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = HandshakeCounts::default();
        for one in all.iter() {
            counts.started += one.started.value();
            counts.finished += one.finished.value();
            counts.resumed += one.resumed.value();
            counts.failed += one.failed.value();
        }
        counts
    }
}
