//! The moments of arrivals, against what a rate means.

use ringmain_engine::backend::Time;

use super::Schedule;
use crate::plan::Pace;

const START: Time = Time(5_000_000_000);

fn moments(pace: Pace, worker: usize, workers: usize, count: usize) -> Vec<u64> {
    let mut schedule = Schedule::new(pace, worker, workers, 7, START).expect("an open loop");
    let moment = |schedule: &mut Schedule| {
        let next = schedule.next();
        schedule.advance();
        next.0 - START.0
    };
    (0..count).map(|_| moment(&mut schedule)).collect()
}

#[test]
fn a_closed_loop_has_no_schedule() {
    assert!(Schedule::new(Pace::Closed, 0, 1, 7, START).is_none());
}

#[test]
fn constant_arrivals_are_evenly_spaced_from_the_start() {
    assert_eq!(
        moments(Pace::Constant(1_000_000.0), 0, 1, 4),
        [0, 1_000, 2_000, 3_000]
    );
    assert_eq!(
        moments(Pace::Constant(3.0), 0, 1, 4),
        [0, 333_333_333, 666_666_666, 1_000_000_000]
    );
}

/// Half a request a second, alone and as two workers share it.
#[test]
fn less_than_one_arrival_a_second_is_a_rate() {
    let second = 1_000_000_000;
    assert_eq!(moments(Pace::Constant(0.5), 0, 1, 3), [0, 2 * second, 4 * second]);
    let mut both = moments(Pace::Constant(0.5), 0, 2, 2);
    both.extend(moments(Pace::Constant(0.5), 1, 2, 2));
    both.sort_unstable();
    assert_eq!(both, [0, 2 * second, 4 * second, 6 * second]);
}

#[test]
fn workers_share_one_even_schedule() {
    let workers = 3;
    let mut all: Vec<u64> = (0..workers)
        .flat_map(|worker| moments(Pace::Constant(1_000_000.0), worker, workers, 100))
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..300).map(|number| number * 1_000).collect::<Vec<_>>());
}

#[test]
fn a_long_constant_schedule_does_not_drift() {
    let mut schedule = Schedule::new(Pace::Constant(70_000.0), 0, 1, 7, START).expect("an open loop");
    for _ in 0..70_000 * 60 {
        schedule.advance();
    }
    assert_eq!(schedule.next().0 - START.0, 60_000_000_000);
}

/// Gaps of a Poisson process have a mean and a standard deviation of one over the rate, and a share of e⁻¹ is longer
/// than that.
#[test]
fn poisson_arrivals_are_exponentially_spaced() {
    let all = moments(Pace::Poisson(10_000.0), 1, 4, 100_001);
    let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let expected = 4.0 * 1e9 / 10_000.0;
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    let longer = gaps.iter().filter(|gap| **gap > expected).count() as f64 / gaps.len() as f64;
    assert!((mean / expected - 1.0).abs() < 0.02, "mean {mean}");
    assert!(
        (variance.sqrt() / expected - 1.0).abs() < 0.02,
        "deviation of {variance}"
    );
    assert!((longer - (-1.0_f64).exp()).abs() < 0.01, "longer: {longer}");
}

#[test]
fn a_seed_gives_the_same_poisson_arrivals() {
    let pace = Pace::Poisson(1_000.0);
    assert_eq!(moments(pace, 0, 1, 50), moments(pace, 0, 1, 50));
}
