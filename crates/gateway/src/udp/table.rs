//! The sessions of one worker: found by client, ordered by their last use, bounded, with a share for each client address.
//!
//! ```text
//! by_key ─▶ index ─▶ entries:  least recently used ◀─▶ … ◀─▶ most recently used, of all and of each owner
//! ```
//!
//! Knows no sockets and no clock: the order of calls is the order of use.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::upstream::client_share::ClientKey;

/// The identity of a session: one socket of the gateway, the client, and the local address that the client sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionKey {
    pub(super) client: SocketAddr,
    /// `None`: the socket is bound to one address.
    pub(super) local: Option<IpAddr>,
    /// The number of the socket's address.
    pub(super) socket: u64,
}

impl SessionKey {
    /// Returns the owner of the session, to whose share it counts.
    fn owner(&self) -> ClientKey {
        Some(self.client.ip()).into()
    }
}

/// Limits of a table. Each counts as at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableLimits {
    pub(super) sessions: usize,
    /// Sessions of one owner: a client address, whatever its ports.
    pub(super) per_owner: usize,
}

/// A bounded table with eviction of the least recently used entry: of the same owner at the limit of its share, else of the table.
#[derive(Debug)]
pub(super) struct SessionTable<T> {
    by_key: BTreeMap<SessionKey, usize>,
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
    all: List,
    by_owner: BTreeMap<ClientKey, usize>,
    owners: Vec<List>,
    free_owners: Vec<usize>,
}

#[derive(Debug)]
struct Entry<T> {
    key: SessionKey,
    /// `None`: the place is free.
    session: Option<T>,
    /// The index of its owner's list.
    owner: usize,
    /// The neighbors in the table's list and in the owner's, in this order.
    links: [Link; 2],
}

/// The ends of a list: the indices of its least and most recently used entries.
#[derive(Clone, Copy, Debug)]
struct List {
    oldest: usize,
    newest: usize,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    older: usize,
    newer: usize,
}

/// The end of a list.
const NONE: usize = usize::MAX;

const EMPTY: List = List {
    oldest: NONE,
    newest: NONE,
    length: 0,
};

const UNLINKED: Link = Link {
    older: NONE,
    newer: NONE,
};

/// Indices of [`Entry::links`].
const ALL: usize = 0;
const OWNER: usize = 1;

impl<T> Default for SessionTable<T> {
    fn default() -> SessionTable<T> {
        SessionTable {
            by_key: BTreeMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            all: EMPTY,
            by_owner: BTreeMap::new(),
            owners: Vec::new(),
            free_owners: Vec::new(),
        }
    }
}

impl List {
    fn push<T>(&mut self, entries: &mut [Entry<T>], which: usize, index: usize) {
        entries[index].links[which] = Link {
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = index,
            newest => entries[newest].links[which].newer = index,
        }
        self.newest = index;
        self.length += 1;
    }

    fn remove<T>(&mut self, entries: &mut [Entry<T>], which: usize, index: usize) {
        let Link { older, newer } = entries[index].links[which];
        match older {
            NONE => self.oldest = newer,
            older => entries[older].links[which].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => entries[newer].links[which].older = older,
        }
        self.length -= 1;
    }

    fn move_to_newest<T>(&mut self, entries: &mut [Entry<T>], which: usize, index: usize) {
        if index != self.newest {
            self.remove(entries, which, index);
            self.push(entries, which, index);
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
        let owner = self.entries[index].owner;
        self.all.move_to_newest(&mut self.entries, ALL, index);
        self.owners[owner].move_to_newest(&mut self.entries, OWNER, index);
        self.entries[index].session.as_ref()
    }

    /// Inserts a session that is not in the table, as the most recently used one. Returns the sessions that are evicted so that the table
    /// is within its limits.
    pub(super) fn insert(&mut self, key: SessionKey, session: T, limits: TableLimits) -> Vec<T> {
        debug_assert!(!self.by_key.contains_key(&key), "{key:?} twice");
        let mut evicted = Vec::new();
        while let Some(index) = self.oldest_of(&key)
            && self.owners[self.entries[index].owner].length >= limits.per_owner.max(1)
        {
            evicted.extend(self.remove_index(index));
        }
        while self.len() >= limits.sessions.max(1) {
            evicted.extend(self.remove_index(self.all.oldest));
        }
        let owner = self.owner_index(key.owner());
        let entry = Entry {
            key,
            session: Some(session),
            owner,
            links: [UNLINKED; 2],
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
        self.all.push(&mut self.entries, ALL, index);
        self.owners[owner].push(&mut self.entries, OWNER, index);
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
        self.list(self.all, ALL)
    }

    /// Returns the sessions of the owner of `key`, the least recently used one first.
    pub(super) fn iter_owner(&self, key: &SessionKey) -> impl Iterator<Item = &T> {
        let owner = self.by_owner.get(&key.owner());
        self.list(owner.map_or(EMPTY, |owner| self.owners[*owner]), OWNER)
    }

    fn list(&self, list: List, which: usize) -> impl Iterator<Item = &T> {
        let first = (list.oldest != NONE).then_some(list.oldest);
        let indices = std::iter::successors(first, move |index| {
            Some(self.entries[*index].links[which].newer).filter(|newer| *newer != NONE)
        });
        indices.filter_map(|index| self.entries[index].session.as_ref())
    }

    /// Returns the index of the least recently used session of the owner of `key`.
    fn oldest_of(&self, key: &SessionKey) -> Option<usize> {
        let owner = self.by_owner.get(&key.owner())?;
        Some(self.owners[*owner].oldest)
    }

    /// Returns the index of an owner's list, which is new if it has no sessions.
    fn owner_index(&mut self, owner: ClientKey) -> usize {
        if let Some(index) = self.by_owner.get(&owner) {
            return *index;
        }
        let index = match self.free_owners.pop() {
            Some(index) => {
                self.owners[index] = EMPTY;
                index
            }
            None => {
                self.owners.push(EMPTY);
                self.owners.len() - 1
            }
        };
        self.by_owner.insert(owner, index);
        index
    }

    fn remove_index(&mut self, index: usize) -> Option<T> {
        let Entry { key, owner, .. } = self.entries[index];
        self.all.remove(&mut self.entries, ALL, index);
        self.owners[owner].remove(&mut self.entries, OWNER, index);
        if self.owners[owner].length == 0 {
            self.by_owner.remove(&key.owner());
            self.free_owners.push(owner);
        }
        self.by_key.remove(&key);
        self.free.push(index);
        self.entries[index].session.take()
    }
}

#[cfg(test)]
mod tests;
