//! Maglev hashing: a table with a prime number of slots, which endpoints fill in turn by weight, each in an order of its own.

use super::seeded_hash;

/// A lookup table for Maglev hashing.
#[derive(Debug)]
pub(crate) struct Maglev {
    slots: Box<[u32]>,
}

impl Maglev {
    /// Builds a table of `slot_count` slots, a prime, from endpoints' names and weights.
    pub(crate) fn new<'n>(endpoints: impl IntoIterator<Item = (&'n str, u32)>, slot_count: u32) -> Maglev {
        struct Filler {
            index: u32,
            offset: u64,
            skip: u64,
            next: u64,
            share: f64,
            filled: f64,
        }
        let size = u64::from(slot_count);
        let endpoints = (0_u32..).zip(endpoints).filter(|(_, (_, weight))| *weight > 0);
        let mut fillers: Vec<Filler> = endpoints
            .map(|(index, (name, weight))| Filler {
                index,
                offset: seeded_hash(1, name.as_bytes()) % size,
                skip: seeded_hash(2, name.as_bytes()) % (size - 1) + 1,
                next: 0,
                share: f64::from(weight),
                filled: 0.0,
            })
            .collect();
        let max_share = fillers.iter().map(|filler| filler.share).fold(0.0, f64::max);
        let mut table = vec![u32::MAX; slot_count as usize];
        let mut free = if fillers.is_empty() { 0 } else { slot_count };
        while free > 0 {
            for filler in &mut fillers {
                // The heaviest fills one slot a round, the others in proportion to their weight.
                filler.filled += filler.share / max_share;
                if filler.filled < 1.0 - f64::EPSILON {
                    continue;
                }
                filler.filled -= 1.0;
                loop {
                    let slot = ((filler.offset + filler.next * filler.skip) % size) as usize;
                    filler.next += 1;
                    if table[slot] == u32::MAX {
                        table[slot] = filler.index;
                        free -= 1;
                        break;
                    }
                }
                if free == 0 {
                    break;
                }
            }
        }
        Maglev { slots: table.into() }
    }

    /// Returns the endpoint of a hash: that of the first slot from there on which `is_usable` accepts.
    pub(crate) fn find(&self, hash: u64, is_usable: impl Fn(usize) -> bool) -> Option<usize> {
        let start = (hash % self.slots.len().max(1) as u64) as usize;
        let (before, after) = self.slots.split_at(start.min(self.slots.len()));
        let mut slots = after.iter().chain(before).map(|index| *index as usize);
        slots.find(|index| *index != u32::MAX as usize && is_usable(*index))
    }
}
