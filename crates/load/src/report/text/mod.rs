//! The plain summary: what was run, its figures in aligned columns, and what to doubt about them.
//!
//! Owns how a report reads in a terminal. Knows no flag and writes nowhere: what it gives back is text, at most 100
//! columns wide.

mod compared;
mod sections;
mod setup;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::{ComparisonTable, Remark, Run, Severity};
use crate::figures::Latency;

pub(crate) use setup::{client, load, measured, tls};

/// How text is dressed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Not at all: for files and pipes.
    #[default]
    Plain,
    /// With the colours and weights of a terminal (ANSI).
    Terminal,
}

/// The summary of one run.
#[must_use]
pub fn run(run: &Run, remarks: &[Remark], style: Style) -> String {
    let mut out = String::new();
    setup::write(&mut out, run, style);
    if !run.rounds.is_empty() {
        sections::write(&mut out, run, style);
    }
    write_remarks(&mut out, remarks, style);
    out
}

/// Targets side by side, with what their ratios are worth. The load is told as that of the first of `runs`: it is the same
/// for all.
#[must_use]
pub fn comparison(comparison: &ComparisonTable, runs: &[Run], remarks: &[Remark], style: Style) -> String {
    let mut out = String::new();
    compared::write(&mut out, comparison, runs.first(), style);
    write_remarks(&mut out, remarks, style);
    out
}

/// Latencies put together from several records: where they come from, and one named column for each kind.
#[must_use]
pub fn merged(sources: &[String], latencies: &[(&str, &Latency)], style: Style) -> String {
    let mut out = String::new();
    sections::write_merged(&mut out, sources, latencies, style);
    out
}

/// What to doubt, the worst first.
pub(crate) fn write_remarks(out: &mut String, remarks: &[Remark], style: Style) {
    if remarks.is_empty() {
        return;
    }
    out.push('\n');
    out.push_str(&style.bold("Warnings"));
    out.push('\n');
    let mut sorted: Vec<&Remark> = remarks.iter().collect();
    sorted.sort_by_key(|remark| std::cmp::Reverse(remark.severity));
    for remark in sorted {
        let label = remark.severity.word();
        let padded = format!("{label:<9}");
        let lines = table::wrap(&table::printable(&remark.message), table::WIDTH - 11);
        for (at, line) in lines.iter().enumerate() {
            let label = match at {
                0 => style.severity(remark.severity, &padded),
                _ => Cow::Borrowed("         "),
            };
            out.push_str(&format!("  {label}{line}\n"));
        }
    }
}

impl Style {
    pub(crate) fn bold(self, text: &str) -> Cow<'_, str> {
        self.with("1", text)
    }

    fn quiet(self, text: &str) -> Cow<'_, str> {
        self.with("2", text)
    }

    fn good(self, text: &str) -> Cow<'_, str> {
        self.with("32", text)
    }

    fn bad(self, text: &str) -> Cow<'_, str> {
        self.with("31", text)
    }

    fn severity(self, severity: Severity, text: &str) -> Cow<'_, str> {
        let code = match severity {
            Severity::Note => "36",
            Severity::Warning => "1;33",
        };
        self.with(code, text)
    }

    fn with<'a>(self, code: &str, text: &'a str) -> Cow<'a, str> {
        match self {
            Style::Plain => Cow::Borrowed(text),
            Style::Terminal => Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")),
        }
    }
}
