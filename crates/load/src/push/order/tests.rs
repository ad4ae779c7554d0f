//! What came of subscriptions, against a set that remembers everything.

use std::collections::BTreeSet;

use super::Arrival::{Double, Late, New, Old};
use super::{Arrival, REMEMBERED, Track};

fn check(sequences: &[u32], expect: &[Arrival]) {
    let mut track = Track::default();
    let found: Vec<Arrival> = sequences.iter().map(|sequence| track.take(*sequence)).collect();
    assert_eq!(found, expect, "{sequences:?}");
}

#[test]
fn what_comes_in_order_is_new() {
    check(&[1, 2, 3], &[New, New, New]);
    check(&[5, 9, 100, 101], &[New, New, New, New]);
}

#[test]
fn what_comes_again_is_doubled_and_what_fills_a_gap_is_late() {
    check(&[1, 1], &[New, Double]);
    check(&[1, 3, 2, 2, 3, 1], &[New, New, Late, Double, Double, Double]);
    check(&[3, 1, 2, 4, 1], &[New, Late, Late, New, Double]);
    // The first number is not taken for one that was there.
    check(&[2, 1], &[New, Late]);
}

#[test]
fn what_is_too_old_is_called_that() {
    let last = REMEMBERED + 1;
    check(&[1, last, 1], &[New, New, Double]);
    check(&[last, 1], &[New, Late]);
    check(&[last + 1, 1], &[New, Old]);
    check(&[1, last + 1, 1, 2], &[New, New, Old, Late]);
    // Nothing is left of what was before a jump.
    check(&[1, 1000, 999, 999], &[New, New, Late, Double]);
}

#[test]
fn any_order_is_told_as_by_one_who_remembers_everything() {
    let seed = ringmain_sys::clock::random();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..2000 {
        let (mut track, mut seen, mut highest) = (Track::default(), BTreeSet::new(), 0);
        let mut around = 1u32;
        for _ in 0..100 {
            around += random.u32(0..3);
            let jump = if random.u32(0..20) == 0 {
                random.u32(0..80)
            } else {
                0
            };
            let sequence = (around + jump).saturating_sub(random.u32(0..40)).max(1);
            let expect = match highest.max(sequence) - sequence {
                0 if sequence > highest => New,
                back if back > REMEMBERED => Old,
                _ if seen.contains(&sequence) => Double,
                _ => Late,
            };
            assert_eq!(track.take(sequence), expect, "{sequence} after {seen:?}");
            // One that is too old to be remembered is not.
            if expect != Old {
                seen.insert(sequence);
            }
            highest = highest.max(sequence);
            assert_eq!(track.highest(), highest);
        }
    }
}
