//! Requests of the owner's programs: idempotent publications, transient ones, removal of the history, lists of channels.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::HistoryQuery;
use ringmain_hub::limits::QUEUED_PUSHES_PER_WORKER;
use ringmain_hub::mail::{
    ChannelOptions, ChannelQuery, EpochFilter, Idempotency, PublishOptions, SlowConsumerPolicy,
};

use crate::hub::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, name, number};

const ALL: ChannelQuery = ChannelQuery::History {
    query: HistoryQuery {
        since: None,
        limit: 100,
        reverse: false,
    },
    epoch: EpochFilter::Any,
};

fn idempotency(key: &str) -> Option<Box<PublishOptions>> {
    Some(Box::new(PublishOptions {
        idempotency: Some(Idempotency {
            key: key.into(),
            window: Duration::from_secs(300),
        }),
        ..PublishOptions::default()
    }))
}

fn transient() -> Option<Box<PublishOptions>> {
    Some(Box::new(PublishOptions {
        transient: true,
        ..PublishOptions::default()
    }))
}

impl Workers {
    fn publish(
        &mut self,
        worker: usize,
        channel: &str,
        value: u64,
        publish_options: Option<Box<PublishOptions>>,
    ) {
        let options = if channel.starts_with("kept") { KEPT } else { PLAIN };
        let published = Arc::new(number(value));
        self.tables[worker].publish_for(&name(channel), options, &published, publish_options, Some(value));
    }
}

#[test]
fn an_idempotency_key_is_published_once_by_any_publisher() {
    let mut workers = Workers::new(3, LIMITS);
    let conn = workers.tables[2].open(JSON, None);
    for (channel, options) in [("kept", KEPT), ("plain", PLAIN)] {
        workers.tables[2]
            .subscribe(conn, &name(channel), options, None)
            .expect("allowed");
    }
    workers.deliver_all();
    workers.events(2);
    for (worker, channel, value, key) in [
        (0, "kept", 1, Some("x")),
        (1, "kept", 2, Some("x")),
        (0, "kept", 3, None),
        (1, "kept", 4, Some("y")),
        (0, "kept", 5, Some("x")),
        (0, "plain", 6, Some("x")),
        (1, "plain", 7, Some("x")),
    ] {
        workers.publish(worker, channel, value, key.and_then(idempotency));
        workers.deliver_all();
    }
    assert_eq!(
        workers.replies(0),
        [
            "1 published at Some(1)",
            "3 published at Some(2)",
            "5 published at Some(1)",
            "6 published at None"
        ]
    );
    assert_eq!(
        workers.replies(1),
        [
            "2 published at Some(1)",
            "4 published at Some(3)",
            "7 published at None"
        ]
    );
    let pushes = workers.pushes(2, conn);
    assert_eq!(pushes.len(), 4, "{pushes:?}");
    let counts: Vec<_> = workers.shards.iter().map(|shard| shard.counts()).collect();
    assert_eq!(counts.iter().map(|counts| counts.publications).sum::<u64>(), 4);
    assert_eq!(counts.iter().map(|counts| counts.duplicates).sum::<u64>(), 3);
    // After the window the key counts as new.
    workers.now += Duration::from_secs(300);
    workers.publish(0, "kept", 8, idempotency("x"));
    workers.deliver_all();
    assert_eq!(workers.replies(0), ["8 published at Some(4)"]);
}

#[test]
fn keys_of_rejected_publications_are_not_remembered() {
    let mut workers = Workers::new(1, LIMITS);
    workers.shards[0] = ringmain_hub::shard::ChannelShard::new(1, 0, 0);
    workers.publish(0, "kept", 1, idempotency("x"));
    workers.tables[0].query_for(&name("kept"), KEPT, ALL, 2);
    workers.deliver_all();
    assert_eq!(
        workers.replies(0),
        ["1 result channel limit", "2 result not available"]
    );
    workers.shards[0].set_channel_limit(1);
    workers.publish(0, "kept", 3, idempotency("x"));
    workers.deliver_all();
    assert_eq!(workers.replies(0), ["3 published at Some(1)"]);
}

