//! Pooled memory of publications. Each publication is shared by all its receivers; once the last one has released it, the memory is reused,
//! so that steady traffic does not allocate.
//!
//! Acquiring never waits: if the buffers that are tried are in use, a new one is allocated. A buffer that a slow client holds leaves the
//! pool and is freed once it has been sent. Must not know publications.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::limits::{POOL_ATTEMPTS, POOLED_BUFFERS, POOLED_MAX_BYTES, POOLED_MIN_BYTES};

/// The number of buffer sizes, each twice the previous one.
const SIZES: usize = (POOLED_MAX_BYTES / POOLED_MIN_BYTES).ilog2() as usize + 1;

const _: () = assert!(POOLED_MIN_BYTES << (SIZES - 1) == POOLED_MAX_BYTES);

/// A pool of byte buffers.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// The buffers by size; the most recently used are last.
    by_size: [VecDeque<BytesMut>; SIZES],
    is_used: bool,
}

/// A pool of shared values.
#[derive(Debug)]
pub struct ArcPool<T> {
    /// The most recently used are last.
    values: VecDeque<Arc<T>>,
    is_used: bool,
}

impl BufferPool {
    /// Copies bytes into a pooled buffer. More than [`POOLED_MAX_BYTES`] are copied into memory of their own.
    #[must_use]
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() || bytes.len() > POOLED_MAX_BYTES {
            return Bytes::copy_from_slice(bytes);
        }
        self.is_used = true;
        let size = bytes.len().next_power_of_two().max(POOLED_MIN_BYTES);
        let buffers = &mut self.by_size[(size / POOLED_MIN_BYTES).ilog2() as usize];
        let mut buffer = acquire(buffers, |buffer| buffer.try_reclaim(size))
            .unwrap_or_else(|| BytesMut::with_capacity(size));
        buffer.extend_from_slice(bytes);
        let copied = buffer.split().freeze();
        retain(buffers, buffer);
        copied
    }

    /// Releases the buffers if none was used since the last call. Called periodically.
    pub fn shrink(&mut self) {
        if !std::mem::take(&mut self.is_used) {
            self.by_size = Default::default();
        }
    }
}

impl<T> Default for ArcPool<T> {
    fn default() -> ArcPool<T> {
        ArcPool {
            values: VecDeque::new(),
            is_used: false,
        }
    }
}

impl<T: Default> ArcPool<T> {
    /// Returns a value without other owners, modified by `fill`. It is a reused one in its previous state, or the default.
    #[must_use]
    pub fn acquire(&mut self, fill: impl FnOnce(&mut T)) -> Arc<T> {
        self.is_used = true;
        let mut buffer =
            acquire(&mut self.values, |buffer| Arc::get_mut(buffer).is_some()).unwrap_or_default();
        if let Some(value) = Arc::get_mut(&mut buffer) {
            fill(value);
        }
        retain(&mut self.values, Arc::clone(&buffer));
        buffer
    }

    /// Releases the values if none was used since the last call, as [`BufferPool::shrink`].
    pub fn shrink(&mut self) {
        if !std::mem::take(&mut self.is_used) {
            self.values = VecDeque::new();
        }
    }
}

/// Removes a buffer without other owners. Up to [`POOL_ATTEMPTS`] are tried, the oldest first; those in use are moved to the end.
fn acquire<B>(buffers: &mut VecDeque<B>, mut is_unused: impl FnMut(&mut B) -> bool) -> Option<B> {
    for _ in 0..POOL_ATTEMPTS {
        let mut buffer = buffers.pop_front()?;
        if is_unused(&mut buffer) {
            return Some(buffer);
        }
        buffers.push_back(buffer);
    }
    None
}

fn retain<B>(buffers: &mut VecDeque<B>, buffer: B) {
    if buffers.len() >= POOLED_BUFFERS {
        buffers.pop_front();
    }
    buffers.push_back(buffer);
}

#[cfg(test)]
mod tests;
