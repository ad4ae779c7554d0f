//! A topic of Kafka as a log. Brokers are slow to start: each test has many cases.

use std::time::Duration;

use ringmain_cluster::log::{AppendOutcome, FollowFrom, LogRequest, Partition};
use ringmain_gateway::model::{KafkaLog, PushLogEngine};
use ringmain_testkit::kafka::Kafka;
use ringmain_testkit::wait;

use super::{Node, PARTITIONS, all, contents};

const FROM_START: FollowFrom = FollowFrom::Number(0);
const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";

fn engine(kafka: &Kafka, topic: &str, replicas: u16) -> PushLogEngine {
    PushLogEngine::Kafka(KafkaLog {
        servers: kafka.addresses().into_iter().map(Into::into).collect(),
        topic: topic.into(),
        replicas,
        sasl: None,
        tls: None,
    })
}

#[test]
fn a_topic_is_a_log() {
    let Some(mut kafka) = Kafka::start(1) else {
        return;
    };
    has_the_same_numbers_for_all(&kafka);
    begins_with_the_requested_number(&kafka);
    topic_of_another_size_is_refused(&kafka);
    topic_that_is_created_again_is_another_state(&kafka);
    broker_that_is_killed_has_the_same_topic_when_it_is_back(&mut kafka);
}

fn number(outcome: &AppendOutcome) -> u64 {
    match outcome {
        AppendOutcome::Appended(number) => *number,
        other => panic!("{other:?}"),
    }
}

/// Nothing is appended before the topic is created.
fn is_connected(node: &Node) -> bool {
    node.health.last().is_some_and(|health| health.is_connected)
}

fn has_the_same_numbers_for_all(kafka: &Kafka) {
    let (mut one, mut other) = (
        Node::new(engine(kafka, "same", 1)),
        Node::new(engine(kafka, "same", 1)),
    );
    for node in [&mut one, &mut other] {
        node.until("a connection", is_connected);
    }
    let opened = one.open(0, FROM_START);
    assert_eq!((opened.first, opened.end, opened.from), (1, 0, 1));
    one.append_all(0, 0..1000);
    other.append_all(1, 1000..2000);
    for node in [&mut one, &mut other] {
        node.until("all outcomes", |node| node.outcomes.len() == 1000);
    }
    assert_eq!(other.open(0, FROM_START).binding, opened.binding);
    let numbers: Vec<u64> = one.outcomes.values().map(number).collect();
    assert_eq!(numbers, all(1..1001));
    for node in [&mut one, &mut other] {
        node.until_content(0, 999);
        assert_eq!(node.contents(0), all(0..1000));
        let read = node.records[&Partition(0)].iter().map(|record| record.number);
        assert!(read.eq(numbers.iter().copied()));
    }
    one.open(1, FROM_START);
    one.until_content(1, 1999);
    assert_eq!(one.contents(1), all(1000..2000));
}

fn begins_with_the_requested_number(kafka: &Kafka) {
    let mut node = Node::new(engine(kafka, "begins", 1));
    node.until("a connection", is_connected);
    node.append_all(0, 0..10);
    node.until("all outcomes", |node| node.outcomes.len() == 10);
    let fifth = number(&node.outcomes[&5]);
    let opened = node.open(0, FollowFrom::Number(fifth));
    assert_eq!((opened.from, opened.end), (fifth, 10));
    node.until_content(0, 9);
    assert_eq!(node.contents(0), all(5..10));
    let opened = node.open(0, FollowFrom::Recent(Duration::from_secs(300)));
    assert_eq!((opened.first, opened.from), (1, 1));
    node.until_content(0, 9);
    assert_eq!(node.contents(0), all(0..10));
    let opened = node.open(0, FollowFrom::Recent(Duration::ZERO));
    assert_eq!(opened.from, 11, "the next record");
    node.append_until_done(0, 10);
    node.until_content(0, 10);
    assert_eq!(node.contents(0), [10]);
    let tail = |bytes| LogRequest::Tail {
        partition: Partition(0),
        before: fifth,
        bytes,
    };
    node.request(vec![tail(1)]);
    node.until("a part", |node| node.older.len() == 1);
    let (_, from, records, is_first) = &node.older[0];
    assert_eq!((contents(records), *is_first), (vec![4], false));
    assert_eq!(*from, records[0].number);
    node.request(vec![tail(1 << 20)]);
    node.until("the rest", |node| node.older.len() == 2);
    let (_, _, records, is_first) = &node.older[1];
    assert_eq!((contents(records), *is_first), (all(0..5), true));
    node.request(vec![
        LogRequest::Unfollow {
            partition: Partition(0),
        },
        tail(1),
    ]);
    node.until_closed(0);
}

fn topic_of_another_size_is_refused(kafka: &Kafka) {
    let partitions = (PARTITIONS + 1).to_string();
    kafka.tool(
        TOPICS,
        &["--create", "--topic", "size", "--partitions", &partitions],
    );
    let mut node = Node::new(engine(kafka, "size", 1));
    node.until("a reason", |node| {
        let health = node.health.last();
        health.is_some_and(|health| health.reason.contains("topic size has 5 partitions"))
    });
    let append = node.append(0, 1);
    assert_eq!(node.outcome(append), AppendOutcome::Refused);
}

