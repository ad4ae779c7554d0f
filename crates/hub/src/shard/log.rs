//! Channels that a log feeds: their offsets are those of the log, so that all nodes that read it agree on them.
//!
//! ```text
//! log       start ───── base ───────── position         records of this shard's channels: all above `start` are known,
//!                                                       all channels that were removed end at or below `base`
//! channel   placeholder epoch ── first record ─▶ epoch of the log, floor = max(start, base)
//! ```
//!
//! A log is one sequence of records (a partition, a stream) in one epoch: a topic that is deleted and created again is another log. Its
//! records arrive in order, so one that is not above `position` is a duplicate. A client of another node whose position is at or above
//! `max(start, base)` has missed only records that are retained here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ChannelShard;
use super::channel::Channel;
use crate::history::Epoch;
use crate::limits;
use crate::mail::{
    ChannelOptions, EpochFilter, Idempotency, Origin, PublishOptions, RecoverFrom, ShardEvent,
};
use crate::protocol::Published;

/// A reader of a log. Several sources may read the same log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId {
    /// The epoch of the log's publications: the same on all nodes.
    pub epoch: Epoch,
    /// The source of this node that reads the log.
    pub reader: u32,
}

/// A change of the records that a source reads, in order with the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Reading starts, or continues, with the first record above this offset. Skipped records are missing.
    Started(u64),
    /// All records up to this offset were delivered, to whichever channel.
    Reached(u64),
    /// Records up to this offset were published earlier, by a predecessor or by other nodes. They are retained for recovery and not sent to
    /// subscribers. Until the last one has arrived, no position of the log recovers.
    Live(u64),
}

/// The outcome of [`ChannelShard::publish_log_record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPublishOutcome {
    /// The record was published.
    Published,
    /// The channel had the record before.
    Duplicate,
    /// The limit of channels is reached.
    NoRoom,
    /// A successor assigns offsets from now on.
    Draining,
}

/// The state of a log in this shard.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    /// The offset above which all records were received.
    start: u64,
    /// The offset of the newest record that was received.
    position: u64,
    /// The highest offset of a channel that was removed.
    base: u64,
    /// The offset up to which records are only retained: [`LogEvent::Live`].
    live: u64,
    /// The time until which those records are awaited.
    live_until: Option<Duration>,
    /// The time until which a reader of a predecessor's log is awaited. `None`: there is a reader.
    until: Option<Duration>,
    /// True if that time has passed: clients with higher positions do not retry.
    is_late: bool,
}

impl Log {
    /// Returns whether only a predecessor has read the log.
    fn is_abandoned(&self) -> bool {
        self.until.is_some() && self.is_late
    }
}

/// The logs of a shard, at most [`limits::LOGS`]. At the limit one is removed: its channels do not recover positions of other nodes.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: BTreeMap<LogId, Log>,
}

/// The relation of a client's position to the state of a log in this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PositionStatus {
    /// The client has all records that are not retained here.
    Covered,
    /// Records may be missing, or the position is not of a known log.
    Unknown,
    /// The client has received records, from another node, that have not arrived here yet.
    Behind,
}

impl Logs {
    fn get_mut(&mut self, id: LogId) -> Option<&mut Log> {
        self.logs.get_mut(&id)
    }

    fn with_epoch(&self, epoch: Epoch) -> impl Iterator<Item = &Log> {
        let all = LogId { epoch, reader: 0 }..=LogId {
            epoch,
            reader: u32::MAX,
        };
        self.logs.range(all).map(|(_, log)| log)
    }

    /// Returns the offset above which no record of a channel that does not exist can be missing.
    fn floor(&self, epoch: Epoch) -> Option<u64> {
        self.with_epoch(epoch).map(|log| log.start.max(log.base)).max()
    }

    /// Returns whether a log is known.
    pub(super) fn is_known(&self, epoch: Epoch) -> bool {
        self.with_epoch(epoch).next().is_some()
    }

    fn position_status(&self, epoch: Epoch, offset: u64) -> PositionStatus {
        let Some(floor) = self.floor(epoch) else {
            return PositionStatus::Unknown;
        };
        let is_ahead = |log: &Log| offset > log.position || log.position < log.live;
        if self
            .with_epoch(epoch)
            .any(|log| is_ahead(log) && !log.is_abandoned())
        {
            return PositionStatus::Behind;
        }
        if offset >= floor && !self.with_epoch(epoch).any(is_ahead) {
            PositionStatus::Covered
        } else {
            PositionStatus::Unknown
        }
    }

    /// Returns the offset at which a reader started, if records of a channel between the given offset and that one may be missing.
    fn start_after_gap(&self, id: LogId, offset: u64) -> Option<u64> {
        let start = self.logs.get(&id)?.start;
        let covers = |log: &Log| log.start <= offset && log.position >= start;
        (start > offset && !self.with_epoch(id.epoch).any(covers)).then_some(start)
    }

