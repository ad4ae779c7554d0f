//! The rate at which shards send the publications of conflated channels, and the cached publication for new subscribers.

use std::time::Duration;

use ringmain_hub::mail::{ChannelOptions, EpochFilter, RecoverFrom};
use ringmain_hub::protocol::{Format, Replies, Unsubscribed};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, shard_of};

use crate::hub::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, name, number};

const EVERY: Duration = Duration::from_millis(200);

const PACED: ChannelOptions = ChannelOptions {
    conflation_interval: Some(EVERY),
    ..KEPT
};

const CACHE: ChannelOptions = ChannelOptions {
    cache_recovery: true,
    ..KEPT
};

fn at(workers: &mut Workers, millis: u64) {
    workers.now = Duration::from_millis(millis);
    for shard in &mut workers.shards {
        shard.release(workers.now);
    }
    workers.deliver_all();
}

fn offsets(workers: &mut Workers, worker: usize, conn: ConnId) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(frame) = workers.tables[worker].pop_push(conn) {
        let reply = Replies::new(Format::Json, frame)
            .next()
            .expect("one")
            .expect("a reply");
        all.push(reply.push.expect("a push").pub_.expect("a publication").offset);
    }
    all
}

#[test]
fn the_first_publication_is_sent_at_once_then_the_last_per_interval() {
    let mut workers = Workers::new(2, LIMITS);
    let conns = [0, 1].map(|worker| {
        let conn = workers.tables[worker].open(JSON, None);
        workers.tables[worker]
            .subscribe(conn, &name("a"), PACED, None)
            .expect("allowed");
        conn
    });
    workers.deliver_all();
    let mut had = [const { Vec::new() }; 2];
    for millis in (0..1000).step_by(5) {
        at(&mut workers, millis);
        workers.tables[0].publish(&name("a"), PACED, number(millis), None);
        workers.deliver_all();
        for (worker, had) in had.iter_mut().enumerate() {
            let got = offsets(&mut workers, worker, conns[worker]);
            had.extend(got.into_iter().map(|offset| (millis, offset)));
        }
    }
    // At 200 ms the publication of 195 ms is sent, the 40th.
    let expected = [(0, 1), (200, 40), (400, 80), (600, 120), (800, 160)];
    assert_eq!(had, [expected, expected]);
    at(&mut workers, 1000);
    let last = [0, 1].map(|worker| offsets(&mut workers, worker, conns[worker]));
    assert_eq!(last, [[200], [200]]);
    at(&mut workers, 1200);
    let shard = usize::from(shard_of("a", 2).0);
    assert_eq!(workers.shards[shard].next_release(), None, "nothing waits");
    assert_eq!(workers.tables[0].next_release(), None, "no update is pending");
    at(&mut workers, 1500);
    workers.tables[0].publish(&name("a"), PACED, number(0), None);
    workers.deliver_all();
    assert_eq!(offsets(&mut workers, 0, conns[0]), [201], "at once");
    workers.tables[0].publish(&name("a"), PACED, number(0), None);
    at(&mut workers, 1525);
    at(&mut workers, 1699);
    assert!(offsets(&mut workers, 0, conns[0]).is_empty(), "too soon");
    at(&mut workers, 1712);
    assert!(offsets(&mut workers, 0, conns[0]).is_empty(), "too soon");
    at(&mut workers, 1713);
    assert_eq!(
        offsets(&mut workers, 0, conns[0]),
        [202],
        "on the way to its place, an eighth of a half later"
    );
}

#[test]
fn a_new_subscriber_starts_at_the_last_sent_publication() {
    let mut workers = Workers::new(1, LIMITS);
    let subscribe = |workers: &mut Workers, offset| {
        let conn = workers.tables[0].open(JSON, None);
        let epoch = EpochFilter::Any;
        workers.tables[0]
            .subscribe(conn, &name("a"), PACED, Some(RecoverFrom { offset, epoch }))
            .expect("allowed");
        workers.deliver_all();
        conn
    };
    let first = subscribe(&mut workers, 0);
    assert_eq!(workers.events(0), ["subscribed a at Some(0) missed Some([])"]);
    for published in 1..=3 {
        workers.tables[0].publish(&name("a"), PACED, number(published), None);
    }
    workers.deliver_all();
    // 3 is held: a new subscriber receives it when the shard sends it.
    let second = subscribe(&mut workers, 0);
    assert_eq!(workers.events(0), ["subscribed a at Some(1) missed Some([1])"]);
    at(&mut workers, 25);
    assert_eq!(offsets(&mut workers, 0, first), [1]);
    assert_eq!(offsets(&mut workers, 0, second), [3]);
    at(&mut workers, 200);
    assert_eq!(offsets(&mut workers, 0, first), [3]);
    let third = subscribe(&mut workers, 1);
    assert_eq!(workers.events(0), ["subscribed a at Some(3) missed Some([3])"]);
    subscribe(&mut workers, 3);
    assert_eq!(
        workers.events(0),
        ["subscribed a at Some(3) missed Some([])"],
        "it has the last publication"
    );
    assert!(offsets(&mut workers, 0, third).is_empty());
}

