//! The members of owned channels, each with the node that it is connected to.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_hub::protocol::ClientInfo;

use super::OwnedMember;
use crate::frame::Frame;
use crate::limits;
use crate::member::Uid;
use crate::node::{Event, LinkId, Node};

impl Node {
    pub(in crate::node) fn announce_members(
        &mut self,
        from: Uid,
        link: Option<LinkId>,
        channel: &str,
        members: Vec<Arc<ClientInfo>>,
        has_more: bool,
    ) {
        let Some(owned) = self.owned.channels.get_mut(channel) else {
            return;
        };
        let mut announced = owned.announced.remove(&from).unwrap_or_default();
        announced.extend(members);
        if !has_more {
            self.replace_members(from, channel, announced);
        } else if announced.len() < limits::ANNOUNCED_MEMBERS {
            owned.announced.insert(from, announced);
        } else if let Some(link) = link {
            let now = self.last_tick;
            self.link_down(link, now);
            self.emit(Event::Close(link));
        }
    }

    /// Replaces the members that are connected to a node.
    pub(super) fn replace_members(&mut self, node: Uid, channel: &str, members: Vec<Arc<ClientInfo>>) {
        let Some((name, owned)) = self.owned.channels.get_key_value(channel) else {
            return;
        };
        let name = Arc::clone(name);
        let current: BTreeSet<&str> = members.iter().map(|info| &*info.client).collect();
        let left: Vec<_> = owned
            .members
            .iter()
            .filter(|(client, member)| member.node == node && !current.contains(&***client))
            .map(|(_, member)| Arc::clone(&member.info))
            .collect();
        for info in left {
            self.change_member(node, &name, info, false);
        }
        for info in members {
            self.change_member(node, &name, info, true);
        }
    }

    pub(in crate::node) fn change_member(
        &mut self,
        from: Uid,
        channel: &Arc<str>,
        info: Arc<ClientInfo>,
        is_join: bool,
    ) {
        let Some(owned) = self.owned.channels.get_mut(channel) else {
            return;
        };
        if !owned.settings.members {
            return;
        }
        let is_changed = if is_join {
            let member = OwnedMember {
                node: from,
                info: Arc::clone(&info),
            };
            owned.members.insert(Arc::from(&*info.client), member).is_none()
        } else {
            let is_of_node = owned
                .members
                .get(&*info.client)
                .is_some_and(|member| member.node == from);
            is_of_node && owned.members.remove(&*info.client).is_some()
        };
        if is_changed {
            self.send_presence(from, channel, &info, is_join);
        }
    }

    /// Adds a member that has moved here with its channel.
    pub(in crate::node) fn add_member(&mut self, channel: &str, client: Arc<str>, member: OwnedMember) {
        let Some(owned) = self.owned.channels.get_mut(channel) else {
            return;
        };
        if owned.settings.members && !owned.members.contains_key(&client) {
            let (node, info) = (member.node, Arc::clone(&member.info));
            owned.members.insert(client, member);
            self.send_presence(node, channel, &info, true);
        }
    }

    fn send_presence(&mut self, except: Uid, channel: &str, info: &Arc<ClientInfo>, is_join: bool) {
        let interests: Option<Vec<_>> = self.owned.channels.get(channel).map(|owned| {
            let others = owned.interests.iter().filter(|interest| interest.node != except);
            others.map(|interest| (interest.node, interest.number)).collect()
        });
        for (node, number) in interests.unwrap_or_default() {
            let info = Arc::clone(info);
            self.send(
                node,
                Frame::Presence {
                    number,
                    info,
                    is_join,
                },
            );
        }
    }

    /// Removes the members that were connected to a node, in channels that it has not subscribed to again.
    pub(in crate::node) fn remove_unconfirmed(&mut self, node: Uid) {
        for name in self.owned.names() {
            let Some(owned) = self.owned.channels.get(&name) else {
                continue;
            };
            let transition = owned.transition.as_ref();
            let is_awaited = transition.is_some_and(|transition| transition.awaited.contains(&node));
            if !is_awaited && !self.owned.has_interest(&name, node) {
                self.replace_members(node, &name, Vec::new());
            }
        }
    }

    /// Removes the members that were connected to a node that is gone.
    pub(in crate::node) fn remove_members_of(&mut self, node: Uid) {
        for name in self.owned.names() {
            self.replace_members(node, &name, Vec::new());
        }
    }
}
