//! Where the clear moments of keys are: a table that all workers share, exact to the request.
//!
//! A key's hash says which *row* its cell is in, of which the row has [`WAYS`]. A request of a key that is there costs one
//! compare-exchange and takes no lock. One of a new key takes the lock of its part of the table for as long as it takes to look
//! through a row and to write two words:
//!
//! ```text
//!            lock, nothing owed              moment, then tag
//! free ───────────────────────▶ BUSY ───────────────────────▶ taken ──▶ … owes nothing any more: as if it were free
//! ```
//!
//! A cell whose key owes nothing says nothing, so any other key may have it. If all of a row owe something, the one that owes
//! least is forgotten, and with it what it owed: a table that is too small lets too much pass, never too little, and a client
//! with many keys wins nothing by it that the keys alone would not give it.
//!
//! Why a number is never changed for the wrong key: whoever changes one has read the number first and the tag behind it, and
//! changes it only from what was read. A cell that gets another key passes through [`BUSY`] and then holds a moment in the future,
//! where what was read lay in the past. Only a key that was forgotten while it owed something may have had the very same moment,
//! to the nanosecond; then one request is counted for another key, in a table that has given up more than that already.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{Rate, Verdict};
use crate::upstream::Line;

/// Cells of a row: with their tags two cache lines of 64 bytes, which processors fetch together.
const WAYS: usize = 8;

/// Parts of a table with a lock each.
const PARTS: usize = 64;

/// A cell that is being given to another key.
const BUSY: u64 = u64::MAX;

/// The hash of a key: of each of its parts with its length, so that no two keys are the same bytes.
#[derive(Debug)]
pub(crate) struct KeyHasher(DefaultHasher);

impl KeyHasher {
    /// SipHash with a secret in front.
    pub(crate) fn new(secret: u64) -> KeyHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(secret);
        KeyHasher(hasher)
    }

    /// A part of the key; `None`: the request has no such part, which is a key too.
    pub(crate) fn part(&mut self, part: Option<&[u8]>) {
        match part {
            Some(bytes) => {
                self.0.write_u64(bytes.len() as u64 + 1);
                self.0.write(bytes);
            }
            None => self.0.write_u64(0),
        }
    }

    /// The hash of all parts.
    pub(crate) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// A key's cell.
#[derive(Debug, Default)]
struct Cell {
    /// The key's hash; 0: nobody's.
    tag: AtomicU64,
    /// Its clear moment.
    clear: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Row([Cell; WAYS]);

/// See the module.
#[derive(Debug)]
pub(crate) struct Cells {
    rows: Box<[Row]>,
    parts: Box<[Line<Mutex<()>>]>,
    secret: OnceLock<u64>,
    /// Keys that were forgotten while they owed something.
    forgotten: AtomicU64,
}

/// What a look at a cell without the lock has shown.
enum Seen {
    Verdict(Verdict),
    /// It is another key's now, or about to be.
    Gone,
}

impl Cells {
    /// With room for at least so many keys, if they spread evenly.
    pub(crate) fn new(keys: usize) -> Cells {
        // One cell is padded like a row: the limit of a route is written by all workers.
        let rows = keys.div_ceil(WAYS).next_power_of_two();
        Cells {
            rows: (0..rows).map(|_| Row::default()).collect(),
            parts: (0..PARTS.min(rows)).map(|_| Line::default()).collect(),
            secret: OnceLock::new(),
            forgotten: AtomicU64::new(0),
        }
    }

    /// What its keys are hashed with, so that nobody outside can compute which of them share a row: drawn by the first who asks.
    pub(crate) fn secret(&self, draw: impl FnOnce() -> u64) -> u64 {
        *self.secret.get_or_init(draw)
    }

    /// How many keys there is room for.
    pub(crate) fn room(&self) -> usize {
        self.rows.len() * WAYS
    }

    /// Keys that were forgotten for want of room while they owed something.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Counts a request of a key, if it passes.
    pub(crate) fn take(&self, key: u64, rate: Rate, now: u64) -> Verdict {
        let tag = tag(key);
        let row = self.row(tag);
        let known = row.iter().find(|cell| cell.tag.load(Ordering::Acquire) == tag);
        if let Some(cell) = known
            && let Seen::Verdict(verdict) = cell.take(tag, rate, now)
        {
            return verdict;
        }
        let _lock = self.lock(tag);
        self.take_locked(row, tag, rate, now)
    }

    /// A request that was counted did not come about: another limit has refused it.
    pub(crate) fn give_back(&self, key: u64, rate: Rate) {
        let tag = tag(key);
        let row = self.row(tag);
        let Some(cell) = row.iter().find(|cell| cell.tag.load(Ordering::Acquire) == tag) else {
            return;
        };
        let mut clear = cell.clear.load(Ordering::Acquire);
        loop {
            if clear == BUSY || cell.tag.load(Ordering::Acquire) != tag {
                return;
            }
            match cell.change(clear, rate.give_back(clear)) {
                Ok(_) => return,
                Err(newer) => clear = newer,
            }
        }
    }

    fn row(&self, tag: u64) -> &[Cell; WAYS] {
        &self.rows[(tag >> 32) as usize & (self.rows.len() - 1)].0
    }

    fn lock(&self, tag: u64) -> std::sync::MutexGuard<'_, ()> {
        let part = (tag >> 32) as usize & (self.parts.len() - 1);
        let part = &self.parts[part].0;
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the lock nobody else gives a cell of this row away.
    fn take_locked(&self, row: &[Cell; WAYS], tag: u64, rate: Rate, now: u64) -> Verdict {
        loop {
            let known = row.iter().find(|cell| cell.tag.load(Ordering::Acquire) == tag);
            if let Some(cell) = known
                && let Seen::Verdict(verdict) = cell.take(tag, rate, now)
            {
                return verdict;
            }
            // Whose moment is first; nobody's are 0.
            let moments = row.iter().map(|cell| (cell.clear.load(Ordering::Acquire), cell));
            let Some((clear, cell)) = moments.min_by_key(|(clear, _)| *clear) else {
                return rate.take(0, now).1;
            };
            if cell.change(clear, BUSY).is_err() {
                continue;
            }
            if clear > now {
                self.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            let (moment, verdict) = rate.take(0, now);
            cell.tag.store(tag, Ordering::Release);
            cell.clear.store(moment, Ordering::Release);
            return verdict;
        }
    }
}

impl Cell {
    fn take(&self, tag: u64, rate: Rate, now: u64) -> Seen {
        let mut clear = self.clear.load(Ordering::Acquire);
        loop {
            // Behind the moment: it is this key's then, or it changes before it is written.
            if clear == BUSY || self.tag.load(Ordering::Acquire) != tag {
                return Seen::Gone;
            }
            let (moment, verdict) = rate.take(clear, now);
            // A refused one writes nothing: who is refused all the time does not slow others down.
            if moment == clear {
                return Seen::Verdict(verdict);
            }
            match self.change(clear, moment) {
                Ok(_) => return Seen::Verdict(verdict),
                Err(newer) => clear = newer,
            }
        }
    }

    fn change(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.clear
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Never that of an empty cell.
fn tag(key: u64) -> u64 {
    key.max(1)
}
