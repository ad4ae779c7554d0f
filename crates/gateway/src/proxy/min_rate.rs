//! The minimum rate of a slow client while other requests wait for the upstream slot that it occupies. The rate rises with time.

use crate::limits;
use crate::upstream::UpstreamState;

/// The check of one exchange, to be repeated each [`CONTENDED_LOOK`](limits::CONTENDED_LOOK) in which the client is waited for.
pub(super) struct MinRateCheck<'a> {
    upstream: &'a UpstreamState,
    /// The listener's minimum rate, bytes per second.
    rate: u64,
    /// Consecutive checks at which other requests waited.
    checks: u32,
    /// Bytes transferred at the last check.
    base: u64,
}

impl<'a> MinRateCheck<'a> {
    pub(super) fn new(upstream: &'a UpstreamState, rate: u32) -> MinRateCheck<'a> {
        MinRateCheck {
            upstream,
            rate: u64::from(rate.max(1)),
            checks: 0,
            base: 0,
        }
    }

    /// Returns whether the client must release its slot. `total` is the total of bytes that it has sent or received.
    pub(super) fn is_too_slow(&mut self, total: u64) -> bool {
        let bytes = total.saturating_sub(std::mem::replace(&mut self.base, total));
        if self.upstream.wait_queue.len() == 0 {
            self.checks = 0;
            return false;
        }
        self.checks += 1;
        let doublings = self.checks.saturating_sub(limits::CONTENDED_GRACE).min(16);
        let min_rate = (self.rate << doublings).min(limits::CONTENDED_RATE);
        doublings > 0 && bytes < min_rate
    }
}
