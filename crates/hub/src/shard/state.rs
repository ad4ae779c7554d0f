//! The state of channels for the successor of this process: epochs, offsets, retained publications, idempotency keys, and members. Pure.
//!
//! ```text
//! record   kind (1 byte) ─ length (4 bytes, little endian) ─ Protobuf          a section is any number of records
//! ```
//!
//! Subscribers are not included, since clients reconnect. Members are included if the successor serves while their clients are still
//! connected to this process. Times are ages or remaining times, since the clocks of two processes differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::channel::Channel;
use super::idempotency::ChannelKey;
use super::{ChannelShard, LogId, epoch};
use crate::history::{Epoch, History, StreamPosition};
use crate::limits;
use crate::mail::ChannelOptions;
use crate::protocol::{ClientInfo, Published};

/// The length of a record's head (kind and length), in bytes.
const HEAD_BYTES: usize = 5;
/// The highest valid offset. Larger ones could overflow.
const MAX_OFFSET: u64 = u64::MAX >> 1;
const CHANNEL: u8 = 1;
const KEY: u8 = 2;
const MEMBER: u8 = 3;
const LOG: u8 = 4;

/// A channel, a key, a member or a log of a predecessor.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRecord(RecordKind);

#[derive(Clone, Debug, PartialEq)]
enum RecordKind {
    Channel(ChannelRecord),
    ChannelKey(KeyRecord),
    Member(MemberRecord),
    Log(LogRecord),
}

#[derive(Clone, PartialEq, Message)]
struct ChannelRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(fixed64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    top: u64,
    #[prost(uint64, tag = "4")]
    floor: u64,
    #[prost(message, repeated, tag = "5")]
    retained: Vec<PublicationRecord>,
    /// The time since its last use, in milliseconds.
    #[prost(uint64, tag = "6")]
    age: u64,
    /// True if its offsets are those of a log.
    #[prost(bool, tag = "7")]
    uses_log_offsets: bool,
    /// The logs that have fed it.
    #[prost(message, repeated, tag = "8")]
    fed: Vec<FedRecord>,
    /// True if it assigns its offsets itself, whatever feeds it.
    #[prost(bool, tag = "9")]
    is_mixed: bool,
}

/// The newest record of a log that fed a channel.
#[derive(Clone, PartialEq, Message)]
struct FedRecord {
    #[prost(fixed64, tag = "1")]
    epoch: u64,
    #[prost(uint64, tag = "2")]
    offset: u64,
}

/// The state of a log that feeds a worker's channels.
#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(fixed64, tag = "1")]
    epoch: u64,
    #[prost(uint32, tag = "2")]
    reader: u32,
    #[prost(uint64, tag = "3")]
    start: u64,
    #[prost(uint64, tag = "4")]
    position: u64,
    #[prost(uint64, tag = "5")]
    base: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PublicationRecord {
    #[prost(bytes = "bytes", tag = "1")]
    data: bytes::Bytes,
    #[prost(message, optional, tag = "2")]
    info: Option<ClientInfo>,
    #[prost(btree_map = "string, string", tag = "3")]
    tags: std::collections::BTreeMap<String, String>,
    #[prost(int64, tag = "4")]
    time: i64,
    /// The time since publication, in milliseconds.
    #[prost(uint64, tag = "5")]
    age: u64,
    /// The offset. Zero in states of older versions, which counted by one up to the channel's position.
    #[prost(uint64, tag = "6")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyRecord {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(bool, tag = "3")]
    is_numbered: bool,
    #[prost(uint64, tag = "4")]
    offset: u64,
    #[prost(fixed64, tag = "5")]
    epoch: u64,
    /// The time since publication, in milliseconds.
    #[prost(uint64, tag = "6")]
    age: u64,
}

#[derive(Clone, PartialEq, Message)]
struct MemberRecord {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(message, optional, tag = "2")]
    info: Option<ClientInfo>,
    /// The time until the member expires, in milliseconds.
    #[prost(uint64, tag = "3")]
    remaining: u64,
}

/// A section that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected records of channels, keys and members, found {0}")]
pub struct InvalidState(String);

