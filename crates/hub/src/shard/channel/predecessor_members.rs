//! Members of a channel that are still connected to the process before this one. Each is present until it enters here, is replaced by
//! a connection of the same user, or its time has passed.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::Channel;
use crate::protocol::ClientInfo;

/// The users and clients of these members.
#[derive(Debug, Default)]
pub(super) struct Moving(BTreeSet<(Box<str>, Arc<str>)>);

impl Moving {
    /// Returns whether there are no such members.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Channel {
    /// Adds a member that is connected to the predecessor. Returns its key. `None`: this channel has no presence, or the client is
    /// present already.
    pub(in super::super) fn add_moving(&mut self, info: ClientInfo) -> Option<Arc<str>> {
        if (!self.rules.presence && !self.rules.join_leave) || self.present.contains_key(&*info.client) {
            return None;
        }
        let client: Arc<str> = Arc::from(&*info.client);
        self.moving
            .0
            .insert((Box::from(&*info.user), Arc::clone(&client)));
        self.present.insert(Arc::clone(&client), Arc::new(info));
        Some(client)
    }

    /// Removes one member that a connection of the same user takes the place of. Returns its info, and whether subscribers are to be
    /// notified.
    pub(in super::super) fn replace_moving(&mut self, user: &str) -> Option<(ClientInfo, bool)> {
        let first = (Box::from(user), Arc::from(""));
        let mut behind = self.moving.0.range((Bound::Included(first), Bound::Unbounded));
        let key = behind.next().filter(|(of, _)| **of == *user)?.clone();
        self.moving.0.remove(&key);
        self.gone(&key.1)
    }

    /// Removes a member whose time has passed, if it is still expected. Returns as [`Channel::replace_moving`].
    pub(in super::super) fn expire_moving(&mut self, client: &str) -> Option<(ClientInfo, bool)> {
        let info = self.present.get_key_value(client)?;
        let key = (Box::from(&*info.1.user), Arc::clone(info.0));
        match self.moving.0.remove(&key) {
            true => self.gone(client),
            false => None,
        }
    }

    /// Returns all members, whether they are connected here or to the predecessor.
    pub(in super::super) fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ClientInfo>)> {
        self.present.iter()
    }
}
