//! A log under the seed: it appends with delays, loses its last records, acknowledges ambiguously, lags, lets entries of other nodes wait, and
//! vanishes.
//!
//! Entries are folded as they are appended ([`Fold`]), without the reader of the node: the publications of each life by channel.

mod fold;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_cluster::limits::{LOG_APPEND_TIMEOUT, LOG_BATCH_RECORDS};
use ringmain_cluster::log::{
    Append, AppendOutcome, Binding, FollowFrom, Health, LogEvent, LogRequest, Opened, Partition, Record,
};

pub(super) use self::fold::Fold;
use self::fold::PartitionFold;

/// The numbers that a log gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// One by one in each partition, as Kafka.
    Dense,
    /// One by one over the partitions, as JetStream.
    Shared,
    /// By the time, as Redis: never twice.
    Time,
}

/// The faults that a log may have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogFaults {
    pub(super) rolls_back: bool,
    pub(super) is_ambiguous: bool,
    pub(super) lags: bool,
    pub(super) vanishes: bool,
}

#[derive(Clone, Debug)]
struct Stored {
    number: u64,
    time_ms: i64,
    append: Append,
    key: Option<(Arc<str>, Box<str>)>,
}

#[derive(Debug, Default)]
struct Stream {
    records: VecDeque<Stored>,
    /// The newest number.
    end: u64,
    /// The number below which records were deleted.
    first: u64,
    lags_until: Duration,
    fold: PartitionFold,
}

/// The connection of a node to the log.
#[derive(Debug, Default)]
struct Connection {
    /// Requests that have not arrived, in order.
    requests: VecDeque<(Duration, LogRequest)>,
    /// Events that have not arrived, in order.
    events: VecDeque<(Duration, LogEvent)>,
    /// The next number of each partition that is read.
    follows: BTreeMap<Partition, u64>,
    /// Follows that wait for the log.
    opening: BTreeMap<Partition, FollowFrom>,
    /// The first append of this node, and the last one, of those without a pause since the partition was requested.
    appends: BTreeMap<Partition, [Duration; 2]>,
    /// Partitions that this node has appended to and that were not read since.
    appended: BTreeSet<Partition>,
    was_connected: bool,
}

/// The time for which a node appends to a partition without a pause until entries of others wait for its own.
const SOLE_AFTER: Duration = Duration::from_secs(3);
/// A pause.
const SOLE_SILENCE: Duration = Duration::from_secs(2);

impl Connection {
    fn note_append(&mut self, partition: Partition, now: Duration) {
        let first = match self.appends.get(&partition) {
            Some([first, last]) if now.saturating_sub(*last) < SOLE_SILENCE => *first,
            _ => now,
        };
        self.appends.insert(partition, [first, now]);
        self.appended.insert(partition);
    }

