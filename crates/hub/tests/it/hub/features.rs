//! Subscriptions with filters by tags, and with numbers in place of channel names.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::mail::{ChannelOptions, RecoverFrom};
use ringmain_hub::protocol::{Published, Unsubscribed};
use ringmain_hub::subscribers::{ConnId, SubscriptionFeatures};
use ringmain_hub::tag_filter::TagFilter;

use crate::hub::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, info, name};

const FILTERED: ChannelOptions = ChannelOptions {
    tags_filter: true,
    ..KEPT
};

const COMPACT: ChannelOptions = ChannelOptions {
    compaction: true,
    join_leave: true,
    ..PLAIN
};

fn tagged(number: u64, ticker: &str) -> Published {
    Published {
        data: Bytes::from(number.to_string()),
        tags: [("ticker".to_owned(), ticker.to_owned())].into(),
        ..Published::default()
    }
}

fn filter(ticker: &str) -> SubscriptionFeatures {
    let json = format!(r#"{{"key":"ticker","cmp":"eq","val":"{ticker}"}}"#);
    let node = serde_json::from_str(&json).expect("a filter");
    SubscriptionFeatures {
        filter: Some(Arc::new(TagFilter::new(&node).expect("valid"))),
        ..SubscriptionFeatures::default()
    }
}

fn subscribe(
    workers: &mut Workers,
    worker: usize,
    channel: &str,
    options: ChannelOptions,
    recover_from: Option<RecoverFrom>,
    features: SubscriptionFeatures,
) -> ConnId {
    let conn = workers.tables[worker].open(JSON, None);
    workers.tables[worker]
        .subscribe_with(conn, &name(channel), options, recover_from, None, features)
        .expect("allowed");
    workers.deliver_all();
    conn
}

/// Returns the data of the queued publications.
fn data(workers: &mut Workers, worker: usize, conn: ConnId) -> Vec<u64> {
    let pushes = workers.pushes(worker, conn).into_iter();
    pushes
        .map(|push| {
            let push: serde_json::Value = serde_json::from_str(&push).expect("JSON");
            push["push"]["pub"]["data"].as_u64().expect("a number")
        })
        .collect()
}

#[test]
fn a_subscriber_receives_the_publications_that_match() {
    let mut workers = Workers::new(2, LIMITS);
    let plain = SubscriptionFeatures::default();
    let all = subscribe(&mut workers, 0, "a", FILTERED, None, plain.clone());
    let one = subscribe(&mut workers, 0, "a", FILTERED, None, filter("X"));
    let same = subscribe(&mut workers, 0, "a", FILTERED, None, filter("X"));
    let other = subscribe(&mut workers, 1, "a", FILTERED, None, filter("Y"));
    let late = subscribe(&mut workers, 0, "a", FILTERED, None, plain);
    for (number, ticker) in [(1, "X"), (2, "Y"), (3, "X"), (4, "Z")] {
        workers.tables[0].publish(&name("a"), FILTERED, tagged(number, ticker), None);
    }
    workers.deliver_all();
    assert_eq!(data(&mut workers, 0, all), [1, 2, 3, 4]);
    assert_eq!(data(&mut workers, 0, one), [1, 3]);
    assert_eq!(data(&mut workers, 1, other), [2]);
    // Deliveries are counted without the publications that do not match.
    assert_eq!(workers.tables[0].counts().deliveries, 4 + 2 + 2 + 4);
    assert_eq!(workers.tables[1].counts().deliveries, 1);
    // The places of subscribers change when others leave.
    workers.tables[0].close(all);
    workers.tables[0].close(one);
    workers.deliver_all();
    assert_eq!(data(&mut workers, 0, same), [1, 3]);
    assert_eq!(data(&mut workers, 0, late), [1, 2, 3, 4]);
    for (number, ticker) in [(5, "X"), (6, "Y")] {
        workers.tables[0].publish(&name("a"), FILTERED, tagged(number, ticker), None);
    }
    workers.deliver_all();
    assert_eq!(data(&mut workers, 0, same), [5]);
    assert_eq!(data(&mut workers, 0, late), [5, 6]);
}

/// A worker has subscribers with a filter that the options no longer permit, and the last subscriber of another worker leaves.
#[test]
fn a_filter_remains_when_the_subscribers_of_another_worker_leave() {
    let mut workers = Workers::new(2, LIMITS);
    let filtered = subscribe(&mut workers, 0, "a", FILTERED, None, filter("X"));
    let plain = SubscriptionFeatures::default();
    let other = subscribe(&mut workers, 1, "a", FILTERED, None, plain);
    workers.events(0);
    workers.tables[0].publish(&name("a"), KEPT, tagged(1, "X"), None);
    workers.deliver_all();
    workers.tables[1].close(other);
    workers.deliver_all();
    for (number, ticker) in [(2, "Y"), (3, "X")] {
        workers.tables[0].publish(&name("a"), KEPT, tagged(number, ticker), None);
    }
    workers.deliver_all();
    assert_eq!(data(&mut workers, 0, filtered), [1, 3]);
    assert!(workers.events(0).is_empty(), "it remains subscribed");
}

#[test]
fn a_recovery_has_the_publications_that_match() {
    let mut workers = Workers::new(1, LIMITS);
    for (number, ticker) in [(1, "X"), (2, "Y"), (3, "X"), (4, "Y")] {
        workers.tables[0].publish(&name("a"), FILTERED, tagged(number, ticker), None);
        workers.tables[0].publish(&name("cached"), FILTERED, tagged(number, ticker), None);
    }
    workers.deliver_all();
    let from = Some(RecoverFrom::BEGINNING);
    subscribe(&mut workers, 0, "a", FILTERED, from, filter("X"));
    subscribe(&mut workers, 0, "a", FILTERED, from, filter("Z"));
    let cached = ChannelOptions {
        cache_recovery: true,
        ..FILTERED
    };
    subscribe(&mut workers, 0, "cached", cached, from, filter("X"));
    subscribe(&mut workers, 0, "cached", cached, from, filter("Y"));
    subscribe(&mut workers, 0, "cached", cached, from, filter("Z"));
    assert_eq!(
        workers.events(0),
        [
            "subscribed a at Some(4) missed Some([1, 3])",
            "subscribed a at Some(4) missed Some([])",
            "subscribed cached at Some(4) missed Some([3])",
            "subscribed cached at Some(4) missed Some([4])",
            "subscribed cached at Some(4) missed Some([])",
        ]
    );
}

#[test]
fn pushes_have_a_number_in_place_of_the_name() {
    let mut workers = Workers::new(2, LIMITS);
    let compact = SubscriptionFeatures {
        compaction: true,
        ..SubscriptionFeatures::default()
    };
    // Another channel has the first number.
    subscribe(&mut workers, 0, "b", COMPACT, None, compact.clone());
    let conn = subscribe(&mut workers, 0, "a", COMPACT, None, compact);
    let plain = subscribe(
        &mut workers,
        0,
        "a",
        COMPACT,
        None,
        SubscriptionFeatures::default(),
    );
    let number = workers.tables[0].channel_number("a").expect("it has subscribers");
    assert_ne!(Some(number), workers.tables[0].channel_number("b"));
    assert_eq!(workers.tables[0].channel_number("c"), None);
    let member = workers.tables[1].open(JSON, info("m"));
    workers.tables[1]
        .subscribe(member, &name("a"), COMPACT, None)
        .expect("allowed");
    workers.deliver_all();
    workers.tables[0].publish(&name("a"), COMPACT, tagged(1, "X"), None);
    workers.tables[1].unsubscribe(member, "a", Unsubscribed::SERVER);
    workers.deliver_all();
    let expected = |channel: &str| {
        [
            format!(r#"{{"push":{{{channel},"join":{{"info":{{"user":"","client":"m"}}}}}}}}"#),
            format!(r#"{{"push":{{{channel},"pub":{{"data":1,"tags":{{"ticker":"X"}}}}}}}}"#),
            format!(r#"{{"push":{{{channel},"leave":{{"info":{{"user":"","client":"m"}}}}}}}}"#),
        ]
    };
    assert_eq!(workers.pushes(0, conn), expected(&format!("\"id\":{number}")));
    assert_eq!(workers.pushes(0, plain), expected("\"channel\":\"a\""));
}
