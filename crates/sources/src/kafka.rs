//! Topics of a Kafka cluster: this module and `log/kafka` alone know `krafka`.
//!
//! ```text
//! poll ─▶ partition ─ push, pump ─▶ workers      full: paused, the others are read on
//!                   ◀─ receipts ─ done ─▶ commit (a group), every COMMIT_INTERVAL
//! ```
//!
//! A partition is a log: the offset of a publication is that of its record, plus one, and its epoch follows from the topic's identifier
//! (KIP-516) and the partition. A topic that is deleted and created again has another identifier.

mod letters;
mod lives;
mod rebalance;
mod security;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use krafka::Kafka as Client;
use krafka::admin::ListTopicsOptions;
use krafka::consumer::{
    AutoOffsetReset, Consumer, ConsumerRecord, GroupProtocol, IsolationLevel, PartitionAssignmentStrategy,
    TopicPartition,
};
use ringmain_gateway::model::{Kafka, RecordFormat, StartPosition};
use ringmain_push::{Epoch, LogEvent};
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::Instant;

use self::letters::Destination;
use self::rebalance::{Change, Listener, Shared, lock, offsets};
pub(crate) use self::security::security;
use crate::epoch;
use crate::failure::Failure;
use crate::feed::{Feed, Partition, Record};
use crate::limits;

/// The time for which a poll waits for records.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// The same while a partition waits for room with its workers.
const FULL_POLL_TIMEOUT: Duration = Duration::from_millis(5);
/// Records that one poll returns at most.
const POLL_RECORDS: i32 = 1000;
/// A member that was not heard for so long loses its partitions to the others.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// The interval at which topics that match a pattern are looked up.
const PATTERN_INTERVAL: Duration = Duration::from_secs(30);
/// The maximum age of the metadata of topics: a topic that was created again is noticed within this time at the latest.
const METADATA_AGE: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without records after which the cluster is queried, and the time that its response may take: together less than
/// [`limits::SILENT_AFTER`].
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

type Key = (String, i32);

/// The next offsets of partitions that were read, with the identifiers of their topics.
pub(crate) type Memory = BTreeMap<Key, ([u8; 16], i64)>;

/// A partition that is read.
struct Assigned {
    partition: Partition<i64>,
    topic: Arc<str>,
    topic_id: [u8; 16],
    /// The offset of the next record, as far as known.
    next: i64,
    has_begun: bool,
    is_paused: bool,
}

/// Reads until something fails, or until it is to end: then `None`.
pub(crate) async fn run(
    kafka: &Kafka,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Option<Failure> {
    read(kafka, feed, stopped).await.err()
}

async fn read(kafka: &Kafka, feed: &mut Feed, stopped: &mut watch::Receiver<()>) -> Result<(), Failure> {
    let mut builder = Client::builder(kafka.servers.join(","))
        .client_id("ringmain")
        .request_timeout(REQUEST_TIMEOUT)
        .metadata_max_age(METADATA_AGE);
    if let Some(security) = security(kafka.tls.as_ref(), kafka.sasl.as_ref()) {
        builder = builder.security(security);
    }
    let client = builder.connect().await?;
    let shared = Arc::new(Shared::default());
    let builder = match &kafka.group {
        Some(group) => client.consumer(&**group),
        None => client.consumer_without_group(),
    };
    let reset = match kafka.start {
        StartPosition::Earliest => AutoOffsetReset::Earliest,
        StartPosition::Latest => AutoOffsetReset::Latest,
        StartPosition::Back(time) => AutoOffsetReset::ByDuration(time),
    };
    let isolation = if kafka.read_committed {
        IsolationLevel::ReadCommitted
    } else {
        IsolationLevel::ReadUncommitted
    };
    let consumer = builder
        .enable_auto_commit(false)
        .auto_offset_reset(reset)
        .isolation_level(isolation)
        .group_protocol(GroupProtocol::Classic)
        .partition_assignment_strategy(PartitionAssignmentStrategy::CooperativeSticky)
        .session_timeout(SESSION_TIMEOUT)
        .heartbeat_interval(HEARTBEAT_INTERVAL)
        .fetch_max_wait(POLL_TIMEOUT)
        .max_poll_records(POLL_RECORDS)
        .max_buffered_records(4 * POLL_RECORDS)
        .rebalance_listener(Listener(Arc::clone(&shared)))
        .build()
        .await?;
    let consumer = Arc::new(consumer);
    let _ = shared.consumer.set(Arc::downgrade(&consumer));
    let destination = Destination::open(&client, feed).await?;
    let letters = Arc::clone(&feed.letters);
    // Without a group, what was read is not read again.
    letters.start_session(kafka.group.is_some());
    let mut reader = Reader {
        kafka,
        client,
        consumer,
        shared,
        assigned: BTreeMap::new(),
        topics: Vec::new(),
        topics_at: None,
        heard: Instant::now(),
        warned: None,
    };
    let outcome = tokio::select! {
        outcome = reader.run(feed) => outcome,
        never = letters.deliver(|letter| letters::send(destination.as_ref(), letter)) => match never {},
        _ = stopped.changed() => Ok(()),
    };
    // Completed records are committed; the other members get the partitions at once.
    reader.finish(feed).await;
    let _ = reader.commit(feed).await;
    let _ = tokio::time::timeout(SESSION_TIMEOUT, reader.consumer.close()).await;
    outcome
}

struct Reader<'k> {
    kafka: &'k Kafka,
    client: Client,
    consumer: Arc<Consumer>,
    shared: Arc<Shared>,
    assigned: BTreeMap<Key, Assigned>,
    /// The topics that are subscribed.
    topics: Vec<String>,
    /// The time of the last lookup of the pattern's topics.
    topics_at: Option<Instant>,
    /// The time of the last response of the cluster.
    heard: Instant,
    /// The time of the last log line about a commit that failed.
    warned: Option<Instant>,
}

