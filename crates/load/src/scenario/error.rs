//! What is wrong with a scenario file, and where: one message for what YAML, structure and meaning can be wrong in.

use serde_saphyr::{Error, Location, MessageFormatter, UserMessageFormatter};

use super::values::Position;
use crate::traffic::shorten;

/// A scenario file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}expected {expected}, found {found}", what = told(.what))]
pub struct ScenarioError {
    /// The file, as it was named.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
    /// The key or part that is wrong; empty where place and expectation say it.
    pub what: String,
    /// What should stand there.
    pub expected: String,
    /// What does.
    pub found: String,
}

fn told(what: &str) -> String {
    if what.is_empty() {
        String::new()
    } else {
        format!("{what}: ")
    }
}

impl ScenarioError {
    pub(super) fn new(
        file: &str,
        position: Position,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError {
            file: file.to_owned(),
            line: position.line,
            column: position.column,
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// What the YAML reader found wrong in `text`.
    pub(super) fn of_yaml(file: &str, text: &str, error: &Error) -> ScenarioError {
        let location = error.location().filter(|location| *location != Location::UNKNOWN);
        let position = match location {
            Some(location) => Position {
                line: location.line(),
                column: location.column(),
            },
            None => Position { line: 1, column: 1 },
        };
        let (expected, found) = parts(error, text, position);
        ScenarioError::new(file, position, "", expected, found)
    }
}

/// What was expected and what was found.
fn parts(error: &Error, text: &str, position: Position) -> (String, String) {
    let here = || quoted_rest(text, position);
    if unquoted_token(text, position) {
        return ("quotes around a text that begins with `{{`".to_owned(), here());
    }
    match error.without_snippet() {
        Error::AliasError { error, .. } => parts(error, text, position),
        Error::SerdeInvalidType {
            unexpected, expected, ..
        }
        | Error::SerdeInvalidValue {
            unexpected, expected, ..
        } => (expected.clone(), unexpected.clone()),
        Error::SerdeInvalidLength { len, expected, .. } => (expected.clone(), format!("{len} of them")),
        Error::SerdeUnknownField { field, expected, .. } => {
            (format!("one of the keys {}", listed(expected)), quoted(field))
        }
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => (format!("one of the keys {}", listed(expected)), quoted(variant)),
        Error::SerdeMissingField { field, .. } => (format!("the key `{field}` here"), "none".to_owned()),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or_else(here, quoted);
            ("each key once".to_owned(), format!("{key} a second time"))
        }
        Error::MultipleDocuments { .. } => ("one YAML document".to_owned(), "a second one".to_owned()),
        Error::Eof { .. } => ("the key `flows`".to_owned(), "the end of the file".to_owned()),
        Error::InvalidScalar { ty, .. } => (plain(ty).to_owned(), here()),
        Error::InvalidBooleanStrict { .. } => ("true or false".to_owned(), here()),
        Error::NonFiniteFloat { value, .. } => ("a finite number".to_owned(), quoted(value)),
        Error::NullIntoString { .. } => ("a text".to_owned(), "nothing".to_owned()),
        Error::UnknownAnchor { .. } => ("an alias of an anchor further up".to_owned(), here()),
        Error::Unexpected { expected, .. } => (plain(expected).to_owned(), here()),
        Error::Budget { breach, .. } => {
            let expected = "a file without deep nesting and without thousands of aliases";
            (expected.to_owned(), format!("{breach:?}"))
        }
        other => {
            let message = UserMessageFormatter.format_message(other);
            ("valid YAML".to_owned(), one_line(&message))
        }
    }
}

/// What the YAML reader calls by the names of its events and of Rust's types.
fn plain(expected: &'static str) -> &'static str {
    match expected {
        "sequence start" => "a list",
        "mapping start" => "keys with values",
        "string scalar" => "a text",
        "u32" | "u64" | "usize" => "a whole number that is not negative and not too large",
        "floating point" => "a number",
        other => other,
    }
}

/// Whether what is wrong at a place is that YAML reads `{{seq}}` as keys and values. It then complains of the first or of
/// the second brace.
fn unquoted_token(text: &str, position: Position) -> bool {
    let before = Position {
        column: position.column.saturating_sub(1),
        ..position
    };
    rest(text, position).starts_with("{{") || position.column > 1 && rest(text, before).starts_with("{{")
}

fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn quoted(text: &str) -> String {
    format!("`{}`", shorten(text))
}

/// What stands at a place, up to the end of its line.
fn rest(text: &str, position: Position) -> &str {
    let line = usize::try_from(position.line)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let column = usize::try_from(position.column)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let line = text.lines().nth(line).unwrap_or_default();
    let start = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    line[start..].trim_end()
}

fn quoted_rest(text: &str, position: Position) -> String {
    match rest(text, position) {
        "" => "nothing".to_owned(),
        rest => quoted(rest),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
