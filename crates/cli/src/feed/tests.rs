//! What is due, what trades say, how answers are read.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_is_due_follows_the_clock_and_not_the_receiver() {
    let mut pace = Pace::new(100.0, Some(10 * SECOND));
    assert!(!pace.is_due(Duration::ZERO) && pace.is_due(SECOND / 100));
    pace.leave_out(SECOND);
    assert_eq!(pace.left_out, 0, "a second is waited for");
    pace.leave_out(3 * SECOND);
    assert_eq!((pace.left_out, pace.number()), (200, 200));
    pace.made = 100;
    pace.leave_out(3 * SECOND);
    assert!(!pace.is_due(3 * SECOND));
    // What was made is not left out later.
    pace.leave_out(4 * SECOND);
    assert_eq!(pace.left_out, 200);
    pace.leave_out(60 * SECOND);
    assert_eq!(pace.number(), 1000, "no more than the duration has");
}

#[test]
fn it_ends_when_all_is_sent_or_nothing_moves() {
    let mut pace = Pace::new(10.0, Some(SECOND));
    assert!(!pace.is_over(SECOND / 2, false, 0));
    assert!(!pace.is_over(SECOND, false, 0), "ten are due");
    pace.made = 10;
    assert!(!pace.is_over(SECOND, false, 7), "some wait");
    assert!(pace.is_over(SECOND, false, 0));
    let mut stuck = Pace::new(10.0, Some(SECOND));
    stuck.made = 4;
    assert!(!stuck.is_over(SECOND, false, 7) && !stuck.is_over(3 * SECOND / 2, false, 7));
    assert!(stuck.is_over(2 * SECOND, false, 7));
    assert_eq!(stuck.left_out, 6);
    let text = stuck.summary(2 * SECOND, Some((3, "429 too many".to_owned())));
    assert_eq!(
        text,
        "4 trades in 2.0 s; 6 of 10 that were due (60.0 %) were left out: the receiver, or this machine, is too slow for the rate; \
         3 were refused, the last one with 429 too many"
    );
    let mut interrupted = Pace::new(10.0, None);
    assert!(!interrupted.is_over(60 * SECOND, false, 0));
    assert!(interrupted.is_over(60 * SECOND, true, 0), "nothing more is made");
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
