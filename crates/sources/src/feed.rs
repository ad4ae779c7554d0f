//! From records to publications: mapping, room, receipts, and what may be committed.
//!
//! ```text
//! record ─ push ─▶ backlog ─ pump ─▶ Batch ─▶ worker ─▶ receipt
//!                    │ full: the partition is not read        │
//!                    └ dead letter                            └▶ done: the newest position up to which all records are done
//! ```

mod hand_over;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use ringmain_gateway::model::{ChannelBound, Mapping, RecordFormat, Source};
use ringmain_push::{Epoch, LogEvent, LogId, ReceiptOutcome, Receipts, ThreadPublisher};
use ringmain_sys::clock;

use crate::commands::Action;
use crate::letters::Letters;
use crate::limits;
use crate::linger::Linger;
use crate::parked::Parked;
use crate::record::Actions;
pub(crate) use crate::record::{DeadLetter, Record};
use crate::status::{DeadReason, Status};

/// The part that all partitions of a source share.
pub(crate) struct Feed {
    pub(crate) name: Arc<str>,
    pub(crate) kind: &'static str,
    /// The source's number among those of this process.
    pub(crate) reader: u32,
    pub(crate) mapping: Mapping,
    /// Headers of records are read: by the template of the channel, or for dead letters.
    pub(crate) needs_headers: bool,
    /// The names of the channels that it can feed.
    bounds: Vec<ChannelBound>,
    pub(crate) inlet: ThreadPublisher,
    pub(crate) status: Arc<Status>,
    pub(crate) letters: Arc<Letters>,
    /// `None`: it is known that all of the source's logs are read.
    pub(crate) expected: Option<Arc<crate::Expected>>,
    /// Notes that records arrive.
    pub(crate) linger: Arc<Linger>,
    /// The state of a stream from earlier connections.
    #[cfg(feature = "jetstream")]
    pub(crate) jetstream: crate::jetstream::Memory,
    /// The next offsets of partitions from earlier connections, with the identifiers of their topics.
    #[cfg(feature = "kafka")]
    pub(crate) kafka: crate::kafka::Memory,
    /// Other sessions were seen that read the same table: any of its rows may have been published by them.
    #[cfg(feature = "postgres")]
    pub(crate) has_company: bool,
    /// State of streams that outlives a connection.
    #[cfg(feature = "redis")]
    pub(crate) redis: crate::redis::Memory,
    /// The name under which it owns streams.
    #[cfg(feature = "redis")]
    pub(crate) owner: Box<str>,
    /// The last log line about dead letters of each reason: its time, and their number.
    logged: [Option<(Duration, u64)>; DeadReason::ALL.len()],
}

/// One sequence of records that is published in its order. `P` is the position that is committed.
pub(crate) struct Partition<P> {
    /// Its number among the partitions of the source's connections.
    id: u64,
    /// The log whose offsets publications have; `None`: their channels count.
    log: Option<LogId>,
    backlog: VecDeque<Prepared>,
    receipts: Receipts,
    /// The records in the order of reading.
    records: VecDeque<Pending<P>>,
    /// The number of the first of `records`.
    first: u64,
    /// For each receipt in flight, the record that it belongs to.
    owners: VecDeque<u64>,
    /// Those of before `records`.
    parked: Parked<P>,
    /// Records whose dead letters wait for their destination.
    letters: usize,
    /// The last that was handed over is a command: nothing is, before it is done.
    awaits_command: bool,
    /// The newest offset whose record is not in the backlog any more.
    reached: u64,
    /// By worker, the newest offset that was reported.
    reported: Vec<u64>,
}

struct Prepared {
    record: u64,
    offset: Option<u64>,
    action: Action,
}

struct Pending<P> {
    position: P,
    /// Publications, and dead letters, that are not done.
    open: u32,
    /// Its dead letter waits.
    has_letter: bool,
    /// Kept for a dead letter: all of it if dead letters are sent, or its subject and key for the log.
    record: Record,
}

