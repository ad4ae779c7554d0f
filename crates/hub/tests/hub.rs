//! Homes and subscribers of several workers, put together: by hand, and by chance with queues that fill up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::{Keep, Place};
use ringmain_hub::home::Home;
use ringmain_hub::local::{ConnId, Event, Limits, Local, home_of};
use ringmain_hub::mail::{Life, Rules, Since, Slow, ToHome, ToWorker, WorkerId};
use ringmain_hub::protocol::{
    ClientInfo, Disconnect, Fault, Format, Published, Push, Replies, Unsubscribed, Variant,
};

const PLAIN: Rules = Rules {
    keep: None,
    remember: Duration::ZERO,
    presence: false,
    join_leave: false,
    slow: Slow::Disconnect,
};

const KEPT: Rules = Rules {
    keep: Some(Keep {
        publications: 50,
        bytes: 1 << 20,
        time: Duration::from_secs(3600),
    }),
    remember: Duration::from_secs(3600),
    ..PLAIN
};

const JSON: Variant = Variant {
    format: Format::Json,
    bare: false,
};

const LIMITS: Limits = Limits {
    subscriptions: 4,
    waiting_bytes: 1 << 20,
};

/// Workers whose mail goes when it is told to.
struct Workers {
    homes: Vec<Home>,
    locals: Vec<Local>,
    /// By sender, then by receiver.
    up: Vec<Vec<VecDeque<ToHome>>>,
    now: Duration,
}

impl Workers {
    fn new(count: u16, limits: Limits) -> Workers {
        let queues = || (0..count).map(|_| VecDeque::new()).collect();
        Workers {
            homes: (0..count)
                .map(|worker| Home::new(count, 1000, u64::from(worker)))
                .collect(),
            locals: (0..count).map(|_| Local::new(count, limits)).collect(),
            up: (0..count).map(|_| queues()).collect(),
            now: Duration::ZERO,
        }
    }

    /// What a worker has to say to homes goes on its way.
    fn post(&mut self, worker: usize) {
        while let Some((home, message)) = self.locals[worker].poll_home() {
            self.up[worker][usize::from(home.0)].push_back(message);
        }
    }

    /// At most so many messages from a worker arrive at a home.
    fn up(&mut self, worker: usize, home: usize, most: usize) {
        self.post(worker);
        for _ in 0..most {
            let Some(message) = self.up[worker][home].pop_front() else {
                break;
            };
            self.homes[home].handle(WorkerId(worker as u16), message, self.now);
        }
    }

    /// At most so many messages from a home arrive at a worker.
    fn down(&mut self, home: usize, worker: usize, most: usize) {
        for _ in 0..most {
            let Some(message) = self.homes[home].poll(WorkerId(worker as u16), self.now) else {
                break;
            };
            self.locals[worker].handle(message);
        }
    }

    fn settle(&mut self) {
        for _ in 0..6 {
            for worker in 0..self.locals.len() {
                for home in 0..self.homes.len() {
                    self.up(worker, home, usize::MAX);
                    self.down(home, worker, usize::MAX);
                }
            }
        }
        for worker in 0..self.locals.len() {
            assert!(self.locals[worker].poll_home().is_none(), "it settles");
        }
    }

    fn events(&mut self, worker: usize) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(event) = self.locals[worker].poll_event() {
            said.push(match event {
                Event::Subscribed {
                    channel,
                    place,
                    missed,
                    ..
                } => {
                    let missed =
                        missed.map(|missed| missed.iter().map(|(offset, _)| *offset).collect::<Vec<_>>());
                    format!(
                        "subscribed {channel} at {:?} missed {missed:?}",
                        place.map(|place| place.offset)
                    )
                }
                Event::Refused { channel, fault, .. } => format!("refused {channel}: {}", fault.code),
                Event::Unsubscribed { channel, why, .. } => format!("unsubscribed {channel}: {}", why.code),
                Event::Published { number, place, .. } => {
                    format!("published {number} at {:?}", place.map(|place| place.offset))
                }
                Event::Disconnected { why, .. } => format!("disconnected {}", why.code),
            });
        }
        said
    }

    fn pushes(&mut self, worker: usize, conn: ConnId) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(frame) = self.locals[worker].take(conn) {
            all.push(String::from_utf8(frame.to_vec()).expect("JSON is text"));
        }
        all
    }
}

fn name(channel: &str) -> Arc<str> {
    Arc::from(channel)
}

