//! `cargo xtask tidy`: rules of structure and style that the compiler does not check.
//!
//! Owns the rules' order and how findings are shown. Each rule is a pure function over text in
//! a file of its own ([`crates`], [`source`], [`manifest`], [`exceptions`]); only this file
//! reads the tree and runs cargo.

mod crates;
mod exceptions;
mod manifest;
mod source;
mod test_code;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

/// The list of files and functions that may be longer than the limit.
const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";

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

fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let metadata = cargo(root, &["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("`cargo metadata` gave something that is not JSON: {error}"))?;
    let packages = crates::packages(&metadata, root)?;
    let mut findings = crates::direction(&packages);

    findings.extend(crates::plain_closure(&closure(root, "ringmain")?));
    findings.extend(crates::binary_closure(&closure(root, "ringmain-cli")?));
    findings.extend(manifest::explained(&read(root, "Cargo.toml")?));

    let mut sizes = Vec::new();
    for path in sources(root)? {
        let text = read(root, &path)?;
        if path.ends_with(".rs") {
            let facts = source::inspect(&path, &text);
            findings.extend(facts.findings);
            sizes.extend(facts.sizes);
        } else {
            findings.extend(source::unfinished(&path, &text, &[]));
        }
    }
    for package in &packages {
        for target in &package.roots {
            findings.extend(source::forbids_unsafe(target, &read(root, target)?));
        }
    }
    findings.extend(exceptions::compare(EXCEPTIONS, &read(root, EXCEPTIONS)?, &sizes));
    findings.sort();
    Ok(findings)
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

/// Every Rust and Python file of the repository, relative to `root`, sorted.
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
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if kind.is_file() && (name.ends_with(".rs") || name.ends_with(".py")) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}
