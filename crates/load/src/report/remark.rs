//! Something that a reader must know before believing the figures.

use schemars::JsonSchema;
use serde::Serialize;

/// A sentence about the figures, with how much it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// How much it matters.
    pub severity: Severity,
    /// What was found, by which figures, and what to do about it.
    pub message: String,
}

/// How much a doubt or another remark matters, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know; the figures stand.
    Note,
    /// The figures may not be what they seem.
    Warning,
}

impl Severity {
    /// As a word: `note`, `warning`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
        }
    }
}
