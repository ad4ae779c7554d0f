//! The commands with cargo-nextest and without.

use super::lines;

#[track_caller]
fn check(nextest: bool, filters: &[&str], expect: &[&str]) {
    let found: Vec<String> = lines(nextest, filters)
        .iter()
        .map(|line| line.join(" "))
        .collect();
    assert_eq!(found, expect);
}

#[test]
fn documentation_is_tested_with_both() {
    check(false, &[], &["test --no-fail-fast --workspace --all-features"]);
    check(
        true,
        &[],
        &[
            "nextest run --workspace --all-features",
            "test --doc --workspace --all-features",
        ],
    );
}

#[test]
fn filters_select_tests_by_name() {
    check(
        false,
        &["stall", "udp"],
        &["test --no-fail-fast --workspace --all-features -- stall udp"],
    );
    check(
        true,
        &["stall"],
        &["nextest run --workspace --all-features stall"],
    );
}
