//! A table of the clear instants of keys, shared by all workers and exact to the request.
//!
//! A key's hash selects the *row* of its cell, out of [`WAYS`]. A request of a known key costs one compare-exchange and takes no
//! lock. A request of a new key holds the lock of its part of the table while it searches a row and writes two words:
//!
//! ```text
//!            lock, no debt                   instant, then tag
//! free ───────────────────────▶ BUSY ───────────────────────▶ taken ──▶ … debt expired: as if free
//! ```
//!
//! A cell whose key has no debt carries no information, so another key may take it. If every key of a row has debt, the one with
//! the least is evicted, and its debt is lost: a table that is too small admits too much, never too little, and a client with many
//! keys gains no more than the keys alone would give it.
//!
//! A number is never changed for the wrong key: a writer reads the number first and the tag after it, and replaces only the number
//! that it read. A cell that is given to another key passes through [`BUSY`] and then holds an instant in the future, while the
//! number read lay in the past. Only a key that was evicted with debt can have had the same instant, to the nanosecond; then one
//! request is counted for another key, in a table that has lost more than that already.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{Rate, RateVerdict};
use crate::upstream::CacheLine;

/// Cells of a row: with their tags two cache lines of 64 bytes, which processors fetch together.
const WAYS: usize = 8;

/// Parts of the table with a lock each.
const PARTS: usize = 64;

/// The number of a cell that is being given to another key.
const BUSY: u64 = u64::MAX;

/// A hasher for keys: each part is hashed with its length, so that different keys are different bytes.
#[derive(Debug)]
pub(crate) struct KeyHasher(DefaultHasher);

impl KeyHasher {
    /// Creates a SipHash hasher that is keyed with a secret prefix.
    pub(crate) fn new(secret: u64) -> KeyHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(secret);
        KeyHasher(hasher)
    }

    /// Adds a part of the key; `None`: the request has no such part, which is distinct from an empty one.
    pub(crate) fn add_part(&mut self, part: Option<&[u8]>) {
        match part {
            Some(bytes) => {
                self.0.write_u64(bytes.len() as u64 + 1);
                self.0.write(bytes);
            }
            None => self.0.write_u64(0),
        }
    }

    /// Returns the hash over all parts.
    pub(crate) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// A key's cell.
#[derive(Debug, Default)]
struct KeyCell {
    /// The key's hash; 0: free.
    tag: AtomicU64,
    /// The key's clear instant.
    clear: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct CellRow([KeyCell; WAYS]);

/// A table of clear instants by key.
#[derive(Debug)]
pub(crate) struct KeyTable {
    rows: Box<[CellRow]>,
    parts: Box<[CacheLine<Mutex<()>>]>,
    secret: OnceLock<u64>,
    /// Keys that were evicted with debt.
    evicted: AtomicU64,
}

/// The outcome of an access to a cell without the lock.
enum CellResult {
    Verdict(RateVerdict),
    /// The cell belongs to another key now, or is about to.
    Gone,
}

impl KeyTable {
    /// Creates a table for at least this many keys, if they spread evenly.
    pub(crate) fn new(keys: usize) -> KeyTable {
        // A table of one cell is padded to a row: the limit of a route is written by all workers.
        let rows = keys.div_ceil(WAYS).next_power_of_two();
        KeyTable {
            rows: (0..rows).map(|_| CellRow::default()).collect(),
            parts: (0..PARTS.min(rows)).map(|_| CacheLine::default()).collect(),
            secret: OnceLock::new(),
            evicted: AtomicU64::new(0),
        }
    }

    /// Returns the secret of the key hashes, so that clients cannot compute which keys share a row: drawn on first use.
    pub(crate) fn secret(&self, random: impl FnOnce() -> u64) -> u64 {
        *self.secret.get_or_init(random)
    }

    /// Returns the number of cells.
    pub(crate) fn capacity(&self) -> usize {
        self.rows.len() * WAYS
    }

    /// Returns the number of keys that were evicted with debt.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counts a request of a key if it passes.
    pub(crate) fn count_request(&self, key: u64, rate: Rate, now: u64) -> RateVerdict {
        let tag = key_tag(key);
        let row = self.row(tag);
        let current = row.iter().find(|cell| cell.tag.load(Ordering::Acquire) == tag);
        if let Some(cell) = current
            && let CellResult::Verdict(verdict) = cell.take(tag, rate, now)
        {
            return verdict;
        }
        let _lock = self.lock(tag);
        self.count_locked(row, tag, rate, now)
    }

    /// Reverts a counted request, because another limit has refused it.
    pub(crate) fn revert_request(&self, key: u64, rate: Rate) {
        let tag = key_tag(key);
        let row = self.row(tag);
        let Some(cell) = row.iter().find(|cell| cell.tag.load(Ordering::Acquire) == tag) else {
            return;
        };
        let mut clear = cell.clear.load(Ordering::Acquire);
        loop {
            if clear == BUSY || cell.tag.load(Ordering::Acquire) != tag {
                return;
            }
            match cell.compare_exchange(clear, rate.revert_request(clear)) {
                Ok(_) => return,
                Err(stored) => clear = stored,
            }
        }
    }

    fn row(&self, tag: u64) -> &[KeyCell; WAYS] {
        &self.rows[(tag >> 32) as usize & (self.rows.len() - 1)].0
    }

    fn lock(&self, tag: u64) -> std::sync::MutexGuard<'_, ()> {
        let part = (tag >> 32) as usize & (self.parts.len() - 1);
        let part = &self.parts[part].0;
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a cell under the lock: no other thread gives a cell of this row away meanwhile.
    fn count_locked(&self, row: &[KeyCell; WAYS], tag: u64, rate: Rate, now: u64) -> RateVerdict {
        loop {
            let current = row.iter().find(|cell| cell.tag.load(Ordering::Acquire) == tag);
            if let Some(cell) = current
                && let CellResult::Verdict(verdict) = cell.take(tag, rate, now)
            {
                return verdict;
            }
            // The key with the earliest instant; free cells are 0.
            let cells = row.iter().map(|cell| (cell.clear.load(Ordering::Acquire), cell));
            let Some((clear, cell)) = cells.min_by_key(|(clear, _)| *clear) else {
                return rate.count_request(0, now).1;
            };
            if cell.compare_exchange(clear, BUSY).is_err() {
                continue;
            }
            if clear > now {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            let (moment, verdict) = rate.count_request(0, now);
            cell.tag.store(tag, Ordering::Release);
            cell.clear.store(moment, Ordering::Release);
            return verdict;
        }
    }
}

impl KeyCell {
    fn take(&self, tag: u64, rate: Rate, now: u64) -> CellResult {
        let mut clear = self.clear.load(Ordering::Acquire);
        loop {
            // Read after the number: the number is this key's, or the exchange below fails.
            if clear == BUSY || self.tag.load(Ordering::Acquire) != tag {
                return CellResult::Gone;
            }
            let (moment, verdict) = rate.count_request(clear, now);
            // A refusal writes nothing: a client that is refused repeatedly does not slow others down.
            if moment == clear {
                return CellResult::Verdict(verdict);
            }
            match self.compare_exchange(clear, moment) {
                Ok(_) => return CellResult::Verdict(verdict),
                Err(stored) => clear = stored,
            }
        }
    }

    fn compare_exchange(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.clear
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Returns the tag of a key, which is never that of a free cell.
fn key_tag(key: u64) -> u64 {
    key.max(1)
}
