//! Members of channels whose clients are still connected to the predecessor process, by the time at which they expire.
//!
//! ```text
//! restored ─▶ present ─┬▶ a connection of the same user subscribes ─▶ leave, then join of the new client
//!                      └▶ expired ─▶ leave
//! ```
//!
//! A client that reconnects has another identifier, so members are matched by user.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{ChannelShard, channel};
use crate::limits;
use crate::mail::ChannelOptions;
use crate::protocol::ClientInfo;

/// The expiry of each such member, with its channel and client ID.
#[derive(Debug, Default)]
pub(super) struct PredecessorMembers(BTreeSet<(Duration, Arc<str>, Arc<str>)>);

impl PredecessorMembers {
    /// Returns all these members.
    pub(super) fn all(&self) -> impl Iterator<Item = (Duration, &Arc<str>, &Arc<str>)> {
        self.0
            .iter()
            .map(|(expires_at, channel, client)| (*expires_at, channel, client))
    }
}

impl ChannelShard {
    /// Adds a member of a predecessor's channel, which expires at `expires_at`. Returns whether there was room for its channel.
    pub(super) fn restore_member(
        &mut self,
        channel: String,
        info: ClientInfo,
        options: ChannelOptions,
        now: Duration,
        expires_at: Duration,
    ) -> bool {
        // At the limit, restored positions are not evicted for members.
        if self.names.len() >= self.channel_limit && !self.names.contains_key(&*channel) {
            return false;
        }
        let Some(index) = self.channel(&channel.into(), options, now) else {
            return false;
        };
        if let Some(channel) = &mut self.channels[index as usize]
            && let Some(client) = channel.add_predecessor_member(info)
        {
            let name = Arc::clone(&channel.name);
            self.predecessor_members.0.insert((expires_at, name, client));
        }
        true
    }

    /// Removes members that have not subscribed here in time, up to [`limits::MEMBERS_PER_SWEEP`] at once.
    pub(super) fn expire_predecessor_members(&mut self, now: Duration) {
        for _ in 0..limits::MEMBERS_PER_SWEEP {
            let Some(first) = self
                .predecessor_members
                .0
                .first()
                .filter(|(expires_at, _, _)| *expires_at <= now)
            else {
                break;
            };
            let (_, name, client) = first.clone();
            self.predecessor_members.0.pop_first();
            let Some(&index) = self.names.get(&name) else {
                continue;
            };
            let channel = self.channels[index as usize].as_mut();
            if let Some((info, is_enabled)) =
                channel.and_then(|channel| channel.expire_predecessor_member(&client))
            {
                self.send_out_of_band(index, channel::leaving(info), is_enabled);
            }
        }
    }
}
