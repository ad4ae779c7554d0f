//! Subscriptions with deltas whose clients reconnect and recover: they have each publication of a filter, or the last of a conflated channel.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::{ChannelOptions, EpochFilter, RecoverFrom, SlowConsumerPolicy};
use ringmain_hub::protocol::{Published, Variant};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, SubscriberLimits, SubscriptionFeatures};
use ringmain_hub::tag_filter::TagFilter;

use crate::hub::deltas::{Client, KEPT_DELTA, PROTOBUF, state, text};
use crate::hub::workers::{JSON, Workers, name};

const PUBLICATIONS: u64 = 150;

const INTERVAL: Duration = Duration::from_millis(20);

/// A client with deltas and a filter, which reconnects and recovers.
struct FilteredClient {
    client: Client,
    worker: usize,
    variant: Variant,
    is_subscribed: bool,
    /// The position of the last publication that it has processed.
    position: Option<StreamPosition>,
    received: Vec<u64>,
    kind: &'static str,
}

/// The tag of a state, which half of the filters match.
fn kind(number: u64) -> &'static str {
    if number.is_multiple_of(3) || number % 7 < 3 {
        "even"
    } else {
        "odd"
    }
}

impl FilteredClient {
    fn connect(workers: &mut Workers, at: usize, options: ChannelOptions) -> FilteredClient {
        let (worker, variant) = (at % 2, if at.is_multiple_of(3) { JSON } else { PROTOBUF });
        let mut filtered = FilteredClient {
            client: Client::new(variant, workers.tables[worker].open(variant, None)),
            worker,
            variant,
            is_subscribed: false,
            position: None,
            received: Vec::new(),
            kind: if at < 3 { "even" } else { "odd" },
        };
        filtered.subscribe(workers, options);
        filtered
    }

    fn subscribe(&mut self, workers: &mut Workers, options: ChannelOptions) {
        let json = format!(r#"{{"key":"kind","cmp":"eq","val":"{}"}}"#, self.kind);
        let filter = TagFilter::new(&serde_json::from_str(&json).expect("a filter")).expect("valid");
        let features = SubscriptionFeatures {
            delta: true,
            filter: Some(Arc::new(filter)).filter(|_| options.tags_filter),
            ..SubscriptionFeatures::default()
        };
        let since = self.position.map(|position| RecoverFrom {
            offset: position.offset,
            epoch: EpochFilter::Exact(position.epoch),
        });
        workers.tables[self.worker].close(self.client.conn);
        self.client.conn = workers.tables[self.worker].open(self.variant, None);
        self.client.base = None;
        workers.tables[self.worker]
            .subscribe_with(self.client.conn, &name("a"), options, since, None, features)
            .expect("allowed");
        self.is_subscribed = false;
    }

    fn poll(&mut self, workers: &mut Workers, limit: usize) {
        for number in self.client.poll(workers, self.worker, limit) {
            self.receive(number);
        }
    }

    fn receive(&mut self, number: u64) {
        if let Some(position) = &mut self.position {
            // The test's states have the numbers of their offsets.
            position.offset = number;
        }
        self.received.push(number);
    }
}

/// Handles the events of every worker: a client that was removed reconnects and recovers.
fn handle_events(workers: &mut Workers, options: ChannelOptions, clients: &mut [FilteredClient]) {
    for worker in 0..workers.tables.len() {
        while let Some(event) = workers.tables[worker].poll_event() {
            let of_conn = |conn: ConnId| {
                move |client: &&mut FilteredClient| client.worker == worker && client.client.conn == conn
            };
            match event {
                SubscriberEvent::Subscribed {
                    conn,
                    position,
                    missed,
                    ..
                } => {
                    let Some(client) = clients.iter_mut().find(of_conn(conn)) else {
                        continue;
                    };
                    client.is_subscribed = true;
                    for (offset, published) in missed.iter().flatten() {
                        client.client.base = Some(published.data.to_vec());
                        assert_eq!(published.data, text(*offset));
                        client.receive(*offset);
                    }
                    client.position = position;
                }
                SubscriberEvent::Unsubscribed { conn, .. } | SubscriberEvent::Disconnected { conn, .. } => {
                    if let Some(client) = clients.iter_mut().find(of_conn(conn)) {
                        client.subscribe(workers, options);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Filters or conflation, queues that are too small, and connections that are lost: clients that recover have each publication that
/// matches, or with conflation the last one.
#[test]
fn clients_with_deltas_that_recover_have_the_last_value() {
    let (mut deltas, mut wholes) = (0, 0);
    for seed in 0..80 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let is_conflated = seed % 2 == 1;
        let options = ChannelOptions {
            tags_filter: !is_conflated,
            cache_recovery: is_conflated,
            conflation_interval: is_conflated.then_some(INTERVAL),
            slow_consumer: [SlowConsumerPolicy::Disconnect, SlowConsumerPolicy::Resync][random.usize(..2)],
            ..KEPT_DELTA
        };
        for filtered in run(&mut random, options) {
            let received = &filtered.received;
            if is_conflated {
                assert!(received.is_sorted(), "{received:?}");
                assert_eq!(received.last(), Some(&PUBLICATIONS));
            } else {
                let all = 1..=PUBLICATIONS;
                let matching: Vec<u64> = all.filter(|number| kind(*number) == filtered.kind).collect();
                assert_eq!(received, &matching);
            }
            deltas += filtered.client.deltas;
            wholes += filtered.client.wholes;
        }
    }
    println!("{deltas} deltas, {wholes} whole");
    assert!(
        deltas > 5000 && wholes > 1000,
        "both were sent often: {deltas}, {wholes}"
    );
}

/// Returns the clients after [`PUBLICATIONS`], and the time in which all become current.
fn run(random: &mut fastrand::Rng, options: ChannelOptions) -> Vec<FilteredClient> {
    let limits = SubscriberLimits {
        subscriptions: 4,
        queued_bytes: random.usize(2000..6000),
    };
    let mut workers = Workers::new(2, limits);
    let mut clients: Vec<FilteredClient> = (0..6)
        .map(|at| FilteredClient::connect(&mut workers, at, options))
        .collect();
    step(&mut workers, options, &mut clients);
    for number in 1..=PUBLICATIONS {
        advance(&mut workers, Duration::from_millis(random.u64(..10)));
        let published = Published {
            tags: [("kind".to_owned(), kind(number).to_owned())].into(),
            ..state(number)
        };
        workers.tables[0].publish(&name("a"), options, published, None);
        step(&mut workers, options, &mut clients);
        for client in clients.iter_mut().filter(|client| client.is_subscribed) {
            client.poll(&mut workers, [0, 1, 2, 100][random.usize(..4)]);
            if random.u8(..20) == 0 {
                client.subscribe(&mut workers, options);
            }
        }
        step(&mut workers, options, &mut clients);
    }
    for _ in 0..20 {
        advance(&mut workers, INTERVAL);
        step(&mut workers, options, &mut clients);
        for client in &mut clients {
            client.poll(&mut workers, 100);
        }
    }
    clients
}

fn advance(workers: &mut Workers, time: Duration) {
    workers.now += time;
    for shard in &mut workers.shards {
        shard.release(workers.now);
    }
}

fn step(workers: &mut Workers, options: ChannelOptions, clients: &mut [FilteredClient]) {
    workers.deliver_all();
    handle_events(workers, options, clients);
}
