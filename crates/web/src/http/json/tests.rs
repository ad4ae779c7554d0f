//! JSON in: accepted documents, and the messages about rejected ones. JSON out: all or nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::*;

const DEPTH: usize = 16;

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct JsonOrder {
    items: Vec<Item>,
    #[serde(default)]
    size: Option<ShirtSize>,
    #[serde(default)]
    at: Option<Point>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct Item {
    price: f64,
    #[serde(default)]
    count: u8,
    #[serde(default)]
    name: String,
    #[serde(default)]
    there: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShirtSize {
    Small,
    Large,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct Point(f64, f64);

fn refused<'a, T: Deserialize<'a>>(body: &'a str) -> String {
    match read::<T>(body.as_bytes(), DEPTH) {
        Ok(_) => panic!("`{body}` was taken"),
        Err(error) => {
            assert_eq!(error.status(), 400, "{body}");
            error.detail().to_owned()
        }
    }
}

fn check(body: &str, expected: &str) {
    assert_eq!(refused::<JsonOrder>(body), expected, "{body}");
}

#[test]
fn valid_documents_are_accepted() {
    let order: JsonOrder = read(
        br#" {"items": [{"price": 1.5, "name": "a\"]}["}, {"price": 2}], "size": "small", "at": [1, 2], "x": null} "#,
        DEPTH,
    )
    .unwrap();
    assert_eq!(order.items.len(), 2);
    assert!(matches!(order.size, Some(ShirtSize::Small)));
    let text: &str = read(br#""borrowed""#, 0).unwrap();
    assert_eq!(text, "borrowed");
}

#[test]
fn a_wrong_value_is_named_by_its_path() {
    check(
        "{\"items\": [{\"price\": 1},\n{\"price\": 1},\n{\"price\": \"1.5\"}]}",
        "expected a number at `items[2].price`, found a string (line 3, column 15)",
    );
    check(
        r#"{"items": [{"price": 1, "count": 300}]}"#,
        "expected an integer from 0 to 255 at `items[0].count`, found the number 300 (line 1, column 36)",
    );
    check(
        r#"{"items": [{"price": 1, "count": 1.5}]}"#,
        "expected an integer from 0 to 255 at `items[0].count`, found the number 1.5 (line 1, column 36)",
    );
    check(
        r#"{"items": [{"price": 1, "name": null}]}"#,
        "expected a string at `items[0].name`, found null (line 1, column 36)",
    );
    check(
        r#"{"items": [{"price": 1, "there": "x, expected y"}]}"#,
        "expected a boolean at `items[0].there`, found a string (line 1, column 48)",
    );
    check(
        r#"{"items": {}}"#,
        "expected an array at `items`, found an object (line 1, column 10)",
    );
    check("7", "expected an object, found the number 7 (line 1, column 1)");
    check(
        r#"{"items": [true]}"#,
        "expected an object at `items[0]`, found true (line 1, column 15)",
    );
    check(
        r#"{"items": [], "size": []}"#,
        "expected a value of another kind at `size` (line 1, column 23)",
    );
    check(
        r#"{"items": [], "at": [1]}"#,
        "expected an array of 2 elements at `at`, found 1 element (line 1, column 23)",
    );
}

#[test]
fn a_member_too_few_or_too_many_is_named() {
    check(
        r#"{"items": [{}]}"#,
        "missing field `price` at `items[0]` (line 1, column 13)",
    );
    check(
        r#"{"items": [], "items": []}"#,
        "duplicate field `items` (line 1, column 21)",
    );
    check(
        r#"{"items": [], "size": "huge"}"#,
        "unknown variant `huge`, expected `small` or `large` at `size` (line 1, column 28)",
    );
    let unknown = refused::<JsonOrder>(r#"{"items": [{"prize": 1}]}"#);
    assert!(
        unknown.starts_with("unknown field `prize`, expected one of `price`, `count`, "),
        "{unknown}"
    );
    let long = refused::<JsonOrder>(&format!(r#"{{"items": [{{"{}": 1}}]}}"#, "é".repeat(5000)));
    assert!(long.len() < 1000, "{long}");
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let table = [
        ("", "expected a JSON document, found an empty body"),
        (" \r\n\t", "expected a JSON document, found an empty body"),
        (
            r#"{"items": []} x"#,
            "not valid JSON: there is more behind the end of the document (line 1, column 15)",
        ),
        (
            r#"{"items": [],}"#,
            "not valid JSON: a comma with nothing behind it (line 1, column 14)",
        ),
        (
            r#"{"items": ["#,
            "not valid JSON: it ends inside an array (line 1, column 11)",
        ),
        ("{", "not valid JSON: it ends inside an object (line 1, column 1)"),
        (
            r#"{"items"#,
            "not valid JSON: it ends inside a string (line 1, column 7)",
        ),
        (
            r#"{"items":"#,
            "not valid JSON: it ends where a value is expected (line 1, column 9)",
        ),
        ("nope", "not valid JSON: expected ident (line 1, column 2)"),
        (
            "{'a': 1}",
            "not valid JSON: key must be a string (line 1, column 2)",
        ),
        ("]]][[[", "not valid JSON: expected value (line 1, column 1)"),
    ];
    for (body, expected) in table {
        assert_eq!(refused::<Value>(body), expected, "{body}");
    }
    let error = read::<Value>(b"\"\xff\"", DEPTH).unwrap_err();
    assert_eq!(
        error.detail(),
        "not valid JSON: a string that is not UTF-8, or an escape that is no character (line 1, column 2)"
    );
}

#[test]
fn depth_is_counted_outside_strings() {
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        [open.repeat(times), inner.to_owned(), close.repeat(times)].concat()
    };
    let table = [
        (nested("[", "", "]", 16), true),
        (nested("[", "", "]", 17), false),
        (nested("{\"a\":", "1", "}", 16), true),
        (nested("{\"a\":", "1", "}", 17), false),
        (nested("[", "\"[[[[{{{{\\\"[[[[[[[[[[[[[[[[\\\\\"", "]", 16), true),
        (nested("[", "\"\\\\\",[]", "]", 16), false),
        (format!("[{}[]]", "[],".repeat(100)), true),
    ];
    for (body, taken) in table {
        let result = read::<Value>(body.as_bytes(), DEPTH);
        assert_eq!(result.is_ok(), taken, "{body}: {result:?}");
    }
    let body = format!("[\n  {}{}]", "[".repeat(16), "]".repeat(16));
    assert_eq!(
        refused::<Value>(&body),
        "the JSON document is nested deeper than 16 (line 2, column 18)"
    );
}

/// Returns the actual depth of a parsed document.
fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

/// A document of pieces that are hard to tell apart: brackets, quotation marks and backslashes in and out of strings.
fn document(random: &mut impl FnMut(u64) -> u64, depth: usize) -> String {
    let strings = [r#""[""#, r#""\\""#, r#""\"{""#, r#""]\\\"[[""#, r#""\u005b}""#];
    let mut string = || strings[random(strings.len() as u64) as usize].to_owned();
    let text = string();
    let kind = if depth == 0 { 0 } else { random(4) };
    match kind {
        0 => text,
        1 => "7".into(),
        2 => {
            let inner = (0..random(4)).map(|_| document(random, depth - 1));
            format!("[{}]", inner.collect::<Vec<_>>().join(", "))
        }
        _ => {
            let inner = (0..random(3)).map(|index| format!("\"{index}[\": {}", document(random, depth - 1)));
            format!("{{{}}}", inner.collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn the_depth_is_that_of_the_parsed_document() {
    for seed in 1..3000_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = move |limit| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        let body = document(&mut random, 6);
        let depth = depth_of(&serde_json::from_str(&body).expect("JSON"));
        let bytes = body.as_bytes();
        assert!(read::<Value>(bytes, depth).is_ok(), "seed {seed}: {body}");
        if depth > 0 {
            let error = read::<Value>(bytes, depth - 1).expect_err("too deep");
            assert!(error.detail().contains("nested deeper"), "seed {seed}: {error}");
        }
    }
}

#[test]
fn the_highest_depth_limit_is_within_the_parsers() {
    for (times, taken) in [
        (limits::MAX_JSON_DEPTH, true),
        (limits::MAX_JSON_DEPTH + 1, false),
        (100_000, false),
    ] {
        let body = ["[".repeat(times), "]".repeat(times)].concat();
        let result = read::<Value>(body.as_bytes(), usize::MAX);
        assert_eq!(result.is_ok(), taken, "{times}");
        if let Err(error) = result {
            assert!(error.detail().contains("deeper than 127"), "{error}");
        }
    }
    assert!(read::<u8>(b"1", 0).is_ok());
    assert!(read::<Value>(b"[]", 0).is_err());
}

#[test]
fn a_failed_write_leaves_the_output_unchanged() {
    let mut out = b"kept".to_vec();
    write(&mut out, "a\n").unwrap();
    assert_eq!(out, br#"kept"a\n""#);
    let impossible = BTreeMap::from([((1, 2), 3)]);
    let error = write(&mut out, &[impossible]).unwrap_err();
    assert_eq!((error.status(), error.detail()), (500, ""));
    assert!(error.cause().is_some());
    assert_eq!(out, br#"kept"a\n""#);
}

#[test]
fn media_types_of_json() {
    let table: [(&[u8], bool); 14] = [
        (b"application/json", true),
        (b"Application/JSON ; charset=utf-8", true),
        (b"application/json;charset=utf-8", true),
        (b" application/json", true),
        (b"application/problem+json", true),
        (b"application/vnd.api+JSON; a=b", true),
        (b"application/+json", false),
        (b"text/json", false),
        (b"application/jsonp", false),
        (b"application/x+jsonx", false),
        (b"text/plain; a=application/json", false),
        (b"application/json, text/plain", false),
        (b"json", false),
        (b"", false),
    ];
    for (content_type, expected) in table {
        assert_eq!(is_json(content_type), expected, "{}", content_type.escape_ascii());
    }
}