#[test]
fn transient_publications_are_sent_without_an_offset() {
    let mut workers = Workers::new(2, LIMITS);
    let conn = workers.tables[1].open(JSON, None);
    workers.tables[1]
        .subscribe(conn, &name("kept"), KEPT, None)
        .expect("allowed");
    workers.deliver_all();
    workers.publish(0, "kept", 1, None);
    workers.publish(0, "kept", 2, transient());
    workers.publish(0, "kept", 3, None);
    workers.tables[0].query_for(&name("kept"), KEPT, ALL, 4);
    workers.deliver_all();
    assert_eq!(
        workers.replies(0),
        [
            "1 published at Some(1)",
            "2 published at None",
            "3 published at Some(2)",
            "4 result [1, 2] at 2"
        ]
    );
    assert_eq!(
        workers.pushes(1, conn),
        [
            r#"{"push":{"channel":"kept","pub":{"data":1,"offset":1}}}"#,
            r#"{"push":{"channel":"kept","pub":{"data":2}}}"#,
            r#"{"push":{"channel":"kept","pub":{"data":3,"offset":2}}}"#,
        ]
    );
    // A transient publication is dropped if the queue is full; retained ones are not lost by that.
    let shard = ringmain_hub::subscribers::shard_of("kept", 2).0.into();
    let far = 1 - shard;
    for value in 0..=QUEUED_PUSHES_PER_WORKER as u64 {
        workers.publish(shard, "kept", value, transient());
        workers.up(shard, shard, usize::MAX);
    }
    workers.publish(shard, "kept", 5, None);
    workers.deliver_all();
    workers.deliver_all();
    if far == 1 {
        assert!(
            workers
                .events(1)
                .iter()
                .all(|event| !event.starts_with("unsubscribed"))
        );
    }
}

#[test]
fn clearing_the_history_continues_the_offsets() {
    let mut workers = Workers::new(2, LIMITS);
    workers.publish(0, "kept", 1, None);
    workers.publish(0, "kept", 2, None);
    for (number, query) in [(3, ChannelQuery::ClearHistory), (4, ALL)] {
        workers.tables[0].query_for(&name("kept"), KEPT, query, number);
    }
    workers.publish(0, "kept", 5, None);
    workers.tables[0].query_for(&name("kept"), KEPT, ALL, 6);
    workers.tables[0].query_for(&name("plain"), PLAIN, ChannelQuery::ClearHistory, 7);
    workers.deliver_all();
    let mut replies = workers.replies(0);
    replies.sort();
    assert_eq!(
        replies[2..],
        [
            "3 result cleared",
            "4 result [] at 2",
            "5 published at Some(3)",
            "6 result [3] at 3",
            "7 result not available"
        ]
    );
}

#[test]
fn subscribed_channels_are_listed_in_pages() {
    let mut workers = Workers::new(1, LIMITS);
    let conns: Vec<_> = (0..2).map(|_| workers.tables[0].open(JSON, None)).collect();
    for (conn, channel) in [(0, "a"), (1, "a"), (0, "c"), (0, "e")] {
        workers.tables[0]
            .subscribe(conns[conn], &name(channel), KEPT, None)
            .expect("allowed");
    }
    for channel in ["b", "d", "f"] {
        workers.tables[0].publish(&name(channel), KEPT, number(1), None);
    }
    workers.deliver_all();
    workers.tables[0].close(conns[1]);
    workers.tables[0].unsubscribe_silently(conns[0], "e");
    workers.deliver_all();
    let shard = &workers.shards[0];
    let (mut all, mut after, mut turns) = (Vec::new(), None::<Arc<str>>, 0);
    loop {
        turns += 1;
        let each = |name: &Arc<str>, count| all.push((name.to_string(), count));
        after = shard.visit_subscribed(after.as_deref(), 2, each);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all, [("a".to_owned(), 1), ("c".to_owned(), 1)]);
    assert_eq!((turns, shard.counts().subscribed_channels), (3, 2));
    assert_eq!(workers.tables[0].counts().subscriptions, 2);
}

#[test]
fn dropped_pushes_are_counted_by_policy() {
    for slow in SlowConsumerPolicy::ALL {
        let limits = ringmain_hub::subscribers::SubscriberLimits {
            queued_bytes: 100,
            ..LIMITS
        };
        let mut workers = Workers::new(1, limits);
        let conn = workers.tables[0].open(JSON, None);
        let options = ChannelOptions {
            slow_consumer: slow,
            ..PLAIN
        };
        workers.tables[0]
            .subscribe(conn, &name("a"), options, None)
            .expect("allowed");
        for value in 0..4 {
            workers.tables[0].publish(&name("a"), options, number(value), None);
        }
        workers.deliver_all();
        let counts = workers.tables[0].counts();
        let found = counts.slow[slow.number()];
        assert_eq!(counts.slow.iter().sum::<u64>(), found, "{slow:?}");
        match slow {
            SlowConsumerPolicy::Disconnect | SlowConsumerPolicy::Resync => assert_eq!(found, 1, "{slow:?}"),
            _ => assert_eq!((found, workers.tables[0].dropped(conn)), (2, 2), "{slow:?}"),
        }
        assert_eq!(counts.lost, 0);
    }
}