/// The state that a shard has written for its successor.
#[derive(Debug, Default)]
pub struct SavedState {
    /// The records of channels, keys and members.
    pub section: Vec<u8>,
    /// The records of logs. They are valid only together with the sections of every worker, since they imply that channels without a
    /// record do not exist.
    pub logs: Vec<u8>,
    /// The channels that exceeded [`limits::STATE_BYTES`]. They start a new epoch.
    pub omitted: usize,
}

impl StateRecord {
    /// Returns the channel that the record belongs to, or `None` if every worker needs the record.
    #[must_use]
    pub fn channel(&self) -> Option<&str> {
        match &self.0 {
            RecordKind::Channel(channel) => Some(&channel.name),
            RecordKind::ChannelKey(key) => Some(&key.channel),
            RecordKind::Member(member) => Some(&member.channel),
            RecordKind::Log(_) => None,
        }
    }

    /// Parses a section. Allocates memory only for data that the section contains.
    ///
    /// # Errors
    /// [`InvalidState`]: a record is truncated, of an unknown kind, or invalid Protobuf.
    pub fn read_all(mut section: &[u8]) -> Result<Vec<StateRecord>, InvalidState> {
        let mut records = Vec::new();
        while !section.is_empty() {
            let cut_off = || InvalidState("the end within a record".to_owned());
            let (head, rest) = section.split_first_chunk::<HEAD_BYTES>().ok_or_else(cut_off)?;
            let [kind, length @ ..] = *head;
            let length = u32::from_le_bytes(length) as usize;
            let (body, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
            let invalid = |error: prost::DecodeError| InvalidState(error.to_string());
            records.push(StateRecord(match kind {
                CHANNEL => RecordKind::Channel(ChannelRecord::decode(body).map_err(invalid)?),
                KEY => RecordKind::ChannelKey(KeyRecord::decode(body).map_err(invalid)?),
                MEMBER => RecordKind::Member(MemberRecord::decode(body).map_err(invalid)?),
                LOG => RecordKind::Log(LogRecord::decode(body).map_err(invalid)?),
                other => return Err(InvalidState(format!("a record of kind {other}"))),
            }));
            section = rest;
        }
        Ok(records)
    }
}

impl ChannelShard {
    /// Stops assigning offsets, so that a successor can continue. From now on, publications that need an offset or have an idempotency key
    /// are rejected ([`QueryResult::Draining`](crate::mail::QueryResult::Draining)).
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Writes the channels that have offsets, the idempotency keys, and the logs. If `member_ttl` is set, also writes the members, whose
    /// clients connect to the successor within this time. Members that do not fit are omitted.
    #[must_use]
    pub fn save(&mut self, now: Duration, present: Option<Duration>) -> SavedState {
        let mut state = SavedState::default();
        for channel in self.channels.iter_mut().flatten() {
            let record = channel.history_now(now).map(|history| ChannelRecord {
                name: channel.name.to_string(),
                ..history
            });
            let is_saved = record.as_ref().map(|record| state.push(CHANNEL, record));
            state.omitted += usize::from(is_saved == Some(false));
            if is_saved != Some(true) {
                self.logs.on_channel_removed(channel);
            }
        }
        for (id, [start, position, base]) in self.logs.all() {
            let record = LogRecord {
                epoch: id.epoch.number(),
                reader: id.reader,
                start,
                position,
                base,
            };
            push(&mut state.logs, LOG, &record);
        }
        for (at, name, position) in self.keys.all() {
            let record = KeyRecord {
                channel: name.channel.to_string(),
                key: name.key.to_string(),
                is_numbered: position.is_some(),
                offset: position.map_or(0, |position| position.offset),
                epoch: position.map_or(0, |position| position.epoch.number()),
                age: millis(now.saturating_sub(at)),
            };
            state.push(KEY, &record);
        }
        if let Some(remaining) = present {
            self.save_members(&mut state, now, remaining);
        }
        state
    }

    fn save_members(&self, state: &mut SavedState, now: Duration, remaining: Duration) {
        let predecessor_members: BTreeMap<(&str, &str), Duration> = self
            .predecessor_members
            .all()
            .map(|(expires_at, channel, client)| ((&**channel, &**client), expires_at))
            .collect();
        for channel in self.channels.iter().flatten() {
            for (client, info) in channel.members() {
                // Members of this process's own predecessor retain their expiry.
                let expires_at = predecessor_members.get(&(&*channel.name, &**client));
                let remaining = expires_at.map_or(remaining, |expires_at| expires_at.saturating_sub(now));
                let record = MemberRecord {
                    channel: channel.name.to_string(),
                    info: Some(ClientInfo::clone(info)),
                    remaining: millis(remaining),
                };
                state.push(MEMBER, &record);
            }
        }
    }

