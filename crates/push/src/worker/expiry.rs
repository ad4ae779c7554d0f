//! Deadlines of connections and subscriptions of one worker, which end unless a newer token is sent before. Pure.
//!
//! By wall time, like the expiry of tokens: where the clock is set forward, everything that has expired by it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Deadlines in order: one entry for each connection and subscription that has one.
#[derive(Debug, Default)]
pub(crate) struct ExpiryQueue(BTreeSet<(u64, ExpiryKey)>);

/// The slot of a connection; the connection itself, or its subscription to a channel.
pub(crate) type ExpiryKey = (usize, Option<Arc<str>>);

impl ExpiryQueue {
    /// Moves a deadline, in seconds since 1970.
    pub(crate) fn reschedule(&mut self, key: ExpiryKey, from: Option<u64>, to: Option<u64>) {
        let mut entry = (0, key);
        if let Some(from) = from {
            entry.0 = from;
            self.0.remove(&entry);
        }
        if let Some(to) = to {
            entry.0 = to;
            self.0.insert(entry);
        }
    }

    /// Removes and returns the next entry whose deadline has passed.
    pub(crate) fn pop_expired(&mut self, now: u64) -> Option<ExpiryKey> {
        let is_expired = self.0.first().is_some_and(|(at, _)| *at <= now);
        let (_, key) = is_expired.then(|| self.0.pop_first()).flatten()?;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::ExpiryQueue;

    #[test]
    fn expired_entries_are_returned_once_and_in_order() {
        let mut queue = ExpiryQueue::default();
        let of = |channel: &str| (7, Some(channel.into()));
        queue.reschedule((7, None), None, Some(30));
        queue.reschedule(of("b"), None, Some(20));
        queue.reschedule(of("a"), None, Some(20));
        queue.reschedule(of("c"), None, Some(10));
        queue.reschedule(of("c"), Some(10), Some(40));
        queue.reschedule(of("d"), None, Some(10));
        queue.reschedule(of("d"), Some(10), None);
        queue.reschedule(of("e"), None, None);
        assert_eq!(queue.pop_expired(19), None);
        assert_eq!(queue.pop_expired(20), Some(of("a")));
        assert_eq!(queue.pop_expired(20), Some(of("b")));
        assert_eq!(queue.pop_expired(29), None);
        assert_eq!(queue.pop_expired(u64::MAX), Some((7, None)));
        assert_eq!(queue.pop_expired(u64::MAX), Some(of("c")));
        assert_eq!(queue.pop_expired(u64::MAX), None);
    }
}
