//! The relation of a channel to logs: those that have fed it, and whether its offsets are those of one.
//!
//! ```text
//! own epoch, no publication ── first record ─▶ epoch of the log ── publication of another program or log ─▶ own epoch, mixed
//!                           ◀─ the log has ended, interrupted ──┘
//! ```

use std::sync::Arc;

use super::Channel;
use crate::history::{Epoch, History, StreamPosition};
use crate::mail::{EpochFilter, RecoverFrom};
use crate::protocol::Published;
use crate::shard::LogId;

/// The reader of records that a predecessor published: it may be any reader of the log.
const ANY_READER: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct LogState {
    /// True if its epoch is that of a log, which assigns its offsets.
    uses_log_offsets: bool,
    /// The epoch before the channel entered the log, without publications, and the offset at which it entered. Clients that subscribed
    /// before have that epoch.
    alias: Option<(Epoch, u64)>,
    /// The logs that have fed it, with the newest offset of each.
    fed: Vec<(LogId, u64)>,
    /// True if it assigns its offsets itself, because several logs, or a log and other publishers, publish in it.
    is_mixed: bool,
    /// True if a predecessor had the channel, without publications. The records that it has missed since are unknown.
    is_continued: bool,
    /// True if publications were not counted while none were retained.
    pub(super) is_outdated: bool,
    /// True if its subscribers were notified that records are retained which they do not receive.
    pub(super) has_notified: bool,
}

impl LogState {
    pub(super) fn leave(&mut self) {
        self.uses_log_offsets = false;
        self.alias = None;
        self.is_continued = false;
    }
}

impl Channel {
    /// Replaces the history by that of a predecessor.
    pub(in crate::shard) fn set_history(&mut self, history: History<Arc<Published>>, uses_log_offsets: bool) {
        let StreamPosition { offset, epoch } = history.position();
        if uses_log_offsets {
            self.record_fed_before(epoch, offset);
        }
        self.history = Some(history);
        self.log.uses_log_offsets = uses_log_offsets;
        self.log.is_continued = self.is_placeholder();
    }

    /// Returns its position in a log, or `None` if its offsets are its own.
    pub(in crate::shard) fn log_position(&self) -> Option<StreamPosition> {
        self.position().filter(|_| self.log.uses_log_offsets)
    }

    /// Returns whether nothing was published in its epoch.
    pub(in crate::shard) fn is_unpublished(&self) -> bool {
        self.position().is_none_or(|position| position.offset == 0)
    }

    /// Returns whether it has positions, but neither publications nor a log: its subscribers await the first publication.
    pub(in crate::shard) fn is_placeholder(&self) -> bool {
        self.has_history() && !self.log.uses_log_offsets && self.is_unpublished()
    }

    /// Returns whether it is such a channel, restored from a predecessor.
    pub(in crate::shard) fn is_continued_placeholder(&self) -> bool {
        self.log.is_continued && self.is_placeholder()
    }

    /// Uses the offsets of a log from now on, from a position below which records may be missing. Clients that subscribed before the first
    /// publication keep their positions.
    pub(in crate::shard) fn enter_log(&mut self, epoch: Epoch, position: u64) {
        self.log.alias = self.is_placeholder().then_some((self.epoch, position));
        if let Some(history) = &mut self.history {
            history.enter_log(epoch, position);
        }
        self.limiter.clear_last_sent();
        self.epoch = epoch;
        self.log.uses_log_offsets = true;
    }

    /// Prevents recovery of clients that subscribed before its first record.
    pub(in crate::shard) fn clear_alias(&mut self) {
        self.log.alias = None;
    }

    /// Raises the position: no publication is between the current one and this one.
    pub(in crate::shard) fn advance(&mut self, offset: u64) {
        if let Some(history) = &mut self.history {
            history.advance(offset);
        }
    }

    /// Raises the floor: publications of its log below an offset may be missing.
    pub(in crate::shard) fn raise_floor(&mut self, floor: u64) {
        self.log.alias = None;
        if let Some(history) = &mut self.history {
            history.raise_floor(floor);
        }
    }

    /// Converts a client's position of the epoch before the log to the current one.
    pub(super) fn resolve(&self, recover_from: RecoverFrom) -> RecoverFrom {
        match (recover_from.epoch, self.log.alias) {
            (EpochFilter::Exact(epoch), Some((alias, entered))) if epoch == alias => RecoverFrom {
                offset: recover_from.offset.max(entered),
                epoch: EpochFilter::Exact(self.epoch),
            },
            _ => recover_from,
        }
    }

    /// Records that a log has fed it.
    pub(in crate::shard) fn record_fed(&mut self, id: LogId, offset: u64) {
        match self.log.fed.iter_mut().find(|(fed, _)| *fed == id) {
            Some((_, newest)) => *newest = offset.max(*newest),
            None => self.log.fed.push((id, offset)),
        }
    }

    /// Records that a log has fed a predecessor's channel.
    pub(in crate::shard) fn record_fed_before(&mut self, epoch: Epoch, offset: u64) {
        let reader = ANY_READER;
        self.record_fed(LogId { epoch, reader }, offset);
    }

    /// Returns the offset of the newest record of a log that fed it, for all readers.
    pub(in crate::shard) fn fed_up_to(&self, epoch: Epoch) -> Option<u64> {
        let fed = self.log.fed.iter().filter(|(id, _)| id.epoch == epoch);
        fed.map(|(_, offset)| *offset).max()
    }

    /// Returns whether only other readers of this log feed it.
    pub(in crate::shard) fn is_fed_by_others(&self, id: LogId) -> bool {
        let mut fed = self.log.fed.iter().map(|(fed, _)| fed);
        let is_epochs = |fed: &&LogId| fed.epoch == id.epoch && [id.reader, ANY_READER].contains(&fed.reader);
        self.fed_up_to(id.epoch).is_some() && fed.all(|fed| !is_epochs(&fed))
    }

    /// Removes the epoch of a log that has ended.
    pub(in crate::shard) fn remove_fed(&mut self, epoch: Epoch) {
        self.log.fed.retain(|(id, _)| id.epoch != epoch);
    }

    /// Returns its newest position in each log, from records and from clients.
    pub(in crate::shard) fn log_positions(&self) -> impl Iterator<Item = (Epoch, u64)> {
        let entry = self
            .log_position()
            .map(|position| (position.epoch, position.offset));
        let fed = self.log.fed.iter().map(|(id, offset)| (id.epoch, *offset));
        entry.into_iter().chain(fed)
    }

    /// Returns whether it assigns its offsets itself.
    pub(in crate::shard) fn is_mixed(&self) -> bool {
        self.log.is_mixed
    }

    pub(in crate::shard) fn set_mixed(&mut self) {
        self.log.is_mixed = true;
    }

    /// Returns whether its subscribers have to be notified that a record is retained which they do not receive. Returns `true` once for the
    /// current subscribers.
    pub(in crate::shard) fn withhold(&mut self) -> bool {
        !std::mem::replace(&mut self.log.has_notified, true)
    }
}