    /// Restores the channels, keys and members of a predecessor, `elapsed` after it has written them. `options` returns the options of a
    /// channel; a channel without options or without a history is omitted. Returns the number of restored channels.
    pub fn restore(
        &mut self,
        records: Vec<StateRecord>,
        now: Duration,
        elapsed: Duration,
        window: Duration,
        options: impl Fn(&str) -> Option<ChannelOptions>,
    ) -> usize {
        let mut keys = Vec::new();
        let mut members = Vec::new();
        let mut restored = 0;
        let mut omitted_positions = Vec::new();
        for record in records {
            match record.0 {
                RecordKind::Channel(record) => {
                    let log_position = (Epoch::new(record.epoch), record.top);
                    let fed = record.fed.iter().map(|fed| (Epoch::new(fed.epoch), fed.offset));
                    let positions: Vec<_> = fed
                        .chain(record.uses_log_offsets.then_some(log_position))
                        .collect();
                    let options = options(&record.name);
                    let index =
                        options.and_then(|options| self.restore_channel(record, options, now, elapsed));
                    restored += usize::from(index.is_some());
                    if index.is_none() {
                        omitted_positions.extend(positions);
                    }
                }
                RecordKind::ChannelKey(record) => keys.push(record),
                RecordKind::Member(record) => members.push(record),
                RecordKind::Log(record) => {
                    let id = LogId {
                        epoch: Epoch::new(record.epoch),
                        reader: record.reader,
                    };
                    self.logs
                        .restore(id, [record.start, record.position, record.base], now);
                }
            }
        }
        for (epoch, offset) in omitted_positions {
            self.logs.raise_base(epoch, offset);
        }
        // Keys are restored in the order of their times, also those of several workers.
        keys.sort_by_key(|key| std::cmp::Reverse(key.age));
        for record in keys {
            let age = Duration::from_millis(record.age).saturating_add(elapsed);
            if age >= window || record.key.len() > limits::KEY_BYTES {
                continue;
            }
            let position = record.is_numbered.then(|| StreamPosition {
                offset: record.offset,
                epoch: Epoch::new(record.epoch),
            });
            let key = ChannelKey::new(record.channel.into(), record.key.into());
            self.keys.restore(key, position, window, now.saturating_sub(age));
        }
        // Members follow the channels, which then have their positions.
        for record in members {
            let remaining = Duration::from_millis(record.remaining).saturating_sub(elapsed);
            let options = options(&record.channel).filter(|_| !remaining.is_zero());
            if let (Some(options), Some(info)) = (options, record.info) {
                self.restore_member(record.channel, info, options, now, now.saturating_add(remaining));
            }
        }
        restored
    }

