//! Counters by name that survive a change of configuration: keys of rate limits, requests in flight.
//!
//! Used when a configuration is compiled; the plans of rules hold the counters that workers need.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::key_table::Cells;
use crate::limits;
use crate::model::Name;
use crate::policy::passwords::PasswordChecks;
use crate::stats::upstreams::{Counted, CounterStatus};
use crate::upstream::CacheLine;

/// The registry of counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    cells: Mutex<BTreeMap<Name, Arc<Cells>>>,
    running: Mutex<BTreeMap<Name, Arc<Running>>>,
    crowds: Mutex<BTreeMap<Name, Arc<Crowd>>>,
    /// Shared by all rules.
    passwords: Arc<PasswordChecks>,
}

/// A count of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Running(CacheLine<AtomicU32>);

/// Counts of requests in flight by key: only keys with such requests occupy an entry, at most [`limits::RUNNING_KEYS`].
///
/// A request locks its key's part of the table while it searches that part.
#[derive(Debug)]
pub(crate) struct Crowd {
    parts: Box<[CacheLine<Mutex<Vec<Member>>>]>,
    secret: OnceLock<u64>,
}

/// A key and its number of requests in flight.
#[derive(Debug)]
struct Member {
    key: u64,
    count: u32,
}

/// Parts of the table with a lock each.
const PARTS: usize = 64;

/// The most keys of a part.
const PART_KEYS: usize = limits::RUNNING_KEYS / PARTS;

/// A request in flight, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Runs(Which);

#[derive(Debug)]
enum Which {
    Of(Arc<Running>),
    Key(Arc<Crowd>, u64),
}

impl Counters {
    /// Returns the cells of a name; creates them with room for `keys` on first use.
    pub(crate) fn cells(&self, name: &Name, keys: u32) -> Arc<Cells> {
        of(&self.cells, name, || Cells::new(keys as usize))
    }

    /// Returns the count of a name.
    pub(crate) fn running(&self, name: &Name) -> Arc<Running> {
        of(&self.running, name, Running::default)
    }

    /// Returns the counts by key of a name.
    pub(crate) fn crowd(&self, name: &Name) -> Arc<Crowd> {
        of(&self.crowds, name, Crowd::default)
    }

    /// Returns the slots for password checks.
    pub(crate) fn passwords(&self) -> &Arc<PasswordChecks> {
        &self.passwords
    }

    /// Returns the current state of every counter, by name.
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
        let crowds = lock(&self.crowds);
        let crowds = crowds.iter().map(|(name, crowd)| CounterStatus {
            name: name.clone(),
            counted: Counted::Requests(crowd.count()),
        });
        keys.chain(running).chain(crowds).collect()
    }

    /// Removes counters that no plan holds.
    pub(crate) fn sweep(&self) {
        lock(&self.cells).retain(|_, cells| Arc::strong_count(cells) > 1);
        lock(&self.running).retain(|_, running| Arc::strong_count(running) > 1);
        lock(&self.crowds).retain(|_, crowd| Arc::strong_count(crowd) > 1);
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
    /// Counts a request, unless the limit is reached.
    pub(crate) fn begin(self: &Arc<Running>, most: u32) -> Option<Runs> {
        let next = |count: u32| (count < most).then(|| count + 1);
        let taken = self.0.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.is_ok().then(|| Runs(Which::Of(Arc::clone(self))))
    }

    /// Returns the number of requests in flight.
    pub(crate) fn count(&self) -> u32 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd {
            parts: (0..PARTS).map(|_| CacheLine::default()).collect(),
            secret: OnceLock::new(),
        }
    }
}

impl Crowd {
    /// Returns the secret of the key hashes, so that clients cannot construct collisions: drawn on first use.
    pub(crate) fn secret(&self, draw: impl FnOnce() -> u64) -> u64 {
        *self.secret.get_or_init(draw)
    }

    /// Counts a request of a key, unless its limit is reached or the table is full.
    pub(crate) fn begin(self: &Arc<Crowd>, key: u64, most: u32) -> Option<Runs> {
        let mut members = self.part(key);
        let has_room = members.len() < PART_KEYS;
        match members.iter_mut().find(|member| member.key == key) {
            Some(member) if member.count >= most => return None,
            Some(member) => member.count += 1,
            None if has_room => members.push(Member { key, count: 1 }),
            None => return None,
        }
        Some(Runs(Which::Key(Arc::clone(self), key)))
    }

    /// Returns the number of requests in flight over all keys.
    pub(crate) fn count(&self) -> u32 {
        let parts = self.parts.iter().map(|part| lock(&part.0));
        parts
            .map(|members| members.iter().map(|member| member.count).sum::<u32>())
            .sum()
    }

    fn end(&self, key: u64) {
        let mut members = self.part(key);
        let Some(at) = members.iter().position(|member| member.key == key) else {
            return;
        };
        members[at].count -= 1;
        if members[at].count == 0 {
            members.swap_remove(at);
        }
    }

    fn part(&self, key: u64) -> MutexGuard<'_, Vec<Member>> {
        lock(&self.parts[(key >> 32) as usize % PARTS].0)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        match &self.0 {
            Which::Of(running) => {
                running.0.0.fetch_sub(1, Ordering::Relaxed);
            }
            Which::Key(crowd, key) => crowd.end(*key),
        }
    }
}
