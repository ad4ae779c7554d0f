//! The ticks at which clients receive updates of conflated channels: all updates of a client at one tick, each client at its own.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::mail::{ChannelOptions, PublishOptions, SlowConsumerPolicy};
use ringmain_hub::protocol::{Format, Published, Replies, Unsubscribed, Variant};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, SubscriberLimits};

use crate::hub::workers::{JSON, KEPT, LIMITS, Workers, name, number};

const EVERY: Duration = Duration::from_millis(200);
/// The interval at which a shard sends updates of such a channel to workers.
const PASSED: Duration = Duration::from_millis(25);

const PACED: ChannelOptions = ChannelOptions {
    conflation_interval: Some(EVERY),
    slow_consumer: SlowConsumerPolicy::Conflate,
    ..KEPT
};

const FAST: ChannelOptions = ChannelOptions {
    conflation_interval: Some(Duration::from_millis(50)),
    ..PACED
};

fn at(workers: &mut Workers, millis: u64) {
    workers.now = Duration::from_millis(millis);
    for shard in &mut workers.shards {
        shard.release(workers.now);
    }
    workers.deliver_all();
}

/// Pops the pushes of a connection. Returns their channels and offsets.
fn pop_all(workers: &mut Workers, worker: usize, conn: ConnId) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    while let Some(frame) = workers.tables[worker].pop_push(conn) {
        let reply = Replies::new(Format::Json, frame).next();
        let push = reply.expect("one").expect("a reply").push.expect("a push");
        let offset = push.pub_.map_or(0, |publication| publication.offset);
        all.push((push.channel, offset));
    }
    all
}

fn subscriber(workers: &mut Workers, worker: usize, channels: &[(&str, ChannelOptions)]) -> ConnId {
    let conn = workers.tables[worker].open(JSON, None);
    for (channel, options) in channels {
        workers.tables[worker]
            .subscribe(conn, &name(channel), *options, None)
            .expect("allowed");
    }
    workers.deliver_all();
    workers.events(worker);
    conn
}

fn publish(workers: &mut Workers, channel: &str, options: ChannelOptions) {
    workers.tables[0].publish(&name(channel), options, number(0), None);
    workers.deliver_all();
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter()
        .map(|(name, offset)| ((*name).to_owned(), *offset))
        .collect()
}

#[test]
fn all_updates_of_a_client_are_sent_at_one_tick() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = subscriber(&mut workers, 0, &[("a", PACED), ("b", PACED), ("c", PACED)]);
    publish(&mut workers, "a", PACED);
    publish(&mut workers, "b", PACED);
    assert_eq!(workers.tables[0].poll_ready(), Some(conn));
    assert_eq!(
        pop_all(&mut workers, 0, conn),
        named(&[("a", 1)]),
        "the first is sent at once"
    );
    for (millis, channel) in [(10, "c"), (50, "a"), (120, "c"), (150, "b")] {
        at(&mut workers, millis);
        publish(&mut workers, channel, PACED);
    }
    at(&mut workers, 199);
    assert_eq!(workers.tables[0].poll_ready(), None, "too soon");
    at(&mut workers, 200);
    assert_eq!(workers.tables[0].poll_ready(), Some(conn));
    assert_eq!(workers.tables[0].poll_ready(), None, "once for all updates");
    assert_eq!(
        pop_all(&mut workers, 0, conn),
        named(&[("a", 2), ("b", 2), ("c", 2)])
    );
    assert_eq!(
        workers.tables[0].counts().deliveries,
        4,
        "superseded publications are not delivered"
    );
    assert_eq!(
        workers.tables[0].counts().slow,
        [0; SlowConsumerPolicy::ALL.len()]
    );
}

