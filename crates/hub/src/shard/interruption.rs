//! Interruptions of a source: publications may be missing, so the affected channels start a new epoch.
//!
//! ```text
//! source lost, or a publication dropped ─▶ interrupt ─▶ new epoch ─▶ Lost to each worker with subscribers
//!                                                                     └▶ positioned clients subscribe again: not recovered
//! ```
//!
//! If the epoch did not change, clients would recover across the gap without noticing it.

use std::ops::Bound;
use std::sync::Arc;

use super::ChannelShard;
use super::channel::Channel;
use crate::mail::Origin;

impl ChannelShard {
    /// Starts a new epoch in one channel. A channel that does not exist has no positions to invalidate.
    pub fn interrupt(&mut self, channel: &str) {
        if let Some(&index) = self.names.get(channel) {
            self.start_epoch(index);
        }
    }

    /// Starts a new epoch in up to `limit` channels whose names begin with `prefix`, after a name. Returns the name to continue after, or
    /// `None` when all are done.
    pub fn interrupt_all(&mut self, prefix: &str, after: Option<&str>, limit: usize) -> Option<Arc<str>> {
        self.interrupt_where(prefix, after, limit, |_| true)
    }

    /// Like [`ChannelShard::interrupt_all`], for one source: channels that only other publishers have fed are excepted. With an empty
    /// prefix, channels of programs are excluded, too.
    pub fn interrupt_source(
        &mut self,
        prefix: &str,
        origin: Origin,
        after: Option<&str>,
        limit: usize,
    ) -> Option<Arc<str>> {
        let is_named = !prefix.is_empty();
        self.interrupt_where(prefix, after, limit, |channel| {
            channel.may_be_fed_by(origin, is_named)
        })
    }

    fn interrupt_where(
        &mut self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        is_affected: impl Fn(&Channel) -> bool,
    ) -> Option<Arc<str>> {
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let names = self.names.range::<str, _>((from, Bound::Unbounded));
        let mut matching = names.take_while(|(name, _)| name.starts_with(prefix));
        let affected: Vec<(Arc<str>, u32)> = matching
            .by_ref()
            .take(limit)
            .map(|(name, index)| (Arc::clone(name), *index))
            .collect();
        let has_more = matching.next().is_some();
        for (_, index) in &affected {
            let channel = self.channels[*index as usize].as_ref();
            if channel.is_some_and(&is_affected) {
                self.start_epoch(*index);
            }
        }
        let last = affected.into_iter().next_back();
        last.filter(|_| has_more).map(|(name, _)| name)
    }

    pub(super) fn start_epoch(&mut self, index: u32) {
        let epoch = self.draw_epoch();
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        if !channel.start_epoch(epoch) {
            return;
        }
        self.notify_lost(index);
    }
}
