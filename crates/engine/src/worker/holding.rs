//! Bytes that connections hold for slow readers, and what follows from their number: marks, and memory given back.
//!
//! Each connection counts its unsent and its unread bytes in units; a connection with less than one unit on a side costs a
//! comparison. Knows nothing of sockets.

use super::core::Core;
use super::record::{Connection, Record};
use crate::backend::{Slot, Time};
use crate::limits;

/// Bytes of a unit, as a power of two.
const UNIT_BITS: u32 = 13;

/// One worker's account.
#[derive(Debug)]
pub(crate) struct Holding {
    /// Bytes held, in whole units.
    bytes: usize,
    /// The worker's share of [`limits::HELD_BYTES`].
    share: usize,
    /// Half of the share was used up, and a quarter has not yet become free again.
    frugal: bool,
    /// Bytes of buffers outside the engine that were freed since memory was given back last.
    pub(crate) freed: usize,
    /// When it is given back again.
    pub(crate) reclaim_at: Time,
}

impl Holding {
    /// The account of a worker that may hold so many bytes.
    pub(crate) fn new(share: usize) -> Holding {
        Holding {
            bytes: 0,
            share,
            frugal: false,
            freed: 0,
            reclaim_at: Time::NEVER,
        }
    }

    /// What [`limits::WRITE_MARK`] and [`limits::READ_MARK`] are at present.
    #[inline]
    pub(crate) fn mark(&self) -> usize {
        if self.frugal {
            limits::FRUGAL_MARK
        } else {
            limits::WRITE_MARK
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The units of so many bytes.
#[inline]
fn units(bytes: usize) -> u8 {
    (bytes >> UNIT_BITS).min(usize::from(u8::MAX)) as u8
}

fn bytes(units: u8) -> usize {
    usize::from(units) << UNIT_BITS
}

impl Core {
    /// Counts what is unsent on a connection.
    #[inline]
    pub(crate) fn count_unsent(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let now = units(connection.output.len());
        let before = std::mem::replace(&mut connection.held_unsent, now);
        if now != before {
            self.adjust_held(bytes(before), bytes(now));
        }
    }

    /// Counts what is unread on a connection: all of its buffer's memory.
    #[inline]
    pub(crate) fn count_unread(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let held = if connection.unread.is_empty() {
            0
        } else {
            connection.unread.capacity()
        };
        let now = units(held);
        let before = std::mem::replace(&mut connection.held_unread, now);
        if now != before {
            self.adjust_held(bytes(before), bytes(now));
        }
    }

    /// A record is about to be removed: it holds nothing any more.
    pub(crate) fn uncount(&mut self, connection: &Connection) {
        let held = bytes(connection.held_unsent) + bytes(connection.held_unread);
        self.adjust_held(held, 0);
    }

    /// Counts bytes that are held: so many instead of so many before.
    pub(crate) fn adjust_held(&mut self, before: usize, now: usize) {
        let holding = &mut self.holding;
        holding.bytes = (holding.bytes + now).saturating_sub(before);
        let frugal = if holding.frugal {
            holding.bytes > holding.share / 4
        } else {
            holding.bytes > holding.share / 2
        };
        if frugal != holding.frugal {
            holding.frugal = frugal;
            self.backend.set_frugal(frugal);
        }
    }

    /// Has memory given back in a while if much was freed.
    pub(crate) fn plan_reclaim(&mut self) {
        let freed = self.pool.take_freed() + self.holding.freed;
        self.holding.freed = freed;
        if freed >= limits::RECLAIM_BYTES && self.holding.reclaim_at == Time::NEVER {
            self.holding.reclaim_at = self.now().after(limits::RECLAIM_AFTER);
        }
    }

    /// Gives memory back if it is time to.
    pub(crate) fn reclaim(&mut self) {
        if self.holding.reclaim_at > self.now() {
            return;
        }
        // Buffers for reuse are scattered among those that were freed, and keep their pages in use.
        self.pool.empty();
        self.backend.give_memory_back();
        self.holding.freed = 0;
        self.holding.reclaim_at = Time::NEVER;
    }
}
