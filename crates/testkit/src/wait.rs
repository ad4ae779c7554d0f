//! Waiting for a state that another thread or process brings about and does not report.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// Between two looks.
const STEP: Duration = Duration::from_millis(1);

/// Returns what `check` found, as soon as it finds something. Panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn find<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        sleep(STEP);
    }
}

/// Returns as soon as `is_true` is. Panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    find(what, || is_true().then_some(()));
}

/// Gives the CPU to other threads once: for a loop that retries while a bounded queue is full, and to vary how threads interleave.
pub fn give_way() {
    std::thread::yield_now();
}

/// Lets time pass for a peer that is slow on purpose. Never a way to wait for an event: that is [`until`].
pub fn pause(span: Duration) {
    sleep(span);
}
