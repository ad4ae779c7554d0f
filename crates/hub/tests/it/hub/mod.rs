//! Shards and subscribers of several workers together: in fixed scenarios, and in simulations in which queues fill up.

mod conflated_channels;
mod conflation_timing;
mod delta_recovery;
mod deltas;
mod eviction;
mod features;
mod idempotency;
mod interruptions;
mod logs;
mod program_requests;
mod simulation;
mod workers;

use bytes::Bytes;
use ringmain_hub::history::HistoryQuery;
use ringmain_hub::mail::{
    ChannelOptions, ChannelQuery, EpochFilter, RecoverFrom, ShardEvent, SlowConsumerPolicy,
};
use ringmain_hub::protocol::{
    Disconnect, Fault, Format, Published, PushMessage, Replies, Unsubscribed, Variant,
};
use ringmain_hub::shard::ChannelShard;
use ringmain_hub::subscribers::{SubscriberLimits, shard_of};

use self::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, info, name, number};

#[test]
fn a_publication_is_delivered_once_to_each_subscriber() {
    let mut workers = Workers::new(2, LIMITS);
    let near = workers.tables[0].open(JSON, None);
    let far = workers.tables[1].open(JSON, None);
    let other = workers.tables[1].open(JSON, None);
    for (worker, conn, channel) in [(0, near, "a"), (1, far, "a"), (1, other, "b")] {
        workers.tables[worker]
            .subscribe(conn, &name(channel), PLAIN, None)
            .expect("allowed");
    }
    workers.deliver_all();
    assert_eq!(workers.events(0), ["subscribed a at None missed None"]);
    assert_eq!(workers.events(1).len(), 2);
    workers.tables[0].publish(&name("a"), PLAIN, number(7), Some((near, 3)));
    workers.deliver_all();
    let expected = [r#"{"push":{"channel":"a","pub":{"data":7}}}"#];
    assert_eq!(workers.tables[1].poll_ready(), Some(far));
    assert_eq!(workers.tables[1].poll_ready(), None);
    assert_eq!(workers.pushes(0, near), expected);
    assert_eq!(workers.pushes(1, far), expected);
    assert!(workers.pushes(1, other).is_empty());
    assert_eq!(workers.events(0), ["published 3 at None"]);
}

/// Subscribers with the same variant receive the same bytes at every worker, and no push is encoded without a subscriber.
#[test]
fn a_publication_is_encoded_once_per_subscribed_variant() {
    let mut workers = Workers::new(2, LIMITS);
    let shard = usize::from(shard_of("a", 2).0);
    let mut listeners = Vec::new();
    let mut written = 0;
    for (count, variant) in Variant::ALL.into_iter().enumerate() {
        for worker in [0, 1, 1, 0] {
            let conn = workers.tables[worker].open(variant, None);
            workers.tables[worker]
                .subscribe(conn, &name("a"), PLAIN, None)
                .expect("allowed");
            listeners.push((worker, conn, variant));
        }
        workers.deliver_all();
        for published in 0..3 {
            workers.tables[0].publish(&name("a"), PLAIN, number(published), None);
            workers.deliver_all();
            written += count as u64 + 1;
            assert_eq!(workers.shards[shard].counts().encoded_pushes, written);
            for variant in &Variant::ALL[..=count] {
                let own = listeners.iter().filter(|(_, _, other)| other == variant);
                let pushes: Vec<Bytes> = own
                    .map(|(worker, conn, _)| workers.tables[*worker].pop_push(*conn).expect("a push"))
                    .collect();
                assert_eq!(pushes.len(), 4);
                let first = pushes[0].as_ptr();
                assert!(pushes.iter().all(|push| push.as_ptr() == first), "{variant:?}");
            }
        }
    }
    for (worker, conn, _) in listeners {
        workers.tables[worker].close(conn);
    }
    workers.deliver_all();
    workers.tables[0].publish(&name("a"), PLAIN, number(9), None);
    workers.deliver_all();
    assert_eq!(workers.shards[shard].counts().encoded_pushes, written);
}

#[test]
fn a_client_recovers_missed_publications() {
    let mut workers = Workers::new(2, LIMITS);
    for published in 1..=3 {
        workers.tables[0].publish(&name("a"), KEPT, number(published), None);
    }
    let conn = workers.tables[1].open(JSON, None);
    let since = |offset, epoch| Some(RecoverFrom { offset, epoch });
    workers.tables[1]
        .subscribe(conn, &name("a"), KEPT, since(1, EpochFilter::Any))
        .expect("allowed");
    workers.deliver_all();
    assert_eq!(workers.events(1), ["subscribed a at Some(3) missed Some([2, 3])"]);
    let other = workers.tables[1].open(JSON, None);
    workers.tables[1]
        .subscribe(other, &name("a"), KEPT, since(3, EpochFilter::parse("elsewhere")))
        .expect("allowed");
    workers.deliver_all();
    assert_eq!(
        workers.events(1),
        ["subscribed a at Some(3) missed None"],
        "another epoch"
    );
}

#[test]
fn invalid_subscriptions_are_rejected() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.tables[0].open(JSON, None);
    let channels = ["a", "b", "c", "d", "e"].map(name);
    for channel in &channels[..4] {
        workers.tables[0]
            .subscribe(conn, channel, PLAIN, None)
            .expect("allowed");
    }
    let again = workers.tables[0].subscribe(conn, &channels[0], PLAIN, None);
    assert_eq!(again, Err(Fault::ALREADY_SUBSCRIBED), "also while it is pending");
    assert_eq!(
        workers.tables[0].subscribe(conn, &channels[4], PLAIN, None),
        Err(Fault::LIMIT_EXCEEDED)
    );
    workers.deliver_all();
    workers.tables[0].close(conn);
    assert_eq!(
        workers.tables[0].subscribe(conn, &channels[4], PLAIN, None),
        Err(Fault::BAD_REQUEST)
    );
    workers.deliver_all();
    assert_eq!(workers.tables[0].channels(), 0);
    workers.shards[0].sweep(workers.now);
    assert!(workers.shards[0].is_empty(), "no state remains");
}

