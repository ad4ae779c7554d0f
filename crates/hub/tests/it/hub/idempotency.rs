//! A source whose records have keys and no offsets, while a seed decides the events. The source repeats records that it has not committed,
//! and workers stall.
//!
//! ```text
//! partitions ─ read, pause ─▶ bounded inboxes of shards ─▶ shards ─ mail ─▶ clients, which check every publication
//!      ▲────────────── commit up to the first pending record ─┘
//! ```
//!
//! `SIM_SEEDS=10000` runs the long suite (`cargo xtask suite sim`), `SIM_SEED=n` one seed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::mail::{EpochFilter, Idempotency, Origin, RecoverFrom};
use ringmain_hub::shard::LogPublishOutcome;
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, shard_of};

use crate::hub::workers::{JSON, KEPT, LIMITS, Workers, name, number};

const WORKERS: usize = 2;
/// The channels, two for each shard.
const CHANNELS: [&str; 4] = ["a", "e", "b", "f"];
const PARTITIONS: usize = 3;
/// The capacity of an inbox, in records.
const ROOM: usize = 4;
/// The records of a partition in flight, at most.
const IN_FLIGHT: usize = 6;
const STEPS: usize = 600;
const WINDOW: Duration = Duration::from_secs(300);

fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => number("SIM_FIRST").unwrap_or(0)..number("SIM_SEEDS").unwrap_or(100),
    }
}

