//! Timers of one worker: a hierarchical wheel of one-millisecond ticks.
//!
//! Owns deadlines and the keys they stand for. Knows nothing of connections, tasks or clocks:
//! time is a parameter, a key is a number.
//!
//! Eight levels of 64 slots; a slot of level *n* spans 64ⁿ ticks, so the levels together span more than
//! [`Time`] can say and no deadline needs clamping. A timer lies at the level of the highest group
//! of six bits in which its tick differs from the wheel's, hence never in a slot that the wheel has
//! passed, and moves down as the wheel enters its slot. Empty time is skipped by bit maps: a clock that jumps
//! hours ahead costs what is due, not the ticks between.

use crate::backend::Time;
use crate::limits;

#[cfg(test)]
mod tests;

/// Nanoseconds in a tick.
const TICK: u64 = 1_000_000;
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 8;
const _: () = assert!(u64::MAX.div_ceil(TICK) < 1 << (BITS * LEVELS as u32));

/// The end of a list.
const NONE: u32 = u32::MAX;
const _: () = assert!(limits::TIMERS_PER_WORKER < NONE as usize);

/// Names one armed timer. After it fired or was cancelled the name is stale, and harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// The timers of one worker. Insert and cancel take constant time.
#[derive(Debug)]
pub struct Wheel {
    /// The tick up to which everything was fired, except what still lies in its own slot of level 0.
    tick: u64,
    /// Per level, which slots hold timers.
    occupied: [u64; LEVELS],
    /// Per level and slot, the first timer; its `previous` is the last one.
    first: [[u32; SLOTS]; LEVELS],
    timers: Vec<Timer>,
    /// Free records, linked by `next`.
    free: u32,
    len: usize,
    limit: usize,
}

/// A record of the slab: armed, or free (`level` is `FREE`).
#[derive(Debug)]
struct Timer {
    key: u64,
    tick: u64,
    previous: u32,
    next: u32,
    generation: u32,
    level: u8,
    slot: u8,
}

const FREE: u8 = u8::MAX;

impl Wheel {
    /// An empty wheel that stands at `now`.
    #[must_use]
    pub fn new(now: Time) -> Wheel {
        Wheel::with_limit(now, limits::TIMERS_PER_WORKER)
    }

    fn with_limit(now: Time, limit: usize) -> Wheel {
        Wheel {
            tick: now.0 / TICK,
            occupied: [0; LEVELS],
            first: [[NONE; SLOTS]; LEVELS],
            timers: Vec::new(),
            free: NONE,
            len: 0,
            limit,
        }
    }

    /// Arms a timer that yields `key` at `at` or up to one millisecond later; a time that has passed
    /// is due at once. `None` when [`limits::TIMERS_PER_WORKER`] are armed: refuse the work it was for.
    #[must_use = "without a timer the deadline is not kept"]
    pub fn insert(&mut self, at: Time, key: u64) -> Option<TimerId> {
        if self.len == self.limit {
            return None;
        }
        // Rounded up: a timer must not fire early.
        let tick = at.0.div_ceil(TICK).max(self.tick);
        let index = self.allocate(key, tick);
        self.link(index);
        self.len += 1;
        Some(TimerId {
            index,
            generation: self.timers[index as usize].generation,
        })
    }

    /// Disarms a timer. False if it is not armed any more.
    pub fn cancel(&mut self, id: TimerId) -> bool {
        let armed = self
            .timers
            .get(id.index as usize)
            .is_some_and(|timer| timer.generation == id.generation && timer.level != FREE);
        if armed {
            self.unlink(id.index);
            self.release(id.index);
        }
        armed
    }

    /// Moves the wheel to `now` and appends the keys that are due to `fired`, in order of their ticks,
    /// those of one tick in any order.
    ///
    /// At most [`limits::TIMERS_PER_TURN`] fire in one call; the next call continues, and
    /// [`Wheel::next_deadline`] does not lie ahead until all is done. A `now` before an earlier
    /// one moves nothing.
    pub fn advance(&mut self, now: Time, fired: &mut Vec<u64>) {
        let now = now.0 / TICK;
        let mut fires = limits::TIMERS_PER_TURN;
        let mut moves = limits::TIMER_MOVES_PER_TURN;
        while let Some((level, slot, start)) = self.next_slot()
            && start <= now
        {
            self.tick = start;
            while let Some(index) = self.head(level, slot) {
                let budget = if level == 0 { &mut fires } else { &mut moves };
                if *budget == 0 {
                    return;
                }
                *budget -= 1;
                self.unlink(index);
                if level == 0 {
                    fired.push(self.timers[index as usize].key);
                    self.release(index);
                } else {
                    self.link(index);
                }
            }
        }
        self.tick = self.tick.max(now);
    }

