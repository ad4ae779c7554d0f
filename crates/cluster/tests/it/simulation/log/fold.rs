//! Entries of a log, folded as they are appended: the publications of each life by channel, without the reader of the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_cluster::log::{Binding, Entry, Life};
use ringmain_hub::history::{Epoch, StreamPosition};

use super::{Stored, Stream};

/// The fold of one partition.
#[derive(Debug, Default)]
pub(super) struct PartitionFold {
    life: Option<(Life, Binding)>,
    /// The records were shortened, and no life has begun since.
    awaits_life: bool,
    keys: BTreeMap<(Arc<str>, Box<str>), (u64, i64)>,
}

/// The publications of each life, by channel, and their numbers.
#[derive(Debug, Default)]
pub(in super::super) struct Fold {
    publications: BTreeMap<(Arc<str>, Epoch), BTreeMap<u64, Vec<u8>>>,
}

impl Fold {
    /// Forgets the publications that were checked.
    pub(in super::super) fn clear(&mut self) {
        self.publications.clear();
    }

    /// Returns the first publication of a channel between a position and a number, both excluded.
    pub(in super::super) fn between(&self, channel: &Arc<str>, from: StreamPosition, to: u64) -> Option<u64> {
        let publications = self.publications.get(&(Arc::clone(channel), from.epoch))?;
        let mut between = publications.range(from.offset + 1..to);
        between.next().map(|(number, _)| *number)
    }

    /// Returns the data of a publication.
    pub(in super::super) fn data(&self, channel: &Arc<str>, position: StreamPosition) -> Option<&[u8]> {
        let publications = self.publications.get(&(Arc::clone(channel), position.epoch))?;
        publications.get(&position.offset).map(Vec::as_slice)
    }
}

impl Stream {
    /// Adds a record to the publications of its life.
    pub(super) fn fold(&mut self, fold: &mut Fold, stored: &Stored, binding: Binding) {
        match Entry::decode(&stored.append.entry).expect("an entry") {
            Entry::Life { life, .. } => {
                self.fold.life = Some((life.life, life.binding));
                self.fold.awaits_life = false;
                self.fold.keys.clear();
            }
            Entry::Beat { .. } => {}
            Entry::Publication { publish, .. } => {
                if let Some(idempotency) = publish.options.idempotency {
                    let key = (Arc::clone(&publish.channel), idempotency.key);
                    let window = idempotency.window.as_millis() as i64;
                    let first = self.fold.keys.get(&key);
                    if first.is_some_and(|(_, at)| stored.time_ms - at < window) {
                        return;
                    }
                    self.fold.keys.insert(key, (stored.number, stored.time_ms));
                }
                let Some((life, bound)) = self.fold.life else {
                    return;
                };
                if bound != binding || self.fold.awaits_life {
                    // In no life.
                    return;
                }
                let of_channel = fold
                    .publications
                    .entry((publish.channel, life.epoch()))
                    .or_default();
                of_channel.insert(stored.number, publish.published.data.to_vec());
            }
        }
    }

    /// Forgets the keys of records that were taken back.
    pub(super) fn refold(&mut self, is_shortened: bool) {
        let end = self.records.back().map_or(0, |stored| stored.number);
        self.fold.keys.retain(|_, (number, _)| *number <= end);
        self.fold.awaits_life |= is_shortened;
    }
}
