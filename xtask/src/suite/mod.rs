//! `cargo xtask suite`: the checks and benchmarks that are too slow for each change.
//!
//! Owns how suites run and how their times are reported. The suites themselves are in [`mod@list`].

mod list;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

use crate::steps::{self, Line, Outcome};
use crate::usage_error;
use list::SUITES;

/// A suite: its commands run in turn, the last one takes further arguments.
struct Suite {
    name: &'static str,
    about: &'static str,
    lines: &'static [Line],
}

/// Prints name, purpose and commands of every suite.
pub(crate) fn list() -> ExitCode {
    for suite in SUITES {
        println!("{:<15}{}", suite.name, suite.about);
        suite.lines.iter().for_each(|line| println!("{:<15}$ {line}", ""));
    }
    println!(
        "{:<15}every suite above in turn, then a table of times; `--except NAME` leaves one out",
        "all"
    );
    ExitCode::SUCCESS
}

/// Runs the suite `name` and prints how long it took; `extra` goes to its last command.
///
/// `all` runs every suite, also after a failure, and prints a table.
pub(crate) fn run(root: &Path, name: &str, extra: &[&str]) -> ExitCode {
    if name == "all" {
        return match chosen(extra) {
            Ok(suites) => run_all(root, &suites),
            Err(what) => usage_error(&what),
        };
    }
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else {
        return usage_error(&unknown(name));
    };
    let outcome = run_one(root, suite, extra);
    if outcome.failure.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The suites left after `--except NAME` for each name.
fn chosen(args: &[&str]) -> Result<Vec<&'static Suite>, String> {
    let names = steps::excepted(args)
        .map_err(|found| format!("`suite all` does not know `{found}`; it takes `--except NAME`"))?;
    if let Some(name) = names
        .iter()
        .find(|name| SUITES.iter().all(|suite| suite.name != **name))
    {
        return Err(unknown(name));
    }
    Ok(SUITES
        .iter()
        .filter(|suite| !names.contains(&suite.name))
        .collect())
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    format!("no such suite: `{name}`; there are {} and all", names.join(", "))
}

fn run_all(root: &Path, suites: &[&Suite]) -> ExitCode {
    let outcomes: Vec<Outcome> = suites.iter().map(|suite| run_one(root, suite, &[])).collect();
    steps::report("suite all", &outcomes)
}

fn run_one(root: &Path, suite: &Suite, extra: &[&str]) -> Outcome {
    let (last, first) = suite.lines.split_last().expect("a suite has a command");
    let outcome = Outcome::of(suite.name, || {
        first.iter().try_for_each(|line| line.run(root, &[]))?;
        last.run(root, extra)
    });
    eprintln!("== suite {outcome}");
    outcome
}
