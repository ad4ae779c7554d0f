//! What is counted by name, and survives a change of configuration: the keys of rate limits, requests at once.
//!
//! For whoever compiles a configuration; workers have what they need in their rules' plans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cells::Cells;
use crate::model::Name;
use crate::status::{Counted, CounterStatus};
use crate::upstream::Line;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    cells: Mutex<BTreeMap<Name, Arc<Cells>>>,
    running: Mutex<BTreeMap<Name, Arc<Running>>>,
}

/// Requests at once.
#[derive(Debug, Default)]
pub(crate) struct Running(Line<AtomicU32>);

/// One of them, as long as it lives.
#[derive(Debug)]
pub(crate) struct Runs(Arc<Running>);

impl Counters {
    /// The cells of a name, with room for so many keys if it is new.
    pub(crate) fn cells(&self, name: &Name, keys: u32) -> Arc<Cells> {
        of(&self.cells, name, || Cells::new(keys as usize))
    }

    /// The count of a name.
    pub(crate) fn running(&self, name: &Name) -> Arc<Running> {
        of(&self.running, name, Running::default)
    }

    /// What is counted at this moment, by name.
    pub(crate) fn status(&self) -> Vec<CounterStatus> {
        let cells = lock(&self.cells);
        let keys = cells.iter().map(|(name, cells)| CounterStatus {
            name: name.clone(),
            counted: Counted::Keys {
                room: cells.room(),
                forgotten: cells.forgotten(),
            },
        });
        let running = lock(&self.running);
        let running = running.iter().map(|(name, running)| CounterStatus {
            name: name.clone(),
            counted: Counted::Requests(running.count()),
        });
        keys.chain(running).collect()
    }

    /// Forgets what nobody holds any more.
    pub(crate) fn sweep(&self) {
        lock(&self.cells).retain(|_, cells| Arc::strong_count(cells) > 1);
        lock(&self.running).retain(|_, running| Arc::strong_count(running) > 1);
    }
}

fn of<T>(map: &Mutex<BTreeMap<Name, Arc<T>>>, name: &Name, new: impl FnOnce() -> T) -> Arc<T> {
    let mut map = lock(map);
    Arc::clone(map.entry(name.clone()).or_insert_with(|| Arc::new(new())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// Counts one, unless there are as many as may be.
    pub(crate) fn begin(self: &Arc<Running>, most: u32) -> Option<Runs> {
        let next = |count: u32| (count < most).then(|| count + 1);
        let taken = self.0.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.is_ok().then(|| Runs(Arc::clone(self)))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
