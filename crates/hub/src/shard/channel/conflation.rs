//! The rate at which workers receive publications of a conflated channel: the first at once, and the last of those that follow within an
//! interval. Must not know subscribers.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Published;

/// A publication with its offset; 0 for none.
type NumberedPublication = (u64, Arc<Published>);

#[derive(Debug, Default)]
pub(super) struct UpdateLimiter {
    /// The time from which on the next publication may be sent.
    next: Duration,
    /// The last publication that was sent.
    last_sent: Option<NumberedPublication>,
    /// The last publication that was not sent yet.
    held: Option<NumberedPublication>,
}

/// The decision about a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum SendDecision {
    /// It is sent to the workers now.
    Now,
    /// It is held until this time, unless a newer one replaces it. None was held before.
    At(Duration),
    /// It has replaced a held publication.
    Replaced,
}

impl UpdateLimiter {
    /// Decides about a publication. `interval` is `None` if the channel is not conflated or has no subscribers.
    pub(super) fn decide(
        &mut self,
        interval: Option<Duration>,
        offset: u64,
        published: &Arc<Published>,
        now: Duration,
    ) -> SendDecision {
        let Some(interval) = interval else {
            // A held publication is older and must not follow this one.
            *self = UpdateLimiter::default();
            return SendDecision::Now;
        };
        let numbered = (offset, Arc::clone(published));
        if now >= self.next && self.held.is_none() {
            self.next = now + interval;
            self.last_sent = Some(numbered);
            return SendDecision::Now;
        }
        match self.held.replace(numbered) {
            Some(_) => SendDecision::Replaced,
            None => SendDecision::At(self.next),
        }
    }

    /// Returns the held publication, which is sent now.
    pub(super) fn release(
        &mut self,
        interval: Option<Duration>,
        now: Duration,
    ) -> Option<NumberedPublication> {
        let held = self.held.take()?;
        self.next = now + interval.unwrap_or_default();
        self.last_sent = Some(held.clone());
        Some(held)
    }

    /// Discards the last publication that was sent: its offset is of another epoch.
    pub(super) fn clear_last_sent(&mut self) {
        self.last_sent = None;
    }

    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the time at which the held publication is sent.
    pub(super) fn due(&self) -> Option<Duration> {
        self.held.as_ref().map(|_| self.next)
    }

    pub(super) fn last_sent(&self) -> Option<NumberedPublication> {
        self.last_sent.clone()
    }
}
