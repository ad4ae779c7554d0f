//! Word of changes: a count, and whoever waits for the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: AtomicU64,
    /// By worker.
    watching: Mutex<Vec<Option<Waker>>>,
}

impl Changes {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// There is one more.
    pub(crate) fn tell(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let woken = std::mem::take(&mut *self.lock());
        woken.into_iter().flatten().for_each(Waker::wake);
    }

    /// Has a worker's task woken by the next one.
    pub(crate) fn watch(&self, worker: usize, waker: &Waker) {
        let mut watching = self.lock();
        if watching.len() <= worker {
            watching.resize(worker + 1, None);
        }
        watching[worker] = Some(waker.clone());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Waker>>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
