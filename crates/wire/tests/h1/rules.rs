//! `docs/http1-rules.md` and the tests of the rules name each other, and no fault is missing from the table.

/// The table.
const RULES: &str = include_str!("../../../../docs/http1-rules.md");

/// Where statuses and names of faults are defined.
const FAULTS: &str = include_str!("../../src/h1/fault.rs");

/// Where tests of rules stand.
const TESTS: &[&str] = &[
    include_str!("chunk_rules.rs"),
    include_str!("forwarding_rules.rs"),
    include_str!("framing_rules.rs"),
    include_str!("line_rules.rs"),
    include_str!("response_rules.rs"),
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
    assert_eq!(numbers, (1..=13).collect::<Vec<_>>());
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
    assert_eq!(listed, written, "docs/http1-rules.md and the tests");
}

#[test]
fn every_answer_is_the_fault_s_status_and_every_fault_is_an_answer() {
    let answers: Vec<&str> = rows().into_iter().flat_map(|row| row.1).collect();
    let table = FAULTS.split("\nfaults! {").nth(1).expect("the table of faults");
    let table = table.split("\n}").next().expect("the table ends");
    let mut faults = 0;
    for line in table
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("///"))
    {
        let mut words = line.split(' ');
        let (Some(kind), Some(status)) = (words.next(), words.next()) else {
            continue;
        };
        let answer = format!("{status} {kind}");
        assert!(answers.contains(&answer.as_str()), "`{answer}` is in no row");
        faults += 1;
    }
    assert!(faults > 30, "{faults} faults: the table was not read");
    for answer in answers.iter().filter(|answer| !answer.starts_with("none")) {
        let (status, kind) = answer.split_once(' ').expect("a status and a fault");
        assert!(table.contains(&format!("\n    {kind} {status} \"")), "`{answer}`");
    }
}