fn number(number: u64) -> Published {
    Published {
        data: Bytes::from(number.to_string()),
        ..Published::default()
    }
}

fn info(client: &str) -> Option<Arc<ClientInfo>> {
    Some(Arc::new(ClientInfo {
        client: client.to_owned(),
        ..ClientInfo::default()
    }))
}

#[test]
fn who_listens_hears_it_once_and_who_does_not_hears_nothing() {
    let mut workers = Workers::new(2, LIMITS);
    let near = workers.locals[0].open(JSON, None);
    let far = workers.locals[1].open(JSON, None);
    let other = workers.locals[1].open(JSON, None);
    for (worker, conn, channel) in [(0, near, "a"), (1, far, "a"), (1, other, "b")] {
        workers.locals[worker]
            .subscribe(conn, &name(channel), PLAIN, None)
            .expect("it may");
    }
    workers.settle();
    assert_eq!(workers.events(0), ["subscribed a at None missed None"]);
    assert_eq!(workers.events(1).len(), 2);
    workers.locals[0].publish(&name("a"), PLAIN, number(7), Some((near, 3)));
    workers.settle();
    let expected = [r#"{"push":{"channel":"a","pub":{"data":7}}}"#];
    assert_eq!(workers.locals[1].poll_ready(), Some(far));
    assert_eq!(workers.locals[1].poll_ready(), None);
    assert_eq!(workers.pushes(0, near), expected);
    assert_eq!(workers.pushes(1, far), expected);
    assert!(workers.pushes(1, other).is_empty());
    assert_eq!(workers.events(0), ["published 3 at None"]);
}

#[test]
fn who_comes_back_has_what_it_missed() {
    let mut workers = Workers::new(2, LIMITS);
    for published in 1..=3 {
        workers.locals[0].publish(&name("a"), KEPT, number(published), None);
    }
    let conn = workers.locals[1].open(JSON, None);
    let since = |offset, life| Some(Since { offset, life });
    workers.locals[1]
        .subscribe(conn, &name("a"), KEPT, since(1, Life::Any))
        .expect("it may");
    workers.settle();
    assert_eq!(workers.events(1), ["subscribed a at Some(3) missed Some([2, 3])"]);
    let other = workers.locals[1].open(JSON, None);
    workers.locals[1]
        .subscribe(other, &name("a"), KEPT, since(3, Life::parse("elsewhere")))
        .expect("it may");
    workers.settle();
    assert_eq!(
        workers.events(1),
        ["subscribed a at Some(3) missed None"],
        "another life"
    );
}

#[test]
fn what_may_not_be_is_refused() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.locals[0].open(JSON, None);
    let channels = ["a", "b", "c", "d", "e"].map(name);
    for channel in &channels[..4] {
        workers.locals[0]
            .subscribe(conn, channel, PLAIN, None)
            .expect("it may");
    }
    let again = workers.locals[0].subscribe(conn, &channels[0], PLAIN, None);
    assert_eq!(again, Err(Fault::ALREADY_SUBSCRIBED), "also while it waits");
    assert_eq!(
        workers.locals[0].subscribe(conn, &channels[4], PLAIN, None),
        Err(Fault::LIMIT_EXCEEDED)
    );
    workers.settle();
    workers.locals[0].close(conn);
    assert_eq!(
        workers.locals[0].subscribe(conn, &channels[4], PLAIN, None),
        Err(Fault::BAD_REQUEST)
    );
    workers.settle();
    assert_eq!(workers.locals[0].channels(), 0);
    workers.homes[0].sweep(workers.now);
    assert!(workers.homes[0].is_empty(), "nothing is left of it");
}

#[test]
fn a_home_that_is_full_says_so() {
    let mut workers = Workers::new(1, LIMITS);
    workers.homes[0] = Home::new(1, 1, 0);
    let conn = workers.locals[0].open(JSON, None);
    let gone = workers.locals[0].open(JSON, None);
    for (conn, channel) in [(conn, "a"), (conn, "b"), (gone, "b")] {
        workers.locals[0]
            .subscribe(conn, &name(channel), PLAIN, None)
            .expect("it may");
    }
    workers.locals[0].close(gone);
    workers.locals[0].publish(&name("c"), KEPT, number(1), Some((conn, 1)));
    workers.settle();
    let expected = [
        "subscribed a at None missed None",
        "refused b: 106",
        "published 1 at None",
    ];
    assert_eq!(workers.events(0), expected);
    assert_eq!(workers.locals[0].channels(), 1);
}

