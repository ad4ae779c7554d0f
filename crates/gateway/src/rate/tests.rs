//! The algorithm against a naive twin; the table against a map, and by many threads at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::key_table::{KeyHasher, KeyTable};
use super::{Rate, RateVerdict};

const SECOND: u64 = 1_000_000_000;

fn rate(requests: u32, burst: u32) -> Rate {
    Rate::new(requests, Duration::from_secs(1), burst)
}

fn passes(cells: &KeyTable, key: u64, rate: Rate, now: u64) -> bool {
    cells.count_request(key, rate, now).passes
}

#[test]
fn a_burst_then_single_requests() {
    let (cells, rate, start) = (KeyTable::new(1), rate(10, 3), 7 * SECOND);
    for left in [2, 1, 0] {
        let verdict = cells.count_request(1, rate, start);
        assert!(verdict.passes && verdict.remaining == left, "{verdict:?}");
    }
    let refused = RateVerdict {
        passes: false,
        remaining: 0,
        retry_after: Duration::from_millis(100),
        clear: Duration::from_millis(300),
    };
    assert_eq!(cells.count_request(1, rate, start), refused);
    assert!(
        !passes(&cells, 1, rate, start + SECOND / 10 - 1),
        "refused ones are not counted"
    );
    assert!(passes(&cells, 1, rate, start + SECOND / 10));
    assert!(!passes(&cells, 1, rate, start + SECOND / 10));
    let long_after = (0..10).filter(|_| passes(&cells, 1, rate, 3600 * SECOND)).count();
    assert_eq!(long_after, 3, "no more is saved up than a burst");
}

/// In any span, requests never exceed the burst plus the span's share, and a client that keeps asking gets that many.
#[test]
fn the_rate_is_exact() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (requests, burst) = (random.u32(1..1000), random.u32(1..50));
        let per = Duration::from_millis(random.u64(1..100_000));
        let (rate, cells) = (Rate::new(requests, per, burst), KeyTable::new(1));
        let share = (per.as_nanos() as u64).div_ceil(u64::from(requests));
        // The naive version: a bucket of shares that refills with time.
        let most = u128::from(share) * u128::from(burst);
        let (mut full, mut now) = (most, SECOND);
        for _ in 0..2000 {
            let step = random.u64(0..share * 2);
            now += step;
            full = (full + u128::from(step)).min(most);
            let expected = full >= u128::from(share);
            full -= if expected { u128::from(share) } else { 0 };
            let verdict = cells.count_request(9, rate, now);
            assert_eq!(verdict.passes, expected, "seed {seed}");
            assert_eq!(
                u128::from(verdict.remaining),
                full / u128::from(share),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn extremes_do_not_overflow() {
    for (requests, per, burst) in [
        (0, Duration::ZERO, 0),
        (u32::MAX, Duration::from_nanos(1), u32::MAX),
        (1, Duration::MAX, u32::MAX),
    ] {
        let rate = Rate::new(requests, per, burst);
        let cells = KeyTable::new(0);
        for now in [0, 1, SECOND, u64::MAX / 2] {
            assert!(passes(&cells, 5, rate, now) || now > 0);
        }
    }
}

/// Debt that was counted under another rate neither admits a flood nor blocks a key for longer than the new rate would.
#[test]
fn another_rate_on_the_same_cell() {
    let (cells, now) = (KeyTable::new(1), SECOND);
    let hourly = Rate::new(10, Duration::from_hours(1), 10);
    assert_eq!((0..20).filter(|_| passes(&cells, 1, hourly, now)).count(), 10);
    let quick = rate(10, 5);
    assert!(!passes(&cells, 1, quick, now));
    assert!(passes(&cells, 1, quick, now + SECOND / 10));
    assert!(!passes(&cells, 1, quick, now + SECOND / 10));
}

#[test]
fn a_reverted_request_frees_its_share() {
    let (cells, rate) = (KeyTable::new(1), rate(1, 2));
    assert!(passes(&cells, 1, rate, SECOND) && passes(&cells, 1, rate, SECOND));
    assert!(!passes(&cells, 1, rate, SECOND));
    cells.revert_request(1, rate);
    cells.revert_request(2, rate);
    assert!(passes(&cells, 1, rate, SECOND) && !passes(&cells, 1, rate, SECOND));
}

/// The table behaves like a map without a limit as long as all keys with debt fit.
#[test]
fn a_table_is_a_map() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cells = KeyTable::new(4096);
        let rate = rate(random.u32(1..20), random.u32(1..5));
        let mut twin: BTreeMap<u64, u64> = BTreeMap::new();
        let keys: Vec<u64> = (0..300).map(|_| random.u64(..)).collect();
        let mut now = SECOND;
        for _ in 0..20_000 {
            now += random.u64(0..SECOND / 50);
            let key = keys[random.usize(0..keys.len())];
            let clear = twin.entry(key).or_default();
            let (moment, expected) = rate.count_request(*clear, now);
            *clear = moment;
            assert_eq!(cells.count_request(key, rate, now), expected, "seed {seed}");
        }
        assert_eq!(cells.evicted(), 0);
    }
}

/// At the limit the key with the least debt is evicted: keys at the maximum debt are not admitted again.
#[test]
fn a_full_table_evicts_the_least_debt() {
    let (cells, rate) = (KeyTable::new(8), rate(1, 10));
    assert_eq!(cells.capacity(), 8);
    let greedy = 3_u64 << 32;
    assert_eq!(
        (0..20).filter(|_| passes(&cells, greedy, rate, SECOND)).count(),
        10
    );
    for key in 100..1000_u64 {
        assert!(passes(&cells, key << 32, rate, SECOND));
    }
    assert!(!passes(&cells, greedy, rate, SECOND));
    assert_eq!(cells.evicted(), 900 - 7);
}

#[test]
fn similar_keys_are_distinct() {
    let hash = |parts: &[Option<&[u8]>]| {
        let mut hasher = KeyHasher::new(7);
        parts.iter().for_each(|part| hasher.add_part(*part));
        hasher.finish()
    };
    let all = [
        hash(&[]),
        hash(&[None]),
        hash(&[Some(b"")]),
        hash(&[Some(b"ab"), Some(b"c")]),
        hash(&[Some(b"a"), Some(b"bc")]),
        hash(&[Some(b"abc")]),
        hash(&[None, Some(b"abc")]),
        KeyHasher::new(8).finish(),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{index}");
    }
}

/// Many threads, few keys, cells that change keys all the time: the count is exact for every key.
#[test]
fn exact_across_threads() {
    const KEYS: u64 = 8;
    let (cells, rate) = (KeyTable::new(8), rate(1, 100));
    let passed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (cells, passed) = (&cells, &passed);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..20_000 {
                    let key = random.u64(0..KEYS);
                    let verdict = cells.count_request((key + 1) << 32, rate, SECOND);
                    passed[key as usize].fetch_add(u64::from(verdict.passes), Ordering::Relaxed);
                }
            });
        }
    });
    let passed: Vec<u64> = passed.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert_eq!(passed, [100; KEYS as usize]);
    assert_eq!(cells.evicted(), 0);
}
