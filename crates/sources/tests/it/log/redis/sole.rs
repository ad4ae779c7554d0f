//! Partitions that one node alone appends to: it does not read its own entries back.

use ringmain_cluster::log::{AppendOutcome, Partition, Record};
use ringmain_gateway::model::PushLogEngine;
use ringmain_testkit::redis::DurableRedis;

use super::{FROM_START, Node, all, engine, number};

/// A node and the number of its appends to partition 0, whose entries it takes from memory now.
fn sole(redis: &DurableRedis, engine: PushLogEngine) -> (Node, u64) {
    let mut node = Node::new(engine);
    node.open(0, FROM_START);
    let (mut content, mut unread) = (0, 0);
    // Between two reads no client waits, either.
    while unread < 20 {
        node.append_until_done(0, content);
        node.until_content(0, content);
        content += 1;
        unread = if is_read(redis) { 0 } else { unread + 1 };
    }
    (node, content)
}

/// Returns whether a client waits for entries.
fn is_read(redis: &DurableRedis) -> bool {
    let info = redis.call(&["INFO", "clients"]);
    !info.text().contains("blocked_clients:0\r")
}

fn numbers(node: &Node) -> Vec<u64> {
    let records: &[Record] = &node.records[&Partition(0)];
    records.iter().map(|record| record.number).collect()
}

#[test]
fn own_entries_are_not_read_back_and_have_the_numbers_of_the_log() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let (mut node, content) = sole(&redis, engine(&redis));
    // One by one, and many in a batch, for longer than the interval of checks.
    let mut next = content;
    for count in [1, 1, 700, 1, 5000, 2, 1] {
        node.append_all(0, next..next + count);
        next += count;
        node.until_content(0, next - 1);
        assert!(!is_read(&redis));
    }
    node.until("all outcomes", |node| node.outcomes.len() == next as usize);
    assert_eq!(node.contents(0), all(0..next));
    let acknowledged: Vec<u64> = node.outcomes.values().map(number).collect();
    assert_eq!(numbers(&node), acknowledged);
    // Another node reads the same.
    let mut other = Node::new(engine(&redis));
    other.open(0, FROM_START);
    other.until_content(0, next - 1);
    assert_eq!((other.contents(0), numbers(&other)), (all(0..next), acknowledged));
    // A key that was used is not appended again.
    let first = node.append_once(0, next, "a");
    let first = number(&node.outcome(first));
    let again = node.append_once(0, next + 1, "a");
    assert_eq!(node.outcome(again), AppendOutcome::Repeated(first));
    node.append_until_done(0, next + 2);
    node.until_content(0, next + 2);
    assert_eq!(node.contents(0)[next as usize..], [next, next + 2]);
}

#[test]
fn entries_of_another_node_arrive_with_the_next_own_one_and_are_read_then() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let (mut node, mut content) = sole(&redis, engine(&redis));
    let mut other = Node::new(engine(&redis));
    let mut expected = all(0..content);
    // Two entries, directly behind the last one.
    other.append_until_done(0, 100_000);
    other.append_until_done(0, 100_001);
    node.append_all(0, content..content + 3);
    expected.extend([100_000, 100_001, content, content + 1, content + 2]);
    content += 3;
    node.until_content(0, content - 1);
    assert_eq!(node.contents(0), expected);
    node.until("a read", |_| is_read(&redis));
    // Without an own one.
    other.append_until_done(0, 100_002);
    expected.push(100_002);
    node.until_content(0, 100_002);
    assert_eq!(node.contents(0), expected);
    assert!(is_read(&redis));
}

#[test]
fn a_partition_that_is_not_appended_to_any_more_is_read() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let (mut node, content) = sole(&redis, engine(&redis));
    node.until("a read", |_| is_read(&redis));
    let mut other = Node::new(engine(&redis));
    other.append_until_done(0, content);
    node.until_content(0, content);
    assert_eq!(node.contents(0), all(0..content + 1));
}

#[test]
fn a_log_whose_last_entry_is_gone_is_read_again() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let (mut node, mut content) = sole(&redis, engine(&redis));
    // A check finds it.
    while node.closed.is_empty() {
        redis.call(&["FLUSHALL"]);
        node.append_until_done(0, content);
        content += 1;
    }
    assert_eq!(node.closed, [Partition(0)]);
}

#[test]
fn a_connection_that_is_lost_leaves_no_gap() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let (mut node, content) = sole(&redis, engine(&redis));
    let first = node.append_all(0, content..content + 2000);
    redis.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    node.until_closed(0);
    node.open(0, FROM_START);
    node.append_until_done(0, 100_000);
    node.until_content(0, 100_000);
    node.until("all outcomes", |node| {
        (first..first + 2000).all(|append| node.outcomes.contains_key(&append))
    });
    let received = node.contents(0);
    for append in first..first + 2000 {
        let outcome = node.outcomes[&append];
        let is_received = received.contains(&(content + append - first));
        match outcome {
            AppendOutcome::Appended(_) => assert!(is_received, "{append}"),
            AppendOutcome::Refused => assert!(!is_received, "{append}"),
            _ => {}
        }
    }
}
