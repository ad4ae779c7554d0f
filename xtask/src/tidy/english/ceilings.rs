//! The file of ceilings: how often a file may contain an expression or a banned type name. The numbers only shrink.
//!
//! Works on text and counts; knows nothing of the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::super::Finding;
use super::expressions::Expression;
use super::figures::crate_of;
use super::{BANNED_TYPES, Language};

/// Lowers the ceilings; named in findings.
pub(crate) const LOWER: &str = "cargo xtask tidy --lower";

const HEADER: &str = "\
# Ceilings of the rule `english`: path TAB expression TAB count, sorted. A file without a line has ceiling 0.
# The numbers only shrink: `cargo xtask tidy --lower` writes this file.
";

/// Before the name of a banned type in the place of an expression.
const TYPE: &str = "type:";

/// Ceilings or counts: by path, then by the name of the expression.
pub(crate) type FileCounts = BTreeMap<String, BTreeMap<String, usize>>;

/// An expression in a file: its line and its words.
type Occurrence<'a> = (usize, &'a str);

/// Returns the occurrences in a file by the name of the expression.
fn occurrences(language: &Language) -> BTreeMap<String, Vec<Occurrence<'_>>> {
    let mut found = BTreeMap::<String, Vec<Occurrence<'_>>>::new();
    for hit in &language.hits {
        let name = hit.expression.name().to_owned();
        found.entry(name).or_default().push((hit.line, &hit.words));
    }
    for name in &language.types {
        if BANNED_TYPES.iter().any(|(banned, _)| *banned == name.name) {
            let occurrence = (name.line, name.name.as_str());
            found
                .entry(format!("{TYPE}{}", name.name))
                .or_default()
                .push(occurrence);
        }
    }
    found
}

/// FileCounts the occurrences in each file.
pub(crate) fn counts(languages: &[Language]) -> FileCounts {
    let count = |language: &Language| {
        let found = occurrences(language).into_iter();
        found.map(|(name, found)| (name, found.len())).collect()
    };
    let counts = languages
        .iter()
        .map(|language| (language.path.clone(), count(language)));
    counts
        .filter(|(_, names): &(_, BTreeMap<_, _>)| !names.is_empty())
        .collect()
}

/// Returns the text of the file with these ceilings.
pub(crate) fn write(ceilings: &FileCounts) -> String {
    let mut text = HEADER.to_owned();
    for (path, names) in ceilings {
        for (name, count) in names {
            let _ = writeln!(text, "{path}\t{name}\t{count}");
        }
    }
    text
}

/// A line of the file of ceilings.
struct Ceiling<'a> {
    line: usize,
    path: &'a str,
    name: &'a str,
    count: usize,
}

/// Reads the text of the file `list_path`, and finds the lines that are malformed or out of order.
fn rows<'a>(list_path: &str, list: &'a str) -> (Vec<Ceiling<'a>>, Vec<Finding>) {
    let (mut rows, mut findings) = (Vec::<Ceiling<'_>>::new(), Vec::new());
    for (line, text) in (1..).zip(list.lines()) {
        if text.starts_with('#') {
            continue;
        }
        let Some(row) = row(line, text) else {
            findings.push(Finding::new(
                list_path,
                line,
                format!("`{}` is not a ceiling", text.replace('\t', " ")),
                "path TAB expression TAB count, with a known expression and a count of at least 1",
                format!("run `{LOWER}`"),
            ));
            continue;
        };
        if let Some(before) = rows
            .last()
            .filter(|before| (before.path, before.name) >= (row.path, row.name))
        {
            findings.push(Finding::new(
                list_path,
                line,
                format!(
                    "`{} {}` follows `{} {}`",
                    row.path, row.name, before.path, before.name
                ),
                "lines sorted by path, then by expression, each once",
                format!("run `{LOWER}`"),
            ));
        }
        rows.push(row);
    }
    (rows, findings)
}

fn row(line: usize, text: &str) -> Option<Ceiling<'_>> {
    let mut fields = text.split('\t');
    let (path, name, count) = (fields.next()?, fields.next()?, fields.next()?.parse().ok()?);
    let is_known = match name.strip_prefix(TYPE) {
        Some(name) => BANNED_TYPES.iter().any(|(banned, _)| *banned == name),
        None => Expression::named(name).is_some(),
    };
    let is_valid = is_known && count > 0 && fields.next().is_none();
    is_valid.then_some(Ceiling {
        line,
        path,
        name,
        count,
    })
}

/// Compares every file with its ceilings in `list` (the text of the file `list_path`).
pub(crate) fn compare(list_path: &str, list: &str, languages: &[Language]) -> Vec<Finding> {
    let (rows, mut findings) = rows(list_path, list);
    let mut by_file = BTreeMap::<&str, BTreeMap<&str, &Ceiling<'_>>>::new();
    for row in &rows {
        by_file.entry(row.path).or_default().insert(row.name, row);
    }
    for language in languages {
        let mut ceilings = by_file.remove(language.path.as_str()).unwrap_or_default();
        for (name, found) in occurrences(language) {
            let ceiling = ceilings.remove(name.as_str());
            let limit = ceiling.map_or(0, |row| row.count);
            if found.len() > limit {
                findings.extend(exceeded(&language.path, &name, &found, limit));
            }
            if let Some(row) = ceiling.filter(|row| row.count > found.len()) {
                findings.push(outgrown(list_path, row, found.len()));
            }
        }
        findings.extend(ceilings.into_values().map(|row| outgrown(list_path, row, 0)));
    }
    // One finding for each file that is gone.
    findings.extend(by_file.into_values().filter_map(|rows| {
        let row = rows.into_values().min_by_key(|row| row.line)?;
        Some(Finding::new(
            list_path,
            row.line,
            format!("`{}` does not exist", row.path),
            "ceilings of files that exist",
            format!("run `{LOWER}`, which moves the ceilings of a renamed file"),
        ))
    }));
    findings
}

