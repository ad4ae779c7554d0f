//! Channels whose publications are records of a log: their offsets are the log's own, so that all nodes that read it agree on them.
//!
//! ```text
//! log       start ───── base ───────── position         records of this home's channels: all above `start` are known,
//!                                                       all channels that were removed end at or below `base`
//! channel   placeholder epoch ── first record ─▶ epoch of the log, floor = max(start, base)
//! ```
//!
//! A log is one sequence of records (a partition, a stream) in one life: a topic that is deleted and created again is another log. Its
//! records arrive here in their order, so one that is not above `position` repeats an older one. A client that was connected to another
//! node and is at `max(start, base)` or above it has missed only records that are retained here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Home;
use super::channel::Channel;
use crate::history::Epoch;
use crate::limits;
use crate::mail::{Life, Manner, Once, Origin, Rules, Since, ToWorker};
use crate::protocol::Published;

/// A reader of a log: two sources of a configuration may read the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId {
    /// The epoch of the log's publications: the same on all nodes.
    pub epoch: Epoch,
    /// The source of this node that reads it.
    pub reader: u32,
}

/// A change of the records that a source reads, in order with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Reading begins, or continues, with the first record above this offset. If that leaves records out, they are missing.
    Begins(u64),
    /// All records up to this offset were delivered, to whichever channel.
    Reached(u64),
    /// Records up to this offset were published before: by a process before this one, or by other nodes. They are retained for
    /// recovery and sent to no subscriber; until the last one has arrived, no position of the log is recovered.
    Live(u64),
}

/// The outcome of [`Home::publish_numbered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// The channel has it.
    Published,
    /// The channel had it before.
    Repeated,
    /// The limit of channels is reached.
    NoRoom,
    /// A successor numbers publications from now on.
    Draining,
}

/// The state of a log at this home.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    /// All records above it were received.
    start: u64,
    /// The newest record that was received.
    position: u64,
    /// The highest offset of a channel that was removed.
    base: u64,
    /// Records up to it are retained only: [`LogEvent::Live`].
    live: u64,
    /// The time until which those records are awaited.
    live_until: Option<Duration>,
    /// It was a predecessor's, and no reader has begun: until then, one is expected.
    until: Option<Duration>,
    /// That time has passed: clients whose positions are higher do not retry.
    is_late: bool,
}

impl Log {
    /// Returns whether a predecessor has read it, and nothing reads it here.
    fn is_abandoned(&self) -> bool {
        self.until.is_some() && self.is_late
    }
}

/// The logs of a home; at most [`limits::LOGS`], then one is forgotten: its channels do not recover positions of other nodes.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: BTreeMap<LogId, Log>,
}

/// The relation of a client's position to a log at this home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has all records up to now that were not retained.
    Covered,
    /// Records may be missing, or it is no position of a log that is read.
    Unknown,
    /// The client has received records, from another node, that have not arrived here yet.
    Behind,
}

impl Logs {
    fn get_mut(&mut self, id: LogId) -> Option<&mut Log> {
        self.logs.get_mut(&id)
    }

    fn of(&self, epoch: Epoch) -> impl Iterator<Item = &Log> {
        let all = LogId { epoch, reader: 0 }..=LogId {
            epoch,
            reader: u32::MAX,
        };
        self.logs.range(all).map(|(_, log)| log)
    }

    /// Returns the offset above which no record of a channel that is not there can be missing.
    fn floor(&self, epoch: Epoch) -> Option<u64> {
        self.of(epoch).map(|log| log.start.max(log.base)).max()
    }

    /// Returns whether a log is read.
    pub(super) fn is_known(&self, epoch: Epoch) -> bool {
        self.of(epoch).next().is_some()
    }

    fn standing(&self, epoch: Epoch, offset: u64) -> Standing {
        let Some(floor) = self.floor(epoch) else {
            return Standing::Unknown;
        };
        let is_ahead = |log: &Log| offset > log.position || log.position < log.live;
        if self.of(epoch).any(|log| is_ahead(log) && !log.is_abandoned()) {
            return Standing::Behind;
        }
        match offset >= floor && !self.of(epoch).any(is_ahead) {
            true => Standing::Covered,
            false => Standing::Unknown,
        }
    }

