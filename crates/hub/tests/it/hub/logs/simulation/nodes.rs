//! A node: readers of the logs, the shards of its workers, and their clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{Epoch, HistoryOptions};
use ringmain_hub::mail::{ChannelOptions, EpochFilter, RecoverFrom, ShardEvent, ShardRequest, WorkerId};
use ringmain_hub::protocol::{Format, Replies};
use ringmain_hub::shard::{ChannelShard, LogEvent, LogId, LogPublishOutcome, StateRecord};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, SubscriberLimits, SubscriberTable, shard_of};

use super::reference_logs::{self, LogRecord, ReferenceLogs};
use super::reports::{Expected, Processed, Progress, Received, RecordGap, record_id};
use super::{Occurred, Step};
use crate::hub::workers::{JSON, KEPT, PLAIN, number};

pub(super) const WORKERS: usize = 2;

const LIMITS: SubscriberLimits = SubscriberLimits {
    subscriptions: 16,
    queued_bytes: 1 << 20,
};

pub(super) fn options(channel: &str) -> ChannelOptions {
    if !reference_logs::keeps(channel) {
        return PLAIN;
    }
    ChannelOptions {
        history: Some(HistoryOptions {
            publications: 6,
            bytes: 1 << 20,
            ttl: Duration::from_secs(30),
        }),
        position_ttl: Duration::from_secs(60),
        ..KEPT
    }
}

/// An item that a reader has passed to a shard.
#[derive(Clone, Copy, Debug)]
enum Arriving {
    Record(LogId, LogRecord),
    Event(LogId, LogEvent),
    Ended(Epoch),
}

/// A source's reader of a log.
#[derive(Debug)]
struct Reader {
    log: usize,
    number: u32,
    /// The epoch that it reads; `None` before it has started.
    epoch: Option<Epoch>,
    at: u64,
    /// Records up to this offset were published before this process.
    live: u64,
    /// The number of turns in which it reads nothing.
    stalled: u32,
}

pub(super) struct Node {
    shards: Vec<ChannelShard>,
    tables: Vec<SubscriberTable>,
    inboxes: Vec<VecDeque<Arriving>>,
    readers: Vec<Reader>,
    progress: Vec<BTreeMap<LogId, Progress>>,
    expected: Vec<BTreeMap<(usize, u64), Expected>>,
    processed: BTreeMap<&'static str, Vec<Processed>>,
    /// The logs that two readers of this node read.
    read_twice: BTreeSet<usize>,
    published: BTreeSet<(Epoch, u64)>,
    /// True if other programs publish in its channels.
    pub(super) is_shared: bool,
    /// The number of the process.
    pub(super) epoch: u64,
    /// The processes whose state this one has.
    continued: BTreeSet<u64>,
    limit: usize,
}

impl Node {
    pub(super) fn new(number: u64, reference: &ReferenceLogs, random: &mut fastrand::Rng) -> Node {
        let mut readers = Vec::new();
        let mut read_twice = BTreeSet::new();
        for log in 0..reference.logs.len() {
            let count = if random.u8(0..4) == 0 { 2 } else { 1 };
            if count == 2 {
                read_twice.insert(log);
            }
            readers.extend((0..count).map(|number| Reader {
                log,
                number,
                epoch: None,
                at: 0,
                live: 0,
                stalled: 0,
            }));
        }
        let mut node = Node {
            shards: Vec::new(),
            tables: Vec::new(),
            inboxes: Vec::new(),
            readers,
            progress: Vec::new(),
            expected: Vec::new(),
            processed: BTreeMap::new(),
            read_twice,
            published: BTreeSet::new(),
            is_shared: random.u8(0..3) == 0,
            epoch: number << 32,
            continued: BTreeSet::new(),
            limit: random.usize(2..=6),
        };
        node.start();
        node
    }

    /// Returns whether this is the given process, or has its state.
    pub(super) fn continues(&self, epoch: u64) -> bool {
        self.epoch == epoch || self.continued.contains(&epoch)
    }

