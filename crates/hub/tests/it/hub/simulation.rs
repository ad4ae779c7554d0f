//! Subscribers that rely on the events they receive, while a seed decides the actions and the order of mail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::{EpochFilter, RecoverFrom};
use ringmain_hub::protocol::{Format, Replies, Unsubscribed};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, shard_of};

use crate::hub::workers::{JSON, KEPT, LIMITS, Workers, name, number};

/// The state of one subscription to a channel with offsets.
#[derive(Default)]
struct SubscriptionView {
    /// The position, once a reply reported it.
    position: Option<StreamPosition>,
    /// True once it has requested a subscription; `is_subscribed` follows with the reply.
    is_requested: bool,
    is_subscribed: bool,
}

/// A client that relies on the events it receives.
struct Client {
    worker: usize,
    conn: ConnId,
    view: BTreeMap<Arc<str>, SubscriptionView>,
}

impl Client {
    /// Checks that a publication is the next one of its channel.
    fn receive_push(&mut self, channel: &str, offset: u64, seed: u64) {
        let view = self.view.get_mut(channel).expect("a requested channel");
        assert!(view.is_subscribed, "seed {seed}: {channel} before the reply");
        let position = view.position.as_mut().expect("a position");
        assert_eq!(offset, position.offset + 1, "seed {seed}: {channel}");
        position.offset = offset;
    }

    fn receive_event(&mut self, event: SubscriberEvent, seed: u64) {
        match event {
            SubscriberEvent::Subscribed {
                channel,
                position,
                missed,
                ..
            } => {
                let view = self.view.get_mut(&channel).expect("a requested channel");
                assert!(view.is_requested && !view.is_subscribed, "seed {seed}");
                let position = position.expect("a position");
                if let Some(missed) = missed {
                    let had = view.position.expect("a position");
                    let offsets: Vec<u64> = missed.iter().map(|(offset, _)| *offset).collect();
                    assert_eq!(
                        offsets,
                        (had.offset + 1..=position.offset).collect::<Vec<_>>(),
                        "seed {seed}"
                    );
                }
                view.position = Some(position);
                view.is_subscribed = true;
            }
            SubscriberEvent::Unsubscribed { channel, .. } => {
                let view = self.view.get_mut(&channel).expect("a requested channel");
                (view.is_requested, view.is_subscribed) = (false, false);
            }
            event => panic!("seed {seed}: {event:?}"),
        }
    }
}

/// Random actions and delays of mail, and bursts of publications that fill the queues.
#[test]
fn no_publication_is_lost_duplicated_or_reordered_in_random_runs() {
    let channels = CHANNELS.map(name);
    let shards: BTreeSet<_> = channels.iter().map(|channel| shard_of(channel, 3)).collect();
    assert!(shards.len() > 1, "the channels belong to several shards");
    let mut occurrences = Occurrences::default();
    for seed in 0..100 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
            world.receive_all(&mut occurrences);
        }
        world.end(&mut occurrences);
    }
    assert!(
        occurrences.recovered > 100 && occurrences.again > 100,
        "{occurrences:?}: both occurred"
    );
}

const CHANNELS: [&str; 3] = ["a", "b", "c"];

