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