#[test]
fn ticks_of_many_clients_spread_over_the_interval() {
    const CLIENTS: usize = 200;
    let mut workers = Workers::new(1, LIMITS);
    let conns: Vec<ConnId> = (0..CLIENTS)
        .map(|_| subscriber(&mut workers, 0, &[("a", PACED)]))
        .collect();
    let mut last = vec![Duration::ZERO; CLIENTS];
    let mut parts = [0; 8];
    for millis in 0..6000 {
        at(&mut workers, millis);
        publish(&mut workers, "a", PACED);
        for (conn, last) in conns.iter().zip(&mut last) {
            let got = pop_all(&mut workers, 0, *conn).len();
            if millis == 0 {
                assert_eq!(got, 1, "the first is sent at once");
            } else if got > 0 {
                let span = workers.now - *last;
                assert!(
                    got == 1
                        && span >= EVERY - Duration::from_millis(1)
                        && span <= EVERY * 17 / 16 + Duration::from_millis(1),
                    "{got} after {span:?}"
                );
                *last = workers.now;
                if millis >= 5800 {
                    parts[(millis as usize % 200) / 25] += 1;
                }
            }
        }
    }
    assert_eq!(parts.iter().sum::<usize>(), CLIENTS);
    assert!(parts.iter().all(|part| (20..=30).contains(part)), "{parts:?}");
}

#[test]
fn unsubscribed_clients_receive_no_pending_updates() {
    let mut workers = Workers::new(1, LIMITS);
    let both = [("a", PACED), ("b", PACED)];
    let [stays, leaves, ends] = [0; 3].map(|_| subscriber(&mut workers, 0, &both));
    for _ in 0..2 {
        publish(&mut workers, "a", PACED);
        publish(&mut workers, "b", PACED);
        at(&mut workers, 25);
    }
    for conn in [stays, leaves, ends] {
        assert_eq!(pop_all(&mut workers, 0, conn).len(), 1);
    }
    workers.tables[0].unsubscribe_silently(leaves, "a");
    workers.tables[0].close(ends);
    let other = workers.tables[0].open(JSON, None);
    assert_eq!(other.slot(), ends.slot(), "the index is reused");
    at(&mut workers, 300);
    assert_eq!(pop_all(&mut workers, 0, stays), named(&[("a", 2), ("b", 2)]));
    assert_eq!(pop_all(&mut workers, 0, leaves), named(&[("b", 2)]));
    assert!(pop_all(&mut workers, 0, ends).is_empty());
    assert!(pop_all(&mut workers, 0, other).is_empty());
    // A new subscription has the current state, and no update is due.
    workers.tables[0]
        .subscribe(leaves, &name("a"), PACED, None)
        .expect("allowed");
    at(&mut workers, 600);
    assert!(pop_all(&mut workers, 0, leaves).is_empty());
    workers.tables[0].close(stays);
    workers.tables[0].close(leaves);
    assert_eq!(workers.tables[0].next_release(), None);
}

#[test]
fn each_interval_has_its_own_ticks() {
    let mut workers = Workers::new(1, LIMITS);
    let all = [("fast", FAST), ("slow", PACED), ("plain", KEPT)];
    let conn = subscriber(&mut workers, 0, &all);
    let mut had: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for millis in 0..=400 {
        at(&mut workers, millis);
        for (channel, options) in all {
            publish(&mut workers, channel, options);
        }
        for (channel, _) in pop_all(&mut workers, 0, conn) {
            had.entry(channel).or_default().push(millis);
        }
    }
    assert_eq!(had["fast"], (0..=400).step_by(50).collect::<Vec<u64>>());
    assert_eq!(had["slow"], [0, 200, 400]);
    assert_eq!(had["plain"], (0..=400).collect::<Vec<u64>>());
}

#[test]
fn changed_options_apply_to_pending_updates() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = subscriber(&mut workers, 0, &[("a", PACED), ("b", PACED)]);
    publish(&mut workers, "a", PACED);
    publish(&mut workers, "b", PACED);
    at(&mut workers, 25);
    publish(&mut workers, "a", PACED);
    // From now on all publications of `a` are sent: 2 is superseded and must not follow 3.
    publish(&mut workers, "a", KEPT);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("a", 1), ("a", 3)]));
    at(&mut workers, 200);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("b", 1)]));
    // A new interval starts with its first update.
    publish(&mut workers, "b", PACED);
    publish(&mut workers, "b", FAST);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[]), "the shard holds it");
    at(&mut workers, 225);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("b", 3)]));
    publish(&mut workers, "b", FAST);
    at(&mut workers, 275);
    assert_eq!(pop_all(&mut workers, 0, conn).len(), 0, "moving to its phase");
    at(&mut workers, 279);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("b", 4)]));
    at(&mut workers, 1000);
    assert_eq!(workers.tables[0].next_release(), None);
}

