//! Errors of a configuration file, with positions: one form for YAML, structure and meaning.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::limits;

/// A line and a column of a file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
}

impl FilePosition {
    /// The start of a file.
    pub(super) const START: FilePosition = FilePosition { line: 1, column: 1 };
}

/// An error of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}:{}: {}", .position.line, .position.column, self.message())]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// The position.
    pub position: FilePosition,
    /// The part of the configuration; empty if position and expectation identify it.
    pub part: String,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
    /// A suggestion or an explanation; may be empty.
    pub advice: String,
}

impl ConfigError {
    /// Returns the error without its position.
    #[must_use]
    pub fn message(&self) -> String {
        let (part, advice) = (prefixed(&self.part), suffixed(&self.advice));
        format!("{part}expected {}, found {}{advice}", self.expected, self.found)
    }
}

/// A warning: valid as written, but probably not intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file, as it was named.
    pub file: String,
    /// The position.
    pub position: FilePosition,
    /// The problem, and the solution.
    pub text: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FilePosition { line, column } = self.position;
        write!(f, "{}:{line}:{column}: warning: {}", self.file, self.text)
    }
}

fn prefixed(part: &str) -> String {
    if part.is_empty() {
        String::new()
    } else {
        format!("{part}: ")
    }
}

fn suffixed(advice: &str) -> String {
    if advice.is_empty() {
        String::new()
    } else {
        format!("; {advice}")
    }
}

/// Collects errors and warnings.
pub(super) struct Diagnostics<'f> {
    file: &'f str,
    all: RefCell<Vec<ConfigError>>,
    omitted: Cell<usize>,
    /// The original texts of expanded values, which errors quote.
    written: BTreeMap<FilePosition, String>,
    /// Texts with a `${…}` that has no value, as they were written. The missing variable or file is their only error.
    unexpanded: BTreeMap<FilePosition, String>,
    /// The maps that contain them: a key that is missing there may be the one without a value.
    incomplete: BTreeSet<FilePosition>,
    /// Errors that only follow from those.
    derived: Cell<usize>,
    /// The positions of secrets.
    secrets: RefCell<BTreeSet<FilePosition>>,
    warnings: RefCell<Vec<Warning>>,
}

impl<'f> Diagnostics<'f> {
    pub(super) fn new(file: &'f str) -> Diagnostics<'f> {
        Diagnostics {
            file,
            all: RefCell::default(),
            omitted: Cell::new(0),
            written: BTreeMap::new(),
            unexpanded: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            derived: Cell::new(0),
            secrets: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// Records that a value was expanded: errors quote the original text.
    pub(super) fn record_expansion(&mut self, position: FilePosition, written: &str) {
        self.written.insert(position, written.to_owned());
    }

    /// Records a text in the map at `holder` whose `${…}` has no value, which was reported: no other error is reported at its position.
    pub(super) fn leave_unexpanded(&mut self, position: FilePosition, holder: FilePosition, written: &str) {
        self.unexpanded.insert(position, written.to_owned());
        self.incomplete.insert(holder);
    }

    /// Returns the texts with `${…}` that has no value.
    pub(super) fn unexpanded_texts(&self) -> Vec<String> {
        self.unexpanded.values().cloned().collect()
    }

    /// Adds a warning.
    pub(super) fn warn(&self, position: FilePosition, text: String) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < limits::CONFIG_ERRORS {
            warnings.push(Warning {
                file: self.file.to_owned(),
                position,
                text,
            });
        }
    }

    /// Returns whether the value at this position was expanded from the environment or a file.
    pub(super) fn is_expanded(&self, position: FilePosition) -> bool {
        self.written.contains_key(&position)
    }

    /// Marks the value at this position as a secret: errors do not quote it.
    pub(super) fn mark_secret(&self, position: FilePosition) {
        self.secrets.borrow_mut().insert(position);
    }

    /// Returns the positions of values that were marked as secrets.
    pub(super) fn into_secrets(self) -> BTreeSet<FilePosition> {
        self.secrets.into_inner()
    }

    /// Returns the number of errors, including those that only follow from others.
    pub(super) fn count(&self) -> usize {
        self.all.borrow().len() + self.omitted.get() + self.derived.get()
    }

    pub(super) fn report(
        &self,
        position: FilePosition,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.report_part(position, "", expected.into(), found.into(), "");
    }

    pub(super) fn report_part(
        &self,
        position: FilePosition,
        part: &str,
        expected: String,
        found: String,
        advice: &str,
    ) {
        let lacks = found == "none" && self.incomplete.contains(&position);
        if lacks || self.unexpanded.contains_key(&position) {
            self.derived.set(self.derived.get() + 1);
            return;
        }
        let mut all = self.all.borrow_mut();
        if all.len() == limits::CONFIG_ERRORS {
            self.omitted.set(self.omitted.get() + 1);
            return;
        }
        let found = match self.written.get(&position) {
            Some(written) => format!("the value of {}", quote(written)),
            // A quoted part is the value itself.
            None if found.contains(['`', '"']) && self.secrets.borrow().contains(&position) => {
                "another value, which is redacted".to_owned()
            }
            None => found,
        };
        all.push(ConfigError {
            file: self.file.to_owned(),
            position,
            part: part.to_owned(),
            expected,
            found,
            advice: advice.to_owned(),
        });
    }

    /// Reports a message of the form `expected …, found …`, or `expected …; found …`.
    pub(super) fn report_message(&self, position: FilePosition, message: &str) {
        let message = message.strip_prefix("expected ").unwrap_or(message);
        let split = [", found ", "; found "]
            .into_iter()
            .filter_map(|word| message.rsplit_once(word))
            .min_by_key(|(_, found)| found.len());
        let (expected, found) = split.unwrap_or((message, "something else"));
        self.report(position, expected, found);
    }

    /// Returns the errors in the order of the file, the number of further ones, and the warnings.
    pub(super) fn finish(self) -> (Vec<ConfigError>, usize, Vec<Warning>) {
        let mut all = self.all.into_inner();
        all.sort_by_key(|error| error.position);
        (all, self.omitted.get(), self.warnings.into_inner())
    }
}

/// Quotes a text for a message: on one line, truncated.
pub(super) fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let mut short: String = text
        .chars()
        .take(MAX_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}

/// Returns the one of `names` that is most similar to `word`.
pub(super) fn suggest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let is_near = |name: &&str| edit_distance(word, name) <= (word.len().max(name.len()) / 3).min(3);
    names
        .into_iter()
        .filter(is_near)
        .min_by_key(|name| edit_distance(word, name))
}

/// Returns the number of letters that must be changed, inserted, removed or swapped with the next.
fn edit_distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) =
        (one.chars().take(64).collect(), other.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for at in 1..=one.len() {
        let mut row = vec![at];
        for column in 1..=other.len() {
            let is_same = one[at - 1] == other[column - 1];
            let mut min = (rows[at - 1][column - 1] + usize::from(!is_same))
                .min(rows[at - 1][column] + 1)
                .min(row[column - 1] + 1);
            let swapped =
                at > 1 && column > 1 && one[at - 1] == other[column - 2] && one[at - 2] == other[column - 1];
            if swapped {
                min = min.min(rows[at - 2][column - 2] + 1);
            }
            row.push(min);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}
