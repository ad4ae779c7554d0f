//! Subscriptions with deltas: clients that apply them, whatever pushes they miss.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::delta::fossil;
use ringmain_hub::mail::{ChannelOptions, PublishOptions, RecoverFrom, SlowConsumerPolicy};
use ringmain_hub::protocol::{Format, Publication, Published, Replies, Variant};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent, SubscriberLimits, SubscriptionFeatures};

use crate::hub::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, name};

const DELTA: ChannelOptions = ChannelOptions { delta: true, ..PLAIN };

pub(crate) const KEPT_DELTA: ChannelOptions = ChannelOptions { delta: true, ..KEPT };

pub(crate) const PROTOBUF: Variant = Variant {
    format: Format::Protobuf,
    unidirectional: false,
    framed: false,
};

/// A publication of 600 bytes, most of which are the same in each.
pub(crate) fn state(number: u64) -> Published {
    Published {
        data: Bytes::from(text(number)),
        ..Published::default()
    }
}

pub(crate) fn text(number: u64) -> String {
    format!(
        "{{\"number\":{number},\"text\":\"{}\",\"again\":{}}}",
        "wörds ".repeat(80),
        number % 7
    )
}

/// A client that applies deltas.
pub(crate) struct Client {
    pub(crate) format: Format,
    pub(crate) conn: ConnId,
    pub(crate) base: Option<Vec<u8>>,
    pub(crate) deltas: usize,
    pub(crate) wholes: usize,
}

impl Client {
    pub(crate) fn subscribe(
        workers: &mut Workers,
        worker: usize,
        variant: Variant,
        options: ChannelOptions,
        recover_from: Option<RecoverFrom>,
    ) -> Client {
        let conn = workers.tables[worker].open(variant, None);
        let features = SubscriptionFeatures {
            delta: true,
            ..SubscriptionFeatures::default()
        };
        workers.tables[worker]
            .subscribe_with(conn, &name("a"), options, recover_from, None, features)
            .expect("allowed");
        Client::new(variant, conn)
    }

    pub(crate) fn new(variant: Variant, conn: ConnId) -> Client {
        Client {
            format: variant.format,
            conn,
            base: None,
            deltas: 0,
            wholes: 0,
        }
    }

    /// Applies a publication, and returns the number of the state.
    fn receive(&mut self, publication: &Publication) -> u64 {
        let data: Vec<u8> = match self.format {
            Format::Json => serde_json::from_slice::<String>(&publication.data)
                .expect("data is a text")
                .into(),
            Format::Protobuf => publication.data.to_vec(),
        };
        let data = if publication.delta {
            self.deltas += 1;
            assert!(data.len() < 100, "a delta is short");
            let base = self.base.as_ref().expect("the client has a base");
            fossil::apply(base, &data, 10_000).expect("the delta is of the client's base")
        } else {
            self.wholes += 1;
            data
        };
        let json: serde_json::Value = serde_json::from_slice(&data).expect("JSON");
        let number = json["number"].as_u64().expect("a number");
        assert_eq!(data, text(number).as_bytes());
        self.base = Some(data);
        number
    }

    /// Receives up to `limit` queued pushes. Returns the numbers of their states.
    pub(crate) fn poll(&mut self, workers: &mut Workers, worker: usize, limit: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < limit
            && let Some(frame) = workers.tables[worker].pop_push(self.conn)
        {
            let reply = Replies::new(self.format, frame)
                .next()
                .expect("one")
                .expect("a reply");
            let push = reply.push.expect("a push");
            assert_eq!(push.channel, "a");
            numbers.push(self.receive(&push.pub_.expect("a publication")));
        }
        numbers
    }
}

fn publish(workers: &mut Workers, options: ChannelOptions, number: u64) {
    workers.tables[0].publish(&name("a"), options, state(number), None);
}

#[test]
fn the_first_publication_is_whole_and_the_next_ones_are_deltas() {
    for options in [DELTA, KEPT_DELTA] {
        let mut workers = Workers::new(2, LIMITS);
        let plain = workers.tables[0].open(JSON, None);
        workers.tables[0]
            .subscribe(plain, &name("a"), options, None)
            .expect("allowed");
        let mut clients = [(0, JSON), (1, JSON), (1, PROTOBUF)].map(|(worker, variant)| {
            (
                worker,
                Client::subscribe(&mut workers, worker, variant, options, None),
            )
        });
        workers.deliver_all();
        for number in 1..=5 {
            publish(&mut workers, options, number);
        }
        workers.deliver_all();
        for (worker, client) in &mut clients {
            assert_eq!(client.poll(&mut workers, *worker, 9), [1, 2, 3, 4, 5]);
            assert_eq!((client.wholes, client.deltas), (1, 4));
        }
        // A subscriber without deltas is not affected.
        let pushes = workers.pushes(0, plain);
        assert_eq!(pushes.len(), 5);
        assert!(
            pushes
                .iter()
                .all(|push| push.contains("\"data\":{\"number\"") && !push.contains("delta"))
        );
    }
}

