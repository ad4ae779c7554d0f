//! Error messages about rejected JSON documents, in the terms of JSON, not of Rust.
//!
//! Knows the messages of serde and serde_json; an unknown one is used unchanged.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::http::client_text;
use crate::http::error::Error;
use crate::http::expected_type;

/// Returns 400 for `error`, which occurred at `path` of the document.
pub(super) fn fault(body: &[u8], error: &serde_json::Error, path: &str) -> Error {
    if body.trim_ascii().is_empty() {
        return Error::bad_request("expected a JSON document, found an empty body");
    }
    let message = error.to_string();
    let at_line = format!(" at line {} column {}", error.line(), error.column());
    let sentence = message.strip_suffix(&at_line).unwrap_or(&message);
    let at_line = format!("line {}, column {}", error.line(), error.column());
    Error::bad_request(if error.is_data() {
        wrong_value(
            &client_text::truncate(sentence),
            &client_text::truncate(path),
            &at_line,
        )
    } else if sentence == "expected value" && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        // To the parser an invalid variant of an enumeration is a syntax error.
        let path = client_text::truncate(path);
        format!("expected a value of another kind at `{path}` ({at_line})")
    } else {
        format!("not valid JSON: {} ({at_line})", syntax(sentence))
    })
}

/// Returns 400 for a bracket at byte `at` that nests deeper than `limit`.
pub(super) fn too_deep(body: &[u8], at: usize, limit: usize) -> Error {
    let before = &body[..at];
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    Error::bad_request(format!(
        "the JSON document is nested deeper than {limit} (line {line}, column {column})"
    ))
}

/// Rewrites serde's `sentence`: `invalid type: string "a", expected u8` and similar.
fn wrong_value(sentence: &str, path: &str, at_line: &str) -> String {
    // The path of the document itself is a dot.
    let location = match path {
        "" | "." => String::new(),
        _ => format!(" at `{path}`"),
    };
    match expected_and_found(sentence) {
        Some((expected, found)) => format!("expected {expected}{location}, found {found} ({at_line})"),
        None => format!("{}{location} ({at_line})", plainly(sentence)),
    }
}

/// Translates a message of serde for clients, without names of Rust's types and of the application's own.
pub(crate) fn plainly(sentence: &str) -> String {
    if let Some((expected, found)) = expected_and_found(sentence) {
        return format!("expected {expected}, found {found}");
    }
    if sentence.starts_with("data did not match any variant of untagged enum") {
        return "expected a value in one of the accepted forms".to_owned();
    }
    sentence.to_owned()
}

/// Splits `invalid type: string "a", expected u8` and similar into its two parts.
fn expected_and_found(sentence: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let invalid = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = invalid.iter().find_map(|start| sentence.strip_prefix(start))?;
    // The found value may be a string with any text in it, so the last comma counts.
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let found = if sentence.starts_with("invalid length") {
        elements(found)
    } else {
        found_in_json(found)
    };
    Some((expected_in_json(expected), found))
}

/// Replaces names of Rust's types and of the application's own, which mean nothing to a client.
fn expected_in_json(expected: &str) -> Cow<'_, str> {
    let integer = match expected.strip_prefix("a nonzero ") {
        Some(name) => expected_type::nonzero(name),
        None => expected_type::integer(expected),
    };
    if let Some(integer) = integer {
        return Cow::Borrowed(integer);
    }
    Cow::Borrowed(match expected {
        "f32" | "f64" => "a number",
        "a borrowed string" => "a string without escapes",
        "unit" => "null",
        "a map" => "an object",
        "a sequence" => "an array",
        "option" => "a value or null",
        "variant identifier" | "field identifier" => "a string",
        _ if expected.starts_with("struct ") || expected.starts_with("map ") => "an object",
        _ if expected.contains(" tagged enum ") => "an object",
        _ if expected.starts_with("unit struct ") || expected.starts_with("unit variant ") => "null",
        _ if expected.starts_with("newtype ") => "another value",
        _ if expected.starts_with("enum ") => "a string or an object with one member",
        _ if expected.starts_with("tuple ") || expected.starts_with("an array of length ") => {
            return array_of(expected);
        }
        _ => expected,
    })
}

/// Rewrites `tuple struct Point with 2 elements`, `a tuple of size 2`, `an array of length 2`: the number is the only one.
fn array_of(expected: &str) -> Cow<'_, str> {
    let mut words = expected.split(' ').rev();
    match words.find(|word| word.parse::<u64>().is_ok()) {
        Some(number) => Cow::Owned(format!("an array of {}", elements(number))),
        None => Cow::Borrowed("an array"),
    }
}

fn elements(number: &str) -> Cow<'_, str> {
    Cow::Owned(match number {
        "1" => "1 element".into(),
        _ => format!("{number} elements"),
    })
}

/// Omits texts of the document.
fn found_in_json(found: &str) -> Cow<'_, str> {
    let number = found
        .strip_prefix("integer `")
        .or_else(|| found.strip_prefix("floating point `"))
        .and_then(|rest| rest.strip_suffix('`'));
    if let Some(number) = number {
        return Cow::Owned(format!("the number {number}"));
    }
    Cow::Borrowed(match found {
        "boolean `true`" => "true",
        "boolean `false`" => "false",
        "map" => "an object",
        "sequence" => "an array",
        "number" => "a number",
        _ if found.starts_with("string ") => "a string",
        _ if found.starts_with("character ") => "a string",
        _ => found,
    })
}

/// Rewrites the syntax errors of serde_json that can be stated more clearly.
fn syntax(sentence: &str) -> Cow<'_, str> {
    Cow::Borrowed(match sentence {
        "trailing characters" => "there is more behind the end of the document",
        "EOF while parsing a list" => "it ends inside an array",
        "EOF while parsing an object" => "it ends inside an object",
        "EOF while parsing a string" => "it ends inside a string",
        "EOF while parsing a value" => "it ends where a value is expected",
        "trailing comma" => "a comma with nothing behind it",
        "invalid unicode code point" => "a string that is not UTF-8, or an escape that is no character",
        "recursion limit exceeded" => "it is nested too deep",
        _ => sentence,
    })
}