impl Assigned {
    fn push(&mut self, feed: &mut Feed, key: &Key, record: ConsumerRecord) {
        let offset = record.offset;
        self.next = offset + 1;
        let id = match feed.mapping.format {
            RecordFormat::Commands => Some(format!("{}/{}/{offset}", key.0, key.1).into()),
            RecordFormat::Data => None,
        };
        let headers = record.headers.into_iter().filter(|_| feed.needs_headers);
        let headers = headers.filter_map(|(name, value)| Some((name.to_string(), value?)));
        let read = Record {
            subject: Arc::clone(&self.topic),
            key: record.key,
            headers: headers.collect(),
            value: record.value,
            id,
        };
        self.partition.push(feed, read, number(offset) + 1, offset + 1);
    }
}

impl Reader<'_> {
    async fn run(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        self.subscribe().await?;
        let mut is_connected = false;
        let mut ticked = Instant::now();
        loop {
            let is_full = self
                .assigned
                .values()
                .any(|assigned| !assigned.partition.is_drained());
            let timeout = if is_full { FULL_POLL_TIMEOUT } else { POLL_TIMEOUT };
            let records = self.consumer.poll(timeout).await?;
            if !is_connected {
                is_connected = true;
                feed.status.connected();
                log::info!("source {} (kafka): reading {}", feed.name, self.topics.join(", "));
            }
            let rewound = self.follow_changes(feed, &records).await?;
            self.take(feed, records, &rewound).await?;
            self.pump(feed).await;
            if ticked.elapsed() >= limits::COMMIT_INTERVAL {
                ticked = Instant::now();
                self.tick(feed).await?;
            }
        }
    }

    async fn subscribe(&mut self) -> Result<(), Failure> {
        let topics: Vec<String> = match &self.kafka.pattern {
            None => self.kafka.topics.iter().map(ToString::to_string).collect(),
            Some(pattern) => {
                let expression =
                    regex::Regex::new(pattern).map_err(|error| Failure::Settings(error.to_string()))?;
                let all = self
                    .client
                    .admin()
                    .list_topics(ListTopicsOptions::default())
                    .await?;
                let mut found: Vec<String> = all
                    .into_iter()
                    .filter(|topic| expression.is_match(topic))
                    .collect();
                found.sort_unstable();
                found
            }
        };
        self.topics_at = Some(Instant::now());
        if topics != self.topics {
            self.topics = topics;
            self.consumer.subscribe(&self.topics).await?;
        }
        Ok(())
    }

    /// Applies the changes of rebalances. Returns the partitions whose reading was moved: records that were polled before are read again.
    async fn follow_changes(
        &mut self,
        feed: &mut Feed,
        records: &[ConsumerRecord],
    ) -> Result<Vec<Key>, Failure> {
        let changes = std::mem::take(&mut *lock(&self.shared.changes));
        for change in changes {
            match change {
                Change::Removed(keys) => {
                    for key in keys {
                        let removed = self.assigned.remove(&key);
                        if let Some(assigned) = &removed {
                            feed.letters.remove_partition(assigned.partition.id(), true);
                        }
                        // Another member publishes its records from now on: clients here miss them, and are notified.
                        match removed.and_then(|assigned| assigned.partition.log()) {
                            Some(log) => feed.log_ended(log).await,
                            None => feed.gap(),
                        }
                    }
                }
                Change::Assigned(keys) => {
                    for key in keys {
                        let id = self.topic_id(&key.0);
                        self.assign(feed, key, id);
                    }
                }
            }
        }
        // Without a group there is no rebalance: partitions are those of the metadata.
        if self.kafka.group.is_none() {
            for (topic, partitions) in self.consumer.assignment().await {
                for partition in partitions {
                    let key = (topic.clone(), partition);
                    if !self.assigned.contains_key(&key) {
                        let id = self.topic_id(&topic);
                        self.assign(feed, key, id);
                    }
                }
            }
        }
        let waiting: Vec<Key> = self
            .assigned
            .iter()
            .filter(|(_, assigned)| !assigned.has_begun)
            .map(|(key, _)| key.clone())
            .collect();
        let mut rewound = Vec::new();
        for key in waiting {
            // The position is behind the records that were polled with it.
            let mut polled = records.iter();
            let first = polled.find(|record| record.partition == key.1 && *record.topic == *key.0);
            if self.begin(feed, &key, first.map(|record| record.offset)).await? {
                rewound.push(key);
            }
        }
        if !self.assigned.is_empty() && self.assigned.values().all(|assigned| assigned.has_begun) {
            feed.has_begun().await;
        }
        Ok(rewound)
    }

    fn topic_id(&self, topic: &str) -> Option<[u8; 16]> {
        // The cache alone is read.
        let metadata = self.client_topics();
        metadata.get(topic).copied()
    }

    /// The identifiers of topics, as far as they are known.
    fn client_topics(&self) -> BTreeMap<String, [u8; 16]> {
        let cached = self.consumer.fetch_metadata(None);
        // It is ready at once: nothing is requested.
        let topics = futures_util::FutureExt::now_or_never(cached);
        let topics = topics.and_then(Result::ok).map(|found| found.topics);
        topics
            .unwrap_or_default()
            .into_iter()
            .map(|topic| (topic.name, topic.topic_id))
            .collect()
    }

    fn assign(&mut self, feed: &Feed, key: Key, topic_id: Option<[u8; 16]>) {
        let topic_id = topic_id.unwrap_or_default();
        let assigned = Assigned {
            partition: Partition::new(feed, epoch_of(feed, topic_id, &key, 0)),
            topic: key.0.as_str().into(),
            topic_id,
            next: 0,
            has_begun: false,
            is_paused: false,
        };
        if let Some(before) = self.assigned.insert(key, assigned) {
            // Its records are gone: nothing reads them again.
            feed.letters.remove_partition(before.partition.id(), false);
        }
    }

    /// Reports to the workers where reading of a partition begins, once that is known. Returns whether it was moved there.
    async fn begin(&mut self, feed: &mut Feed, key: &Key, first: Option<i64>) -> Result<bool, Failure> {
        let found = self.consumer.position(&key.0, key.1).await;
        let Some(mut position) = first.or(found) else {
            return Ok(false);
        };
        let mut is_moved = false;
        let mut live = None;
        let topic_id = self.assigned.get(key).map(|assigned| assigned.topic_id);
        let known = feed.kafka.get(key).filter(|(id, _)| Some(*id) == topic_id);
        if let (None, Some(&(_, next))) = (&self.kafka.group, known) {
            // A connection that was lost: nothing is left out.
            self.consumer.seek(&key.0, key.1, next).await?;
            position = next;
            is_moved = true;
        } else if let (Some(_), Some(assigned)) = (&self.kafka.group, self.assigned.get(key)) {
            // Records before the committed offset fill the history: clients of a process that was killed may lack them.
            if let (StartPosition::Back(time), Some(_)) = (self.kafka.start, assigned.partition.log()) {
                let since = clock::realtime().saturating_sub(time).as_millis() as i64;
                let mut found = self
                    .consumer
                    .offsets_for_times(&[(key.0.as_str(), key.1)], since)
                    .await;
                let back = found.remove(key).and_then(Result::ok);
                if let Some(back) = back.filter(|back| (0..position).contains(back)) {
                    self.consumer.seek(&key.0, key.1, back).await?;
                    live = Some(position);
                    position = back;
                    is_moved = true;
                }
            }
        } else if let Ok((_, end)) = self.consumer.fetch_watermarks(&key.0, key.1).await {
            live = Some(end);
        }
        let Some(assigned) = self.assigned.get_mut(key) else {
            return Ok(is_moved);
        };
        assigned.next = position;
        assigned.has_begun = true;
        assigned.partition.begins(feed, number(position)).await;
        if let (Some(live), Some(log)) = (live, assigned.partition.log()) {
            feed.report(log, LogEvent::Live(number(live))).await;
        }
        Ok(is_moved)
    }

    async fn take(
        &mut self,
        feed: &mut Feed,
        records: Vec<ConsumerRecord>,
        rewound: &[Key],
    ) -> Result<(), Failure> {
        if records.is_empty() {
            return Ok(());
        }
        self.heard = Instant::now();
        let topics = self.client_topics();
        // Topics that were created again: their records are polled again.
        let mut replaced: Vec<String> = Vec::new();
        // Those of a partition follow each other.
        let mut records = records.into_iter().peekable();
        while let Some(first) = records.next() {
            let key = (first.topic.to_string(), first.partition);
            let (topic, partition) = (Arc::clone(&first.topic), first.partition);
            let rest = std::iter::from_fn(|| {
                records.next_if(|next| next.partition == partition && next.topic == topic)
            });
            let run: Vec<ConsumerRecord> = std::iter::once(first).chain(rest).collect();
            if rewound.contains(&key) || replaced.contains(&key.0) {
                continue;
            }
            // Without one it was revoked since.
            let Some(assigned) = self.assigned.get(&key) else {
                continue;
            };
            match topics.get(&key.0) {
                Some(id) if *id != assigned.topic_id => {
                    self.replace(feed, &key, Some(*id)).await?;
                    replaced.push(key.0);
                }
                _ => self.take_run(feed, &key, run).await,
            }
        }
        Ok(())
    }

    /// Adds records of one partition.
    async fn take_run(&mut self, feed: &mut Feed, key: &Key, run: Vec<ConsumerRecord>) {
        if let Some(stamp) = run.last().and_then(|record| u64::try_from(record.timestamp).ok()) {
            let age = clock::realtime().saturating_sub(Duration::from_millis(stamp));
            feed.status.set_age(age);
        }
        let mut run = run.into_iter().peekable();
        while let Some(record) = run.peek() {
            let (offset, leader_epoch) = (record.offset, record.leader_epoch.unwrap_or(-1));
            match self.assigned.get(key) {
                None => return,
                Some(assigned) if !assigned.has_begun => self.start_at(feed, key, offset).await,
                Some(assigned) if offset < assigned.next => {
                    self.truncated(feed, key, offset, leader_epoch).await;
                }
                Some(assigned) if offset > assigned.next => self.check_hole(feed, key, offset).await,
                Some(_) => {}
            }
            let Some(assigned) = self.assigned.get_mut(key) else {
                return;
            };
            assigned.next = offset;
            while let Some(record) = run.next_if(|record| record.offset == assigned.next) {
                assigned.push(feed, key, record);
            }
            feed.kafka.insert(key.clone(), (assigned.topic_id, assigned.next));
        }
    }

    /// Hands over what there is room for, and reads the partitions on that have room.
    async fn pump(&mut self, feed: &mut Feed) {
        for ((topic, number), assigned) in &mut self.assigned {
            let is_drained = assigned.partition.pump(feed);
            if is_drained == assigned.is_paused {
                assigned.is_paused = !is_drained;
                if is_drained {
                    self.consumer.resume(topic, &[*number]).await
                } else {
                    self.consumer.pause(topic, &[*number]).await
                }
            }
            if let Some(next) = assigned.partition.done(feed) {
                lock(&self.shared.done).insert((topic.clone(), *number), next);
            }
        }
    }

    /// Hands over the records that were read, for a limited time; the others are read again.
    async fn finish(&mut self, feed: &mut Feed) {
        let deadline = Instant::now() + limits::STOP_TIMEOUT;
        for (key, assigned) in &mut self.assigned {
            let drained = tokio::time::timeout_at(deadline, assigned.partition.settle(feed)).await;
            if drained.is_err()
                && let Some((_, next)) = feed.kafka.get_mut(key)
            {
                *next = (*next).min(i64::try_from(assigned.partition.reached()).unwrap_or(*next));
            }
        }
        self.pump(feed).await;
    }

    async fn tick(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        self.commit(feed).await?;
        if self.kafka.pattern.is_some() && self.topics_at.is_none_or(|at| at.elapsed() >= PATTERN_INTERVAL) {
            self.subscribe().await?;
        }
        let topics = self.client_topics();
        let replaced = self.assigned.iter().find_map(|(key, assigned)| {
            let id = topics.get(&key.0)?;
            (*id != assigned.topic_id).then(|| (key.clone(), *id))
        });
        if let Some((key, id)) = replaced {
            self.replace(feed, &key, Some(id)).await?;
        }
        let lag = self.consumer.lag().await;
        let mut total = Some(0);
        let (mut paused, mut in_flight) = (0, 0);
        for (key, assigned) in &mut self.assigned {
            let found = lag.get(&TopicPartition::new(key.0.as_str(), key.1));
            total = total
                .zip(found.and_then(|lag| lag.lag))
                .map(|(total, lag)| total + lag);
            paused += usize::from(assigned.is_paused);
            in_flight += assigned.partition.in_flight();
            if assigned.partition.is_drained()
                && assigned.has_begun
                && let Some(position) = found.and_then(|lag| lag.position)
                && position >= assigned.next
            {
                // Offsets of transactions are no records.
                assigned.next = position;
                assigned.partition.reached_at(number(position));
            }
            assigned.partition.report_reached(feed);
        }
        feed.status.set_lag(total);
        feed.status.set_partitions(self.assigned.len(), paused, in_flight);
        let is_reading = self.assigned.values().all(|assigned| assigned.has_begun);
        self.probe().await;
        if !is_reading || self.topics.is_empty() {
            feed.status.set_delivers(false);
        } else if self.assigned.is_empty() {
            feed.status.responded(Duration::ZERO);
        } else {
            feed.status.responded(self.heard.elapsed());
        }
        Ok(())
    }

    /// Queries the cluster where no record has arrived lately: the client's polls return nothing also while no broker can be reached.
    async fn probe(&mut self) {
        if self.heard.elapsed() >= PROBE_INTERVAL
            && let Some((topic, partition)) = self.assigned.keys().next()
        {
            let probe = self.consumer.fetch_watermarks(topic, *partition);
            if let Ok(Ok(_)) = tokio::time::timeout(PROBE_TIMEOUT, probe).await {
                self.heard = Instant::now();
            }
        }
    }

    /// Commits completed records. Nothing without a group.
    async fn commit(&mut self, feed: &Feed) -> Result<(), Failure> {
        let done = std::mem::take(&mut *lock(&self.shared.done));
        if self.kafka.group.is_none() || done.is_empty() {
            return Ok(());
        }
        let result = self.consumer.commit_offsets(offsets(&done)).await;
        match result {
            Ok(()) => feed.status.committed(),
            // The other members have the partitions, or will read them again: repeats are recognized by their offsets.
            Err(error) => {
                if self.warned.is_none_or(|at| at.elapsed() >= limits::LOG_INTERVAL) {
                    self.warned = Some(Instant::now());
                    log::warn!("source {} (kafka): not committed: {error}; retrying", feed.name);
                }
                let mut waiting = lock(&self.shared.done);
                for (key, next) in done {
                    waiting.entry(key).or_insert(next);
                }
            }
        }
        Ok(())
    }
}

/// The offset of a publication is one more than that of its record: this is the newest before the record at `next`.
fn number(next: i64) -> u64 {
    u64::try_from(next).unwrap_or(0)
}

fn epoch_of(feed: &Feed, topic_id: [u8; 16], (topic, partition): &Key, life: u64) -> Option<Epoch> {
    // Commands are for any channels, which other programs publish in as well. Brokers before 2.8 have no identifiers.
    let is_log = feed.mapping.format == RecordFormat::Data && topic_id != [0; 16];
    is_log.then(|| {
        epoch::of(&[
            b"kafka",
            &topic_id,
            topic.as_bytes(),
            &partition.to_be_bytes(),
            &life.to_be_bytes(),
        ])
    })
}
