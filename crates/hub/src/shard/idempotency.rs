//! Keys of publications that were published once already. Pure.
//!
//! All are remembered for the same time, so the first that came is the first to go. They are ordered by a hash: comparing it reads no
//! other memory than the tree's, while names are elsewhere, and there are many.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::mix;
use crate::history::Place;
use crate::limits;

/// See the module. Bounded by [`limits::KEYS`] and [`limits::KEYS_BYTES`].
#[derive(Debug)]
pub(super) struct Keys {
    places: BTreeMap<Key, Option<Place>>,
    /// The oldest first, by when they came.
    order: VecDeque<(Duration, Key)>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
    window: Duration,
    /// Those that went before their time was over.
    pub(super) forgotten: u64,
}

/// A key in a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The hash of the name. Keys with equal hashes are compared by name, so chosen collisions cost no more than an order by names.
    hash: u64,
    name: Arc<Name>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) channel: Arc<str>,
    pub(super) key: Box<str>,
}

impl Key {
    pub(super) fn new(channel: Arc<str>, key: Box<str>) -> Key {
        let mut hash = channel.len() as u64;
        for text in [channel.as_bytes(), key.as_bytes()] {
            for word in text.chunks(8) {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                hash = mix(hash ^ u64::from_le_bytes(bytes)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            }
        }
        Key {
            hash,
            name: Arc::new(Name { channel, key }),
        }
    }

    fn bytes(&self) -> usize {
        self.name.channel.len() + self.name.key.len() + limits::KEY_OVERHEAD_BYTES
    }
}

impl Default for Keys {
    fn default() -> Keys {
        Keys::new(limits::KEYS, limits::KEYS_BYTES)
    }
}

impl Keys {
    fn new(most: usize, most_bytes: usize) -> Keys {
        Keys {
            places: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            most,
            most_bytes,
            window: Duration::ZERO,
            forgotten: 0,
        }
    }

    /// Where the channel stood behind the first publication of this name, if there was one within the window.
    pub(super) fn first(&mut self, key: &Key, window: Duration, now: Duration) -> Option<Option<Place>> {
        self.window = window;
        self.expire(now);
        self.places.get(key).copied()
    }

    /// The first has been published.
    pub(super) fn remember(&mut self, key: Key, place: Option<Place>, now: Duration) {
        self.bytes += key.bytes();
        self.places.insert(key.clone(), place);
        self.order.push_back((now, key));
        while self.order.len() > self.most || self.bytes > self.most_bytes {
            self.forgotten += 1;
            self.pop();
        }
    }

    /// One that a predecessor remembered since then. Those before it are not younger.
    pub(super) fn restore(&mut self, key: Key, place: Option<Place>, window: Duration, at: Duration) {
        self.window = window;
        if !self.places.contains_key(&key) {
            self.remember(key, place, at);
        }
    }

    /// All of them, the oldest first: since when, and where the channel stood.
    pub(super) fn all(&self) -> impl Iterator<Item = (Duration, &Name, Option<Place>)> {
        let all = self.order.iter();
        all.filter_map(|(at, key)| Some((*at, &*key.name, *self.places.get(key)?)))
    }

    /// Lets go of those whose time is over.
    pub(super) fn expire(&mut self, now: Duration) {
        while self.order.front().is_some_and(|(at, _)| *at + self.window <= now) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.bytes -= key.bytes();
            self.places.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Key, Keys};
    use crate::history::{Epoch, Place};
    use crate::limits::KEY_OVERHEAD_BYTES;

    const WINDOW: Duration = Duration::from_secs(300);

    fn name(channel: &str, key: &str) -> Key {
        Key::new(channel.into(), key.into())
    }

    fn place(offset: u64) -> Option<Place> {
        let epoch = Epoch::new(7);
        Some(Place { offset, epoch })
    }

    #[test]
    fn a_key_is_remembered_in_its_channel_for_the_window() {
        let at = Duration::from_secs;
        let mut keys = Keys::default();
        assert_eq!(keys.first(&name("a", "1"), WINDOW, at(10)), None);
        keys.remember(name("a", "1"), place(3), at(10));
        keys.remember(name("b", "2"), None, at(20));
        assert_eq!(keys.first(&name("a", "1"), WINDOW, at(309)), Some(place(3)));
        assert_eq!(
            keys.first(&name("b", "1"), WINDOW, at(309)),
            None,
            "another channel"
        );
        assert_eq!(keys.first(&name("a", "2"), WINDOW, at(309)), None);
        assert_eq!(keys.first(&name("a", "1"), WINDOW, at(310)), None);
        assert_eq!(keys.first(&name("b", "2"), WINDOW, at(319)), Some(None));
        assert_eq!(keys.first(&name("b", "2"), Duration::from_secs(1), at(319)), None);
        assert_eq!((keys.bytes, keys.places.len(), keys.forgotten), (0, 0, 0));
    }

    #[test]
    fn of_more_than_may_be_the_oldest_go() {
        let now = Duration::from_secs(1);
        let mut few = Keys::new(2, usize::MAX);
        let mut small = Keys::new(9, 2 * (KEY_OVERHEAD_BYTES + 2));
        for keys in [&mut few, &mut small] {
            for key in ["1", "2", "3"] {
                keys.remember(name("a", key), place(1), now);
            }
            assert_eq!(keys.first(&name("a", "1"), WINDOW, now), None);
            assert_eq!(keys.first(&name("a", "2"), WINDOW, now), Some(place(1)));
            assert_eq!((keys.order.len(), keys.places.len(), keys.forgotten), (2, 2, 1));
        }
    }
}