/// Describes an expression that exceeds its ceiling: each occurrence where none is allowed, else all lines in one finding.
fn exceeded(path: &str, name: &str, found: &[Occurrence<'_>], limit: usize) -> Vec<Finding> {
    let (shown, instead) = match name.strip_prefix(TYPE) {
        Some(name) => {
            let better = BANNED_TYPES.iter().find(|(banned, _)| *banned == name);
            (
                format!("a type named `{name}`"),
                better.map_or("", |(_, better)| better),
            )
        }
        None => Expression::named(name).map_or((name.into(), ""), |expression| {
            (expression.shown().into(), expression.instead())
        }),
    };
    let action = format!("write {instead} (docs/glossary.md)");
    if limit == 0 {
        let finding = |&(line, words): &Occurrence<'_>| {
            Finding::new(
                path,
                line,
                format!("\"{words}\""),
                format!("no {}", without_article(&shown)),
                &action,
            )
        };
        return found.iter().map(finding).collect();
    }
    let lines: Vec<String> = found.iter().map(|(line, _)| line.to_string()).collect();
    let what = format!("{shown}: {} times (lines {})", found.len(), lines.join(", "));
    let expected = format!("at most {limit}, the file's ceiling");
    vec![Finding::new(path, found[0].0, what, expected, action)]
}

fn without_article(shown: &str) -> &str {
    shown.strip_prefix("a ").unwrap_or(shown)
}

fn outgrown(list_path: &str, row: &Ceiling<'_>, count: usize) -> Finding {
    Finding::new(
        list_path,
        row.line,
        format!(
            "`{}` may have `{}` {} times and has it {count} times",
            row.path, row.name, row.count
        ),
        "ceilings only shrink",
        format!("run `{LOWER}`"),
    )
}

/// The ceilings after [`lower`], and the difference to those before.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) ceilings: FileCounts,
    /// Sum of the ceilings, before and after.
    pub(crate) sums: (usize, usize),
    /// Files without ceilings that received those of others, with the number received.
    pub(crate) moved: Vec<(String, usize)>,
}

/// Lowers each ceiling in `list` to the count of its file.
///
/// A file without ceilings receives those of a file that is gone and had the same counts, as after a rename. Otherwise it receives those
/// that files that are gone, and smaller files of its crate, no longer need. No ceiling of a file rises, and no sum of an expression.
pub(crate) fn lower(list: &str, languages: &[Language]) -> Lowered {
    let mut counts = counts(languages);
    let paths: BTreeSet<&str> = languages.iter().map(|language| language.path.as_str()).collect();
    // A merge may leave two lines for one ceiling: the smaller one applies.
    let mut listed = FileCounts::new();
    for row in rows("", list).0 {
        let names = listed.entry(row.path.into()).or_default();
        let ceiling = names.entry(row.name.into()).or_insert(row.count);
        *ceiling = row.count.min(*ceiling);
    }
    let mut lowered = Lowered {
        ceilings: FileCounts::new(),
        sums: (sum(&listed), 0),
        moved: Vec::new(),
    };
    let mut new: FileCounts = counts
        .extract_if(.., |path, _| !listed.contains_key(path))
        .collect();
    // By expression, then by crate; for files that are gone the name of the crate is empty.
    let mut freed = BTreeMap::<(&str, &str), usize>::new();
    for (path, names) in &listed {
        let is_gone = !paths.contains(path.as_str());
        let renamed = new.iter().find(|(_, counts)| is_gone && *counts == names);
        if let Some(path) = renamed.map(|(path, _)| path.clone()) {
            new.remove(&path);
            lowered.receive(path, names.clone());
            continue;
        }
        let group = if is_gone { "" } else { crate_of(path) };
        let mut remaining = BTreeMap::new();
        for (name, &before) in names {
            let count = counts.get(path).and_then(|names| names.get(name)).copied();
            let after = before.min(count.unwrap_or(0));
            *freed.entry((name, group)).or_default() += before - after;
            if after > 0 {
                remaining.insert(name.clone(), after);
            }
        }
        if !remaining.is_empty() {
            lowered.ceilings.insert(path.clone(), remaining);
        }
    }
    for (path, names) in &new {
        let mut received = BTreeMap::new();
        for (name, &count) in names {
            for group in ["", crate_of(path)] {
                let before = received.get(name).copied().unwrap_or(0);
                let left = freed.get_mut(&(name.as_str(), group));
                let Some(left) = left.filter(|left| **left > 0 && before < count) else {
                    continue;
                };
                let taken = (*left).min(count - before);
                *left -= taken;
                received.insert(name.clone(), before + taken);
            }
        }
        if !received.is_empty() {
            lowered.receive(path.clone(), received);
        }
    }
    lowered.sums.1 = sum(&lowered.ceilings);
    lowered
}

fn sum(ceilings: &FileCounts) -> usize {
    ceilings.values().flat_map(BTreeMap::values).sum()
}

impl Lowered {
    /// Sets the ceilings of a file that had none.
    fn receive(&mut self, path: String, ceilings: BTreeMap<String, usize>) {
        self.moved.push((path.clone(), ceilings.values().sum()));
        self.ceilings.insert(path, ceilings);
    }
}