    /// Starts a process without a predecessor's state.
    fn start(&mut self) {
        self.epoch += 1;
        let workers = WORKERS as u16;
        let seed = |shard: usize| self.epoch << 8 | shard as u64;
        self.shards = (0..WORKERS)
            .map(|shard| ChannelShard::new(workers, self.limit, seed(shard)))
            .collect();
        self.tables = (0..WORKERS)
            .map(|_| SubscriberTable::new(workers, LIMITS))
            .collect();
        self.inboxes = (0..WORKERS).map(|_| VecDeque::new()).collect();
        self.progress = (0..WORKERS).map(|_| BTreeMap::new()).collect();
        self.expected = (0..WORKERS).map(|_| BTreeMap::new()).collect();
    }

    pub(super) fn restart(
        &mut self,
        with_state: bool,
        now: Duration,
        reference: &ReferenceLogs,
        random: &mut fastrand::Rng,
    ) {
        let committed: Vec<u64> = self.readers.iter().map(|reader| self.committed(reader)).collect();
        let mut records = Vec::new();
        let mut progress: BTreeMap<LogId, Progress> = BTreeMap::new();
        if with_state {
            for (shard, own) in self.shards.iter_mut().zip(&self.progress) {
                shard.freeze();
                records.extend(read(shard, now));
                for (id, own) in own {
                    let all = progress.entry(*id).or_default();
                    all.position = all.position.max(own.position);
                    all.is_restored = true;
                }
            }
        }
        self.continued.insert(self.epoch);
        self.start();
        if !with_state {
            self.continued.clear();
            self.processed.clear();
            self.published.clear();
        }
        if with_state {
            let elapsed = Duration::from_secs(random.u64(0..3));
            for (index, shard) in self.shards.iter_mut().enumerate() {
                let is_here = |record: &&StateRecord| {
                    let channel = record.channel();
                    channel.is_none_or(|channel| shard_index(channel) == index)
                };
                let own = records.iter().filter(is_here).cloned().collect();
                let window = Duration::from_secs(300);
                shard.restore(own, now, elapsed, window, |channel| Some(options(channel)));
            }
            self.progress.fill(progress);
        }
        for (reader, committed) in self.readers.iter_mut().zip(committed) {
            let at = reference.continue_at(reader.log, reader.epoch, committed);
            // Commits lag behind, or the history is filled with records that were published before.
            let fills = !with_state && random.bool();
            reader.live = if fills { at } else { 0 };
            let back = if fills { 30 } else { 4 };
            reader.at = at.saturating_sub(random.u64(0..back));
            if random.u8(0..6) == 0 {
                // The reader starts with new records.
                reader.at = reference.logs[reader.log].end;
                reader.live = 0;
            }
            (reader.epoch, reader.stalled) = (None, 0);
        }
    }

    /// Returns the offset up to which all records of a reader are done.
    fn committed(&self, reader: &Reader) -> u64 {
        let Some(epoch) = reader.epoch else {
            return reader.at;
        };
        let id = LogId {
            epoch,
            reader: reader.number,
        };
        let pending = self
            .inboxes
            .iter()
            .flatten()
            .filter_map(|arriving| match arriving {
                Arriving::Record(own, record) if *own == id => Some(record.offset - 1),
                _ => None,
            });
        pending.min().unwrap_or(reader.at).min(reader.at)
    }

    pub(super) fn make_room(&mut self) {
        self.shards
            .iter_mut()
            .for_each(|shard| shard.set_channel_limit(1000));
        self.readers.iter_mut().for_each(|reader| reader.stalled = 0);
    }

    pub(super) fn stall(&mut self, random: &mut fastrand::Rng) {
        let reader = random.choice(&mut self.readers).expect("one");
        reader.stalled = random.u32(5..60);
    }

    /// Makes a reader continue with records that it has read before.
    pub(super) fn repeat(&mut self, reference: &ReferenceLogs, random: &mut fastrand::Rng) {
        let reader = random.choice(&mut self.readers).expect("one");
        if reader.epoch != Some(reference.logs[reader.log].epoch) {
            return;
        }
        reader.at = reader.at.saturating_sub(random.u64(1..8));
        if random.bool() {
            let (id, event) = (reader_id(reader), LogEvent::Started(reader.at));
            self.post(id, event);
        }
    }

