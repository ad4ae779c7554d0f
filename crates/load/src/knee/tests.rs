//! Searches at made-up servers: with a known knee, with noise, too slow, and never breaking.

use fastrand::Rng;

use super::{Break, CONFIRMATIONS, FLOOR, Found, Knee, LOWERED, Outcome, PRECISION, Phase, STEPS};
use crate::fixtures;

/// A server that holds what `holds` says; the whole search at it, with each rate tried.
fn search(start: f64, ceiling: f64, mut holds: impl FnMut(f64) -> bool) -> (Found, Vec<(f64, Phase)>) {
    let mut knee = Knee::new(start, ceiling);
    let mut tried = Vec::new();
    while let Some(step) = knee.next() {
        assert_eq!(knee.found(), None);
        assert_eq!(step.number as usize, tried.len() + 1);
        assert!((FLOOR..=ceiling).contains(&step.rate), "{step:?}");
        tried.push((step.rate, step.phase));
        let broke = if holds(step.rate) {
            Vec::new()
        } else {
            vec![Break::Rate(0.5)]
        };
        knee.feed(Outcome { broke });
    }
    let found = knee.found().unwrap();
    assert_eq!(found.steps as usize, tried.len());
    assert!(found.steps <= STEPS);
    (found, tried)
}

#[test]
fn a_known_knee_is_found_from_below_and_above() {
    for knee in [3.0, 100.0, 1_234.5, 50_000.0, 3_000_000.0] {
        for start in [1.0, 1_000.0, 1e6] {
            let (found, tried) = search(start, 1e9, |rate| rate <= knee);
            let held = found.held.unwrap();
            let (broke, why) = found.broke.unwrap();
            assert!(held <= knee && knee < broke, "{held} {knee} {broke}");
            assert!((broke - held) / broke <= PRECISION, "{held} {broke}");
            assert_eq!(why, [Break::Rate(0.5)]);
            let confirmed = tried
                .iter()
                .rev()
                .take_while(|(rate, phase)| *rate == held && *phase != Phase::Bisect);
            assert_eq!(
                confirmed.count() as u32,
                CONFIRMATIONS,
                "knee {knee} from {start}: {tried:?}"
            );
        }
    }
}

#[test]
fn the_ramp_doubles_then_bisects_then_confirms() {
    let (found, tried) = search(100.0, 1e6, |rate| rate <= 399.0);
    let rates: Vec<f64> = tried.iter().map(|(rate, _)| *rate).collect();
    assert_eq!(
        rates,
        [
            100.0, 200.0, 400.0, 300.0, 350.0, 375.0, 387.5, 393.75, 393.75, 393.75, 393.75
        ]
    );
    let phases: Vec<Phase> = tried.iter().map(|(_, phase)| *phase).collect();
    assert_eq!(
        phases[..4],
        [Phase::Ramp, Phase::Ramp, Phase::Ramp, Phase::Bisect]
    );
    assert_eq!(
        phases[8..],
        [Phase::Confirm(0), Phase::Confirm(1), Phase::Confirm(2)]
    );
    assert_eq!(
        found,
        Found {
            held: Some(393.75),
            broke: Some((400.0, vec![Break::Rate(0.5)])),
            steps: 11
        }
    );
}

#[test]
fn a_server_too_slow_at_the_start_is_tried_lower() {
    let (found, tried) = search(1_000.0, 1e6, |rate| rate <= 70.0);
    assert_eq!(tried[1], (500.0, Phase::Ramp));
    assert!((68.0..=70.0).contains(&found.held.unwrap()), "{found:?}");
}

#[test]
fn a_server_that_holds_nothing_ends_at_the_floor() {
    let (found, tried) = search(1_000.0, 1e6, |_| false);
    assert_eq!(
        found,
        Found {
            held: None,
            broke: Some((FLOOR, vec![Break::Rate(0.5)])),
            steps: 11
        }
    );
    assert!(tried.iter().all(|(_, phase)| *phase == Phase::Ramp));
}

#[test]
fn a_server_that_never_breaks_is_confirmed_at_the_ceiling() {
    let (found, tried) = search(1_000.0, 5_000.0, |_| true);
    assert_eq!(
        found,
        Found {
            held: Some(5_000.0),
            broke: None,
            steps: 7
        }
    );
    let rates: Vec<f64> = tried.iter().map(|(rate, _)| *rate).collect();
    assert_eq!(
        rates,
        [1_000.0, 2_000.0, 4_000.0, 5_000.0, 5_000.0, 5_000.0, 5_000.0]
    );
    // A start beyond the ceiling is the ceiling.
    assert_eq!(search(9_000.0, 5_000.0, |_| true).0.held, Some(5_000.0));
}

