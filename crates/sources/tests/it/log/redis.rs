//! Streams of Redis as a log.

mod cluster;
mod sole;

use std::time::Duration;

use ringmain_cluster::log::{AppendOutcome, FollowFrom, LogRequest, NUMBER_MAX, Partition};
use ringmain_gateway::model::{PushLogEngine, RedisAccess, RedisDeployment, RedisLog, RedisLoss};
use ringmain_testkit::redis::{DurableRedis, RedisReply};
use ringmain_testkit::wait;

use super::{Node, all, contents};

const FROM_START: FollowFrom = FollowFrom::Number(0);

fn engine_at(servers: &[&DurableRedis], deployment: RedisDeployment, loss: RedisLoss) -> PushLogEngine {
    PushLogEngine::Redis(RedisLog {
        access: RedisAccess {
            servers: servers
                .iter()
                .map(|server| format!("127.0.0.1:{}", server.port()).into())
                .collect(),
            deployment,
            database: 0,
            login: None,
            tls: None,
        },
        prefix: "log".into(),
        loss,
    })
}

fn engine(redis: &DurableRedis) -> PushLogEngine {
    engine_at(&[redis], RedisDeployment::Single, RedisLoss::Possible)
}

#[test]
fn entries_are_acknowledged_and_read_by_all_nodes_with_the_same_numbers() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let (mut one, mut other) = (Node::new(engine(&redis)), Node::new(engine(&redis)));
    for partition in 0..2 {
        let opened = one.open(partition, FROM_START);
        assert_eq!((opened.first, opened.end, opened.from), (1, 0, 1));
    }
    let binding = one.opened[0].binding;
    assert_eq!(binding, one.opened[1].binding);
    one.append_all(0, 0..1000);
    other.append_all(1, 1000..2000);
    for (node, partition, last) in [(&mut one, 0, 999), (&mut other, 1, 1999)] {
        node.until("all outcomes", |node| node.outcomes.len() == 1000);
        let opened = node.open(partition, FROM_START);
        assert_eq!(opened.binding, binding, "the server is the same");
        node.until_content(partition, last);
    }
    one.until_content(1, 1999);
    one.until_content(0, 999);
    assert_eq!(
        (one.contents(0), one.contents(1)),
        (all(0..1000), all(1000..2000))
    );
    let numbers = |node: &Node, partition: u16| -> Vec<u64> {
        let records = &node.records[&Partition(partition)];
        records.iter().map(|record| record.number).collect()
    };
    assert_eq!(numbers(&one, 1), numbers(&other, 1));
    assert!(
        numbers(&one, 0)
            .iter()
            .all(|number| (1..=NUMBER_MAX).contains(number))
    );
    let acknowledged: Vec<u64> = one.outcomes.values().map(number).collect();
    assert_eq!(
        acknowledged,
        numbers(&one, 0),
        "numbers are those that were acknowledged"
    );
}

fn number(outcome: &AppendOutcome) -> u64 {
    match outcome {
        AppendOutcome::Appended(number) => *number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reading_begins_with_the_requested_number_or_with_recent_records() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    node.append_all(0, 0..10);
    node.until("all outcomes", |node| node.outcomes.len() == 10);
    let fifth = number(&node.outcomes[&5]);
    let opened = node.open(0, FollowFrom::Number(fifth));
    assert_eq!((opened.from, opened.end), (fifth, number(&node.outcomes[&9])));
    node.until_content(0, 9);
    assert_eq!(node.contents(0), all(5..10));
    let opened = node.open(0, FollowFrom::Recent(Duration::from_secs(300)));
    assert_eq!(opened.from, opened.first.max(opened.from));
    node.until_content(0, 9);
    assert_eq!(node.contents(0), all(0..10));
    // A part below a number, and the rest.
    let tail = |before, bytes| LogRequest::Tail {
        partition: Partition(0),
        before,
        bytes,
    };
    node.request(vec![tail(fifth, 1)]);
    node.until("a part", |node| node.older.len() == 1);
    let (_, from, records, is_first) = &node.older[0];
    assert_eq!((contents(records), *is_first), (vec![4], false));
    let request = tail(*from, 1 << 20);
    node.request(vec![request]);
    node.until("the rest", |node| node.older.len() == 2);
    let (_, _, records, is_first) = &node.older[1];
    assert_eq!((contents(records), *is_first), (all(0..4), true));
    node.request(vec![
        LogRequest::Unfollow {
            partition: Partition(0),
        },
        tail(fifth, 1),
    ]);
    node.until_closed(0);
}

#[test]
fn a_key_is_appended_once() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    node.open(0, FROM_START);
    let first = node.append_once(0, 1, "a");
    let number = number(&node.outcome(first));
    let again = node.append_once(0, 2, "a");
    assert_eq!(node.outcome(again), AppendOutcome::Repeated(number));
    let other = node.append_once(0, 3, "b");
    node.outcome(other);
    node.until_content(0, 3);
    assert_eq!(node.contents(0), [1, 3]);
}

