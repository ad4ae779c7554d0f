//! Reads of streams: their ends, records from a position on, and parts from a position down.

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value, cmd};
use ringmain_cluster::log::{Binding, FollowFrom, Opened, Record};

use super::number::{pack, unpack};
use super::server::BLOCK;
use super::sole::CHECK_INTERVAL;
use crate::limits;
use crate::log::follows::Opening;
use crate::redis::EntryId;

/// Entries that one read of a part returns at most.
const TAIL_ENTRIES: usize = 256;

/// An entry of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StreamEntry {
    pub(super) id: EntryId,
    pub(super) bytes: Bytes,
}

impl StreamEntry {
    /// Returns the record. `None`: the entry has no number, and its writer appends it again.
    pub(super) fn record(&self) -> Option<Record> {
        Some(Record::read(pack(self.id)?, self.id.millis as i64, &self.bytes))
    }
}

/// The ends of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// The oldest entry that is retained.
    pub(super) first: Option<EntryId>,
    /// The newest entry that there ever was; zero for none.
    pub(super) last: EntryId,
}

impl Ends {
    /// Reads the reply to [`ends_command`].
    pub(super) fn of(reply: Result<Value, RedisError>) -> Result<Ends, RedisError> {
        let reply = match reply {
            Ok(reply) => reply,
            // No entry was ever appended.
            Err(error) if error.to_string().contains("no such key") => return Ok(Ends::default()),
            Err(error) => return Err(error),
        };
        let parsed = pairs(reply).map(|pairs| {
            let mut ends = Ends::default();
            for (name, value) in pairs {
                match &*name {
                    b"last-generated-id" => ends.last = entry_id(&value).unwrap_or_default(),
                    b"first-entry" => {
                        let Value::Array(parts) = value else { continue };
                        ends.first = parts.first().and_then(entry_id);
                    }
                    _ => {}
                }
            }
            ends
        });
        parsed.ok_or_else(unexpected)
    }

    /// Returns the number of the oldest record, or of the first one that may follow.
    pub(super) fn first_number(&self) -> u64 {
        self.first
            .and_then(pack)
            .unwrap_or_else(|| self.last_number() + 1)
    }

    /// Returns the number of the newest record; 0 for none. An entry without a number counts as the one before.
    pub(super) fn last_number(&self) -> u64 {
        pack(self.last).unwrap_or_else(|| {
            let last = EntryId {
                sequence: self.last.sequence.min(super::number::SEQUENCES - 1),
                ..self.last
            };
            pack(last).unwrap_or(0)
        })
    }
}

pub(super) fn unexpected() -> RedisError {
    (
        redis::ErrorKind::UnexpectedReturnType,
        "an unexpected reply about a stream",
    )
        .into()
}

/// Executes a command, behind `ASKING` if the slot moves to the server.
pub(super) async fn query(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    is_asking: bool,
) -> Result<Value, RedisError> {
    if !is_asking {
        return command.query_async(connection).await;
    }
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    pipeline.cmd("ASKING").add_command(command.clone());
    let replies: Vec<Result<Value, RedisError>> = pipeline.query_async(connection).await?;
    replies
        .into_iter()
        .next_back()
        .unwrap_or_else(|| Err(unexpected()))
}

/// The command for the ends of a stream.
pub(super) fn ends_command(stream: &str) -> Cmd {
    let mut command = cmd("XINFO");
    command.arg("STREAM").arg(stream);
    command
}

/// Reads the entries behind positions, and waits for some if there are none.
pub(super) fn read_command<'s>(
    streams: impl Iterator<Item = (&'s str, EntryId)> + Clone,
    count: usize,
) -> Cmd {
    let mut command = cmd("XREAD");
    command.arg("COUNT").arg(count);
    command.arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS");
    for (stream, _) in streams.clone() {
        command.arg(stream);
    }
    for (_, last) in streams {
        command.arg(last.to_string());
    }
    command
}