fn topic_that_is_created_again_is_another_state(kafka: &Kafka) {
    let mut node = Node::new(engine(kafka, "again", 1));
    let before = node.open(0, FROM_START);
    node.append_until_done(0, 1);
    kafka.tool(TOPICS, &["--delete", "--topic", "again"]);
    node.until_closed(0);
    let after = node.open(0, FROM_START);
    assert_ne!(after.binding, before.binding);
    assert_eq!(after.end, 0);
    node.append_until_done(0, 2);
    node.until_content(0, 2);
    assert_eq!(node.contents(0), [2]);
}

fn broker_that_is_killed_has_the_same_topic_when_it_is_back(kafka: &mut Kafka) {
    let mut node = Node::new(engine(kafka, "killed", 1));
    node.open(0, FROM_START);
    node.append_until_done(0, 1);
    node.until_content(0, 1);
    kafka.kill(0);
    let lost = node.append(0, 2);
    let outcome = node.outcome(lost);
    assert!(
        matches!(outcome, AppendOutcome::Refused | AppendOutcome::Unknown),
        "{outcome:?}"
    );
    node.until("a failure", |node| !is_connected(node));
    kafka.restart(0);
    node.append_until_done(0, 3);
    wait::until("the record", || {
        node.turn();
        if node.closed.pop().is_some() {
            node.follow(0, FROM_START);
        }
        node.contents(0).last() == Some(&3)
    });
    let received = node.contents(0);
    assert!(received == [1, 3] || received == [1, 2, 3], "{received:?}");
    node.until("a connection", is_connected);
}

#[test]
fn acknowledged_entries_survive_the_leader_of_three_brokers() {
    let Some(mut kafka) = Kafka::start(3) else {
        return;
    };
    let mut node = Node::new(engine(&kafka, "three", 3));
    node.open(0, FROM_START);
    node.until("a connection", is_connected);
    node.append_all(0, 0..2000);
    node.until("some outcomes", |node| node.outcomes.len() >= 500);
    let leader = leader_of(&kafka, "three", 0);
    node.append_all(0, 2000..4000);
    kafka.kill(leader - 1);
    let mut content = 4000;
    loop {
        content += 1;
        let append = node.append(0, content);
        if matches!(node.outcome(append), AppendOutcome::Appended(_)) {
            break;
        }
    }
    node.until("all outcomes", |node| {
        (0..4000).all(|append| node.outcomes.contains_key(&append))
    });
    wait::until("the last record", || {
        node.turn();
        if node.closed.pop().is_some() {
            node.follow(0, FROM_START);
        }
        node.contents(0).last() == Some(&content)
    });
    let received = node.contents(0);
    let lost: Vec<u64> = (0..4000)
        .filter(|content| {
            let is_acknowledged = matches!(node.outcomes[content], AppendOutcome::Appended(_));
            is_acknowledged && received.binary_search(content).is_err()
        })
        .collect();
    assert_eq!(lost, [0; 0]);
    kafka.restart(leader - 1);
    partitions_remain_open_while_one_has_no_leader(&mut kafka);
}

fn partitions_remain_open_while_one_has_no_leader(kafka: &mut Kafka) {
    let mut node = Node::new(engine(kafka, "alone", 1));
    for partition in 0..PARTITIONS {
        node.append_until_done(partition, 1);
        node.open(partition, FROM_START);
    }
    let (gone, kept): (Vec<u16>, Vec<u16>) =
        (0..PARTITIONS).partition(|partition| leader_of(kafka, "alone", *partition) == 1);
    assert!(!gone.is_empty() && !kept.is_empty(), "{gone:?} {kept:?}");
    kafka.kill(0);
    // Longer than the checks whose failure closes everything.
    let mut content = 1;
    for _ in 0..8 {
        content += 1;
        let lost = node.append(gone[0], content);
        for partition in &kept {
            node.append_until_done(*partition, content);
        }
        node.outcome(lost);
    }
    for partition in kept {
        node.until_content(partition, content);
        assert!(!node.closed.contains(&Partition(partition)));
    }
    let is_connected: Vec<bool> = node.health.iter().map(|health| health.is_connected).collect();
    assert_eq!(is_connected, [true], "one partition of many changes no state");
}

/// Returns the number of a partition's leader.
fn leader_of(kafka: &Kafka, topic: &str, partition: u16) -> usize {
    let described = kafka.tool(TOPICS, &["--describe", "--topic", topic]);
    let name = format!("Partition: {partition}\t");
    let line = described.lines().find(|line| line.contains(&name));
    let leader = line.and_then(|line| line.split("Leader: ").nth(1)?.split_whitespace().next());
    leader.and_then(|leader| leader.parse().ok()).expect("a leader")
}
