//! `cargo xtask tidy`: rules of structure and style that the compiler does not check.
//!
//! Owns the rules' order and how findings are shown. Each rule is a pure function over text in
//! a file of its own ([`crates`], [`source`], [`manifest`], [`exceptions`], [`english`], [`pages`], [`subjects`]); only this file
//! reads the tree and runs cargo, and [`subjects`] runs git.

mod architecture;
mod crates;
mod english;
mod exceptions;
mod manifest;
pub(crate) mod pages;
mod source;
mod subjects;
mod test_code;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use english::{Language, ceilings, figures};
use exceptions::Size;
use pages::{Page, length, links, summary};
use serde_json::Value;
use subjects::Subjects;

/// The list of files and functions that may be longer than the limit.
const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";

/// The list of files that may contain expressions of the rule `english`.
const CEILINGS: &str = "xtask/english.ceilings";

/// Something to put right, for a reader who has never seen the rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, relative to the root.
    pub(crate) path: String,
    /// Line, from 1.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
    /// What the rule asks for.
    pub(crate) expected: String,
    /// What to do about it.
    pub(crate) action: String,
}

impl Finding {
    fn new(
        path: &str,
        line: usize,
        what: impl Into<String>,
        expected: impl Into<String>,
        action: impl Into<String>,
    ) -> Finding {
        Finding {
            path: path.into(),
            line,
            what: what.into(),
            expected: expected.into(),
            action: action.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            path,
            line,
            what,
            expected,
            action,
        } = self;
        write!(f, "{path}:{line}: {what}; expected {expected}; do: {action}")
    }
}

