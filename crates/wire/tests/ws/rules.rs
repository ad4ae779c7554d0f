//! `docs/websocket-rules.md` and the tests of the rules name each other, and no fault is missing from the table.

use ringmain_wire::ws::{FaultKind, HandshakeFaultKind};

/// The table.
const RULES: &str = include_str!("../../../../docs/websocket-rules.md");

/// Where close codes and names of faults are defined; 1006 is no code that can be asked for.
const FAULTS: &str = include_str!("../../src/ws/fault.rs");

/// Where tests of rules stand.
const TESTS: &[&str] = &[
    include_str!("close_rules.rs"),
    include_str!("deflate_rules.rs"),
    include_str!("encoding.rs"),
    include_str!("frame_rules.rs"),
    include_str!("handshake_rules.rs"),
    include_str!("text_rules.rs"),
];

/// The table's rows: number of the rule, answers, tests.
fn rows() -> Vec<(usize, Vec<&'static str>, Vec<&'static str>)> {
    let lines = RULES.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect());
    cells
        .map(|cells: Vec<&str>| {
            let [number, _, answers, tests] = cells[..] else {
                panic!("four cells, not {cells:?}");
            };
            let names = tests.split(", ").map(|name| name.trim_matches('`'));
            let number = number.parse().expect("a row begins with its rule");
            (number, answers.split(", ").collect(), names.collect())
        })
        .collect()
}

#[test]
fn every_rule_has_tests_that_exist_and_every_test_its_rule() {
    let numbers: Vec<usize> = rows().iter().map(|row| row.0).collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<_>>());
    let mut listed = Vec::new();
    for (number, _, tests) in rows() {
        for test in tests {
            assert!(
                test.starts_with(&format!("rule_{number}_")),
                "rule {number}: {test}"
            );
            listed.push(test);
        }
    }
    let mut written: Vec<&str> = TESTS
        .iter()
        .flat_map(|file| file.split("#[test]\nfn ").skip(1))
        .filter_map(|text| text.split('(').next())
        .filter(|name| name.starts_with("rule_"))
        .collect();
    written.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, written, "docs/websocket-rules.md and the tests");
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
    let answers = rows().into_iter().flat_map(|row| row.1);
    let mut answers: Vec<&str> = answers.filter(|answer| !answer.starts_with("none")).collect();
    faults.sort_unstable();
    answers.sort_unstable();
    assert_eq!(
        answers, faults,
        "docs/websocket-rules.md and the tables of faults"
    );
}
