//! A token bucket for writes to the API server.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A limit of writes a second, with a number of writes at once after a pause.
pub(super) struct Pace {
    interval: Duration,
    at_once: u32,
    /// The instant at which the bucket is full again.
    next: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32, at_once: u32) -> Pace {
        Pace {
            interval: Duration::from_secs(1) / per_second,
            at_once,
            next: Instant::now(),
        }
    }

    /// Waits until a write may begin.
    pub(super) async fn wait(&mut self) {
        let now = Instant::now();
        let full = now.checked_sub(self.interval * self.at_once).unwrap_or(now);
        self.next = self.next.max(full);
        if self.next > now {
            sleep_until(self.next).await;
        }
        self.next += self.interval;
    }
}
