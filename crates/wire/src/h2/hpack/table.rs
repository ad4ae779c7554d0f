//! The dynamic table (RFC 7541 §2.3.2, §4), for either direction: entries in the order of their coming, the oldest leave.
//!
//! ```text
//! bytes:    …left… │ name value │ name value │ name value │ ◀ appended
//! entries:           oldest ──────────────────▶ newest
//! ```
//!
//! An idle connection's table is two empty vectors; one that is used grows with what it holds. Knows nothing of what fields
//! mean, but for the tag that is kept with each.

use std::collections::VecDeque;

use crate::h2::tag::Tag;

/// What an entry costs beside its bytes (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// Bytes of entries that left, below which it is not worth moving the others.
const SLACK: usize = 512;

/// Where an entry's bytes are, and what is kept with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: u32,
    name: u32,
    value: u32,
    /// The encoder's, to find it by.
    pub(super) hash: u32,
    pub(super) tag: Tag,
}

impl Entry {
    fn size(&self) -> usize {
        (self.name + self.value) as usize + OVERHEAD
    }

    /// Bytes of its name.
    pub(super) fn name_len(&self) -> usize {
        self.name as usize
    }

    /// Bytes of its value.
    pub(super) fn value_len(&self) -> usize {
        self.value as usize
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    /// As the RFC counts.
    size: usize,
    most: usize,
    /// Changes so far: insertions and evictions by a smaller size.
    version: u64,
}

impl Table {
    pub(super) fn new(most: usize) -> Table {
        Table {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            most,
            version: 0,
        }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Sets the size that it may have (RFC 7541 §4.3).
    pub(super) fn resize(&mut self, most: usize) {
        self.most = most;
        self.version += 1;
        self.evict(0);
        if self.entries.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// The entry at `index`: 0 is the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(self.entries.len().checked_sub(index + 1)?)
    }

    /// Name and value of an entry, one behind the other.
    #[inline]
    pub(super) fn text(&self, entry: &Entry) -> &[u8] {
        let at = entry.at as usize;
        &self.bytes[at..at + (entry.name + entry.value) as usize]
    }

    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        &self.text(entry)[..entry.name as usize]
    }

    /// All, the newest first.
    #[inline]
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// Inserts a field. One that is larger than the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], hash: u32, tag: Tag) {
        self.version += 1;
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if size > self.most {
            return;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry {
            at,
            name: name.len() as u32,
            value: value.len() as u32,
            hash,
            tag,
        });
        self.size += size;
    }

    /// Makes room for so many bytes, as far as there can be.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.most {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.size -= oldest.size();
        }
        let dead = self
            .entries
            .front()
            .map_or(self.bytes.len(), |oldest| oldest.at as usize);
        if dead == self.bytes.len() || dead > SLACK.max(self.bytes.len() / 2) {
            self.bytes.drain(..dead);
            for entry in &mut self.entries {
                entry.at -= dead as u32;
            }
        }
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}
