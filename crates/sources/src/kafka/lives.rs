//! Lives of partitions: logs that lose records, and topics that are created again.

use krafka::consumer::TopicPartition;
use ringmain_push::LogEvent;

use super::rebalance::lock;
use super::{Key, Reader, epoch_of, number};
use crate::failure::Failure;
use crate::feed::{Feed, Partition};

impl Reader<'_> {
    /// The first record of a partition arrived before its position was known.
    pub(super) async fn start_at(&mut self, feed: &mut Feed, key: &Key, offset: i64) {
        if let Some(assigned) = self.assigned.get_mut(key) {
            assigned.has_begun = true;
            assigned.next = offset;
            assigned.partition.begins(feed, number(offset)).await;
        }
    }

    /// The log lost records that were read, and others have their offsets now: another life.
    pub(super) async fn truncated(&mut self, feed: &mut Feed, key: &Key, offset: i64, leader_epoch: i32) {
        let Some(assigned) = self.assigned.get_mut(key) else {
            return;
        };
        log::warn!(
            "source {} (kafka): partition {} of {} continues at offset {offset}, before {}: the broker has lost records",
            feed.name,
            key.1,
            key.0,
            assigned.next
        );
        let log = assigned.partition.log();
        // A leader's epoch grows with each election, so no two truncations have the same: nodes that see one agree on the life.
        let life =
            u64::from(leader_epoch.unsigned_abs()) << 32 | offset.unsigned_abs() & 0xffff_ffff | 1 << 63;
        feed.letters.remove_partition(assigned.partition.id(), false);
        assigned.partition = Partition::new(feed, epoch_of(feed, assigned.topic_id, key, life));
        assigned.partition.begins(feed, number(offset)).await;
        match log {
            Some(log) => feed.log_ended(log).await,
            None => feed.gap(),
        }
    }

    /// Offsets were left out: by compaction and transactions, or since the retention has passed.
    pub(super) async fn check_hole(&mut self, feed: &mut Feed, key: &Key, offset: i64) {
        let lag = self.consumer.lag().await;
        let start = lag
            .get(&TopicPartition::new(key.0.as_str(), key.1))
            .and_then(|lag| lag.log_start_offset);
        let Some(assigned) = self.assigned.get_mut(key) else {
            return;
        };
        if start.is_some_and(|start| start > assigned.next) {
            log::warn!(
                "source {} (kafka): records {} to {} of partition {} of {} were deleted before they were read",
                feed.name,
                assigned.next,
                offset - 1,
                key.1,
                key.0
            );
            match assigned.partition.log() {
                Some(log) => {
                    assigned.partition.drain(feed).await;
                    feed.status.gap();
                    feed.report(log, LogEvent::Started(number(offset))).await;
                }
                None => feed.gap(),
            }
        }
    }

    /// A topic was created again: all of its partitions are read from their beginning, in another life.
    pub(super) async fn replace(
        &mut self,
        feed: &mut Feed,
        key: &Key,
        id: Option<[u8; 16]>,
    ) -> Result<(), Failure> {
        log::warn!("source {} (kafka): topic {} was created again", feed.name, key.0);
        let keys: Vec<Key> = self
            .assigned
            .keys()
            .filter(|(topic, _)| *topic == key.0)
            .cloned()
            .collect();
        for key in keys {
            let log = self
                .assigned
                .get(&key)
                .and_then(|assigned| assigned.partition.log());
            self.assign(feed, key.clone(), id);
            self.consumer.seek(&key.0, key.1, 0).await?;
            lock(&self.shared.done).remove(&key);
            feed.kafka.remove(&key);
            if let Some(assigned) = self.assigned.get_mut(&key) {
                assigned.has_begun = true;
                assigned.partition.begins(feed, 0).await;
            }
            match log {
                Some(log) => feed.log_ended(log).await,
                None => feed.gap(),
            }
        }
        Ok(())
    }
}
