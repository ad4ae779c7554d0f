//! Whether others wait for a place of an upstream that is held for a slow client: then what the client sends or takes must reach a rate
//! that rises.

use crate::limits;
use crate::upstream::Shared;

/// See the module. To be checked each [`CONTENDED_LOOK`](limits::CONTENDED_LOOK) in which the client is waited for.
pub(super) struct Contention<'a> {
    shared: &'a Shared,
    /// Bytes a second that its listener wants.
    rate: u64,
    /// Checks in a row at which others waited.
    checks: u32,
    /// Bytes that had moved at the last check.
    base: u64,
}

impl<'a> Contention<'a> {
    pub(super) fn new(shared: &'a Shared, rate: u32) -> Contention<'a> {
        Contention {
            shared,
            rate: u64::from(rate.max(1)),
            checks: 0,
            base: 0,
        }
    }

    /// Whether the client is to make room: `moved` are all bytes so far that it has sent or taken.
    pub(super) fn is_too_slow(&mut self, moved: u64) -> bool {
        let brought = moved.saturating_sub(std::mem::replace(&mut self.base, moved));
        if self.shared.waiting.len() == 0 {
            self.checks = 0;
            return false;
        }
        self.checks += 1;
        let rises = self.checks.saturating_sub(limits::CONTENDED_GRACE).min(16);
        let due = (self.rate << rises).min(limits::CONTENDED_RATE);
        rises > 0 && brought < due
    }
}
