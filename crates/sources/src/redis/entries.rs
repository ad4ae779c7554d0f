//! Entries of streams, and replies about them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use redis::{FromRedisValue, Value, from_redis_value};

/// The identifier of an entry: when it was added, in milliseconds, and its number among those of the same millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(crate) millis: u64,
    pub(crate) sequence: u64,
}

impl EntryId {
    pub(crate) fn parse(text: &str) -> Option<EntryId> {
        let (millis, sequence) = text.split_once('-').unwrap_or((text, "0"));
        Some(EntryId {
            millis: millis.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    /// Returns the age of its entry at this instant since the epoch.
    pub(super) fn age(self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.millis))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

/// An entry of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: EntryId,
    /// `None`: it was deleted after it was delivered.
    pub(super) fields: Option<Vec<(String, Bytes)>>,
}

/// The reply to `XAUTOCLAIM`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    /// The position at which the next call continues; zero at the end.
    pub(super) next: EntryId,
    pub(super) entries: Vec<Entry>,
    /// Entries that were pending and are deleted.
    pub(super) deleted: usize,
}

/// The entries in a reply to `XREADGROUP` of one stream. `None`: it is not such a reply.
pub(super) fn read_reply(reply: Value) -> Option<Vec<Entry>> {
    match reply {
        Value::Nil => Some(Vec::new()),
        Value::Map(mut streams) => entries(streams.pop()?.1),
        Value::Array(mut streams) => match streams.pop() {
            None => Some(Vec::new()),
            Some(Value::Array(mut stream)) if stream.len() == 2 => entries(stream.pop()?),
            Some(_) => None,
        },
        _ => None,
    }
}

/// Parses a reply to `XAUTOCLAIM`. `None`: it is not such a reply.
pub(super) fn claim_reply(reply: Value) -> Option<Claimed> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let mut parts = parts.into_iter();
    let next = entry_id(&parts.next()?)?;
    let Value::Array(claimed) = parts.next()? else {
        return None;
    };
    // Redis 6.2 has nothing in the place of a deleted entry; later ones name them in the end.
    let count = claimed.len();
    let claimed: Vec<Value> = claimed.into_iter().filter(|value| *value != Value::Nil).collect();
    let mut deleted = count - claimed.len();
    if let Some(Value::Array(ids)) = parts.next() {
        deleted += ids.len();
    }
    Some(Claimed {
        next,
        entries: entries(Value::Array(claimed))?,
        deleted,
    })
}

fn entries(value: Value) -> Option<Vec<Entry>> {
    match value {
        Value::Array(entries) => entries.into_iter().map(entry).collect(),
        Value::Nil => Some(Vec::new()),
        _ => None,
    }
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else {
        return None;
    };
    let mut parts = parts.into_iter();
    let id = entry_id(&parts.next()?)?;
    let fields = match parts.next()? {
        Value::Nil => None,
        Value::Array(fields) => {
            let mut fields = fields.into_iter();
            let mut pairs = Vec::with_capacity(fields.len() / 2);
            while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                pairs.push((text(name)?, bytes(value)?));
            }
            Some(pairs)
        }
        Value::Map(fields) => {
            let pairs = fields.into_iter();
            let pairs = pairs.map(|(name, value)| Some((text(name)?, bytes(value)?)));
            Some(pairs.collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some(Entry { id, fields })
}

fn entry_id(value: &Value) -> Option<EntryId> {
    match value {
        Value::BulkString(text) => EntryId::parse(str::from_utf8(text).ok()?),
        Value::SimpleString(text) => EntryId::parse(text),
        _ => None,
    }
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into()),
        _ => None,
    }
}

/// Text, in place: nearly all is UTF-8.
fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// A consumer group, from `XINFO GROUPS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupInfo {
    pub(super) last_delivered: EntryId,
    /// Entries that were delivered to the group, or deleted before; from Redis 7.0 on, and if Redis knows it.
    pub(super) read: Option<u64>,
    /// Entries that were not delivered to the group; as above.
    pub(super) lag: Option<u64>,
}

/// Finds a group in the reply to `XINFO GROUPS`.
pub(super) fn group_info(reply: Vec<BTreeMap<String, Value>>, name: &str) -> Option<GroupInfo> {
    let mut group = reply.into_iter().find(|group| {
        let found = group.get("name").cloned();
        found
            .and_then(bytes)
            .is_some_and(|found| *found == *name.as_bytes())
    })?;
    Some(GroupInfo {
        last_delivered: entry_id(group.get("last-delivered-id")?)?,
        read: number(&mut group, "entries-read"),
        lag: number(&mut group, "lag"),
    })
}