#[test]
fn who_is_gone_before_the_answer_leaves_nothing() {
    let mut workers = Workers::new(2, LIMITS);
    let conn = workers.locals[0].open(JSON, info("one"));
    let rules = Rules {
        presence: true,
        ..PLAIN
    };
    workers.locals[0]
        .subscribe(conn, &name("a"), rules, None)
        .expect("it may");
    workers.locals[0].close(conn);
    let next = workers.locals[0].open(JSON, None);
    assert_ne!(conn, next, "another one in its place");
    workers.settle();
    assert!(workers.events(0).is_empty());
    assert_eq!(workers.locals[0].channels(), 0);
    workers.locals[1].publish(&name("a"), rules, number(1), None);
    workers.settle();
    assert!(workers.pushes(0, next).is_empty());
    for home in &mut workers.homes {
        home.sweep(workers.now);
        assert!(home.is_empty());
    }
}

#[test]
fn an_end_before_the_answer_comes_behind_it() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.locals[0].open(JSON, None);
    workers.locals[0]
        .subscribe(conn, &name("a"), PLAIN, None)
        .expect("it may");
    assert!(workers.locals[0].unsubscribe(conn, "a", Unsubscribed::SERVER));
    workers.settle();
    assert_eq!(
        workers.events(0),
        ["subscribed a at None missed None", "unsubscribed a: 2000"]
    );
    assert!(!workers.locals[0].unsubscribe(conn, "a", Unsubscribed::SERVER));
}

#[test]
fn who_comes_and_goes_is_told() {
    let mut workers = Workers::new(2, LIMITS);
    let rules = Rules {
        join_leave: true,
        ..PLAIN
    };
    let watcher = workers.locals[0].open(JSON, info("w"));
    workers.locals[0]
        .subscribe(watcher, &name("a"), rules, None)
        .expect("it may");
    workers.settle();
    let own = r#"{"push":{"channel":"a","join":{"info":{"client":"w"}}}}"#;
    assert_eq!(workers.pushes(0, watcher), [own]);
    let guest = workers.locals[1].open(JSON, info("g"));
    workers.locals[1]
        .subscribe(guest, &name("a"), rules, None)
        .expect("it may");
    workers.settle();
    workers.locals[1].close(guest);
    workers.settle();
    let expected = [
        r#"{"push":{"channel":"a","join":{"info":{"client":"g"}}}}"#,
        r#"{"push":{"channel":"a","leave":{"info":{"client":"g"}}}}"#,
    ];
    assert_eq!(workers.pushes(0, watcher), expected);
}

#[test]
fn each_variant_is_its_own_and_what_it_cannot_carry_ends_it() {
    let mut workers = Workers::new(1, LIMITS);
    let conns = Variant::ALL.map(|variant| workers.locals[0].open(variant, None));
    for conn in conns {
        workers.locals[0]
            .subscribe(conn, &name("a"), PLAIN, None)
            .expect("it may");
    }
    workers.settle();
    workers.events(0);
    workers.locals[0].publish(&name("a"), PLAIN, number(5), None);
    workers.settle();
    for (variant, conn) in Variant::ALL.into_iter().zip(conns) {
        let frame = workers.locals[0].take(conn).expect("a push");
        let push: Push = if variant.bare {
            let mut parts = ringmain_hub::protocol::Parts::<Push>::new(variant.format, frame);
            parts.next().expect("one").expect("a push")
        } else {
            let reply = Replies::new(variant.format, frame)
                .next()
                .expect("one")
                .expect("a reply");
            reply.push.expect("a push")
        };
        assert_eq!(push.pub_.expect("a publication").data, "5");
    }
    let bytes = Published {
        data: Bytes::from_static(b"\xff"),
        ..Published::default()
    };
    workers.locals[0].publish(&name("a"), PLAIN, bytes, None);
    workers.settle();
    let code = Disconnect::INAPPROPRIATE_PROTOCOL.code;
    assert_eq!(
        workers.events(0),
        [format!("disconnected {code}"), format!("disconnected {code}")]
    );
    assert!(workers.locals[0].take(conns[0]).is_none());
    assert!(
        workers.locals[0].take(conns[2]).is_some(),
        "Protobuf carries anything"
    );
}