    fn post(&mut self, id: Option<LogId>, event: LogEvent) {
        let Some(id) = id else { return };
        for inbox in &mut self.inboxes {
            inbox.push_back(Arriving::Event(id, event));
        }
    }

    /// Reads one record, or notices a change of the log.
    pub(super) fn read(
        &mut self,
        reference: &ReferenceLogs,
        random: &mut fastrand::Rng,
        occurred: &mut Occurred,
    ) {
        let index = random.usize(0..self.readers.len());
        let reports = random.bool();
        for _ in 0..random.u8(1..4) {
            self.read_next(index, reference, reports, occurred);
        }
    }

    pub(super) fn read_all(&mut self, reference: &ReferenceLogs, occurred: &mut Occurred) {
        for index in 0..self.readers.len() {
            while self.read_next(index, reference, true, occurred) {}
        }
    }

    /// Returns whether there may be more to read.
    fn read_next(
        &mut self,
        index: usize,
        reference: &ReferenceLogs,
        reports: bool,
        occurred: &mut Occurred,
    ) -> bool {
        let reader = &mut self.readers[index];
        if reader.stalled > 0 {
            reader.stalled -= 1;
            return false;
        }
        let log = &reference.logs[reader.log];
        if reader.epoch != Some(log.epoch) {
            let before = reader.epoch.replace(log.epoch);
            if before.is_some() {
                reader.at = reference.continue_at(reader.log, before, reader.at);
                reader.live = 0;
            }
            reader.at = reader.at.min(log.end).max(log.retained);
            let (id, at, live) = (reader_id(reader), reader.at, reader.live.min(log.end));
            self.post(id, LogEvent::Started(at));
            if live > at {
                self.post(id, LogEvent::Live(live));
            }
            if let Some(before) = before {
                for inbox in &mut self.inboxes {
                    inbox.push_back(Arriving::Ended(before));
                }
            }
            return true;
        }
        if reader.at < log.retained {
            reader.at = log.retained;
            let (id, at) = (reader_id(reader), reader.at);
            self.post(id, LogEvent::Started(at));
            occurred.holes += 1;
            return true;
        }
        let next = reference.next(reader.log, reader.at);
        if let (Some(record), Some(id)) = (next, reader_id(reader)) {
            self.readers[index].at = record.offset;
            self.inboxes[shard_index(record.channel)].push_back(Arriving::Record(id, record));
        }
        if next.is_none() {
            // The last offsets may belong to no record.
            self.readers[index].at = self.readers[index].at.max(log.end);
        }
        let (id, at) = (reader_id(&self.readers[index]), self.readers[index].at);
        if reports {
            self.post(id, LogEvent::Reached(at));
        }
        next.is_some()
    }

    pub(super) fn has_arriving(&self, shard: usize) -> bool {
        !self.inboxes[shard].is_empty()
    }

    /// Processes one item of a shard's inbox. Returns the losses that the item reports.
    pub(super) fn process(
        &mut self,
        shard: usize,
        step: Step,
        reference: &ReferenceLogs,
        occurred: &mut Occurred,
    ) -> Option<RecordGap> {
        let arriving = self.inboxes[shard].pop_front()?;
        let progress = &mut self.progress[shard];
        match arriving {
            Arriving::Record(id, record) => {
                self.publish_record(shard, step, id, record, reference, occurred);
                None
            }
            Arriving::Event(id, event) => self.apply_event(shard, id, event, reference),
            Arriving::Ended(epoch) => {
                self.shards[shard].end_log(epoch);
                let before = progress.len();
                progress.retain(|id, _| id.epoch != epoch);
                (progress.len() < before).then(|| RecordGap {
                    epoch,
                    log: reference.log_of_epoch(epoch),
                    missing: None,
                })
            }
        }
    }

