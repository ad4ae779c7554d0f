//! The state of channels for the successor of this process: epochs, offsets, retained publications, idempotency keys, and members. Pure.
//!
//! ```text
//! record   kind (1 byte) ─ length (4 bytes, little endian) ─ Protobuf          a section is any number of them
//! ```
//!
//! Subscribers are not part of it: clients connect again. Members of channels are, for a successor that serves while their clients are
//! still connected to this process. Times are ages or what remains, since clocks of two processes differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::channel::Channel;
use super::idempotency::Key;
use super::{Home, LogId, epoch};
use crate::history::{Epoch, History, Place};
use crate::limits;
use crate::mail::Rules;
use crate::protocol::{ClientInfo, Published};

/// Of a record's head: its kind and its length.
const HEAD_BYTES: usize = 5;
/// Offsets beyond are none that were counted: the next ones would overflow.
const OFFSET_MOST: u64 = u64::MAX >> 1;
const CHANNEL: u8 = 1;
const KEY: u8 = 2;
const MEMBER: u8 = 3;
const LOG: u8 = 4;

/// A channel, a key or a member, as a predecessor had it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Channel(ChannelRecord),
    Key(KeyRecord),
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
    kept: Vec<PublicationRecord>,
    /// Milliseconds since it was last needed.
    #[prost(uint64, tag = "6")]
    age: u64,
    /// Its offsets are those of a log.
    #[prost(bool, tag = "7")]
    is_of_log: bool,
    /// The logs that have fed it.
    #[prost(message, repeated, tag = "8")]
    fed: Vec<FedRecord>,
    /// It assigns its offsets itself, whatever feeds it.
    #[prost(bool, tag = "9")]
    is_mixed: bool,
}

/// The newest record of a log that a channel was fed.
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
    /// Milliseconds since it was published.
    #[prost(uint64, tag = "5")]
    age: u64,
    /// Its offset. Zero: processes that wrote none counted by one up to the channel's position.
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
    /// Milliseconds since it was published.
    #[prost(uint64, tag = "6")]
    age: u64,
}

#[derive(Clone, PartialEq, Message)]
struct MemberRecord {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(message, optional, tag = "2")]
    info: Option<ClientInfo>,
    /// Milliseconds until it is present no longer, unless it connects.
    #[prost(uint64, tag = "3")]
    remaining: u64,
}

/// A section that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected records of channels, keys and members, found {0}")]
pub struct Unreadable(String);

/// The section that a home has written for its successor.
#[derive(Debug, Default)]
pub struct Saved {
    /// The section.
    pub section: Vec<u8>,
    /// Another section: the state of logs. It is of use only if the sections of all workers are there, since it includes that channels
    /// without a record here are in none of them.
    pub logs: Vec<u8>,
    /// Channels that did not fit ([`limits::STATE_BYTES`]): they start a new epoch.
    pub omitted: usize,
}

impl Record {
    /// The channel that it belongs to. `None`: it is needed by every worker.
    #[must_use]
    pub fn channel(&self) -> Option<&str> {
        match &self.0 {
            Kind::Channel(channel) => Some(&channel.name),
            Kind::Key(key) => Some(&key.channel),
            Kind::Member(member) => Some(&member.channel),
            Kind::Log(_) => None,
        }
    }

