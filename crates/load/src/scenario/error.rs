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
        let (what, expected, found) = parts(error, text, position);
        ScenarioError::new(file, position, what, expected, found)
    }
}

fn parts(error: &Error, text: &str, position: Position) -> (&'static str, String, String) {
    let here = || quoted_rest(text, position);
    match error.without_snippet() {
        Error::AliasError { error, .. } => parts(error, text, position),
        Error::SerdeInvalidType {
            unexpected, expected, ..
        }
        | Error::SerdeInvalidValue {
            unexpected, expected, ..
        } => ("", expected.clone(), unexpected.clone()),
        Error::SerdeInvalidLength { len, expected, .. } => ("", expected.clone(), format!("{len} of them")),
        Error::SerdeUnknownField { field, expected, .. } => {
            ("", format!("one of the keys {}", listed(expected)), quoted(field))
        }
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => (
            "",
            format!("one of the keys {}", listed(expected)),
            quoted(variant),
        ),
        Error::SerdeMissingField { field, .. } => ("", format!("the key `{field}` here"), "none".to_owned()),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or_else(here, quoted);
            ("", "each key once".to_owned(), format!("{key} a second time"))
        }
        Error::MultipleDocuments { .. } => ("", "one YAML document".to_owned(), "a second one".to_owned()),
        Error::Eof { .. } => ("", "the key `flows`".to_owned(), "the end of the file".to_owned()),
        Error::InvalidScalar { ty, .. } => ("", format!("a value of the type {ty}"), here()),
        Error::NullIntoString { .. } => ("", "a text".to_owned(), "nothing".to_owned()),
        Error::Unexpected { expected, .. } => ("", (*expected).to_owned(), here()),
        Error::Budget { breach, .. } => {
            let expected = "a file without deep nesting and without thousands of aliases";
            ("limits", expected.to_owned(), format!("{breach:?}"))
        }
        other => {
            let message = UserMessageFormatter.format_message(other);
            (
                "YAML",
                "valid YAML as docs/bench-scenario.schema.json describes it".to_owned(),
                one_line(&message),
            )
        }
    }
}

fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn quoted(text: &str) -> String {
    format!("`{}`", shorten(text))
}

/// What stands at a place, up to the end of its line.
fn quoted_rest(text: &str, position: Position) -> String {
    let line = usize::try_from(position.line)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let column = usize::try_from(position.column)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let line = text.lines().nth(line).unwrap_or_default();
    let rest: String = line.chars().skip(column).collect();
    match rest.trim_end() {
        "" => "nothing".to_owned(),
        rest => quoted(rest),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
