//! What ends at a time unless somebody shows another token: connections and subscriptions of one worker. Pure.
//!
//! By the wall's clock, since tokens are: where it is set forward, what has expired by it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module. As many entries as there are connections and subscriptions with an end, and none of others.
#[derive(Debug, Default)]
pub(crate) struct Due(BTreeSet<(u64, Ending)>);

/// Which connection by its slot; the connection itself, or its subscription to a channel.
pub(crate) type Ending = (usize, Option<Arc<str>>);

impl Due {
    /// It ended at one time, in seconds since 1970, and ends at another one now.
    pub(crate) fn moves(&mut self, ending: Ending, from: Option<u64>, to: Option<u64>) {
        let mut entry = (0, ending);
        if let Some(from) = from {
            entry.0 = from;
            self.0.remove(&entry);
        }
        if let Some(to) = to {
            entry.0 = to;
            self.0.insert(entry);
        }
    }

    /// The next that has ended by now; it is one no more.
    pub(crate) fn next(&mut self, now: u64) -> Option<Ending> {
        let is_over = self.0.first().is_some_and(|(at, _)| *at <= now);
        let (_, ending) = is_over.then(|| self.0.pop_first()).flatten()?;
        Some(ending)
    }
}

#[cfg(test)]
mod tests {
    use super::Due;

    #[test]
    fn what_is_over_comes_once_and_in_order() {
        let mut due = Due::default();
        let of = |channel: &str| (7, Some(channel.into()));
        due.moves((7, None), None, Some(30));
        due.moves(of("b"), None, Some(20));
        due.moves(of("a"), None, Some(20));
        due.moves(of("c"), None, Some(10));
        due.moves(of("c"), Some(10), Some(40));
        due.moves(of("d"), None, Some(10));
        due.moves(of("d"), Some(10), None);
        due.moves(of("e"), None, None);
        assert_eq!(due.next(19), None);
        assert_eq!(due.next(20), Some(of("a")));
        assert_eq!(due.next(20), Some(of("b")));
        assert_eq!(due.next(29), None);
        assert_eq!(due.next(u64::MAX), Some((7, None)));
        assert_eq!(due.next(u64::MAX), Some(of("c")));
        assert_eq!(due.next(u64::MAX), None);
    }
}
