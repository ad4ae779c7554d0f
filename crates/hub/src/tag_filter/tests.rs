//! Filters by tags: each comparison, combinations, numbers, and invalid filters.

use super::TagFilter;
use crate::limits::{FILTER_BYTES, FILTER_DEPTH, FILTER_NODES, FILTER_VALUES};
use crate::protocol::FilterNode;

fn parse(json: &str) -> FilterNode {
    serde_json::from_str(json).expect("a filter in JSON")
}

#[track_caller]
fn check(filter: &str, matches: bool) {
    let tags = [
        ("ticker", "AAPL"),
        ("price", "150.25"),
        ("volume", "1000"),
        ("empty", ""),
        ("loss", "-3.50"),
        ("text", "12x"),
    ];
    let tags = tags.map(|(tag, value)| (tag.to_owned(), value.to_owned())).into();
    let filter_node = TagFilter::new(&parse(filter)).expect("valid");
    assert_eq!(filter_node.matches(&tags), matches, "{filter}");
}

#[test]
fn comparisons() {
    for (filter, matches) in [
        (r#"{"key":"ticker","cmp":"eq","val":"AAPL"}"#, true),
        (r#"{"key":"ticker","cmp":"eq","val":"AAP"}"#, false),
        (r#"{"key":"other","cmp":"eq","val":"AAPL"}"#, false),
        (r#"{"key":"ticker","cmp":"neq","val":"AAPL"}"#, false),
        (r#"{"key":"other","cmp":"neq","val":"AAPL"}"#, true),
        (r#"{"key":"ticker","cmp":"in","vals":["X","AAPL"]}"#, true),
        (r#"{"key":"other","cmp":"in","vals":["X"]}"#, false),
        (r#"{"key":"other","cmp":"in","vals":[""]}"#, true),
        (r#"{"key":"ticker","cmp":"nin","vals":["X"]}"#, true),
        (r#"{"key":"ticker","cmp":"nin","vals":["AAPL"]}"#, false),
        (r#"{"key":"empty","cmp":"ex"}"#, true),
        (r#"{"key":"other","cmp":"ex"}"#, false),
        (r#"{"key":"other","cmp":"nex"}"#, true),
        (r#"{"key":"ticker","cmp":"sw","val":"AA"}"#, true),
        (r#"{"key":"ticker","cmp":"sw","val":"PL"}"#, false),
        (r#"{"key":"ticker","cmp":"ew","val":"PL"}"#, true),
        (r#"{"key":"ticker","cmp":"ct","val":"AP"}"#, true),
        (r#"{"key":"other","cmp":"ct","val":"A"}"#, false),
    ] {
        check(filter, matches);
    }
}

#[test]
fn numbers_are_compared_as_decimals() {
    for (tag, cmp, operand, matches) in [
        ("price", "gt", "150.2", true),
        ("price", "gt", "150.25", false),
        ("price", "gte", "150.250", true),
        ("price", "lt", "1000", true),
        ("price", "lt", "+0150.26", true),
        ("volume", "lte", "999.9999999999999999999", false),
        ("volume", "lte", "1000.0", true),
        ("volume", "gt", "99", true),
        ("loss", "lt", "-3.4", true),
        ("loss", "lt", "-3.6", false),
        ("loss", "lt", "-0", true),
        ("loss", "gte", "0", false),
        // Neither is a number.
        ("text", "lt", "13", false),
        ("text", "gte", "0", false),
        ("volume", "gt", "x", false),
        ("volume", "gt", "1.", false),
        ("volume", "gt", ".5", false),
        ("volume", "gt", "-", false),
        ("volume", "lt", "1e9", false),
        ("volume", "gt", "0.00000000000000000001", false),
        ("other", "gt", "0", false),
    ] {
        check(
            &format!(r#"{{"key":"{tag}","cmp":"{cmp}","val":"{operand}"}}"#),
            matches,
        );
    }
}

#[test]
fn combinations() {
    let (yes, no) = (r#"{"key":"ticker","cmp":"ex"}"#, r#"{"key":"other","cmp":"ex"}"#);
    for (op, nodes, matches) in [
        ("and", vec![yes, yes], true),
        ("and", vec![yes, no], false),
        ("or", vec![no, yes], true),
        ("or", vec![no, no], false),
        ("not", vec![no], true),
        ("not", vec![yes], false),
    ] {
        check(
            &format!(r#"{{"op":"{op}","nodes":[{}]}}"#, nodes.join(",")),
            matches,
        );
    }
    let nested = format!(r#"{{"op":"not","nodes":[{{"op":"and","nodes":[{yes},{no}]}}]}}"#);
    check(&nested, true);
}

#[test]
fn invalid_filters_are_rejected() {
    let leaf = r#"{"key":"a","cmp":"ex"}"#;
    for filter in [
        "{}".to_owned(),
        r#"{"key":"a","cmp":"like","val":"b"}"#.to_owned(),
        r#"{"key":"a","cmp":"eq"}"#.to_owned(),
        r#"{"key":"a","cmp":"eq","val":"b","vals":["c"]}"#.to_owned(),
        r#"{"key":"a","cmp":"in","val":"b"}"#.to_owned(),
        r#"{"key":"a","cmp":"in","vals":["b"],"val":"b"}"#.to_owned(),
        r#"{"key":"a","cmp":"ex","val":"b"}"#.to_owned(),
        r#"{"cmp":"eq","val":"b"}"#.to_owned(),
        r#"{"op":"and"}"#.to_owned(),
        r#"{"op":"or","nodes":[]}"#.to_owned(),
        r#"{"op":"xor","nodes":[{"key":"a","cmp":"ex"}]}"#.to_owned(),
        format!(r#"{{"op":"not","nodes":[{leaf},{leaf}]}}"#),
        format!(
            r#"{{"op":"and","nodes":[{}]}}"#,
            vec![leaf; FILTER_NODES].join(",")
        ),
        format!(
            "{}{leaf}{}",
            r#"{"op":"not","nodes":["#.repeat(FILTER_DEPTH),
            "]}".repeat(FILTER_DEPTH)
        ),
        format!(r#"{{"key":"a","cmp":"eq","val":"{}"}}"#, "x".repeat(FILTER_BYTES)),
    ] {
        assert!(TagFilter::new(&parse(&filter)).is_err(), "{filter}");
    }
    let deepest = FILTER_DEPTH - 1;
    let nested = format!(
        "{}{leaf}{}",
        r#"{"op":"not","nodes":["#.repeat(deepest),
        "]}".repeat(deepest)
    );
    assert!(TagFilter::new(&parse(&nested)).is_ok());
}

/// The values of every list of a filter count against one limit.
#[test]
fn the_values_of_lists_are_limited() {
    let in_list = |values: usize| {
        format!(
            r#"{{"key":"a","cmp":"in","vals":[{}]}}"#,
            vec![r#""b""#; values].join(",")
        )
    };
    let is_valid = |filter: &str| TagFilter::new(&parse(filter)).is_ok();
    assert!(is_valid(&in_list(FILTER_VALUES)));
    assert!(!is_valid(&in_list(FILTER_VALUES + 1)));
    let two = |first, second| {
        format!(
            r#"{{"op":"or","nodes":[{},{}]}}"#,
            in_list(first),
            in_list(second)
        )
    };
    assert!(is_valid(&two(FILTER_VALUES - 1, 1)));
    assert!(!is_valid(&two(FILTER_VALUES - 1, 2)));
}

#[test]
fn equal_filters_have_equal_keys() {
    let filter = |json: &str| TagFilter::new(&parse(json)).expect("valid");
    let one = filter(r#"{"key":"a","cmp":"eq","val":"b"}"#);
    assert_eq!(
        one.key(),
        filter(r#"{"cmp":"eq","val":"b","key":"a","op":""}"#).key()
    );
    assert_ne!(one.key(), filter(r#"{"key":"a","cmp":"eq","val":"c"}"#).key());
}
