//! The order in which connections end in a shutdown: an even rate, so that clients that reconnect do not all do it at once.
//!
//! ```text
//! pending ─▶ draining ─ DRAIN_SPREAD_START ─▶ rank 0 ─ spread / total ─▶ rank 1 … rank total-1
//! ```
//!
//! Knows nothing of connections: a [`DrainTurn`] is a rank in the order, a [`DrainSchedule`] every rank's instant.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::cx::{Cx, Draining, Sleep};
use crate::backend::Time;
use crate::limits;

/// A worker's shutdown, as far as its connections end in an order.
#[derive(Debug, Default)]
pub(crate) struct DrainProgress {
    /// A shutdown is announced.
    pub(crate) is_pending: bool,
    /// See [`crate::Config::drain_spread`].
    pub(crate) spread: Duration,
    /// Futures that exist.
    turns: u32,
    /// Set when the shutdown begins.
    schedule: Option<DrainSchedule>,
    /// Futures that have received their rank.
    ranked: u32,
}

impl DrainProgress {
    /// Begins the shutdown.
    pub(crate) fn start(&mut self, now: Time) {
        self.is_pending = true;
        self.schedule = Some(DrainSchedule::new(now, self.spread, self.turns));
    }

    /// Returns the instant of the next rank.
    fn next_turn(&mut self) -> Time {
        let rank = self.ranked;
        self.ranked += 1;
        self.schedule.map_or(Time(0), |schedule| schedule.turn(rank))
    }
}

/// The instants at which the connections of one worker end in a shutdown, at an even rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainSchedule {
    first: Time,
    spread: Duration,
    count: u32,
}

impl DrainSchedule {
    /// Creates the schedule of `count` connections in a shutdown that begins at `now`.
    #[must_use]
    pub fn new(now: Time, spread: Duration, count: u32) -> DrainSchedule {
        DrainSchedule {
            first: now.after(limits::DRAIN_SPREAD_START),
            spread,
            count,
        }
    }

    /// Returns the instant of the connection with this rank, from 0. Ranks beyond the count are due with the first.
    #[must_use]
    pub fn turn(&self, rank: u32) -> Time {
        if rank >= self.count {
            return self.first;
        }
        self.first
            .after(self.spread.mul_f64(f64::from(rank) / f64::from(self.count)))
    }
}

/// A future that waits for its turn in a shutdown; see [`Cx::drain_turn`].
#[must_use]
pub struct DrainTurn {
    cx: Cx,
    draining: Draining,
    /// Set once the shutdown has begun.
    sleep: Option<Sleep>,
}

impl DrainTurn {
    pub(super) fn new(cx: &Cx) -> DrainTurn {
        cx.core().drain.turns += 1;
        DrainTurn {
            cx: cx.clone(),
            draining: cx.draining(),
            sleep: None,
        }
    }
}

impl Future for DrainTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(sleep) = &mut this.sleep {
            return Pin::new(sleep).poll(context);
        }
        if Pin::new(&mut this.draining).poll(context).is_pending() {
            return Poll::Pending;
        }
        let (turn, now) = {
            let core = &mut *this.cx.core();
            (core.drain.next_turn(), core.now())
        };
        let sleep = this.sleep.insert(this.cx.sleep(turn.since(now)));
        Pin::new(sleep).poll(context)
    }
}

impl Drop for DrainTurn {
    fn drop(&mut self) {
        self.cx.core().drain.turns -= 1;
    }
}

impl fmt::Debug for DrainTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DrainTurn")
    }
}

/// A graceful shutdown waits for this; see [`Cx::hold_drain`].
pub struct DrainHold(Cx);

impl DrainHold {
    pub(super) fn new(cx: &Cx) -> DrainHold {
        cx.core().drain_holds += 1;
        DrainHold(cx.clone())
    }
}

impl fmt::Debug for DrainHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DrainHold")
    }
}

impl Drop for DrainHold {
    fn drop(&mut self) {
        self.0.core().drain_holds -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::DrainSchedule;
    use crate::backend::Time;
    use crate::limits::DRAIN_SPREAD_START;

    #[test]
    fn ranks_have_equal_distances_within_the_spread() {
        let (now, spread) = (Time(7), Duration::from_secs(10));
        let first = now.after(DRAIN_SPREAD_START);
        for count in [1, 2, 3, 7, 1000, 80_000] {
            let schedule = DrainSchedule::new(now, spread, count);
            assert_eq!(schedule.turn(0), first);
            let even = spread.as_secs_f64() / f64::from(count);
            for rank in 1..count {
                let distance = schedule.turn(rank).since(schedule.turn(rank - 1));
                assert!(
                    (distance.as_secs_f64() - even).abs() < 1e-6,
                    "rank {rank} of {count}: {distance:?}"
                );
            }
            assert!(schedule.turn(count - 1) < first.after(spread));
            assert_eq!(schedule.turn(count), first, "one that is opened in the shutdown");
        }
    }

    #[test]
    fn without_a_spread_all_are_due_at_once() {
        let schedule = DrainSchedule::new(Time(0), Duration::ZERO, 3);
        assert_eq!(schedule.turn(0), schedule.turn(2));
        let none = DrainSchedule::new(Time(0), Duration::from_secs(1), 0);
        assert_eq!(none.turn(0), Time(0).after(DRAIN_SPREAD_START));
    }
}