#[test]
fn transient_publications_are_not_conflated() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = subscriber(&mut workers, 0, &[("a", PACED)]);
    publish(&mut workers, "a", PACED);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("a", 1)]));
    at(&mut workers, 50);
    publish(&mut workers, "a", PACED);
    let transient = || {
        Some(Box::new(PublishOptions {
            transient: true,
            idempotency: None,
        }))
    };
    workers.tables[0].publish_for(&name("a"), PACED, &number(7).into(), transient(), None);
    workers.deliver_all();
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("a", 0)]));
    // A queued push of another kind does not make the client a slow consumer.
    at(&mut workers, 199);
    workers.tables[0].publish_for(&name("a"), PACED, &number(7).into(), transient(), None);
    at(&mut workers, 200);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("a", 0), ("a", 2)]));
    assert_eq!(
        workers.tables[0].counts().slow,
        [0; SlowConsumerPolicy::ALL.len()]
    );
}

#[test]
fn a_slow_consumer_skips_ticks_and_then_receives_the_newest() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = subscriber(&mut workers, 0, &[("a", PACED), ("b", PACED)]);
    for millis in 0..2000 {
        at(&mut workers, millis);
        publish(&mut workers, "a", PACED);
        publish(&mut workers, "b", PACED);
        assert!(workers.tables[0].queued_bytes(conn) < 100, "two pushes");
    }
    let counts = workers.tables[0].counts();
    // At 0 it received `a`; at 9 ticks both updates were skipped.
    assert_eq!(counts.deliveries, 1);
    assert_eq!(counts.slow[SlowConsumerPolicy::Conflate.number()], 18);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("a", 1)]));
    at(&mut workers, 2025);
    assert_eq!(pop_all(&mut workers, 0, conn), named(&[("a", 2000), ("b", 2000)]));
}

/// Each policy, for updates of one tick that exceed the queue.
#[test]
fn updates_beyond_the_queue_are_handled_by_policy() {
    let limits = SubscriberLimits {
        queued_bytes: 110,
        ..LIMITS
    };
    for slow in SlowConsumerPolicy::ALL {
        let mut workers = Workers::new(1, limits);
        let options = ChannelOptions {
            slow_consumer: slow,
            ..PACED
        };
        let conn = subscriber(
            &mut workers,
            0,
            &[("a", options), ("b", options), ("c", options), ("d", options)],
        );
        for channel in ["d", "a", "b", "c", "d"] {
            publish(&mut workers, channel, options);
        }
        at(&mut workers, 25);
        assert_eq!(pop_all(&mut workers, 0, conn), named(&[("d", 1)]), "{slow:?}");
        at(&mut workers, 200);
        assert!(workers.tables[0].queued_bytes(conn) <= 110);
        let first = pop_all(&mut workers, 0, conn);
        at(&mut workers, 400);
        let second = pop_all(&mut workers, 0, conn);
        let (first, second): (Vec<_>, Vec<_>) = (
            first.iter().map(|(channel, _)| &**channel).collect(),
            second.iter().map(|(channel, _)| &**channel).collect(),
        );
        match slow {
            SlowConsumerPolicy::Disconnect => assert_eq!(workers.events(0), ["disconnected 3008"]),
            SlowConsumerPolicy::Resync => {
                assert_eq!((first, second), (vec!["d", "a"], vec![]));
                assert_eq!(
                    workers.events(0),
                    ["unsubscribed b: 2500", "unsubscribed c: 2500"]
                );
            }
            // No queued push is older than the update, so none is dropped for it: the updates follow at a later tick.
            SlowConsumerPolicy::DropNew | SlowConsumerPolicy::DropOld | SlowConsumerPolicy::Conflate => {
                assert_eq!((first, second), (vec!["d", "a"], vec!["b", "c"]));
                assert_eq!(workers.tables[0].counts().slow[slow.number()], 2);
            }
        }
    }
}

