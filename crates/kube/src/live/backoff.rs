//! Growing pauses after failures.

use std::time::Duration;

use crate::limits::{BACKOFF_LEAST, BACKOFF_MOST};

/// Pauses that double up to a limit, each with a random part so that replicas do not retry in step.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff(BACKOFF_LEAST)
    }

    pub(super) fn reset(&mut self) {
        self.0 = BACKOFF_LEAST;
    }

    /// Returns `true` before the first failure.
    pub(super) fn is_reset(&self) -> bool {
        self.0 == BACKOFF_LEAST
    }

    /// Returns the next pause: a random share of the current one, at least half.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(BACKOFF_MOST);
        pause
    }
}
