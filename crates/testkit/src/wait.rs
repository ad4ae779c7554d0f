//! Waiting for a state that another thread or process brings about and does not report.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// Between two looks.
const STEP: Duration = Duration::from_millis(1);

/// Returns what `check` found, as soon as it finds something. Panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn find<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let patience = Patience::new();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(!patience.is_over(), "{what}: not within {PATIENCE:?}");
        sleep(STEP);
    }
}

/// Returns as soon as `is_true` is. Panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    find(what, || is_true().then_some(()));
}

/// Returns the value of `check` as soon as there is one. Panics with `what` and the last error after [`PATIENCE`].
#[track_caller]
pub fn until_ok<T, E: Debug>(what: &str, mut check: impl FnMut() -> Result<T, E>) -> T {
    let patience = Patience::new();
    loop {
        match check() {
            Ok(value) => return value,
            Err(found) => assert!(
                !patience.is_over(),
                "{what}: not within {PATIENCE:?}, found {found:?}"
            ),
        }
        sleep(STEP);
    }
}

/// A guard against hanging for a wait that has several parts: all of them together have [`PATIENCE`]. Never a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    end: Instant,
}

impl Patience {
    /// Starts now.
    #[allow(clippy::new_without_default, reason = "it reads a clock")]
    pub fn new() -> Patience {
        Patience {
            end: Instant::now() + PATIENCE,
        }
    }

    /// The time that is left, for a wait that takes a time limit.
    pub fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Returns whether no time is left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Asserts that `work` takes `span` or longer, and returns its result. For code whose subject is a real clock: a slow machine can only
/// take longer, so no load breaks the bound. There is no counterpart for an upper bound: that is a benchmark.
#[track_caller]
pub fn at_least<T>(span: Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    let took = started.elapsed();
    assert!(took >= span, "expected {span:?} or longer, found {took:?}");
    result
}

/// Gives the CPU to other threads once: for a loop that retries while a bounded queue is full, and to vary how threads interleave.
pub fn give_way() {
    std::thread::yield_now();
}

/// Lets time pass for a peer that is slow on purpose. Never a way to wait for an event: that is [`until`].
pub fn pause(span: Duration) {
    sleep(span);
}
