//! `cargo xtask english`: the language of each crate in figures.
//!
//! Works on what [`super`] read; knows nothing of ceilings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::expressions::Expression;
use super::{Language, TextKind};

/// The columns of expressions, each per thousand lines.
const COLUMNS: &[(&str, Expression)] = &[
    ("what", Expression::What),
    ("Who", Expression::WhoFirst),
    ("come", Expression::Come),
    ("told", Expression::IsTold),
    ("stand", Expression::Stand),
];

/// The most types that may share a name.
const TYPES_OF_ONE_NAME: usize = 2;

/// Returns the crate of a file, or the folder at the root that has it.
pub(super) fn crate_of(path: &str) -> &str {
    if path.ends_with(".md") {
        return "documents";
    }
    match path.split_once('/') {
        Some(("crates", rest)) => rest.split('/').next().unwrap_or(rest),
        Some(("src" | "tests", _)) | None => "ringmain",
        Some((folder, _)) => folder,
    }
}

/// The figures of a crate.
#[derive(Default)]
struct CrateFigures {
    lines: usize,
    returns: usize,
    functions: usize,
    characters: usize,
    counts: [usize; COLUMNS.len()],
}

impl CrateFigures {
    fn add(&mut self, language: &Language) {
        self.lines += language.lines;
        self.returns += language.returns;
        self.functions += language.functions;
        self.characters += language.function_characters;
        for hit in language.hits.iter().filter(|hit| hit.kind != TextKind::Text) {
            let column = COLUMNS
                .iter()
                .position(|(_, expression)| *expression == hit.expression);
            if let Some(column) = column {
                self.counts[column] += 1;
            }
        }
    }

    fn write(&self, out: &mut String, name: &str) {
        let thousand = |count| ratio(count, self.lines) * 1000.0;
        let _ = write!(out, "{name:<12}{:>9}", self.lines);
        for count in self.counts {
            let _ = write!(out, "{:>9.1}", thousand(count));
        }
        let _ = write!(out, "{:>9.1}{:>11}", thousand(self.returns), self.functions);
        let _ = match self.functions {
            0 => writeln!(out, "{:>9}", "-"),
            _ => writeln!(out, "{:>9.1}", ratio(self.characters, self.functions)),
        };
    }
}

/// Limits of `english CRATE...`: occurrences of each column per thousand lines of comments, at most.
const EXPRESSIONS_PER_THOUSAND: f64 = 2.0;
/// Lines of comments with "return" or "returns" per thousand, at least.
const RETURNS_PER_THOUSAND: f64 = 8.0;
/// Mean length of function names in characters, at least.
const FUNCTION_NAME: f64 = 9.0;

impl CrateFigures {
    /// Returns the limits that these figures exceed.
    fn exceeded(&self) -> Vec<String> {
        let thousand = |count| ratio(count, self.lines) * 1000.0;
        let mut exceeded = Vec::new();
        for ((title, _), count) in COLUMNS.iter().zip(self.counts) {
            let share = thousand(count);
            if share > EXPRESSIONS_PER_THOUSAND {
                exceeded.push(format!(
                    "{title}: {share:.1}, at most {EXPRESSIONS_PER_THOUSAND:.1}"
                ));
            }
        }
        let returns = thousand(self.returns);
        if returns < RETURNS_PER_THOUSAND {
            exceeded.push(format!(
                "returns: {returns:.1}, at least {RETURNS_PER_THOUSAND:.1}"
            ));
        }
        let name = ratio(self.characters, self.functions);
        if self.functions > 0 && name < FUNCTION_NAME {
            exceeded.push(format!(
                "function names: {name:.2} characters, at least {FUNCTION_NAME:.1}"
            ));
        }
        exceeded
    }
}

