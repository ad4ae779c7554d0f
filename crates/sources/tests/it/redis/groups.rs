//! Members of a group: which one reads a stream, and what another one has left.

use std::time::Duration;

use ringmain_gateway::model::SourceKind;
use ringmain_testkit::redis::DurableRedis;
use ringmain_testkit::wait;

use super::{GROUP, all, fill, pending, streams, until_acknowledged};
use crate::support::Node;

/// The code of an error after which clients try again.
const TEMPORARY: u64 = 100;

#[test]
fn entries_of_a_consumer_that_is_gone_are_claimed() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    fill(&redis, "a", 0..150);
    redis.call(&["XGROUP", "CREATE", "a", GROUP, "0"]);
    let read = [
        "XREADGROUP",
        "GROUP",
        GROUP,
        "gone",
        "COUNT",
        "120",
        "STREAMS",
        "a",
        ">",
    ];
    redis.call(&read);
    assert_eq!(pending(&redis, "a"), 120);
    let mut node = Node::new();
    node.subscribe(&["a"]);
    let mut source = streams(&redis, &["a"], "{stream}");
    if let SourceKind::RedisStreams(kind) = &mut source.kind {
        kind.claim_after = Duration::from_millis(200);
    }
    node.follow(&[("redis", &source)]);
    node.until_received(150);
    until_acknowledged(&mut node, &redis, &["a"]);
    let mut numbers = node.numbers("a");
    let claimed: Vec<u64> = numbers.iter().copied().filter(|number| *number < 120).collect();
    assert_eq!(claimed, all(0..120), "in their order");
    numbers.sort_unstable();
    assert_eq!(numbers, all(0..150));
}

#[test]
fn entries_of_the_owner_before_are_read_before_new_ones() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    fill(&redis, "a", 0..150);
    redis.call(&["XGROUP", "CREATE", "a", GROUP, "0"]);
    let lease = format!("ringmain_lease:{GROUP}:a");
    redis.call(&["HSET", &lease, "owner", "other", "consumer", "gone", "until", "0"]);
    let read = [
        "XREADGROUP",
        "GROUP",
        GROUP,
        "gone",
        "COUNT",
        "120",
        "STREAMS",
        "a",
        ">",
    ];
    redis.call(&read);
    let mut node = Node::new();
    node.subscribe(&["a"]);
    node.follow(&[("redis", &streams(&redis, &["a"], "{stream}"))]);
    node.until_received(150);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(node.numbers("a"), all(0..150));
    assert_eq!(
        node.report().gaps,
        0,
        "clients of this process have missed nothing"
    );
}

#[test]
fn clients_wait_for_the_entries_of_the_same_consumer_before_a_kill() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let source = streams(&redis, &["a"], "kept:{stream}");
    let SourceKind::RedisStreams(kind) = &source.kind else {
        panic!("{source:?}");
    };
    fill(&redis, "a", 0..100);
    redis.call(&["XGROUP", "CREATE", "a", GROUP, "0"]);
    let lease = format!("ringmain_lease:{GROUP}:a");
    let owned_until = |until: &str| {
        let fields = ["owner", "killed", "consumer", &*kind.consumer, "until", until];
        redis.call(&[&["HSET", &*lease][..], &fields].concat());
    };
    owned_until("9999999999999");
    let read = ["XREADGROUP", "GROUP", GROUP, &*kind.consumer, "STREAMS", "a", ">"];
    redis.call(&read);
    let mut node = Node::start(&[("redis", &source)]);
    node.until("it waits for the lease", |node| node.report().delivers);
    for _ in 0..3 {
        node.turn();
        assert_eq!(node.recover("kept:a"), Some(TEMPORARY));
    }
    owned_until("0");
    node.until("all are acknowledged", |_| pending(&redis, "a") == 0);
    wait::until("a subscription", || {
        node.turn();
        node.recover("kept:a").is_none()
    });
    node.turn();
    assert_eq!(node.received, [], "they were published before");
}

#[test]
fn one_member_of_a_group_reads_a_stream_and_another_takes_over() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let member = |name: &str| {
        let mut source = streams(&redis, &["a"], "kept:{stream}");
        if let SourceKind::RedisStreams(streams) = &mut source.kind {
            streams.consumer = name.into();
        }
        source
    };
    let (mut one, mut two) = (Node::new(), Node::new());
    one.subscribe(&["kept:a"]);
    two.subscribe(&["kept:a"]);
    one.follow(&[("redis", &member("one"))]);
    fill(&redis, "a", 0..100);
    one.until_received(100);
    two.follow(&[("redis", &member("two"))]);
    two.until("the second waits, and is ready", |two| two.report().delivers);
    fill(&redis, "a", 100..200);
    one.until_received(200);
    assert_eq!(one.numbers("kept:a"), all(0..200));
    two.turn();
    assert_eq!(two.received, []);
    one.end_sources();
    two.until("its client is notified", |two| !two.unsubscribed.is_empty());
    two.subscribe(&["kept:a"]);
    fill(&redis, "a", 200..300);
    two.until_received(100);
    assert_eq!(two.numbers("kept:a"), all(200..300));
    assert_eq!(two.report().gaps, 1);
}
