//! Streams that are read with a consumer group, each on a connection of its own.
//!
//! ```text
//! lease ─▶ join ─▶ pending entries ─▶ XREADGROUP > ─▶ partition ─ pump ─▶ workers    full: this stream is not read
//!  ▲            ▲                 XAUTOCLAIM ──────▲  ◀─ receipts ─ done ─▶ XACK, every COMMIT_INTERVAL
//!  └ NOGROUP ───┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisError, Value, cmd};
use ringmain_gateway::model::RedisStreams;
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::access::{Access, BLOCK, Connection, MASTER_INTERVAL};
use super::entries::{Entry, EntryId, claim_reply, read_reply};
use crate::failure::Failure;
use crate::feed::{DeadLetter, Feed, Partition, Record};
use crate::limits;

/// Entries that one read returns at most.
const READ_ENTRIES: usize = 1000;
/// Entries that are acknowledged by one command.
const ACK_ENTRIES: usize = 1000;
/// Entries that one `XAUTOCLAIM` claims at most.
const CLAIM_ENTRIES: usize = 100;
/// The interval at which abandoned entries are looked up: a quarter of `claim_after`, within these.
const CLAIM_INTERVAL: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// The interval at which the lag is read, and whether entries were deleted before they were read.
const INFO_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which a stream whose workers are full checks for room.
const ROOM_INTERVAL: Duration = Duration::from_millis(5);

/// Reads until something fails, or until it is to end: then `None`.
pub(crate) async fn run(
    redis: &RedisStreams,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Option<Failure> {
    tokio::select! {
        access = Access::resolve(&redis.access) => match access {
            Ok(access) => run_at(redis, &access, feed, stopped).await,
            Err(failure) => Some(failure),
        },
        _ = stopped.changed() => None,
    }
}

async fn run_at(
    redis: &RedisStreams,
    access: &Access<'_>,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Option<Failure> {
    let control = match access.open(Duration::ZERO).await {
        Ok(control) => control,
        Err(failure) => return Some(failure),
    };
    feed.status.connected();
    log::info!(
        "source {} (redis_streams): reading {}",
        feed.name,
        redis.streams.join(", ")
    );
    let letters = Arc::clone(&feed.letters);
    letters.start_session(true);
    let destination = feed.mapping.dead_letters.clone();
    let send = |letter| send_letter(control.clone(), destination.clone(), &redis.field, letter);
    let shared = Shared {
        redis,
        access,
        feed: Mutex::new(feed),
        streams: Mutex::new(vec![StreamState::default(); redis.streams.len()]),
    };
    let mut readers: Vec<Reader<'_>> = redis
        .streams
        .iter()
        .enumerate()
        .map(|(index, name)| Reader::new(&shared, index, name, control.clone()))
        .collect();
    let failure = {
        let mut sessions: FuturesUnordered<_> = readers.iter_mut().map(Reader::run).collect();
        tokio::select! {
            failure = sessions.next(), if !redis.streams.is_empty() => failure,
            failure = access.watch_master(MASTER_INTERVAL) => Some(failure),
            never = shared.report() => match never {},
            never = letters.deliver(send) => match never {},
            _ = stopped.changed() => None,
        }
    };
    if failure.is_none() {
        // Entries that are done are acknowledged; the others are pending, and read again.
        for reader in &mut readers {
            reader.pump();
            let _ = reader.acknowledge().await;
            reader.release().await;
        }
    }
    failure
}

/// Adds a dead letter to its stream.
async fn send_letter(
    mut control: Connection,
    stream: Option<Arc<str>>,
    field: &str,
    DeadLetter { reason, record }: DeadLetter,
) -> Result<(), String> {
    let Some(stream) = stream else {
        return Ok(());
    };
    let mut add = cmd("XADD");
    add.arg(&*stream).arg("*");
    add.arg("ringmain-reason").arg(reason.label());
    add.arg("ringmain-stream").arg(&*record.subject);
    if let Some(value) = record.value.filter(|value| !value.is_empty()) {
        add.arg(field).arg(&*value);
    }
    for (name, value) in &record.headers {
        add.arg(name).arg(&**value);
    }
    let added = control.query::<Value>(&add).await;
    added
        .map(drop)
        .map_err(|error| format!("stream {stream}: {error}"))
}

/// The state of one stream in the reports of the source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamState {
    delivers: bool,
    /// Entries that were pending when it was joined, which a process that was killed may have published, were handed to workers.
    has_begun: bool,
    is_full: bool,
    in_flight: u64,
    lag: Option<u64>,
}

impl StreamState {
    /// The state of a stream that another member of the group reads; `has_begun`: no entries of before are to be published here first.
    pub(super) fn waiting(has_begun: bool) -> StreamState {
        StreamState {
            delivers: true,
            has_begun,
            lag: Some(0),
            ..StreamState::default()
        }
    }
}

