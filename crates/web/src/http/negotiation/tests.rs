//! `Accept` against two offers, as RFC 9110 §12.5.1 reads it.

use super::preferred;

const OFFERS: [&str; 2] = ["text/plain", "text/html"];

fn check(values: &[&str], expected: Option<&str>) {
    let values = values.iter().map(|value| value.as_bytes());
    assert_eq!(preferred(values.clone(), &OFFERS), expected, "{values:?}");
}

#[test]
fn the_highest_quality_decides() {
    check(&[], Some("text/plain"));
    check(&["text/html"], Some("text/html"));
    check(&["TEXT/HTML"], Some("text/html"));
    check(&["text/html;q=0.2, text/plain;q=0.3"], Some("text/plain"));
    check(&["text/html;q=0.31", "text/plain; q=0.3"], Some("text/html"));
    check(&["text/html;charset=utf-8;Q=1.000"], Some("text/html"));
    // A browser's.
    check(
        &["text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"],
        Some("text/html"),
    );
}

#[test]
fn quality_zero_means_not_acceptable() {
    check(&["text/html;q=0"], None);
    check(&["text/html; q=0.000"], None);
    check(&["text/html;q=0, */*"], Some("text/plain"));
    check(&["*/*, text/html;q=0"], Some("text/plain"));
    check(&["text/*;q=0, text/html"], Some("text/html"));
    check(&["text/*, text/plain;q=0"], Some("text/html"));
    check(&["image/png"], None);
}

#[test]
fn a_type_that_is_named_precedes_one_that_is_covered() {
    check(&["*/*"], Some("text/plain"));
    check(&["text/*"], Some("text/plain"));
    check(&["text/html, */*"], Some("text/html"));
    check(&["*/*, text/*, text/html"], Some("text/html"));
}

#[test]
fn weights_that_are_none_are_not_acceptance() {
    for weight in ["2", "1.001", "0.0000", "", "-1", "0.x", "1.x", ".5"] {
        check(&[&format!("text/html;q={weight}")], None);
    }
}
