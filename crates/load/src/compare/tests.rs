//! Orders and verdicts on made-up runs, and how often chance alone is called a difference.

use std::time::Duration;

use fastrand::Rng;

use super::{Comparison, Metric, PAIRS, Ratio, Verdict, agree, compare, order};
use crate::fixtures;
use crate::report::{Round, Run};

const SEED: u64 = 9;

#[test]
fn the_order_alternates() {
    assert_eq!(order(2, 4).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1, 1, 0]);
    assert_eq!(order(3, 2).collect::<Vec<_>>(), [0, 1, 2, 2, 1, 0]);
    assert_eq!(order(2, 0).count() + order(0, 2).count(), 0);
}

#[test]
fn a_steady_drift_favours_nobody() {
    // The later, the slower: of an even number of rounds each target has the same sum.
    for targets in 1..5 {
        let mut sums = vec![0; targets];
        order(targets, 6)
            .enumerate()
            .for_each(|(moment, target)| sums[target] += moment);
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    }
}

/// A run whose rounds have so many answers.
fn run(name: &str, answers: &[u64]) -> Run {
    Run {
        name: name.to_owned(),
        rounds: answers.iter().map(|n| fixtures::round(*n)).collect(),
        ..fixtures::run()
    }
}

fn only(runs: &[Run]) -> Comparison {
    let [comparison] = compare(runs, SEED).try_into().unwrap();
    comparison
}

fn of(comparison: &Comparison, metric: Metric) -> &Ratio {
    comparison
        .ratios
        .iter()
        .find(|ratio| ratio.metric == metric)
        .unwrap()
}

const FIVE: [u64; 5] = [1_000, 1_010, 990, 1_005, 995];

#[test]
fn a_clear_difference_is_called_one() {
    let other = FIVE.map(|answers| answers * 6 / 5);
    let comparison = only(&[run("first", &FIVE), run("other", &other)]);
    assert_eq!((&*comparison.first, &*comparison.other), ("first", "other"));
    for (metric, first, ratio) in [
        (Metric::Throughput, 100.0, 1.2),
        (Metric::ServerCpu, 10_000.0, 1.0 / 1.2),
        (Metric::ServiceP50, 100_000.0, 1.0 / 1.2),
        (Metric::ServiceP99, 120_000.0, 1.0 / 1.2),
    ] {
        let found = of(&comparison, metric);
        assert!((found.ratio.median - ratio).abs() < 0.005, "{found:?}");
        assert!((found.first / first - 1.0).abs() < 0.01, "{found:?}");
        assert!((found.other / found.first - ratio).abs() < 0.005, "{found:?}");
        assert_eq!(
            (found.pairs, found.verdict),
            (5, Verdict::Different { better: true }),
            "{found:?}"
        );
    }
    assert_eq!(comparison.ratios.len(), 4, "a closed loop has no response times");

    // The other way round it is worse.
    let back = only(&[run("other", &other), run("first", &FIVE)]);
    assert!(
        back.ratios
            .iter()
            .all(|ratio| ratio.verdict == Verdict::Different { better: false }),
        "{back:?}"
    );
}

#[test]
fn pairs_see_what_medians_do_not() {
    // The machine slows down by half while they run; each pair still differs by 2 %.
    let first = [1_000, 900, 800, 700, 600, 500];
    let other = first.map(|answers| answers * 102 / 100);
    let comparison = only(&[run("first", &first), run("other", &other)]);
    assert_eq!(
        of(&comparison, Metric::Throughput).verdict,
        Verdict::Different { better: true }
    );
}

#[test]
fn equal_targets_do_not_differ() {
    let comparison = only(&[run("first", &FIVE), run("other", &FIVE)]);
    for ratio in &comparison.ratios {
        assert_eq!(ratio.verdict, Verdict::Noise { more_rounds: None }, "{ratio:?}");
        assert_eq!((ratio.ratio.low, ratio.ratio.high), (1.0, 1.0));
    }
}

#[test]
fn few_rounds_show_nothing_however_clear() {
    let other = FIVE.map(|answers| answers * 2);
    for pairs in 1..PAIRS {
        let comparison = only(&[run("first", &FIVE[..pairs]), run("other", &other[..pairs])]);
        let more = (PAIRS - pairs) as u32;
        assert_eq!(
            of(&comparison, Metric::Throughput).verdict,
            Verdict::Noise {
                more_rounds: Some(more)
            }
        );
    }
    assert_eq!(
        only(&[run("first", &[]), run("other", &FIVE)]).ratios,
        [],
        "no pair, no ratio"
    );
}