    /// Returns whether the records of a partition wait for the next append of this node.
    fn waits_for_append(&mut self, partition: Partition, now: Duration) -> bool {
        let is_sole = self.appends.get(&partition).is_some_and(|[first, last]| {
            last.saturating_sub(*first) >= SOLE_AFTER && now.saturating_sub(*last) < SOLE_SILENCE
        });
        let has_appended = self.appended.remove(&partition);
        is_sole && !has_appended
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct MemoryLog {
    random: fastrand::Rng,
    numbers: Numbers,
    pub(super) faults: LogFaults,
    /// The broker recognizes idempotency keys.
    recognizes_keys: bool,
    /// A node that appends to a partition receives entries of others with its own ones, as the adapter of Redis does it.
    defers_others: bool,
    binding: Binding,
    streams: Vec<Stream>,
    shared_end: u64,
    connections: BTreeMap<usize, Connection>,
    away_until: Duration,
    /// Entries that arrive although their outcome was reported as unknown.
    late: Vec<(Duration, Append)>,
    pub(super) fold: Rc<RefCell<Fold>>,
    pub(super) rollbacks: u64,
}

fn millis(now: Duration) -> i64 {
    now.as_millis() as i64
}

impl MemoryLog {
    pub(super) fn new(seed: u64, partitions: u16, faults: LogFaults) -> MemoryLog {
        let mut random = fastrand::Rng::with_seed(seed);
        let numbers = [Numbers::Dense, Numbers::Shared, Numbers::Time][random.usize(..3)];
        let streams = (0..partitions).map(|_| Stream {
            first: 1,
            ..Stream::default()
        });
        MemoryLog {
            numbers,
            faults,
            recognizes_keys: random.bool(),
            defers_others: random.bool(),
            binding: Binding(random.u64(..)),
            streams: streams.collect(),
            shared_end: 0,
            connections: BTreeMap::new(),
            away_until: Duration::ZERO,
            late: Vec::new(),
            fold: Rc::default(),
            rollbacks: 0,
            random,
        }
    }

    fn is_away(&self, now: Duration) -> bool {
        now < self.away_until
    }

    /// A node has ended. Its requests may still arrive.
    pub(super) fn remove_host(&mut self, host: usize, now: Duration) {
        let Some(connection) = self.connections.remove(&host) else {
            return;
        };
        for (at, request) in connection.requests {
            if let LogRequest::Append(append) = request
                && self.random.bool()
            {
                self.late.push((at.max(now), append));
            }
        }
    }

    pub(super) fn submit(&mut self, host: usize, requests: Vec<LogRequest>, now: Duration) {
        let delay = Duration::from_millis(self.random.u64(0..30));
        let connection = self.connections.entry(host).or_default();
        let at = connection
            .requests
            .back()
            .map_or(now, |(at, _)| *at)
            .max(now + delay);
        let requests = requests.into_iter().map(|request| (at, request));
        connection.requests.extend(requests);
    }

    /// Returns the events that have arrived at a node.
    pub(super) fn poll(&mut self, host: usize, now: Duration) -> Vec<LogEvent> {
        self.append_late(now);
        self.serve(host, now);
        self.read(host, now);
        let connection = self.connections.entry(host).or_default();
        let mut events = Vec::new();
        while let Some((at, _)) = connection.events.front()
            && *at <= now
            && let Some((_, event)) = connection.events.pop_front()
        {
            events.push(event);
        }
        events
    }

    fn append_late(&mut self, now: Duration) {
        if self.is_away(now) {
            return;
        }
        let (due, rest) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.late = rest;
        for (_, append) in due {
            self.append(&append, now);
        }
    }

    fn send(&mut self, host: usize, event: LogEvent, now: Duration) {
        let delay = Duration::from_millis(self.random.u64(0..30));
        let connection = self.connections.entry(host).or_default();
        let at = connection
            .events
            .back()
            .map_or(now, |(at, _)| *at)
            .max(now + delay);
        connection.events.push_back((at, event));
    }

    fn serve(&mut self, host: usize, now: Duration) {
        let is_away = self.is_away(now);
        let connection = self.connections.entry(host).or_default();
        if connection.was_connected == is_away {
            connection.was_connected = !is_away;
            let health = Health {
                is_connected: !is_away,
                reason: if is_away { "away".into() } else { "".into() },
            };
            self.send(host, LogEvent::Health(health), now);
        }
        loop {
            let connection = self.connections.entry(host).or_default();
            let Some((at, request)) = connection.requests.front() else {
                break;
            };
            let is_append = matches!(request, LogRequest::Append(_));
            if *at > now || (is_away && is_append && now < *at + LOG_APPEND_TIMEOUT / 2) {
                break;
            }
            let Some((_, request)) = connection.requests.pop_front() else {
                break;
            };
            self.handle(host, request, is_away, now);
        }
        if !is_away {
            self.open_waiting(host, now);
        }
    }

    fn handle(&mut self, host: usize, request: LogRequest, is_away: bool, now: Duration) {
        match request {
            LogRequest::Append(append) if is_away => {
                let (id, outcome) = (append.id, AppendOutcome::Refused);
                self.send(host, LogEvent::Appended { id, outcome }, now);
            }
            LogRequest::Append(append) => {
                let id = append.id;
                let connection = self.connections.entry(host).or_default();
                connection.note_append(append.partition, now);
                let outcome = match self.random.u8(..) {
                    0..8 if self.faults.is_ambiguous => {
                        // Appended at once, late, or never.
                        match self.random.u8(0..3) {
                            0 => drop(self.append(&append, now)),
                            1 => {
                                let delay = Duration::from_millis(self.random.u64(0..1500));
                                self.late.push((now + delay, append));
                            }
                            _ => {}
                        }
                        AppendOutcome::Unknown
                    }
                    8..10 if self.faults.is_ambiguous => AppendOutcome::Refused,
                    _ => self.append(&append, now),
                };
                self.send(host, LogEvent::Appended { id, outcome }, now);
            }
            LogRequest::Follow { partition, from } => {
                let connection = self.connections.entry(host).or_default();
                connection.follows.remove(&partition);
                connection.appends.remove(&partition);
                connection.opening.insert(partition, from);
            }
            LogRequest::Unfollow { partition } => {
                let connection = self.connections.entry(host).or_default();
                connection.follows.remove(&partition);
                connection.opening.remove(&partition);
            }
            LogRequest::Tail {
                partition,
                before,
                bytes: _,
            } => {
                let connection = self.connections.entry(host).or_default();
                if connection.follows.contains_key(&partition) {
                    self.read_tail(host, partition, before, now);
                }
            }
        }
    }

    fn append(&mut self, append: &Append, now: Duration) -> AppendOutcome {
        let stream = &mut self.streams[usize::from(append.partition.0)];
        let key = append
            .key
            .as_ref()
            .map(|key| (Arc::clone(&key.channel), key.key.clone()));
        if self.recognizes_keys
            && let Some(key) = &append.key
            && let Some(stored) = stream.records.iter().find(|stored| {
                let is_within = millis(now) - stored.time_ms < key.window.as_millis() as i64;
                is_within
                    && stored
                        .key
                        .as_ref()
                        .is_some_and(|(channel, name)| *channel == key.channel && *name == key.key)
            })
        {
            return AppendOutcome::Repeated(stored.number);
        }
        let number = match self.numbers {
            Numbers::Dense => stream.end + 1,
            Numbers::Shared => self.shared_end + 1,
            Numbers::Time => (stream.end + 1).max((now.as_millis() as u64) << 12),
        };
        self.shared_end = self.shared_end.max(number);
        stream.end = number;
        let stored = Stored {
            number,
            time_ms: millis(now),
            append: append.clone(),
            key,
        };
        stream.fold(&mut self.fold.borrow_mut(), &stored, self.binding);
        stream.records.push_back(stored);
        AppendOutcome::Appended(number)
    }

    fn open_waiting(&mut self, host: usize, now: Duration) {
        let connection = self.connections.entry(host).or_default();
        let opening = std::mem::take(&mut connection.opening);
        for (partition, from) in opening {
            let stream = &self.streams[usize::from(partition.0)];
            let first_number = stream
                .records
                .front()
                .map_or(stream.end + 1, |stored| stored.number);
            let wanted = match from {
                FollowFrom::Number(number) => number,
                FollowFrom::Recent(time) => {
                    let since = millis(now.saturating_sub(time));
                    let recent = stream.records.iter().find(|stored| stored.time_ms >= since);
                    recent.map_or(stream.end + 1, |stored| stored.number)
                }
            };
            let from = if wanted < first_number && stream.first > wanted {
                first_number
            } else {
                wanted
            };
            let opened = Opened {
                partition,
                binding: self.binding,
                first: first_number,
                end: stream.end,
                from,
            };
            let connection = self.connections.entry(host).or_default();
            connection.follows.insert(partition, from);
            self.send(host, LogEvent::Opened(opened), now);
        }
    }

    /// Sends the records that a node has not received.
    fn read(&mut self, host: usize, now: Duration) {
        if self.is_away(now) {
            return;
        }
        let connection = self.connections.entry(host).or_default();
        for (partition, next) in connection.follows.clone() {
            let stream = &self.streams[usize::from(partition.0)];
            if now < stream.lags_until {
                continue;
            }
            let connection = self.connections.entry(host).or_default();
            if self.defers_others && connection.waits_for_append(partition, now) {
                continue;
            }
            if next < stream.first {
                let first = stream.first;
                let connection = self.connections.entry(host).or_default();
                connection.follows.insert(partition, first);
                self.send(host, LogEvent::Trimmed { partition, first }, now);
                continue;
            }
            let records = stream.records.iter().filter(|stored| stored.number >= next);
            // Own ones without reading them.
            let record = |stored: &Stored| match self.defers_others {
                true => Record::own(stored.number, stored.time_ms, &stored.append),
                false => stored.record(),
            };
            let records: Vec<Record> = records.take(LOG_BATCH_RECORDS).map(record).collect();
            let Some(last) = records.last().map(|record| record.number) else {
                continue;
            };
            let connection = self.connections.entry(host).or_default();
            connection.follows.insert(partition, last + 1);
            let now_ms = millis(now);
            let event = LogEvent::Records {
                partition,
                records,
                now_ms,
            };
            self.send(host, event, now);
        }
    }

    fn read_tail(&mut self, host: usize, partition: Partition, before: u64, now: Duration) {
        // Small parts find more; a world without faults has bounds for its times.
        let LogFaults {
            rolls_back,
            is_ambiguous,
            lags,
            vanishes,
        } = self.faults;
        let count = match rolls_back || is_ambiguous || lags || vanishes {
            true => self.random.usize(1..12),
            false => 1000,
        };
        let stream = &self.streams[usize::from(partition.0)];
        let older = stream.records.iter().filter(|stored| stored.number < before);
        let older: Vec<&Stored> = older.collect();
        let part = &older[older.len().saturating_sub(count)..];
        let is_first = part.len() == older.len();
        let from = match part.first() {
            Some(first) if !is_first => first.number,
            _ => stream.first.min(before),
        };
        let event = LogEvent::Older {
            partition,
            from,
            records: part.iter().map(|stored| stored.record()).collect(),
            is_first,
            now_ms: millis(now),
        };
        self.send(host, event, now);
    }

    /// The connection of a node, or of each, is lost.
    pub(super) fn cut(&mut self, host: Option<usize>, now: Duration) {
        let hosts: Vec<usize> = match host {
            Some(host) => vec![host],
            None => self.connections.keys().copied().collect(),
        };
        for host in hosts {
            let connection = self.connections.entry(host).or_default();
            let follows: BTreeSet<Partition> = std::mem::take(&mut connection.follows).into_keys().collect();
            // Events on their way are lost; outcomes of appends are unknown.
            let events = std::mem::take(&mut connection.events);
            for (at, event) in events {
                match event {
                    LogEvent::Appended { id, outcome } => {
                        let outcome = match outcome {
                            AppendOutcome::Appended(_) if self.random.bool() => AppendOutcome::Unknown,
                            outcome => outcome,
                        };
                        let connection = self.connections.entry(host).or_default();
                        connection
                            .events
                            .push_back((at, LogEvent::Appended { id, outcome }));
                    }
                    LogEvent::Health(_) | LogEvent::Closed { .. } => {
                        let connection = self.connections.entry(host).or_default();
                        connection.events.push_back((at, event));
                    }
                    _ => {}
                }
            }
            for partition in follows {
                self.send(host, LogEvent::Closed { partition }, now);
            }
        }
    }

    /// The log cannot be reached for a time.
    pub(super) fn vanish(&mut self, time: Duration, now: Duration) {
        self.away_until = now + time;
        self.cut(None, now);
    }

    /// A partition stalls for a time.
    pub(super) fn lag(&mut self, time: Duration, now: Duration) {
        let index = self.random.usize(..self.streams.len());
        self.streams[index].lags_until = now + time;
    }

    /// Retention deletes old records, none with an idempotency key: a configuration whose retention is shorter than keys are remembered is
    /// refused.
    pub(super) fn trim(&mut self, age: Duration, now: Duration) {
        let before = millis(now.saturating_sub(age));
        for stream in &mut self.streams {
            while let Some(stored) = stream.records.front()
                && stored.time_ms < before
                && stored.key.is_none()
            {
                stream.first = stored.number + 1;
                stream.records.pop_front();
            }
        }
    }

    /// Returns whether each node has read all that it follows, and nothing is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let is_settled = |connection: &Connection| {
            let has_read =
                |(partition, next): (&Partition, &u64)| *next > self.streams[usize::from(partition.0)].end;
            connection.events.is_empty()
                && connection.opening.is_empty()
                && connection.follows.iter().all(has_read)
        };
        let is_followed = |index: usize| {
            let partition = Partition(index as u16);
            self.connections
                .values()
                .any(|connection| connection.follows.contains_key(&partition))
        };
        self.late.is_empty()
            && self.connections.values().all(is_settled)
            && (0..self.streams.len()).all(is_followed)
    }

    /// The broker continues with an older state. With the same binding nothing but the records shows it.
    pub(super) fn roll_back(&mut self, keeps_binding: bool, now: Duration) {
        self.rollbacks += 1;
        if !keeps_binding {
            self.binding = Binding(self.random.u64(..));
        }
        for stream in &mut self.streams {
            let count = self.random.usize(0..=stream.records.len().min(12));
            let kept = stream.records.len() - count;
            stream.records.truncate(kept);
            stream.end = stream
                .records
                .back()
                .map_or(stream.first - 1, |stored| stored.number);
            stream.refold(count > 0);
        }
        if self.numbers == Numbers::Shared {
            let ends = self.streams.iter().map(|stream| stream.end);
            self.shared_end = ends.max().unwrap_or_default();
        }
        self.cut(None, now);
    }
}

impl Stored {
    fn record(&self) -> Record {
        Record::read(self.number, self.time_ms, &self.append.entry)
    }
}