    /// Returns where a reader began, if records of a channel that are above an offset may be missing before that.
    fn start_behind(&self, id: LogId, offset: u64) -> Option<u64> {
        let start = self.logs.get(&id)?.start;
        let covers = |log: &Log| log.start <= offset && log.position >= start;
        (start > offset && !self.of(id.epoch).any(covers)).then_some(start)
    }

    /// Returns the offset up to which all readers have received the records.
    fn position(&self, epoch: Epoch) -> Option<u64> {
        self.of(epoch).map(|log| log.position).min()
    }

    fn is_replaying(&self, epoch: Epoch) -> bool {
        self.of(epoch).any(|log| log.position < log.live)
    }

    /// Returns whether a reader of this process has begun.
    fn is_read(&self, epoch: Epoch) -> bool {
        self.of(epoch).any(|log| log.until.is_none())
    }

    /// Notes that a channel of a log was removed, or has no position in it any more: clients at a lower offset may lack a record.
    pub(super) fn raise_base(&mut self, epoch: Epoch, offset: u64) {
        let all = LogId { epoch, reader: 0 }..=LogId {
            epoch,
            reader: u32::MAX,
        };
        for (_, log) in self.logs.range_mut(all) {
            log.base = log.base.max(offset);
        }
    }

    /// Stops to wait for readers of a predecessor's logs, and for retained records.
    pub(super) fn expire(&mut self, now: Duration) {
        for log in self.logs.values_mut() {
            log.is_late = log.until.is_some_and(|until| now >= until);
            if log.position >= log.live {
                log.live_until = None;
            } else if now >= *log.live_until.get_or_insert(now + limits::LOG_REPLAY) {
                // Its source has stopped: clients are served as far as it has read.
                log.live = log.position;
            }
        }
    }

    /// Notes that a channel was removed.
    pub(super) fn removed(&mut self, channel: &Channel) {
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

    /// Makes room for one more log at the limit: one that nothing reads, if there is one.
    fn make_room(&mut self) {
        if self.logs.len() >= limits::LOGS {
            let unread = self.logs.iter().find(|(_, log)| log.until.is_some());
            match unread.map(|(id, _)| *id) {
                Some(id) => drop(self.logs.remove(&id)),
                None => drop(self.logs.pop_first()),
            }
        }
    }

    /// Adds the state of a predecessor's worker. All of its workers had received the records up to the highest of their positions.
    pub(super) fn restore(&mut self, id: LogId, [start, position, base]: [u64; 3], now: Duration) {
        if self.logs.len() < limits::LOGS || self.logs.contains_key(&id) {
            let log = self.logs.entry(id).or_insert(Log {
                until: Some(now.saturating_add(limits::LOG_RESTORED)),
                ..Log::default()
            });
            log.start = log.start.max(start);
            log.position = log.position.max(position);
            log.base = log.base.max(base);
        }
    }
}

impl Home {
    /// Publishes a record of a log under the log's own offset. Records of a log are published in their order; one that is not above
    /// the newest is not published again.
    pub fn publish_numbered(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        published: Arc<Published>,
        (id, offset): (LogId, u64),
        now: Duration,
    ) -> Numbered {
        if self.is_frozen {
            return Numbered::Draining;
        }
        if self.logs.get_mut(id).is_none() {
            self.log_event(id, LogEvent::Begins(offset.saturating_sub(1)));
        }
        let mut is_live = true;
        if let Some(log) = self.logs.get_mut(id) {
            if offset <= log.position {
                self.counts.repeated += 1;
                return Numbered::Repeated;
            }
            (log.position, log.until) = (offset, None);
            is_live = offset > log.live;
        }
        let Some(index) = self.channel(channel, rules, now) else {
            // Nothing else remembers that the channel has had it.
            self.logs.raise_base(id.epoch, offset);
            return Numbered::NoRoom;
        };
        let Some((number, floor)) = self.assign_offset(index, id, offset) else {
            self.counts.repeated += 1;
            return Numbered::Repeated;
        };
        self.counts.publications += 1;
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.note_origin(Origin::LOG);
        }
        self.publish_record(index, published, (number, is_live), now);
        if let (Some(floor), Some(channel)) = (floor, &mut self.channels[index as usize])
            && let Some(history) = channel.history_mut()
        {
            history.exclude_below(floor);
        }
        Numbered::Published
    }

