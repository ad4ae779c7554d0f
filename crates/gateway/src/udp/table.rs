//! The sessions of one worker: found by client, ordered by their last use, bounded.
//!
//! ```text
//! by_key ─▶ index ─▶ entries:  least recently used ◀─▶ … ◀─▶ most recently used
//! ```
//!
//! Knows no sockets and no clock: the order of calls is the order of use.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The identity of a session: one socket of the gateway, the client, and the local address that the client sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionKey {
    pub(super) client: SocketAddr,
    /// `None`: the socket is bound to one address.
    pub(super) local: Option<IpAddr>,
    /// The number of the socket's address.
    pub(super) socket: u64,
}

/// A bounded table with eviction of the least recently used entry.
#[derive(Debug)]
pub(super) struct SessionTable<T> {
    by_key: BTreeMap<SessionKey, usize>,
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
    /// The ends of the list: least and most recently used.
    oldest: usize,
    newest: usize,
}

#[derive(Debug)]
struct Entry<T> {
    key: SessionKey,
    /// `None`: the place is free.
    session: Option<T>,
    older: usize,
    newer: usize,
}

/// The end of the list.
const NONE: usize = usize::MAX;

impl<T> Default for SessionTable<T> {
    fn default() -> SessionTable<T> {
        SessionTable {
            by_key: BTreeMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }
}

impl<T> SessionTable<T> {
    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns a session, and makes it the most recently used one.
    pub(super) fn touch(&mut self, key: &SessionKey) -> Option<&T> {
        let index = *self.by_key.get(key)?;
        if index != self.newest {
            self.unlink(index);
            self.link_newest(index);
        }
        self.entries[index].session.as_ref()
    }

    /// Inserts a session that is not in the table, as the most recently used one. Returns the sessions that are evicted so that the table
    /// has at most `max`, which counts as at least 1.
    pub(super) fn insert(&mut self, key: SessionKey, session: T, max: usize) -> Vec<T> {
        debug_assert!(!self.by_key.contains_key(&key), "{key:?} twice");
        let mut evicted = Vec::new();
        while self.len() >= max.max(1) && self.oldest != NONE {
            evicted.extend(self.remove_index(self.oldest));
        }
        let entry = Entry {
            key,
            session: Some(session),
            older: NONE,
            newer: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.by_key.insert(key, index);
        self.link_newest(index);
        evicted
    }

    /// Removes a session if `is_same` accepts it: another one may have its key by now.
    pub(super) fn remove(&mut self, key: &SessionKey, is_same: impl FnOnce(&T) -> bool) -> Option<T> {
        let index = *self.by_key.get(key)?;
        let is_found = self.entries[index].session.as_ref().is_some_and(is_same);
        if is_found { self.remove_index(index) } else { None }
    }

    /// Returns the sessions, the least recently used one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let first = (self.oldest != NONE).then_some(self.oldest);
        let indices = std::iter::successors(first, |index| {
            Some(self.entries[*index].newer).filter(|newer| *newer != NONE)
        });
        indices.filter_map(|index| self.entries[index].session.as_ref())
    }

    fn remove_index(&mut self, index: usize) -> Option<T> {
        self.unlink(index);
        self.by_key.remove(&self.entries[index].key);
        self.free.push(index);
        self.entries[index].session.take()
    }

    fn unlink(&mut self, index: usize) {
        let (older, newer) = (self.entries[index].older, self.entries[index].newer);
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
    }

    fn link_newest(&mut self, index: usize) {
        self.entries[index].older = self.newest;
        self.entries[index].newer = NONE;
        match self.newest {
            NONE => self.oldest = index,
            newest => self.entries[newest].newer = index,
        }
        self.newest = index;
    }
}

#[cfg(test)]
mod tests;