/// Returns the tables of some crates together, and the limits that they exceed; `Err` names crates that do not exist.
pub(crate) fn judge(languages: &[Language], crates: &[&str]) -> Result<(String, Vec<String>), String> {
    let is_known = |name: &&str| languages.iter().any(|language| crate_of(&language.path) == *name);
    let unknown: Vec<&str> = crates.iter().copied().filter(|name| !is_known(name)).collect();
    if !unknown.is_empty() {
        return Err(format!("no such crate: {}", unknown.join(", ")));
    }
    let is_chosen = |language: &&Language| crates.contains(&crate_of(&language.path));
    let chosen: Vec<&Language> = languages.iter().filter(is_chosen).collect();
    let mut total = CrateFigures::default();
    chosen.iter().for_each(|language| total.add(language));
    let mut exceeded = total.exceeded();
    let shared = shared_types(&chosen);
    if !shared.is_empty() {
        let shared = shared.len();
        exceeded.push(format!(
            "{shared} type names are defined more than {TYPES_OF_ONE_NAME} times"
        ));
    }
    Ok((tables(&chosen), exceeded))
}

/// Returns the quotient; 0 for nothing out of nothing.
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Returns the tables: by crate, by expression, and the types that share a name.
pub(crate) fn tables(languages: &[&Language]) -> String {
    let mut out =
        String::from("Lines of comments (documents: lines), and expressions per thousand lines:\n\n");
    let _ = write!(out, "{:<12}{:>9}", "crate", "lines");
    for (title, _) in COLUMNS {
        let _ = write!(out, "{title:>9}");
    }
    let _ = writeln!(out, "{:>9}{:>11}{:>9}", "returns", "functions", "name");

    let (mut rows, mut total) = (BTreeMap::<&str, CrateFigures>::new(), CrateFigures::default());
    for language in languages {
        let name = crate_of(&language.path);
        rows.entry(name).or_default().add(language);
        if name != "documents" {
            total.add(language);
        }
    }
    let documents = rows.remove("documents").unwrap_or_default();
    rows.iter().for_each(|(name, row)| row.write(&mut out, name));
    total.write(&mut out, "all crates");
    if documents.lines > 0 {
        documents.write(&mut out, "documents");
    }

    write_expressions(&mut out, languages);
    write_types(&mut out, languages);
    out
}

fn write_expressions(out: &mut String, languages: &[&Language]) {
    let mut counts = BTreeMap::<&str, [usize; 3]>::new();
    for hit in languages.iter().flat_map(|language| &language.hits) {
        let column = match hit.kind {
            TextKind::Comment => 0,
            TextKind::Text => 1,
            TextKind::Document => 2,
        };
        counts.entry(hit.expression.name()).or_default()[column] += 1;
    }
    let _ = writeln!(
        out,
        "\n{:<14}{:>9}{:>9}{:>11}",
        "expression", "comments", "texts", "documents"
    );
    for (name, [comments, texts, documents]) in counts {
        let _ = writeln!(out, "{name:<14}{comments:>9}{texts:>9}{documents:>11}");
    }
}

/// Returns the type names that are defined too often, with the crates that define them, most frequent first.
fn shared_types<'a>(languages: &[&'a Language]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut definitions = BTreeMap::<&str, Vec<&str>>::new();
    for language in languages {
        for name in &language.types {
            definitions
                .entry(&name.name)
                .or_default()
                .push(crate_of(&language.path));
        }
    }
    let mut shared: Vec<_> = definitions
        .into_iter()
        .filter(|(_, crates)| crates.len() > TYPES_OF_ONE_NAME)
        .collect();
    shared.sort_by_key(|(name, crates)| (std::cmp::Reverse(crates.len()), *name));
    shared
}

fn write_types(out: &mut String, languages: &[&Language]) {
    let shared = shared_types(languages);
    let _ = writeln!(
        out,
        "\nType names defined more than {TYPES_OF_ONE_NAME} times: {}",
        shared.len()
    );
    for (name, mut crates) in shared {
        let count = crates.len();
        crates.dedup();
        let _ = writeln!(out, "{count:>4}  {name} ({})", crates.join(", "));
    }
}
