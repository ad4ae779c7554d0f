//! The schedule and its summary, the trades and their distribution.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::Value;

use super::*;
use crate::args::feed::Distribution;
use crate::market;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_schedule_is_independent_of_the_receiver() {
    let mut schedule = Schedule::new(100.0, Some(10 * SECOND));
    assert!(!schedule.is_due(Duration::ZERO) && schedule.is_due(SECOND / 100));
    schedule.skip_overdue(SECOND, true);
    assert_eq!(schedule.next_number(), 0, "one second of lag is allowed");
    schedule.skip_overdue(3 * SECOND, true);
    assert_eq!(schedule.next_number(), 200);
    schedule.made = 100;
    schedule.skip_overdue(3 * SECOND, true);
    assert!(!schedule.is_due(3 * SECOND));
    // Made trades are not skipped later.
    schedule.skip_overdue(4 * SECOND, false);
    assert_eq!(schedule.next_number(), 300);
    schedule.skip_overdue(6 * SECOND, false);
    assert_eq!(schedule.next_number(), 500);
    schedule.skip_overdue(60 * SECOND, true);
    assert_eq!(schedule.next_number(), 1000, "no more than the duration has");
    schedule.record_loss(7);
    assert_eq!(
        schedule.summary(10 * SECOND),
        "100 trades in 10.0 s; 700 of 1000 due trades (70.0 %) skipped: the receiver, or this host, is too slow for the rate; \
         connection lost 1 time; 200 of 1000 due trades (20.0 %) skipped while disconnected; 7 without confirmation"
    );
}

#[test]
fn polls_wait_for_the_next_trade_within_bounds() {
    let mut schedule = Schedule::new(40.0, None);
    assert_eq!(schedule.time_to_next(Duration::ZERO), SECOND / 40);
    assert_eq!(schedule.time_to_next(SECOND / 50), SECOND / 200);
    assert_eq!(schedule.time_to_next(SECOND), FEED_POLL, "one is due");
    schedule.made = 1000;
    assert_eq!(schedule.time_to_next(SECOND), FEED_IDLE_POLL, "none is for long");
    let seldom = Schedule::new(0.001, None);
    assert_eq!(seldom.time_to_next(SECOND), FEED_IDLE_POLL);
    assert_eq!(Schedule::new(1e9, None).time_to_next(SECOND), FEED_POLL);
}

#[test]
fn a_feed_finishes_when_trades_are_confirmed_or_overdue() {
    let mut schedule = Schedule::new(10.0, Some(SECOND));
    assert!(!schedule.is_finished(SECOND / 2, false, 0));
    assert!(!schedule.is_finished(SECOND, false, 0), "ten are due");
    schedule.made = 10;
    assert!(!schedule.is_finished(SECOND, false, 7), "some are on their way");
    assert!(schedule.is_finished(SECOND, false, 0));
    assert_eq!(schedule.summary(SECOND), "10 trades in 1.0 s");
    assert_eq!(schedule.failure_reason(), None);
    let mut stuck = Schedule::new(10.0, Some(SECOND));
    stuck.made = 4;
    assert!(!stuck.is_finished(SECOND, false, 2) && !stuck.is_finished(3 * SECOND / 2, false, 2));
    assert!(stuck.is_finished(2 * SECOND, false, 2));
    stuck.record_unconfirmed(2);
    assert_eq!(
        stuck.summary(2 * SECOND),
        "4 trades in 2.0 s; 6 of 10 due trades (60.0 %) skipped: the receiver, or this host, is too slow for the rate; \
         2 without confirmation"
    );
    assert_eq!(stuck.failure_reason(), None, "two have arrived");
    let mut interrupted = Schedule::new(10.0, None);
    assert!(!interrupted.is_finished(60 * SECOND, false, 0));
    assert!(
        interrupted.is_finished(60 * SECOND, true, 0),
        "nothing more is made"
    );
}

#[test]
fn a_feed_fails_without_any_delivery() {
    let mut schedule = Schedule::new(10.0, None);
    assert_eq!(schedule.failure_reason(), None, "none was due");
    schedule.made = 3;
    assert_eq!(
        schedule.record_refusal(1, "error 107 a".into()).as_deref(),
        Some("error 107 a")
    );
    assert_eq!(
        schedule.record_refusal(1, "error 107 a".into()),
        None,
        "it was reported"
    );
    assert_eq!(schedule.failure_reason(), None, "one was not");
    assert_eq!(schedule.record_refusal(1, "503".into()).as_deref(), Some("503"));
    assert_eq!(
        schedule.failure_reason().as_deref(),
        Some("all trades were refused, the last one with 503")
    );
    assert_eq!(
        schedule.summary(SECOND),
        "3 trades in 1.0 s; 3 refused, the last one with 503"
    );
    let mut lost = Schedule::new(10.0, None);
    lost.made = 3;
    lost.record_loss(2);
    assert_eq!(lost.failure_reason(), None);
    lost.record_unconfirmed(1);
    assert_eq!(
        lost.failure_reason().as_deref(),
        Some("no delivery was confirmed")
    );
    let mut missed = Schedule::new(10.0, None);
    missed.skip_overdue(60 * SECOND, false);
    assert!(missed.failure_reason().is_some());
}

#[test]
fn trades_are_json_of_the_minimum_size_and_reproducible_by_seed() {
    for (symbols, size) in [(1, None), (20, Some(64)), (50, Some(1000)), (50, Some(111))] {
        let make = || Trades::new(7, symbols, Distribution::Zipf, size);
        let (mut one, mut two) = (make(), make());
        for number in 0..200 {
            let (symbol, json) = one.next_trade(number);
            assert_eq!(two.next_trade(number), (symbol, json));
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
fn trades_follow_their_distribution() {
    let count = |distribution| {
        let mut trades = Trades::new(1, 100, distribution, None);
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..20_000 {
            *counts.entry(trades.next_trade(number).0.to_owned()).or_default() += 1;
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
fn names_of_many_shares_are_unique() {
    let mut random = Rng::with_seed(3);
    let listings = market::listings(2000, &mut random);
    let mut names: Vec<&str> = listings.iter().map(|listing| &*listing.symbol).collect();
    assert_eq!((names[0], names[20], names[46]), ("ARDN", "XAAAA", "XAABA"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2000);
}
