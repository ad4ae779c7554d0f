//! Buffers kept for reuse, last in, first out, so that the warm ones go round.

use crate::limits;

#[derive(Default)]
pub(crate) struct Pool {
    idle: Vec<Vec<u8>>,
}

impl Pool {
    /// An empty buffer with room for at least `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.idle.pop().unwrap_or_default();
        buffer.reserve(bytes.max(limits::WRITE_BUFFER_BYTES));
        buffer
    }

    /// Keeps the buffer, or frees it if there are enough or it has grown large.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        if self.idle.len() < limits::POOLED_BUFFERS && buffer.capacity() <= limits::POOLED_BUFFER_BYTES {
            buffer.clear();
            self.idle.push(buffer);
        }
    }
}