/// A stream, from `XINFO STREAM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamInfo {
    /// The newest entry that there ever was.
    pub(super) last_generated: EntryId,
    /// The oldest entry that is retained.
    pub(super) first: Option<EntryId>,
    pub(super) length: u64,
    /// Entries that were ever added; from Redis 7.0 on.
    pub(super) added: Option<u64>,
}

impl StreamInfo {
    pub(super) fn parse(mut stream: BTreeMap<String, Value>) -> Option<StreamInfo> {
        let first = stream.remove("first-entry").and_then(entry);
        Some(StreamInfo {
            last_generated: entry_id(stream.get("last-generated-id")?)?,
            first: first.map(|entry| entry.id),
            length: number(&mut stream, "length")?,
            added: number(&mut stream, "entries-added"),
        })
    }

    /// The number of entries that were deleted before they were delivered to the group. `None`: unknown.
    pub(super) fn lost(&self, group: &GroupInfo) -> Option<u64> {
        let is_behind = self
            .first
            .map_or(group.last_delivered < self.last_generated, |first| {
                group.last_delivered < first
            });
        if !is_behind {
            return Some(0);
        }
        let deleted = self.added?.checked_sub(self.length)?;
        Some(deleted.saturating_sub(group.read?))
    }
}

fn number(map: &mut BTreeMap<String, Value>, name: &str) -> Option<u64> {
    from_value(map.remove(name)?)
}

fn from_value<T: FromRedisValue>(value: Value) -> Option<T> {
    match value {
        Value::Nil => None,
        value => from_redis_value(value).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Claimed, Entry, EntryId, GroupInfo, StreamInfo, claim_reply, read_reply};
    use redis::Value;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn id(text: &str) -> EntryId {
        EntryId::parse(text).expect("an identifier")
    }

    #[test]
    fn identifiers_are_ordered_by_number() {
        assert!(id("9-1") < id("10-0") && id("10-2") < id("10-10"));
        assert_eq!(id("7").to_string(), "7-0");
        assert_eq!(EntryId::parse("a-1"), None);
    }

    #[test]
    fn entries_are_parsed_in_both_protocols() {
        let fields = Value::Array(vec![bulk("data"), bulk("1")]);
        let list = Value::Array(vec![
            Value::Array(vec![bulk("1-1"), fields]),
            Value::Array(vec![bulk("1-2"), Value::Nil]),
        ]);
        let expected = vec![
            Entry {
                id: id("1-1"),
                fields: Some(vec![("data".into(), "1".into())]),
            },
            Entry {
                id: id("1-2"),
                fields: None,
            },
        ];
        let array = Value::Array(vec![Value::Array(vec![bulk("s"), list.clone()])]);
        assert_eq!(read_reply(array).as_ref(), Some(&expected));
        assert_eq!(
            read_reply(Value::Map(vec![(bulk("s"), list.clone())])),
            Some(expected)
        );
        assert_eq!(read_reply(Value::Nil), Some(Vec::new()));
        assert_eq!(read_reply(Value::Okay), None);
        let claims = Value::Array(vec![
            bulk("0-0"),
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![bulk("1-3")]),
        ]);
        let expected = Claimed {
            next: EntryId::default(),
            entries: Vec::new(),
            deleted: 2,
        };
        assert_eq!(claim_reply(claims), Some(expected));
    }

    #[test]
    fn deleted_entries_are_lost_unless_they_were_delivered() {
        let stream = StreamInfo {
            last_generated: id("9-0"),
            first: Some(id("6-0")),
            length: 4,
            added: Some(9),
        };
        let group = |last, read| GroupInfo {
            last_delivered: id(last),
            read,
            lag: None,
        };
        assert_eq!(stream.lost(&group("3-0", Some(3))), Some(2));
        assert_eq!(stream.lost(&group("5-0", Some(5))), Some(0));
        assert_eq!(stream.lost(&group("7-0", Some(7))), Some(0));
        assert_eq!(stream.lost(&group("3-0", None)), None);
        let empty = StreamInfo {
            first: None,
            length: 0,
            ..stream
        };
        assert_eq!(empty.lost(&group("9-0", Some(9))), Some(0));
        assert_eq!(empty.lost(&group("8-0", Some(8))), Some(1));
    }
}