#[test]
fn entries_without_a_number_are_appended_again() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    // The clock of the server was set back: Redis counts within the millisecond of the newest entry.
    let ahead = redis.call(&["TIME"]).list()[0]
        .text()
        .parse::<u64>()
        .expect("seconds")
        * 1000
        + 60_000;
    let newest = format!("{ahead}-4090");
    redis.call(&["XADD", "{log:0}", &newest, "e", "none"]);
    let mut node = Node::new(engine(&redis));
    node.append_all(0, 0..5000);
    node.append_once(0, 5000, "a");
    node.until("all outcomes", |node| node.outcomes.len() == 5001);
    let numbers: Vec<u64> = node.outcomes.values().map(number).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other));
    node.open(0, FollowFrom::Number(numbers[0]));
    node.until_content(0, 5000);
    assert_eq!(node.contents(0), all(0..5001));
}

#[test]
fn a_server_that_is_killed_is_another_state_unless_it_loses_nothing() {
    for (loss, is_same) in [
        (RedisLoss::Possible, false),
        (RedisLoss::None { replicas: 0 }, true),
    ] {
        let Some(mut redis) = DurableRedis::start(&[]) else {
            return;
        };
        let mut node = Node::new(engine_at(&[&redis], RedisDeployment::Single, loss));
        let before = node.open(0, FROM_START);
        let number = node.append_until_done(0, 1);
        node.until_content(0, 1);
        redis.kill();
        node.until_closed(0);
        assert!(!node.health.last().expect("health").is_connected);
        let lost = node.append(0, 2);
        // It waits for the server, and is refused if that takes too long, or where the state is another one.
        let outcome = node.outcome(lost);
        assert!(
            matches!(outcome, AppendOutcome::Refused | AppendOutcome::Unknown),
            "{outcome:?}"
        );
        assert!(redis.restart());
        let after = node.open(0, FollowFrom::Number(number));
        assert_eq!(after.binding == before.binding, is_same, "{loss:?}");
        node.append_until_done(0, 3);
        node.until_content(0, 3);
        assert_eq!(node.contents(0), [1, 3], "the requested number is included");
        assert!(node.health.last().expect("health").is_connected);
    }
}

