//! Rebalances of a consumer group: partitions that a member gets and loses, and the commit before it does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use krafka::consumer::{Consumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition};

use super::Key;

/// A change of the partitions that this member has.
pub(super) enum Change {
    Assigned(Vec<Key>),
    Removed(Vec<Key>),
}

/// The part that the listener of rebalances shares with the task.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) changes: Mutex<Vec<Change>>,
    /// The next offset to read by partition, for records that are done and not committed.
    pub(super) done: Mutex<BTreeMap<Key, i64>>,
    pub(super) consumer: OnceLock<Weak<Consumer>>,
}

pub(super) struct Listener(pub(super) Arc<Shared>);

impl ConsumerRebalanceListener for Listener {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        lock(&self.0.changes).push(Change::Assigned(keys(partitions)));
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        let keys = keys(partitions);
        let done: BTreeMap<Key, i64> = {
            let mut waiting = lock(&self.0.done);
            keys.iter().filter_map(|key| waiting.remove_entry(key)).collect()
        };
        let consumer = self.0.consumer.get().and_then(Weak::upgrade);
        if let Some(consumer) = consumer.filter(|_| !done.is_empty()) {
            // Without it the next owner repeats a few.
            let _ = consumer.commit_offsets(offsets(&done)).await;
        }
        lock(&self.0.changes).push(Change::Removed(keys));
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        let keys = keys(partitions);
        let mut done = lock(&self.0.done);
        done.retain(|key, _| !keys.contains(key));
        drop(done);
        lock(&self.0.changes).push(Change::Removed(keys));
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keys(partitions: &[TopicPartition]) -> Vec<Key> {
    let keys = partitions.iter();
    keys.map(|it| (it.topic.clone(), it.partition)).collect()
}

pub(super) fn offsets(done: &BTreeMap<Key, i64>) -> Vec<(TopicPartition, OffsetAndMetadata)> {
    let offsets = done.iter();
    offsets
        .map(|((topic, partition), next)| {
            (
                TopicPartition::new(topic.as_str(), *partition),
                OffsetAndMetadata::new(*next),
            )
        })
        .collect()
}