#[test]
fn unencodable_updates_disconnect_only_that_client() {
    let mut workers = Workers::new(1, LIMITS);
    let protobuf = Variant {
        format: Format::Protobuf,
        ..JSON
    };
    let conns = [JSON, protobuf].map(|variant| {
        let conn = workers.tables[0].open(variant, None);
        workers.tables[0]
            .subscribe(conn, &name("a"), PACED, None)
            .expect("allowed");
        conn
    });
    workers.deliver_all();
    workers.events(0);
    let bytes = Published {
        data: Bytes::from_static(b"\xff"),
        ..Published::default()
    };
    workers.tables[0].publish(&name("a"), PACED, bytes, None);
    workers.deliver_all();
    assert_eq!(workers.events(0), ["disconnected 3506"]);
    assert!(workers.tables[0].pop_push(conns[0]).is_none());
    assert!(workers.tables[0].pop_push(conns[1]).is_some());
}

/// A client and its state of each channel.
struct Client {
    worker: usize,
    conn: ConnId,
    is_slow: bool,
    has: BTreeMap<usize, Has>,
}

#[derive(Default)]
struct Has {
    is_subscribed: bool,
    /// The last offset and its arrival, unless the reply reported it.
    last: u64,
    at: Option<Duration>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

struct World {
    seed: u64,
    random: fastrand::Rng,
    workers: Workers,
    clients: Vec<Client>,
    options: [ChannelOptions; 3],
    /// The time of the last change of options, and the time of publication by offset.
    changed: [Duration; 3],
    published: [Vec<Duration>; 3],
    given: u64,
}

impl World {
    fn step(&mut self) {
        let (channel, any) = (
            self.random.usize(0..3),
            self.random.usize(0..self.clients.len().max(1)),
        );
        match self.random.u32(0..1000) {
            0..10 if self.clients.len() < 20 => {
                let worker = self.random.usize(0..2);
                let conn = self.workers.tables[worker].open(JSON, None);
                self.clients.push(Client {
                    worker,
                    conn,
                    is_slow: self.random.u8(0..4) == 0,
                    has: BTreeMap::new(),
                });
            }
            10..12 if !self.clients.is_empty() => {
                let gone = self.clients.swap_remove(any);
                self.workers.tables[gone.worker].close(gone.conn);
            }
            12..40 if !self.clients.is_empty() => {
                let Client {
                    worker, conn, has, ..
                } = &mut self.clients[any];
                let table = &mut self.workers.tables[*worker];
                if has.remove(&channel).is_some() {
                    table.unsubscribe(*conn, NAMES[channel], Unsubscribed::SERVER);
                } else {
                    let options = self.options[channel];
                    table
                        .subscribe(*conn, &name(NAMES[channel]), options, None)
                        .expect("allowed");
                    has.insert(channel, Has::default());
                }
            }
            40 => {
                self.options[channel] = [PACED, FAST, KEPT][self.random.usize(0..3)];
                self.changed[channel] = self.workers.now;
                self.publish(channel);
            }
            // Sometimes no publication for a while.
            41..400 if !(self.workers.now.as_millis() / 1000 + channel as u128).is_multiple_of(3) => {
                self.publish(channel);
            }
            _ => {}
        }
    }

    fn publish(&mut self, channel: usize) {
        let worker = self.random.usize(0..2);
        let options = self.options[channel];
        self.workers.tables[worker].publish(&name(NAMES[channel]), options, number(0), None);
        self.published[channel].push(self.workers.now);
    }

