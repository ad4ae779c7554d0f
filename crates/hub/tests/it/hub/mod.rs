//! Homes and subscribers of several workers, put together: by hand, and by chance with queues that fill up.

mod conflated_channels;
mod conflation_timing;
mod eviction;
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
use ringmain_hub::protocol::{Disconnect, Fault, Format, Published, Push, Replies, Unsubscribed, Variant};
use ringmain_hub::shard::ChannelShard;
use ringmain_hub::subscribers::{Limits, shard_of};

use self::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, info, name, number};

#[test]
fn who_listens_hears_it_once_and_who_does_not_hears_nothing() {
    let mut workers = Workers::new(2, LIMITS);
    let near = workers.tables[0].open(JSON, None);
    let far = workers.tables[1].open(JSON, None);
    let other = workers.tables[1].open(JSON, None);
    for (worker, conn, channel) in [(0, near, "a"), (1, far, "a"), (1, other, "b")] {
        workers.tables[worker]
            .subscribe(conn, &name(channel), PLAIN, None)
            .expect("it may");
    }
    workers.settle();
    assert_eq!(workers.events(0), ["subscribed a at None missed None"]);
    assert_eq!(workers.events(1).len(), 2);
    workers.tables[0].publish(&name("a"), PLAIN, number(7), Some((near, 3)));
    workers.settle();
    let expected = [r#"{"push":{"channel":"a","pub":{"data":7}}}"#];
    assert_eq!(workers.tables[1].poll_ready(), Some(far));
    assert_eq!(workers.tables[1].poll_ready(), None);
    assert_eq!(workers.pushes(0, near), expected);
    assert_eq!(workers.pushes(1, far), expected);
    assert!(workers.pushes(1, other).is_empty());
    assert_eq!(workers.events(0), ["published 3 at None"]);
}

/// Whoever listens by the same variant gets the same bytes, on whichever worker; nothing is written that nobody gets.
#[test]
fn a_publication_is_written_once_for_each_variant_that_is_listened_by() {
    let mut workers = Workers::new(2, LIMITS);
    let shard = usize::from(shard_of("a", 2).0);
    let mut listeners = Vec::new();
    let mut written = 0;
    for (count, variant) in Variant::ALL.into_iter().enumerate() {
        for worker in [0, 1, 1, 0] {
            let conn = workers.tables[worker].open(variant, None);
            workers.tables[worker]
                .subscribe(conn, &name("a"), PLAIN, None)
                .expect("it may");
            listeners.push((worker, conn, variant));
        }
        workers.settle();
        for published in 0..3 {
            workers.tables[0].publish(&name("a"), PLAIN, number(published), None);
            workers.settle();
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
    workers.settle();
    workers.tables[0].publish(&name("a"), PLAIN, number(9), None);
    workers.settle();
    assert_eq!(workers.shards[shard].counts().encoded_pushes, written);
}

#[test]
fn who_comes_back_has_what_it_missed() {
    let mut workers = Workers::new(2, LIMITS);
    for published in 1..=3 {
        workers.tables[0].publish(&name("a"), KEPT, number(published), None);
    }
    let conn = workers.tables[1].open(JSON, None);
    let since = |offset, epoch| Some(RecoverFrom { offset, epoch });
    workers.tables[1]
        .subscribe(conn, &name("a"), KEPT, since(1, EpochFilter::Any))
        .expect("it may");
    workers.settle();
    assert_eq!(workers.events(1), ["subscribed a at Some(3) missed Some([2, 3])"]);
    let other = workers.tables[1].open(JSON, None);
    workers.tables[1]
        .subscribe(other, &name("a"), KEPT, since(3, EpochFilter::parse("elsewhere")))
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
    let conn = workers.tables[0].open(JSON, None);
    let channels = ["a", "b", "c", "d", "e"].map(name);
    for channel in &channels[..4] {
        workers.tables[0]
            .subscribe(conn, channel, PLAIN, None)
            .expect("it may");
    }
    let again = workers.tables[0].subscribe(conn, &channels[0], PLAIN, None);
    assert_eq!(again, Err(Fault::ALREADY_SUBSCRIBED), "also while it waits");
    assert_eq!(
        workers.tables[0].subscribe(conn, &channels[4], PLAIN, None),
        Err(Fault::LIMIT_EXCEEDED)
    );
    workers.settle();
    workers.tables[0].close(conn);
    assert_eq!(
        workers.tables[0].subscribe(conn, &channels[4], PLAIN, None),
        Err(Fault::BAD_REQUEST)
    );
    workers.settle();
    assert_eq!(workers.tables[0].channels(), 0);
    workers.shards[0].sweep(workers.now);
    assert!(workers.shards[0].is_empty(), "nothing is left of it");
}

#[test]
fn a_home_that_is_full_says_so() {
    let mut workers = Workers::new(1, LIMITS);
    workers.shards[0] = ChannelShard::new(1, 1, 0);
    let conn = workers.tables[0].open(JSON, None);
    let gone = workers.tables[0].open(JSON, None);
    for (conn, channel) in [(conn, "a"), (conn, "b"), (gone, "b")] {
        workers.tables[0]
            .subscribe(conn, &name(channel), PLAIN, None)
            .expect("it may");
    }
    workers.tables[0].close(gone);
    workers.tables[0].publish(&name("c"), KEPT, number(1), Some((conn, 1)));
    workers.settle();
    let expected = [
        "subscribed a at None missed None",
        "refused b: 106",
        "told 1 full",
    ];
    assert_eq!(workers.events(0), expected);
    assert_eq!(workers.tables[0].channels(), 1);
}

#[test]
fn who_is_gone_before_the_answer_leaves_nothing() {
    let mut workers = Workers::new(2, LIMITS);
    let conn = workers.tables[0].open(JSON, info("one"));
    let options = ChannelOptions {
        presence: true,
        ..PLAIN
    };
    workers.tables[0]
        .subscribe(conn, &name("a"), options, None)
        .expect("it may");
    workers.tables[0].close(conn);
    let next = workers.tables[0].open(JSON, None);
    assert_ne!(conn, next, "another one in its place");
    workers.settle();
    assert!(workers.events(0).is_empty());
    assert_eq!(workers.tables[0].channels(), 0);
    workers.tables[1].publish(&name("a"), options, number(1), None);
    workers.settle();
    assert!(workers.pushes(0, next).is_empty());
    for shard in &mut workers.shards {
        shard.sweep(workers.now);
        assert!(shard.is_empty());
    }
}

#[test]
fn an_end_before_the_answer_comes_behind_it() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(conn, &name("a"), PLAIN, None)
        .expect("it may");
    assert!(workers.tables[0].unsubscribe(conn, "a", Unsubscribed::SERVER));
    workers.settle();
    assert_eq!(
        workers.events(0),
        ["subscribed a at None missed None", "unsubscribed a: 2000"]
    );
    assert!(!workers.tables[0].unsubscribe(conn, "a", Unsubscribed::SERVER));
}

#[test]
fn who_comes_and_goes_is_told() {
    let mut workers = Workers::new(2, LIMITS);
    let options = ChannelOptions {
        join_leave: true,
        ..PLAIN
    };
    let watcher = workers.tables[0].open(JSON, info("w"));
    workers.tables[0]
        .subscribe(watcher, &name("a"), options, None)
        .expect("it may");
    workers.settle();
    let own = r#"{"push":{"channel":"a","join":{"info":{"user":"","client":"w"}}}}"#;
    assert_eq!(workers.pushes(0, watcher), [own]);
    let guest = workers.tables[1].open(JSON, info("g"));
    workers.tables[1]
        .subscribe(guest, &name("a"), options, None)
        .expect("it may");
    workers.settle();
    workers.tables[1].close(guest);
    workers.settle();
    let expected = [
        r#"{"push":{"channel":"a","join":{"info":{"user":"","client":"g"}}}}"#,
        r#"{"push":{"channel":"a","leave":{"info":{"user":"","client":"g"}}}}"#,
    ];
    assert_eq!(workers.pushes(0, watcher), expected);
}

#[test]
fn each_variant_is_its_own_and_what_it_cannot_carry_ends_it() {
    let mut workers = Workers::new(1, LIMITS);
    let conns = Variant::ALL.map(|variant| workers.tables[0].open(variant, None));
    for conn in conns {
        workers.tables[0]
            .subscribe(conn, &name("a"), PLAIN, None)
            .expect("it may");
    }
    workers.settle();
    workers.events(0);
    workers.tables[0].publish(&name("a"), PLAIN, number(5), None);
    workers.settle();
    for (variant, conn) in Variant::ALL.into_iter().zip(conns) {
        let mut frame = workers.tables[0].pop_push(conn).expect("a push");
        if variant.framed {
            let opcode = match variant.format {
                Format::Json => 1,
                Format::Protobuf => 2,
            };
            // RFC 6455 §5.2: the last frame of its message, no mask, a short length.
            assert_eq!(frame[..2], [0x80 | opcode, (frame.len() - 2) as u8]);
            frame = frame.slice(2..);
        }
        let push: Push = if variant.unidirectional {
            let mut parts = ringmain_hub::protocol::MessageParts::<Push>::new(variant.format, frame);
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
    workers.settle();
    let code = Disconnect::INAPPROPRIATE_PROTOCOL.code;
    // All those of JSON.
    assert_eq!(workers.events(0), vec![format!("disconnected {code}"); 4]);
    assert!(workers.tables[0].pop_push(conns[0]).is_none());
    assert!(
        workers.tables[0].pop_push(conns[2]).is_some(),
        "Protobuf carries anything"
    );
}

#[test]
fn what_is_asked_of_a_channel_is_told() {
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
            .expect("it may");
    }
    for published in 1..=3 {
        workers.tables[0].publish(&name("a"), options, number(published), None);
    }
    workers.settle();
    let history = |since, reverse, epoch| ChannelQuery::History {
        query: HistoryQuery {
            since,
            limit: 2,
            reverse,
        },
        epoch,
    };
    let asked = [
        (options, history(None, false, EpochFilter::Any)),
        (options, history(Some(3), true, EpochFilter::Any)),
        (options, history(Some(3), true, EpochFilter::Foreign)),
        (options, ChannelQuery::Presence),
        (options, ChannelQuery::PresenceStats),
    ];
    for (number, (options, query)) in (1..).zip(asked) {
        workers.tables[0].query(&name("a"), options, query, (one, number));
    }
    workers.tables[0].query(
        &name("b"),
        PLAIN,
        history(None, false, EpochFilter::Any),
        (one, 6),
    );
    workers.tables[0].query(&name("b"), PLAIN, ChannelQuery::Presence, (one, 7));
    workers.settle();
    let mut said = workers.events(0);
    said.sort();
    let expected = [
        "subscribed a at Some(0) missed None",
        "told 1 [1, 2] at 3",
        "told 2 [2, 1] at 3",
        "told 3 unrecoverable",
        r#"told 4 ["one", "two"]"#,
        "told 5 2 clients, 1 users",
        "told 6 not available",
        "told 7 not available",
    ];
    assert_eq!(said, expected);
}

/// One that reads nothing, and one that reads all, of a channel by this rule: what each gets, what is said, and what was dropped.
fn slow(rule: SlowConsumerPolicy) -> (Vec<u64>, Vec<u64>, Vec<String>, u64) {
    // A push of one digit is 41 bytes: three have room.
    let limits = Limits {
        queued_bytes: 130,
        ..LIMITS
    };
    let mut workers = Workers::new(1, limits);
    let options = ChannelOptions {
        slow_consumer: rule,
        ..KEPT
    };
    let (still, quick) = (
        workers.tables[0].open(JSON, None),
        workers.tables[0].open(JSON, None),
    );
    for conn in [still, quick] {
        workers.tables[0]
            .subscribe(conn, &name("a"), options, None)
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
        workers.tables[0].publish(&name("a"), options, number(published), None);
        workers.settle();
        had.extend(read(&mut workers, quick));
    }
    let dropped = workers.tables[0].dropped(still);
    assert!(workers.tables[0].queued_bytes(still) <= 130);
    let waited = read(&mut workers, still);
    assert_eq!(workers.tables[0].queued_bytes(still), 0);
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
