//! A counter of configuration changes that wakes waiting workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// A counter of changes and the wakers of those that wait for the next.
#[derive(Debug, Default)]
pub(crate) struct ChangeNotifier {
    count: AtomicU64,
    /// Wakers by worker.
    wakers: Mutex<Vec<Option<Waker>>>,
}

impl ChangeNotifier {
    /// Returns the number of changes so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Counts a change and wakes every registered task.
    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.lock());
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Registers the task of a worker to be woken by the next change.
    pub(crate) fn register(&self, worker: usize, waker: &Waker) {
        let mut wakers = self.lock();
        if wakers.len() <= worker {
            wakers.resize(worker + 1, None);
        }
        wakers[worker] = Some(waker.clone());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Waker>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
