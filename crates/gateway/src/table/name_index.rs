//! An immutable hash map by name: built once, then only read.
//!
//! The keys are from the configuration and only lookups are from clients: clients cannot lengthen probe sequences, so the hash
//! needs no secret, and the same configuration gives the same table in every run.

use crate::model::Hostname;

/// A key that is found by a text.
pub(super) trait IndexKey {
    /// Returns the text.
    fn key(&self) -> &str;
}

impl IndexKey for Hostname {
    /// Returns the host, or the suffix of a wildcard, which begins with a dot, as no host does.
    fn key(&self) -> &str {
        self.wildcard_suffix().unwrap_or(self.as_str())
    }
}

/// An immutable map with open addressing.
#[derive(Clone, Debug)]
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

    /// Returns a map with other values: `None` removes a key. Keys that are not in `changed` keep theirs.
    pub(super) fn with(&self, changed: Vec<(K, Option<T>)>) -> NameIndex<K, T>
    where
        K: Clone,
        T: Clone,
    {
        let position = |key: &K| {
            let same = |index: u32| self.entries[index as usize].0.key() == key.key();
            let index = self.slots.find(hash_text(0, key.key().as_bytes()), same);
            index.map(|index| index as usize)
        };
        let has_same_keys = changed
            .iter()
            .all(|(key, value)| value.is_some() == position(key).is_some());
        if has_same_keys {
            let mut next = self.clone();
            for (key, value) in changed {
                if let Some((at, value)) = position(&key).zip(value) {
                    next.entries[at].1 = value;
                }
            }
            return next;
        }
        let mut is_replaced = vec![false; self.entries.len()];
        for at in changed.iter().filter_map(|(key, _)| position(key)) {
            is_replaced[at] = true;
        }
        let entries = self.entries.iter().zip(is_replaced);
        let entries = entries.filter(|(_, is_replaced)| !is_replaced);
        let mut entries: Vec<(K, T)> = entries.map(|(entry, _)| entry.clone()).collect();
        let added = changed.into_iter();
        entries.extend(added.filter_map(|(key, value)| Some((key, value?))));
        NameIndex::new(entries.into())
    }

    /// Returns the value of `key`.
    pub(super) fn find(&self, key: &str) -> Option<&T> {
        let same = |index: u32| self.entries[index as usize].0.key() == key;
        let index = self.slots.find(hash_text(0, key.as_bytes()), same)?;
        Some(&self.entries[index as usize].1)
    }

    /// Returns all keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().map(|(key, _)| key)
    }
}

/// Indices by hash; the caller compares keys. At most half full, so that probe sequences are short.
#[derive(Clone, Debug)]
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
