//! `docs/http1-rules.md` and the tests of the rules name each other, and no fault is missing from the table.

use ringmain_wire::h1::FaultKind;

use crate::shared_rules::{check_tests, rows};

/// The table.
const RULES: &str = include_str!("../../../../../docs/http1-rules.md");

/// Where tests of rules stand.
const TESTS: &[&str] = &[
    include_str!("chunk_rules.rs"),
    include_str!("forwarding_rules.rs"),
    include_str!("framing_rules.rs"),
    include_str!("line_rules.rs"),
    include_str!("response_rules.rs"),
];

#[test]
fn every_rule_has_tests_that_exist_and_every_test_its_rule() {
    check_tests(RULES, 1..=13, TESTS);
}

#[test]
fn every_answer_is_the_fault_s_status_and_every_fault_is_an_answer() {
    let answers: Vec<&str> = rows(RULES).into_iter().flat_map(|row| row.1).collect();
    let faults: Vec<String> = FaultKind::ALL
        .iter()
        .map(|kind| format!("{} {kind:?}", kind.status()))
        .collect();
    for fault in &faults {
        assert!(answers.contains(&fault.as_str()), "`{fault}` is in no row");
    }
    for answer in answers.iter().filter(|answer| !answer.starts_with("none")) {
        assert!(faults.iter().any(|fault| fault == answer), "`{answer}`");
    }
}
