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
pub(super) struct IdempotencyKeys {
    by_key: BTreeMap<Key, (Duration, Option<StreamPosition>)>,
    by_expiry: BTreeSet<(Duration, Key)>,
}

impl IdempotencyKeys {
    /// Returns the position after the publication that had the key first, or `None` if there was none.
    pub(super) fn find(
        &self,
        channel: &Arc<str>,
        idempotency: &Idempotency,
        now: Duration,
    ) -> Option<Option<StreamPosition>> {
        let key = (Arc::clone(channel), idempotency.key.clone());
        let (expiry, position) = self.by_key.get(&key)?;
        (*expiry > now).then_some(*position)
    }

    pub(super) fn add(
        &mut self,
        channel: &Arc<str>,
        idempotency: Idempotency,
        position: Option<StreamPosition>,
        now: Duration,
    ) {
        if self.by_key.len() >= limits::IDEMPOTENCY_KEYS
            && let Some((_, key)) = self.by_expiry.pop_first()
        {
            self.by_key.remove(&key);
        }
        let key = (Arc::clone(channel), idempotency.key);
        let expiry = now + idempotency.window;
        if let Some((before, _)) = self.by_key.insert(key.clone(), (expiry, position)) {
            self.by_expiry.remove(&(before, key.clone()));
        }
        self.by_expiry.insert((expiry, key));
    }

    pub(super) fn expire(&mut self, now: Duration) {
        while let Some((expiry, _)) = self.by_expiry.first()
            && *expiry <= now
            && let Some((_, key)) = self.by_expiry.pop_first()
        {
            self.by_key.remove(&key);
        }
    }
}
