//! Channels that another node of a cluster owns: its offsets, publications and members arrive from outside.
//!
//! ```text
//! owner ─ state ─▶ sync ─▶ history at this position ─ publications ─▶ subscribers
//!                    └ gap ─▶ Lost to each worker with subscribers
//! ```
//!
//! Must not know nodes or links.

use std::sync::Arc;
use std::time::Duration;

use super::channel::{joining, leaving};
use super::log::exact_position;
use super::{ChannelShard, ShardEvent};
use crate::history::{History, StreamPosition};
use crate::mail::{ChannelOptions, RecoverFrom, WorkerId};
use crate::protocol::{ClientInfo, Published};

/// The state of a channel at its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct MirroredState {
    /// The position after the last publication. `None`: publications have no offsets.
    pub position: Option<StreamPosition>,
    /// The offset up to which publications are left out.
    pub floor: u64,
    /// The publications above it, with their offsets, in order.
    pub publications: Vec<(u64, Arc<Published>)>,
}

impl ChannelShard {
    /// Replaces the history of a channel by that of its owner. With `is_gap`, subscribers that rely on positions are notified of missing
    /// publications. Returns `false` if there is no room for the channel.
    pub fn restore_mirror(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        state: MirroredState,
        is_gap: bool,
        now: Duration,
    ) -> bool {
        let Some(index) = self.channel(channel, options, now) else {
            return false;
        };
        let Some(channel) = &mut self.channels[index as usize] else {
            return false;
        };
        if let (Some(position), Some(history_options)) = (state.position, options.history) {
            let mut history = History::restored(position, state.floor, history_options);
            for (offset, published) in state.publications {
                let bytes = published.data.len();
                history.push_retained(offset, published, bytes, now);
            }
            channel.restore(history);
        }
        if is_gap {
            self.notify_lost(index);
        }
        true
    }

    /// Publishes the publications that a channel has missed since its last state. Returns `false` if it does not have the position that the publications
    /// continue at: [`restore_mirror`](Self::restore_mirror) must follow.
    pub fn continue_mirror(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        state: MirroredState,
        now: Duration,
    ) -> bool {
        let Some(end) = state.position else {
            return self.channel(channel, options, now).is_some();
        };
        let current = self.names.get(channel).copied();
        let current = current.and_then(|index| self.channels[index as usize].as_ref()?.position());
        // Offsets of a log have holes.
        let current = current.filter(|current| {
            current.epoch == end.epoch && (state.floor..=end.offset).contains(&current.offset)
        });
        let Some(current) = current else { return false };
        for (offset, published) in state.publications {
            if offset > current.offset {
                self.publish_mirrored(channel, offset, published, now);
            }
        }
        self.advance_mirror(channel, end.offset);
        true
    }

    /// Raises the position of a channel: its owner has no publication up to there that has not arrived.
    fn advance_mirror(&mut self, channel: &str, offset: u64) {
        let index = self.names.get(channel).copied();
        if let Some(channel) = index.and_then(|index| self.channels[index as usize].as_mut()) {
            channel.advance(offset);
        }
    }

    /// Returns whether a subscriber has received publications, at another node, that have not arrived here yet.
    #[must_use]
    pub fn is_ahead(&self, channel: &str, recover_from: Option<RecoverFrom>) -> bool {
        let Some((epoch, offset)) = recover_from.and_then(exact_position) else {
            return false;
        };
        let entry = self.names.get(channel);
        let channel = entry.and_then(|&index| self.channels[index as usize].as_ref());
        channel
            .and_then(|channel| channel.position())
            .is_some_and(|position| position.epoch == epoch && position.offset < offset)
    }

    /// Publishes with the offset of the channel's owner; 0 for none.
    pub fn publish_mirrored(&mut self, channel: &str, offset: u64, published: Arc<Published>, now: Duration) {
        let Some(&index) = self.names.get(channel) else {
            return;
        };
        self.counts.publications += 1;
        if offset > 0 {
            self.publish_record(index, published, Some(offset), true, now);
        } else {
            self.forward(index, 0, &published, now);
        }
    }

    /// Notifies subscribers of a member that has joined or left at another node.
    pub fn notify_member(&mut self, channel: &str, info: &ClientInfo, is_join: bool, is_enabled: bool) {
        if let Some(&index) = self.names.get(channel) {
            let info = info.clone();
            let push = if is_join { joining(info) } else { leaving(info) };
            self.send_out_of_band(index, push, is_enabled);
        }
    }

    /// Notifies subscribers that rely on positions that publications may be missing.
    pub fn lose_mirror(&mut self, channel: &str) {
        if let Some(&index) = self.names.get(channel) {
            self.notify_lost(index);
        }
    }

    /// Returns the options of a channel, or `None` if there is no such channel.
    #[must_use]
    pub fn options(&self, channel: &str) -> Option<ChannelOptions> {
        let index = self.names.get(channel)?;
        self.channels[*index as usize]
            .as_ref()
            .map(|channel| channel.options())
    }

    /// Returns whether a channel has subscribers.
    #[must_use]
    pub fn has_subscribers(&self, channel: &str) -> bool {
        let channel = self
            .names
            .get(channel)
            .and_then(|&index| self.channels[index as usize].as_ref());
        channel.is_some_and(|channel| channel.has_subscribers())
    }

    /// Queues a reply to a worker's request that was answered elsewhere, behind earlier messages.
    pub fn reply_to(&mut self, worker: WorkerId, reply: ShardEvent) {
        self.reply(worker, reply);
    }
}
