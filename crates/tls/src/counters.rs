//! What is counted of handshakes: by each worker for itself, read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Handshakes since the start, of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that began; those that neither finished nor failed are under way, or their connections ended before.
    pub begun: u64,
    /// Handshakes that came to their end.
    pub finished: u64,
    /// Of these, such that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that failed.
    pub failed: u64,
}

/// Those of one worker, which alone writes them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) begun: Counter,
    pub(crate) finished: Counter,
    pub(crate) resumed: Counter,
    pub(crate) failed: Counter,
}

/// A number that one thread counts up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        // One writer: a load and a store, which no bus lock slows.
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Those of all workers; it grows with each handle, of which there is one a worker.
#[derive(Debug, Default)]
pub(crate) struct All(Mutex<Vec<Arc<Counters>>>);

impl All {
    /// Counters for one more worker.
    pub(crate) fn one_more(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(counters.clone());
        counters
    }

    pub(crate) fn counts(&self) -> Counts {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = Counts::default();
        for one in all.iter() {
            counts.begun += one.begun.value();
            counts.finished += one.finished.value();
            counts.resumed += one.resumed.value();
            counts.failed += one.failed.value();
        }
        counts
    }
}
