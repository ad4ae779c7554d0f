//! What is counted by name, and survives a change of configuration: the keys of rate limits, requests at once.
//!
//! For whoever compiles a configuration; workers have what they need in their rules' plans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::cells::Cells;
use crate::limits;
use crate::model::Name;
use crate::policy::passwords::PasswordChecks;
use crate::status::{Counted, CounterStatus};
use crate::upstream::Line;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    cells: Mutex<BTreeMap<Name, Arc<Cells>>>,
    running: Mutex<BTreeMap<Name, Arc<Running>>>,
    crowds: Mutex<BTreeMap<Name, Arc<Crowd>>>,
    /// Of all rules together.
    passwords: Arc<PasswordChecks>,
}

/// Requests at once.
#[derive(Debug, Default)]
pub(crate) struct Running(Line<AtomicU32>);

/// Requests at once, of each key: only those that run have room here, [`limits::RUNNING_KEYS`] keys of them.
///
/// A key's request takes the lock of its part of the table for as long as it takes to look through that part.
#[derive(Debug)]
pub(crate) struct Crowd {
    parts: Box<[Line<Mutex<Vec<Member>>>]>,
    secret: OnceLock<u64>,
}

/// A key, and how many of it run.
#[derive(Debug)]
struct Member {
    key: u64,
    count: u32,
}

/// Parts of a table with a lock each.
const PARTS: usize = 64;

/// Keys of each.
const PART_KEYS: usize = limits::RUNNING_KEYS / PARTS;

/// One of them, as long as it lives.
#[derive(Debug)]
pub(crate) struct Runs(Which);

#[derive(Debug)]
enum Which {
    Of(Arc<Running>),
    Key(Arc<Crowd>, u64),
}

impl Counters {
    /// The cells of a name, with room for so many keys if it is new.
    pub(crate) fn cells(&self, name: &Name, keys: u32) -> Arc<Cells> {
        of(&self.cells, name, || Cells::new(keys as usize))
    }

    /// The count of a name.
    pub(crate) fn running(&self, name: &Name) -> Arc<Running> {
        of(&self.running, name, Running::default)
    }

    /// The counts of a name, by key.
    pub(crate) fn crowd(&self, name: &Name) -> Arc<Crowd> {
        of(&self.crowds, name, Crowd::default)
    }

    /// Places for password checks.
    pub(crate) fn passwords(&self) -> &Arc<PasswordChecks> {
        &self.passwords
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
        let crowds = lock(&self.crowds);
        let crowds = crowds.iter().map(|(name, crowd)| CounterStatus {
            name: name.clone(),
            counted: Counted::Requests(crowd.count()),
        });
        keys.chain(running).chain(crowds).collect()
    }

    /// Forgets what nobody holds any more.
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
    /// Counts one, unless there are as many as may be.
    pub(crate) fn begin(self: &Arc<Running>, most: u32) -> Option<Runs> {
        let next = |count: u32| (count < most).then(|| count + 1);
        let taken = self.0.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.is_ok().then(|| Runs(Which::Of(Arc::clone(self))))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd {
            parts: (0..PARTS).map(|_| Line::default()).collect(),
            secret: OnceLock::new(),
        }
    }
}

impl Crowd {
    /// What its keys are hashed with, so that nobody outside can make two of them one: drawn by the first who asks.
    pub(crate) fn secret(&self, draw: impl FnOnce() -> u64) -> u64 {
        *self.secret.get_or_init(draw)
    }

    /// Counts one of a key, unless there are as many as may be, or no room for one more key.
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

    /// How many there are of all keys.
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