    /// When [`Wheel::advance`] should be called next; `None` if no timer is armed.
    ///
    /// It is never after the first deadline (rounded up to a tick). For a deadline more than 64 ticks away it may be
    /// earlier, when timers move down a level: at most once a level, and each such call of `advance`
    /// makes progress. Not after `now` only if `advance(now)` has work to do.
    #[must_use]
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        let (_, _, start) = self.next_slot()?;
        if start <= now.0 / TICK {
            return Some(now);
        }
        Some(Time(start.saturating_mul(TICK)))
    }

    /// How many timers are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The occupied slot that starts first: level, slot and first tick.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut next: Option<(usize, usize, u64)> = None;
        for (level, &occupied) in self.occupied.iter().enumerate() {
            if occupied == 0 {
                continue;
            }
            // The first set bit is the next slot: timers of the next round lie at a higher level.
            let slot = occupied.trailing_zeros() as usize;
            let shift = BITS * level as u32;
            let round = self.tick >> (shift + BITS) << (shift + BITS);
            let start = round | (slot as u64) << shift;
            if next.is_none_or(|(_, _, earliest)| start < earliest) {
                next = Some((level, slot, start));
            }
        }
        next
    }

    fn head(&self, level: usize, slot: usize) -> Option<u32> {
        let index = self.first[level][slot];
        (index != NONE).then_some(index)
    }

    /// Takes a free record, or makes one; it is in no list yet.
    fn allocate(&mut self, key: u64, tick: u64) -> u32 {
        let index = self.free;
        if index == NONE {
            let index = u32::try_from(self.timers.len()).expect("below TIMERS_PER_WORKER");
            self.timers.push(Timer {
                key,
                tick,
                previous: NONE,
                next: NONE,
                generation: 0,
                level: 0,
                slot: 0,
            });
            return index;
        }
        let timer = &mut self.timers[index as usize];
        self.free = timer.next;
        timer.key = key;
        timer.tick = tick;
        index
    }

    /// Frees an unlinked record; its names become stale.
    fn release(&mut self, index: u32) {
        let timer = &mut self.timers[index as usize];
        timer.generation = timer.generation.wrapping_add(1);
        timer.level = FREE;
        timer.next = self.free;
        self.free = index;
        self.len -= 1;
    }

    /// Appends a record to the list of its tick.
    fn link(&mut self, index: u32) {
        let tick = self.timers[index as usize].tick;
        let level = ((63 - ((tick ^ self.tick) | 1).leading_zeros()) / BITS) as usize;
        let slot = (tick >> (BITS * level as u32)) as usize % SLOTS;
        let first = self.first[level][slot];
        let last = if first == NONE {
            self.first[level][slot] = index;
            self.occupied[level] |= 1 << slot;
            index
        } else {
            let last = self.timers[first as usize].previous;
            self.timers[first as usize].previous = index;
            self.timers[last as usize].next = index;
            last
        };
        let timer = &mut self.timers[index as usize];
        timer.level = level as u8;
        timer.slot = slot as u8;
        timer.previous = last;
        timer.next = NONE;
    }

    /// Takes a record out of its list.
    fn unlink(&mut self, index: u32) {
        let Timer {
            previous,
            next,
            level,
            slot,
            ..
        } = self.timers[index as usize];
        let (level, slot) = (level as usize, slot as usize);
        let first = self.first[level][slot];
        if first == index {
            self.first[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            } else {
                self.timers[next as usize].previous = previous;
            }
        } else {
            self.timers[previous as usize].next = next;
            // The last one leaves: the first one points at the new last.
            let successor = if next == NONE { first } else { next };
            self.timers[successor as usize].previous = previous;
        }
    }
}
