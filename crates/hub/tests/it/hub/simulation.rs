//! Subscribers that believe what they are told, while chance decides what happens and which mail arrives when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::{EpochFilter, RecoverFrom};
use ringmain_hub::protocol::{Format, Replies, Unsubscribed};
use ringmain_hub::subscribers::{ConnId, Event, shard_of};

use crate::hub::workers::{JSON, KEPT, LIMITS, Workers, name, number};

/// What one subscriber has, for a channel with numbers.
#[derive(Default)]
struct Heard {
    /// Where it stands, once it was told.
    position: Option<StreamPosition>,
    /// It listens, or waits for the answer.
    asked: bool,
    listens: bool,
}

/// A subscriber that believes what it is told.
struct Client {
    worker: usize,
    conn: ConnId,
    heard: BTreeMap<Arc<str>, Heard>,
}

impl Client {
    /// A publication is the next one of its channel.
    fn hears(&mut self, channel: &str, offset: u64, seed: u64) {
        let heard = self.heard.get_mut(channel).expect("a channel that it asked for");
        assert!(heard.listens, "seed {seed}: {channel} before the answer");
        let position = heard.position.as_mut().expect("numbers");
        assert_eq!(offset, position.offset + 1, "seed {seed}: {channel}");
        position.offset = offset;
    }

    fn is_told(&mut self, event: Event, seed: u64) {
        match event {
            Event::Subscribed {
                channel,
                position,
                missed,
                ..
            } => {
                let heard = self.heard.get_mut(&channel).expect("a channel that it asked for");
                assert!(heard.asked && !heard.listens, "seed {seed}");
                let position = position.expect("numbers");
                if let Some(missed) = missed {
                    let had = heard.position.expect("it stood somewhere");
                    let offsets: Vec<u64> = missed.iter().map(|(offset, _)| *offset).collect();
                    assert_eq!(
                        offsets,
                        (had.offset + 1..=position.offset).collect::<Vec<_>>(),
                        "seed {seed}"
                    );
                }
                heard.position = Some(position);
                heard.listens = true;
            }
            Event::Unsubscribed { channel, .. } => {
                let heard = self.heard.get_mut(&channel).expect("a channel that it asked for");
                (heard.asked, heard.listens) = (false, false);
            }
            event => panic!("seed {seed}: {event:?}"),
        }
    }
}

/// Chance decides who does what, and which mail arrives when; homes send so much at once that queues fill up.
#[test]
fn nothing_is_missed_doubled_or_out_of_order_whatever_the_mail_does() {
    let channels = CHANNELS.map(name);
    let shards: BTreeSet<_> = channels.iter().map(|channel| shard_of(channel, 3)).collect();
    assert!(shards.len() > 1, "channels are at home at several workers");
    let mut tried = Tried::default();
    for seed in 0..100 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
            world.listen(&mut tried);
        }
        world.end(&mut tried);
    }
    assert!(
        tried.recovered > 100 && tried.again > 100,
        "{tried:?}: both were tried"
    );
}

const CHANNELS: [&str; 3] = ["a", "b", "c"];

/// How often it came to what the test is about.
#[derive(Debug, Default)]
struct Tried {
    /// Somebody came back and had missed something that was there.
    recovered: u32,
    /// Somebody was told to subscribe again.
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
            heard: BTreeMap::new(),
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
                // Sometimes more than a queue takes: then what is not kept is lost, and all must be told.
                let rare = self.random.u8(0..60) == 0;
                let burst = if rare { 5000 } else { self.random.u64(1..4) };
                self.publish(&channel, burst);
            }
            3 => subscribe(&mut self.workers, client, &channel),
            4 => {
                if client.heard.get(&channel).is_some_and(|heard| heard.listens) {
                    table.unsubscribe(client.conn, &channel, Unsubscribed::SERVER);
                }
            }
            5 => {
                table.close(client.conn);
                client.conn = table.open(JSON, None);
                let heard = client.heard.values_mut();
                heard.for_each(|heard| (heard.asked, heard.listens) = (false, false));
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

    /// All mail arrives, and whoever is told to subscribe again does: then all have all.
    fn end(&mut self, tried: &mut Tried) {
        for _ in 0..5 {
            for client in &mut self.clients {
                for channel in CHANNELS.map(name) {
                    subscribe(&mut self.workers, client, &channel);
                }
            }
            self.workers.settle();
            self.listen(tried);
        }
        for client in &self.clients {
            for channel in CHANNELS {
                let position = client.heard[channel].position.expect("it listens");
                let published = self.published.get(channel).copied().unwrap_or(0);
                assert_eq!(position.offset, published, "seed {}: {channel}", self.seed);
            }
        }
    }

    fn listen(&mut self, tried: &mut Tried) {
        let seed = self.seed;
        for worker in 0..self.workers.tables.len() {
            while let Some(event) = self.workers.tables[worker].poll_event() {
                let (Event::Subscribed { conn, .. } | Event::Unsubscribed { conn, .. }) = &event else {
                    panic!("seed {seed}: {event:?}");
                };
                let mut clients = self.clients.iter_mut();
                // Who has gone hears nothing.
                let Some(client) = clients.find(|client| (client.worker, client.conn) == (worker, *conn))
                else {
                    continue;
                };
                let missed =
                    matches!(&event, Event::Subscribed { missed: Some(missed), .. } if !missed.is_empty());
                tried.recovered += u32::from(missed);
                let reason = Unsubscribed::INSUFFICIENT;
                tried.again += u32::from(
                    matches!(&event, Event::Unsubscribed { reason: found, .. } if *found == reason),
                );
                client.is_told(event, seed);
            }
            while let Some(conn) = self.workers.tables[worker].poll_ready() {
                let mut clients = self.clients.iter_mut();
                let client = clients.find(|client| (client.worker, client.conn) == (worker, conn));
                let client = client.expect("nobody else is ready");
                while let Some(frame) = self.workers.tables[worker].pop_push(conn) {
                    let reply = Replies::new(Format::Json, frame)
                        .next()
                        .expect("one")
                        .expect("a reply");
                    let push = reply.push.expect("a push");
                    client.hears(&push.channel, push.pub_.expect("a publication").offset, seed);
                }
            }
        }
    }
}

fn subscribe(workers: &mut Workers, client: &mut Client, channel: &Arc<str>) {
    let heard = client.heard.entry(channel.clone()).or_default();
    if heard.asked {
        return;
    }
    heard.asked = true;
    let since = heard.position.map(|position| RecoverFrom {
        offset: position.offset,
        epoch: EpochFilter::Exact(position.epoch),
    });
    workers.tables[client.worker]
        .subscribe(client.conn, channel, KEPT, since)
        .expect("it may");
}
