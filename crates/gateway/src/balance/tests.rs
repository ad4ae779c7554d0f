//! Shares follow weights, and few keys move when endpoints change.

use std::time::Duration;

use super::{
    Ewma, HashRing, LoadReport, Maglev, NodeLoad, ReceivedReport, RoundRobin, WeightRanges, less_loaded,
    stable_hash,
};

fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || random.u64(..))
}

#[track_caller]
fn check_shares(counts: &[u64], weights: &[u32], tolerance: f64) {
    let total: u64 = counts.iter().sum();
    let sum: u32 = weights.iter().sum();
    for (index, (count, weight)) in counts.iter().zip(weights).enumerate() {
        let expected = total as f64 * f64::from(*weight) / f64::from(sum);
        let off = (*count as f64 - expected).abs();
        assert!(
            off <= expected * tolerance + 1.0,
            "endpoint {index}: {count} of {total} by {weights:?}"
        );
    }
}

const WEIGHTS: &[&[u32]] = &[&[1], &[1, 1, 1], &[1, 2, 5], &[100, 1], &[0, 3, 0, 1]];

#[test]
fn random_follows_weights() {
    for weights in WEIGHTS {
        let shares = WeightRanges::new(weights.iter().map(|weight| u64::from(*weight)));
        let mut counts = vec![0; weights.len()];
        for random in numbers(1).take(100_000) {
            counts[shares.draw(random).expect("somebody weighs")] += 1;
        }
        check_shares(&counts, weights, 0.1);
    }
    assert_eq!(WeightRanges::new([0, 0]).draw(7), None);
    assert_eq!(WeightRanges::new([]).draw(7), None);
    let shares = WeightRanges::new([1, 1]);
    assert_eq!((shares.draw(0), shares.draw(u64::MAX)), (Some(0), Some(1)));
}

#[test]
fn round_robin_is_smooth() {
    for weights in WEIGHTS {
        let mut turns = RoundRobin::default();
        let mut counts = vec![0; weights.len()];
        for _ in 0..10 * weights.iter().sum::<u32>() {
            counts[turns
                .next(weights.iter().map(|weight| u64::from(*weight)))
                .expect("somebody weighs")] += 1;
        }
        check_shares(&counts, weights, 0.0);
    }
    let mut turns = RoundRobin::default();
    let order: Vec<_> = (0..8).filter_map(|_| turns.next([1, 2, 1].into_iter())).collect();
    assert_eq!(order, [1, 0, 2, 1, 1, 0, 2, 1], "spread, not in a row");
    assert_eq!(turns.next([0, 0].into_iter()), None);
}

#[test]
fn the_less_loaded_is_selected() {
    assert_eq!(less_loaded((0, 5, 1), (1, 3, 1)), 1);
    assert_eq!(less_loaded((0, 3, 1), (1, 3, 1)), 0);
    assert_eq!(
        less_loaded((0, 4, 2), (1, 3, 1)),
        0,
        "twice the weight carries twice the load"
    );
    assert_eq!(less_loaded((0, 0, 1), (1, 0, 2)), 1, "of idle ones the heavier");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("10.0.0.{index}:80")).collect()
}

fn ring(names: &[String], weights: &[u32]) -> HashRing {
    HashRing::new(
        names.iter().map(String::as_str).zip(weights.iter().copied()),
        160,
        1 << 20,
    )
}

fn maglev(names: &[String], weights: &[u32]) -> Maglev {
    Maglev::new(
        names.iter().map(String::as_str).zip(weights.iter().copied()),
        65_537,
    )
}

#[test]
fn hashes_spread_by_weight() {
    for weights in [&[1, 1, 1, 1][..], &[1, 2, 4], &[10, 0, 10]] {
        let names = names(weights.len());
        let (ring, maglev) = (ring(&names, weights), maglev(&names, weights));
        let (mut on_ring, mut in_table) = (vec![0; names.len()], vec![0; names.len()]);
        for key in 0..50_000_u32 {
            let hash = stable_hash(&key.to_le_bytes());
            on_ring[ring.find(hash, |_| true).expect("an endpoint")] += 1;
            in_table[maglev.find(hash, |_| true).expect("an endpoint")] += 1;
        }
        check_shares(&on_ring, weights, 0.35);
        check_shares(&in_table, weights, 0.05);
    }
}

/// Returns the number of keys, of 20,000, that move to another endpoint.
fn moved(before: impl Fn(u64) -> String, after: impl Fn(u64) -> String) -> u32 {
    (0..20_000_u32)
        .map(|key| stable_hash(&key.to_le_bytes()))
        .filter(|hash| before(*hash) != after(*hash))
        .count() as u32
}

#[test]
fn few_keys_move() {
    let (ten, weights) = (names(10), [1; 10]);
    let nine: Vec<String> = ten
        .iter()
        .filter(|name| *name != "10.0.0.4:80")
        .cloned()
        .collect();
    let share = 2_000;
    let (one, two) = (ring(&ten, &weights), ring(&nine, &weights[1..]));
    let of = |ring: &HashRing, names: &[String], hash| {
        names[ring.find(hash, |_| true).expect("an endpoint")].clone()
    };
    let gone = moved(|hash| of(&one, &ten, hash), |hash| of(&two, &nine, hash));
    assert!(
        gone < share * 3 / 2,
        "{gone} keys of about {share} moved on the ring"
    );
    let (one, two) = (maglev(&ten, &weights), maglev(&nine, &weights[1..]));
    let of = |table: &Maglev, names: &[String], hash| {
        names[table.find(hash, |_| true).expect("an endpoint")].clone()
    };
    let gone = moved(|hash| of(&one, &ten, hash), |hash| of(&two, &nine, hash));
    assert!(
        gone < share * 2,
        "{gone} keys of about {share} moved in the table"
    );
}

