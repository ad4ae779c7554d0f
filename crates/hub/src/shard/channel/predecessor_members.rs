//! Members of a channel whose clients are still connected to the predecessor process. Each is present until it subscribes here, is replaced
//! by a connection of the same user, or expires.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::Channel;
use crate::protocol::ClientInfo;

/// These members, by user and client ID.
#[derive(Debug, Default)]
pub(super) struct PredecessorClients(BTreeSet<(Box<str>, Arc<str>)>);

impl PredecessorClients {
    /// Returns whether there are no such members.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Channel {
    /// Adds a member that is connected to the predecessor. Returns its client ID, or `None` if the channel has no presence or the client is
    /// already present.
    pub(in super::super) fn add_predecessor_member(&mut self, info: ClientInfo) -> Option<Arc<str>> {
        if (!self.options.presence && !self.options.join_leave) || self.present.contains_key(&*info.client) {
            return None;
        }
        let client: Arc<str> = Arc::from(&*info.client);
        self.predecessor_members
            .0
            .insert((Box::from(&*info.user), Arc::clone(&client)));
        self.present.insert(Arc::clone(&client), Arc::new(info));
        Some(client)
    }

    /// Removes one member that is replaced by a connection of the same user. Returns its info, and whether leave pushes are enabled.
    pub(in super::super) fn replace_predecessor_member(&mut self, user: &str) -> Option<(ClientInfo, bool)> {
        let first = (Box::from(user), Arc::from(""));
        let mut behind = self
            .predecessor_members
            .0
            .range((Bound::Included(first), Bound::Unbounded));
        let key = behind.next().filter(|(of, _)| **of == *user)?.clone();
        self.predecessor_members.0.remove(&key);
        self.remove_member(&key.1)
    }

    /// Removes a member that has expired, if it is still expected. Returns as [`Channel::replace_predecessor_member`].
    pub(in super::super) fn expire_predecessor_member(&mut self, client: &str) -> Option<(ClientInfo, bool)> {
        let info = self.present.get_key_value(client)?;
        let key = (Box::from(&*info.1.user), Arc::clone(info.0));
        if self.predecessor_members.0.remove(&key) {
            self.remove_member(client)
        } else {
            None
        }
    }

    /// Returns all members, whether they are connected here or to the predecessor.
    pub(in super::super) fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ClientInfo>)> {
        self.present.iter()
    }
}