    fn publish_record(
        &mut self,
        shard: usize,
        Step { seed, now, clock }: Step,
        id: LogId,
        record: LogRecord,
        reference: &ReferenceLogs,
        occurred: &mut Occurred,
    ) {
        let progress = &mut self.progress[shard];
        let own = progress.entry(id).or_insert(Progress {
            position: record.offset - 1,
            ..Progress::default()
        });
        own.position = own.position.max(record.offset);
        own.is_restored = false;
        let is_live = record.offset > own.live;
        let channel: Arc<str> = Arc::from(record.channel);
        let published = Arc::new(number(record.id));
        let (options, offset) = (options(&channel), record.offset);
        let outcome = self.shards[shard].publish_log_record(&channel, options, published, id, offset, now);
        match outcome {
            LogPublishOutcome::Published => {
                let is_new = self.published.insert((id.epoch, record.id));
                let is_read_twice = self.read_twice.contains(&reference.log_of_epoch(id.epoch));
                assert!(
                    is_new || is_read_twice,
                    "seed {seed}: {record:?} is published twice"
                );
                self.processed.entry(record.channel).or_default().push(Processed {
                    clock,
                    epoch: id.epoch,
                    id: record.id,
                    is_live,
                });
            }
            LogPublishOutcome::Duplicate => occurred.duplicates += 1,
            LogPublishOutcome::NoRoom => {}
            LogPublishOutcome::Draining => panic!("seed {seed}: it is not frozen"),
        }
    }

    fn apply_event(
        &mut self,
        shard: usize,
        id: LogId,
        event: LogEvent,
        reference: &ReferenceLogs,
    ) -> Option<RecordGap> {
        let progress = &mut self.progress[shard];
        let others = progress
            .keys()
            .filter(|other| other.epoch == id.epoch && **other != id);
        let is_sole = others.count() == 0;
        self.shards[shard].handle_log_event(id, event);
        match event {
            LogEvent::Started(start) => {
                let before = progress.get(&id).map(|own| own.position);
                let own = progress.entry(id).or_default();
                own.position = own.position.max(start);
                own.is_restored = false;
                let before = before.filter(|before| is_sole && *before < start)?;
                Some(RecordGap {
                    epoch: id.epoch,
                    log: reference.log_of_epoch(id.epoch),
                    missing: Some((before, start)),
                })
            }
            LogEvent::Reached(position) => {
                if let Some(own) = progress.get_mut(&id) {
                    own.position = own.position.max(position);
                    own.is_restored = false;
                }
                None
            }
            LogEvent::Live(live) => {
                if let Some(own) = progress.get_mut(&id) {
                    own.live = own.live.max(live);
                }
                None
            }
        }
    }

    /// Removes expired channels. Returns their number.
    pub(super) fn sweep(&mut self, now: Duration) -> u64 {
        let mut removed = 0;
        for shard in &mut self.shards {
            shard.release(now);
            let before = shard.len();
            shard.sweep(now);
            removed += before - shard.len();
        }
        removed as u64
    }

    pub(super) fn publish(&mut self, channel: &str, id: u64) {
        self.tables[0].publish(&Arc::from(channel), options(channel), number(id), None);
    }

    pub(super) fn interrupt(&mut self, channel: &str) {
        self.shards[shard_index(channel)].interrupt(channel);
    }

    pub(super) fn open(&mut self, worker: usize) -> ConnId {
        self.tables[worker].open(JSON, None)
    }

    pub(super) fn table(&mut self, worker: usize) -> &mut SubscriberTable {
        &mut self.tables[worker]
    }

    /// Returns the records that the shard of a channel has published after the given clock.
    pub(super) fn processed(&self, channel: &str, since: u64) -> impl DoubleEndedIterator<Item = &Processed> {
        let processed = self.processed.get(channel).into_iter().flatten();
        processed.filter(move |processed| processed.clock > since)
    }

    /// Delivers up to `limit` messages of a worker to a shard.
    pub(super) fn up(&mut self, worker: usize, shard: usize, limit: usize, now: Duration) {
        for _ in 0..limit {
            let Some(message) = self.tables[worker].poll_request(WorkerId(shard as u16)) else {
                break;
            };
            if let ShardRequest::Subscribe(subscribing) = &message {
                let expected = if reference_logs::keeps(&subscribing.channel) {
                    self.expects(shard, subscribing.recover_from)
                } else {
                    Expected::Reply
                };
                self.expected[shard].insert((worker, subscribing.request.0), expected);
            }
            self.shards[shard].handle(WorkerId(worker as u16), message, now);
        }
    }

