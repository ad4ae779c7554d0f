//! `cargo xtask test`: all tests, in one pool where cargo-nextest is installed. Installs nothing.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The tests to run.
const ALL: [&str; 2] = ["--workspace", "--all-features"];

/// Runs the tests, documentation too if others have failed; `filters` are parts of names.
pub(crate) fn run(root: &Path, filters: &[&str]) -> ExitCode {
    let mut failures = Vec::new();
    for line in lines(has_nextest(root), filters) {
        let shown = format!("cargo {}", line.join(" "));
        eprintln!("$ {shown}");
        match cargo(root, &line).status() {
            Ok(status) if status.success() => {}
            Ok(status) => failures.push(format!("`{shown}` ended with {status}")),
            Err(error) => failures.push(format!("`{shown}` could not be started: {error}")),
        }
    }
    failures.iter().for_each(|failure| eprintln!("test: {failure}"));
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The arguments of cargo, command by command.
fn lines<'a>(nextest: bool, filters: &[&'a str]) -> Vec<Vec<&'a str>> {
    let line = |words: &[&'static str]| -> Vec<&'a str> { [words, &ALL].concat() };
    let filtered = |mut line: Vec<&'a str>| {
        line.extend(filters);
        line
    };
    if !nextest {
        return match filters {
            [] => vec![line(&["test", "--no-fail-fast"])],
            // `cargo test` takes one filter alone; the test programs take several.
            _ => {
                let mut line = line(&["test", "--no-fail-fast"]);
                line.push("--");
                vec![filtered(line)]
            }
        };
    }
    let tests = filtered(line(&["nextest", "run"]));
    match filters {
        // nextest does not know tests in documentation.
        [] => vec![tests, line(&["test", "--doc"])],
        _ => vec![tests],
    }
}

/// Whether cargo has the subcommand. One that is too old for `.config/nextest.toml` says so itself.
fn has_nextest(root: &Path) -> bool {
    let mut command = cargo(root, &["nextest", "--version"]);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root);
    command
}
