//! The timer wheel against a naive twin, one sorted map.
//!
//! The input is a program of inserts, cancels and steps of time, of any magnitude.

use std::collections::BTreeMap;

use ringmain_engine::backend::Time;
use ringmain_engine::timer::{TimerId, Wheel};

/// Nanoseconds in the wheel's tick.
const TICK: u64 = 1_000_000;

/// The clock stops short of the end of [`Time`], where a deadline can only be said as "now".
const LAST_NOW: u64 = u64::MAX - 2 * TICK;

/// Bytes read of an input: about a thousand timers, which crosses every level.
const INPUT_LIMIT: usize = 4096;

/// Laws: no timer is early, late, lost or fired twice; order follows the ticks; a cancelled or
/// fired name is stale; the next deadline is never late and never leads to an idle turn.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let mut input = &input[..input.len().min(INPUT_LIMIT)];
    let mut pair = Pair::new();
    while let Some(operation) = byte(&mut input) {
        match operation % 4 {
            0 | 1 => pair.insert(span(&mut input)),
            2 => pair.cancel(byte(&mut input).unwrap_or_default()),
            _ => pair.advance(span(&mut input)),
        }
        pair.compare();
    }
    pair.advance(u64::MAX);
    pair.compare();
}

fn byte(input: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = input.split_first()?;
    *input = rest;
    Some(first)
}

/// Nanoseconds: one byte of mantissa, one of magnitude.
fn span(input: &mut &[u8]) -> u64 {
    let mantissa = u64::from(byte(input).unwrap_or_default());
    mantissa << (byte(input).unwrap_or_default() % 57)
}

/// The wheel and its twin.
struct Pair {
    now: u64,
    wheel: Wheel,
    /// Due tick and key of each armed timer; its name in the wheel.
    twin: BTreeMap<(u64, u64), TimerId>,
    /// Due tick by key, of all that ever were.
    due: Vec<u64>,
    /// Names by key, of all that ever were.
    names: Vec<TimerId>,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            now: 0,
            wheel: Wheel::new(Time(0)),
            twin: BTreeMap::new(),
            due: Vec::new(),
            names: Vec::new(),
        }
    }

    fn insert(&mut self, span: u64) {
        let at = self.now.saturating_add(span);
        let due = at.div_ceil(TICK).max(self.now / TICK);
        let key = self.due.len() as u64;
        let name = self.wheel.insert(Time(at), key).expect("far below the limit");
        self.twin.insert((due, key), name);
        self.due.push(due);
        self.names.push(name);
    }

    fn cancel(&mut self, choice: u8) {
        // Counted from the newest, so that also fired and cancelled names are tried.
        let Some(key) = self.names.len().checked_sub(1 + usize::from(choice)) else {
            return;
        };
        let armed = self.twin.remove(&(self.due[key], key as u64)).is_some();
        assert_eq!(
            self.wheel.cancel(self.names[key]),
            armed,
            "cancelling timer {key}"
        );
    }

    fn advance(&mut self, span: u64) {
        self.now = self.now.saturating_add(span).min(LAST_NOW);
        let mut fired = Vec::new();
        // Each turn moves or fires something, and a timer moves at most once a level.
        for turn in 0.. {
            assert!(
                turn <= 8 * (self.twin.len() + 1),
                "turns without progress at {}",
                self.now
            );
            self.wheel.advance(Time(self.now), &mut fired);
            if self
                .wheel
                .next_deadline(Time(self.now))
                .is_none_or(|at| at.0 > self.now)
            {
                break;
            }
        }
        let later = self.twin.split_off(&(self.now / TICK + 1, 0));
        let expected: Vec<u64> = self.twin.keys().map(|(due, _)| *due).collect();
        let order: Vec<u64> = fired.iter().map(|key| self.due[*key as usize]).collect();
        assert_eq!(order, expected, "due ticks of what fired at {}", self.now);
        for key in fired {
            let armed = self.twin.remove(&(self.due[key as usize], key));
            assert!(armed.is_some(), "timer {key} fired, but was not armed");
        }
        self.twin = later;
    }

    fn compare(&self) {
        assert_eq!(self.wheel.len(), self.twin.len());
        assert_eq!(self.wheel.is_empty(), self.twin.is_empty());
        let next = self.wheel.next_deadline(Time(self.now)).map(|at| at.0);
        match self.twin.keys().next() {
            None => assert_eq!(next, None, "nothing is armed"),
            Some((due, _)) => {
                let due = due.saturating_mul(TICK).max(self.now);
                let next = next.expect("a timer is armed");
                assert!(
                    (self.now..=due).contains(&next),
                    "due at {due}, next at {next}, now {}",
                    self.now
                );
            }
        }
    }
}