    /// Returns the offset of a record in its channel, which counts for itself without one, and the position below which clients may lack
    /// a record. `None`: the channel has had it.
    fn assign_offset(&mut self, index: u32, id: LogId, offset: u64) -> Option<(Option<u64>, Option<u64>)> {
        let channel = self.channels[index as usize].as_mut()?;
        let fed = channel.fed_up_to(id.epoch);
        channel.note_fed(id, offset);
        if fed.is_some_and(|fed| offset <= fed) {
            return None;
        }
        let keeps = channel.keeps();
        let mut number = Some(offset);
        let mut floor = None;
        match channel.log_place() {
            _ if !keeps => {}
            _ if channel.is_mixed() => number = None,
            Some(place) if place.epoch == id.epoch => {
                if offset <= place.offset {
                    return None;
                }
                // Another reader has fed it, and has not reached the records that this one began with; or records between were for a
                // channel before this one.
                let excluded = channel.history_mut().map_or(0, |history| history.floor());
                let excluded = Some(excluded).filter(|floor| (place.offset + 1..offset).contains(floor));
                if let Some(floor) = self.logs.start_behind(id, place.offset).max(excluded) {
                    channel.raise_floor(floor);
                    self.notify_lost(index);
                }
            }
            // In the log for the first time. No record is missing above the floor.
            None if channel.is_placeholder() => {
                let least = self.logs.floor(id.epoch).unwrap_or(offset).max(fed.unwrap_or(0));
                channel.enter_log(id.epoch, least.min(offset - 1));
                // A reader that lags behind another one delivers records that a channel before this one may have had.
                floor = (least >= offset).then_some(least);
                self.notify_lost(index);
            }
            Some(place) if self.logs.is_read(place.epoch) => {
                number = None;
                self.leave_log(index);
            }
            // Another life of the log, or publications of other programs before: nothing recovers across.
            _ => {
                channel.enter_log(id.epoch, offset - 1);
                floor = Some(offset);
                self.notify_lost(index);
            }
        }
        Some((number, floor))
    }

    /// Publishes a record whose channel counts for itself, unless another one by the same key was published.
    pub fn publish_keyed(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        published: Arc<Published>,
        (once, origin): (Option<Once>, Origin),
        now: Duration,
    ) -> Numbered {
        if self.is_frozen {
            return Numbered::Draining;
        }
        let repeated = self.counts.repeated;
        let manner = once.map(|once| {
            Box::new(Manner {
                once: Some(once),
                ..Manner::default()
            })
        });
        match self.publish_as(channel, rules, published, (manner, origin), now) {
            None => Numbered::NoRoom,
            Some(_) if self.counts.repeated != repeated => Numbered::Repeated,
            Some(_) => Numbered::Published,
        }
    }

    /// Has a channel of a log assign its offsets itself from now on, in an epoch of its own: something else than the log publishes in it,
    /// so that its positions differ between nodes.
    pub(super) fn leave_log(&mut self, index: u32) {
        let channel = self.channels[index as usize].as_mut();
        if let Some(channel) = channel.filter(|channel| channel.log_place().is_some()) {
            channel.set_mixed();
            self.renew(index);
        }
    }

    /// Applies a change of the records that a source reads. Records that it left out are reported: the channels of the log recover only from
    /// there on.
    pub fn log_event(&mut self, id: LogId, event: LogEvent) {
        match (event, self.logs.logs.get_mut(&id)) {
            (LogEvent::Reached(position), Some(log)) => {
                (log.position, log.until) = (log.position.max(position), None);
            }
            (LogEvent::Reached(_) | LogEvent::Live(_), None) => {}
            (LogEvent::Live(live), Some(log)) => log.live = log.live.max(live),
            (LogEvent::Begins(start), Some(log)) if start <= log.position => log.until = None,
            (LogEvent::Begins(start), Some(log)) => {
                (log.start, log.position, log.until) = (start, start, None);
                self.raise_floors(id, start);
                self.renew_placeholders();
            }
            (LogEvent::Begins(start), None) => {
                self.logs.make_room();
                let log = Log {
                    start,
                    position: start,
                    ..Log::default()
                };
                self.logs.logs.insert(id, log);
                // Channels of a predecessor, which may have stopped reading before.
                self.raise_floors(id, start);
                self.renew_where(Channel::is_continued_placeholder);
            }
        }
    }

