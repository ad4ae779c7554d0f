//! Members of channels whose clients are still connected to the process before this one, by when they are expected at the latest.
//!
//! ```text
//! restored ─▶ present ─┬▶ a connection of the same user subscribes ─▶ leave, then join of the new client
//!                      └▶ its time has passed ─▶ leave
//! ```
//!
//! A client that reconnects has another identifier, so members are matched by user.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Home, channel};
use crate::limits;
use crate::mail::Rules;
use crate::protocol::ClientInfo;

/// The expiry of each such member, with its channel and client.
#[derive(Debug, Default)]
pub(super) struct Moving(BTreeSet<(Duration, Arc<str>, Arc<str>)>);

impl Moving {
    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (Duration, &Arc<str>, &Arc<str>)> {
        self.0
            .iter()
            .map(|(until, channel, client)| (*until, channel, client))
    }
}

impl Home {
    /// Adds a member of a predecessor's channel that is present `until` then. Returns whether there was room for its channel.
    pub(super) fn restore_member(
        &mut self,
        channel: String,
        info: ClientInfo,
        rules: Rules,
        (now, until): (Duration, Duration),
    ) -> bool {
        // Positions that were restored do not make room for members.
        if self.names.len() >= self.most && !self.names.contains_key(&*channel) {
            return false;
        }
        let Some(index) = self.channel(&channel.into(), rules, now) else {
            return false;
        };
        if let Some(channel) = &mut self.channels[index as usize]
            && let Some(client) = channel.add_moving(info)
        {
            let name = Arc::clone(&channel.name);
            self.moving.0.insert((until, name, client));
        }
        true
    }

    /// Removes members that have not connected here in time, [`limits::MEMBERS_A_SWEEP`] of them at most.
    pub(super) fn expire_moving(&mut self, now: Duration) {
        for _ in 0..limits::MEMBERS_A_SWEEP {
            let Some(first) = self.moving.0.first().filter(|(until, _, _)| *until <= now) else {
                break;
            };
            let (_, name, client) = first.clone();
            self.moving.0.pop_first();
            let Some(&index) = self.names.get(&name) else {
                continue;
            };
            let channel = self.channels[index as usize].as_mut();
            if let Some((info, leave)) = channel.and_then(|channel| channel.expire_moving(&client)) {
                self.tell(index, channel::leaving(info), leave);
            }
        }
    }
}