    /// Returns the offset up to which all readers have received the records.
    fn position(&self, epoch: Epoch) -> Option<u64> {
        self.with_epoch(epoch).map(|log| log.position).min()
    }

    fn is_replaying(&self, epoch: Epoch) -> bool {
        self.with_epoch(epoch).any(|log| log.position < log.live)
    }

    /// Returns whether a reader of this process has started.
    fn is_read(&self, epoch: Epoch) -> bool {
        self.with_epoch(epoch).any(|log| log.until.is_none())
    }

    /// Records that a channel of a log was removed, or has no position in it any more: clients at a lower offset may lack a record.
    pub(super) fn raise_base(&mut self, epoch: Epoch, offset: u64) {
        let all = LogId { epoch, reader: 0 }..=LogId {
            epoch,
            reader: u32::MAX,
        };
        for (_, log) in self.logs.range_mut(all) {
            log.base = log.base.max(offset);
        }
    }

    /// Ends the waits for readers of a predecessor's logs, and for retained records.
    pub(super) fn expire(&mut self, now: Duration) {
        for log in self.logs.values_mut() {
            log.is_late = log.until.is_some_and(|until| now >= until);
            if log.position >= log.live {
                log.live_until = None;
            } else if now >= *log.live_until.get_or_insert(now + limits::LOG_REPLAY_TIMEOUT) {
                // The source has stopped: clients are served up to the last record that was read.
                log.live = log.position;
            }
        }
    }

    /// Records that a channel was removed.
    pub(super) fn on_channel_removed(&mut self, channel: &Channel) {
        for (epoch, offset) in channel.log_positions() {
            self.raise_base(epoch, offset);
        }
    }
}

impl Logs {
    /// Returns the start, the position and the base of each log.
    pub(super) fn all(&self) -> impl Iterator<Item = (LogId, [u64; 3])> {
        self.logs
            .iter()
            .map(|(id, log)| (*id, [log.start, log.position, log.base]))
    }

    /// Makes room for one more log at the limit, preferably by removing one that has no reader.
    fn make_room(&mut self) {
        if self.logs.len() >= limits::LOGS {
            let unread = self.logs.iter().find(|(_, log)| log.until.is_some());
            match unread.map(|(id, _)| *id) {
                Some(id) => drop(self.logs.remove(&id)),
                None => drop(self.logs.pop_first()),
            }
        }
    }

    /// Restores the state of a predecessor's worker. Together its workers had received all records up to the highest of their positions.
    pub(super) fn restore(&mut self, id: LogId, [start, position, base]: [u64; 3], now: Duration) {
        if self.logs.len() < limits::LOGS || self.logs.contains_key(&id) {
            let log = self.logs.entry(id).or_insert(Log {
                until: Some(now.saturating_add(limits::LOG_READER_TIMEOUT)),
                ..Log::default()
            });
            log.start = log.start.max(start);
            log.position = log.position.max(position);
            log.base = log.base.max(base);
        }
    }
}

