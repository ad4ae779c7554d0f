//! The order in which connections end in a shutdown: an even rate, so that clients that reconnect do not all do it at once.
//!
//! ```text
//! pending ─▶ draining ─ DRAIN_SPREAD_START ─▶ first window: rank 0 ─ spread / total ─▶ rank 1 … ─▶ last window … ─▶ end of the grace time
//! ```
//!
//! The first window is for connections whose clients are asked to reconnect, the last one for those that are cut, which may finish until then.
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
    grace: Duration,
    /// The start of the shutdown.
    started_at: Option<Time>,
    first: TurnQueue,
    last: TurnQueue,
}

/// The futures of one window.
#[derive(Debug, Default)]
struct TurnQueue {
    /// Futures that exist.
    turns: u32,
    /// Set when the shutdown begins.
    schedule: Option<DrainSchedule>,
    /// Futures that have received their rank.
    ranked: u32,
}

/// A part of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainWindow {
    First,
    Last,
}

impl DrainProgress {
    /// Creates the state of a worker that ends its connections after `grace`. The first window ends before that.
    pub(crate) fn new(grace: Duration, spread: Duration) -> DrainProgress {
        DrainProgress {
            spread: spread.min(grace.saturating_sub(limits::DRAIN_SPREAD_START)),
            grace,
            ..DrainProgress::default()
        }
    }

    /// Begins the shutdown.
    pub(crate) fn start(&mut self, now: Time) {
        self.is_pending = true;
        self.started_at = Some(now);
        self.first.schedule = Some(DrainSchedule::first(now, self.spread, self.first.turns));
        self.last.schedule = Some(DrainSchedule::last(now, self.grace, self.spread, self.last.turns));
    }

    fn queue(&mut self, window: DrainWindow) -> &mut TurnQueue {
        match window {
            DrainWindow::First => &mut self.first,
            DrainWindow::Last => &mut self.last,
        }
    }
}

impl TurnQueue {
    /// Returns the instant of the next rank.
    fn next_turn(&mut self) -> Time {
        let rank = self.ranked;
        self.ranked += 1;
        self.schedule.map_or(Time(0), |schedule| schedule.turn(rank))
    }
}

/// The instants at which the connections of one worker end in a shutdown, at an even rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DrainSchedule {
    start: Time,
    spread: Duration,
    count: u32,
}

impl DrainSchedule {
    /// Creates the schedule of `count` connections in the first window of a shutdown that begins at `now`.
    fn first(now: Time, spread: Duration, count: u32) -> DrainSchedule {
        DrainSchedule {
            start: now.after(limits::DRAIN_SPREAD_START),
            spread,
            count,
        }
    }

    /// Creates the schedule of `count` connections in the last window: the last `spread` of `grace`.
    fn last(now: Time, grace: Duration, spread: Duration, count: u32) -> DrainSchedule {
        DrainSchedule {
            start: now.after(grace.saturating_sub(spread)),
            spread: spread.min(grace),
            count,
        }
    }

    /// Returns the instant of the connection with this rank, from 0. Ranks beyond the count are due with the first.
    fn turn(&self, rank: u32) -> Time {
        if rank >= self.count {
            return self.start;
        }
        self.start
            .after(self.spread.mul_f64(f64::from(rank) / f64::from(self.count)))
    }
}

/// A future that waits for its turn in a shutdown; see [`Cx::drain_turn`] and [`Cx::last_drain_turn`].
#[must_use]
pub struct DrainTurn {
    cx: Cx,
    window: DrainWindow,
    draining: Draining,
    /// Set once the shutdown has begun.
    sleep: Option<Sleep>,
}

impl DrainTurn {
    pub(super) fn first(cx: &Cx) -> DrainTurn {
        DrainTurn::new(cx, DrainWindow::First)
    }

    pub(super) fn last(cx: &Cx) -> DrainTurn {
        DrainTurn::new(cx, DrainWindow::Last)
    }

    fn new(cx: &Cx, window: DrainWindow) -> DrainTurn {
        cx.core().drain.queue(window).turns += 1;
        DrainTurn {
            cx: cx.clone(),
            window,
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
            (core.drain.queue(this.window).next_turn(), core.now())
        };
        let sleep = this.sleep.insert(this.cx.sleep(turn.since(now)));
        Pin::new(sleep).poll(context)
    }
}

impl Drop for DrainTurn {
    fn drop(&mut self) {
        self.cx.core().drain.queue(self.window).turns -= 1;
    }
}

impl fmt::Debug for DrainTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DrainTurn")
    }
}

/// Implements [`Cx::end_in_turns`].
pub(super) async fn end_in_turns<T>(cx: &Cx, collect: impl FnOnce() -> Vec<T>, mut end: impl FnMut(T)) {
    cx.draining().await;
    let now = cx.now();
    let started_at = cx.core().drain.started_at.unwrap_or(now);
    cx.sleep(started_at.after(limits::DRAIN_SPREAD_START).since(now))
        .await;
    let all = collect();
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let schedule = DrainSchedule::first(started_at, cx.drain_spread(), count);
    for (rank, one) in (0..).zip(all) {
        let remaining = schedule.turn(rank).since(cx.now());
        if !remaining.is_zero() {
            cx.sleep(remaining.max(limits::DRAIN_TURN_INTERVAL)).await;
        }
        end(one);
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

    use super::{DrainProgress, DrainSchedule};
    use crate::backend::Time;
    use crate::limits::DRAIN_SPREAD_START;

    #[test]
    fn ranks_have_equal_distances_within_the_spread() {
        let (now, spread) = (Time(7), Duration::from_secs(10));
        let first = now.after(DRAIN_SPREAD_START);
        for count in [1, 2, 3, 7, 1000, 80_000] {
            let schedule = DrainSchedule::first(now, spread, count);
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
        let schedule = DrainSchedule::first(Time(0), Duration::ZERO, 3);
        assert_eq!(schedule.turn(0), schedule.turn(2));
        let none = DrainSchedule::first(Time(0), Duration::from_secs(1), 0);
        assert_eq!(none.turn(0), Time(0).after(DRAIN_SPREAD_START));
    }

    #[test]
    fn the_last_window_ends_with_the_grace_time() {
        let (now, grace) = (Time(7), Duration::from_secs(30));
        let schedule = DrainSchedule::last(now, grace, Duration::from_secs(10), 5);
        let turns: Vec<_> = (0..5).map(|rank| schedule.turn(rank).since(now)).collect();
        assert_eq!(turns, [20, 22, 24, 26, 28].map(Duration::from_secs));
        let longer = DrainSchedule::last(now, grace, Duration::from_secs(60), 2);
        assert_eq!(longer.turn(0), now);
        assert_eq!(longer.turn(1), now.after(grace / 2));
    }

    #[test]
    fn the_first_window_ends_before_the_grace_time() {
        let grace = Duration::from_secs(1);
        let progress = DrainProgress::new(grace, grace);
        assert_eq!(progress.spread + DRAIN_SPREAD_START, grace);
        assert_eq!(
            DrainProgress::new(Duration::ZERO, Duration::ZERO).spread,
            Duration::ZERO
        );
    }
}