#[test]
fn a_full_shard_rejects_new_channels() {
    let mut workers = Workers::new(1, LIMITS);
    workers.shards[0] = ChannelShard::new(1, 1, 0);
    let conn = workers.tables[0].open(JSON, None);
    let gone = workers.tables[0].open(JSON, None);
    for (conn, channel) in [(conn, "a"), (conn, "b"), (gone, "b")] {
        workers.tables[0]
            .subscribe(conn, &name(channel), PLAIN, None)
            .expect("allowed");
    }
    workers.tables[0].close(gone);
    workers.tables[0].publish(&name("c"), KEPT, number(1), Some((conn, 1)));
    workers.deliver_all();
    let expected = [
        "subscribed a at None missed None",
        "rejected b: 106",
        "result 1 channel limit",
    ];
    assert_eq!(workers.events(0), expected);
    assert_eq!(workers.tables[0].channels(), 1);
}

#[test]
fn a_connection_closed_before_the_reply_leaves_no_state() {
    let mut workers = Workers::new(2, LIMITS);
    let conn = workers.tables[0].open(JSON, info("one"));
    let options = ChannelOptions {
        presence: true,
        ..PLAIN
    };
    workers.tables[0]
        .subscribe(conn, &name("a"), options, None)
        .expect("allowed");
    workers.tables[0].close(conn);
    let next = workers.tables[0].open(JSON, None);
    assert_ne!(conn, next, "the index is reused");
    workers.deliver_all();
    assert!(workers.events(0).is_empty());
    assert_eq!(workers.tables[0].channels(), 0);
    workers.tables[1].publish(&name("a"), options, number(1), None);
    workers.deliver_all();
    assert!(workers.pushes(0, next).is_empty());
    for shard in &mut workers.shards {
        shard.sweep(workers.now);
        assert!(shard.is_empty());
    }
}