    fn restore_channel(
        &mut self,
        record: ChannelRecord,
        options: ChannelOptions,
        now: Duration,
        elapsed: Duration,
    ) -> Option<u32> {
        let history_options = options.history?;
        let retained_count = u64::try_from(record.retained.len()).ok()?;
        // The floor of a log's channel may be above its position, up to a record that has not arrived.
        let is_complete = retained_count <= record.top
            && (record.floor <= record.top || record.uses_log_offsets)
            && record.top <= MAX_OFFSET;
        if !is_complete || self.names.contains_key(&*record.name) || self.names.len() >= self.channel_limit {
            return None;
        }
        let at = |age: u64| now.saturating_sub(Duration::from_millis(age).saturating_add(elapsed));
        let is_retained = |retained: &PublicationRecord| {
            Duration::from_millis(retained.age).saturating_add(elapsed) < history_options.ttl
        };
        let (records, mut floor) =
            numbered(record.retained, record.top, record.floor, record.uses_log_offsets)?;
        let expired = records
            .iter()
            .take_while(|retained| !is_retained(retained))
            .count();
        if let Some(last) = expired.checked_sub(1).and_then(|last| records.get(last)) {
            floor = floor.max(last.number);
        }
        // The oldest are first. Times before the start of this clock count as its start.
        let retained = records.into_iter().skip(expired);
        let retained = retained.map(|retained| {
            let (bytes, at) = (retained.data.len(), at(retained.age));
            let published = Arc::new(Published {
                data: retained.data,
                info: retained.info,
                tags: retained.tags,
                time: retained.time,
                ..Published::default()
            });
            (retained.number, published, bytes, at)
        });
        let position = StreamPosition {
            offset: record.top,
            epoch: Epoch::new(record.epoch),
        };
        let mut history = History::restored(position, floor, history_options);
        retained.for_each(|(number, item, bytes, at)| history.push_retained(number, item, bytes, at));
        history.expire(now);
        let name: Arc<str> = record.name.into();
        let mut channel = Channel::new(Arc::clone(&name), options, position.epoch, at(record.age));
        channel.set_history(history, record.uses_log_offsets);
        channel.set_any_origin();
        for fed in record.fed {
            channel.record_fed_before(Epoch::new(fed.epoch), fed.offset);
        }
        if record.is_mixed {
            channel.set_mixed();
        }
        Some(self.add(name, channel))
    }

    /// Returns the next epoch of this shard.
    pub(super) fn draw_epoch(&mut self) -> Epoch {
        self.epochs_drawn += 1;
        epoch(self.seed, self.epochs_drawn)
    }
}

/// Returns the retained publications of a channel at this position with their offsets, and its floor. `None`: they are invalid.
fn numbered(
    mut records: Vec<PublicationRecord>,
    top: u64,
    mut floor: u64,
    uses_log_offsets: bool,
) -> Option<(Vec<PublicationRecord>, u64)> {
    let before = top - u64::try_from(records.len()).ok()?;
    let is_counted = match records.first() {
        Some(first) => first.number == 0,
        None => !uses_log_offsets,
    };
    if is_counted {
        // Older versions did not raise the floor either.
        floor = floor.max(before);
    }
    for (retained, counted) in records.iter_mut().zip(before + 1..) {
        if retained.number == 0 {
            retained.number = counted;
        }
    }
    let is_sorted = records.is_sorted_by(|one, next| one.number < next.number);
    let is_below = records.last().is_none_or(|last| last.number <= top);
    (is_sorted && is_below).then_some((records, floor))
}

impl SavedState {
    /// Adds a record. Returns `false` if there is no room.
    fn push(&mut self, kind: u8, record: &impl Message) -> bool {
        push(&mut self.section, kind, record)
    }
}

fn push(section: &mut Vec<u8>, kind: u8, record: &impl Message) -> bool {
    let length = record.encoded_len();
    if section.len() + HEAD_BYTES + length > limits::STATE_BYTES {
        return false;
    }
    section.push(kind);
    // The length is below the limit, and that is below 4 GiB.
    section.extend_from_slice(&(length as u32).to_le_bytes());
    section.extend_from_slice(&record.encode_to_vec());
    true
}

impl Channel {
    /// Returns the record for a successor, without the name, or `None` if the channel has no offsets.
    fn history_now(&mut self, now: Duration) -> Option<ChannelRecord> {
        let last_used = self.last_used();
        let position = self.position()?;
        let uses_log_offsets = self.log_position().is_some();
        let is_mixed = self.is_mixed();
        let fed = self.log_positions().map(|(epoch, offset)| FedRecord {
            epoch: epoch.number(),
            offset,
        });
        let fed = fed.collect();
        let history = self.history_mut()?;
        history.expire(now);
        let retained = history.retained().map(|(number, item, at)| PublicationRecord {
            number,
            data: item.data.clone(),
            info: item.info.clone(),
            tags: item.tags.clone(),
            time: item.time,
            age: millis(now.saturating_sub(at)),
        });
        let retained = retained.collect();
        Some(ChannelRecord {
            name: String::new(),
            epoch: position.epoch.number(),
            top: position.offset,
            floor: history.floor(),
            retained,
            age: millis(now.saturating_sub(last_used)),
            uses_log_offsets,
            fed,
            is_mixed,
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const _: () = assert!(
    limits::STATE_BYTES < u32::MAX as usize,
    "a record's length has four bytes"
);
