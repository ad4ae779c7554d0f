//! Channels without subscribers, the longest unused first, which are evicted at the limit of channels.
//!
//! ```text
//! created, or last subscriber leaves ─▶ entry with the time from which on nothing is retained ─▶ removed by the first subscriber
//! publication ─▶ the entry is outdated: it is corrected when an eviction or a sweep finds it
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use super::ChannelShard;
use super::channel::Channel;
use crate::limits::CHANNELS_PER_EVICTION;

/// One entry for each channel without subscribers.
#[derive(Debug, Default)]
pub(super) struct UnusedChannels(BTreeSet<(Duration, u32)>);

impl UnusedChannels {
    /// Inserts a channel without subscribers, or corrects its entry.
    pub(super) fn put(&mut self, index: u32, channel: &mut Channel) {
        let from = channel.evictable_from();
        if channel.unused == Some(from) {
            return;
        }
        self.take(index, channel);
        channel.unused = Some(from);
        self.0.insert((from, index));
    }

    /// Removes the entry of a channel.
    pub(super) fn take(&mut self, index: u32, channel: &mut Channel) {
        if let Some(from) = channel.unused.take() {
            self.0.remove(&(from, index));
        }
    }
}

impl ChannelShard {
    /// Removes a channel.
    pub(super) fn remove(&mut self, index: u32) {
        if let Some(mut channel) = self.channels[index as usize].take() {
            self.unused.take(index, &mut channel);
            self.logs.on_channel_removed(&channel);
            if let Some(due) = channel.due() {
                self.held_channels.remove(&(due, index));
            }
            self.names.remove(&channel.name);
            self.free.push(index);
        }
    }

    /// Removes the longest unused channel that retains nothing. Returns whether there was one.
    pub(super) fn evict(&mut self, now: Duration) -> bool {
        for _ in 0..CHANNELS_PER_EVICTION {
            let Some(&(from, index)) = self.unused.0.first().filter(|(from, _)| *from <= now) else {
                return false;
            };
            let Some(channel) = &mut self.channels[index as usize] else {
                return false;
            };
            if channel.evictable_from() == from {
                self.counts.evicted += 1;
                self.remove(index);
                return true;
            }
            // The channel was used after the entry was made.
            self.unused.put(index, channel);
        }
        false
    }
}
