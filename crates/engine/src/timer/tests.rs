//! The wheel against a naive twin, and its edges one by one.

use std::collections::BTreeMap;

use super::{TICK, TimerId, Wheel};
use crate::backend::Time;
use crate::limits;

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Nanoseconds of any magnitude below 2^`bits`.
    fn span(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        self.below(1 << bits)
    }
}

fn ms(ms: u64) -> Time {
    Time(ms * TICK)
}

fn fire(wheel: &mut Wheel, now: Time) -> Vec<u64> {
    let mut fired = Vec::new();
    wheel.advance(now, &mut fired);
    fired
}

/// A wheel at time zero with one timer; the key is 7.
fn single(at: Time) -> (Wheel, TimerId) {
    let mut wheel = Wheel::new(Time(0));
    let id = wheel.insert(at, 7).expect("far below the limit");
    (wheel, id)
}

#[test]
fn fires_in_the_first_tick_that_is_not_early() {
    for at in [
        1,
        TICK - 1,
        TICK,
        TICK + 1,
        63 * TICK,
        64 * TICK,
        65 * TICK + 3,
        1 << 40,
    ] {
        let (mut wheel, _) = single(Time(at));
        let due = at.div_ceil(TICK) * TICK;
        assert_eq!(fire(&mut wheel, Time(due - 1)), [0_u64; 0], "early: {at}");
        assert_eq!(fire(&mut wheel, Time(due)), [7], "late: {at}");
        assert!(wheel.is_empty());
        assert_eq!(wheel.next_deadline(Time(due)), None);
    }
}

#[test]
fn a_time_that_has_passed_is_due_at_once() {
    let mut wheel = Wheel::new(ms(1000));
    wheel.insert(ms(10), 7).expect("room");
    assert_eq!(wheel.next_deadline(ms(1000)), Some(ms(1000)));
    assert_eq!(fire(&mut wheel, ms(1000)), [7]);
}

#[test]
fn the_end_of_time_is_a_deadline_like_any_other() {
    let (mut wheel, id) = single(Time(u64::MAX));
    assert_eq!(fire(&mut wheel, Time(u64::MAX - 1)), [0_u64; 0]);
    assert!(wheel.next_deadline(Time(u64::MAX - 1)).is_some());
    assert!(wheel.cancel(id));
    assert!(wheel.is_empty());
}

#[test]
fn a_stale_name_is_harmless() {
    let (mut wheel, id) = single(ms(5));
    assert!(wheel.cancel(id));
    assert!(!wheel.cancel(id), "cancelled before");
    let reused = wheel.insert(ms(5), 8).expect("room");
    assert_eq!(reused.index, id.index);
    assert!(!wheel.cancel(id), "a former life");
    assert_eq!(fire(&mut wheel, ms(5)), [8]);
    assert!(!wheel.cancel(reused), "it fired");
    let never = TimerId {
        index: 99,
        generation: 0,
    };
    assert!(!wheel.cancel(never));
}

#[test]
fn a_full_wheel_refuses_and_recovers() {
    let mut wheel = Wheel::with_limit(Time(0), 2);
    let id = wheel.insert(ms(1), 1).expect("room");
    wheel.insert(ms(1), 2).expect("room");
    assert_eq!(wheel.insert(ms(1), 3), None);
    assert!(wheel.cancel(id));
    assert!(wheel.insert(ms(1), 4).is_some());
    assert_eq!(wheel.len(), 2);
}

#[test]
fn a_burst_is_spread_over_turns_without_waiting() {
    let mut wheel = Wheel::new(Time(0));
    let count = 3 * limits::TIMERS_PER_TURN + 1;
    for key in 0..count {
        wheel.insert(ms(5000), key as u64).expect("room");
    }
    let mut fired = Vec::new();
    for turn in 1.. {
        assert_eq!(
            wheel.next_deadline(ms(9000)).is_some_and(|at| at <= ms(9000)),
            !wheel.is_empty()
        );
        if wheel.is_empty() {
            break;
        }
        let before = fired.len();
        wheel.advance(ms(9000), &mut fired);
        assert!(fired.len() - before <= limits::TIMERS_PER_TURN);
        assert!(turn <= 8, "no progress");
    }
    assert_eq!(fired, (0..count as u64).collect::<Vec<_>>());
}

#[test]
fn a_burst_beyond_the_moves_of_a_turn_fires_in_order() {
    let mut wheel = Wheel::new(Time(0));
    let count = 2 * limits::TIMER_MOVES_PER_TURN as u64 + 100;
    // All in one coarse slot, the last inserted due first.
    for key in 0..count {
        wheel.insert(ms(4096 + (count - key) / 8), key).expect("room");
    }
    let mut fired = Vec::new();
    let mut turns = 0;
    while !wheel.is_empty() {
        wheel.advance(ms(20_000), &mut fired);
        turns += 1;
        assert!(turns < 100, "no progress");
    }
    let due: Vec<u64> = fired.iter().map(|key| (count - key) / 8).collect();
    assert!(due.is_sorted());
    assert_eq!(fired.len() as u64, count);
}

