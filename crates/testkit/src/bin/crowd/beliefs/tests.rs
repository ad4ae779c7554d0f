//! The faults that clients notice: the same as in `tests/cluster/test_crowd.py`.

use serde_json::{Value, json};

use super::*;

/// One client with one subscription.
struct Believer {
    beliefs: Beliefs,
    subscription: Subscription,
}

impl Believer {
    fn new() -> Believer {
        let mut beliefs = Beliefs::default();
        let channel = beliefs.channels.number("c");
        let mut believer = Believer {
            beliefs,
            subscription: Subscription::new(channel),
        };
        believer.subscribe(&json!({"epoch": "e", "offset": 0}));
        believer
    }

    fn subscribe(&mut self, result: &Value) {
        let text = result.to_string();
        let result: Subscribed<'_> = serde_json::from_str(&text).unwrap();
        self.beliefs
            .subscribed(0, &mut self.subscription, &result, Duration::from_secs(1));
    }

    fn publish(&mut self, number: u64, offset: u64) {
        let text = publication(number, offset).to_string();
        let publication: Publication<'_> = serde_json::from_str(&text).unwrap();
        self.beliefs
            .publication(0, &mut self.subscription, &publication, Duration::from_secs(1));
    }

    fn fault(&self) -> &str {
        self.beliefs.faults.first().map_or("", String::as_str)
    }
}

fn publication(number: u64, offset: u64) -> Value {
    json!({"data": {"p": "p", "s": number, "t": 0.5}, "offset": offset})
}

#[test]
fn all_in_order_is_right() {
    let mut believer = Believer::new();
    (1..4).for_each(|number| believer.publish(number, number));
    let counts = &believer.beliefs.counts;
    assert_eq!(
        (
            counts.delivered,
            counts.fault_count,
            counts.gap_count,
            counts.repeat_count
        ),
        (3, 0, 0, 0)
    );
    assert_eq!(believer.beliefs.report(BTreeMap::new()).max_ms, 500.0);
}

#[test]
fn a_missing_offset_is_a_fault() {
    let mut believer = Believer::new();
    believer.publish(1, 1);
    believer.publish(3, 3);
    assert_eq!(
        believer.fault(),
        "client 0, c: the offset 3 after 1, number 3 of p"
    );
}

#[test]
fn a_missing_number_behind_consecutive_offsets_is_a_gap() {
    let mut believer = Believer::new();
    believer.publish(1, 1);
    believer.publish(4, 2);
    assert_eq!(believer.beliefs.gaps, [("c".to_owned(), "p".to_owned(), 2, 3)]);
}

#[test]
fn a_repetition_is_listed() {
    let mut believer = Believer::new();
    believer.publish(1, 1);
    believer.publish(1, 2);
    assert_eq!(believer.beliefs.repeats, [("c".to_owned(), "p".to_owned(), 1, 1)]);
}

#[test]
fn a_gap_after_a_notice_is_explained_and_a_repetition_is_not() {
    let mut believer = Believer::new();
    believer.publish(1, 1);
    believer.publish(2, 2);
    believer.subscribe(&json!({"epoch": "f", "offset": 0}));
    believer.publish(5, 1);
    let counts = &believer.beliefs.counts;
    assert_eq!(
        (counts.unrecovered, counts.missed_with_notice, counts.gap_count),
        (1, 2, 0)
    );
    believer.subscribe(&json!({"epoch": "g", "offset": 0}));
    believer.publish(5, 1);
    assert_eq!(believer.beliefs.counts.repeated_with_notice, 1);
}

#[test]
fn a_false_recovery_is_a_fault() {
    let cases = [
        (
            json!({"epoch": "f", "offset": 1, "recovered": true}),
            "recovered, but in the epoch f instead of e",
        ),
        (
            json!({"epoch": "e", "offset": 3, "recovered": true}),
            "recovered at 3 without the publications after 1",
        ),
        (
            json!({"epoch": "e", "offset": 3, "recovered": true, "publications": [publication(3, 3)]}),
            "the offset 3 after 1, number 3 of p",
        ),
    ];
    for (result, expected) in cases {
        let mut believer = Believer::new();
        believer.publish(1, 1);
        believer.subscribe(&result);
        assert_eq!(believer.fault(), format!("client 0, c: {expected}"));
    }
}

#[test]
fn two_publications_at_one_position_are_a_fault() {
    let mut believer = Believer::new();
    believer.publish(1, 1);
    // Another client of the channel.
    let mut other = Subscription::new(0);
    (other.epoch, other.is_live) = (believer.subscription.epoch, true);
    believer.subscription = other;
    believer.publish(2, 1);
    let expected = "two publications at the offset 1: number 1 of p and number 2 of p";
    assert_eq!(believer.fault(), format!("client 0, c: {expected}"));
}

#[test]
fn a_subscription_lacks_what_is_newer_unless_it_was_notified_at_the_end() {
    let mut believer = Believer::new();
    believer.publish(1, 1);
    assert_eq!(
        believer.beliefs.lacks(&believer.subscription, "p", 1, false),
        None
    );
    assert_eq!(
        believer.beliefs.lacks(&believer.subscription, "p", 2, false),
        Some(1)
    );
    assert_eq!(
        believer.beliefs.lacks(&believer.subscription, "q", 1, true),
        Some(0)
    );
    believer.subscribe(&json!({"epoch": "f", "offset": 0}));
    assert_eq!(believer.beliefs.lacks(&believer.subscription, "p", 2, true), None);
    assert_eq!(
        believer.beliefs.lacks(&believer.subscription, "p", 2, false),
        Some(1)
    );
}