    /// Reads a section. Nothing is allocated that the section does not hold.
    ///
    /// # Errors
    /// [`Unreadable`]: a record is cut off, of another kind, or no Protobuf.
    pub fn read_all(mut section: &[u8]) -> Result<Vec<Record>, Unreadable> {
        let mut records = Vec::new();
        while !section.is_empty() {
            let cut_off = || Unreadable("the end within a record".to_owned());
            let (head, rest) = section.split_first_chunk::<HEAD_BYTES>().ok_or_else(cut_off)?;
            let [kind, length @ ..] = *head;
            let length = u32::from_le_bytes(length) as usize;
            let (body, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
            let broken = |error: prost::DecodeError| Unreadable(error.to_string());
            records.push(Record(match kind {
                CHANNEL => Kind::Channel(ChannelRecord::decode(body).map_err(broken)?),
                KEY => Kind::Key(KeyRecord::decode(body).map_err(broken)?),
                MEMBER => Kind::Member(MemberRecord::decode(body).map_err(broken)?),
                LOG => Kind::Log(LogRecord::decode(body).map_err(broken)?),
                other => return Err(Unreadable(format!("a record of kind {other}"))),
            }));
            section = rest;
        }
        Ok(records)
    }
}

impl Home {
    /// Ends the numbering of publications: from now on those that would be numbered, or that have a key, are refused
    /// ([`Told::Draining`](crate::mail::Told::Draining)), so that a successor continues where this stopped.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Writes the channels that have numbers, and keys of publications; with `present`, also the members of channels, whose clients
    /// connect to the successor within this time. Members that do not fit are left out.
    #[must_use]
    pub fn save(&mut self, now: Duration, present: Option<Duration>) -> Saved {
        let mut saved = Saved::default();
        for channel in self.channels.iter_mut().flatten() {
            let record = channel.history_now(now).map(|history| ChannelRecord {
                name: channel.name.to_string(),
                ..history
            });
            let is_saved = record.as_ref().map(|record| saved.push(CHANNEL, record));
            saved.omitted += usize::from(is_saved == Some(false));
            if is_saved != Some(true) {
                self.logs.removed(channel);
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
            push(&mut saved.logs, LOG, &record);
        }
        for (at, name, place) in self.keys.all() {
            let record = KeyRecord {
                channel: name.channel.to_string(),
                key: name.key.to_string(),
                is_numbered: place.is_some(),
                offset: place.map_or(0, |place| place.offset),
                epoch: place.map_or(0, |place| place.epoch.number()),
                age: millis(now.saturating_sub(at)),
            };
            saved.push(KEY, &record);
        }
        if let Some(remaining) = present {
            self.save_members(&mut saved, now, remaining);
        }
        saved
    }

    fn save_members(&self, saved: &mut Saved, now: Duration, remaining: Duration) {
        let moving: BTreeMap<(&str, &str), Duration> = self
            .moving
            .all()
            .map(|(until, channel, client)| ((&**channel, &**client), until))
            .collect();
        for channel in self.channels.iter().flatten() {
            for (client, info) in channel.members() {
                // Those of this process's own predecessor have no more time than they had.
                let until = moving.get(&(&*channel.name, &**client));
                let remaining = until.map_or(remaining, |until| until.saturating_sub(now));
                let record = MemberRecord {
                    channel: channel.name.to_string(),
                    info: Some(ClientInfo::clone(info)),
                    remaining: millis(remaining),
                };
                saved.push(MEMBER, &record);
            }
        }
    }

    /// Takes over channels, keys and members of a predecessor, `elapsed` after it has written them. `rules` are the channel's; a channel that
    /// `None` is returned for, or that has no numbers any more, is left out. Returns how many channels there are of it.
    pub fn restore(
        &mut self,
        records: Vec<Record>,
        (now, elapsed): (Duration, Duration),
        window: Duration,
        rules: impl Fn(&str) -> Option<Rules>,
    ) -> usize {
        let mut keys = Vec::new();
        let mut members = Vec::new();
        let mut restored = 0;
        let mut left_out = Vec::new();
        for record in records {
            match record.0 {
                Kind::Channel(record) => {
                    let own = (Epoch::new(record.epoch), record.top);
                    let fed = record.fed.iter().map(|fed| (Epoch::new(fed.epoch), fed.offset));
                    let positions: Vec<_> = fed.chain(record.is_of_log.then_some(own)).collect();
                    let rules = rules(&record.name);
                    let index = rules.and_then(|rules| self.restore_channel(record, rules, now, elapsed));
                    restored += usize::from(index.is_some());
                    if index.is_none() {
                        left_out.extend(positions);
                    }
                }
                Kind::Key(record) => keys.push(record),
                Kind::Member(record) => members.push(record),
                Kind::Log(record) => {
                    let id = LogId {
                        epoch: Epoch::new(record.epoch),
                        reader: record.reader,
                    };
                    self.logs
                        .restore(id, [record.start, record.position, record.base], now);
                }
            }
        }
        for (epoch, offset) in left_out {
            self.logs.raise_base(epoch, offset);
        }
        // They are remembered in the order of their times, also those of several workers.
        keys.sort_by_key(|key| std::cmp::Reverse(key.age));
        for record in keys {
            let age = Duration::from_millis(record.age).saturating_add(elapsed);
            if age >= window || record.key.len() > limits::KEY_BYTES {
                continue;
            }
            let place = record.is_numbered.then(|| Place {
                offset: record.offset,
                epoch: Epoch::new(record.epoch),
            });
            let key = Key::new(record.channel.into(), record.key.into());
            self.keys.restore(key, place, window, now.saturating_sub(age));
        }
        // Behind the channels, which have their numbers then.
        for record in members {
            let remaining = Duration::from_millis(record.remaining).saturating_sub(elapsed);
            let rules = rules(&record.channel).filter(|_| !remaining.is_zero());
            if let (Some(rules), Some(info)) = (rules, record.info) {
                self.restore_member(record.channel, info, rules, (now, now.saturating_add(remaining)));
            }
        }
        restored
    }

    fn restore_channel(
        &mut self,
        record: ChannelRecord,
        rules: Rules,
        now: Duration,
        elapsed: Duration,
    ) -> Option<u32> {
        let keep = rules.keep?;
        let kept_before = u64::try_from(record.kept.len()).ok()?;
        // A channel of a log may recover nothing below a record that has not arrived.
        let is_whole = kept_before <= record.top
            && (record.floor <= record.top || record.is_of_log)
            && record.top <= OFFSET_MOST;
        if !is_whole || self.names.contains_key(&*record.name) || self.names.len() >= self.most {
            return None;
        }
        let at = |age: u64| now.saturating_sub(Duration::from_millis(age).saturating_add(elapsed));
        let is_kept =
            |kept: &PublicationRecord| Duration::from_millis(kept.age).saturating_add(elapsed) < keep.time;
        let (records, mut floor) = numbered(record.kept, (record.top, record.floor), record.is_of_log)?;
        let expired = records.iter().take_while(|kept| !is_kept(kept)).count();
        if let Some(last) = expired.checked_sub(1).and_then(|last| records.get(last)) {
            floor = floor.max(last.number);
        }
        // The oldest are first. A time before this clock's beginning counts as its beginning.
        let kept = records.into_iter().skip(expired);
        let kept = kept.map(|kept| {
            let (bytes, at) = (kept.data.len(), at(kept.age));
            let published = Arc::new(Published {
                data: kept.data,
                info: kept.info,
                tags: kept.tags,
                time: kept.time,
            });
            (kept.number, published, bytes, at)
        });
        let place = Place {
            offset: record.top,
            epoch: Epoch::new(record.epoch),
        };
        let mut history = History::restored(place, floor, keep);
        kept.for_each(|(number, item, bytes, at)| history.add_kept(number, item, bytes, at));
        history.expire(now);
        let name: Arc<str> = record.name.into();
        let mut channel = Channel::new(Arc::clone(&name), rules, place.epoch, at(record.age));
        channel.set_history(history, record.is_of_log);
        channel.set_any_origin();
        for fed in record.fed {
            channel.note_fed_before(Epoch::new(fed.epoch), fed.offset);
        }
        if record.is_mixed {
            channel.set_mixed();
        }
        Some(self.add(name, channel))
    }

    /// The next epoch of this home.
    pub(super) fn draw_epoch(&mut self) -> Epoch {
        self.drawn += 1;
        epoch(self.seed, self.drawn)
    }
}

/// Returns retained publications with their offsets, and the floor, of a channel at this position. `None`: they are invalid.
fn numbered(
    mut records: Vec<PublicationRecord>,
    (top, mut floor): (u64, u64),
    is_of_log: bool,
) -> Option<(Vec<PublicationRecord>, u64)> {
    let before = top - u64::try_from(records.len()).ok()?;
    let is_counted = match records.first() {
        Some(first) => first.number == 0,
        None => !is_of_log,
    };
    if is_counted {
        // Such a process did not raise the floor either.
        floor = floor.max(before);
    }
    for (kept, counted) in records.iter_mut().zip(before + 1..) {
        if kept.number == 0 {
            kept.number = counted;
        }
    }
    let is_sorted = records.is_sorted_by(|one, next| one.number < next.number);
    let is_below = records.last().is_none_or(|last| last.number <= top);
    (is_sorted && is_below).then_some((records, floor))
}

impl Saved {
    /// Adds a record. `false`: there is no room for it.
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
    // Below the limit, which is far below 4 GiB.
    section.extend_from_slice(&(length as u32).to_le_bytes());
    section.extend_from_slice(&record.encode_to_vec());
    true
}

impl Channel {
    /// Returns the record for a successor, without the name. `None`: the channel has no numbers.
    fn history_now(&mut self, now: Duration) -> Option<ChannelRecord> {
        let touched = self.touched();
        let place = self.place()?;
        let is_of_log = self.log_place().is_some();
        let is_mixed = self.is_mixed();
        let fed = self.log_positions().map(|(epoch, offset)| FedRecord {
            epoch: epoch.number(),
            offset,
        });
        let fed = fed.collect();
        let history = self.history_mut()?;
        history.expire(now);
        let kept = history.all_kept().map(|(number, item, at)| PublicationRecord {
            number,
            data: item.data.clone(),
            info: item.info.clone(),
            tags: item.tags.clone(),
            time: item.time,
            age: millis(now.saturating_sub(at)),
        });
        let kept = kept.collect();
        Some(ChannelRecord {
            name: String::new(),
            epoch: place.epoch.number(),
            top: place.offset,
            floor: history.floor(),
            kept,
            age: millis(now.saturating_sub(touched)),
            is_of_log,
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
