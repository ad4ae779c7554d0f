//! When connections get what they wait for of channels that show states: one moment in each interval, another one for each
//! connection. Knows no channel and no rule.
//!
//! ```text
//! quiet ── there is something ──▶ due at once ── its moment: it is given ──▶ due an interval later ─┐
//!   ▲                                                                              │  ▲            │
//!   └───────────── its moment, and there was nothing ──────────────────────────────┘  └────────────┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{MOMENT, MOMENT_MOVES};

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// Of one that is quiet.
const QUIET: u64 = u64::MAX;

/// The longest interval: centuries are none.
const LONGEST: u64 = u64::MAX / 4;

/// What one connection listens to that has one interval.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) conn: u32,
    pub(super) every: Duration,
    /// In nanoseconds.
    due: u64,
    /// Its neighbours among those whose moments are in the same one.
    before: u32,
    behind: u32,
    /// The same connection's, with another interval.
    other: u32,
    pub(super) shown: Vec<Shown>,
}

/// What a connection has been given of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) topic: u32,
    pub(super) version: u32,
}

/// Those of all connections.
#[derive(Debug, Default)]
pub(super) struct Moments {
    watches: Vec<Watch>,
    free: Vec<u32>,
    /// By the moment, in whole [`MOMENT`]s, the first of those that are due then.
    due: BTreeMap<u64, u32>,
}

impl Moments {
    /// A connection's watch with this interval; `first` is its first one.
    pub(super) fn find(&self, first: u32, every: Duration) -> Option<u32> {
        let mut at = first;
        while let Some(watch) = self.watches.get(at as usize) {
            if watch.every == every {
                return Some(at);
            }
            at = watch.other;
        }
        None
    }

    /// Another one for a connection: quiet, and of no channel.
    pub(super) fn add(&mut self, first: &mut u32, conn: u32, every: Duration) -> u32 {
        let watch = Watch {
            conn,
            every,
            due: QUIET,
            before: NONE,
            behind: NONE,
            other: *first,
            shown: Vec::new(),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.watches[at as usize] = watch;
                at
            }
            None => {
                self.watches.push(watch);
                (self.watches.len() - 1) as u32
            }
        };
        *first = at;
        at
    }

    /// Takes one of a connection's away.
    pub(super) fn remove(&mut self, first: &mut u32, at: u32) {
        self.unlink(at);
        let watch = &mut self.watches[at as usize];
        watch.shown = Vec::new();
        let other = std::mem::replace(&mut watch.other, NONE);
        self.free.push(at);
        if *first == at {
            *first = other;
            return;
        }
        let mut before = *first;
        while let Some(watch) = self.watches.get_mut(before as usize) {
            if watch.other == at {
                watch.other = other;
                return;
            }
            before = watch.other;
        }
    }

    pub(super) fn get(&mut self, at: u32) -> &mut Watch {
        &mut self.watches[at as usize]
    }

    /// There is something for one that may be quiet: then its moment is now.
    pub(super) fn rouse(&mut self, at: u32) {
        if self.watches[at as usize].due == QUIET {
            self.set(at, 0);
        }
    }

    /// When the first is due.
    pub(super) fn next(&self) -> Option<Duration> {
        let (&moment, _) = self.due.first_key_value()?;
        Some(Duration::from_nanos(moment.saturating_mul(NANOS)))
    }

    /// One whose moment has come, with when it was due; it is quiet then.
    pub(super) fn take(&mut self, now: Duration) -> Option<(u32, u64)> {
        let (&moment, &at) = self.due.first_key_value()?;
        if moment.saturating_mul(NANOS) > nanos(now) {
            return None;
        }
        let due = self.watches[at as usize].due;
        self.unlink(at);
        Some((at, due))
    }

    /// Has one that was due then, and whose moment is now, come again an interval later.
    pub(super) fn again(&mut self, at: u32, due: u64, now: Duration) {
        let Watch { conn, every, .. } = self.watches[at as usize];
        self.set(at, following(conn, every, due, now));
    }

    fn set(&mut self, at: u32, due: u64) {
        let first = self.due.entry(due.div_ceil(NANOS)).or_insert(NONE);
        let behind = std::mem::replace(first, at);
        let watch = &mut self.watches[at as usize];
        (watch.due, watch.before, watch.behind) = (due, NONE, behind);
        if let Some(behind) = self.watches.get_mut(behind as usize) {
            behind.before = at;
        }
    }

    /// It is quiet from now on.
    fn unlink(&mut self, at: u32) {
        let watch = &mut self.watches[at as usize];
        let (before, behind) = (watch.before, watch.behind);
        let due = std::mem::replace(&mut watch.due, QUIET);
        if due == QUIET {
            return;
        }
        if let Some(behind) = self.watches.get_mut(behind as usize) {
            behind.before = before;
        }
        match self.watches.get_mut(before as usize) {
            Some(before) => before.behind = behind,
            None if behind == NONE => drop(self.due.remove(&due.div_ceil(NANOS))),
            None => drop(self.due.insert(due.div_ceil(NANOS), behind)),
        }
    }
}

const NANOS: u64 = MOMENT.as_nanos() as u64;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(LONGEST).min(LONGEST)
}

/// When a connection's moment comes again. Each has its own place in the interval, spread by the golden ratio, so that not all
/// come at once; one that is elsewhere, since the first came at once or one came late, moves there little by little.
fn following(conn: u32, every: Duration, due: u64, now: Duration) -> u64 {
    let (every, now) = (nanos(every).max(1), nanos(now));
    let moves = every / MOMENT_MOVES;
    let from = if now.saturating_sub(due) <= moves {
        due
    } else {
        now
    };
    let next = from + every;
    let place = (u128::from(every) * u128::from(conn.wrapping_mul(0x9e37_79b9))) >> 32;
    let distance = (place as u64 + every - next % every) % every;
    next + distance.min(moves)
}

#[cfg(test)]
mod tests;