/// Shared by the readers of a source. No lock is held while one waits.
pub(super) struct Shared<'f> {
    pub(super) redis: &'f RedisStreams,
    access: &'f Access<'f>,
    feed: Mutex<&'f mut Feed>,
    streams: Mutex<Vec<StreamState>>,
}

impl<'f> Shared<'f> {
    pub(super) fn feed(&self) -> MutexGuard<'_, &'f mut Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Vec<StreamState>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_stream(&self, index: usize, state: StreamState) {
        self.streams()[index] = state;
    }

    async fn report(&self) -> Infallible {
        loop {
            let expected = {
                let (streams, mut feed) = (self.streams(), self.feed());
                let paused = streams.iter().filter(|stream| stream.is_full).count();
                let in_flight = streams.iter().map(|stream| stream.in_flight).sum();
                feed.status.set_partitions(streams.len(), paused, in_flight);
                feed.status
                    .set_lag(streams.iter().map(|stream| stream.lag).sum::<Option<u64>>());
                feed.status
                    .set_delivers(streams.iter().all(|stream| stream.delivers));
                let has_begun = streams.iter().all(|stream| stream.has_begun);
                feed.expected
                    .take_if(|_| has_begun)
                    .map(|expected| (expected, Arc::clone(&feed.name)))
            };
            // Positions of before a kill are answered behind these entries, which those clients may have.
            if let Some((expected, name)) = expected {
                expected.remove(&name).await;
            }
            sleep(limits::COMMIT_INTERVAL).await;
        }
    }
}

type Read = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send>>;

/// The next read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cursor {
    /// Entries that were delivered to this consumer and not acknowledged, behind this one.
    Pending(EntryId),
    /// Entries that were delivered to no consumer.
    New,
}

/// One stream.
pub(super) struct Reader<'s> {
    pub(super) shared: &'s Shared<'s>,
    pub(super) index: usize,
    pub(super) name: &'s Arc<str>,
    pub(super) control: Connection,
    partition: Partition<u64>,
    /// Entries that were read and are not acknowledged, in the order of reading.
    held: VecDeque<EntryId>,
    /// The number of the first of `held`, and of the first that is not done.
    first: u64,
    done: u64,
    /// Entries before `first` whose dead letters wait, by their numbers.
    parked: BTreeMap<u64, EntryId>,
    pub(super) cursor: Cursor,
    /// The position at which the next `XAUTOCLAIM` continues.
    claim_from: EntryId,
    claim_at: Option<Instant>,
    /// The time at which the lease is refreshed.
    pub(super) lease_at: Instant,
    info_at: Instant,
    is_full: bool,
}

impl<'s> Reader<'s> {
    fn new(shared: &'s Shared<'s>, index: usize, name: &'s Arc<str>, control: Connection) -> Reader<'s> {
        let now = Instant::now();
        Reader {
            shared,
            index,
            name,
            control,
            partition: Partition::new(&shared.feed(), None),
            held: VecDeque::new(),
            first: 0,
            done: 0,
            parked: BTreeMap::new(),
            cursor: Cursor::Pending(EntryId::default()),
            claim_from: EntryId::default(),
            claim_at: Some(now),
            lease_at: now,
            info_at: now,
            is_full: false,
        }
    }

    /// Reads until it fails. The streams of a cluster are independent of each other: a node that fails stops its own only.
    async fn run(&mut self) -> Failure {
        let mut wait = limits::BACKOFF[0];
        let mut logged: Option<Instant> = None;
        loop {
            let began = Instant::now();
            let Err(failure) = self.read().await;
            self.shared.streams()[self.index] = StreamState::default();
            if !self.shared.access.is_cluster() {
                return failure;
            }
            {
                let feed = self.shared.feed();
                feed.status.failed(&format!("stream {}: {failure}", self.name));
                if logged.is_none_or(|at| at.elapsed() >= limits::LOG_INTERVAL) {
                    logged = Some(Instant::now());
                    let name = &feed.name;
                    log::warn!(
                        "source {name} (redis_streams): stream {}: {failure}; retrying",
                        self.name
                    );
                }
            }
            if began.elapsed() >= limits::BACKOFF_RESET_AFTER {
                wait = limits::BACKOFF[0];
            }
            sleep(wait).await;
            wait = (2 * wait).min(limits::BACKOFF[1]);
            // Its entries are read again.
            let letters = Arc::clone(&self.shared.feed().letters);
            letters.remove_partition(self.partition.id(), true);
            *self = Reader::new(self.shared, self.index, self.name, self.control.clone());
        }
    }

    async fn read(&mut self) -> Result<Infallible, Failure> {
        let reading = self.shared.access.open(BLOCK).await?;
        let other = self.acquire().await?;
        self.join().await?;
        if let Some(other) = other {
            self.claim_from(&other).await?;
        }
        self.set_delivers();
        let mut tick = Instant::now() + limits::COMMIT_INTERVAL;
        let mut read: Option<Read> = None;
        loop {
            let was_full = self.is_full;
            self.is_full = !self.pump();
            if was_full && !self.is_full {
                // Entries may have been deleted while the stream was not read.
                self.check(false).await?;
            }
            if read.is_none() && !self.is_full {
                read = Some(self.start_read(reading.clone()));
            }
            let reply = tokio::select! {
                reply = async { read.as_mut().expect("it is checked").await }, if read.is_some() => Some(reply),
                () = sleep_until(tick) => None,
                () = sleep(ROOM_INTERVAL), if self.is_full => None,
            };
            if let Some(reply) = reply {
                read = None;
                self.receive(reply).await?;
            }
            if Instant::now() >= tick {
                tick = Instant::now() + limits::COMMIT_INTERVAL;
                self.tick().await?;
            }
        }
    }

    fn start_read(&self, mut connection: Connection) -> Read {
        let RedisStreams { group, consumer, .. } = self.shared.redis;
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&**group).arg(&**consumer);
        read.arg("COUNT").arg(READ_ENTRIES);
        match self.cursor {
            Cursor::Pending(behind) => {
                read.arg("STREAMS").arg(&**self.name).arg(behind.to_string());
            }
            Cursor::New => {
                read.arg("BLOCK").arg(BLOCK.as_millis() as u64);
                read.arg("STREAMS").arg(&**self.name).arg(">");
            }
        }
        Box::pin(async move { connection.query(&read).await })
    }

