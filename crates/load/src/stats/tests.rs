//! Against known values, the exact distribution, and a twin that follows the definition.

use fastrand::Rng;

use super::{CONFIDENCE, Estimate, RESAMPLES, Spread, bootstrap, deviation, median};

#[test]
fn the_median_is_the_middle_one_or_between_the_two() {
    for (numbers, expect) in [
        (&[][..], None),
        (&[3.0], Some(3.0)),
        (&[4.0, 1.0], Some(2.5)),
        (&[9.0, 1.0, 5.0], Some(5.0)),
        (&[9.0, 1.0, 5.0, 6.0], Some(5.5)),
        (&[-1.0, 2.0, f64::NAN], None),
        (&[1.0, f64::INFINITY], None),
        (&[f64::MAX, f64::MAX], Some(f64::MAX)),
    ] {
        assert_eq!(median(numbers), expect, "{numbers:?}");
    }
}

#[test]
fn a_spread_is_relative_to_the_median() {
    let spread = Spread::of(&[90.0, 120.0, 100.0]).unwrap();
    assert_eq!(
        spread,
        Spread {
            median: 100.0,
            min: 90.0,
            max: 120.0
        }
    );
    assert!((spread.relative() - 0.3).abs() < 1e-12);
    assert_eq!(
        Spread::of(&[0.0, 0.0, 1.0]).unwrap().relative(),
        0.0,
        "not infinite"
    );
    assert_eq!(Spread::of(&[]), None);
}

#[test]
fn a_deviation_has_no_direction() {
    assert!((deviation(110.0, 100.0) - 0.1).abs() < 1e-12);
    assert!((deviation(90.0, 100.0) - 0.1).abs() < 1e-12);
    assert_eq!(deviation(5.0, 0.0), 0.0);
}

#[test]
fn equal_numbers_leave_no_doubt() {
    let estimate = bootstrap(&[1.25; 7], 1).unwrap();
    assert_eq!(
        estimate,
        Estimate {
            median: 1.25,
            low: 1.25,
            high: 1.25
        }
    );
    assert!(estimate.excludes(1.0));
    assert!(!estimate.excludes(1.25));
    assert_eq!(bootstrap(&[], 1), None);
    assert_eq!(bootstrap(&[1.0, f64::NAN], 1), None);
}

#[test]
fn a_seed_reproduces_the_interval() {
    let numbers = [1.0, 1.3, 0.9, 1.1, 1.05, 1.2];
    assert_eq!(bootstrap(&numbers, 42), bootstrap(&numbers, 42));
}

/// The median of `n` draws of `m` sorted numbers is at most the k-th exactly if more than half of the draws are: the
/// exact distribution, by the binomial, for odd `n`.
fn exact(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len();
    let at_most = |rank: usize| {
        let share = rank as f64 / count as f64;
        (count / 2 + 1..=count)
            .map(|hits| binomial(count, hits, share))
            .sum::<f64>()
    };
    let quantile = |probability: f64| {
        let rank = (1..=count).find(|rank| at_most(*rank) >= probability).unwrap();
        sorted[rank - 1]
    };
    (
        quantile((1.0 - CONFIDENCE) / 2.0),
        quantile((1.0 + CONFIDENCE) / 2.0),
    )
}

fn binomial(count: usize, hits: usize, share: f64) -> f64 {
    let choices = (1..=hits)
        .map(|i| (count - hits + i) as f64 / i as f64)
        .product::<f64>();
    choices * share.powi(hits as i32) * (1.0 - share).powi((count - hits) as i32)
}

#[test]
fn the_interval_is_that_of_the_exact_bootstrap_distribution() {
    // Sizes at which no rank's probability is so close to 2.5 % that 10,000 draws could miss it.
    for count in [5, 7, 9, 11, 21] {
        let numbers: Vec<f64> = (0..count).map(f64::from).collect();
        let estimate = bootstrap(&numbers, 3).unwrap();
        assert_eq!((estimate.low, estimate.high), exact(&numbers), "of {count}");
    }
}

/// As the definition says it, slowly.
fn naive(numbers: &[f64], seed: u64) -> Estimate {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let mut rng = Rng::with_seed(seed);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw: Vec<f64> = (0..sorted.len())
                .map(|_| sorted[rng.usize(..sorted.len())])
                .collect();
            median(&draw).unwrap()
        })
        .collect();
    medians.sort_by(|a, b| a.partial_cmp(b).unwrap());
    Estimate {
        median: median(numbers).unwrap(),
        low: medians[250],
        high: medians[9_749],
    }
}

#[test]
fn it_equals_its_naive_twin() {
    let seed = 11;
    let mut rng = Rng::with_seed(seed);
    for count in 1..20 {
        let numbers: Vec<f64> = (0..count).map(|_| rng.f64() - 0.3).collect();
        assert_eq!(
            bootstrap(&numbers, seed),
            Some(naive(&numbers, seed)),
            "seed {seed}, {numbers:?}"
        );
    }
}

/// A number of the normal distribution, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

#[test]
fn intervals_hold_the_true_median_about_as_often_as_they_say() {
    let seed = 5;
    let mut rng = Rng::with_seed(seed);
    let trials = 150;
    for count in [5, 9, 20] {
        let held = (0..trials)
            .filter(|_| {
                let numbers: Vec<f64> = (0..count).map(|_| 1.0 + 0.05 * normal(&mut rng)).collect();
                !bootstrap(&numbers, seed).unwrap().excludes(1.0)
            })
            .count();
        let share = held as f64 / f64::from(trials);
        assert!(
            (0.88..=1.0).contains(&share),
            "seed {seed}: {share} of {count} numbers each"
        );
    }
}
