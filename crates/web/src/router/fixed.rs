//! Patterns without parameters, found in one step: whole paths by a hash.
//!
//! Such a pattern is the most specific one for its path, so nothing else has to be asked. Who looks chooses paths but not the
//! table, so no path makes a search longer than the table itself does. Knows nothing of methods: an endpoint is a number.

use super::pattern::Segment;
use crate::word;

/// The table. Immutable once compiled.
#[derive(Debug)]
pub(super) struct Fixed {
    /// A power of two, at least half of them free; a path stands at the place of its hash or in the next free one behind it.
    places: Box<[Place]>,
}

#[derive(Clone, Debug, Default)]
struct Place {
    hash: u64,
    /// Empty: free.
    path: Box<[u8]>,
    endpoint: u32,
}

impl Fixed {
    /// Compiles those of the patterns that have no parameter, with their endpoints.
    pub(super) fn new<'s>(patterns: impl Iterator<Item = (&'s [Segment], u32)>) -> Fixed {
        let paths: Vec<_> = patterns
            .filter_map(|(segments, endpoint)| Some((whole(segments)?, endpoint)))
            .collect();
        let mut places = vec![Place::default(); (2 * paths.len()).next_power_of_two().max(2)];
        for (path, endpoint) in paths {
            let hash = hash(&path);
            let mut at = start(hash, places.len());
            while !places[at].path.is_empty() {
                at = (at + 1) & (places.len() - 1);
            }
            places[at] = Place {
                hash,
                path: path.into(),
                endpoint,
            };
        }
        Fixed {
            places: places.into(),
        }
    }

    /// The endpoint of a path.
    #[inline]
    pub(super) fn find(&self, path: &str) -> Option<u32> {
        let path = path.as_bytes();
        let hash = hash(path);
        let mut at = start(hash, self.places.len());
        loop {
            let place = self.places.get(at)?;
            if place.hash == hash && *place.path == *path {
                return Some(place.endpoint);
            }
            if place.path.is_empty() {
                return None;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }
}

/// The path of a pattern of literals.
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

/// Of the length and of the words of the path, the last of which may overlap the one before it.
#[inline]
fn hash(path: &[u8]) -> u64 {
    let mut sum = path.len() as u64;
    let mut left = path;
    while left.len() > word::BYTES {
        sum = (sum ^ word::load(left, 0)).wrapping_mul(ODD).rotate_left(29);
        left = &left[word::BYTES..];
    }
    let from = path.len().saturating_sub(word::BYTES);
    (sum ^ word::load_padded(path, from)).wrapping_mul(ODD)
}

/// The highest bits are the best mixed ones.
#[inline]
fn start(hash: u64, places: usize) -> usize {
    (hash >> 32) as usize & (places - 1)
}