#[test]
fn unsubscribing_before_the_reply_is_reported_after_it() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(conn, &name("a"), PLAIN, None)
        .expect("allowed");
    assert!(workers.tables[0].unsubscribe(conn, "a", Unsubscribed::SERVER));
    workers.deliver_all();
    assert_eq!(
        workers.events(0),
        ["subscribed a at None missed None", "unsubscribed a: 2000"]
    );
    assert!(!workers.tables[0].unsubscribe(conn, "a", Unsubscribed::SERVER));
}

#[test]
fn joins_and_leaves_are_sent_to_subscribers() {
    let mut workers = Workers::new(2, LIMITS);
    let options = ChannelOptions {
        join_leave: true,
        ..PLAIN
    };
    let watcher = workers.tables[0].open(JSON, info("w"));
    workers.tables[0]
        .subscribe(watcher, &name("a"), options, None)
        .expect("allowed");
    workers.deliver_all();
    let own = r#"{"push":{"channel":"a","join":{"info":{"user":"","client":"w"}}}}"#;
    assert_eq!(workers.pushes(0, watcher), [own]);
    let guest = workers.tables[1].open(JSON, info("g"));
    workers.tables[1]
        .subscribe(guest, &name("a"), options, None)
        .expect("allowed");
    workers.deliver_all();
    workers.tables[1].close(guest);
    workers.deliver_all();
    let expected = [
        r#"{"push":{"channel":"a","join":{"info":{"user":"","client":"g"}}}}"#,
        r#"{"push":{"channel":"a","leave":{"info":{"user":"","client":"g"}}}}"#,
    ];
    assert_eq!(workers.pushes(0, watcher), expected);
}

