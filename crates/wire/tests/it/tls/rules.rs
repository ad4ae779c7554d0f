//! `docs/tls-rules.md` and the tests of the rules name each other, and no fault is missing from the table.

use ringmain_wire::tls::FaultKind;

use crate::shared_rules::{check_tests, rows};

/// The table.
const RULES: &str = include_str!("../../../../../docs/tls-rules.md");

/// Where tests of rules stand.
const TESTS: &[&str] = &[
    include_str!("client_rules.rs"),
    include_str!("cuts.rs"),
    include_str!("handshake_rules.rs"),
    include_str!("late_rules.rs"),
    include_str!("resumption_rules.rs"),
    include_str!("settings_rules.rs"),
    include_str!("../../../src/tls/traffic/tests.rs"),
];

#[test]
fn every_rule_has_tests_that_exist_and_every_test_its_rule() {
    check_tests(RULES, 1..=19, TESTS);
}

#[test]
fn every_answer_is_the_fault_s_and_every_fault_is_an_answer() {
    let faults = FaultKind::ALL.iter().map(|kind| match kind.alert() {
        Some(alert) => format!("{alert} {kind:?}"),
        None => format!("none {kind:?}"),
    });
    let mut faults: Vec<String> = faults.collect();
    let answers = rows(RULES).into_iter().flat_map(|row| row.1);
    let mut answers: Vec<&str> = answers.filter(|answer| *answer != "none").collect();
    faults.sort_unstable();
    answers.sort_unstable();
    assert_eq!(answers, faults, "docs/tls-rules.md and the table of faults");
}