/// The command for the newest entries of a stream down to this one.
pub(super) fn check_command(stream: &str, base: EntryId, count: usize) -> Cmd {
    let mut command = cmd("XREVRANGE");
    command.arg(stream).arg("+").arg(base.to_string());
    command.arg("COUNT").arg(count);
    command
}

/// Reads the reply to [`check_command`], in ascending order.
pub(super) fn check_reply(reply: Value) -> Option<Vec<StreamEntry>> {
    let mut entries = entries_of(reply)?;
    entries.reverse();
    Some(entries)
}

/// The position directly before a number: a read behind it begins with that number.
pub(super) fn before(number: u64) -> EntryId {
    let id = unpack(number);
    match id.sequence.checked_sub(1) {
        Some(sequence) => EntryId { sequence, ..id },
        None => EntryId {
            millis: id.millis - 1,
            sequence: u64::MAX,
        },
    }
}

/// Reads the reply to [`read_command`]: entries by the key of their stream.
pub(super) fn read_reply(reply: Value) -> Option<Vec<(Bytes, Vec<StreamEntry>)>> {
    if reply == Value::Nil {
        return Some(Vec::new());
    }
    let streams = match reply {
        Value::Array(streams) => {
            let pairs = streams.into_iter().map(|stream| match stream {
                Value::Array(pair) => <[Value; 2]>::try_from(pair)
                    .ok()
                    .map(|[name, entries]| (name, entries)),
                _ => None,
            });
            pairs.collect::<Option<Vec<_>>>()?
        }
        Value::Map(streams) => streams,
        _ => return None,
    };
    let read = streams
        .into_iter()
        .map(|(name, entries)| Some((bytes(name)?, entries_of(entries)?)));
    read.collect()
}

fn entries_of(value: Value) -> Option<Vec<StreamEntry>> {
    let Value::Array(entries) = value else {
        return None;
    };
    entries.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Option<StreamEntry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let id = entry_id(&id)?;
    // An entry of another program has other fields: it is no entry of a log.
    let bytes = match fields {
        Value::Array(fields) => <[Value; 2]>::try_from(fields)
            .ok()
            .and_then(|[_, value]| bytes(value)),
        _ => None,
    };
    Some(StreamEntry {
        id,
        bytes: bytes.unwrap_or_default(),
    })
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

/// Names and values, in either version of the protocol.
fn pairs(value: Value) -> Option<Vec<(Bytes, Value)>> {
    match value {
        Value::Map(pairs) => pairs
            .into_iter()
            .map(|(name, value)| Some((bytes(name)?, value)))
            .collect(),
        Value::Array(parts) => {
            let mut parts = parts.into_iter();
            let mut pairs = Vec::new();
            while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                pairs.push((bytes(name)?, value));
            }
            Some(pairs)
        }
        _ => None,
    }
}

/// A part of a stream, in order.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) entries: Vec<StreamEntry>,
    /// The stream has nothing before it.
    pub(super) is_first: bool,
}

/// Reads the part of a stream that is directly below a number, of this size in bytes approximately. `sizes`: those of other entries.
pub(super) async fn tail(
    mut connection: MultiplexedConnection,
    (stream, is_asking): (&str, bool),
    number: u64,
    size: usize,
    mut sizes: ReadSize,
) -> Result<Part, RedisError> {
    let mut part = Part::default();
    let mut end = before(number);
    let mut read = 0;
    // Older entries may be much larger than the newest ones: few show their size.
    let mut most = limits::LOG_READ_RECORDS[0];
    // Descending.
    while read < size && !part.is_first {
        let count = sizes.count_within(size - read).min(most);
        most = TAIL_ENTRIES;
        let mut command = cmd("XREVRANGE");
        command
            .arg(stream)
            .arg(end.to_string())
            .arg("-")
            .arg("COUNT")
            .arg(count);
        let entries = query(&mut connection, &command, is_asking).await?;
        let entries = entries_of(entries).ok_or_else(unexpected)?;
        part.is_first = entries.len() < count;
        sizes.note(entries.len(), entries.iter().map(|entry| entry.bytes.len()).sum());
        for entry in entries {
            if read >= size {
                part.is_first = false;
                break;
            }
            end = match entry.id.sequence.checked_sub(1) {
                Some(sequence) => EntryId { sequence, ..entry.id },
                None => EntryId {
                    millis: entry.id.millis.saturating_sub(1),
                    sequence: u64::MAX,
                },
            };
            read += entry.bytes.len().max(1);
            part.entries.push(entry);
        }
    }
    part.entries.reverse();
    Ok(part)
}

