//! The subscriptions of a connection, with few and with many.

use super::{SubState, Subscription, Subscriptions};

/// Adds `count` subscriptions and removes them in another order, and checks the contents after each step.
fn check(count: u32, order: impl Fn(u32) -> u32) {
    let mut own = Subscriptions::default();
    let topics = |own: &Subscriptions| {
        let mut topics: Vec<u32> = own.all().iter().map(|one| one.topic).collect();
        topics.sort_unstable();
        topics
    };
    for topic in 0..count {
        assert_eq!(own.state(topic), None);
        let state = SubState::Pending;
        own.add(Subscription { topic, state });
        *own.state(topic).expect("an added subscription") = SubState::Subscribed { at: 7 * topic };
        assert_eq!(topics(&own), Vec::from_iter(0..=topic));
    }
    let mut remaining: Vec<u32> = (0..count).collect();
    for topic in (0..count).map(order) {
        remaining.retain(|other| *other != topic);
        assert_eq!(own.remove(topic), Some(SubState::Subscribed { at: 7 * topic }));
        assert_eq!(own.remove(topic), None);
        assert_eq!(topics(&own), remaining);
        let is_small = matches!(own, Subscriptions::None | Subscriptions::One(_));
        assert_eq!(is_small, remaining.len() < 2, "{own:?}");
    }
}

#[test]
fn subscriptions_are_found_until_removed() {
    for count in 0..9 {
        check(count, |topic| topic);
        check(count, |topic| count - 1 - topic);
        check(count, |topic| topic ^ 1 ^ u32::from(topic | 1 == count));
    }
}

#[test]
fn a_single_subscription_is_stored_inline() {
    assert!(size_of::<Subscriptions>() <= 16);
}
