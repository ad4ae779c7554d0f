//! The delay before the next attempt to connect.

use std::time::Duration;

use fastrand::Rng;

/// The approximate delay after the first failure.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(250);

/// After many, at most.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(15);

/// A connection that lasts this long resets the delay.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Doubles with each failure, and is random between half of that and all: many clients of one lost server must not reconnect at the
/// same time.
pub(super) fn next_delay(failures: u32, random: &mut Rng) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let longest = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    longest.mul_f64(random.f64().mul_add(0.5, 0.5))
}