    /// Ends a life of a log: it has lost records that were delivered, or was created again. Its channels start epochs of their own, as do
    /// those without a record, since their records may be lost.
    pub fn log_ended(&mut self, epoch: Epoch) {
        let is_known = self.logs.of(epoch).next().is_some();
        self.logs.logs.retain(|id, _| id.epoch != epoch);
        self.renew_where(|channel| channel.log_positions().any(|(of, _)| of == epoch));
        if is_known {
            self.renew_placeholders();
        }
        for channel in self.channels.iter_mut().flatten() {
            channel.forget_fed(epoch);
        }
    }

    /// Notifies subscribers of channels without a record, which may be one of those that are missing.
    fn renew_placeholders(&mut self) {
        self.renew_where(Channel::is_placeholder);
        for channel in self.channels.iter_mut().flatten() {
            channel.forget_alias();
        }
    }

    fn renew_where(&mut self, mut is_concerned: impl FnMut(&Channel) -> bool) {
        for index in 0..self.channels.len() {
            if self.channels[index].as_ref().is_some_and(&mut is_concerned) {
                self.renew(index as u32);
            }
        }
    }

    /// Notifies subscribers of channels that a reader feeds, and that lack records up to an offset.
    fn raise_floors(&mut self, id: LogId, floor: u64) {
        for index in 0..self.channels.len() {
            let Some(channel) = &mut self.channels[index] else {
                continue;
            };
            if channel.is_fed_by_others(id) {
                continue;
            }
            let place = channel.log_place().filter(|place| place.epoch == id.epoch);
            match place {
                Some(place) if place.offset < floor => {
                    channel.raise_floor(floor);
                    self.notify_lost(index as u32);
                }
                None if channel.fed_up_to(id.epoch).is_some_and(|fed| fed < floor) => {
                    self.renew(index as u32);
                }
                _ => {}
            }
        }
    }

    /// Returns whether a client's position is of a log whose records have not arrived here yet: it has to retry.
    pub(super) fn is_behind(&self, channel: &str, since: Option<Since>) -> bool {
        let found = self.names.get(channel);
        let channel = found.and_then(|index| self.channels[*index as usize].as_ref());
        let place = channel.and_then(Channel::log_place);
        if place.is_some_and(|place| self.logs.is_replaying(place.epoch)) {
            // Whichever position it has: one within the retained records would be followed by those that are older than the client.
            return true;
        }
        let Some((epoch, offset)) = since.and_then(position) else {
            return false;
        };
        let has_passed = place.is_some_and(|place| place.epoch == epoch && place.offset >= offset);
        (self.logs.is_replaying(epoch) || !has_passed)
            && self.logs.standing(epoch, offset) == Standing::Behind
    }

    /// Has a channel continue where a client of another node was, if nothing of the log is missing behind that.
    pub(super) fn adopt_position(&mut self, index: u32, since: Option<Since>) {
        let Some((epoch, offset)) = since.and_then(position) else {
            return;
        };
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        if channel.is_placeholder() && !channel.is_mixed() {
            let floor = self.logs.floor(epoch).max(channel.fed_up_to(epoch)).unwrap_or(0);
            let is_of_others = channel.log_positions().any(|(of, _)| of != epoch);
            let is_covered = self.logs.standing(epoch, offset) == Standing::Covered && offset >= floor;
            if is_covered && !is_of_others {
                channel.enter_log(epoch, floor);
                self.notify_lost(index);
            }
        }
        // No record of the channel is between its newest one and the position up to which the log was read.
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let is_in_log = channel.log_place().is_some_and(|place| place.epoch == epoch);
        let is_read = self.logs.position(epoch).is_some_and(|read| offset <= read);
        if is_in_log
            && is_read
            && !self.logs.is_replaying(epoch)
            && let Some(history) = channel.history_mut()
        {
            history.advance(offset);
        }
    }

    /// Has all workers with subscribers notify those that rely on positions.
    pub(super) fn notify_lost(&mut self, index: u32) {
        let Some(channel) = self.channels[index as usize]
            .as_mut()
            .filter(|channel| channel.relies_on_positions())
        else {
            return;
        };
        for interest in channel.interests() {
            let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
            // Publications that found no room are reported as lost with the others.
            if interest.marked.take().is_some() {
                outbox.marked.retain(|&marked| marked != index);
            }
            outbox.queue.push_back(ToWorker::Lost { key: interest.key });
        }
    }
}

fn position(since: Since) -> Option<(Epoch, u64)> {
    match since.life {
        Life::Of(epoch) => Some((epoch, since.offset)),
        Life::Any | Life::Foreign => None,
    }
}
