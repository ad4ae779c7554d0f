//! Idempotency keys of recent publications. Pure.
//!
//! All keys have the same window, so the oldest expires first. They are ordered by a hash: comparing hashes reads only the memory of the
//! tree, while the names, of which there are many, are elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::mix;
use crate::history::StreamPosition;
use crate::limits;

/// Keys with the position after their publication. Bounded by [`limits::IDEMPOTENCY_KEYS`] and [`limits::IDEMPOTENCY_KEYS_BYTES`].
#[derive(Debug)]
pub(super) struct IdempotencyKeys {
    positions: BTreeMap<ChannelKey, Option<StreamPosition>>,
    /// The keys with the times of their publications, the oldest first.
    order: VecDeque<(Duration, ChannelKey)>,
    bytes: usize,
    limit: usize,
    limit_bytes: usize,
    window: Duration,
    /// The keys that were dropped before their window had passed.
    pub(super) dropped: u64,
}

/// An idempotency key of a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelKey {
    /// The hash of the name. Keys with equal hashes are compared by name, so chosen collisions cost no more than an order by names.
    hash: u64,
    name: Arc<KeyName>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyName {
    pub(super) channel: Arc<str>,
    pub(super) key: Box<str>,
}

impl ChannelKey {
    pub(super) fn new(channel: Arc<str>, key: Box<str>) -> ChannelKey {
        let mut hash = channel.len() as u64;
        for text in [channel.as_bytes(), key.as_bytes()] {
            for chunk in text.chunks(8) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                hash = mix(hash ^ u64::from_le_bytes(bytes)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            }
        }
        ChannelKey {
            hash,
            name: Arc::new(KeyName { channel, key }),
        }
    }

    fn bytes(&self) -> usize {
        self.name.channel.len() + self.name.key.len() + limits::KEY_OVERHEAD_BYTES
    }
}

impl Default for IdempotencyKeys {
    fn default() -> IdempotencyKeys {
        IdempotencyKeys::new(limits::IDEMPOTENCY_KEYS, limits::IDEMPOTENCY_KEYS_BYTES)
    }
}

impl IdempotencyKeys {
    fn new(limit: usize, limit_bytes: usize) -> IdempotencyKeys {
        IdempotencyKeys {
            positions: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            limit,
            limit_bytes,
            window: Duration::ZERO,
            dropped: 0,
        }
    }

    /// Returns the position after the publication with this key, if there was one within the window.
    pub(super) fn first(
        &mut self,
        key: &ChannelKey,
        window: Duration,
        now: Duration,
    ) -> Option<Option<StreamPosition>> {
        self.window = window;
        self.expire(now);
        self.positions.get(key).copied()
    }

    /// Adds the key of a new publication.
    pub(super) fn position_ttl(&mut self, key: ChannelKey, position: Option<StreamPosition>, now: Duration) {
        self.bytes += key.bytes();
        self.positions.insert(key.clone(), position);
        self.order.push_back((now, key));
        while self.order.len() > self.limit || self.bytes > self.limit_bytes {
            self.dropped += 1;
            self.pop();
        }
    }

    /// Restores a key of a predecessor. Keys must be restored in the order of their times.
    pub(super) fn restore(
        &mut self,
        key: ChannelKey,
        position: Option<StreamPosition>,
        window: Duration,
        at: Duration,
    ) {
        self.window = window;
        if !self.positions.contains_key(&key) {
            self.position_ttl(key, position, at);
        }
    }

    /// Returns all keys with their times and positions, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (Duration, &KeyName, Option<StreamPosition>)> {
        let all = self.order.iter();
        all.filter_map(|(at, key)| Some((*at, &*key.name, *self.positions.get(key)?)))
    }

    /// Removes the keys whose window has passed.
    pub(super) fn expire(&mut self, now: Duration) {
        while self.order.front().is_some_and(|(at, _)| *at + self.window <= now) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.bytes -= key.bytes();
            self.positions.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ChannelKey, IdempotencyKeys};
    use crate::history::{Epoch, StreamPosition};
    use crate::limits::KEY_OVERHEAD_BYTES;

    const WINDOW: Duration = Duration::from_secs(300);

    fn name(channel: &str, key: &str) -> ChannelKey {
        ChannelKey::new(channel.into(), key.into())
    }

    fn position(offset: u64) -> Option<StreamPosition> {
        let epoch = Epoch::new(7);
        Some(StreamPosition { offset, epoch })
    }

    #[test]
    fn a_key_is_remembered_per_channel_within_the_window() {
        let at = Duration::from_secs;
        let mut keys = IdempotencyKeys::default();
        assert_eq!(keys.first(&name("a", "1"), WINDOW, at(10)), None);
        keys.position_ttl(name("a", "1"), position(3), at(10));
        keys.position_ttl(name("b", "2"), None, at(20));
        assert_eq!(keys.first(&name("a", "1"), WINDOW, at(309)), Some(position(3)));
        assert_eq!(
            keys.first(&name("b", "1"), WINDOW, at(309)),
            None,
            "another channel"
        );
        assert_eq!(keys.first(&name("a", "2"), WINDOW, at(309)), None);
        assert_eq!(keys.first(&name("a", "1"), WINDOW, at(310)), None);
        assert_eq!(keys.first(&name("b", "2"), WINDOW, at(319)), Some(None));
        assert_eq!(keys.first(&name("b", "2"), Duration::from_secs(1), at(319)), None);
        assert_eq!((keys.bytes, keys.positions.len(), keys.dropped), (0, 0, 0));
    }

    #[test]
    fn the_oldest_keys_are_dropped_at_the_limit() {
        let now = Duration::from_secs(1);
        let mut few = IdempotencyKeys::new(2, usize::MAX);
        let mut small = IdempotencyKeys::new(9, 2 * (KEY_OVERHEAD_BYTES + 2));
        for keys in [&mut few, &mut small] {
            for key in ["1", "2", "3"] {
                keys.position_ttl(name("a", key), position(1), now);
            }
            assert_eq!(keys.first(&name("a", "1"), WINDOW, now), None);
            assert_eq!(keys.first(&name("a", "2"), WINDOW, now), Some(position(1)));
            assert_eq!((keys.order.len(), keys.positions.len(), keys.dropped), (2, 2, 1));
        }
    }
}
