//! Requests for older records: few are executed at the same time, the others wait.

use std::collections::VecDeque;

use ringmain_cluster::log::Partition;

use crate::limits;

/// A request for the part of a partition that is directly below a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) partition: Partition,
    /// The generation of the open partition.
    pub(super) generation: u32,
    pub(super) before: u64,
    pub(super) bytes: usize,
}

/// Requests in their order. A node has at most one for each partition.
#[derive(Debug, Default)]
pub(super) struct TailQueue {
    waiting: VecDeque<Tail>,
    in_flight: usize,
}

impl TailQueue {
    pub(super) fn push(&mut self, tail: Tail) {
        self.waiting.push_back(tail);
    }

    /// Takes the next request unless [`limits::LOG_TAILS`] are in flight. Those whose partition was closed since are dropped: the node
    /// was notified of that.
    pub(super) fn take(&mut self, is_open: impl Fn(&Tail) -> bool) -> Option<Tail> {
        self.waiting.retain(is_open);
        if self.in_flight >= limits::LOG_TAILS {
            return None;
        }
        let tail = self.waiting.pop_front()?;
        self.in_flight += 1;
        Some(tail)
    }

    /// A request that was taken is complete, or has failed.
    pub(super) fn complete(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use ringmain_cluster::log::Partition;

    use super::{Tail, TailQueue};
    use crate::limits::LOG_TAILS;

    #[test]
    fn few_requests_are_in_flight() {
        let mut queue = TailQueue::default();
        let tail = |partition: usize| Tail {
            partition: Partition(partition as u16),
            generation: 1,
            before: 9,
            bytes: 1,
        };
        for partition in 0..LOG_TAILS + 3 {
            queue.push(tail(partition));
        }
        for partition in 0..LOG_TAILS {
            assert_eq!(queue.take(|_| true), Some(tail(partition)));
        }
        assert_eq!(queue.take(|_| true), None);
        queue.complete();
        let is_open = |other: &Tail| *other != tail(LOG_TAILS);
        assert_eq!(queue.take(is_open), Some(tail(LOG_TAILS + 1)), "one was closed");
        assert_eq!(queue.take(is_open), None);
        queue.complete();
        assert_eq!(queue.take(is_open), Some(tail(LOG_TAILS + 2)));
        queue.complete();
        assert_eq!(queue.take(is_open), None);
    }
}
