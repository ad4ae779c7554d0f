//! What is wrong with settings: all of it at once, each with where it stands.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It works, and is likely not what was meant.
    Warning,
    /// Nothing is served with it.
    Error,
}

/// One thing that is wrong with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where: a file, or an entry of the settings.
    pub source: String,
    /// What was expected, what was found, and what to do.
    pub text: String,
}

impl Finding {
    pub(super) fn error(source: &str, text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            source: source.to_owned(),
            text: text.into(),
        }
    }

    pub(super) fn warning(source: &str, text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            source: source.to_owned(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.text)
    }
}

/// Whether nothing may be served with what was found.
pub(super) fn is_fatal(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}
