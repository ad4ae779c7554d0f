//! Interruptions of a source: publications may be missing, so the affected channels start a new epoch.
//!
//! ```text
//! source lost, or a publication dropped ─▶ interrupt ─▶ new epoch ─▶ Lost to each worker with subscribers
//!                                                                     └▶ positioned clients subscribe again: not recovered
//! ```
//!
//! An epoch that stayed the same would let clients recover across the gap without noticing it.

use std::ops::Bound;
use std::sync::Arc;

use super::Home;
use crate::mail::ToWorker;

impl Home {
    /// Starts a new epoch in one channel. A channel that does not exist has no positions to invalidate.
    pub fn interrupt(&mut self, channel: &str) {
        if let Some(&index) = self.names.get(channel) {
            self.renew(index);
        }
    }

    /// Starts a new epoch in the next `limit` channels at most whose names begin with `prefix`, behind a name. Returns the name to
    /// continue behind; `None` when all are done.
    pub fn interrupt_all(&mut self, prefix: &str, after: Option<&str>, limit: usize) -> Option<Arc<str>> {
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let names = self.names.range::<str, _>((from, Bound::Unbounded));
        let mut matching = names.take_while(|(name, _)| name.starts_with(prefix));
        let found: Vec<(Arc<str>, u32)> = matching
            .by_ref()
            .take(limit)
            .map(|(name, index)| (Arc::clone(name), *index))
            .collect();
        let has_more = matching.next().is_some();
        for (_, index) in &found {
            self.renew(*index);
        }
        let last = found.into_iter().next_back();
        last.filter(|_| has_more).map(|(name, _)| name)
    }

    fn renew(&mut self, index: u32) {
        let epoch = self.draw_epoch();
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        if !channel.renew(epoch) {
            return;
        }
        for interest in channel.interests() {
            let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
            // Publications that found no room are part of what is reported as lost.
            if interest.marked.take().is_some() {
                outbox.marked.retain(|&marked| marked != index);
            }
            outbox.queue.push_back(ToWorker::Lost { key: interest.key });
        }
    }
}