/// The number of occurrences of each tested situation.
#[derive(Debug, Default)]
struct Occurrences {
    /// A client reconnected and recovered missed publications.
    recovered: u32,
    /// A client was unsubscribed and had to subscribe again.
    again: u32,
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    workers: Workers,
    clients: Vec<Client>,
    published: BTreeMap<Arc<str>, u64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut workers = Workers::new(3, LIMITS);
        let clients = [0, 0, 1, 1, 2].map(|worker| Client {
            worker,
            conn: workers.tables[worker].open(JSON, None),
            view: BTreeMap::new(),
        });
        World {
            seed,
            random: fastrand::Rng::with_seed(seed),
            workers,
            clients: clients.into(),
            published: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        let channel = name(self.random.choice(CHANNELS).expect("one"));
        let index = self.random.usize(0..self.clients.len());
        let client = &mut self.clients[index];
        let table = &mut self.workers.tables[client.worker];
        match self.random.u8(0..12) {
            0..3 => {
                // Sometimes more than fits into a queue: publications that are not retained are then reported as lost.
                let rare = self.random.u8(0..60) == 0;
                let burst = if rare { 5000 } else { self.random.u64(1..4) };
                self.publish(&channel, burst);
            }
            3 => subscribe(&mut self.workers, client, &channel),
            4 => {
                if client.view.get(&channel).is_some_and(|view| view.is_subscribed) {
                    table.unsubscribe(client.conn, &channel, Unsubscribed::SERVER);
                }
            }
            5 => {
                table.close(client.conn);
                client.conn = table.open(JSON, None);
                let view = client.view.values_mut();
                view.for_each(|view| (view.is_requested, view.is_subscribed) = (false, false));
            }
            _ => {
                let (worker, shard) = (self.random.usize(0..3), self.random.usize(0..3));
                self.workers.up(worker, shard, self.random.usize(0..20));
                self.workers.down(shard, worker, self.random.usize(0..20));
            }
        }
    }

    fn publish(&mut self, channel: &Arc<str>, burst: u64) {
        let shard = usize::from(shard_of(channel, 3).0);
        for _ in 0..burst {
            self.workers.tables[shard].publish(channel, KEPT, number(0), None);
        }
        *self.published.entry(channel.clone()).or_default() += burst;
    }

    /// Delivers all mail and subscribes unsubscribed clients again, until every client has every publication.
    fn end(&mut self, occurrences: &mut Occurrences) {
        for _ in 0..5 {
            for client in &mut self.clients {
                for channel in CHANNELS.map(name) {
                    subscribe(&mut self.workers, client, &channel);
                }
            }
            self.workers.deliver_all();
            self.receive_all(occurrences);
        }
        for client in &self.clients {
            for channel in CHANNELS {
                let position = client.view[channel].position.expect("subscribed");
                let published = self.published.get(channel).copied().unwrap_or(0);
                assert_eq!(position.offset, published, "seed {}: {channel}", self.seed);
            }
        }
    }

    fn receive_all(&mut self, occurrences: &mut Occurrences) {
        let seed = self.seed;
        for worker in 0..self.workers.tables.len() {
            while let Some(event) = self.workers.tables[worker].poll_event() {
                let (SubscriberEvent::Subscribed { conn, .. } | SubscriberEvent::Unsubscribed { conn, .. }) =
                    &event
                else {
                    panic!("seed {seed}: {event:?}");
                };
                let mut clients = self.clients.iter_mut();
                // Closed connections receive nothing.
                let Some(client) = clients.find(|client| (client.worker, client.conn) == (worker, *conn))
                else {
                    continue;
                };
                let missed = matches!(&event, SubscriberEvent::Subscribed { missed: Some(missed), .. } if !missed.is_empty());
                occurrences.recovered += u32::from(missed);
                let reason = Unsubscribed::INSUFFICIENT;
                occurrences.again += u32::from(
                    matches!(&event, SubscriberEvent::Unsubscribed { reason: found, .. } if *found == reason),
                );
                client.receive_event(event, seed);
            }
            while let Some(conn) = self.workers.tables[worker].poll_ready() {
                let mut clients = self.clients.iter_mut();
                let client = clients.find(|client| (client.worker, client.conn) == (worker, conn));
                let client = client.expect("an open connection");
                while let Some(frame) = self.workers.tables[worker].pop_push(conn) {
                    let reply = Replies::new(Format::Json, frame)
                        .next()
                        .expect("one")
                        .expect("a reply");
                    let push = reply.push.expect("a push");
                    client.receive_push(&push.channel, push.pub_.expect("a publication").offset, seed);
                }
            }
        }
    }
}

fn subscribe(workers: &mut Workers, client: &mut Client, channel: &Arc<str>) {
    let view = client.view.entry(channel.clone()).or_default();
    if view.is_requested {
        return;
    }
    view.is_requested = true;
    let since = view.position.map(|position| RecoverFrom {
        offset: position.offset,
        epoch: EpochFilter::Exact(position.epoch),
    });
    workers.tables[client.worker]
        .subscribe(client.conn, channel, KEPT, since)
        .expect("allowed");
}
