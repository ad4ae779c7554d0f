//! Budgets run out and come back with time.

use super::*;

const RATE: Rate = Rate {
    most: 10,
    per_second: 2,
};

fn spent(budget: &mut Budget, now: Duration) -> u32 {
    let mut count = 0;
    while budget.spend(RATE, now) {
        count += 1;
    }
    count
}

#[test]
fn it_fills_with_time_and_never_beyond_the_most() {
    let start = Duration::from_secs(1000);
    let mut budget = Budget::new(RATE, start);
    assert_eq!(spent(&mut budget, start), 10);
    assert_eq!(spent(&mut budget, start + Duration::from_millis(499)), 0);
    assert_eq!(spent(&mut budget, start + Duration::from_millis(500)), 1);
    assert_eq!(spent(&mut budget, start + Duration::from_millis(2500)), 4);
    assert_eq!(spent(&mut budget, start + Duration::from_secs(500)), 10);
}

#[test]
fn what_is_earned_is_bounded() {
    let mut budget = Budget::new(RATE, Duration::ZERO);
    budget.earn(RATE, 100);
    let now = Duration::ZERO;
    assert_eq!(spent(&mut budget, now), 10);
    budget.earn(RATE, 3);
    assert_eq!(spent(&mut budget, now), 3);
}

#[test]
fn half_of_the_streams_reset_early_is_too_many() {
    let at = |millis| Duration::from_secs(100) + Duration::from_millis(millis);
    // As many as the limit may be all there are.
    let mut early = EarlyResets::default();
    for _ in 0..EARLY_RESETS {
        early.open();
        assert!(early.reset(at(0)));
    }
    early.open();
    assert!(!early.reset(at(0)));
    // One of three at any number.
    let mut early = EarlyResets::default();
    assert!(early.reset(at(0)));
    for _ in 0..10_000 {
        (0..3).for_each(|_| early.open());
        assert!(early.reset(at(1)));
    }
    // A window later they are forgotten.
    let mut early = EarlyResets::default();
    for second in 0..100 {
        for _ in 0..EARLY_RESETS / 2 {
            early.open();
            assert!(early.reset(at(second * 30_001)));
        }
    }
}