impl Feed {
    pub(crate) fn new(
        name: &Arc<str>,
        source: &Source,
        reader: u32,
        inlet: &ThreadPublisher,
        status: &Arc<Status>,
    ) -> Feed {
        let mapping = &source.mapping;
        Feed {
            name: Arc::clone(name),
            kind: source.kind.label(),
            reader,
            mapping: mapping.clone(),
            needs_headers: mapping.channel.has_header() || mapping.dead_letters.is_some(),
            bounds: source.bounds(),
            inlet: inlet.clone(),
            status: Arc::clone(status),
            letters: Letters::new(name, source.kind.label(), status),
            expected: None,
            linger: Arc::default(),
            #[cfg(feature = "jetstream")]
            jetstream: crate::jetstream::Memory::default(),
            #[cfg(feature = "kafka")]
            kafka: crate::kafka::Memory::default(),
            #[cfg(feature = "postgres")]
            has_company: false,
            #[cfg(feature = "redis")]
            redis: crate::redis::Memory::new(),
            #[cfg(feature = "redis")]
            owner: crate::redis::new_owner(),
            logged: [None; DeadReason::ALL.len()],
        }
    }

    /// Reports that all of the source's logs are read.
    pub(crate) async fn has_begun(&mut self) {
        if let Some(expected) = self.expected.take() {
            expected.remove(&self.name).await;
        }
    }

    /// Reports that records may be missing in all channels of the source, which have no offsets of a log.
    pub(crate) fn gap(&self) {
        self.status.gap();
        self.bounds.iter().for_each(|bound| bound.interrupt(&self.inlet));
    }

    /// Reports to all workers, behind the records that were handed to them; waits for room.
    pub(crate) async fn report(&self, log: LogId, event: LogEvent) {
        for worker in 0..self.inlet.workers() {
            while !self.inlet.submit_event(worker, log, event) {
                tokio::time::sleep(limits::READY_CHECK_INTERVAL).await;
            }
        }
    }

    /// Reports that a life of a log has ended: its channels start epochs of their own, and positioned clients are notified.
    pub(crate) async fn log_ended(&self, log: LogId) {
        self.status.gap();
        for worker in 0..self.inlet.workers() {
            while !self.inlet.submit_log_ended(worker, log) {
                tokio::time::sleep(limits::READY_CHECK_INTERVAL).await;
            }
        }
    }

    fn log_dead(&mut self, letter: &DeadLetter) {
        let count = self.status.dead(letter.reason);
        let now = clock::monotonic();
        let last = self.logged[letter.reason as usize];
        if last.is_none_or(|(at, _)| now - at >= limits::LOG_INTERVAL) {
            let since = count - last.map_or(0, |(_, before)| before);
            let subject: String = letter.record.subject.chars().take(100).collect();
            let key = letter.record.key.as_deref().map(String::from_utf8_lossy);
            let key: String = key.unwrap_or_default().chars().take(100).collect();
            log::warn!(
                "source {} ({}): records are not published: {} ({count} so far, {since} since the last line); the last one is in \
                 {subject:?} with key {key:?}",
                self.name,
                self.kind,
                letter.reason.label(),
            );
            self.logged[letter.reason as usize] = Some((now, count));
        }
    }
}

impl<P: Clone> Partition<P> {
    /// With an epoch, publications have the log's offsets: [`Partition::begins`] has to follow.
    pub(crate) fn new(feed: &Feed, epoch: Option<Epoch>) -> Partition<P> {
        Partition {
            id: feed.letters.add_partition(),
            log: epoch.map(|epoch| LogId {
                epoch,
                reader: feed.reader,
            }),
            backlog: VecDeque::new(),
            receipts: Receipts::new(feed.mapping.in_flight),
            records: VecDeque::new(),
            first: 0,
            owners: VecDeque::new(),
            parked: Parked::new(),
            letters: 0,
            awaits_command: false,
            reached: 0,
            reported: Vec::new(),
        }
    }

    /// The log that it reads, if its publications have the log's offsets.
    pub(crate) fn log(&self) -> Option<LogId> {
        self.log
    }

    /// Reports where reading begins: the first record is above this offset.
    pub(crate) async fn begins(&mut self, feed: &Feed, offset: u64) {
        self.reached = offset;
        if let Some(log) = self.log {
            feed.report(log, LogEvent::Started(offset)).await;
        }
    }

    /// Adds a record that arrives behind newer ones of its log: it is published without an offset of the log, so its channel starts
    /// an epoch of its own and positioned clients are notified.
    #[cfg(feature = "jetstream")]
    pub(crate) fn push_late(&mut self, feed: &mut Feed, mut record: Record, position: P) {
        let actions = Actions::read(&feed.mapping, &mut record);
        self.add(feed, record, actions, None, position);
    }

    /// Adds a record with its offset and the position that is committed once it is done.
    pub(crate) fn push(&mut self, feed: &mut Feed, mut record: Record, offset: u64, position: P) {
        let actions = Actions::read(&feed.mapping, &mut record);
        self.add(feed, record, actions, Some(offset), position);
        if self.backlog.is_empty() {
            self.reached = self.reached.max(offset);
        }
    }

