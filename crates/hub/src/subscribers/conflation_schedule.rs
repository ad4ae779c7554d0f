//! The schedule of updates in conflated channels: each connection has one tick in each interval. Must not know channels or policies.
//!
//! ```text
//! idle ── update ──▶ due at once ── tick: update sent ──▶ due an interval later ─┐
//!   ▲                                                             │  ▲           │
//!   └──────────── tick without an update ─────────────────────────┘  └───────────┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{CONFLATION_SHIFT_DIVISOR, CONFLATION_TICK};

/// No index.
pub(super) const NONE: u32 = u32::MAX;

/// The due time of an idle entry.
const IDLE: u64 = u64::MAX;

/// The longest interval in nanoseconds, centuries.
const MAX_INTERVAL_NANOS: u64 = u64::MAX / 4;

/// A connection's conflated subscriptions with the same interval.
#[derive(Debug)]
pub(super) struct ScheduleEntry {
    pub(super) conn: u32,
    pub(super) interval: Duration,
    /// In nanoseconds.
    due: u64,
    /// The neighbours in the list of entries that are due at the same tick.
    previous: u32,
    next: u32,
    /// The next entry of the same connection, with another interval.
    next_of_conn: u32,
    pub(super) sent: Vec<SentVersion>,
}

/// The version that a connection has received of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentVersion {
    pub(super) topic: u32,
    pub(super) version: u32,
    /// The entry of the subscription's features, so that a tick does not search the connection's subscriptions.
    pub(super) feature_entry: u32,
}

/// The ticks of the connections.
#[derive(Debug, Default)]
pub(super) struct ConflationSchedule {
    entries: Vec<ScheduleEntry>,
    free: Vec<u32>,
    /// The first entry due at each tick, in units of [`CONFLATION_TICK`].
    due: BTreeMap<u64, u32>,
}

impl ConflationSchedule {
    /// Returns a connection's entry with this interval; `first` is its first entry.
    pub(super) fn find(&self, first: u32, interval: Duration) -> Option<u32> {
        let mut at = first;
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.interval == interval {
                return Some(at);
            }
            at = entry.next_of_conn;
        }
        None
    }

    /// Adds an idle entry without channels to a connection.
    pub(super) fn add(&mut self, first: &mut u32, conn: u32, interval: Duration) -> u32 {
        let entry = ScheduleEntry {
            conn,
            interval,
            due: IDLE,
            previous: NONE,
            next: NONE,
            next_of_conn: *first,
            sent: Vec::new(),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        *first = at;
        at
    }

    /// Removes an entry of a connection.
    pub(super) fn remove(&mut self, first: &mut u32, at: u32) {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        entry.sent = Vec::new();
        let next = std::mem::replace(&mut entry.next_of_conn, NONE);
        self.free.push(at);
        if *first == at {
            *first = next;
            return;
        }
        let mut previous = *first;
        while let Some(entry) = self.entries.get_mut(previous as usize) {
            if entry.next_of_conn == at {
                entry.next_of_conn = next;
                return;
            }
            previous = entry.next_of_conn;
        }
    }

    pub(super) fn get(&mut self, at: u32) -> &mut ScheduleEntry {
        &mut self.entries[at as usize]
    }

    /// Schedules an entry for now if it is idle.
    pub(super) fn schedule_if_idle(&mut self, at: u32) {
        if self.entries[at as usize].due == IDLE {
            self.set(at, 0);
        }
    }

    /// Returns the time at which the first entry is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let (&tick, _) = self.due.first_key_value()?;
        Some(Duration::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Returns an entry that is due, with its due time. The entry becomes idle.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<(u32, u64)> {
        let (&tick, &at) = self.due.first_key_value()?;
        if tick.saturating_mul(TICK_NANOS) > nanos(now) {
            return None;
        }
        let due = self.entries[at as usize].due;
        self.unlink(at);
        Some((at, due))
    }

    /// Schedules an entry that was due at `due` for its next interval.
    pub(super) fn reschedule(&mut self, at: u32, due: u64, now: Duration) {
        let ScheduleEntry { conn, interval, .. } = self.entries[at as usize];
        self.set(at, next_due_nanos(conn, interval, due, now));
    }

    fn set(&mut self, at: u32, due: u64) {
        let first = self.due.entry(due.div_ceil(TICK_NANOS)).or_insert(NONE);
        let next = std::mem::replace(first, at);
        let entry = &mut self.entries[at as usize];
        (entry.due, entry.previous, entry.next) = (due, NONE, next);
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.previous = at;
        }
    }

    /// Makes an entry idle.
    fn unlink(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        let (previous, next) = (entry.previous, entry.next);
        let due = std::mem::replace(&mut entry.due, IDLE);
        if due == IDLE {
            return;
        }
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.previous = previous;
        }
        match self.entries.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None if next == NONE => drop(self.due.remove(&due.div_ceil(TICK_NANOS))),
            None => drop(self.due.insert(due.div_ceil(TICK_NANOS), next)),
        }
    }
}

const TICK_NANOS: u64 = CONFLATION_TICK.as_nanos() as u64;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos())
        .unwrap_or(MAX_INTERVAL_NANOS)
        .min(MAX_INTERVAL_NANOS)
}

/// Returns the time at which an entry is due next. Each connection has its own phase within the interval, spread by the golden ratio, so
/// that not all are due at once. An entry at another phase, because its first update was sent at once or a tick was late, is moved there
/// gradually.
fn next_due_nanos(conn: u32, interval: Duration, due: u64, now: Duration) -> u64 {
    let (interval, now) = (nanos(interval).max(1), nanos(now));
    let shift = interval / CONFLATION_SHIFT_DIVISOR;
    let from = if now.saturating_sub(due) <= shift {
        due
    } else {
        now
    };
    let next = from + interval;
    let phase = (u128::from(interval) * u128::from(conn.wrapping_mul(0x9e37_79b9))) >> 32;
    let distance = (phase as u64 + interval - next % interval) % interval;
    next + distance.min(shift)
}

#[cfg(test)]
mod tests;
