//! The idempotency keys of owned channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::Idempotency;

use crate::limits;

type Key = (Arc<str>, Box<str>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyKeys {
    by_key: BTreeMap<Key, (Duration, Option<StreamPosition>)>,
    by_expiry: BTreeSet<(Duration, Key)>,
}

/// A key of a channel that moves.
#[derive(Clone, Debug)]
pub(super) struct KeyEntry {
    pub(super) key: Box<str>,
    pub(super) expiry: Duration,
    /// The position after the publication.
    pub(super) position: Option<StreamPosition>,
}

impl IdempotencyKeys {
    /// Returns the position after the publication that had the key first, or `None` if there was none.
    pub(crate) fn find(
        &self,
        channel: &Arc<str>,
        idempotency: &Idempotency,
        now: Duration,
    ) -> Option<Option<StreamPosition>> {
        let key = (Arc::clone(channel), idempotency.key.clone());
        let (expiry, position) = self.by_key.get(&key)?;
        (*expiry > now).then_some(*position)
    }

    pub(crate) fn add(
        &mut self,
        channel: &Arc<str>,
        idempotency: Idempotency,
        position: Option<StreamPosition>,
        now: Duration,
    ) {
        let entry = KeyEntry {
            key: idempotency.key,
            expiry: now + idempotency.window,
            position,
        };
        self.insert(channel, entry);
    }

    fn insert(&mut self, channel: &Arc<str>, entry: KeyEntry) {
        if self.by_key.len() >= limits::IDEMPOTENCY_KEYS
            && let Some((_, key)) = self.by_expiry.pop_first()
        {
            self.by_key.remove(&key);
        }
        let key = (Arc::clone(channel), entry.key);
        let value = (entry.expiry, entry.position);
        if let Some((before, _)) = self.by_key.insert(key.clone(), value) {
            self.by_expiry.remove(&(before, key.clone()));
        }
        self.by_expiry.insert((entry.expiry, key));
    }

    /// Removes the keys of a channel.
    pub(super) fn take(&mut self, channel: &Arc<str>) -> Vec<KeyEntry> {
        if self.by_key.is_empty() {
            return Vec::new();
        }
        let first: Key = (Arc::clone(channel), "".into());
        let of_channel = self
            .by_key
            .range(first..)
            .take_while(|((name, _), _)| name == channel);
        let keys: Vec<Key> = of_channel.map(|(key, _)| key.clone()).collect();
        let mut taken = Vec::new();
        for key in keys {
            if let Some((expiry, position)) = self.by_key.remove(&key) {
                self.by_expiry.remove(&(expiry, key.clone()));
                let (_, key) = key;
                taken.push(KeyEntry {
                    key,
                    expiry,
                    position,
                });
            }
        }
        taken
    }

    /// Adds the keys of a channel that has moved here.
    pub(super) fn restore(&mut self, channel: &Arc<str>, keys: Vec<KeyEntry>) {
        keys.into_iter().for_each(|entry| self.insert(channel, entry));
    }

    pub(crate) fn expire(&mut self, now: Duration) {
        while let Some((expiry, _)) = self.by_expiry.first()
            && *expiry <= now
            && let Some((_, key)) = self.by_expiry.pop_first()
        {
            self.by_key.remove(&key);
        }
    }
}