/// A record: its channel, and its number within the channel.
type StateRecord = (&'static str, u64);

/// A partition and the state of its reader.
#[derive(Default)]
struct Partition {
    records: Vec<StateRecord>,
    /// The next record to read.
    next: usize,
    /// The records below are done and will not be read again.
    committed: usize,
    /// For the records from `committed` on: whether they are done.
    done: VecDeque<bool>,
    /// The number of turns in which the broker does not respond.
    stalled: u32,
}

/// A client that is subscribed to every channel, with the numbers of the newest publications.
struct Client {
    worker: usize,
    conn: ConnId,
    newest: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
struct Occurred {
    /// The records that were read again after they were published, and before.
    duplicates: u64,
    redelivered: u64,
    /// The reads that found an inbox full, and those of other partitions that found room in the meantime.
    full: u64,
    continued: u64,
    /// The workers that stalled.
    held: u64,
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    workers: Workers,
    partitions: Vec<Partition>,
    /// For each shard, the partitions and indexes of the records in its inbox.
    inboxes: Vec<VecDeque<(usize, usize)>>,
    /// The number of turns in which a shard processes nothing.
    held: [u32; WORKERS],
    written: BTreeMap<&'static str, u64>,
    clients: Vec<Client>,
    occurred: Occurred,
}

/// Returns the partition of a channel: two channels share one.
fn partition_of(channel: &str) -> usize {
    CHANNELS
        .iter()
        .position(|name| *name == channel)
        .expect("a channel")
        % PARTITIONS
}

fn shard_index(channel: &str) -> usize {
    usize::from(shard_of(channel, WORKERS as u16).0)
}

impl World {
    fn new(seed: u64) -> World {
        let mut workers = Workers::new(WORKERS as u16, LIMITS);
        let clients = (0..WORKERS).map(|worker| {
            let table = &mut workers.tables[worker];
            let conn = table.open(JSON, None);
            for channel in CHANNELS {
                let subscribed = table.subscribe(conn, &name(channel), KEPT, None);
                subscribed.expect("few channels");
            }
            let newest = BTreeMap::new();
            Client { worker, conn, newest }
        });
        let clients = clients.collect();
        workers.deliver_all();
        for worker in 0..WORKERS {
            assert_eq!(workers.events(worker).len(), CHANNELS.len());
        }
        World {
            seed,
            random: fastrand::Rng::with_seed(seed),
            workers,
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            inboxes: vec![VecDeque::new(); WORKERS],
            held: [0; WORKERS],
            written: BTreeMap::new(),
            clients,
            occurred: Occurred::default(),
        }
    }

    fn step(&mut self) {
        let partition = self.random.usize(0..PARTITIONS);
        let worker = self.random.usize(0..WORKERS);
        match self.random.u32(0..1000) {
            0..250 => self.write(),
            250..550 => self.read(partition),
            550..800 => self.take(worker),
            800..940 => self.mail(),
            940..960 => self.reconnect(partition),
            960..975 => self.partitions[partition].stalled = self.random.u32(2..30),
            975..985 => {
                self.held[worker] = self.random.u32(5..40);
                self.occurred.held += 1;
            }
            _ => self.commit(partition),
        }
    }

    fn write(&mut self) {
        let channel = self.random.choice(CHANNELS).expect("one");
        let count = self.written.entry(channel).or_default();
        *count += 1;
        let record = (channel, *count);
        self.partitions[partition_of(channel)].records.push(record);
    }

    /// Reads the next record of a partition if the inbox has room. If not, only this partition pauses.
    fn read(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        if partition.stalled > 0 {
            partition.stalled -= 1;
            return;
        }
        let Some(&(channel, _)) = partition.records.get(partition.next) else {
            return;
        };
        let is_any_full = self.inboxes.iter().any(|inbox| inbox.len() >= ROOM);
        let inbox = &mut self.inboxes[shard_index(channel)];
        if inbox.len() >= ROOM || partition.next - partition.committed >= IN_FLIGHT {
            self.occurred.full += 1;
            return;
        }
        self.occurred.continued += u64::from(is_any_full);
        inbox.push_back((index, partition.next));
        partition.next += 1;
        partition.done.push_back(false);
    }

    /// Publishes the next record in a shard's inbox.
    fn take(&mut self, shard: usize) {
        if self.held[shard] > 0 {
            self.held[shard] -= 1;
            return;
        }
        let Some((index, position)) = self.inboxes[shard].pop_front() else {
            return;
        };
        let partition = &mut self.partitions[index];
        let (channel, count) = partition.records[position];
        let idempotency = Idempotency {
            key: format!("{index}/{position}").into(),
            window: WINDOW,
        };
        let now = self.workers.now;
        let published = Arc::new(number(count));
        let outcome = self.workers.shards[shard].publish_idempotent(
            &name(channel),
            KEPT,
            published,
            Some(idempotency),
            Origin::source(0),
            now,
        );
        assert_ne!(outcome, LogPublishOutcome::NoRoom, "seed {}", self.seed);
        self.occurred.duplicates += u64::from(outcome == LogPublishOutcome::Duplicate);
        // After a reconnect, receipts are of records that were committed in the meantime or are read again.
        let position = position.checked_sub(partition.committed);
        if let Some(done) = position.and_then(|position| partition.done.get_mut(position)) {
            *done = true;
        }
    }

    fn commit(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        while partition.done.front() == Some(&true) {
            partition.done.pop_front();
            partition.committed += 1;
        }
    }

    /// Loses the connection: all records that were not committed are read again, even if they are in an inbox.
    fn reconnect(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        self.occurred.redelivered += (partition.next - partition.committed) as u64;
        partition.next = partition.committed;
        partition.done.clear();
    }

    fn mail(&mut self) {
        for _ in 0..3 {
            let (worker, shard) = (self.random.usize(0..WORKERS), self.random.usize(0..WORKERS));
            let (up, down) = (self.random.usize(0..6), self.random.usize(0..6));
            self.workers.up(worker, shard, up);
            self.workers.down(shard, worker, down);
        }
        self.receive();
    }

    /// Checks that each client receives the publications of each channel once and in order.
    fn receive(&mut self) {
        for client in &mut self.clients {
            for text in self.workers.pushes(client.worker, client.conn) {
                let push = parse(&text).unwrap_or_else(|| panic!("seed {}: {text}", self.seed));
                let (channel, count) = push;
                let newest = client.newest.entry(channel).or_default();
                assert_eq!(count, *newest + 1, "seed {}: {channel}", self.seed);
                *newest = count;
            }
        }
    }

    /// Ends all stalls and delivers everything.
    fn finish(&mut self) {
        self.held = [0; WORKERS];
        for partition in &mut self.partitions {
            partition.stalled = 0;
        }
        for _ in 0..3 * STEPS {
            (0..PARTITIONS).for_each(|index| self.read(index));
            (0..WORKERS).for_each(|shard| self.take(shard));
            (0..PARTITIONS).for_each(|index| self.commit(index));
        }
        self.workers.deliver_all();
        self.receive();
        for worker in 0..WORKERS {
            if let Some(event) = self.workers.tables[worker].poll_event() {
                panic!("seed {}: {event:?}", self.seed);
            }
        }
        for client in &self.clients {
            assert_eq!(client.newest, self.written, "seed {}", self.seed);
        }
        for partition in &self.partitions {
            assert_eq!(partition.committed, partition.records.len(), "seed {}", self.seed);
        }
        self.recover();
    }

    /// Checks the positions of the clients: nothing is missing or repeated after the newest publications.
    fn recover(&mut self) {
        let table = &mut self.workers.tables[0];
        let conn = table.open(JSON, None);
        for channel in CHANNELS {
            let since = RecoverFrom {
                offset: self.written.get(channel).copied().unwrap_or(0),
                epoch: EpochFilter::Any,
            };
            let subscribed = table.subscribe(conn, &name(channel), KEPT, Some(since));
            subscribed.expect("few channels");
        }
        self.workers.deliver_all();
        while let Some(event) = self.workers.tables[0].poll_event() {
            let SubscriberEvent::Subscribed { missed, .. } = event else {
                panic!("seed {}: {event:?}", self.seed);
            };
            let missed = missed.map(|missed| missed.len());
            assert_eq!(missed, Some(0), "seed {}", self.seed);
        }
    }
}

/// Returns the channel and the number of a push.
fn parse(text: &str) -> Option<StateRecord> {
    let rest = text.strip_prefix(r#"{"push":{"channel":""#)?;
    let channel = CHANNELS.into_iter().find(|name| rest.starts_with(name))?;
    let (_, rest) = rest.split_once(r#""data":"#)?;
    let digits = rest.find(|byte: char| !byte.is_ascii_digit())?;
    Some((channel, rest[..digits].parse().ok()?))
}

#[test]
fn duplicates_are_dropped_and_a_full_inbox_pauses_only_its_partitions() {
    let mut all = Occurred::default();
    for seed in seeds() {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
        let Occurred {
            duplicates,
            redelivered,
            full,
            continued,
            held,
        } = world.occurred;
        all.duplicates += duplicates;
        all.redelivered += redelivered;
        all.full += full;
        all.continued += continued;
        all.held += held;
    }
    println!("{all:?}");
    if seeds().count() >= 100 {
        let least = [all.duplicates, all.redelivered, all.full, all.continued, all.held];
        assert!(least.iter().all(|count| *count > 100), "{all:?}");
    }
}