#[test]
fn data_that_has_nothing_in_common_is_sent_whole() {
    let mut workers = Workers::new(1, LIMITS);
    let client = Client::subscribe(&mut workers, 0, JSON, DELTA, None);
    workers.deliver_all();
    for data in ["1", "2", "[\"abcdefgh\"]"] {
        let published = Published {
            data: Bytes::from(data),
            ..Published::default()
        };
        workers.tables[0].publish(&name("a"), DELTA, published, None);
    }
    workers.deliver_all();
    assert_eq!(
        workers.pushes(0, client.conn),
        [
            r#"{"push":{"channel":"a","pub":{"data":"1"}}}"#,
            r#"{"push":{"channel":"a","pub":{"data":"2"}}}"#,
            r#"{"push":{"channel":"a","pub":{"data":"[\"abcdefgh\"]"}}}"#,
        ]
    );
}

/// Bytes that are not JSON disconnect clients of the JSON format, as without deltas.
#[test]
fn bytes_reach_clients_of_protobuf_only() {
    let mut workers = Workers::new(1, LIMITS);
    let json = Client::subscribe(&mut workers, 0, JSON, DELTA, None);
    let protobuf = Client::subscribe(&mut workers, 0, PROTOBUF, DELTA, None);
    workers.deliver_all();
    workers.events(0);
    let published = Published {
        data: Bytes::from_static(b"\xff\xfe"),
        ..Published::default()
    };
    workers.tables[0].publish(&name("a"), DELTA, published, None);
    workers.deliver_all();
    assert_eq!(workers.events(0), ["disconnected 3506"]);
    assert!(workers.tables[0].pop_push(json.conn).is_none());
    assert!(workers.tables[0].pop_push(protobuf.conn).is_some());
}

/// A client that is reported the retained publications with its subscription has the last one as a base.
#[test]
fn the_first_publication_after_a_recovery_is_a_delta() {
    let mut workers = Workers::new(1, LIMITS);
    for is_last_in_worker in [false, true] {
        if is_last_in_worker {
            // The worker has the channel's last publication.
            Client::subscribe(&mut workers, 0, PROTOBUF, KEPT_DELTA, None);
            workers.deliver_all();
        }
        publish(&mut workers, KEPT_DELTA, 1);
        workers.deliver_all();
        workers.events(0);
        let from = Some(RecoverFrom::BEGINNING);
        let mut client = Client::subscribe(&mut workers, 0, JSON, KEPT_DELTA, from);
        let mut forgetful = Client::subscribe(&mut workers, 0, JSON, KEPT_DELTA, from);
        workers.deliver_all();
        while let Some(event) = workers.tables[0].poll_event() {
            let SubscriberEvent::Subscribed { missed, .. } = event else {
                continue;
            };
            let missed = missed.expect("recovered");
            client.base = Some(missed.last().expect("one").1.data.to_vec());
        }
        workers.tables[0].forget_delta_base(forgetful.conn, "a");
        publish(&mut workers, KEPT_DELTA, 2);
        workers.deliver_all();
        assert_eq!(client.poll(&mut workers, 0, 9), [2]);
        assert_eq!((client.wholes, client.deltas), (0, 1), "{is_last_in_worker}");
        assert_eq!(forgetful.poll(&mut workers, 0, 9), [2]);
        assert_eq!((forgetful.wholes, forgetful.deltas), (1, 0));
        for conn in [client.conn, forgetful.conn] {
            workers.tables[0].close(conn);
        }
        workers.deliver_all();
    }
}

/// Clients of conflated channels receive deltas from the update that they have received, whatever was skipped.
#[test]
fn conflated_updates_are_deltas_from_the_last_update() {
    let options = ChannelOptions {
        conflation_interval: Some(Duration::from_millis(200)),
        ..KEPT_DELTA
    };
    let mut workers = Workers::new(2, LIMITS);
    let mut clients: Vec<_> = (0..20)
        .map(|at| {
            let variant = if at % 3 == 0 { PROTOBUF } else { JSON };
            (
                at % 2,
                Client::subscribe(&mut workers, at % 2, variant, options, None),
            )
        })
        .collect();
    workers.deliver_all();
    let mut received = vec![Vec::new(); clients.len()];
    for millis in (0..3000).step_by(5) {
        workers.now = Duration::from_millis(millis);
        for shard in &mut workers.shards {
            shard.release(workers.now);
        }
        publish(&mut workers, options, millis);
        workers.deliver_all();
        for ((worker, client), received) in clients.iter_mut().zip(&mut received) {
            received.extend(client.poll(&mut workers, *worker, 9));
        }
    }
    for ((_, client), received) in clients.iter().zip(&received) {
        assert!((14..=16).contains(&received.len()), "{received:?}");
        assert!(received.is_sorted());
        assert_eq!((client.wholes, client.deltas), (1, received.len() - 1));
    }
}

fn publish_transient(workers: &mut Workers, options: ChannelOptions, published: Published) {
    let transient = PublishOptions {
        transient: true,
        ..PublishOptions::default()
    };
    let (channel, published) = (name("a"), Arc::new(published));
    workers.tables[0].publish_for(&channel, options, &published, Some(Box::new(transient)), None);
}