impl ChannelShard {
    /// Publishes a record of a log with the log's offset. Records must be published in order; one that is not above the newest is a
    /// duplicate.
    pub fn publish_log_record(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        published: Arc<Published>,
        id: LogId,
        offset: u64,
        now: Duration,
    ) -> LogPublishOutcome {
        if self.is_frozen {
            return LogPublishOutcome::Draining;
        }
        if self.logs.get_mut(id).is_none() {
            self.handle_log_event(id, LogEvent::Started(offset.saturating_sub(1)));
        }
        let mut is_live = true;
        if let Some(log) = self.logs.get_mut(id) {
            if offset <= log.position {
                self.counts.duplicates += 1;
                return LogPublishOutcome::Duplicate;
            }
            (log.position, log.until) = (offset, None);
            is_live = offset > log.live;
        }
        let Some(index) = self.channel(channel, options, now) else {
            // The log's base must record that clients may have this record.
            self.logs.raise_base(id.epoch, offset);
            return LogPublishOutcome::NoRoom;
        };
        let Some((number, floor)) = self.assign_offset(index, id, offset) else {
            self.counts.duplicates += 1;
            return LogPublishOutcome::Duplicate;
        };
        self.counts.publications += 1;
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.record_origin(Origin::LOG);
        }
        self.publish_record(index, published, number, is_live, now);
        if let (Some(floor), Some(channel)) = (floor, &mut self.channels[index as usize])
            && let Some(history) = channel.history_mut()
        {
            history.exclude_below(floor);
        }
        LogPublishOutcome::Published
    }

    /// Returns the offset of a record in its channel, or none if the channel assigns its own offsets, and the position below which clients
    /// may lack a record. `None`: the record is a duplicate.
    fn assign_offset(&mut self, index: u32, id: LogId, offset: u64) -> Option<(Option<u64>, Option<u64>)> {
        let channel = self.channels[index as usize].as_mut()?;
        let fed = channel.fed_up_to(id.epoch);
        channel.record_fed(id, offset);
        if fed.is_some_and(|fed| offset <= fed) {
            return None;
        }
        let has_history = channel.has_history();
        let mut number = Some(offset);
        let mut floor = None;
        match channel.log_position() {
            _ if !has_history => {}
            _ if channel.is_mixed() => number = None,
            Some(position) if position.epoch == id.epoch => {
                if offset <= position.offset {
                    return None;
                }
                // Another reader fed the channel and has not reached the records that this one started with, or records between were for a
                // channel before this one.
                let excluded = channel.history_mut().map_or(0, |history| history.floor());
                let excluded = Some(excluded).filter(|floor| (position.offset + 1..offset).contains(floor));
                if let Some(floor) = self.logs.start_after_gap(id, position.offset).max(excluded) {
                    channel.raise_floor(floor);
                    self.notify_lost(index);
                }
            }
            // The channel enters the log. No record is missing above the floor.
            None if channel.is_placeholder() => {
                let lowest_position = self.logs.floor(id.epoch).unwrap_or(offset).max(fed.unwrap_or(0));
                channel.enter_log(id.epoch, lowest_position.min(offset - 1));
                // A reader that lags behind another one delivers records that an earlier channel of this name may have had.
                floor = (lowest_position >= offset).then_some(lowest_position);
                self.notify_lost(index);
            }
            Some(position) if self.logs.is_read(position.epoch) => {
                number = None;
                self.leave_log(index);
            }
            // Another epoch of the log, or publications of other programs before: no client recovers across this position.
            _ => {
                channel.enter_log(id.epoch, offset - 1);
                floor = Some(offset);
                self.notify_lost(index);
            }
        }
        Some((number, floor))
    }

    /// Publishes a record in a channel that assigns its own offsets, unless its idempotency key was used before.
    pub fn publish_idempotent(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        published: Arc<Published>,
        idempotency: Option<Idempotency>,
        origin: Origin,
        now: Duration,
    ) -> LogPublishOutcome {
        if self.is_frozen {
            return LogPublishOutcome::Draining;
        }
        let duplicates = self.counts.duplicates;
        let publish_options = idempotency.map(|idempotency| {
            Box::new(PublishOptions {
                idempotency: Some(idempotency),
                ..PublishOptions::default()
            })
        });
        match self.publish_once(channel, options, published, publish_options, origin, now) {
            None => LogPublishOutcome::NoRoom,
            Some(_) if self.counts.duplicates != duplicates => LogPublishOutcome::Duplicate,
            Some(_) => LogPublishOutcome::Published,
        }
    }

    /// Makes a channel of a log assign its own offsets in an epoch of its own: another publisher uses the channel, so its positions differ
    /// between nodes.
    pub(super) fn leave_log(&mut self, index: u32) {
        let channel = self.channels[index as usize].as_mut();
        if let Some(channel) = channel.filter(|channel| channel.log_position().is_some()) {
            channel.set_mixed();
            self.start_epoch(index);
        }
    }

    /// Applies a change of the records that a source reads. If records were skipped, subscribers are notified, and the channels of the log
    /// recover only from the new start.
    pub fn handle_log_event(&mut self, id: LogId, event: LogEvent) {
        match (event, self.logs.logs.get_mut(&id)) {
            (LogEvent::Reached(position), Some(log)) => {
                (log.position, log.until) = (log.position.max(position), None);
            }
            (LogEvent::Reached(_) | LogEvent::Live(_), None) => {}
            (LogEvent::Live(live), Some(log)) => log.live = log.live.max(live),
            (LogEvent::Started(start), Some(log)) if start <= log.position => log.until = None,
            (LogEvent::Started(start), Some(log)) => {
                (log.start, log.position, log.until) = (start, start, None);
                self.raise_floors(id, start);
                self.start_placeholder_epochs();
            }
            (LogEvent::Started(start), None) => {
                self.logs.make_room();
                let log = Log {
                    start,
                    position: start,
                    ..Log::default()
                };
                self.logs.logs.insert(id, log);
                // Channels of a predecessor, which may have stopped reading before this offset.
                self.raise_floors(id, start);
                self.start_epochs_where(Channel::is_continued_placeholder);
            }
        }
    }

    /// Ends an epoch of a log: it has lost delivered records, or was created again. Its channels start epochs of their own. So do channels
    /// without a record, since theirs may be lost.
    pub fn end_log(&mut self, epoch: Epoch) {
        let is_known = self.logs.with_epoch(epoch).next().is_some();
        self.logs.logs.retain(|id, _| id.epoch != epoch);
        self.start_epochs_where(|channel| channel.log_positions().any(|(other, _)| other == epoch));
        if is_known {
            self.start_placeholder_epochs();
        }
        for channel in self.channels.iter_mut().flatten() {
            channel.remove_fed(epoch);
        }
    }

    /// Notifies subscribers of channels without a record, since one of the missing records may be theirs.
    fn start_placeholder_epochs(&mut self) {
        self.start_epochs_where(Channel::is_placeholder);
        for channel in self.channels.iter_mut().flatten() {
            channel.clear_alias();
        }
    }

    fn start_epochs_where(&mut self, mut is_affected: impl FnMut(&Channel) -> bool) {
        for index in 0..self.channels.len() {
            if self.channels[index].as_ref().is_some_and(&mut is_affected) {
                self.start_epoch(index as u32);
            }
        }
    }

    /// Notifies subscribers of channels that a reader feeds and that lack records up to an offset.
    fn raise_floors(&mut self, id: LogId, floor: u64) {
        for index in 0..self.channels.len() {
            let Some(channel) = &mut self.channels[index] else {
                continue;
            };
            if channel.is_fed_by_others(id) {
                continue;
            }
            let position = channel
                .log_position()
                .filter(|position| position.epoch == id.epoch);
            match position {
                Some(position) if position.offset < floor => {
                    channel.raise_floor(floor);
                    self.notify_lost(index as u32);
                }
                None if channel.fed_up_to(id.epoch).is_some_and(|fed| fed < floor) => {
                    self.start_epoch(index as u32);
                }
                _ => {}
            }
        }
    }

    /// Returns whether a client's position is of a log whose records have not arrived here yet: it must retry.
    pub(super) fn is_behind(&self, channel: &str, recover_from: Option<RecoverFrom>) -> bool {
        let entry = self.names.get(channel);
        let channel = entry.and_then(|index| self.channels[*index as usize].as_ref());
        let position = channel.and_then(Channel::log_position);
        if position.is_some_and(|position| self.logs.is_replaying(position.epoch)) {
            // This applies to every position: after one within the retained records, older records would follow.
            return true;
        }
        let Some((epoch, offset)) = recover_from.and_then(exact_position) else {
            return false;
        };
        let has_passed =
            position.is_some_and(|position| position.epoch == epoch && position.offset >= offset);
        (self.logs.is_replaying(epoch) || !has_passed)
            && self.logs.position_status(epoch, offset) == PositionStatus::Behind
    }

    /// Makes a channel continue at the position of another node's client, if nothing of the log is missing after it.
    pub(super) fn adopt_position(&mut self, index: u32, recover_from: Option<RecoverFrom>) {
        let Some((epoch, offset)) = recover_from.and_then(exact_position) else {
            return;
        };
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        if channel.is_placeholder() && !channel.is_mixed() {
            let floor = self.logs.floor(epoch).max(channel.fed_up_to(epoch)).unwrap_or(0);
            let has_other_logs = channel.log_positions().any(|(other, _)| other != epoch);
            let is_covered =
                self.logs.position_status(epoch, offset) == PositionStatus::Covered && offset >= floor;
            if is_covered && !has_other_logs {
                channel.enter_log(epoch, floor);
                self.notify_lost(index);
            }
        }
        // No record of the channel is between its newest one and the position up to which the log was read.
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let is_in_log = channel
            .log_position()
            .is_some_and(|position| position.epoch == epoch);
        let is_read = self.logs.position(epoch).is_some_and(|read| offset <= read);
        if is_in_log
            && is_read
            && !self.logs.is_replaying(epoch)
            && let Some(history) = channel.history_mut()
        {
            history.advance(offset);
        }
    }

    /// Notifies the subscribers that rely on positions, through all workers that have any.
    pub(super) fn notify_lost(&mut self, index: u32) {
        let Some(channel) = self.channels[index as usize]
            .as_mut()
            .filter(|channel| channel.relies_on_positions())
        else {
            return;
        };
        for interest in channel.interests() {
            let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
            // Publications that did not fit into the queue are reported as lost with the others.
            if interest.marked.take().is_some() {
                outbox.marked.retain(|&marked| marked != index);
            }
            outbox.queue.push_back(ShardEvent::Lost { key: interest.key });
        }
    }
}

pub(super) fn exact_position(recover_from: RecoverFrom) -> Option<(Epoch, u64)> {
    match recover_from.epoch {
        EpochFilter::Exact(epoch) => Some((epoch, recover_from.offset)),
        EpochFilter::Any | EpochFilter::Foreign => None,
    }
}
