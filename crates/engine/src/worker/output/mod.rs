//! A connection's unsent bytes: inline bytes and shared frames, in order.
//!
//! Owns what the kernel reads during a send: pieces in flight are frozen until its completion.
//! Knows nothing of sockets. An idle queue holds no memory beyond its own record.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use super::pool::Pool;
use crate::limits;

pub(crate) enum Piece {
    /// Bytes of this connection alone, in a pooled buffer.
    Inline(Vec<u8>),
    /// Bytes shared with others: encoded once, sent to many.
    Frame(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Inline(bytes) => bytes,
            Piece::Frame(bytes) => bytes,
        }
    }
}

/// The queue. The head lies apart, so that a single piece (the common case) needs no deque; more are in one of the pool's.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Output {
    /// Unsent bytes.
    len: u32,
    /// Bytes of the head that are sent already.
    sent: u32,
    /// Pieces, from the head on, that the kernel may be reading.
    frozen: u32,
    /// Bytes that are sent of pieces whose memory the kernel still reads: taken off when that is released.
    pub(crate) held: u32,
    head: Option<Piece>,
    #[expect(clippy::box_collection, reason = "a rare state must not widen every record")]
    tail: Option<Box<VecDeque<Piece>>>,
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn write(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        self.len += bytes.len() as u32;
        while !bytes.is_empty() {
            let Some(last) = self.open_buffer() else {
                let buffer = pool.take(bytes.len());
                self.push(Piece::Inline(buffer), pool);
                continue;
            };
            if last.len() + bytes.len() > last.capacity() && last.capacity() < limits::LARGE_BUFFER_BYTES {
                let mut larger = pool.take(limits::LARGE_BUFFER_BYTES);
                larger.extend_from_slice(last);
                pool.put(std::mem::replace(last, larger));
            }
            let (now, later) = bytes.split_at(bytes.len().min(last.capacity() - last.len()));
            last.extend_from_slice(now);
            bytes = later;
            if !bytes.is_empty() {
                let buffer = pool.take(bytes.len());
                self.push(Piece::Inline(buffer), pool);
            }
        }
    }

    /// Appends a shared frame. If it `may_join` others and is small it is copied behind some pieces, so that many small ones are
    /// still one send.
    pub(crate) fn write_frame(&mut self, frame: Bytes, may_join: bool, pool: &mut Pool) {
        if frame.is_empty() {
            return;
        }
        if may_join && frame.len() <= limits::JOINED_FRAME_BYTES && self.pieces() >= limits::SHARED_PIECES {
            return self.write(&frame, pool);
        }
        self.len += frame.len() as u32;
        self.push(Piece::Frame(frame), pool);
    }

    /// Freezes and shows the pieces of the next send: at most [`limits::SEND_PIECES`] of them and
    /// [`limits::SEND_BYTES`] bytes.
    ///
    /// The memory stays in place until [`Output::advance`] or [`Output::thaw`].
    pub(crate) fn freeze<'a>(&'a mut self, slices: &mut [IoSlice<'a>; limits::SEND_PIECES]) -> usize {
        debug_assert_eq!(self.frozen, 0, "one send in flight a socket");
        let mut room = limits::SEND_BYTES;
        let mut skip = self.sent as usize;
        let mut count = 0;
        for piece in self
            .head
            .iter()
            .chain(self.tail.iter().flat_map(|tail| tail.iter()))
        {
            let bytes = &piece.bytes()[skip..];
            skip = 0;
            slices[count] = IoSlice::new(&bytes[..bytes.len().min(room)]);
            room = room.saturating_sub(bytes.len());
            count += 1;
            if room == 0 || count == limits::SEND_PIECES {
                break;
            }
        }
        self.frozen = count as u32;
        count
    }

    /// The send is over and took `count` bytes.
    pub(crate) fn advance(&mut self, mut count: usize, pool: &mut Pool) {
        self.frozen = 0;
        debug_assert!(count <= self.len());
        self.len -= count as u32;
        while let Some(piece) = &self.head {
            let left = piece.bytes().len() - self.sent as usize;
            if count < left {
                self.sent += count as u32;
                return;
            }
            count -= left;
            self.sent = 0;
            let next = self.tail.as_mut().and_then(|tail| tail.pop_front());
            if let Some(Piece::Inline(buffer)) = std::mem::replace(&mut self.head, next) {
                pool.put(buffer);
            }
        }
        if let Some(empty) = self.tail.take_if(|tail| tail.is_empty()) {
            pool.put_queue(empty);
        }
    }

    /// Drops all unsent bytes. Nothing may be in flight.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        debug_assert_eq!(self.frozen, 0, "the kernel may still read the memory");
        let mut tail = self.tail.take();
        let behind = tail.iter_mut().flat_map(|tail| tail.drain(..));
        for piece in self.head.take().into_iter().chain(behind) {
            if let Piece::Inline(buffer) = piece {
                pool.put(buffer);
            }
        }
        if let Some(empty) = tail {
            pool.put_queue(empty);
        }
        self.sent = 0;
        self.len = 0;
    }

    fn push(&mut self, piece: Piece, pool: &mut Pool) {
        if self.head.is_none() {
            self.head = Some(piece);
        } else {
            let tail = self.tail.get_or_insert_with(|| pool.take_queue());
            tail.push_back(piece);
        }
    }

    /// The last piece, if it is a buffer that may be appended to.
    fn pieces(&self) -> usize {
        usize::from(self.head.is_some()) + self.tail.as_ref().map_or(0, |tail| tail.len())
    }

    fn open_buffer(&mut self) -> Option<&mut Vec<u8>> {
        if self.pieces() <= self.frozen as usize {
            return None;
        }
        let last = self.tail.as_mut().and_then(|tail| tail.back_mut());
        match last.or(self.head.as_mut()) {
            Some(Piece::Inline(buffer)) => Some(buffer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
