//! Claims, gaps and positions, by tables.

use std::sync::Arc;

use super::gaps::Gaps;
use super::ledger::{Agreement, Ledger, Receipt};
use super::{Audit, Progress, Suspect};
use crate::push::order::Track;

/// An event of one subscription.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A publication that was pushed.
    Push(u32),
    /// A connection is opened; the reply holds publications and whether recovery was complete. The last is the newest one published.
    Recover(&'static [u32], bool, u32),
}

use Step::{Push, Recover};

/// Returns the ranges of each suspect after these steps.
fn suspects(steps: &[Step], starts_anywhere: bool, is_live: bool) -> Vec<Vec<(u32, u32)>> {
    let (mut audit, mut track) = (Audit::new(1, starts_anywhere, false), Track::default());
    let mut take = |audit: &mut Audit, sequence, is_pushed| {
        let before = track.highest();
        let arrival = track.take(sequence);
        audit.arrived(0, sequence, before, arrival, is_pushed);
        track.highest()
    };
    let mut highest = 0;
    for step in steps {
        match step {
            Push(sequence) => highest = take(&mut audit, *sequence, true),
            Recover(publications, is_complete, newest) => {
                audit.requested(0, highest);
                for sequence in *publications {
                    highest = take(&mut audit, *sequence, false);
                }
                audit.recovered(0, *is_complete, highest, *newest);
            }
        }
    }
    let progress = Progress {
        channel: 0,
        highest,
        is_live,
    };
    let found = audit.findings(|_| progress).suspects;
    let ranges = |suspect: Suspect| {
        suspect
            .missing
            .iter()
            .map(|range| (range.start, range.end))
            .collect()
    };
    found.into_iter().map(ranges).collect()
}

#[track_caller]
fn check(steps: &[Step], expect: &[&[(u32, u32)]]) {
    assert_eq!(suspects(steps, false, true), expect, "{steps:?}");
}

#[test]
fn complete_recoveries_are_no_suspects() {
    check(&[Push(1), Push(2), Recover(&[3, 4], true, 4), Push(5)], &[]);
    check(&[Push(1), Recover(&[], true, 1), Push(2)], &[]);
    check(&[Push(1), Recover(&[2], true, 2)], &[]);
    // A gap from before, and one long after, is a loss and no false recovery.
    check(&[Push(1), Push(3), Recover(&[4], true, 4), Push(5), Push(9)], &[]);
    // A gap that is filled later is out of order.
    check(&[Push(1), Recover(&[3], true, 3), Push(4), Push(2)], &[]);
}

#[test]
fn claims_with_missing_publications_are_suspects() {
    check(&[Push(1), Recover(&[3], true, 3), Push(4)], &[&[(2, 3)]]);
    check(&[Push(1), Recover(&[2], true, 4), Push(5)], &[&[(3, 5)]]);
    check(&[Push(1), Recover(&[], true, 3)], &[&[(2, 4)]]);
    check(&[Recover(&[], true, 0), Push(3)], &[&[(1, 3)]]);
    // Two recoveries before anything is pushed are one claim.
    check(
        &[Push(1), Recover(&[3], true, 3), Recover(&[4], true, 4), Push(5)],
        &[&[(2, 3)]],
    );
}

#[test]
fn refused_recoveries_claim_nothing() {
    check(&[Push(1), Recover(&[], false, 5), Push(6)], &[]);
    check(
        &[Push(1), Recover(&[3], true, 3), Recover(&[], false, 9)],
        &[&[(2, 3)]],
    );
}

#[test]
fn clients_that_are_disconnected_again_lack_nothing_by_their_last_claim() {
    let steps = [Push(1), Recover(&[], true, 3)];
    assert!(suspects(&steps, false, false).is_empty());
}

#[test]
fn sequences_may_start_anywhere() {
    assert!(
        suspects(
            &[Push(70), Push(71), Recover(&[72], true, 72), Push(73)],
            true,
            true
        )
        .is_empty()
    );
    assert!(suspects(&[Recover(&[], true, 0), Push(9)], true, true).is_empty());
    let steps = [Push(70), Recover(&[72], true, 72), Push(73)];
    assert_eq!(suspects(&steps, true, true), [[(71, 72)]]);
}

#[test]
fn missing_numbers_are_counted_up_to_the_top() {
    let (mut audit, mut track) = (Audit::new(2, true, false), Track::default());
    for sequence in [10, 11, 15, 13, 20] {
        let before = track.highest();
        let arrival = track.take(sequence);
        audit.arrived(1, sequence, before, arrival, true);
    }
    assert_eq!((audit.first(0), audit.first(1)), (0, 10));
    // 12, 14 and 16 to 19, and behind the highest what others have.
    assert_eq!(audit.missing(1, 20, 20), 6);
    assert_eq!(audit.missing(1, 16, 20), 3);
    assert_eq!(audit.missing(1, 22, 20), 8);
}

#[test]
fn gaps_are_split_and_filled() {
    let mut gaps = Gaps::default();
    gaps.insert(1, 5..10);
    gaps.insert(2, 5..7);
    gaps.insert(1, 20..20);
    let ranges = |gaps: &Gaps, track, window| {
        let missing = gaps.within(track, window);
        missing.map(|range| (range.start, range.end)).collect::<Vec<_>>()
    };
    gaps.fill(1, 7);
    assert_eq!(ranges(&gaps, 1, 0..100), [(5, 7), (8, 10)]);
    gaps.fill(1, 5);
    gaps.fill(1, 9);
    gaps.fill(1, 9);
    gaps.fill(1, 3);
    assert_eq!(ranges(&gaps, 1, 0..100), [(6, 7), (8, 9)]);
    assert_eq!(ranges(&gaps, 1, 7..9), [(8, 9)]);
    assert_eq!(ranges(&gaps, 2, 0..6), [(5, 6)]);
    assert!(ranges(&gaps, 3, 0..100).is_empty());
}

fn ledger(receipts: &[(u32, u64, u32, u16)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (epoch, offset, sequence, node) in receipts {
        ledger.record(Receipt {
            channel: 0,
            epoch: *epoch,
            offset: *offset,
            sequence: *sequence,
            node: *node,
        });
    }
    ledger
}

#[test]
fn positions_are_compared_by_the_names_of_epochs() {
    let epochs = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
    let check = |one: &[(u32, u64, u32, u16)], two: &[(u32, u64, u32, u16)], compared, conflicting| {
        let ledgers = [
            (ledger(one), epochs(&["a", "b"])),
            (ledger(two), epochs(&["b", "a"])),
        ];
        let expect = Agreement {
            compared,
            conflicting,
            skipped: 0,
        };
        assert_eq!(Ledger::compare(&ledgers), expect, "{one:?} {two:?}");
    };
    check(&[(1, 1, 1, 0), (1, 2, 2, 0)], &[(2, 1, 1, 1), (2, 2, 2, 1)], 2, 0);
    check(&[(1, 1, 1, 0), (1, 2, 2, 0)], &[(2, 1, 1, 1), (2, 2, 3, 1)], 2, 1);
    // Another epoch is another position, and so is a far offset.
    check(&[(1, 1, 1, 0)], &[(1, 1, 2, 1), (2, 1 << 40, 9, 1)], 0, 0);
    // Clients of one node may disagree, too.
    check(&[(1, 7, 1, 0), (1, 7, 2, 0), (1, 7, 2, 0)], &[], 0, 1);
}
