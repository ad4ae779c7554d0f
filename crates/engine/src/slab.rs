//! Slots with generations, in chunks, so that growing never moves or copies what is there.
//!
//! Knows nothing of what is kept in it.

use crate::backend::Slot;

const CHUNK: usize = 256;
const NONE: u32 = u32::MAX;

/// The generation lies before the value and entries begin at a cache line, so that the first look at a
/// record brings what the next ones need.
#[repr(C, align(64))]
struct Entry<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// A bounded table whose places are named by [`Slot`]s.
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[Entry<T>]>>,
    free: u32,
    len: u32,
    limit: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new(limit: u32) -> Slab<T> {
        assert!(limit <= Slot::LIMIT, "slot indices have 24 bits");
        Slab {
            chunks: Vec::new(),
            free: NONE,
            len: 0,
            limit,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Gives the value back when the slab is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<Slot, T> {
        if self.len == self.limit {
            return Err(value);
        }
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let entry = self.entry_mut(index);
        debug_assert!(entry.value.is_none());
        entry.value = Some(value);
        let (generation, next) = (entry.generation, entry.next_free);
        self.free = next;
        self.len += 1;
        Ok(Slot { index, generation })
    }

    /// `None` if the slot lives no more.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let entry = self
            .chunks
            .get_mut(slot.index as usize / CHUNK)?
            .get_mut(slot.index as usize % CHUNK)?;
        if entry.generation == slot.generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        let entry = self
            .chunks
            .get(slot.index as usize / CHUNK)?
            .get(slot.index as usize % CHUNK)?;
        if entry.generation == slot.generation {
            entry.value.as_ref()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        self.get_mut(slot)?;
        let free = self.free;
        let entry = self.entry_mut(slot.index);
        let value = entry.value.take();
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = free;
        self.free = slot.index;
        self.len -= 1;
        value
    }

    /// The present life of a place, if it is in use.
    pub(crate) fn living(&self, index: u32) -> Option<Slot> {
        let entry = self
            .chunks
            .get(index as usize / CHUNK)?
            .get(index as usize % CHUNK)?;
        entry.value.is_some().then_some(Slot {
            index,
            generation: entry.generation,
        })
    }

    /// The slots in use, lowest index first.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter()).zip(0..);
        entries
            .filter(|(entry, _)| entry.value.is_some())
            .map(|(entry, index)| Slot {
                index,
                generation: entry.generation,
            })
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let last = first + CHUNK as u32 - 1;
        let entry = |index| Entry {
            generation: 0,
            next_free: if index == last { NONE } else { index + 1 },
            value: None,
        };
        self.chunks.push((first..=last).map(entry).collect());
        self.free = first;
    }
}

/// Values beside a slab's, by index, in chunks of their own.
pub(crate) struct Beside<T> {
    chunks: Vec<Box<[Option<T>]>>,
}

impl<T> Beside<T> {
    pub(crate) fn new() -> Beside<T> {
        Beside { chunks: Vec::new() }
    }

    pub(crate) fn put(&mut self, slot: Slot, value: T) {
        let chunk = slot.index as usize / CHUNK;
        while self.chunks.len() <= chunk {
            self.chunks.push((0..CHUNK).map(|_| None).collect());
        }
        self.chunks[chunk][slot.index as usize % CHUNK] = Some(value);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.chunks.get_mut(slot.index as usize / CHUNK)?[slot.index as usize % CHUNK].as_mut()
    }

    pub(crate) fn take(&mut self, slot: Slot) -> Option<T> {
        self.chunks.get_mut(slot.index as usize / CHUNK)?[slot.index as usize % CHUNK].take()
    }
}