    /// Advances the time by a millisecond and delivers everything that is due.
    fn tick(&mut self) {
        self.workers.now += Duration::from_millis(1);
        for shard in &mut self.workers.shards {
            shard.release(self.workers.now);
        }
        self.workers.deliver_all();
        for worker in 0..2 {
            while let Some(event) = self.workers.tables[worker].poll_event() {
                let SubscriberEvent::Subscribed {
                    conn,
                    channel,
                    position,
                    ..
                } = event
                else {
                    continue;
                };
                let mut clients = self.clients.iter_mut();
                let client = clients.find(|client| (client.worker, client.conn) == (worker, conn));
                let channel = NAMES
                    .iter()
                    .position(|name| *name == &*channel)
                    .expect("one of them");
                if let Some(has) = client.and_then(|client| client.has.get_mut(&channel)) {
                    (has.is_subscribed, has.last) = (true, position.expect("a position").offset);
                }
            }
        }
    }

    fn receive_all(&mut self) {
        let (seed, now) = (self.seed, self.workers.now);
        for number in 0..self.clients.len() {
            let Client {
                worker,
                conn,
                is_slow,
                ..
            } = self.clients[number];
            if is_slow && self.random.u8(0..200) > 0 {
                continue;
            }
            for (channel, offset) in pop_all(&mut self.workers, worker, conn) {
                let channel = NAMES
                    .iter()
                    .position(|name| **name == *channel)
                    .expect("one of them");
                let has = self.clients[number].has.get_mut(&channel);
                let has = has.unwrap_or_else(|| panic!("seed {seed}: {channel} is not listened to"));
                assert!(
                    has.is_subscribed && offset > has.last,
                    "seed {seed}: {offset} behind {}",
                    has.last
                );
                // The previous options apply until the first publication with the current ones has arrived.
                let changed = self.changed[channel] + PASSED + Duration::from_millis(2);
                let before = has.at.filter(|at| *at > changed);
                if let (Some(conflation_interval), Some(before), false) =
                    (self.options[channel].conflation_interval, before, is_slow)
                {
                    assert!(
                        now - before >= conflation_interval - Duration::from_millis(1),
                        "seed {seed}: {channel} by {conflation_interval:?} at {now:?} and {before:?}, changed at {changed:?}"
                    );
                }
                (has.last, has.at) = (offset, Some(now));
                self.given += 1;
            }
        }
    }

    /// Checks that no client that reads lags behind by more than allowed.
    fn check(&self) {
        let (seed, now) = (self.seed, self.workers.now);
        for client in self.clients.iter().filter(|client| !client.is_slow) {
            for (channel, has) in client.has.iter().filter(|(_, has)| has.is_subscribed) {
                let next = self.published[*channel].get(has.last as usize);
                // The current options may have applied only since a moment before.
                let late = PASSED + EVERY * 17 / 16 + Duration::from_millis(3);
                assert!(
                    next.is_none_or(|next| now - *next <= late),
                    "seed {seed}: {} since {next:?} at {now:?}",
                    has.last
                );
            }
        }
    }
}

/// Random subscriptions, reads, publications and options: no client receives updates of a channel at shorter intervals than allowed, none
/// is outdated or unexpected, and the last one arrives in time.
#[test]
fn updates_arrive_in_time_and_not_too_often() {
    let mut given = 0;
    for seed in 0..30 {
        println!("seed {seed}");
        let mut world = World {
            seed,
            random: fastrand::Rng::with_seed(seed),
            workers: Workers::new(2, LIMITS),
            clients: Vec::new(),
            options: [PACED, FAST, PACED],
            changed: [Duration::ZERO; 3],
            published: [const { Vec::new() }; 3],
            given: 0,
        };
        for _ in 0..4000 {
            world.step();
            world.tick();
            world.receive_all();
            world.check();
        }
        // All clients read, the slow ones for the first time, and have the last publication.
        world.changed = [world.workers.now; 3];
        for client in &mut world.clients {
            client.is_slow = false;
        }
        for _ in 0..1000 {
            world.tick();
            world.receive_all();
        }
        for (channel, has) in world.clients.iter().flat_map(|client| &client.has) {
            assert_eq!(has.last as usize, world.published[*channel].len(), "seed {seed}");
        }
        assert!(
            world
                .workers
                .tables
                .iter()
                .all(|table| table.next_release().is_none())
        );
        given += world.given;
    }
    assert!(given > 10_000, "{given}: it was tried");
}
