//! Preconditions by tables, in the order of RFC 9110 §13.2.2.

use std::time::Duration;

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_request};

use super::Precondition::{Failed, NotModified, Proceed};
use super::{Precondition, Validators};

/// 1994-11-06T08:49:37Z
const CHANGED: Duration = Duration::from_secs(784_111_777);
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

const GO: Precondition = Proceed { range: true };
const WHOLE: Precondition = Proceed { range: false };

fn evaluate(validators: &Validators, method: &str, fields: &[(&str, &str)]) -> Precondition {
    let lines: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut table = FieldTable::new(&Limits::INTERNET);
    let parsed = parse_request(
        text.as_bytes(),
        &Limits::INTERNET,
        &mut HeadScanner::new(),
        &mut table,
    );
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("{text}");
    };
    validators.evaluate(head.method, &head.fields)
}

#[track_caller]
fn check(method: &str, fields: &[(&str, &str)], expected: Precondition) {
    let validators = Validators::new().etag("\"v,1\"").modified(CHANGED);
    assert_eq!(
        evaluate(&validators, method, fields),
        expected,
        "{method} {fields:?}"
    );
}

#[test]
fn if_match_compares_strongly_and_precedes_dates() {
    check("GET", &[("If-Match", "\"v,1\"")], GO);
    check("GET", &[("If-Match", "\"zz\", \"v,1\"")], GO);
    check("GET", &[("If-Match", "\"zz\""), ("If-Match", "\"v,1\"")], GO);
    check("GET", &[("If-Match", "*")], GO);
    for method in ["GET", "HEAD", "PUT"] {
        check(method, &[("If-Match", "\"zz\"")], Failed);
        check(method, &[("If-Match", "W/\"v,1\"")], Failed);
        check(method, &[("If-Match", "v,1")], Failed);
        check(method, &[("If-Match", "")], Failed);
    }
    // Which of the two decides.
    check(
        "GET",
        &[("If-Match", "\"v,1\""), ("If-Unmodified-Since", BEFORE)],
        GO,
    );
    check(
        "GET",
        &[("If-Match", "\"zz\""), ("If-Unmodified-Since", AFTER)],
        Failed,
    );
}

#[test]
fn if_unmodified_since_compares_dates() {
    check("PUT", &[("If-Unmodified-Since", BEFORE)], Failed);
    check("GET", &[("If-Unmodified-Since", SAME)], GO);
    check("GET", &[("If-Unmodified-Since", AFTER)], GO);
    check("GET", &[("If-Unmodified-Since", "yesterday")], GO);
}

#[test]
fn if_none_match_compares_weakly_and_precedes_dates() {
    for tags in ["\"v,1\"", "W/\"v,1\"", "\"zz\" , W/\"v,1\"", "*"] {
        check("GET", &[("If-None-Match", tags)], NotModified);
        check("HEAD", &[("If-None-Match", tags)], NotModified);
        check("PUT", &[("If-None-Match", tags)], Failed);
    }
    check("GET", &[("If-None-Match", "\"v\", \"1\"")], GO);
    check(
        "GET",
        &[("If-None-Match", "\"zz\""), ("If-Modified-Since", AFTER)],
        GO,
    );
}

#[test]
fn if_modified_since_is_for_reading() {
    check("GET", &[("If-Modified-Since", BEFORE)], GO);
    check("GET", &[("If-Modified-Since", SAME)], NotModified);
    check("HEAD", &[("If-Modified-Since", AFTER)], NotModified);
    check("PUT", &[("If-Modified-Since", AFTER)], GO);
    check("GET", &[("If-Modified-Since", "784111777")], GO);
    check(
        "GET",
        &[("If-Modified-Since", SAME), ("If-Modified-Since", SAME)],
        GO,
    );
}

#[test]
fn the_first_that_fails_decides() {
    check(
        "GET",
        &[("If-None-Match", "\"v,1\""), ("If-Match", "\"zz\"")],
        Failed,
    );
    check(
        "GET",
        &[("If-Modified-Since", SAME), ("If-Unmodified-Since", BEFORE)],
        Failed,
    );
    check(
        "GET",
        &[("If-Match", "\"v,1\""), ("If-None-Match", "\"v,1\"")],
        NotModified,
    );
}

#[test]
fn if_range_accepts_strong_tags_and_the_exact_date() {
    check("GET", &[("If-Range", "\"v,1\"")], GO);
    check("GET", &[("If-Range", SAME)], GO);
    for condition in ["\"zz\"", "W/\"v,1\"", BEFORE, AFTER, "x"] {
        check("GET", &[("If-Range", condition)], WHOLE);
    }
    // Part of another version is never sent: preconditions precede the range.
    check("GET", &[("If-Match", "\"zz\""), ("If-Range", "\"v,1\"")], Failed);
}

#[test]
fn weak_and_missing_validators() {
    let weak = Validators::new().etag("W/\"v\"");
    assert_eq!(evaluate(&weak, "GET", &[("If-Match", "W/\"v\"")]), Failed);
    assert_eq!(evaluate(&weak, "GET", &[("If-None-Match", "\"v\"")]), NotModified);
    assert_eq!(evaluate(&weak, "GET", &[("If-Range", "W/\"v\"")]), WHOLE);
    let none = Validators::new();
    assert_eq!(evaluate(&none, "GET", &[("If-Match", "*")]), GO);
    assert_eq!(evaluate(&none, "GET", &[("If-Match", "\"v\"")]), Failed);
    assert_eq!(evaluate(&none, "PUT", &[("If-None-Match", "*")]), Failed);
    assert_eq!(evaluate(&none, "GET", &[("If-Unmodified-Since", BEFORE)]), GO);
    assert_eq!(evaluate(&none, "GET", &[("If-Modified-Since", AFTER)]), GO);
}