#[test]
fn a_rate_that_is_not_confirmed_is_lowered() {
    // Held once by luck: afterwards the server holds only 350.
    let mut lucky = true;
    let (found, tried) = search(100.0, 400.0, |rate| {
        rate <= 350.0 || (rate == 400.0 && std::mem::take(&mut lucky))
    });
    let lowered = 400.0 * (1.0 - LOWERED);
    let rates: Vec<f64> = tried.iter().map(|(rate, _)| *rate).collect();
    assert_eq!(rates[..5], [100.0, 200.0, 400.0, 400.0, lowered]);
    assert!((330.0..=350.0).contains(&found.held.unwrap()), "{found:?}");
    assert!(found.broke.unwrap().0 > 350.0);
}

#[test]
fn what_never_confirms_ends_without_a_rate() {
    let mut tries = 0;
    // Holds while it is sought, never twice when it counts.
    let (found, tried) = search(10_000.0, 1e9, |rate| {
        tries += 1;
        tries <= 15 && rate < 1e6
    });
    assert_eq!(found.held, None);
    assert_eq!(tried.len(), STEPS as usize);
}

#[test]
fn noise_moves_the_result_but_little() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let knee = 20_000.0;
        // Each try has its own knee, a few percent to either side.
        let (found, _) = search(1_000.0, 1e9, |rate| rate <= knee * (0.97 + 0.06 * rng.f64()));
        let held = found.held.unwrap();
        assert!((0.80 * knee..=1.03 * knee).contains(&held), "seed {seed}: {held}");
        assert!(held < found.broke.unwrap().0, "seed {seed}");
    }
}

#[test]
fn even_outcomes_at_random_end() {
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let share = rng.f64();
        let (found, tried) = search(1.0 + 1e5 * rng.f64(), 1e7, |_| rng.f64() < share);
        if let (Some(held), Some((broke, _))) = (found.held, found.broke) {
            assert!(held < broke, "seed {seed}: {tried:?}");
        }
    }
}

#[test]
fn after_the_end_nothing_changes() {
    let mut knee: Knee = Knee::new(FLOOR, FLOOR);
    knee.feed(Outcome {
        broke: vec![Break::Nothing],
    });
    let found = knee.found().unwrap();
    knee.feed(Outcome::default());
    assert_eq!((knee.found(), knee.next()), (Some(found), None));
}

#[test]
fn a_run_breaks_by_its_objective_its_errors_or_its_rate() {
    let says = |change: fn(&mut crate::report::Round), objectives: &[&str]| -> Vec<String> {
        let mut run = fixtures::open();
        change(&mut run.rounds[1]);
        let objectives: Vec<_> = objectives.iter().map(|text| text.parse().unwrap()).collect();
        Outcome::of(&run, &objectives)
            .broke
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let none: [String; 0] = [];
    assert_eq!(says(|_| {}, &["p99<10ms"]), none);
    assert_eq!(
        says(|_| {}, &["p99<5ms", "mean<10ms"]),
        ["p99<5ms missed: 6.58ms"]
    );
    assert_eq!(says(|round| round.figures.counts.timeouts = 60, &[]), none);
    assert_eq!(
        says(|round| round.figures.counts.timeouts = 120, &[]),
        ["0.20% of the requests failed"]
    );
    assert_eq!(
        says(|round| round.figures.counts.timeouts = 120, &["errors<1%"]),
        none
    );
    assert_eq!(
        says(|round| round.figures.counts.timeouts = 120, &["errors<0.15%"]),
        ["errors<0.15% missed: 0.200%"]
    );
    assert_eq!(says(|round| round.figures.counts.answered -= 600, &[]), none);
    assert_eq!(
        says(|round| round.figures.counts.answered -= 1_200, &[]),
        ["only 98.0% of the target rate was reached"]
    );

    let mut run = fixtures::open();
    run.rounds.iter_mut().for_each(|round| round.figures.clear());
    assert_eq!(Outcome::of(&run, &[]).broke, [Break::Nothing]);
}

#[test]
fn random_arrivals_may_be_fewer_by_chance() {
    let mut run = fixtures::open();
    run.rounds.truncate(1);
    // 20,000 arrivals: 99 % and three standard deviations of 141 each.
    for (answered, holds) in [(19_400, true), (19_350, false)] {
        run.rounds[0].figures.counts.answered = answered;
        run.plan.pace = crate::plan::Pace::Poisson(2_000.0);
        assert_eq!(Outcome::of(&run, &[]).broke.is_empty(), holds, "{answered}");
        run.plan.pace = crate::plan::Pace::Constant(2_000.0);
        assert!(!Outcome::of(&run, &[]).broke.is_empty(), "{answered}");
    }
}
