//! Two profiles by tables.

use super::{compare, draw};
use crate::profile::folded::{Folded, Side};

const BEFORE: &str = "w;main;f 500\nw;main;g;nf_hook_slow_[k] 500\n";
const AFTER: &str = "w;main;f 1900\nw;main;h 60\nw;main;i 40\n";

fn both() -> (Folded, Folded) {
    (Folded::parse(BEFORE).unwrap(), Folded::parse(AFTER).unwrap())
}

#[test]
fn shares_are_compared() {
    let (before, after) = both();
    let found = compare(&before, &after);
    assert_eq!(found.totals, [1000, 2000]);
    let shown: Vec<_> = found
        .functions
        .iter()
        .map(|change| {
            (
                change.name.as_str(),
                change.side,
                change.samples,
                change.beyond_chance,
            )
        })
        .collect();
    let expected = [
        ("nf_hook_slow", Side::Kernel, [500, 0], true),
        ("f", Side::User, [500, 1900], true),
        ("h", Side::User, [0, 60], true),
        ("i", Side::User, [0, 40], true),
    ];
    assert_eq!(shown, expected);
    let suspects: Vec<_> = found
        .suspects
        .iter()
        .map(|change| (change.name.as_str(), change.samples))
        .collect();
    assert_eq!(suspects, [("netfilter", [500, 0])]);
}

#[test]
fn of_many_some_differ_by_chance() {
    // A difference that would be one if it were the only one that is looked at.
    let one = ("w;f 1000\nw;g 99000\n", "w;f 1120\nw;g 98880\n");
    let beyond = |before: &str, after: &str| {
        let found = compare(&Folded::parse(before).unwrap(), &Folded::parse(after).unwrap());
        found.functions.iter().any(|change| change.beyond_chance)
    };
    assert!(!beyond(one.0, one.1));
    assert!(beyond(one.0, "w;f 1300\nw;g 98700\n"));
    // Among a thousand others it takes more.
    let others: String = (0..1000).map(|at| format!("w;other{at} 10\n")).collect();
    assert!(!beyond(
        &format!("{}{others}", one.0),
        &format!("w;f 1210\nw;g 98790\n{others}")
    ));
    assert!(beyond(
        &format!("{}{others}", one.0),
        &format!("w;f 1400\nw;g 98600\n{others}")
    ));
}

#[test]
fn chance_is_no_change() {
    let before = Folded::parse("w;f 500\nw;g 500\n").unwrap();
    let after = Folded::parse("w;f 530\nw;g 470\n").unwrap();
    assert!(
        compare(&before, &after)
            .functions
            .iter()
            .all(|change| !change.beyond_chance)
    );
    let same = compare(&before, &before);
    assert!(
        same.functions
            .iter()
            .all(|change| change.rise() == 0.0 && !change.beyond_chance)
    );
}

#[test]
fn what_is_gone_is_still_drawn() {
    let (before, after) = both();
    let svg = draw([&before, &after], ["a.folded", "b.folded"]);
    for text in [
        "nf_hook_slow (kernel): 50.00% before, 0.00% after, -50.00 points",
        "f: 50.00% before, 95.00% after, +45.00 points",
        "before: a.folded (1,000 samples), after: b.folded (2,000 samples)",
        "all: 1,000 samples before, 2,000 after",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}