/// Checks the tree under `root`; prints each finding on a line of its own.
pub(crate) fn run(root: &Path) -> ExitCode {
    match check(root) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: clean");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            eprintln!("tidy: {} to put right", findings.len());
            ExitCode::FAILURE
        }
        Err(what) => {
            eprintln!("tidy: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the file of ceilings again, none of them higher, then checks the tree.
pub(crate) fn run_lower(root: &Path) -> ExitCode {
    match lower(root) {
        Ok(()) => run(root),
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Lowers the ceilings. Without their file, it writes the counts of the tree: the start of the rule, and the answer to a merge that
/// brings text from before the rule.
fn lower(root: &Path) -> Result<(), String> {
    let languages = languages(root)?;
    let text = if root.join(CEILINGS).exists() {
        let lowered = ceilings::lower(&read(root, CEILINGS)?, &languages);
        for (path, count) in &lowered.moved {
            eprintln!("tidy: {path} receives {count} from files that are gone or smaller");
        }
        let (before, after) = lowered.sums;
        eprintln!("tidy: the sum of the ceilings was {before} and is {after}");
        ceilings::write(&lowered.ceilings)
    } else {
        eprintln!("tidy: {CEILINGS} did not exist; it now has the counts of the tree");
        ceilings::write(&ceilings::counts(&languages))
    };
    write(root, CEILINGS, &text)?;
    let pages = read_pages(root)?;
    let list = if root.join(length::PATH).exists() {
        length::lower(&read(root, length::PATH)?, &pages)
    } else {
        length::start(&pages)
    };
    write(root, length::PATH, &list)
}

/// Reads the documents of the tree, as the rules for pages see them.
fn read_pages(root: &Path) -> Result<Vec<Page>, String> {
    let paths = sources(root)?;
    let paths = paths.iter().filter(|path| pages::is_page(path));
    paths
        .map(|path| Ok(Page::read(path, &read(root, path)?)))
        .collect()
}

/// `cargo xtask english`: prints the language of each crate in figures.
pub(crate) fn print_english(root: &Path, crates: &[&str]) -> ExitCode {
    let figures = languages(root).and_then(|languages| {
        if crates.is_empty() {
            return Ok((figures::tables(&languages.iter().collect::<Vec<_>>()), Vec::new()));
        }
        figures::judge(&languages, crates)
    });
    match figures {
        Ok((tables, exceeded)) => {
            print!("{tables}");
            exceeded
                .iter()
                .for_each(|limit| eprintln!("english: {} together: {limit}", crates.join(", ")));
            ExitCode::from(u8::from(!exceeded.is_empty()))
        }
        Err(error) => {
            eprintln!("english: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let metadata = cargo(root, &["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("`cargo metadata` gave something that is not JSON: {error}"))?;
    let packages = crates::packages(&metadata, root)?;
    let mut findings = crates::direction(&packages);

    findings.extend(crates::plain_closure(&closure(root, "ringmain")?));
    findings.extend(crates::binary_closure(&closure(root, "ringmain-cli")?));
    findings.extend(manifest::explained(&read(root, "Cargo.toml")?));
    let architecture = read(root, architecture::PATH)?;
    findings.extend(architecture::inspect(&architecture, |path| {
        root.join(path).exists()
    }));

    let tree = inspect(root)?;
    findings.extend(tree.findings);
    for package in &packages {
        for target in &package.roots {
            findings.extend(source::forbids_unsafe(target, &read(root, target)?));
        }
    }
    findings.extend(exceptions::compare(
        EXCEPTIONS,
        &read(root, EXCEPTIONS)?,
        &tree.sizes,
    ));
    let list = read(root, CEILINGS)
        .map_err(|error| format!("{error}; restore it, or let `{}` write it", ceilings::LOWER))?;
    findings.extend(ceilings::compare(CEILINGS, &list, &tree.languages));
    let pages = read_pages(root)?;
    findings.extend(links::inspect(&pages, |path| root.join(path).exists()));
    findings.extend(summary::inspect(&pages));
    findings.extend(length::compare(&read(root, length::PATH)?, &pages));
    match subjects::read(root) {
        Subjects::Commits(commits) => findings.extend(subjects::inspect(&commits)),
        Subjects::Skipped(reason) => eprintln!("tidy: subjects of commits are not checked: {reason}"),
    }
    findings.sort();
    Ok(findings)
}

/// The results of the rules for single files.
#[derive(Default)]
struct FileResults {
    findings: Vec<Finding>,
    sizes: Vec<Size>,
    languages: Vec<Language>,
}

/// Applies the rules for single files to the tree, on every CPU.
fn inspect(root: &Path) -> Result<FileResults, String> {
    let mut tree = FileResults::default();
    for part in on_every_cpu(&sources(root)?, |paths| inspect_files(root, paths))? {
        tree.findings.extend(part.findings);
        tree.sizes.extend(part.sizes);
        tree.languages.extend(part.languages);
    }
    Ok(tree)
}

fn inspect_files(root: &Path, paths: &[String]) -> Result<FileResults, String> {
    let mut tree = FileResults::default();
    for path in paths {
        let text = read(root, path)?;
        if path.ends_with(".rs") {
            let facts = source::inspect(path, &text);
            tree.findings.extend(facts.findings);
            tree.sizes.extend(facts.sizes);
        } else if path.ends_with(".py") {
            tree.findings.extend(source::unfinished(path, &text, &[]));
        }
        tree.languages.extend(english::read(path, &text));
    }
    Ok(tree)
}

/// Reads the language of the tree, without the other rules.
fn languages(root: &Path) -> Result<Vec<Language>, String> {
    let read_files = |paths: &[String]| {
        let mut languages = Vec::new();
        for path in paths {
            languages.extend(english::read(path, &read(root, path)?));
        }
        Ok(languages)
    };
    Ok(on_every_cpu(&sources(root)?, read_files)?.concat())
}

/// Runs `work` on a part of `paths` for each CPU; returns the results in the order of the paths.
fn on_every_cpu<T: Send>(
    paths: &[String],
    work: impl Fn(&[String]) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let work = &work;
    thread::scope(|scope| {
        let parts = paths.chunks(paths.len().div_ceil(cpus).max(1));
        let workers: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("the rules do not panic"))
            .collect()
    })
}

/// Returns the crates that a package is built with, with its default features, one a line.
fn closure(root: &Path, package: &str) -> Result<String, String> {
    let edges = "normal,build";
    let line = [
        "tree", "-p", package, "-e", edges, "--prefix", "none", "-f", "{p}",
    ];
    cargo(root, &line)
}

fn cargo(root: &Path, args: &[&str]) -> Result<String, String> {
    let line = format!("cargo {}", args.join(" "));
    let output = Command::new("cargo")
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|error| format!("`{line}` could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "`{line}` failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    String::from_utf8(output.stdout)
        .map_err(|error| format!("`{line}` gave something that is not text: {error}"))
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
}

fn write(root: &Path, path: &str, text: &str) -> Result<(), String> {
    fs::write(root.join(path), text).map_err(|error| format!("{path} cannot be written: {error}"))
}

/// Returns whether a folder holds files of others: hidden ones, packages, and build output, which a folder of sources is not.
fn is_foreign(path: &Path, name: &str) -> bool {
    let is_source = path.iter().any(|part| part == "src");
    name.starts_with('.') || name == "node_modules" || (name == "target" && !is_source)
}

/// Every Rust, Python and Markdown file of the repository, relative to `root`, sorted.
fn sources(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder))
            .map_err(|error| format!("folder {} cannot be read: {error}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("in {}: {error}", folder.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            let kind = entry
                .file_type()
                .map_err(|error| format!("{}: {error}", path.display()))?;
            if kind.is_dir() && !is_foreign(&path, &name) {
                folders.push(path);
            } else if kind.is_file() && [".rs", ".py", ".md"].iter().any(|end| name.ends_with(end)) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}