#[test]
fn a_server_that_returns_with_an_older_state_lacks_numbers_that_were_read() {
    let Some(mut redis) = DurableRedis::start(&["--appendonly", "no"]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    let before = node.open(0, FROM_START);
    node.append_until_done(0, 1);
    assert_eq!(redis.call(&["SAVE"]), RedisReply::Text("OK".to_owned()));
    let lost = node.append_until_done(0, 2);
    redis.kill();
    node.until_closed(0);
    assert!(redis.restart());
    let after = node.open(0, FollowFrom::Number(lost));
    assert!(after.end < lost && after.binding != before.binding, "{after:?}");
    let next = node.append_until_done(0, 3);
    assert!(next > lost);
    node.until_content(0, 3);
    assert_eq!(node.contents(0), [3]);
}

#[test]
fn entries_older_than_the_retention_are_deleted() {
    let Some(redis) = DurableRedis::start(&["--stream-node-max-entries", "10"]) else {
        return;
    };
    let old = redis.call(&["TIME"]).list()[0]
        .text()
        .parse::<u64>()
        .expect("seconds")
        * 1000
        - 3_600_000;
    for sequence in 1..=100 {
        redis.call(&["XADD", "{log:0}", &format!("{old}-{sequence}"), "e", "old"]);
    }
    let mut node = Node::new(engine(&redis));
    let oldest = node.open(0, FROM_START).first;
    node.append_until_done(0, 1);
    let opened = node.open(0, FollowFrom::Number(oldest));
    assert!(opened.first > oldest, "{opened:?}");
    assert_eq!(opened.from, opened.first);
}

#[test]
fn the_log_follows_the_master_of_sentinels() {
    let Some(mut master) = DurableRedis::start(&[]) else {
        return;
    };
    let replica = start_replica(&master);
    let sentinel = DurableRedis::start_sentinel("main", &master).expect("it is installed");
    wait::until("the replica at the Sentinel", || {
        sentinel.call(&["SENTINEL", "replicas", "main"]).list().len() == 1
    });
    let deployment = RedisDeployment::Sentinel("main".into());
    let mut node = Node::new(engine_at(
        &[&sentinel],
        deployment,
        RedisLoss::None { replicas: 1 },
    ));
    let before = node.open(0, FROM_START);
    let first = node.append_until_done(0, 0);
    let appends = node.append_all(0, 1..1000);
    master.kill();
    node.until_closed(0);
    replica.wait_for_promotion();
    // No replica is left that could confirm.
    let mut after = Node::new(engine_at(
        &[&replica],
        RedisDeployment::Single,
        RedisLoss::Possible,
    ));
    let opened = node.open(0, FollowFrom::Number(first));
    assert_eq!(opened.binding, before.binding);
    after.append_until_done(0, 1000);
    node.until_content(0, 1000);
    let received = node.contents(0);
    for content in 1..1000 {
        let outcome = node.outcomes[&(appends + content - 1)];
        let is_acknowledged = matches!(outcome, AppendOutcome::Appended(_));
        assert!(
            !is_acknowledged || received.contains(&content),
            "{content} is lost"
        );
    }
}

/// Starts a replica of a server that is connected to it.
fn start_replica(master: &DurableRedis) -> DurableRedis {
    let port = master.port().to_string();
    let of_master = [
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ];
    let replica = DurableRedis::start(&of_master).expect("it is installed");
    wait::until("the replica", || {
        let role = replica.call(&["ROLE"]);
        role.list().get(3).map(RedisReply::text) == Some("connected")
    });
    replica
}

#[test]
fn a_server_that_is_or_becomes_a_replica_is_not_healthy() {
    let Some(master) = DurableRedis::start(&[]) else {
        return;
    };
    let replica = start_replica(&master);
    let is_refused = |node: &Node| {
        let health = node.health.last();
        health.is_some_and(|health| !health.is_connected && health.reason.contains("found role:slave"))
    };
    let mut of_replica = Node::new(engine(&replica));
    of_replica.until("a reason", is_refused);
    assert_eq!(
        of_replica.health.len(),
        1,
        "it does not flap: {:?}",
        of_replica.health
    );
    // It reads only, so that no append finds it out.
    let mut node = Node::new(engine(&master));
    node.open(0, FROM_START);
    node.until("a connection", |node| {
        node.health.last().is_some_and(|health| health.is_connected)
    });
    let port = replica.port().to_string();
    replica.call(&["REPLICAOF", "NO", "ONE"]);
    master.call(&["REPLICAOF", "127.0.0.1", &port]);
    node.until("a reason", is_refused);
    node.until_closed(0);
}

#[test]
fn a_server_that_refuses_appends_is_not_healthy_until_it_accepts_one() {
    let Some(redis) = DurableRedis::start(&["--min-replicas-to-write", "1"]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    node.open(0, FROM_START);
    for content in 0..5 {
        let append = node.append(0, content);
        assert_eq!(node.outcome(append), AppendOutcome::Refused);
    }
    let states =
        |node: &Node| -> Vec<bool> { node.health.iter().map(|health| health.is_connected).collect() };
    assert_eq!(states(&node), [true, false], "it does not flap");
    redis.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    node.append_until_done(0, 5);
    node.until("its health", |node| states(node) == [true, false, true]);
    assert_eq!(node.closed, [], "it is read all the time");
}

#[test]
fn few_of_the_older_entries_that_are_large_are_read() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    node.open(0, FROM_START);
    let mut newest = 0;
    for _ in 0..200 {
        let append = node.append_bytes(0, vec![0; 100_000]);
        newest = number(&node.outcome(append));
    }
    node.open(0, FollowFrom::Number(newest));
    let sent = || {
        let info = redis.call(&["INFO", "stats"]);
        let line = info
            .text()
            .lines()
            .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok())
            .expect("bytes")
    };
    let before = sent();
    node.request(vec![LogRequest::Tail {
        partition: Partition(0),
        before: newest,
        bytes: 250_000,
    }]);
    node.until("a part", |node| node.older.len() == 1);
    assert_eq!(node.older[0].2.len(), 3);
    let read = sent() - before;
    assert!(read < 3_000_000, "{read} bytes");
}

/// The server refuses to read any stream of a command with one that is none.
#[test]
fn a_partition_that_is_no_stream_is_closed_alone() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    node.open(0, FROM_START);
    node.open(1, FROM_START);
    node.append_until_done(1, 1);
    redis.call(&["DEL", "{log:1}"]);
    redis.call(&["SET", "{log:1}", "x"]);
    // The read ends, and the next one is refused.
    node.append_until_done(0, 1);
    node.until_closed(1);
    node.append_until_done(0, 2);
    node.until_content(0, 2);
    assert_eq!(node.closed, [], "the other one remains open");
}

#[test]
fn a_partition_that_cannot_be_read_is_closed_alone() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new(engine(&redis));
    node.open(0, FROM_START);
    node.open(1, FROM_START);
    let newest = node.append_until_done(0, 1);
    node.append_until_done(1, 1);
    // No stream: commands for it fail.
    redis.call(&["DEL", "{log:1}"]);
    redis.call(&["SET", "{log:1}", "x"]);
    node.request(vec![LogRequest::Tail {
        partition: Partition(1),
        before: newest,
        bytes: 1,
    }]);
    node.until_closed(1);
    node.append_until_done(0, 2);
    node.until_content(0, 2);
    assert_eq!(node.closed, [], "the other one remains open");
}