#[test]
fn cache_recovery_returns_only_the_last_publication() {
    let mut workers = Workers::new(1, LIMITS);
    for published in 1..=3 {
        workers.tables[0].publish(&name("a"), CACHE, number(published), None);
    }
    let mut subscribed = |epoch, offset| {
        let conn = workers.tables[0].open(JSON, None);
        workers.tables[0]
            .subscribe(conn, &name("a"), CACHE, Some(RecoverFrom { offset, epoch }))
            .expect("allowed");
        workers.deliver_all();
        workers.events(0).remove(0)
    };
    assert_eq!(
        subscribed(EpochFilter::Any, 0),
        "subscribed a at Some(3) missed Some([3])"
    );
    assert_eq!(
        subscribed(EpochFilter::Foreign, 3),
        "subscribed a at Some(3) missed Some([3])",
        "3 of another life"
    );
    assert_eq!(
        subscribed(EpochFilter::Any, 3),
        "subscribed a at Some(3) missed Some([])"
    );
    // No publication can replace the one that the client has from another epoch.
    for (epoch, offset, missed) in [
        (EpochFilter::Any, 0, "Some([])"),
        (EpochFilter::Any, 4, "None"),
        (EpochFilter::Foreign, 0, "None"),
        (EpochFilter::Foreign, 4, "None"),
    ] {
        let conn = workers.tables[0].open(JSON, None);
        workers.tables[0]
            .subscribe(conn, &name("empty"), CACHE, Some(RecoverFrom { offset, epoch }))
            .expect("allowed");
        workers.deliver_all();
        let expected = format!("subscribed empty at Some(0) missed {missed}");
        assert_eq!(workers.events(0), [expected], "{epoch:?}, {offset}");
    }
    workers.now = Duration::from_secs(3600);
    let conn = workers.tables[0].open(JSON, None);
    let since = RecoverFrom {
        offset: 1,
        epoch: EpochFilter::Any,
    };
    workers.tables[0]
        .subscribe(conn, &name("a"), CACHE, Some(since))
        .expect("allowed");
    workers.deliver_all();
    assert_eq!(
        workers.events(0),
        ["subscribed a at Some(3) missed None"],
        "it has expired"
    );
}

#[test]
fn conflation_works_without_offsets() {
    let options = ChannelOptions {
        conflation_interval: Some(EVERY),
        ..PLAIN
    };
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(conn, &name("a"), options, None)
        .expect("allowed");
    workers.deliver_all();
    for published in 1..=5 {
        workers.tables[0].publish(&name("a"), options, number(published), None);
    }
    workers.deliver_all();
    at(&mut workers, 25);
    let push = |data| format!(r#"{{"push":{{"channel":"a","pub":{{"data":{data}}}}}}}"#);
    assert_eq!(workers.pushes(0, conn), [push(1)]);
    at(&mut workers, 200);
    assert_eq!(workers.pushes(0, conn), [push(5)]);
    // Without subscribers nothing is held, and the channel expires.
    for published in 6..=7 {
        workers.tables[0].publish(&name("a"), options, number(published), None);
    }
    workers.deliver_all();
    workers.tables[0].close(conn);
    workers.deliver_all();
    workers.shards[0].sweep(workers.now);
    assert_eq!(workers.shards[0].len(), 1, "one is still held");
    assert_eq!(workers.tables[0].next_release(), None, "no update is pending");
    at(&mut workers, 400);
    workers.shards[0].sweep(workers.now);
    assert!(workers.shards[0].is_empty());
}

#[test]
fn changed_options_preserve_order() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(conn, &name("a"), PACED, None)
        .expect("allowed");
    for published in 1..=2 {
        workers.tables[0].publish(&name("a"), PACED, number(published), None);
    }
    workers.deliver_all();
    assert_eq!(offsets(&mut workers, 0, conn), [1]);
    workers.tables[0].publish(&name("a"), KEPT, number(3), None);
    workers.deliver_all();
    assert_eq!(offsets(&mut workers, 0, conn), [3]);
    assert_eq!(workers.shards[0].next_release(), None, "2 was overtaken");
    for published in 4..=6 {
        workers.tables[0].publish(&name("a"), PACED, number(published), None);
    }
    workers.deliver_all();
    at(&mut workers, 25);
    assert_eq!(offsets(&mut workers, 0, conn), [4]);
    at(&mut workers, 199);
    assert!(offsets(&mut workers, 0, conn).is_empty(), "too soon");
    at(&mut workers, 200);
    // Publication 3 changed the options, which resets the rate limit: 4 is sent at once.
    assert_eq!(offsets(&mut workers, 0, conn), [6]);
}