    /// Adds a record without an offset of a log, with tags for a publication of [`RecordFormat::Data`], or the reason why it cannot be
    /// published.
    #[cfg(feature = "postgres")]
    pub(crate) fn push_tagged(
        &mut self,
        feed: &mut Feed,
        mut record: Record,
        tags: Result<BTreeMap<String, String>, DeadReason>,
        position: P,
    ) {
        let actions = tags.and_then(|tags| {
            let mut actions = Actions::read(&feed.mapping, &mut record)?;
            if feed.mapping.format == RecordFormat::Data
                && let Actions::One(Action::Publish(publication)) = &mut actions
            {
                publication.tags = tags;
            }
            Ok(actions)
        });
        self.add(feed, record, actions, None, position);
    }

    fn add(
        &mut self,
        feed: &mut Feed,
        record: Record,
        actions: Result<Actions, DeadReason>,
        offset: Option<u64>,
        position: P,
    ) {
        feed.status.read(1);
        feed.linger.note_record();
        let number = self.first + self.records.len() as u64;
        self.records.push_back(Pending {
            position,
            open: actions.as_ref().map_or(0, Actions::len) as u32,
            has_letter: false,
            record,
        });
        let prepared = |action| Prepared {
            record: number,
            offset,
            action,
        };
        match actions {
            Ok(Actions::None) => {}
            Ok(Actions::One(action)) => self.backlog.push_back(prepared(action)),
            Ok(Actions::Many(actions)) => self.backlog.extend(actions.into_iter().map(prepared)),
            Err(reason) => self.bury(feed, number, reason),
        }
    }