#[test]
fn a_difference_within_noise_asks_for_more_rounds() {
    let other = [1_030, 990, 1_025, 985, 1_040];
    let comparison = only(&[run("first", &[1_000; 5]), run("other", &other)]);
    let Verdict::Noise {
        more_rounds: Some(more),
    } = of(&comparison, Metric::Throughput).verdict
    else {
        panic!("{comparison:?}");
    };
    // 2.5 % up, the interval reaches 4 % down from there: 5 × (4 / 2.5)² pairs are 13.
    assert!((7..=9).contains(&more), "{more}");

    // A tenth of a percent in noise of several: nothing that could be run shows it.
    let other = [1_001, 900, 1_100, 950, 1_050];
    let comparison = only(&[run("first", &[1_000; 5]), run("other", &other)]);
    assert_eq!(
        of(&comparison, Metric::Throughput).verdict,
        Verdict::Noise { more_rounds: None }
    );
}

#[test]
fn all_are_compared_with_the_first() {
    let runs = [
        run("a", &FIVE),
        run("b", &FIVE),
        run("c", &FIVE.map(|answers| answers / 2)),
    ];
    let comparisons = compare(&runs, SEED);
    let names: Vec<_> = comparisons.iter().map(|c| (&*c.first, &*c.other)).collect();
    assert_eq!(names, [("a", "b"), ("a", "c")]);
    assert_eq!(
        of(&comparisons[1], Metric::Throughput).verdict,
        Verdict::Different { better: false }
    );
    assert_eq!(compare(&runs[..1], SEED), []);
    assert_eq!(compare(&[], SEED), []);
}

#[test]
fn what_a_round_lacks_is_left_out() {
    let without = |change: fn(&mut Round)| {
        let mut runs = [run("first", &FIVE), run("other", &FIVE)];
        runs[1].rounds.iter_mut().for_each(change);
        only(&runs)
            .ratios
            .iter()
            .map(|ratio| ratio.metric)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        without(|round| round.server = None),
        [Metric::Throughput, Metric::ServiceP50, Metric::ServiceP99]
    );
    assert_eq!(without(|round| round.figures.clear()), []);

    // One round without an answer: the four other pairs are too few.
    let mut runs = [
        run("first", &FIVE),
        run("other", &FIVE.map(|answers| answers * 2)),
    ];
    runs[0].rounds[2].figures.clear();
    let comparison = only(&runs);
    assert_eq!(of(&comparison, Metric::Throughput).pairs, 4);
    assert!(matches!(
        of(&comparison, Metric::Throughput).verdict,
        Verdict::Noise { .. }
    ));
}

#[test]
fn response_times_are_compared_in_an_open_loop() {
    let mut runs = [fixtures::open(), fixtures::open()];
    for run in &mut runs {
        run.rounds = vec![run.rounds[0].clone(); 5];
    }
    for round in &mut runs[1].rounds {
        round.figures.response = fixtures::latency(1_000, Duration::from_millis(11));
    }
    let comparison = only(&runs);
    assert_eq!(
        of(&comparison, Metric::ResponseP99).verdict,
        Verdict::Different { better: false }
    );
    assert!((of(&comparison, Metric::ResponseP50).ratio.median - 2.0).abs() < 0.01);
    assert_eq!(
        of(&comparison, Metric::ServiceP99).verdict,
        Verdict::Noise { more_rounds: None }
    );
}

#[test]
fn most_pairs_must_agree() {
    let ratios = |above: usize, below: usize| [vec![1.5; above], vec![0.5; below]].concat();
    for (above, below, expect) in [
        (4, 0, false),
        (5, 0, true),
        (4, 1, false),
        (6, 1, false),
        (7, 1, false),
        (8, 1, true),
        (0, 5, true),
        (60, 40, true),
    ] {
        assert_eq!(agree(&ratios(above, below)), expect, "{above} against {below}");
    }
    assert!(!agree(&[1.5, 1.5, 1.5, 1.5, 1.0]), "equal is no agreement");
    assert!(agree(&ratios(530, 470)) && !agree(&ratios(510, 490)));
}

#[test]
fn noise_is_rarely_called_a_difference() {
    let seed = 10;
    let mut rng = Rng::with_seed(seed);
    let trials = 100;
    let mut round = || 1_000 + rng.u64(..100);
    for pairs in [5, 7, 10] {
        let mut called = 0;
        for _ in 0..trials {
            let runs =
                ["first", "other"].map(|name| run(name, &(0..pairs).map(|_| round()).collect::<Vec<_>>()));
            called += usize::from(matches!(
                of(&only(&runs), Metric::Throughput).verdict,
                Verdict::Different { .. }
            ));
        }
        // 5 or 6 in 100 are to be expected.
        assert!(
            called <= 14,
            "seed {seed}: {called} of {trials} with {pairs} pairs"
        );
    }
}