#[test]
fn waiting_for_one_timer_takes_few_wake_ups() {
    // A year, from a time that is no round number in any level.
    let start = ms(0x3_1234_5679);
    let mut wheel = Wheel::new(start);
    let at = Time(start.0 + 365 * 86_400_000 * TICK + 17);
    wheel.insert(at, 7).expect("room");
    let (mut now, mut turns) = (start, 0);
    loop {
        let next = wheel.next_deadline(now).expect("one is armed");
        assert!(next > now, "spinning at {now:?}");
        now = next;
        turns += 1;
        if fire(&mut wheel, now) == [7] {
            break;
        }
    }
    assert!(now >= at && now.0 < at.0 + TICK);
    assert!(turns <= 8, "{turns} wake-ups");
}

#[test]
fn a_clock_that_stands_or_goes_back_moves_nothing() {
    let (mut wheel, _) = single(ms(100));
    assert_eq!(fire(&mut wheel, ms(50)), [0_u64; 0]);
    assert_eq!(fire(&mut wheel, ms(10)), [0_u64; 0]);
    assert_eq!(fire(&mut wheel, ms(99)), [0_u64; 0]);
    assert_eq!(fire(&mut wheel, ms(100)), [7]);
}

/// One timer as the twin knows it.
struct Armed {
    at: Time,
    /// The tick it is due in: that of `at`, or for a time that had passed the one it was armed in.
    tick: u64,
    id: TimerId,
}

/// What the wheel must agree with: armed timers by key.
#[derive(Default)]
struct Twin {
    armed: BTreeMap<u64, Armed>,
    stale: Vec<TimerId>,
}

impl Twin {
    /// Advances the wheel to `now` until nothing is due and compares.
    fn advance(&mut self, wheel: &mut Wheel, now: Time) {
        let mut last = 0;
        while wheel.next_deadline(now).is_some_and(|at| at <= now) {
            let fired = fire(wheel, now);
            assert!(fired.len() <= limits::TIMERS_PER_TURN);
            for key in fired {
                let Armed { at, tick, id } = self.armed.remove(&key).expect("fired twice or never armed");
                assert!(at <= now, "key {key} fired early");
                assert!(tick >= last, "key {key} fired out of order");
                last = tick;
                self.stale.push(id);
            }
        }
        for (key, Armed { at, tick, .. }) in &self.armed {
            assert!(*tick > now.0 / TICK, "key {key} due at {at:?} missed at {now:?}");
        }
        let first = self.armed.values().map(|armed| armed.tick * TICK).min();
        let next = wheel.next_deadline(now).map(|at| at.0);
        assert_eq!(first.is_none(), next.is_none());
        assert!(next <= first, "the wait would be too long");
        assert_eq!(wheel.len(), self.armed.len());
    }

    fn cancel_one(&mut self, wheel: &mut Wheel, random: &mut Random) {
        let from = random.below(self.armed.keys().last().map_or(1, |key| key + 1));
        if let Some((&key, &Armed { id, .. })) = self.armed.range(from..).next() {
            assert!(wheel.cancel(id));
            self.armed.remove(&key);
            self.stale.push(id);
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut now = Time(random.span(50));
    let mut wheel = Wheel::new(now);
    let mut twin = Twin::default();
    let bits = 10 + random.below(50);
    for step in 0..400 {
        match random.below(10) {
            0..5 => {
                let at = if random.below(8) == 0 {
                    Time(now.0.saturating_sub(random.span(bits)))
                } else {
                    Time(now.0 + random.span(bits))
                };
                let id = wheel.insert(at, step).expect("far below the limit");
                let tick = at.0.div_ceil(TICK).max(now.0 / TICK);
                twin.armed.insert(step, Armed { at, tick, id });
            }
            5..7 => twin.cancel_one(&mut wheel, &mut random),
            7 => {
                if !twin.stale.is_empty() {
                    let i = random.below(twin.stale.len() as u64) as usize;
                    assert!(!wheel.cancel(twin.stale[i]), "a stale name was honoured");
                }
            }
            8 => {
                // As a worker does: sleep exactly until the deadline.
                if let Some(next) = wheel.next_deadline(now) {
                    now = now.max(next);
                    twin.advance(&mut wheel, now);
                }
            }
            _ => {
                now = Time(now.0 + random.span(bits));
                twin.advance(&mut wheel, now);
            }
        }
    }
    for _ in 0..10_000 {
        let Some(next) = wheel.next_deadline(now) else {
            break;
        };
        now = now.max(next);
        twin.advance(&mut wheel, now);
    }
    assert!(
        twin.armed.is_empty(),
        "sleeping from deadline to deadline fires all"
    );
}

#[test]
fn agrees_with_a_naive_twin() {
    for seed in 0..2000 {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed} failed; reproduce with run({seed})");
    }
}
