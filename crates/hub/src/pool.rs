//! Memory of publications that goes round. What is published is shared by all who get it; when the last of them has it, the next
//! one is written into its place, so that in the long run nothing is allocated for one.
//!
//! Nobody waits for a place: where those that are tried are taken, another one is made. One that a slow client holds is not given
//! back to it, and is freed with what the client is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::limits::{POOLED, POOLED_BYTES, POOLED_LEAST_BYTES, POOLED_TRIES};

/// Sizes of places, each twice the one before.
const SIZES: usize = (POOLED_BYTES / POOLED_LEAST_BYTES).ilog2() as usize + 1;

const _: () = assert!(POOLED_LEAST_BYTES << (SIZES - 1) == POOLED_BYTES);

/// Places for bytes.
#[derive(Debug, Default)]
pub struct Buffers {
    /// By their size; in each those that were used last are at the end.
    rows: [VecDeque<BytesMut>; SIZES],
    is_used: bool,
}

/// Places for values: of a kind that is made of little, or gives back what it had.
#[derive(Debug)]
pub struct Shelf<T> {
    /// Those that were used last are at the end.
    row: VecDeque<Arc<T>>,
    is_used: bool,
}

impl Buffers {
    /// The same bytes in a place of their own. More than [`POOLED_BYTES`] are copied into memory that does not go round.
    #[must_use]
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() || bytes.len() > POOLED_BYTES {
            return Bytes::copy_from_slice(bytes);
        }
        self.is_used = true;
        let size = bytes.len().next_power_of_two().max(POOLED_LEAST_BYTES);
        let row = &mut self.rows[(size / POOLED_LEAST_BYTES).ilog2() as usize];
        let mut place =
            free(row, |place| place.try_reclaim(size)).unwrap_or_else(|| BytesMut::with_capacity(size));
        place.extend_from_slice(bytes);
        let copied = place.split().freeze();
        keep(row, place);
        copied
    }

    /// To be called now and then: what was not used since the last time is let go of.
    pub fn tidy(&mut self) {
        if !std::mem::take(&mut self.is_used) {
            self.rows = Default::default();
        }
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf {
            row: VecDeque::new(),
            is_used: false,
        }
    }
}

impl<T: Default> Shelf<T> {
    /// A value that nobody else has, as it was left or as it is at first, changed by `fill`.
    #[must_use]
    pub fn make(&mut self, fill: impl FnOnce(&mut T)) -> Arc<T> {
        self.is_used = true;
        let mut place = free(&mut self.row, |place| Arc::get_mut(place).is_some()).unwrap_or_default();
        if let Some(value) = Arc::get_mut(&mut place) {
            fill(value);
        }
        keep(&mut self.row, Arc::clone(&place));
        place
    }

    /// As [`Buffers::tidy`].
    pub fn tidy(&mut self) {
        if !std::mem::take(&mut self.is_used) {
            self.row = VecDeque::new();
        }
    }
}

/// Takes a place that nobody has any more, the oldest first. Those that are taken go to the end: they are tried again after all
/// others.
fn free<P>(row: &mut VecDeque<P>, mut is_free: impl FnMut(&mut P) -> bool) -> Option<P> {
    for _ in 0..POOLED_TRIES {
        let mut place = row.pop_front()?;
        if is_free(&mut place) {
            return Some(place);
        }
        row.push_back(place);
    }
    None
}

fn keep<P>(row: &mut VecDeque<P>, place: P) {
    if row.len() >= POOLED {
        row.pop_front();
    }
    row.push_back(place);
}

#[cfg(test)]
mod tests;