/// One that reads nothing, and one that reads all, of a channel by this rule: what each gets, what is said, and what was dropped.
fn slow(rule: Slow) -> (Vec<u64>, Vec<u64>, Vec<String>, u64) {
    // A push of one digit is 41 bytes: three have room.
    let limits = Limits {
        waiting_bytes: 130,
        ..LIMITS
    };
    let mut workers = Workers::new(1, limits);
    let rules = Rules { slow: rule, ..KEPT };
    let (still, quick) = (
        workers.locals[0].open(JSON, None),
        workers.locals[0].open(JSON, None),
    );
    for conn in [still, quick] {
        workers.locals[0]
            .subscribe(conn, &name("a"), rules, None)
            .expect("it may");
    }
    workers.settle();
    workers.events(0);
    let read = |workers: &mut Workers, conn| -> Vec<u64> {
        let pushes = workers.pushes(0, conn);
        pushes.iter().map(|push| offset(push)).collect()
    };
    let mut had = Vec::new();
    for published in 1..=5 {
        workers.locals[0].publish(&name("a"), rules, number(published), None);
        workers.settle();
        had.extend(read(&mut workers, quick));
    }
    let dropped = workers.locals[0].dropped(still);
    assert!(workers.locals[0].waiting_bytes(still) <= 130);
    let waited = read(&mut workers, still);
    assert_eq!(workers.locals[0].waiting_bytes(still), 0);
    (waited, had, workers.events(0), dropped)
}

fn offset(push: &str) -> u64 {
    let reply = Replies::new(Format::Json, Bytes::copy_from_slice(push.as_bytes())).next();
    let reply = reply.expect("one").expect("a reply");
    reply
        .push
        .and_then(|push| push.pub_)
        .expect("a publication")
        .offset
}

#[test]
fn who_is_slow_is_treated_by_the_rule_and_others_do_not_notice() {
    let all = vec![1, 2, 3, 4, 5];
    let none = Vec::<String>::new();
    let room = {
        let mut out = Vec::new();
        JSON.publication("a", number(1).numbered(1), &mut out)
            .expect("JSON");
        130 / out.len()
    };
    assert_eq!(room, 2, "two have room");
    assert_eq!(slow(Slow::DropNew), (vec![1, 2], all.clone(), none.clone(), 3));
    assert_eq!(slow(Slow::DropOld), (vec![4, 5], all.clone(), none.clone(), 3));
    assert_eq!(slow(Slow::Conflate), (vec![1, 5], all.clone(), none, 3));
    let ended = vec!["unsubscribed a: 2500".to_owned()];
    assert_eq!(slow(Slow::Resync), (vec![], all.clone(), ended, 0));
    let ended = vec!["disconnected 3008".to_owned()];
    assert_eq!(slow(Slow::Disconnect), (vec![], all, ended, 0));
}

