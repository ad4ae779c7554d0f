//! Requests for older records: few are executed at the same time, the others wait.

use std::collections::VecDeque;

use ringmain_cluster::log::{LogEvent, Partition};

use super::follows::Follows;
use super::outbox::Outbox;
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
    /// Adds a request for the part of a partition below a number. Reports that the partition is closed if it is not open.
    pub(super) fn request<O>(
        &mut self,
        follows: &Follows<O>,
        outbox: &mut Outbox,
        partition: Partition,
        before: u64,
        bytes: usize,
    ) {
        match follows.get(partition) {
            Some((_, generation)) => self.waiting.push_back(Tail {
                partition,
                generation,
                before,
                bytes,
            }),
            None => outbox.push(LogEvent::Closed { partition }),
        }
    }

    /// Takes the next request unless [`limits::LOG_TAILS`] are in flight. Those whose partition was closed since are dropped: the node
    /// was notified of that.
    pub(super) fn take<O>(&mut self, follows: &Follows<O>) -> Option<Tail> {
        self.waiting
            .retain(|tail| follows.is_open(tail.partition, tail.generation));
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
    use ringmain_cluster::log::{FollowFrom, LogEvent, Partition};
    use tokio::sync::mpsc;

    use super::TailQueue;
    use crate::limits::LOG_TAILS;
    use crate::log::follows::Follows;
    use crate::log::outbox::Outbox;

    #[test]
    fn few_requests_are_in_flight() {
        let (sender, mut events) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender, "redis");
        let count = LOG_TAILS as u16 + 3;
        let mut follows = Follows::new(count + 1);
        for partition in 0..count {
            follows.follow(Partition(partition), FollowFrom::Number(1));
        }
        for opening in follows.take_waiting(|_| true) {
            follows.open(&opening, ());
        }
        let mut queue = TailQueue::default();
        for partition in 0..=count {
            queue.request(&follows, &mut outbox, Partition(partition), 9, 1);
        }
        let taken = |queue: &mut TailQueue, follows: &Follows<()>| {
            let tail = queue.take(follows);
            tail.map(|tail| usize::from(tail.partition.0))
        };
        for partition in 0..LOG_TAILS {
            assert_eq!(taken(&mut queue, &follows), Some(partition));
        }
        assert_eq!(taken(&mut queue, &follows), None);
        queue.complete();
        follows.unfollow(Partition(LOG_TAILS as u16));
        assert_eq!(taken(&mut queue, &follows), Some(LOG_TAILS + 1), "one was closed");
        assert_eq!(taken(&mut queue, &follows), None);
        queue.complete();
        assert_eq!(taken(&mut queue, &follows), Some(LOG_TAILS + 2));
        queue.complete();
        assert_eq!(taken(&mut queue, &follows), None);
        // The last one was not open.
        let flushed = futures_util::FutureExt::now_or_never(outbox.flush());
        assert!(flushed.is_some_and(|flushed| flushed.is_ok()));
        let partition = Partition(count);
        assert_eq!(events.try_recv(), Ok(vec![LogEvent::Closed { partition }]));
    }
}
