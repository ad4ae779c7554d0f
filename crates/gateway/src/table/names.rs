//! Names and what belongs to them: built once, then only looked up.
//!
//! Names come from the configuration, lookups from strangers: a stranger cannot make chains longer, so the hash needs no
//! secret, and the same configuration gives the same table in every run.

use crate::model::{Hostname, Name};

/// What has a text that it is found by.
pub(super) trait Key {
    /// The text.
    fn key(&self) -> &str;
}

impl Key for Name {
    fn key(&self) -> &str {
        self
    }
}

impl Key for Hostname {
    /// The host, or what a wildcard's hosts end in, which begins with a dot, as no host does.
    fn key(&self) -> &str {
        self.wildcard_suffix().unwrap_or(self.as_str())
    }
}

/// An immutable map, by open addressing.
#[derive(Debug)]
pub(super) struct Names<K, T> {
    entries: Box<[(K, T)]>,
    slots: Slots,
}

impl<K: Key, T> Names<K, T> {
    /// Of keys that are all different.
    pub(super) fn new(entries: Box<[(K, T)]>) -> Names<K, T> {
        let mut slots = Slots::of(entries.len());
        for (index, (name, _)) in (0..).zip(&entries) {
            slots.insert(hash(0, name.key().as_bytes()), index);
        }
        Names { entries, slots }
    }

    /// What belongs to `key`.
    pub(super) fn find(&self, key: &str) -> Option<&T> {
        let same = |index: u32| self.entries[index as usize].0.key() == key;
        let index = self.slots.find(hash(0, key.as_bytes()), same)?;
        Some(&self.entries[index as usize].1)
    }

    /// All that belongs to a key, in the order in which it came.
    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries.iter().map(|(_, value)| value)
    }
}

/// Numbers by hash; whether two things are the same is for whoever asks. At most half full, so that a search ends soon.
#[derive(Debug)]
pub(super) struct Slots(Box<[u32]>);

const FREE: u32 = u32::MAX;

impl Slots {
    /// Room for so many.
    pub(super) fn of(entries: usize) -> Slots {
        let slots = if entries == 0 {
            0
        } else {
            (entries * 2).next_power_of_two()
        };
        Slots(vec![FREE; slots].into())
    }

    /// Puts a number where [`find`](Self::find) finds it.
    pub(super) fn insert(&mut self, hash: u64, index: u32) {
        let mask = self.0.len() - 1;
        let mut slot = hash as usize & mask;
        while self.0[slot] != FREE {
            slot = (slot + 1) & mask;
        }
        self.0[slot] = index;
    }

    /// The number with that hash for which `same` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.0.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        loop {
            match self.0[slot] {
                FREE => return None,
                index if same(index) => return Some(index),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Of a text behind a number.
#[inline]
pub(super) fn hash(seed: u32, text: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, tail) = text.as_chunks::<8>();
    let start = mix(u64::from(seed), text.len() as u64);
    let hash = words
        .iter()
        .fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let tail = tail.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let hash = mix(hash, tail);
    hash ^ hash >> 32
}
