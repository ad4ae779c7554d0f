//! Joining the group of a stream, and noticing entries that are missing since it was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Value, cmd};
use ringmain_gateway::model::{RedisStreams, StartPosition};
use ringmain_sys::clock;

use super::StreamMemory;
use super::entries::{EntryId, GroupInfo, StreamInfo, group_info};
use super::streams::{Cursor, Reader};
use crate::failure::Failure;

impl Reader<'_> {
    /// Creates the group if it does not exist, and reports entries that were lost since it was read.
    pub(super) async fn join(&mut self) -> Result<(), Failure> {
        let RedisStreams { group, start, .. } = self.shared.redis;
        let memory = self.memory();
        let start = match (memory.newest, start) {
            // Nothing of a stream that was created again was read.
            (Some(_), _) | (None, StartPosition::Earliest) => "0".to_owned(),
            (None, StartPosition::Latest) => "$".to_owned(),
            (None, StartPosition::Back(time)) => {
                let since = clock::realtime().saturating_sub(*time).as_millis();
                since.saturating_sub(1).to_string()
            }
        };
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(&**self.name).arg(&**group);
        create.arg(start).arg("MKSTREAM");
        let is_created = match self.control.query::<Value>(&create).await {
            Ok(_) => true,
            Err(error) if error.code() == Some("BUSYGROUP") => false,
            Err(error) => return Err(error.into()),
        };
        self.cursor = Cursor::Pending(EntryId::default());
        if is_created && memory.newest.is_some() {
            self.start_life("the stream, or its group, was created again", None);
        }
        self.check(true).await
    }

    /// Reports entries that were deleted before they were read, and a Redis that lost entries.
    pub(super) async fn check(&mut self, has_joined: bool) -> Result<(), Failure> {
        let mut info = cmd("XINFO");
        info.arg("STREAM").arg(&**self.name);
        let stream: BTreeMap<String, Value> = match self.control.query(&info).await {
            Ok(stream) => stream,
            // It was deleted: the next read reports that.
            Err(_) if !has_joined => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let group = self.group().await?;
        let (Some(stream), Some(group)) = (StreamInfo::parse(stream), group) else {
            return Ok(());
        };
        let memory = self.memory();
        match memory.newest {
            Some(newest) if stream.last_generated < newest => {
                let why = format!(
                    "Redis has lost entries: its newest is {}, {newest} was read",
                    stream.last_generated
                );
                self.start_life(&why, Some(stream.last_generated));
            }
            Some(_) => {}
            None => self.set_memory(|memory| memory.newest = Some(EntryId::default())),
        }
        let lost = match stream.lost(&group) {
            Some(lost) => lost,
            // Before Redis 7.0 the counts are unknown: an entry that follows those that are retained lost none.
            None if has_joined && group.last_delivered != EntryId::default() => {
                let last = group.last_delivered.to_string();
                let mut range = cmd("XRANGE");
                range.arg(&**self.name).arg(&last).arg(&last);
                let found: Vec<Value> = self.control.query(&range).await?;
                memory.lost + u64::from(found.is_empty())
            }
            None => memory.lost,
        };
        if lost > memory.lost {
            let feed = self.shared.feed();
            log::warn!(
                "source {} (redis_streams): entries of {} were deleted before they were read",
                feed.name,
                self.name
            );
            feed.gap();
        }
        self.set_memory(|memory| memory.lost = lost);
        Ok(())
    }

    pub(super) async fn group(&mut self) -> Result<Option<GroupInfo>, Failure> {
        let mut info = cmd("XINFO");
        info.arg("GROUPS").arg(&**self.name);
        match self.control.query(&info).await {
            Ok(groups) => Ok(group_info(groups, &self.shared.redis.group)),
            // The stream was deleted.
            Err(error) if error.code() == Some("ERR") => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn memory(&self) -> StreamMemory {
        let feed = self.shared.feed();
        feed.redis.get(self.name).copied().unwrap_or_default()
    }

    pub(super) fn set_memory(&self, change: impl FnOnce(&mut StreamMemory)) {
        let mut feed = self.shared.feed();
        change(feed.redis.entry(Arc::clone(self.name)).or_default());
    }

    /// Identifiers may name other entries from now on, and entries may be missing.
    fn start_life(&self, why: &str, newest: Option<EntryId>) {
        self.set_memory(|memory| {
            *memory = StreamMemory {
                newest: Some(newest.unwrap_or_default()),
                life: memory.life + 1,
                lost: 0,
                lease: memory.lease,
            }
        });
        let feed = self.shared.feed();
        log::warn!(
            "source {} (redis_streams): stream {}: {why}",
            feed.name,
            self.name
        );
        feed.gap();
    }
}
