//! Counters by name that survive a change of configuration: keys of rate limits, requests in flight.
//!
//! Used when a configuration is compiled; the plans of rules hold the counters that workers need.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::key_table::KeyTable;
use crate::limits;
use crate::model::Name;
use crate::policy::passwords::PasswordChecks;
use crate::stats::upstreams::{CounterState, CounterStatus};
use crate::upstream::CacheLine;

/// The registry of counters.
#[derive(Debug, Default)]
pub(crate) struct LimitCounters {
    key_tables: Mutex<BTreeMap<Name, Arc<KeyTable>>>,
    running: Mutex<BTreeMap<Name, Arc<RequestCount>>>,
    keyed: Mutex<BTreeMap<Name, Arc<KeyedRequestCounts>>>,
    /// Shared by all rules.
    passwords: Arc<PasswordChecks>,
}

/// A count of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct RequestCount(CacheLine<AtomicU32>);

/// Counts of requests in flight by key: only keys with such requests occupy an entry, at most [`limits::RUNNING_KEYS`].
///
/// A request locks its key's part of the table while it searches that part.
#[derive(Debug)]
pub(crate) struct KeyedRequestCounts {
    parts: Box<[CacheLine<Mutex<Vec<KeyCount>>>]>,
    secret: OnceLock<u64>,
}

/// A key and its number of requests in flight.
#[derive(Debug)]
struct KeyCount {
    key: u64,
    count: u32,
}

/// Parts of the table with a lock each.
const PARTS: usize = 64;

/// The most keys of a part.
const PART_KEYS: usize = limits::RUNNING_KEYS / PARTS;

/// A request in flight, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountGuard(CountedAt);

#[derive(Debug)]
enum CountedAt {
    All(Arc<RequestCount>),
    Key(Arc<KeyedRequestCounts>, u64),
}

impl LimitCounters {
    /// Returns the cells of a name; creates them with room for `keys` on first use.
    pub(crate) fn key_table(&self, name: &Name, keys: u32) -> Arc<KeyTable> {
        get_or_insert(&self.key_tables, name, || KeyTable::new(keys as usize))
    }

    /// Returns the count of a name.
    pub(crate) fn request_count(&self, name: &Name) -> Arc<RequestCount> {
        get_or_insert(&self.running, name, RequestCount::default)
    }

    /// Returns the counts by key of a name.
    pub(crate) fn keyed_counts(&self, name: &Name) -> Arc<KeyedRequestCounts> {
        get_or_insert(&self.keyed, name, KeyedRequestCounts::default)
    }

    /// Returns the slots for password checks.
    pub(crate) fn password_checks(&self) -> &Arc<PasswordChecks> {
        &self.passwords
    }

    /// Returns the current state of every counter, by name.
    pub(crate) fn status(&self) -> Vec<CounterStatus> {
        let cells = lock(&self.key_tables);
        let keys = cells.iter().map(|(name, cells)| CounterStatus {
            name: name.clone(),
            state: CounterState::RateLimitKeys {
                room: cells.capacity(),
                forgotten: cells.evicted(),
            },
        });
        let running = lock(&self.running);
        let running = running.iter().map(|(name, running)| CounterStatus {
            name: name.clone(),
            state: CounterState::InFlight(running.count()),
        });
        let keyed = lock(&self.keyed);
        let keyed = keyed.iter().map(|(name, crowd)| CounterStatus {
            name: name.clone(),
            state: CounterState::InFlight(crowd.count()),
        });
        keys.chain(running).chain(keyed).collect()
    }

    /// Removes counters that no plan holds.
    pub(crate) fn remove_unused(&self) {
        lock(&self.key_tables).retain(|_, cells| Arc::strong_count(cells) > 1);
        lock(&self.running).retain(|_, running| Arc::strong_count(running) > 1);
        lock(&self.keyed).retain(|_, crowd| Arc::strong_count(crowd) > 1);
    }
}

fn get_or_insert<T>(map: &Mutex<BTreeMap<Name, Arc<T>>>, name: &Name, new: impl FnOnce() -> T) -> Arc<T> {
    let mut map = lock(map);
    Arc::clone(map.entry(name.clone()).or_insert_with(|| Arc::new(new())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestCount {
    /// Counts a request, unless the limit is reached.
    pub(crate) fn try_count(self: &Arc<RequestCount>, max: u32) -> Option<CountGuard> {
        let next = |count: u32| (count < max).then(|| count + 1);
        let result = self.0.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        result
            .is_ok()
            .then(|| CountGuard(CountedAt::All(Arc::clone(self))))
    }

    /// Returns the number of requests in flight.
    pub(crate) fn count(&self) -> u32 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Default for KeyedRequestCounts {
    fn default() -> KeyedRequestCounts {
        KeyedRequestCounts {
            parts: (0..PARTS).map(|_| CacheLine::default()).collect(),
            secret: OnceLock::new(),
        }
    }
}

impl KeyedRequestCounts {
    /// Returns the secret of the key hashes, so that clients cannot construct collisions: drawn on first use.
    pub(crate) fn secret(&self, random: impl FnOnce() -> u64) -> u64 {
        *self.secret.get_or_init(random)
    }

    /// Counts a request of a key, unless its limit is reached or the table is full.
    pub(crate) fn try_count(self: &Arc<KeyedRequestCounts>, key: u64, max: u32) -> Option<CountGuard> {
        let mut members = self.part_of(key);
        let has_room = members.len() < PART_KEYS;
        match members.iter_mut().find(|member| member.key == key) {
            Some(member) if member.count >= max => return None,
            Some(member) => member.count += 1,
            None if has_room => members.push(KeyCount { key, count: 1 }),
            None => return None,
        }
        Some(CountGuard(CountedAt::Key(Arc::clone(self), key)))
    }

    /// Returns the number of requests in flight over all keys.
    pub(crate) fn count(&self) -> u32 {
        let parts = self.parts.iter().map(|part| lock(&part.0));
        parts
            .map(|members| members.iter().map(|member| member.count).sum::<u32>())
            .sum()
    }

    fn release_key(&self, key: u64) {
        let mut members = self.part_of(key);
        let Some(at) = members.iter().position(|member| member.key == key) else {
            return;
        };
        members[at].count -= 1;
        if members[at].count == 0 {
            members.swap_remove(at);
        }
    }

    fn part_of(&self, key: u64) -> MutexGuard<'_, Vec<KeyCount>> {
        lock(&self.parts[(key >> 32) as usize % PARTS].0)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        match &self.0 {
            CountedAt::All(running) => {
                running.0.0.fetch_sub(1, Ordering::Relaxed);
            }
            CountedAt::Key(crowd, key) => crowd.release_key(*key),
        }
    }
}
