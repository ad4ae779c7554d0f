//! A partition of the table, from its rows to those that have to be deleted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Row;

use crate::failure::Failure;
use crate::feed::{Feed, Partition, Record};
use crate::limits;
use crate::status::DeadReason;

/// A version of a row: its id, and the transaction that wrote it. A row that is updated is another one.
pub(super) type Version = (i64, i64);

/// A partition whose lock this session holds.
pub(super) struct Owned {
    pub(super) partition: Partition<u64>,
    /// Rows that are in flight, in their order.
    pub(super) rows: VecDeque<Version>,
    /// The number of the first of `rows`.
    pub(super) first: u64,
    /// Rows that are published, or buried, and have to be deleted.
    pub(super) done: Vec<Version>,
    /// Rows that were published, but are locked by other transactions: they are not published again.
    pub(super) locked: BTreeSet<Version>,
    /// Dead letters that are to be moved, with their reasons.
    pub(super) letters: BTreeMap<Version, &'static str>,
    /// Dead letters that are locked by other transactions: they are retried at the next heartbeat.
    pub(super) unmoved: BTreeSet<Version>,
    /// Rows that were read, and whether it was read to its end: a session that was killed may have published the first ones.
    pub(super) read: usize,
    pub(super) was_empty: bool,
    /// Rows may have arrived since it was read.
    pub(super) is_due: bool,
    /// Another session is to have it.
    pub(super) is_leaving: bool,
}

impl Owned {
    pub(super) fn new(feed: &Feed) -> Owned {
        Owned {
            // Ids are not a log's offsets: transactions do not commit in their order.
            partition: Partition::new(feed, None),
            rows: VecDeque::new(),
            first: 0,
            done: Vec::new(),
            locked: BTreeSet::new(),
            letters: BTreeMap::new(),
            unmoved: BTreeSet::new(),
            read: 0,
            was_empty: false,
            is_due: true,
            is_leaving: false,
        }
    }

    /// Notes published rows.
    pub(super) fn collect(&mut self, feed: &mut Feed) {
        if let Some(number) = self.partition.done(feed) {
            let count = (number + 1 - self.first) as usize;
            let done = self.rows.drain(..count);
            // A dead letter is not deleted before it has moved.
            let waits = |row: &Version| self.letters.contains_key(row) || self.unmoved.contains(row);
            self.done.extend(done.filter(|row| !waits(row)));
            self.first = number + 1;
        }
    }

    /// Returns whether too many dead letters wait for their table: nothing is to be read.
    pub(super) fn is_held(&self, feed: &Feed) -> bool {
        self.letters.len() >= limits::DEAD_LETTERS_WAITING.min(feed.mapping.in_flight)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.rows.is_empty() && self.done.is_empty()
    }
}

impl Owned {
    pub(super) fn push(
        &mut self,
        feed: &mut Feed,
        name: &str,
        row: &Row,
        version: Version,
    ) -> Result<(), Failure> {
        let channel: Option<&str> = row.try_get(3)?;
        let key: Option<&str> = row.try_get(4)?;
        let tags: Option<&str> = row.try_get(5)?;
        let value: &[u8] = row.try_get(6)?;
        note_age(feed, row.try_get(7)?);
        let tags = tags.map_or(Ok(BTreeMap::new()), read_tags);
        let header = |name: &str, value: &str| (name.to_owned(), Bytes::copy_from_slice(value.as_bytes()));
        // The column before a tag of the same name.
        let columns = channel.map(|channel| header("channel", channel));
        let tagged = tags.iter().flatten().map(|(name, value)| header(name, value));
        let record = Record {
            subject: channel.unwrap_or_default().into(),
            key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
            headers: columns.into_iter().chain(tagged).collect(),
            value: Some(Bytes::copy_from_slice(value)),
            id: Some(format!("{name}/{}/{}", version.0, version.1).into()),
        };
        let number = self.first + self.rows.len() as u64;
        self.read += 1;
        self.rows.push_back(version);
        self.partition.push_tagged(feed, record, tags, number);
        Ok(())
    }
}

/// Reads an object of scalars.
fn read_tags(json: &str) -> Result<BTreeMap<String, String>, DeadReason> {
    use serde_json::Value;
    let tags: BTreeMap<String, Value> = serde_json::from_str(json).map_err(|_| DeadReason::BadFormat)?;
    let tags = tags.into_iter().map(|(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => Err(DeadReason::BadFormat),
    });
    tags.collect()
}

pub(super) fn note_age(feed: &Feed, age: Option<f64>) {
    if let Some(age) = age {
        let age = Duration::try_from_secs_f64(age.max(0.0)).unwrap_or_default();
        feed.status.set_age(age);
    }
}

#[cfg(test)]
mod tests {
    use super::read_tags;
    use crate::status::DeadReason;

    #[test]
    fn tags_are_scalars() {
        let tags = read_tags(r#"{"a":"b","n":1,"t":true}"#).expect("tags");
        assert_eq!((&*tags["a"], &*tags["n"], &*tags["t"]), ("b", "1", "true"));
        for json in ["[]", r#"{"a":[]}"#, r#"{"a":null}"#] {
            assert_eq!(read_tags(json), Err(DeadReason::BadFormat), "{json}");
        }
    }
}
