//! `cargo xtask test`: all tests, in one pool: of cargo-nextest where it is installed, else of the programs that `cargo test` builds.
//! Installs nothing.

mod pool;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The tests to run.
const ALL: [&str; 2] = ["--workspace", "--all-features"];

/// Runs the tests, documentation too if others have failed; `filters` are parts of names.
pub(crate) fn run(root: &Path, filters: &[&str]) -> ExitCode {
    let tested = if has_nextest(root) {
        run_line(root, &[&["nextest", "run"], &ALL[..], filters].concat())
    } else {
        run_pool(root, filters)
    };
    let mut failures = tested.err().unwrap_or_default();
    // Only cargo itself knows the tests in documentation.
    if filters.is_empty() {
        let documentation = run_line(root, &[&["test", "--doc", "--quiet"], &ALL[..]].concat());
        failures.extend(documentation.err().unwrap_or_default());
    }
    failures.iter().for_each(|failure| eprintln!("test: {failure}"));
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs cargo; `Err`: what failed.
fn run_line(root: &Path, line: &[&str]) -> Result<(), Vec<String>> {
    let shown = format!("cargo {}", line.join(" "));
    eprintln!("$ {shown}");
    match cargo(root, line).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(vec![format!("`{shown}` ended with {status}")]),
        Err(error) => Err(vec![format!("`{shown}` could not be started: {error}")]),
    }
}

/// Runs the programs of `cargo test`; `Err`: what failed.
fn run_pool(root: &Path, filters: &[&str]) -> Result<(), Vec<String>> {
    let programs = pool::build(root, &ALL).map_err(|error| vec![error])?;
    let failures = pool::run(&programs, filters).map_err(|error| vec![error])?;
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures)
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
