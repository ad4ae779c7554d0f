//! A channel's part in logs: those that have fed it, and whether it has the offsets of one.
//!
//! ```text
//! own epoch, no publication ── first record ─▶ epoch of the log ── publication of another program or log ─▶ own epoch, mixed
//!                           ◀─ the log has ended, interrupted ──┘
//! ```

use std::sync::Arc;

use super::Channel;
use crate::history::{Epoch, History, Place};
use crate::mail::{Life, Since};
use crate::protocol::Published;
use crate::shard::LogId;

/// The reader of records that a predecessor published: any of those of the log.
const ANY_READER: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct LogState {
    /// Its epoch is that of a log, which assigns its offsets.
    is_of_log: bool,
    /// The epoch that it had before it entered the log, without publications, and the offset at which it did: clients that
    /// subscribed before have that epoch.
    alias: Option<(Epoch, u64)>,
    /// The logs that have fed it, each with the newest offset.
    fed: Vec<(LogId, u64)>,
    /// Several logs, or a log and other programs, publish in it: it assigns its offsets itself.
    is_mixed: bool,
    /// A predecessor had it, without publications: which records it has missed since is not known.
    is_continued: bool,
    /// Publications were not counted while none were retained.
    pub(super) is_outdated: bool,
    /// Its subscribers were notified that records are retained which they do not receive.
    pub(super) has_notified: bool,
}

impl LogState {
    pub(super) fn leave(&mut self) {
        self.is_of_log = false;
        self.alias = None;
        self.is_continued = false;
    }
}

impl Channel {
    /// Takes the history that a predecessor had.
    pub(in crate::shard) fn set_history(&mut self, history: History<Arc<Published>>, is_of_log: bool) {
        let Place { offset, epoch } = history.place();
        if is_of_log {
            self.note_fed_before(epoch, offset);
        }
        self.history = Some(history);
        self.log.is_of_log = is_of_log;
        self.log.is_continued = self.is_placeholder();
    }

    /// Its position in a log. `None`: its offsets are its own.
    pub(in crate::shard) fn log_place(&self) -> Option<Place> {
        self.place().filter(|_| self.log.is_of_log)
    }

    /// Returns whether nothing was published in its epoch.
    pub(in crate::shard) fn is_unpublished(&self) -> bool {
        self.place().is_none_or(|place| place.offset == 0)
    }

    /// Returns whether it has positions, but neither publications nor a log: clients that have subscribed wait for its first publication.
    pub(in crate::shard) fn is_placeholder(&self) -> bool {
        self.keeps() && !self.log.is_of_log && self.is_unpublished()
    }

    /// Returns whether it is a predecessor's, and one of these channels.
    pub(in crate::shard) fn is_continued_placeholder(&self) -> bool {
        self.log.is_continued && self.is_placeholder()
    }

    /// Takes its offsets from a log from now on, at a position below which records may be missing. Clients that subscribed before the
    /// first publication keep their position.
    pub(in crate::shard) fn enter_log(&mut self, epoch: Epoch, position: u64) {
        self.log.alias = self.is_placeholder().then_some((self.epoch, position));
        if let Some(history) = &mut self.history {
            history.enter_log(epoch, position);
        }
        self.pace.forget_shown();
        self.epoch = epoch;
        self.log.is_of_log = true;
    }

    /// Has clients that subscribed before its first record not recover.
    pub(in crate::shard) fn forget_alias(&mut self) {
        self.log.alias = None;
    }

    /// Publications of its log below an offset may be missing.
    pub(in crate::shard) fn raise_floor(&mut self, floor: u64) {
        self.log.alias = None;
        if let Some(history) = &mut self.history {
            history.raise_floor(floor);
        }
    }

    /// Returns the position that a client has, in this epoch if it is that of the time before the log.
    pub(super) fn resolve(&self, since: Since) -> Since {
        match (since.life, self.log.alias) {
            (Life::Of(epoch), Some((alias, entered))) if epoch == alias => Since {
                offset: since.offset.max(entered),
                life: Life::Of(self.epoch),
            },
            _ => since,
        }
    }

    /// Notes a record that it was fed.
    pub(in crate::shard) fn note_fed(&mut self, id: LogId, offset: u64) {
        match self.log.fed.iter_mut().find(|(fed, _)| *fed == id) {
            Some((_, newest)) => *newest = offset.max(*newest),
            None => self.log.fed.push((id, offset)),
        }
    }

    /// Notes a record that a predecessor was fed.
    pub(in crate::shard) fn note_fed_before(&mut self, epoch: Epoch, offset: u64) {
        let reader = ANY_READER;
        self.note_fed(LogId { epoch, reader }, offset);
    }

    /// Returns the newest record of a log that it was fed, by any reader.
    pub(in crate::shard) fn fed_up_to(&self, epoch: Epoch) -> Option<u64> {
        let fed = self.log.fed.iter().filter(|(id, _)| id.epoch == epoch);
        fed.map(|(_, offset)| *offset).max()
    }

    /// Returns whether a log feeds it, but by other readers alone.
    pub(in crate::shard) fn is_fed_by_others(&self, id: LogId) -> bool {
        let mut fed = self.log.fed.iter().map(|(fed, _)| fed);
        let is_own = |fed: &&LogId| fed.epoch == id.epoch && [id.reader, ANY_READER].contains(&fed.reader);
        self.fed_up_to(id.epoch).is_some() && fed.all(|fed| !is_own(&fed))
    }

    /// Forgets a life of a log that has ended.
    pub(in crate::shard) fn forget_fed(&mut self, epoch: Epoch) {
        self.log.fed.retain(|(id, _)| id.epoch != epoch);
    }

    /// Returns the newest position of each log that it has received, from records or from clients.
    pub(in crate::shard) fn log_positions(&self) -> impl Iterator<Item = (Epoch, u64)> {
        let own = self.log_place().map(|place| (place.epoch, place.offset));
        let fed = self.log.fed.iter().map(|(id, offset)| (id.epoch, *offset));
        own.into_iter().chain(fed)
    }

    /// Returns whether it assigns its offsets itself.
    pub(in crate::shard) fn is_mixed(&self) -> bool {
        self.log.is_mixed
    }

    pub(in crate::shard) fn set_mixed(&mut self) {
        self.log.is_mixed = true;
    }

    /// Returns whether its subscribers have to be notified that a record is retained which they do not receive: once for those that
    /// are subscribed.
    pub(in crate::shard) fn withhold(&mut self) -> bool {
        !std::mem::replace(&mut self.log.has_notified, true)
    }
}