/// What one subscriber has, for a channel with numbers.
#[derive(Default)]
struct Heard {
    /// Where it stands, once it was told.
    place: Option<Place>,
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
        let place = heard.place.as_mut().expect("numbers");
        assert_eq!(offset, place.offset + 1, "seed {seed}: {channel}");
        place.offset = offset;
    }

    fn is_told(&mut self, event: Event, seed: u64) {
        match event {
            Event::Subscribed {
                channel,
                place,
                missed,
                ..
            } => {
                let heard = self.heard.get_mut(&channel).expect("a channel that it asked for");
                assert!(heard.asked && !heard.listens, "seed {seed}");
                let place = place.expect("numbers");
                if let Some(missed) = missed {
                    let had = heard.place.expect("it stood somewhere");
                    let offsets: Vec<u64> = missed.iter().map(|(offset, _)| *offset).collect();
                    assert_eq!(
                        offsets,
                        (had.offset + 1..=place.offset).collect::<Vec<_>>(),
                        "seed {seed}"
                    );
                }
                heard.place = Some(place);
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
    let channels = ["a", "b", "c"].map(name);
    let homes: std::collections::BTreeSet<_> = channels.iter().map(|channel| home_of(channel, 3)).collect();
    assert!(homes.len() > 1, "channels are at home at several workers");
    let (mut recovered, mut again) = (0, 0);
    for seed in 0..100 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut workers = Workers::new(3, LIMITS);
        let mut clients: Vec<Client> = Vec::new();
        for worker in [0, 0, 1, 1, 2] {
            let conn = workers.locals[worker].open(JSON, None);
            clients.push(Client {
                worker,
                conn,
                heard: BTreeMap::new(),
            });
        }
        let mut published = BTreeMap::<Arc<str>, u64>::new();
        for _ in 0..400 {
            let channel = random.choice(&channels).expect("one").clone();
            let client = random.usize(0..clients.len());
            match random.u8(0..12) {
                0..3 => {
                    // Sometimes more than a queue takes: then what is not kept is lost, and all must be told.
                    let burst = if random.u8(0..60) == 0 {
                        5000
                    } else {
                        random.u64(1..4)
                    };
                    for _ in 0..burst {
                        *published.entry(channel.clone()).or_default() += 1;
                        let worker = usize::from(home_of(&channel, 3).0);
                        workers.locals[worker].publish(&channel, KEPT, number(0), None);
                    }
                }
                3 => subscribe(&mut workers, &mut clients[client], &channel),
                4 => {
                    let client = &mut clients[client];
                    if client.heard.get(&channel).is_some_and(|heard| heard.listens) {
                        let worker = client.worker;
                        workers.locals[worker].unsubscribe(client.conn, &channel, Unsubscribed::SERVER);
                    }
                }
                5 => {
                    let client = &mut clients[client];
                    workers.locals[client.worker].close(client.conn);
                    client.conn = workers.locals[client.worker].open(JSON, None);
                    client
                        .heard
                        .values_mut()
                        .for_each(|heard| (heard.asked, heard.listens) = (false, false));
                }
                _ => {
                    let (worker, home) = (random.usize(0..3), random.usize(0..3));
                    workers.up(worker, home, random.usize(0..20));
                    workers.down(home, worker, random.usize(0..20));
                }
            }
            (recovered, again) = listen(&mut workers, &mut clients, seed, (recovered, again));
        }
        for client in &mut clients {
            for channel in &channels {
                subscribe(&mut workers, client, channel);
            }
        }
        // Whoever is told to subscribe again does.
        for _ in 0..4 {
            workers.settle();
            (recovered, again) = listen(&mut workers, &mut clients, seed, (recovered, again));
            for client in &mut clients {
                for channel in &channels {
                    subscribe(&mut workers, client, channel);
                }
            }
        }
        for client in &clients {
            for channel in &channels {
                let place = client.heard[channel].place.expect("it listens");
                assert_eq!(
                    place.offset,
                    published.get(channel).copied().unwrap_or(0),
                    "seed {seed}: all is had in the end"
                );
            }
        }
    }
    assert!(
        recovered > 100 && again > 100,
        "recoveries {recovered}, told to subscribe again {again}: both were tried"
    );
}

fn subscribe(workers: &mut Workers, client: &mut Client, channel: &Arc<str>) {
    let heard = client.heard.entry(channel.clone()).or_default();
    if heard.asked {
        return;
    }
    heard.asked = true;
    let since = heard.place.map(|place| Since {
        offset: place.offset,
        life: Life::Of(place.epoch),
    });
    workers.locals[client.worker]
        .subscribe(client.conn, channel, KEPT, since)
        .expect("it may");
}

fn listen(workers: &mut Workers, clients: &mut [Client], seed: u64, counts: (u32, u32)) -> (u32, u32) {
    let (mut recovered, mut again) = counts;
    for worker in 0..workers.locals.len() {
        while let Some(event) = workers.locals[worker].poll_event() {
            let (Event::Subscribed { conn, .. } | Event::Unsubscribed { conn, .. }) = &event else {
                panic!("seed {seed}: {event:?}");
            };
            let Some(client) = clients
                .iter_mut()
                .find(|client| (client.worker, client.conn) == (worker, *conn))
            else {
                continue;
            };
            recovered += u32::from(
                matches!(&event, Event::Subscribed { missed: Some(missed), .. } if !missed.is_empty()),
            );
            again += u32::from(matches!(
                &event,
                Event::Unsubscribed {
                    why: Unsubscribed::INSUFFICIENT,
                    ..
                }
            ));
            client.is_told(event, seed);
        }
        while let Some(conn) = workers.locals[worker].poll_ready() {
            let client = clients
                .iter_mut()
                .find(|client| (client.worker, client.conn) == (worker, conn));
            let client = client.expect("nobody else is ready");
            while let Some(frame) = workers.locals[worker].take(conn) {
                let reply = Replies::new(Format::Json, frame)
                    .next()
                    .expect("one")
                    .expect("a reply");
                let push = reply.push.expect("a push");
                client.hears(&push.channel, push.pub_.expect("a publication").offset, seed);
            }
        }
    }
    (recovered, again)
}

#[test]
fn messages_are_small() {
    assert!(size_of::<ToWorker>() <= 56, "{}", size_of::<ToWorker>());
}
