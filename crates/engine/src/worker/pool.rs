//! Buffers kept for reuse, last in, first out, so that the warm ones go round.
//!
//! Two sizes: memory that goes back to the system and comes again costs page faults, which cost more than
//! the copy into it.

use std::collections::VecDeque;

use super::output::Piece;
use crate::limits;

#[derive(Default)]
pub(crate) struct Pool {
    /// Bytes of freed buffers.
    freed: usize,
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    /// For what waits behind a connection's first piece.
    #[expect(clippy::vec_box, reason = "they move between here and connections by pointer")]
    queues: Vec<Box<VecDeque<Piece>>>,
}

impl Pool {
    /// An empty buffer: small if `bytes` fit into that, else large (which may still be less than `bytes`).
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let (idle, capacity) = if bytes <= limits::SMALL_BUFFER_BYTES {
            (&mut self.small, limits::SMALL_BUFFER_BYTES)
        } else {
            (&mut self.large, limits::LARGE_BUFFER_BYTES)
        };
        idle.pop().unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Keeps the buffer if it has one of the two sizes and there are not enough yet; else frees it.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let (idle, most) = match buffer.capacity() {
            limits::SMALL_BUFFER_BYTES => (&mut self.small, limits::POOLED_SMALL_BUFFERS),
            limits::LARGE_BUFFER_BYTES => (&mut self.large, limits::POOLED_LARGE_BUFFERS),
            bytes => {
                self.freed += bytes;
                return;
            }
        };
        if idle.len() < most {
            buffer.clear();
            idle.push(buffer);
        } else {
            self.freed += buffer.capacity();
        }
    }

    /// Frees all buffers.
    pub(crate) fn empty(&mut self) {
        *self = Pool::default();
    }

    /// Bytes of buffers that were freed since the last call.
    pub(crate) fn take_freed(&mut self) -> usize {
        std::mem::take(&mut self.freed)
    }

    /// An empty queue.
    #[expect(
        clippy::box_collection,
        reason = "it moves between here and connections by pointer"
    )]
    pub(crate) fn take_queue(&mut self) -> Box<VecDeque<Piece>> {
        self.queues.pop().unwrap_or_default()
    }

    /// Keeps an empty queue if it is short and there are not enough yet; else frees it.
    #[expect(
        clippy::box_collection,
        reason = "it moves between here and connections by pointer"
    )]
    pub(crate) fn put_queue(&mut self, queue: Box<VecDeque<Piece>>) {
        debug_assert!(queue.is_empty(), "what is kept holds nothing");
        if queue.capacity() <= limits::SEND_PIECES && self.queues.len() < limits::POOLED_QUEUES {
            self.queues.push(queue);
        }
    }
}
