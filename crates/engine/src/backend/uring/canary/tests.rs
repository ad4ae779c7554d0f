//! When a canary flies, and what its way tells.

use super::*;

fn at(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

fn busy_wait(canary: &mut Canary, millis: u64) -> bool {
    canary.batch = BUSY;
    canary.should_fly(at(millis))
}

#[test]
fn an_idle_worker_sends_none() {
    let mut canary = Canary {
        batch: BUSY - 1,
        ..Canary::default()
    };
    assert!(!canary.should_fly(at(10)));
    assert_eq!(canary.lag(at(10)), Duration::ZERO);
}

#[test]
fn one_flies_at_a_time_and_not_too_often() {
    let mut canary = Canary::default();
    assert!(busy_wait(&mut canary, 0));
    assert!(!busy_wait(&mut canary, 20), "the first one is under way");
    canary.came_back(at(21));
    assert!(busy_wait(&mut canary, 22));
    canary.came_back(at(23));
    assert!(!busy_wait(&mut canary, 24), "sooner than the pause");
    assert!(busy_wait(&mut canary, 27));
}

#[test]
fn its_way_is_the_lag_until_the_worker_is_idle() {
    let mut canary = Canary::default();
    assert!(busy_wait(&mut canary, 0));
    assert_eq!(canary.lag(at(100)), Duration::ZERO, "nothing is known yet");
    canary.came_back(at(300));
    assert_eq!(canary.lag(at(300)), Duration::from_millis(300));
    assert!(busy_wait(&mut canary, 301));
    assert_eq!(canary.lag(at(310)), Duration::from_millis(300));
    assert_eq!(
        canary.lag(at(901)),
        Duration::from_millis(600),
        "it takes longer still"
    );
    canary.came_back(at(910));
    canary.batch = 0;
    assert!(!canary.should_fly(at(911)));
    assert_eq!(canary.lag(at(911)), Duration::ZERO);
}

#[test]
fn a_signal_of_somebody_else_is_no_canary() {
    let mut canary = Canary::default();
    canary.came_back(at(500));
    assert_eq!(canary.lag(at(500)), Duration::ZERO);
}
