//! What a connection listens to, with few and with more of it.

use super::{Stage, Subscription, Subscriptions};

/// Takes so many, and lets go of them in another order; all the while it knows what it has.
fn check(count: u32, order: impl Fn(u32) -> u32) {
    let mut own = Subscriptions::default();
    let topics = |own: &Subscriptions| {
        let mut topics: Vec<u32> = own.all().iter().map(|one| one.topic).collect();
        topics.sort_unstable();
        topics
    };
    for topic in 0..count {
        assert_eq!(own.stage(topic), None);
        let stage = Stage::Waiting;
        own.add(Subscription { topic, stage });
        *own.stage(topic).expect("it was added") = Stage::Listens { at: 7 * topic };
        assert_eq!(topics(&own), Vec::from_iter(0..=topic));
    }
    let mut left: Vec<u32> = (0..count).collect();
    for topic in (0..count).map(order) {
        left.retain(|other| *other != topic);
        assert_eq!(own.remove(topic), Some(Stage::Listens { at: 7 * topic }));
        assert_eq!(own.remove(topic), None);
        assert_eq!(topics(&own), left);
        let is_small = matches!(own, Subscriptions::None | Subscriptions::One(_));
        assert_eq!(is_small, left.len() < 2, "{own:?}");
    }
}

#[test]
fn what_is_added_is_there_until_it_is_removed() {
    for count in 0..9 {
        check(count, |topic| topic);
        check(count, |topic| count - 1 - topic);
        check(count, |topic| topic ^ 1 ^ u32::from(topic | 1 == count));
    }
}

#[test]
fn one_takes_no_memory_of_its_own() {
    assert!(size_of::<Subscriptions>() <= 16);
}