#[test]
fn only_keys_of_the_unusable_move() {
    let (names, weights) = (names(7), [1; 7]);
    let (ring, maglev) = (ring(&names, &weights), maglev(&names, &weights));
    for key in 0..5_000_u32 {
        let hash = stable_hash(&key.to_le_bytes());
        for find in [
            &|usable: &dyn Fn(usize) -> bool| ring.find(hash, usable),
            &|usable: &dyn Fn(usize) -> bool| maglev.find(hash, usable),
        ] as [&dyn Fn(&dyn Fn(usize) -> bool) -> Option<usize>; 2]
        {
            let all = find(&|_| true).expect("an endpoint");
            let some = find(&|index| index != 3).expect("an endpoint");
            assert!(all == 3 || all == some);
            assert!(some != 3);
            assert_eq!(find(&|_| false), None);
        }
    }
}

#[test]
fn an_empty_ring_selects_none() {
    assert_eq!(ring(&[], &[]).find(7, |_| true), None);
    assert_eq!(maglev(&[], &[]).find(7, |_| true), None);
}

#[test]
fn a_heavy_ring_is_limited() {
    let names = names(3);
    let ring = HashRing::new(
        names.iter().map(String::as_str).zip([1, 1_000_000, 1]),
        160,
        10_000,
    );
    assert!(ring.points.len() <= 10_003, "{}", ring.points.len());
}

#[test]
fn slow_responses_count_at_once_and_decay() {
    let half_life = Duration::from_secs(5);
    let second = 1_000_000_000;
    let slow = Ewma::default().with_sample(second, 80_000, half_life);
    assert_eq!(slow.value, 80_000);
    assert_eq!(slow.decayed(6 * second, half_life), 40_000);
    let next = slow.with_sample(6 * second, 10_000, half_life);
    assert_eq!(next.value, 45_000);
    assert_eq!(next.with_sample(6 * second, 90_000, half_life).value, 90_000);
}

#[test]
fn load_reports_are_parsed() {
    let report = |clients, max, leaving| {
        Some(LoadReport {
            clients,
            max,
            leaving,
        })
    };
    for (text, expected) in [
        ("clients=0", report(0, None, false)),
        ("clients=12, max=500", report(12, Some(500), false)),
        (
            "leaving,max=5 ,  clients=4294967295",
            report(u32::MAX, Some(5), true),
        ),
        ("clients=1, cpu=40, later", report(1, None, false)),
        ("", None),
        ("max=5", None),
        ("clients=", None),
        ("clients=-1", None),
        ("clients=+1", None),
        ("clients=4294967296", None),
        ("clients=1, max=0", None),
        ("clients=1, max=x", None),
        ("clients=\u{e9}", None),
    ] {
        assert_eq!(LoadReport::parse(text.as_bytes()), expected, "{text}");
        if let Some(report) = expected {
            assert_eq!(LoadReport::parse(report.to_string().as_bytes()), expected);
        }
    }
    assert_eq!(LoadReport::parse(b"clients=1\xff"), None);
}

#[test]
fn estimates_follow_connections_and_expire() {
    let received = |clients, in_flight| {
        Some(ReceivedReport {
            report: LoadReport {
                clients,
                max: Some(1000),
                leaving: false,
            },
            until: 100,
            in_flight,
        })
    };
    let estimate = |received, in_flight, now| NodeLoad::estimate(received, in_flight, 1, now);
    let of = |clients| NodeLoad::estimate(received(clients, 0), 0, 1, 1);
    let is_same = |one: NodeLoad, other: NodeLoad| !one.exceeds(&other, 100) && !other.exceeds(&one, 100);
    // 20 clients have connected since the report, or 20 of 50 have disconnected.
    assert!(is_same(estimate(received(300, 50), 70, 100), of(320)));
    assert!(is_same(estimate(received(300, 50), 30, 100), of(280)));
    // It cannot have fewer clients than connections of this process.
    assert!(is_same(estimate(received(0, 70), 70, 100), of(70)));
    assert!(estimate(received(999, 0), 1, 100).is_full());
    assert!(!estimate(received(999, 1), 1, 100).is_full());
    // A stale report counts for nothing: connections are compared.
    let stale = estimate(received(1000, 0), 5, 101);
    assert!(!stale.is_full() && !stale.exceeds(&of(0), 600) && stale.exceeds(&of(0), 599));
}

#[test]
fn loads_of_any_size_are_compared() {
    let max = NodeLoad::estimate(
        Some(ReceivedReport {
            report: LoadReport {
                clients: u32::MAX,
                max: Some(u32::MAX),
                leaving: false,
            },
            until: 1,
            in_flight: 0,
        }),
        u32::MAX,
        u64::MAX,
        1,
    );
    let mut sum = NodeLoad::NONE;
    (0..1000).for_each(|_| sum.add(max));
    assert!(max.is_full() && !max.exceeds(&max, 100) && sum.exceeds(&max, 100));
    assert!(max.is_within(&sum, 10_000) && !sum.is_within(&max, 100));
}
