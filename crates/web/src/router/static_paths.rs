//! Patterns without parameters, found in one step: whole paths by a hash.
//!
//! Such a pattern is the most specific one for its path, so no other lookup is needed. A client chooses paths but not the table, so
//! no path makes a search longer than the table. Knows nothing of methods: an endpoint is a number.

use super::pattern::Segment;
use crate::router::swar;

/// The table. Immutable once compiled.
#[derive(Debug)]
pub(super) struct StaticPaths {
    /// A power of two in length, at least half free; a path is in the slot of its hash or in the next free one.
    slots: Box<[PathSlot]>,
}

#[derive(Clone, Debug, Default)]
struct PathSlot {
    hash: u64,
    /// Empty: a free slot.
    path: Box<[u8]>,
    endpoint: u32,
}

impl StaticPaths {
    /// Compiles the patterns without parameters, with their endpoints.
    pub(super) fn new<'s>(patterns: impl Iterator<Item = (&'s [Segment], u32)>) -> StaticPaths {
        let paths: Vec<_> = patterns
            .filter_map(|(segments, endpoint)| Some((whole(segments)?, endpoint)))
            .collect();
        let mut slots = vec![PathSlot::default(); (2 * paths.len()).next_power_of_two().max(2)];
        for (path, endpoint) in paths {
            let hash = hash(&path);
            let mut at = start(hash, slots.len());
            while !slots[at].path.is_empty() {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = PathSlot {
                hash,
                path: path.into(),
                endpoint,
            };
        }
        StaticPaths { slots: slots.into() }
    }

    /// Returns the endpoint of a path.
    #[inline]
    pub(super) fn find(&self, path: &str) -> Option<u32> {
        let path = path.as_bytes();
        let hash = hash(path);
        let mut at = start(hash, self.slots.len());
        loop {
            let slot = self.slots.get(at)?;
            if slot.hash == hash && *slot.path == *path {
                return Some(slot.endpoint);
            }
            if slot.path.is_empty() {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

/// Returns the path of a pattern of literals; `None` for other patterns.
fn whole(segments: &[Segment]) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    for segment in segments {
        let Segment::Literal(text) = segment else {
            return None;
        };
        path.push(b'/');
        path.extend_from_slice(text.as_bytes());
    }
    Some(path)
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes the length and the words of the path, the last of which may overlap the one before it.
#[inline]
fn hash(path: &[u8]) -> u64 {
    let mut sum = path.len() as u64;
    let mut left = path;
    while left.len() > swar::BYTES {
        sum = (sum ^ swar::load(left, 0)).wrapping_mul(ODD).rotate_left(29);
        left = &left[swar::BYTES..];
    }
    let from = path.len().saturating_sub(swar::BYTES);
    (sum ^ swar::load_padded(path, from)).wrapping_mul(ODD)
}

/// Returns the first slot to search, from the highest bits of the hash, which are mixed best.
#[inline]
fn start(hash: u64, slots: usize) -> usize {
    (hash >> 32) as usize & (slots - 1)
}
