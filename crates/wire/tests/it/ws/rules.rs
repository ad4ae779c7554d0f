//! `docs/websocket-rules.md` and the tests of the rules name each other, and no fault is missing from the table.

use ringmain_wire::ws::{FaultKind, HandshakeFaultKind};

use crate::shared_rules::{check_tests, rows};

/// The table.
const RULES: &str = include_str!("../../../../../docs/websocket-rules.md");

/// Where close codes and names of faults are defined; 1006 is no code that can be asked for.
const FAULTS: &str = include_str!("../../../src/ws/fault.rs");

/// Where tests of rules stand.
const TESTS: &[&str] = &[
    include_str!("close_rules.rs"),
    include_str!("deflate_rules.rs"),
    include_str!("encoding.rs"),
    include_str!("frame_rules.rs"),
    include_str!("handshake_rules.rs"),
    include_str!("text_rules.rs"),
];

#[test]
fn every_rule_has_tests_that_exist_and_every_test_its_rule() {
    check_tests(RULES, 1..=16, TESTS);
}

#[test]
fn every_answer_is_the_fault_s_and_every_fault_is_an_answer() {
    let frames = FaultKind::ALL.iter().map(|kind| {
        let code = kind.close_code().map_or(1006, |code| code.number());
        assert!(FAULTS.contains(&format!("\n    {kind:?} {code} \"")), "{kind:?}");
        format!("{code} {kind:?}")
    });
    let heads = HandshakeFaultKind::ALL
        .iter()
        .map(|kind| format!("{} {kind:?}", kind.status()));
    let mut faults: Vec<String> = frames.chain(heads).collect();
    let answers = rows(RULES).into_iter().flat_map(|row| row.1);
    let mut answers: Vec<&str> = answers.filter(|answer| !answer.starts_with("none")).collect();
    faults.sort_unstable();
    answers.sort_unstable();
    assert_eq!(
        answers, faults,
        "docs/websocket-rules.md and the tables of faults"
    );
}