/// The number of entries of each stream that one read returns, by the size of those before.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSize {
    average: usize,
}

impl Default for ReadSize {
    fn default() -> ReadSize {
        ReadSize { average: 512 }
    }
}

impl ReadSize {
    /// Notes the reply to a read.
    pub(super) fn note(&mut self, entries: usize, bytes: usize) {
        if let Some(average) = bytes.checked_div(entries) {
            // Larger ones count at once.
            self.average = average.max((3 * self.average + average) / 4);
        }
    }

    /// Returns the number of entries of each of so many streams.
    pub(super) fn count(&self, streams: usize) -> usize {
        let [least, most] = limits::LOG_READ_RECORDS;
        (limits::LOG_READ_BYTES / (self.average.max(1) * streams.max(1))).clamp(least, most)
    }

    /// Returns the number of entries that have so many bytes: one at least.
    fn count_within(&self, bytes: usize) -> usize {
        (bytes / self.average.max(1)).clamp(1, TAIL_ENTRIES)
    }
}

/// The state of a partition at its opening.
pub(super) fn opened_event(opening: &Opening, binding: Binding, ends: &Ends, now_ms: i64) -> Opened {
    let first = ends.first_number();
    let requested = match opening.from {
        FollowFrom::Number(number) => number,
        FollowFrom::Recent(time) => {
            // The time of an entry may be earlier than that of its append.
            let time = time + CHECK_INTERVAL;
            let millis = now_ms.unsigned_abs().saturating_sub(time.as_millis() as u64);
            // The clock of a server may be behind the newest entry, and another server's behind this one's.
            let recent = pack(EntryId { millis, sequence: 0 }).unwrap_or(0);
            recent.min(ends.last_number() + 1)
        }
    };
    Opened {
        partition: opening.partition,
        binding,
        first,
        end: ends.last_number(),
        from: requested.max(first),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::Value;
    use ringmain_cluster::log::{Binding, FollowFrom, Partition};

    use super::{Ends, ReadSize, StreamEntry, TAIL_ENTRIES, before, opened_event, read_command, read_reply};
    use crate::limits::{LOG_READ_BYTES, LOG_READ_RECORDS};
    use crate::log::follows::Opening;
    use crate::log::redis::number::{SEQUENCES, unpack};
    use crate::log::redis::sole::CHECK_INTERVAL;
    use crate::redis::EntryId;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn id(text: &str) -> EntryId {
        EntryId::parse(text).expect("an identifier")
    }

    fn entry(id: &str, fields: &[&str]) -> Value {
        let fields = fields.iter().map(|field| bulk(field)).collect();
        Value::Array(vec![bulk(id), Value::Array(fields)])
    }

    #[test]
    fn entries_are_read_in_both_protocols() {
        let entries = || {
            Value::Array(vec![
                entry("1-1", &["e", "x"]),
                entry("1-2", &["a", "b", "c", "d"]),
            ])
        };
        let list = Value::Array(vec![Value::Array(vec![bulk("s"), entries()])]);
        let map = Value::Map(vec![(bulk("s"), entries())]);
        for reply in [list, map] {
            let read = read_reply(reply).expect("a reply");
            let expected = [("1-1", "x"), ("1-2", "")].map(|(text, bytes)| StreamEntry {
                id: id(text),
                bytes: bytes.into(),
            });
            assert_eq!(read, [("s".into(), expected.into())]);
        }
        assert_eq!(read_reply(Value::Nil), Some(Vec::new()));
        for reply in [Value::Okay, Value::Array(vec![bulk("s")])] {
            assert_eq!(read_reply(reply), None);
        }
    }

    #[test]
    fn reads_begin_with_a_number() {
        assert_eq!(before(1), unpack(0));
        let first_of_millisecond = before(7 * SEQUENCES);
        assert!(first_of_millisecond < unpack(7 * SEQUENCES));
        assert!(first_of_millisecond > unpack(7 * SEQUENCES - 1));
        let streams = [("a", id("1-2")), ("b", id("3-4"))];
        let command = read_command(streams.into_iter(), 5).get_packed_command();
        let text = String::from_utf8_lossy(&command).replace("\r\n", " ");
        assert!(text.ends_with("$7 STREAMS $1 a $1 b $3 1-2 $3 3-4 "), "{text}");
    }

    #[test]
    fn ends_of_streams() {
        let info = |first: Value| {
            Value::Array(vec![
                bulk("length"),
                Value::Int(1),
                bulk("last-generated-id"),
                bulk(&unpack(9).to_string()),
                bulk("first-entry"),
                first,
            ])
        };
        let ends = |reply| Ends::of(Ok(reply)).expect("ends");
        let found = ends(info(entry(&unpack(5).to_string(), &["e", "x"])));
        assert_eq!((found.first_number(), found.last_number()), (5, 9));
        // The whole stream was deleted.
        let found = ends(info(Value::Nil));
        assert_eq!((found.first_number(), found.last_number()), (10, 9));
        let none = Ends::default();
        assert_eq!((none.first_number(), none.last_number()), (1, 0));
        let numberless = Ends {
            first: None,
            last: EntryId {
                sequence: SEQUENCES + 3,
                ..unpack(SEQUENCES)
            },
        };
        assert_eq!(numberless.last_number(), 2 * SEQUENCES - 1);
        assert!(Ends::of(Ok(Value::Okay)).is_err());
    }

    #[test]
    fn recent_records_begin_directly_above_the_newest_one_at_the_latest() {
        let interval = CHECK_INTERVAL.as_millis() as u64;
        let newest = (9 + interval) * SEQUENCES;
        let ends = Ends {
            first: Some(unpack(5)),
            last: unpack(newest),
        };
        let opened = |from, now_ms: u64| {
            let opening = Opening {
                partition: Partition(1),
                generation: 1,
                from,
            };
            opened_event(&opening, Binding(3), &ends, now_ms as i64).from
        };
        let recent = FollowFrom::Recent(Duration::from_millis(2));
        let now_ms = unpack((8 + interval) * SEQUENCES).millis;
        assert_eq!(opened(recent, now_ms), 6 * SEQUENCES);
        // The newest entry is older, and the next one may be of a server whose clock is behind.
        assert_eq!(opened(recent, now_ms + 60_000), newest + 1);
        assert_eq!(opened(recent, 0), 5);
        assert_eq!(opened(FollowFrom::Number(20 * SEQUENCES), now_ms), 20 * SEQUENCES);
    }

    #[test]
    fn reads_are_bounded_by_bytes() {
        let mut size = ReadSize::default();
        let [least, most] = LOG_READ_RECORDS;
        assert_eq!(size.count(1), most);
        size.note(1, LOG_READ_BYTES);
        assert_eq!(size.count(1), least);
        for _ in 0..100 {
            size.note(100, 100 * 200);
        }
        assert_eq!(size.count(1), most);
        assert!((least..most).contains(&size.count(64)));
        size.note(0, 0);
        size.note(1, 1000);
        assert_eq!(
            [0, 999, 5000, 1 << 20].map(|bytes| size.count_within(bytes)),
            [1, 1, 5, TAIL_ENTRIES]
        );
    }
}
