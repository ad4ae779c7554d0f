//! A page with a table of rules, and the tests that hold them: the two name each other.

use std::ops::RangeInclusive;

/// A row: number of the rule, answers, tests.
pub(crate) type Row = (usize, Vec<&'static str>, Vec<&'static str>);

/// The rows of the page's table.
pub(crate) fn rows(page: &'static str) -> Vec<Row> {
    let lines = page.lines().filter(|line| line.starts_with("| ")).skip(1);
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

/// Every rule has tests that exist, and every test in `files` that is named after a rule stands in its row.
pub(crate) fn check_tests(page: &'static str, rules: RangeInclusive<usize>, files: &[&str]) {
    let rows = rows(page);
    let numbers: Vec<usize> = rows.iter().map(|row| row.0).collect();
    assert_eq!(numbers, rules.collect::<Vec<_>>());
    let mut listed = Vec::new();
    for (number, _, tests) in rows {
        for test in tests {
            assert!(
                test.starts_with(&format!("rule_{number}_")),
                "rule {number}: {test}"
            );
            listed.push(test);
        }
    }
    let mut written: Vec<&str> = files
        .iter()
        .flat_map(|file| file.split("#[test]\nfn ").skip(1))
        .filter_map(|text| text.split('(').next())
        .filter(|name| name.starts_with("rule_"))
        .collect();
    written.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, written, "the page and the tests");
}
