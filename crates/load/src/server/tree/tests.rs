//! Which processes belong to a tree, and whose time is lost, as tables.

use super::*;

const NOBODY: u32 = 1;

/// A process that began at tick 7: number, parent, own and reaped milliseconds.
fn process(pid: u32, parent: u32, own: u64, reaped: u64) -> Stat {
    Stat {
        pid,
        parent,
        group: pid,
        start: 7,
        ended: false,
        own: Duration::from_millis(own),
        reaped: Duration::from_millis(reaped),
    }
}

fn table(stats: &[Stat]) -> BTreeMap<Key, Stat> {
    stats.iter().map(|stat| (key(stat), *stat)).collect()
}

fn check_members(all: &[Stat], known: &[Stat], group: Option<u32>, expect: &[u32]) {
    let found = members(all, &table(known), group);
    let pids: Vec<u32> = found.iter().map(|stat| stat.pid).collect();
    let mut sorted = pids.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expect);
    for (place, stat) in found.iter().enumerate() {
        assert!(
            !pids[place..].contains(&stat.parent),
            "{} stands before its parent",
            stat.pid
        );
    }
}

#[test]
fn members_are_what_descends_from_one_or_shares_the_group() {
    let root = process(10, NOBODY, 0, 0);
    // Numbers do not follow descent once they are used again.
    let all = [
        process(1, 0, 0, 0),
        process(5, 12, 0, 0),
        root,
        process(11, 10, 0, 0),
        process(12, 11, 0, 0),
        process(20, NOBODY, 0, 0),
        Stat {
            group: 10,
            ..process(21, NOBODY, 0, 0)
        },
    ];
    check_members(&all, &[root], None, &[5, 10, 11, 12]);
    check_members(&all, &[root], Some(10), &[5, 10, 11, 12, 21]);
    // Once a member, always a member: its parent has ended.
    check_members(&all, &[root, all[5]], None, &[5, 10, 11, 12, 20]);
    // Another process of the same number is none.
    check_members(&all, &[Stat { start: 8, ..root }], None, &[]);
}

fn check_lost(before: &[Stat], now: &[Stat], expect: u64) {
    assert_eq!(lost(&table(before), &table(now)), Duration::from_millis(expect));
}

#[test]
fn time_that_a_parent_has_taken_over_is_not_lost() {
    let (root, child) = (process(10, NOBODY, 100, 0), process(11, 10, 500, 0));
    check_lost(&[root, child], &[root, child], 0);
    // It used 40 ms more before its end.
    check_lost(&[root, child], &[process(10, NOBODY, 100, 540)], 0);
    // Ticks: up to two of them are not told yet.
    check_lost(&[root, child], &[process(10, NOBODY, 100, 490)], 0);
    // Nobody waited for it.
    check_lost(&[root, child], &[root], 500);
}

#[test]
fn time_passes_through_parents_that_end_too() {
    let root = process(10, NOBODY, 100, 1000);
    let (child, grandchild) = (process(11, 10, 200, 50), process(12, 11, 300, 0));
    let all = [root, child, grandchild];
    check_lost(&all, &[process(10, NOBODY, 100, 1550)], 0);
    // The child ended first: nobody it belonged to waited for the grandchild.
    check_lost(&all, &[process(10, NOBODY, 100, 1250)], 300);
    check_lost(&all, &[], 1650);
    // The grandchild lives on elsewhere, and is still seen.
    check_lost(
        &all,
        &[process(10, NOBODY, 100, 1250), process(12, NOBODY, 300, 0)],
        0,
    );
}

#[test]
fn a_circle_of_numbers_used_again_ends() {
    let (one, other) = (process(11, 12, 30, 0), process(12, 11, 40, 0));
    check_lost(&[one, other], &[], 70);
}
