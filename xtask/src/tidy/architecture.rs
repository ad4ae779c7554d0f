//! ARCHITECTURE.md stays short, and each path that it names exists.
//!
//! Works on the text and a function that tests for existence; knows nothing of the file system.

use super::Finding;

/// The document that the rule applies to.
pub(crate) const PATH: &str = "ARCHITECTURE.md";

/// Length of the document in characters, at most.
const MAX_CHARACTERS: usize = 8_000;

/// Folders at the root; a word in back-ticks that begins with such a folder is a path.
const FOLDERS: &[&str] = &[
    "crates/",
    "src/",
    "xtask/",
    "fuzz/",
    "bench/",
    "tests/",
    "examples/",
    "docs/",
];

/// Checks the length of `text`, and the paths that it names. In a line, a file name without a folder is located in the folder of the path
/// before it.
pub(crate) fn inspect(text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let length = text.chars().count();
    if length > MAX_CHARACTERS {
        findings.push(Finding::new(
            PATH,
            1,
            format!("{length} characters"),
            format!("at most {MAX_CHARACTERS}"),
            "move details to the heads of the folders",
        ));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let mut folder = "";
        for word in line.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            let is_file_name = !folder.is_empty() && !word.contains('/') && word.ends_with(".rs");
            let path = match (is_path, is_file_name) {
                (true, _) => word.to_owned(),
                (false, true) => format!("{folder}/{word}"),
                (false, false) => continue,
            };
            if !exists(&path) {
                findings.push(Finding::new(
                    PATH,
                    number,
                    format!("`{path}` does not exist"),
                    "paths of files and folders that exist",
                    "write the new path",
                ));
            }
            if is_path {
                folder = word.rsplit_once('/').map_or("", |(folder, _)| folder);
            }
        }
    }
    findings
}