/// A publication without an offset is sent at once, before the update that is due at the next tick: the delta after both is from the update.
#[test]
fn a_delta_is_from_the_update_that_was_sent_last() {
    let interval = Duration::from_millis(200);
    let options = ChannelOptions {
        conflation_interval: Some(interval),
        ..KEPT_DELTA
    };
    let mut workers = Workers::new(1, LIMITS);
    let mut client = Client::subscribe(&mut workers, 0, JSON, options, None);
    workers.deliver_all();
    publish(&mut workers, options, 1);
    workers.deliver_all();
    publish(&mut workers, options, 2);
    workers.deliver_all();
    publish_transient(&mut workers, options, state(3));
    workers.deliver_all();
    assert_eq!(client.poll(&mut workers, 0, 9), [1, 3]);
    let mut received = Vec::new();
    for number in 4..8 {
        workers.now += 2 * interval;
        workers.shards[0].release(workers.now);
        workers.deliver_all();
        received.extend(client.poll(&mut workers, 0, 9));
        publish(&mut workers, options, number);
        workers.deliver_all();
        received.extend(client.poll(&mut workers, 0, 9));
    }
    assert_eq!(received, [2, 4, 5, 6]);
    assert!(client.deltas >= 3, "{} deltas", client.deltas);
}

fn random_options(random: &mut fastrand::Rng) -> ChannelOptions {
    let options = ChannelOptions {
        slow_consumer: SlowConsumerPolicy::ALL[random.usize(..5)],
        conflation_interval: random.bool().then_some(Duration::from_millis(20)),
        ..if random.bool() { KEPT_DELTA } else { DELTA }
    };
    ChannelOptions {
        conflation_interval: options.conflation_interval.filter(|_| options.history.is_some()),
        ..options
    }
}

/// Queues that are too small, clients that read at random times, and every policy: each delta applies, and each state arrives in order.
#[test]
fn deltas_apply_whatever_was_dropped() {
    let (mut deltas, mut wholes) = (0, 0);
    for seed in 0..120 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = SubscriberLimits {
            subscriptions: 4,
            queued_bytes: random.usize(700..6000),
        };
        let mut workers = Workers::new(2, limits);
        let options = random_options(&mut random);
        let mut clients: BTreeMap<usize, (usize, Client, u64)> = BTreeMap::new();
        for number in 1..200 {
            workers.now += Duration::from_millis(random.u64(..10));
            for shard in &mut workers.shards {
                shard.release(workers.now);
            }
            publish(&mut workers, options, number);
            workers.deliver_all();
            for at in 0..6 {
                match clients.get_mut(&at) {
                    None => {
                        let (worker, variant) = (at % 2, if random.bool() { JSON } else { PROTOBUF });
                        let client = Client::subscribe(&mut workers, worker, variant, options, None);
                        clients.insert(at, (worker, client, 0));
                    }
                    Some((worker, client, newest)) => {
                        let limit = [0, 0, 1, 2, 100][random.usize(..5)];
                        for number in client.poll(&mut workers, *worker, limit) {
                            assert!(*newest < number, "in order");
                            *newest = number;
                        }
                    }
                }
            }
            workers.deliver_all();
            for worker in 0..2 {
                while let Some(event) = workers.tables[worker].poll_event() {
                    let (SubscriberEvent::Unsubscribed { conn, .. }
                    | SubscriberEvent::Disconnected { conn, .. }) = event
                    else {
                        continue;
                    };
                    workers.tables[worker].close(conn);
                    clients.retain(|_, (at, client, _)| {
                        let is_gone = *at == worker && client.conn == conn;
                        deltas += usize::from(is_gone) * client.deltas;
                        wholes += usize::from(is_gone) * client.wholes;
                        !is_gone
                    });
                }
            }
        }
        deltas += clients
            .values()
            .map(|(_, client, _)| client.deltas)
            .sum::<usize>();
        wholes += clients
            .values()
            .map(|(_, client, _)| client.wholes)
            .sum::<usize>();
    }
    println!("{deltas} deltas, {wholes} whole");
    assert!(
        deltas > 5000 && wholes > 1000,
        "both were sent often: {deltas}, {wholes}"
    );
}

/// The options may change while clients are subscribed with deltas: they still receive the form that they expect.
#[test]
fn clients_keep_their_form_when_the_options_change() {
    let mut workers = Workers::new(2, LIMITS);
    let mut client = Client::subscribe(&mut workers, 1, JSON, KEPT_DELTA, None);
    workers.deliver_all();
    publish(&mut workers, KEPT_DELTA, 1);
    publish(&mut workers, KEPT, 2);
    publish(&mut workers, KEPT, 3);
    workers.deliver_all();
    assert_eq!(client.poll(&mut workers, 1, 9), [1, 2, 3]);
    assert_eq!((client.wholes, client.deltas), (1, 2));
}

#[test]
fn a_delta_is_shared_by_workers() {
    let one = Arc::new(state(1));
    let two = state(2);
    let first = two.delta_from(&one).expect("most is equal");
    assert_eq!(
        two.delta_from(&one).map(|delta| delta.as_ptr()),
        Some(first.as_ptr())
    );
}