    /// Adds the entries of a reply.
    async fn receive(&mut self, reply: Result<Value, RedisError>) -> Result<(), Failure> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) if matches!(error.code(), Some("NOGROUP" | "UNBLOCKED")) => return self.join().await,
            Err(error) => return Err(error.into()),
        };
        let entries = read_reply(reply).ok_or_else(|| unexpected("XREADGROUP"))?;
        if let Cursor::Pending(_) = self.cursor {
            self.cursor = match entries.last() {
                Some(last) => Cursor::Pending(last.id),
                None => Cursor::New,
            };
        }
        let deleted: Vec<EntryId> = self.add(entries);
        if !deleted.is_empty() {
            self.report_deleted(deleted.len());
            self.send_acks(&deleted).await?;
        }
        Ok(())
    }

    /// Adds entries to the partition. Returns those that were deleted.
    fn add(&mut self, entries: Vec<Entry>) -> Vec<EntryId> {
        let mut feed = self.shared.feed();
        let (field, now) = (&self.shared.redis.field, clock::realtime());
        let memory = feed.redis.entry(Arc::clone(self.name)).or_default();
        let newest = entries.last().map(|entry| entry.id);
        memory.newest = memory.newest.max(newest);
        let life = memory.life;
        if let Some(newest) = newest {
            feed.status.set_age(newest.age(now));
        }
        let mut deleted = Vec::new();
        for Entry { id, fields } in entries {
            let Some(fields) = fields else {
                deleted.push(id);
                continue;
            };
            let record = record(self.name, id, life, fields, field);
            let number = self.first + self.held.len() as u64;
            self.held.push_back(id);
            self.partition.push(&mut feed, record, 0, number + 1);
        }
        deleted
    }

    fn report_deleted(&self, count: usize) {
        let feed = self.shared.feed();
        log::warn!(
            "source {} (redis_streams): {count} entries of {} were deleted before they were acknowledged",
            feed.name,
            self.name
        );
        feed.gap();
    }

    /// Hands over as many publications as there is room for. Returns whether all were.
    fn pump(&mut self) -> bool {
        let mut feed = self.shared.feed();
        let is_drained = self.partition.pump(&mut feed);
        if let Some(passed) = self.partition.passed(&mut feed) {
            self.done = passed;
        }
        is_drained
    }

    fn set_delivers(&self) {
        let state = StreamState {
            delivers: true,
            ..StreamState::default()
        };
        self.shared.set_stream(self.index, state);
    }

    async fn tick(&mut self) -> Result<(), Failure> {
        self.refresh_lease().await?;
        self.pump();
        self.acknowledge().await?;
        let now = Instant::now();
        if now >= self.info_at {
            self.info_at = now + INFO_INTERVAL;
            let group = self.group().await?;
            let lag = group.and_then(|group| group.lag);
            self.shared.streams()[self.index].lag = lag;
            if lag != Some(0) && group.is_some_and(|group| group.read.is_some()) {
                self.check(false).await?;
            }
        }
        let may_claim = matches!(self.cursor, Cursor::New) && self.partition.is_drained();
        if may_claim && self.claim_at.is_some_and(|at| now >= at) {
            self.claim().await?;
        }
        let state = &mut self.shared.streams()[self.index];
        state.has_begun |= may_claim;
        state.is_full = self.is_full;
        state.in_flight = self.partition.in_flight();
        Ok(())
    }

    /// Claims entries that another consumer has left, or that were delivered to a connection of this one that was lost.
    async fn claim(&mut self) -> Result<(), Failure> {
        let redis = self.shared.redis;
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&**self.name).arg(&*redis.group).arg(&*redis.consumer);
        claim.arg(u64::try_from(redis.claim_after.as_millis()).unwrap_or(u64::MAX));
        claim.arg(self.claim_from.to_string());
        claim.arg("COUNT").arg(CLAIM_ENTRIES);
        let claimed = match self.control.query(&claim).await {
            Ok(reply) => claim_reply(reply).ok_or_else(|| unexpected("XAUTOCLAIM"))?,
            // The next read reports that the group is gone.
            Err(error) if error.code() == Some("NOGROUP") => return Ok(()),
            Err(error) if error.code() == Some("ERR") => {
                self.claim_at = None;
                log::warn!(
                    "source {} (redis_streams): entries that others left are not claimed: {error}",
                    self.shared.feed().name
                );
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.claim_from = claimed.next;
        let interval = (redis.claim_after / 4).clamp(CLAIM_INTERVAL[0], CLAIM_INTERVAL[1]);
        if claimed.next == EntryId::default() {
            self.claim_at = Some(Instant::now() + interval);
        }
        if claimed.deleted > 0 {
            self.report_deleted(claimed.deleted);
        }
        if !claimed.entries.is_empty() {
            // This consumer's own entries, which wait for their workers for so long.
            let held: BTreeSet<EntryId> = self.held.iter().chain(self.parked.values()).copied().collect();
            let entries = claimed.entries.into_iter();
            let new: Vec<Entry> = entries.filter(|entry| !held.contains(&entry.id)).collect();
            if !new.is_empty() {
                // They arrive behind newer ones.
                self.shared.feed().gap();
            }
            let deleted = self.add(new);
            self.send_acks(&deleted).await?;
        }
        Ok(())
    }

    /// Acknowledges the entries that are done.
    async fn acknowledge(&mut self) -> Result<(), Failure> {
        while self.first < self.done {
            let count = ((self.done - self.first) as usize).min(ACK_ENTRIES);
            let passed = (self.first..).zip(self.held.iter().copied()).take(count);
            let (parked, done): (Vec<_>, Vec<_>) =
                passed.partition(|(number, _)| self.partition.is_parked(*number));
            self.send_acks(&done.into_iter().map(|(_, id)| id).collect::<Vec<_>>())
                .await?;
            self.parked.extend(parked);
            self.held.drain(..count);
            self.first += count as u64;
            self.shared.feed().status.committed();
        }
        let sent = self
            .parked
            .extract_if(.., |number, _| !self.partition.is_parked(*number));
        let sent: Vec<EntryId> = sent.map(|(_, id)| id).collect();
        for sent in sent.chunks(ACK_ENTRIES) {
            self.send_acks(sent).await?;
            self.shared.feed().status.committed();
        }
        Ok(())
    }

    async fn send_acks(&mut self, entries: &[EntryId]) -> Result<(), Failure> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut acknowledge = cmd("XACK");
        acknowledge.arg(&**self.name).arg(&*self.shared.redis.group);
        for entry in entries {
            acknowledge.arg(entry.to_string());
        }
        self.control.query::<Value>(&acknowledge).await?;
        Ok(())
    }
}

fn unexpected(command: &str) -> Failure {
    Failure::Ended(format!("an unexpected reply to {command}"))
}

/// The record of an entry. One without the field of the value is of no format.
fn record(stream: &Arc<str>, id: EntryId, life: u64, fields: Vec<(String, Bytes)>, field: &str) -> Record {
    let (mut value, mut key, mut headers) = (None, None, Vec::with_capacity(fields.len()));
    for (name, content) in fields {
        if name == field && value.is_none() {
            value = Some(content);
            continue;
        }
        if name == "key" {
            key = Some(content.clone());
        }
        headers.push((name, content));
    }
    let name = match life {
        0 => format!("{stream}/{id}"),
        life => format!("{stream}/{life}/{id}"),
    };
    Record {
        subject: Arc::clone(stream),
        key,
        headers,
        value: Some(value.unwrap_or_default()),
        id: Some(name.into()),
    }
}