    fn expects(&self, shard: usize, since: Option<RecoverFrom>) -> Expected {
        // The channel may be one of a log whose retained records have not all arrived. They are awaited for a limited time.
        let mut all = self.progress[shard].values();
        if all.any(|progress| progress.position < progress.live) {
            Expected::Either
        } else {
            self.expects_by_position(shard, since)
        }
    }

    fn expects_by_position(&self, shard: usize, since: Option<RecoverFrom>) -> Expected {
        let Some(RecoverFrom {
            offset,
            epoch: EpochFilter::Exact(epoch),
        }) = since
        else {
            return Expected::Reply;
        };
        let own = self.progress[shard].iter().filter(|(id, _)| id.epoch == epoch);
        let own: Vec<Progress> = own.map(|(_, progress)| *progress).collect();
        if own.is_empty() {
            return Expected::Reply;
        }
        if own.iter().all(|progress| progress.is_restored) {
            // A predecessor's log is removed some time after the start.
            Expected::Either
        } else if own.iter().all(|progress| progress.position < offset) {
            Expected::Behind
        } else if own.iter().all(|progress| progress.position >= offset) {
            Expected::Reply
        } else {
            Expected::Either
        }
    }

    /// Delivers up to `limit` messages of a shard to a worker.
    pub(super) fn down(&mut self, shard: usize, worker: usize, limit: usize, Step { seed, now, .. }: Step) {
        for _ in 0..limit {
            let Some(message) = self.shards[shard].poll(WorkerId(worker as u16), now) else {
                break;
            };
            let (request, wrong) = match &message {
                ShardEvent::Subscribed(subscribed) => (Some(subscribed.request), Expected::Behind),
                ShardEvent::Behind { request } => (Some(*request), Expected::Reply),
                ShardEvent::Rejected { request } => (Some(*request), Expected::Behind),
                _ => (None, Expected::Either),
            };
            if let Some(expected) =
                request.and_then(|request| self.expected[shard].remove(&(worker, request.0)))
            {
                assert!(
                    expected != wrong || expected == Expected::Either,
                    "seed {seed}: expected {expected:?}, found {message:?}"
                );
            }
            self.tables[worker].handle(message);
        }
    }

    /// Returns the messages that connections of a worker receive.
    pub(super) fn received(&mut self, worker: usize) -> Vec<(ConnId, Received)> {
        let table = &mut self.tables[worker];
        let mut received = Vec::new();
        while let Some(event) = table.poll_event() {
            let (SubscriberEvent::Subscribed { conn, .. }
            | SubscriberEvent::Unsubscribed { conn, .. }
            | SubscriberEvent::Rejected { conn, .. }) = &event
            else {
                panic!("{event:?}");
            };
            received.push((*conn, Received::Event(event)));
        }
        while let Some(conn) = table.poll_ready() {
            while let Some(frame) = table.pop_push(conn) {
                let reply = Replies::new(Format::Json, frame).next();
                let push = reply.expect("one").expect("a reply").push.expect("a push");
                let publication = push.pub_.expect("a publication");
                let push = Received::Push {
                    channel: push.channel,
                    offset: publication.offset,
                    id: record_id(&publication.data),
                };
                received.push((conn, push));
            }
        }
        received
    }
}

pub(super) fn shard_index(channel: &str) -> usize {
    usize::from(shard_of(channel, WORKERS as u16).0)
}

fn reader_id(reader: &Reader) -> Option<LogId> {
    let reader_number = reader.number;
    reader.epoch.map(|epoch| LogId {
        epoch,
        reader: reader_number,
    })
}

/// Returns the state that a shard leaves to its successor.
fn read(shard: &mut ChannelShard, now: Duration) -> Vec<StateRecord> {
    let saved = shard.save(now, None);
    let section = [saved.section, saved.logs].concat();
    StateRecord::read_all(&section).expect("records")
}