#[test]
fn each_variant_is_decodable_and_unencodable_data_disconnects() {
    let mut workers = Workers::new(1, LIMITS);
    let conns = Variant::ALL.map(|variant| workers.tables[0].open(variant, None));
    for conn in conns {
        workers.tables[0]
            .subscribe(conn, &name("a"), PLAIN, None)
            .expect("allowed");
    }
    workers.deliver_all();
    workers.events(0);
    workers.tables[0].publish(&name("a"), PLAIN, number(5), None);
    workers.deliver_all();
    for (variant, conn) in Variant::ALL.into_iter().zip(conns) {
        let mut frame = workers.tables[0].pop_push(conn).expect("a push");
        if variant.framed {
            let opcode = match variant.format {
                Format::Json => 1,
                Format::Protobuf => 2,
            };
            // RFC 6455 §5.2: a final frame without a mask, with a short length.
            assert_eq!(frame[..2], [0x80 | opcode, (frame.len() - 2) as u8]);
            frame = frame.slice(2..);
        }
        let push: PushMessage = if variant.unidirectional {
            let mut parts = ringmain_hub::protocol::MessageParts::<PushMessage>::new(variant.format, frame);
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
    workers.tables[0].publish(&name("a"), PLAIN, bytes, None);
    workers.deliver_all();
    let code = Disconnect::INAPPROPRIATE_PROTOCOL.code;
    // The four variants in JSON.
    assert_eq!(workers.events(0), vec![format!("disconnected {code}"); 4]);
    assert!(workers.tables[0].pop_push(conns[0]).is_none());
    assert!(
        workers.tables[0].pop_push(conns[2]).is_some(),
        "Protobuf represents any bytes"
    );
}

#[test]
fn queries_return_history_and_presence() {
    let mut workers = Workers::new(2, LIMITS);
    let options = ChannelOptions {
        presence: true,
        ..KEPT
    };
    let (one, two) = (
        workers.tables[0].open(JSON, info("one")),
        workers.tables[1].open(JSON, info("two")),
    );
    for (worker, conn) in [(0, one), (1, two)] {
        workers.tables[worker]
            .subscribe(conn, &name("a"), options, None)
            .expect("allowed");
    }
    for published in 1..=3 {
        workers.tables[0].publish(&name("a"), options, number(published), None);
    }
    workers.deliver_all();
    let history = |since, reverse, epoch| ChannelQuery::History {
        query: HistoryQuery {
            since,
            limit: 2,
            reverse,
        },
        epoch,
    };
    let is_requested = [
        (options, history(None, false, EpochFilter::Any)),
        (options, history(Some(3), true, EpochFilter::Any)),
        (options, history(Some(3), true, EpochFilter::Foreign)),
        (options, ChannelQuery::Presence),
        (options, ChannelQuery::PresenceStats),
    ];
    for (number, (options, query)) in (1..).zip(is_requested) {
        workers.tables[0].query(&name("a"), options, query, one, number);
    }
    workers.tables[0].query(&name("b"), PLAIN, history(None, false, EpochFilter::Any), one, 6);
    workers.tables[0].query(&name("b"), PLAIN, ChannelQuery::Presence, one, 7);
    workers.deliver_all();
    let mut texts = workers.events(0);
    texts.sort();
    let expected = [
        "result 1 [1, 2] at 3",
        "result 2 [2, 1] at 3",
        "result 3 unrecoverable",
        r#"result 4 ["one", "two"]"#,
        "result 5 2 clients, 1 users",
        "result 6 not available",
        "result 7 not available",
        "subscribed a at Some(0) missed None",
    ];
    assert_eq!(texts, expected);
}

/// Returns the pushes of a client that reads nothing until the end and of one that reads all, the events, and the number of dropped pushes,
/// for a channel with this policy.
fn slow(rule: SlowConsumerPolicy) -> (Vec<u64>, Vec<u64>, Vec<String>, u64) {
    // A push with one digit has 41 bytes: three fit.
    let limits = SubscriberLimits {
        queued_bytes: 130,
        ..LIMITS
    };
    let mut workers = Workers::new(1, limits);
    let options = ChannelOptions {
        slow_consumer: rule,
        ..KEPT
    };
    let (idle_reader, fast_reader) = (
        workers.tables[0].open(JSON, None),
        workers.tables[0].open(JSON, None),
    );
    for conn in [idle_reader, fast_reader] {
        workers.tables[0]
            .subscribe(conn, &name("a"), options, None)
            .expect("allowed");
    }
    workers.deliver_all();
    workers.events(0);
    let read = |workers: &mut Workers, conn| -> Vec<u64> {
        let pushes = workers.pushes(0, conn);
        pushes.iter().map(|push| offset(push)).collect()
    };
    let mut had = Vec::new();
    for published in 1..=5 {
        workers.tables[0].publish(&name("a"), options, number(published), None);
        workers.deliver_all();
        had.extend(read(&mut workers, fast_reader));
    }
    let dropped = workers.tables[0].dropped(idle_reader);
    assert!(workers.tables[0].queued_bytes(idle_reader) <= 130);
    let waited = read(&mut workers, idle_reader);
    assert_eq!(workers.tables[0].queued_bytes(idle_reader), 0);
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
fn slow_consumers_are_handled_by_policy_without_affecting_others() {
    let all = vec![1, 2, 3, 4, 5];
    let none = Vec::<String>::new();
    let room = {
        let mut out = Vec::new();
        JSON.publication("a", number(1).numbered(1), &mut out)
            .expect("JSON");
        130 / out.len()
    };
    assert_eq!(room, 2, "two have room");
    assert_eq!(
        slow(SlowConsumerPolicy::DropNew),
        (vec![1, 2], all.clone(), none.clone(), 3)
    );
    assert_eq!(
        slow(SlowConsumerPolicy::DropOld),
        (vec![4, 5], all.clone(), none.clone(), 3)
    );
    assert_eq!(
        slow(SlowConsumerPolicy::Conflate),
        (vec![1, 5], all.clone(), none, 3)
    );
    let ended = vec!["unsubscribed a: 2500".to_owned()];
    assert_eq!(slow(SlowConsumerPolicy::Resync), (vec![], all.clone(), ended, 0));
    let ended = vec!["disconnected 3008".to_owned()];
    assert_eq!(slow(SlowConsumerPolicy::Disconnect), (vec![], all, ended, 0));
}

#[test]
fn messages_are_small() {
    assert!(size_of::<ShardEvent>() <= 56, "{}", size_of::<ShardEvent>());
}
