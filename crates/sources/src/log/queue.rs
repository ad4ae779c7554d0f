//! Appends that wait for a broker, in order.
//!
//! The node limits their number and bytes, and refuses more. One that is not sent within [`limits::LOG_QUEUE_TIME`] is refused.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ringmain_cluster::log::{Append, Partition};

use crate::limits;

/// An append that was not sent, or that the broker has certainly not executed.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) append: Append,
    /// The time at which it was requested.
    pub(super) since: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AppendQueue(VecDeque<Queued>);

impl AppendQueue {
    /// Adds an append behind the others.
    pub(super) fn push(&mut self, append: Append, now: Duration) {
        self.0.push_back(Queued { append, since: now });
    }

    /// Adds appends before the others: they were sent and not executed. They have their order.
    pub(super) fn put_back(&mut self, appends: Vec<Queued>) {
        for queued in appends.into_iter().rev() {
            self.0.push_front(queued);
        }
    }

    /// Adds the appends of another queue behind those here.
    pub(super) fn append(&mut self, mut other: AppendQueue) {
        self.0.append(&mut other.0);
    }

    /// Removes a batch from the front. An append that may not be sent yet remains, with those of its partition behind it.
    pub(super) fn take_batch(&mut self, mut may_send: impl FnMut(&Append) -> bool) -> Vec<Queued> {
        let (mut batch, mut held) = (Vec::new(), Vec::new());
        let mut held_partitions = BTreeSet::new();
        let mut bytes = 0;
        while batch.len() < limits::LOG_APPENDS_AT_ONCE
            && let Some(queued) = self.0.pop_front()
        {
            let Append { partition, entry, .. } = &queued.append;
            if bytes > 0 && bytes + entry.len() > limits::LOG_APPEND_BYTES_AT_ONCE {
                self.0.push_front(queued);
                break;
            }
            if held_partitions.contains(partition) || !may_send(&queued.append) {
                held_partitions.insert(*partition);
                held.push(queued);
                continue;
            }
            bytes += entry.len().max(1);
            batch.push(queued);
        }
        self.put_back(held);
        batch
    }

    /// Removes the appends that have waited for too long. The order of requests is not that of time once some were put back.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<Append> {
        let is_late = |queued: &Queued| now.saturating_sub(queued.since) >= limits::LOG_QUEUE_TIME;
        if !self.0.iter().any(is_late) {
            return Vec::new();
        }
        let (late, rest): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.0).into_iter().partition(is_late);
        self.0 = rest;
        late.into_iter().map(|queued| queued.append).collect()
    }

    /// Removes the appends of partitions for which this is true.
    pub(super) fn extract(&mut self, mut is_of: impl FnMut(Partition) -> bool) -> Vec<Queued> {
        let (mut extracted, mut rest) = (Vec::new(), VecDeque::new());
        for queued in std::mem::take(&mut self.0) {
            if is_of(queued.append.partition) {
                extracted.push(queued);
            } else {
                rest.push_back(queued);
            }
        }
        self.0 = rest;
        extracted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use ringmain_cluster::log::{Append, Partition};

    use crate::log::tests::beat;

    use super::AppendQueue;
    use crate::limits;

    fn append(id: u64, partition: u16, bytes: usize) -> Append {
        Append {
            id,
            partition: Partition(partition),
            entry: Bytes::from(vec![0; bytes]),
            decoded: Box::new(beat(id)),
            key: None,
        }
    }

    fn ids<'a>(appends: impl IntoIterator<Item = &'a Append>) -> Vec<u64> {
        appends.into_iter().map(|append| append.id).collect()
    }

    #[test]
    fn batches_are_bounded_by_count_and_bytes_and_have_one_append_at_least() {
        let mut queue = AppendQueue::default();
        for id in 0..limits::LOG_APPENDS_AT_ONCE as u64 + 1 {
            queue.push(append(id, 0, 0), Duration::ZERO);
        }
        for expected in [limits::LOG_APPENDS_AT_ONCE, 1, 0] {
            assert_eq!(queue.take_batch(|_| true).len(), expected);
        }
        for id in 0..3 {
            queue.push(append(id, 0, limits::LOG_APPEND_BYTES_AT_ONCE), Duration::ZERO);
        }
        for id in 0..3 {
            let batch = queue.take_batch(|_| true);
            assert_eq!(ids(batch.iter().map(|queued| &queued.append)), [id]);
        }
    }

    #[test]
    fn appends_that_were_not_executed_are_the_next_ones() {
        let mut queue = AppendQueue::default();
        for id in 0..4 {
            queue.push(append(id, 0, 1), Duration::ZERO);
        }
        let mut batch = queue.take_batch(|_| true);
        queue.push(append(4, 0, 1), Duration::ZERO);
        queue.put_back(batch.split_off(2));
        let batch = queue.take_batch(|_| true);
        assert_eq!(ids(batch.iter().map(|queued| &queued.append)), [2, 3, 4]);
    }

    #[test]
    fn an_append_that_may_not_be_sent_holds_those_of_its_partition_behind_it() {
        let mut queue = AppendQueue::default();
        for (id, partition) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
            queue.push(append(id, partition, 1), Duration::ZERO);
        }
        let batch = queue.take_batch(|append| append.id != 1);
        assert_eq!(ids(batch.iter().map(|queued| &queued.append)), [2, 4]);
        let batch = queue.take_batch(|_| true);
        assert_eq!(ids(batch.iter().map(|queued| &queued.append)), [1, 3]);
    }

    #[test]
    fn appends_expire_by_the_time_of_their_request() {
        let mut queue = AppendQueue::default();
        queue.push(append(1, 0, 1), Duration::ZERO);
        queue.push(append(2, 0, 1), Duration::from_millis(1));
        assert_eq!(queue.expire(limits::LOG_QUEUE_TIME / 2), []);
        assert_eq!(ids(&queue.expire(limits::LOG_QUEUE_TIME)), [1]);
        assert_eq!(ids(&queue.expire(limits::LOG_QUEUE_TIME * 2)), [2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn appends_of_partitions_are_extracted_in_their_order() {
        let mut queue = AppendQueue::default();
        for (id, partition) in [(1, 0), (2, 1), (3, 0)] {
            queue.push(append(id, partition, 1), Duration::ZERO);
        }
        let of_first = queue.extract(|partition| partition == Partition(0));
        assert_eq!(ids(of_first.iter().map(|queued| &queued.append)), [1, 3]);
        assert_eq!(queue.take_batch(|_| true).len(), 1);
    }
}
