//! Errors and warnings of a configuration file, in its order: as text with the line of each, or as JSON.

use std::io::{self, Write};

use ringmain_control::config::{ConfigError, ConfigSource, FilePosition, Warning};
use ringmain_control::edge::CheckedFile;
use serde_json::{Value, json};

/// The findings of a file.
pub(super) struct Findings<'c> {
    source: &'c ConfigSource,
    all: Vec<Finding<'c>>,
    /// The number of errors that are not listed.
    omitted: usize,
}

enum Finding<'c> {
    Error(&'c ConfigError),
    Warning(&'c Warning),
}

impl Finding<'_> {
    fn position(&self) -> FilePosition {
        match self {
            Finding::Error(error) => error.position,
            Finding::Warning(warning) => warning.position,
        }
    }

    fn file(&self) -> &str {
        match self {
            Finding::Error(error) => &error.file,
            Finding::Warning(warning) => &warning.file,
        }
    }

    fn severity(&self) -> &'static str {
        match self {
            Finding::Error(_) => "error",
            Finding::Warning(_) => "warning",
        }
    }

    fn message(&self) -> String {
        match self {
            Finding::Error(error) => error.message(),
            Finding::Warning(warning) => warning.text.clone(),
        }
    }
}

impl<'c> Findings<'c> {
    pub(super) fn new(checked: &'c CheckedFile) -> Findings<'c> {
        let rejected = checked.outcome.as_ref().err();
        let errors = rejected.map_or(&[][..], |rejected| &rejected.errors);
        let errors = errors.iter().map(Finding::Error);
        let warnings = checked.warnings.iter().map(Finding::Warning);
        let mut all: Vec<_> = errors.chain(warnings).collect();
        all.sort_by_key(Finding::position);
        Findings {
            source: &checked.source,
            all,
            omitted: rejected.map_or(0, |rejected| rejected.omitted),
        }
    }

    /// Prints each with its line, and a caret below its column.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for finding in &self.all {
            let FilePosition { line, column } = finding.position();
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            writeln!(out, "{}: {}", finding.severity(), finding.message())?;
            writeln!(out, "{margin}--> {}:{line}:{column}", finding.file())?;
            if let Some(excerpt) = self.source.excerpt(finding.position()) {
                writeln!(out, "{margin} |")?;
                writeln!(out, "{number} | {}", excerpt.line)?;
                writeln!(out, "{margin} | {}^", " ".repeat(excerpt.offset))?;
            }
            writeln!(out)?;
        }
        match self.omitted {
            0 => Ok(()),
            omitted => writeln!(out, "error: {}\n", more_errors(omitted)),
        }
    }

    /// Returns an array of the findings.
    pub(super) fn to_json(&self) -> Value {
        let mut all: Vec<Value> = self
            .all
            .iter()
            .map(|finding| self.finding_json(finding))
            .collect();
        if self.omitted > 0 {
            all.push(json!({ "severity": "error", "message": more_errors(self.omitted) }));
        }
        Value::Array(all)
    }

    fn finding_json(&self, finding: &Finding<'_>) -> Value {
        let position = finding.position();
        // An error of a whole part has its position, and a map that of its first key.
        let of_key = matches!(finding, Finding::Error(error) if error.part.is_empty());
        let mut json = json!({
            "file": finding.file(),
            "line": position.line,
            "column": position.column,
            "path": self.source.pointer(position, of_key),
            "severity": finding.severity(),
            "message": finding.message(),
        });
        if let Finding::Error(error) = finding {
            json["expected"] = error.expected.clone().into();
            json["found"] = error.found.clone().into();
        }
        json
    }
}

fn more_errors(count: usize) -> String {
    match count {
        1 => "1 more error".to_owned(),
        count => format!("{count} more errors"),
    }
}