/// A subscription, or a pending one, and the last offset that it received.
struct Client {
    worker: usize,
    conn: ConnId,
    is_requested: bool,
    last: u64,
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    workers: Workers,
    clients: Vec<Client>,
    shard: usize,
    published: u64,
    /// The numbers of held publications and of new subscribers that received the cached one.
    held: u32,
    given: u32,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            seed,
            random: fastrand::Rng::with_seed(seed),
            workers: Workers::new(3, LIMITS),
            clients: Vec::new(),
            shard: usize::from(shard_of("a", 3).0),
            published: 0,
            held: 0,
            given: 0,
        }
    }

    fn step(&mut self) {
        let worker = self.random.usize(0..3);
        let any = self.random.usize(0..self.clients.len().max(1));
        match self.random.u8(0..10) {
            0 if self.clients.len() < 6 => {
                let conn = self.workers.tables[worker].open(JSON, None);
                self.clients.push(Client {
                    worker,
                    conn,
                    is_requested: false,
                    last: 0,
                });
            }
            1 if !self.clients.is_empty() => {
                let gone = self.clients.swap_remove(any);
                self.workers.tables[gone.worker].close(gone.conn);
            }
            2 if !self.clients.is_empty() => {
                let Client { worker, conn, .. } = self.clients[any];
                self.workers.tables[worker].unsubscribe(conn, "a", Unsubscribed::SERVER);
            }
            3..6 => {
                // Sometimes more than fits into a queue.
                let rare = self.random.u8(0..80) == 0;
                let burst = if rare { 5000 } else { self.random.u64(1..5) };
                for _ in 0..burst {
                    self.workers.tables[worker].publish(&name("a"), PACED, number(0), None);
                }
                self.published += burst;
            }
            6 => {
                self.workers.now += Duration::from_millis(self.random.u64(0..150));
                self.workers.shards[self.shard].release(self.workers.now);
                self.workers.tables[worker].release(self.workers.now);
                let next = self.workers.shards[self.shard].next_release();
                self.held += u32::from(next.is_some());
            }
            _ => {
                let limit = self.random.usize(0..2000);
                self.workers.up(worker, self.shard, limit);
                let (to, limit) = (self.random.usize(0..3), self.random.usize(0..20));
                self.workers.down(self.shard, to, limit);
            }
        }
    }

    fn subscribe(&mut self) {
        for client in self.clients.iter_mut().filter(|client| !client.is_requested) {
            client.is_requested = true;
            let since = RecoverFrom {
                offset: client.last,
                epoch: EpochFilter::Any,
            };
            self.workers.tables[client.worker]
                .subscribe(client.conn, &name("a"), PACED, Some(since))
                .expect("allowed");
        }
    }

    /// Applies events and pushes to the clients. Offsets only grow.
    fn receive_all(&mut self) {
        let seed = self.seed;
        for worker in 0..self.workers.tables.len() {
            while let Some(event) = self.workers.tables[worker].poll_event() {
                let (SubscriberEvent::Subscribed { conn, .. } | SubscriberEvent::Unsubscribed { conn, .. }) =
                    event
                else {
                    panic!("seed {seed}: {event:?}");
                };
                let mut clients = self.clients.iter_mut();
                // Closed connections receive nothing.
                let Some(client) = clients.find(|client| (client.worker, client.conn) == (worker, conn))
                else {
                    continue;
                };
                let SubscriberEvent::Subscribed { position, missed, .. } = event else {
                    client.is_requested = false;
                    continue;
                };
                let position = position.expect("a position").offset;
                assert!(position >= client.last, "seed {seed}: back to {position}");
                if let [(offset, _)] = &missed.expect("the last is kept")[..] {
                    assert!(*offset == position && position > client.last, "seed {seed}");
                    self.given += 1;
                }
                client.last = position;
            }
        }
        for client in &mut self.clients {
            for offset in offsets(&mut self.workers, client.worker, client.conn) {
                assert!(
                    offset > client.last,
                    "seed {seed}: {offset} behind {}",
                    client.last
                );
                client.last = offset;
            }
        }
    }

    /// Delivers all mail, and subscribes unsubscribed clients again.
    fn end(&mut self) {
        for _ in 0..5 {
            self.workers.deliver_all();
            self.workers.now += EVERY;
            self.workers.shards[self.shard].release(self.workers.now);
            self.workers.deliver_all();
            self.receive_all();
            self.subscribe();
        }
        for client in &self.clients {
            assert_eq!(client.last, self.published, "seed {}", self.seed);
        }
    }
}

/// Random subscriptions, publications and delays of mail: no publication is duplicated or out of order, and in the end every subscriber has
/// the last one.
#[test]
fn conflated_channels_deliver_in_order_and_end_with_the_last() {
    let (mut held, mut given) = (0, 0);
    for seed in 0..100 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
            world.subscribe();
            world.receive_all();
        }
        world.end();
        held += world.held;
        given += world.given;
    }
    assert!(held > 100 && given > 100, "{held} {given}: both occurred");
}
