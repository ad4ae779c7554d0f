//! An immutable hash map by name: built once, then only read.
//!
//! The keys are from the configuration and only lookups are from clients: clients cannot lengthen probe sequences, so the hash
//! needs no secret, and the same configuration gives the same table in every run.

use crate::model::{Hostname, Name};

/// A key that is found by a text.
pub(super) trait IndexKey {
    /// Returns the text.
    fn key(&self) -> &str;
}

impl IndexKey for Name {
    fn key(&self) -> &str {
        self
    }
}

impl IndexKey for Hostname {
    /// Returns the host, or the suffix of a wildcard, which begins with a dot, as no host does.
    fn key(&self) -> &str {
        self.wildcard_suffix().unwrap_or(self.as_str())
    }
}

/// An immutable map with open addressing.
#[derive(Debug)]
pub(super) struct NameIndex<K, T> {
    entries: Box<[(K, T)]>,
    slots: HashSlots,
}

impl<K: IndexKey, T> NameIndex<K, T> {
    /// Builds a map of distinct keys.
    pub(super) fn new(entries: Box<[(K, T)]>) -> NameIndex<K, T> {
        let mut slots = HashSlots::with_capacity(entries.len());
        for (index, (name, _)) in (0..).zip(&entries) {
            slots.insert(hash_text(0, name.key().as_bytes()), index);
        }
        NameIndex { entries, slots }
    }

    /// Returns the value of `key`.
    pub(super) fn find(&self, key: &str) -> Option<&T> {
        let same = |index: u32| self.entries[index as usize].0.key() == key;
        let index = self.slots.find(hash_text(0, key.as_bytes()), same)?;
        Some(&self.entries[index as usize].1)
    }

    /// Returns the value that was inserted at this position, from 0.
    pub(super) fn at(&self, position: u32) -> &T {
        &self.entries[position as usize].1
    }

    /// Returns all values, in the order of insertion.
    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries.iter().map(|(_, value)| value)
    }
}

/// Indices by hash; the caller compares keys. At most half full, so that probe sequences are short.
#[derive(Debug)]
pub(super) struct HashSlots(Box<[u32]>);

const FREE: u32 = u32::MAX;

impl HashSlots {
    /// Creates slots for this many entries.
    pub(super) fn with_capacity(entries: usize) -> HashSlots {
        let slots = if entries == 0 {
            0
        } else {
            (entries * 2).next_power_of_two()
        };
        HashSlots(vec![FREE; slots].into())
    }

    /// Inserts an index for [`find`](Self::find).
    pub(super) fn insert(&mut self, hash: u64, index: u32) {
        let mask = self.0.len() - 1;
        let mut slot = hash as usize & mask;
        while self.0[slot] != FREE {
            slot = (slot + 1) & mask;
        }
        self.0[slot] = index;
    }

    /// Returns the index with that hash for which `same` holds.
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

/// Hashes a text with a seed.
#[inline]
pub(super) fn hash_text(seed: u32, text: &[u8]) -> u64 {
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
