//! The time between attempts to connect.

use std::time::Duration;

use ringmain_sys::clock;

use crate::limits;

/// Grows with each attempt; random, so that nodes that lost the same broker do not return at the same instant.
#[derive(Debug)]
pub(super) struct Retry {
    wait: Duration,
    random: fastrand::Rng,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            wait: limits::LOG_BACKOFF[0],
            random: fastrand::Rng::with_seed(clock::realtime().as_nanos() as u64),
        }
    }
}

impl Retry {
    /// Returns the time to wait before the next attempt.
    pub(super) fn next_wait(&mut self) -> Duration {
        let wait = self.wait.mul_f64(0.5 + self.random.f64() / 2.0);
        self.wait = (2 * self.wait).min(limits::LOG_BACKOFF[1]);
        wait
    }

    /// The broker has accepted an append.
    pub(super) fn reset(&mut self) {
        self.wait = limits::LOG_BACKOFF[0];
    }
}

#[cfg(test)]
mod tests {
    use super::Retry;
    use crate::limits::LOG_BACKOFF;

    #[test]
    fn the_wait_grows_up_to_its_limit_and_is_reset() {
        let [least, most] = LOG_BACKOFF;
        let mut retry = Retry::default();
        assert!((least / 2..=least).contains(&retry.next_wait()));
        let mut last = least;
        for _ in 0..10 {
            last = retry.next_wait();
            assert!(last <= most);
        }
        assert!(last >= most / 2);
        retry.reset();
        assert!(retry.next_wait() <= least);
    }
}
