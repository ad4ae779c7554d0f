//! `cargo xtask ci`: the steps that every change must pass, in order, with their times. `.ci/run` runs the same.
//!
//! Owns the steps of minutes. Checks that take longer, or need programs of others, are suites.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::steps::{self, Line, Outcome};
use crate::{tidy, usage_error};

/// The work of a step.
enum Work {
    /// These commands in turn.
    Commands(&'static [Line]),
    /// The rules of [`tidy`].
    Tidy,
    /// Licences, bans, sources and known vulnerabilities, when the dependencies changed.
    Deny,
}

/// A step.
struct Step {
    name: &'static str,
    work: Work,
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        work: Work::Commands(&[Line::new("cargo fmt --all --check")]),
    },
    Step {
        name: "tidy",
        work: Work::Tidy,
    },
    Step {
        name: "spell",
        work: Work::Commands(&[Line::new("cargo xtask spell")]),
    },
    // The reader of the pages that suites follow, and whether it can read every page.
    Step {
        name: "scripts",
        work: Work::Commands(&[Line::new("python3 -m unittest discover --quiet -s tests/support")]),
    },
    Step {
        name: "clippy",
        work: Work::Commands(&[Line::new(
            "cargo clippy --workspace --all-targets --all-features -- -D warnings",
        )]),
    },
    // Apart from `test`, so that the table tells compiling from running.
    Step {
        name: "build",
        work: Work::Commands(&[Line::new("cargo test --workspace --all-features --no-run")]),
    },
    // Documentation tests included.
    Step {
        name: "test",
        work: Work::Commands(&[TEST]),
    },
    Step {
        name: "deny",
        work: Work::Deny,
    },
    // One seed, so that a change fails for what it changed: the suite `fuzz` looks for more with seeds of its own.
    // Built by the step `test`. `cargo run` would build it with other features, and most crates a second time.
    Step {
        name: "fuzz",
        work: Work::Commands(&[Line::new("target/debug/fuzz-smoke --seconds 1 --seed 1")]),
    },
    Step {
        name: "bench",
        work: Work::Commands(&[Line::new("bench/smoke.sh")]),
    },
];

/// The test command of the README.
const TEST: Line = Line::new("cargo xtask test");

/// The files that decide what `deny` finds.
const DEPENDENCIES: &[&str] = &["Cargo.lock", "deny.toml"];

/// Runs the steps; all of them, so that one run shows every failure.
pub(crate) fn run(root: &Path, args: &[&str]) -> ExitCode {
    if args == ["--list"] {
        return list();
    }
    let steps = match chosen(args) {
        Ok(steps) => steps,
        Err(what) => return usage_error(&what),
    };
    let mut outcomes = Vec::new();
    for step in &steps {
        eprintln!("== {}", step.name);
        let outcome = Outcome::of(step.name, || step.work.run(root));
        eprintln!("== {outcome}");
        outcomes.push(outcome);
    }
    steps::report("ci", &outcomes)
}

/// The steps left after `--except NAME` for each name.
fn chosen(args: &[&str]) -> Result<Vec<&'static Step>, String> {
    let names = steps::excepted(args)
        .map_err(|found| format!("`ci` does not know `{found}`; it takes `--except STEP`"))?;
    if let Some(name) = names
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        let steps: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("`ci` has no step `{name}`; it has {}", steps.join(", ")));
    }
    Ok(STEPS.iter().filter(|step| !names.contains(&step.name)).collect())
}

fn list() -> ExitCode {
    for step in STEPS {
        match step.work {
            Work::Commands(lines) => lines
                .iter()
                .for_each(|line| println!("{:<12}$ {line}", step.name)),
            Work::Tidy => println!("{:<12}$ cargo xtask tidy", step.name),
            Work::Deny => println!(
                "{:<12}$ cargo xtask deny (when {} changed since the parent commit)",
                step.name,
                DEPENDENCIES.join(" or ")
            ),
        }
    }
    ExitCode::SUCCESS
}

impl Work {
    fn run(&self, root: &Path) -> Result<(), String> {
        match self {
            Work::Commands(lines) => lines.iter().try_for_each(|line| line.run(root, &[])),
            Work::Tidy if tidy::run(root) == ExitCode::SUCCESS => Ok(()),
            Work::Tidy => Err("see above".into()),
            Work::Deny if dependencies_are_unchanged(root) => {
                eprintln!(
                    "{} did not change since the parent commit: not checked again (`cargo xtask deny` always checks)",
                    DEPENDENCIES.join(" and ")
                );
                Ok(())
            }
            Work::Deny => deny(root),
        }
    }
}

/// Returns whether the work tree has the parent commit's dependencies; false when git cannot tell, as in a shallow clone.
fn dependencies_are_unchanged(root: &Path) -> bool {
    let mut git = Command::new("git");
    git.args(["diff", "--quiet", "HEAD^", "--"])
        .args(DEPENDENCIES)
        .current_dir(root)
        .stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}

const BANS: Line = Line::new("cargo deny check bans licenses sources");
const FETCH_ADVISORIES: Line = Line::new("cargo deny fetch db");
const ADVISORIES: Line = Line::new("cargo deny check --disable-fetch advisories");

/// Checks licences, bans, sources and advisories, whether or not the dependencies changed.
///
/// The database of advisories is on the network. Where it cannot be fetched, a warning replaces that check.
pub(crate) fn deny(root: &Path) -> Result<(), String> {
    BANS.run(root, &[])?;
    if let Err(what) = FETCH_ADVISORIES.run(root, &[]) {
        eprintln!("!! SKIPPED: advisories were NOT checked, their database could not be fetched ({what})");
        eprintln!("!! run `cargo xtask deny` on a machine that reaches it before a release");
        return Ok(());
    }
    ADVISORIES.run(root, &[])
}