    /// The newest offset up to which all records were handed to workers.
    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    /// Returns whether all records were handed to workers.
    pub(crate) fn is_drained(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Records that are not done.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.records.len() + self.parked.len()) as u64
    }

    /// Its number among the partitions of the source's connections: that of its letters.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether too many dead letters wait for their destination: nothing is to be read.
    pub(crate) fn is_held(&self, feed: &Feed) -> bool {
        let most = limits::DEAD_LETTERS_WAITING.min(feed.mapping.in_flight);
        self.letters > 0 && (self.letters >= most || feed.letters.is_full())
    }

    /// Hands over as many publications as there is room for. Returns whether more may be read: all were handed over, and not too many
    /// dead letters wait.
    pub(crate) fn pump(&mut self, feed: &mut Feed) -> bool {
        self.hand_over(feed) && !self.is_held(feed)
    }

    /// Hands over all publications, waiting for room; not those that a successor publishes.
    pub(crate) async fn drain(&mut self, feed: &mut Feed) {
        while !self.hand_over(feed) {
            if feed.inlet.is_frozen() {
                // The successor reads the rest.
                return;
            }
            self.wait_for_room(feed).await;
        }
    }

    /// Drops publications that wait for room, of a source that repeats nothing: their channels start new epochs.
    #[cfg(feature = "redis")]
    pub(crate) fn drop_backlog(&mut self, feed: &Feed) {
        while let Some(dropped) = self.backlog.pop_front() {
            feed.status.gap();
            if let Action::Publish(publication) = &dropped.action {
                feed.inlet.report_dropped(&publication.channel);
            }
            self.close_one(dropped.record);
        }
        self.finish();
    }

    /// Hands over all publications and waits for their outcomes.
    #[cfg(any(feature = "kafka", feature = "jetstream"))]
    pub(crate) async fn settle(&mut self, feed: &mut Feed) {
        self.drain(feed).await;
        while self.receipts.in_flight() > 0 && !feed.inlet.is_frozen() {
            poll_fn(|context| self.receipts.poll_progress(context)).await;
            self.collect(feed);
        }
    }

    /// Waits until a publication may be handed over: the window has room, or the next channel's worker.
    pub(crate) async fn wait_for_room(&mut self, feed: &Feed) {
        if self.is_drained() && self.is_held(feed) {
            return tokio::time::sleep(limits::COMMIT_INTERVAL).await;
        }
        let waits = !self.receipts.has_room() || self.next_waits();
        let Some(next) = self.backlog.front().filter(|_| !waits) else {
            return poll_fn(|context| self.receipts.poll_progress(context)).await;
        };
        let addressee = next.action.addressee();
        let room = poll_fn(|context| feed.inlet.poll_room(addressee, context));
        // A worker that has ended, or a successor that takes over, wakes no task.
        let _ = tokio::time::timeout(limits::COMMIT_INTERVAL, room).await;
        tokio::task::yield_now().await;
    }

    /// Ready once the oldest publication in flight is done. Pending, without a wakeup, if none is in flight.
    #[cfg(feature = "postgres")]
    pub(crate) fn poll_receipt(&self, context: &Context<'_>) -> Poll<()> {
        match self.receipts.in_flight() {
            0 => Poll::Pending,
            _ => self.receipts.poll_progress(context),
        }
    }

    /// Notes the outcomes of publications. Returns the newest position up to which all records are done, once.
    pub(crate) fn done(&mut self, feed: &mut Feed) -> Option<P> {
        self.collect(feed);
        self.parked.take_done()
    }

    /// The same for a broker whose records are acknowledged one by one: up to that position, all records are done except for those that
    /// are [parked](Partition::is_parked).
    #[cfg(any(feature = "jetstream", feature = "redis"))]
    pub(crate) fn passed(&mut self, feed: &mut Feed) -> Option<P> {
        self.collect(feed);
        self.parked.take_passed()
    }

    /// Returns whether the dead letter of a record waits, whose publications are done. Records are numbered from zero.
    #[cfg(any(feature = "jetstream", feature = "redis"))]
    pub(crate) fn is_parked(&self, number: u64) -> bool {
        self.parked.contains(number)
    }

    /// Notes that the dead letter of a record has arrived at its destination.
    pub(crate) fn buried(&mut self, number: u64) {
        self.letters = self.letters.saturating_sub(1);
        let index = number.checked_sub(self.first).map(|index| index as usize);
        match index.and_then(|index| self.records.get_mut(index)) {
            Some(pending) => {
                pending.has_letter = false;
                self.close_one(number);
                self.finish();
            }
            None => self.parked.set_sent(number),
        }
    }

    /// Notes that no record up to this offset is missing: every offset was handed over, or has no record.
    pub(crate) fn reached_at(&mut self, offset: u64) {
        self.reached = self.reached.max(offset);
    }

    /// Reports to workers up to which offset all records were handed to them. A worker without room receives the next report.
    pub(crate) fn report_reached(&mut self, feed: &Feed) {
        let Some(log) = self.log else { return };
        self.reported.resize(feed.inlet.workers(), 0);
        for (worker, reported) in self.reported.iter_mut().enumerate() {
            if *reported < self.reached
                && feed
                    .inlet
                    .submit_event(worker, log, LogEvent::Reached(self.reached))
            {
                *reported = self.reached;
            }
        }
    }

    fn collect(&mut self, feed: &mut Feed) {
        let (mut published, mut repeated) = (0, 0);
        while let Some(receipted) = self.receipts.advance() {
            let Some(number) = self.owners.pop_front() else {
                break;
            };
            match receipted {
                ReceiptOutcome::Published => published += 1,
                ReceiptOutcome::Duplicate => repeated += 1,
                ReceiptOutcome::ChannelLimit => self.bury(feed, number, DeadReason::NoRoom),
            }
            self.close_one(number);
        }
        feed.status.published(published);
        feed.status.repeated(repeated);
        if self.letters > 0 {
            for number in feed.letters.take_sent(self.id) {
                self.buried(number);
            }
        }
        self.finish();
    }

    /// Counts a record as a dead letter, and has it sent if there is a destination: once, whatever number of its publications failed.
    fn bury(&mut self, feed: &mut Feed, number: u64, reason: DeadReason) {
        let index = (number - self.first) as usize;
        let Some(pending) = self.records.get_mut(index) else {
            return;
        };
        let letter = DeadLetter {
            reason,
            record: pending.record.clone(),
        };
        feed.log_dead(&letter);
        if feed.mapping.dead_letters.is_some() && !pending.has_letter {
            pending.open += 1;
            pending.has_letter = true;
            self.letters += 1;
            feed.letters.add((self.id, number), letter);
        }
    }

    fn close_one(&mut self, number: u64) {
        let index = (number - self.first) as usize;
        if let Some(pending) = self.records.get_mut(index) {
            pending.open = pending.open.saturating_sub(1);
        }
    }

    fn finish(&mut self) {
        let is_finished = |pending: &mut Pending<P>| pending.open == u32::from(pending.has_letter);
        while let Some(finished) = self.records.pop_front_if(is_finished) {
            self.parked
                .add(self.first, finished.position, finished.has_letter);
            self.first += 1;
        }
    }
}
