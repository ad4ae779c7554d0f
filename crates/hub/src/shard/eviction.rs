//! Channels without subscribers, the longest unused first, to make room for others at the limit of channels.
//!
//! ```text
//! created, last subscriber leaves ─▶ entry with the time from which on nothing is retained ─▶ first subscriber takes it out
//! publication ─▶ the entry is older than it should be: it is corrected when an eviction or a sweep finds it
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use super::Home;
use super::channel::Channel;
use crate::limits::CHANNELS_AN_EVICTION;

/// See the module: one entry for each channel without subscribers.
#[derive(Debug, Default)]
pub(super) struct Unused(BTreeSet<(Duration, u32)>);

impl Unused {
    /// Puts a channel without subscribers in, or corrects its entry.
    pub(super) fn put(&mut self, index: u32, channel: &mut Channel) {
        let from = channel.free_from();
        if channel.unused == Some(from) {
            return;
        }
        self.take(index, channel);
        channel.unused = Some(from);
        self.0.insert((from, index));
    }

    /// Takes a channel out.
    pub(super) fn take(&mut self, index: u32, channel: &mut Channel) {
        if let Some(from) = channel.unused.take() {
            self.0.remove(&(from, index));
        }
    }
}

impl Home {
    /// Removes a channel that is not needed any longer.
    pub(super) fn remove(&mut self, index: u32) {
        if let Some(mut channel) = self.channels[index as usize].take() {
            self.unused.take(index, &mut channel);
            self.logs.removed(&channel);
            if let Some(due) = channel.due() {
                self.paced.remove(&(due, index));
            }
            self.names.remove(&channel.name);
            self.free.push(index);
        }
    }

    /// Removes the longest unused channel that retains nothing. Returns whether there was one.
    pub(super) fn evict(&mut self, now: Duration) -> bool {
        for _ in 0..CHANNELS_AN_EVICTION {
            let Some(&(from, index)) = self.unused.0.first().filter(|(from, _)| *from <= now) else {
                return false;
            };
            let Some(channel) = &mut self.channels[index as usize] else {
                return false;
            };
            if channel.free_from() == from {
                self.counts.evicted += 1;
                self.remove(index);
                return true;
            }
            // It was used since.
            self.unused.put(index, channel);
        }
        false
    }
}
