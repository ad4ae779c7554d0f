//! How long to wait before the next try.

use std::time::Duration;

use fastrand::Rng;

/// After the first failure, about.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(250);

/// After many, at most.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(15);

/// A connection that lasted so long was a good one: what comes next is a first failure.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Twice as long each time, and somewhere between half of that and all of it: many that lost the same server must not come
/// back at once.
pub(super) fn next_delay(failures: u32, random: &mut Rng) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let longest = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    longest.mul_f64(random.f64().mul_add(0.5, 0.5))
}
