//! What is due and what is said of it, what trades say, where they go.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::Value;

use super::*;
use crate::args::feed::Distribution;
use crate::market;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_is_due_follows_the_clock_and_not_the_receiver() {
    let mut pace = Pace::new(100.0, Some(10 * SECOND));
    assert!(!pace.is_due(Duration::ZERO) && pace.is_due(SECOND / 100));
    pace.leave_out(SECOND, true);
    assert_eq!(pace.number(), 0, "a second is waited for");
    pace.leave_out(3 * SECOND, true);
    assert_eq!(pace.number(), 200);
    pace.made = 100;
    pace.leave_out(3 * SECOND, true);
    assert!(!pace.is_due(3 * SECOND));
    // What was made is not left out later.
    pace.leave_out(4 * SECOND, false);
    assert_eq!(pace.number(), 300);
    pace.leave_out(6 * SECOND, false);
    assert_eq!(pace.number(), 500);
    pace.leave_out(60 * SECOND, true);
    assert_eq!(pace.number(), 1000, "no more than the duration has");
    pace.lose(7);
    assert_eq!(
        pace.summary(10 * SECOND),
        "100 trades in 10.0 s; 700 of 1000 that were due (70.0 %) were left out: the receiver, or this machine, is too slow for \
         the rate; the connection was lost 1 time; 200 of 1000 that were due (20.0 %) fell into the time without one; of 7 it is not \
         known whether they arrived"
    );
}

#[test]
fn it_rests_until_the_next_is_due_but_looks_at_times() {
    let mut pace = Pace::new(40.0, None);
    assert_eq!(pace.rest(Duration::ZERO), SECOND / 40);
    assert_eq!(pace.rest(SECOND / 50), SECOND / 200);
    assert_eq!(pace.rest(SECOND), FEED_STEP, "one is due");
    pace.made = 1000;
    assert_eq!(pace.rest(SECOND), FEED_LOOK, "none is for long");
    let seldom = Pace::new(0.001, None);
    assert_eq!(seldom.rest(SECOND), FEED_LOOK);
    assert_eq!(Pace::new(1e9, None).rest(SECOND), FEED_STEP);
}

#[test]
fn it_ends_when_all_has_arrived_or_nothing_moves() {
    let mut pace = Pace::new(10.0, Some(SECOND));
    assert!(!pace.is_over(SECOND / 2, false, 0));
    assert!(!pace.is_over(SECOND, false, 0), "ten are due");
    pace.made = 10;
    assert!(!pace.is_over(SECOND, false, 7), "some are on their way");
    assert!(pace.is_over(SECOND, false, 0));
    assert_eq!(pace.summary(SECOND), "10 trades in 1.0 s");
    assert_eq!(pace.failure(), None);
    let mut stuck = Pace::new(10.0, Some(SECOND));
    stuck.made = 4;
    assert!(!stuck.is_over(SECOND, false, 2) && !stuck.is_over(3 * SECOND / 2, false, 2));
    assert!(stuck.is_over(2 * SECOND, false, 2));
    stuck.give_up(2);
    assert_eq!(
        stuck.summary(2 * SECOND),
        "4 trades in 2.0 s; 6 of 10 that were due (60.0 %) were left out: the receiver, or this machine, is too slow for the rate; \
         of 2 it is not known whether they arrived"
    );
    assert_eq!(stuck.failure(), None, "two have arrived");
    let mut interrupted = Pace::new(10.0, None);
    assert!(!interrupted.is_over(60 * SECOND, false, 0));
    assert!(interrupted.is_over(60 * SECOND, true, 0), "nothing more is made");
}

#[test]
fn it_has_failed_if_nothing_arrived() {
    let mut pace = Pace::new(10.0, None);
    assert_eq!(pace.failure(), None, "nothing was to");
    pace.made = 3;
    assert_eq!(
        pace.refuse(1, "error 107 a".into()).as_deref(),
        Some("error 107 a")
    );
    assert_eq!(pace.refuse(1, "error 107 a".into()), None, "it was said");
    assert_eq!(pace.failure(), None, "one was not");
    assert_eq!(pace.refuse(1, "503".into()).as_deref(), Some("503"));
    assert_eq!(
        pace.failure().as_deref(),
        Some("all were refused, the last one with 503")
    );
    assert_eq!(
        pace.summary(SECOND),
        "3 trades in 1.0 s; 3 were refused, the last one with 503"
    );
    let mut lost = Pace::new(10.0, None);
    lost.made = 3;
    lost.lose(2);
    assert_eq!(lost.failure(), None);
    lost.give_up(1);
    assert_eq!(
        lost.failure().as_deref(),
        Some("nothing is known to have arrived")
    );
    let mut missed = Pace::new(10.0, None);
    missed.leave_out(60 * SECOND, false);
    assert!(missed.failure().is_some());
}

#[test]
fn trades_are_json_of_the_size_and_the_same_for_a_seed() {
    for (symbols, size) in [(1, None), (20, Some(64)), (50, Some(1000)), (50, Some(111))] {
        let make = || Trades::new(7, symbols, Distribution::Zipf, size);
        let (mut one, mut two) = (make(), make());
        for number in 0..200 {
            let (symbol, json) = one.next(number);
            assert_eq!(two.next(number), (symbol, json));
            let said: Value = serde_json::from_str(json).expect("JSON");
            assert_eq!(said["symbol"], symbol);
            assert_eq!(said["n"], number);
            assert!(said["price"].as_f64().expect("a number") > 0.0);
            let least = size.unwrap_or(0) as usize;
            assert!(json.len() >= least && json.len() <= least.max(110) + 10, "{json}");
        }
    }
}

#[test]
fn shares_are_traded_as_they_are_distributed() {
    let count = |distribution| {
        let mut trades = Trades::new(1, 100, distribution, None);
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..20_000 {
            *counts.entry(trades.next(number).0.to_owned()).or_default() += 1;
        }
        counts
    };
    let even = count(Distribution::Uniform);
    assert_eq!(even.len(), 100);
    assert!(even.values().all(|count| (120..300).contains(count)), "{even:?}");
    let few = count(Distribution::Zipf);
    // The first has 1 / (1 + 1/2 + … + 1/100) = 19.3 %, the second half of that.
    assert!((3600..4200).contains(&few["ARDN"]), "{few:?}");
    assert!((1700..2200).contains(&few["BLKW"]), "{few:?}");
}

#[test]
fn names_of_many_shares_are_each_another() {
    let mut random = Rng::with_seed(3);
    let listings = market::listings(2000, &mut random);
    let mut names: Vec<&str> = listings.iter().map(|listing| &*listing.symbol).collect();
    assert_eq!((names[0], names[20], names[46]), ("ARDN", "XAAAA", "XAABA"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2000);
}
