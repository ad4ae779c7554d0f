//! `cargo xtask ci`: what every change must pass, step by step. `.ci/run` runs the same.

#[cfg(test)]
mod tests;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use crate::steps::Line;
use crate::{tidy, usage_error};

/// How one step is carried out.
enum Work {
    /// These commands in turn.
    Commands(&'static [Line]),
    /// The rules of [`tidy`].
    Tidy,
    /// Known vulnerabilities: needs the advisory database, which lives on the network.
    Advisories,
    /// These commands in turn, where the machine has these programs.
    With(&'static [&'static str], &'static [Line]),
}

/// One step.
struct Step {
    name: &'static str,
    work: Work,
}

const STEPS: &[Step] = &[
    Step {
        name: "test",
        work: Work::Commands(&[TEST]),
    },
    Step {
        name: "fmt",
        work: Work::Commands(&[
            Line::new(&["cargo", "fmt", "--all", "--check"]),
            Line::new(&["cargo", "fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]),
        ]),
    },
    Step {
        name: "clippy",
        work: Work::Commands(&[CLIPPY, CLIPPY_FUZZ]),
    },
    Step {
        name: "tidy",
        work: Work::Tidy,
    },
    Step {
        name: "deny",
        work: Work::Commands(&[Line::new(&[
            "cargo", "deny", "check", "bans", "licenses", "sources",
        ])]),
    },
    Step {
        name: "advisories",
        work: Work::Advisories,
    },
    Step {
        name: "fuzz",
        work: Work::Commands(&[TEST_FUZZ, FUZZ]),
    },
    Step {
        name: "bench",
        work: Work::Commands(&[Line::new(&["bench/smoke.sh"])]),
    },
    Step {
        name: "sdk",
        work: Work::With(&["go", "node", "npm"], &[BUILD, SDK]),
    },
    Step {
        name: "browser",
        work: Work::With(
            &["chromium", "node", "npm", "openssl"],
            &[BUILD, INSTALL_PLAYWRIGHT, BROWSER],
        ),
    },
];

/// The test command of the README.
const TEST: Line = Line::new(&["cargo", "test", "--workspace", "--all-features"]);

const CLIPPY: Line = Line::new(&[
    "cargo",
    "clippy",
    "--workspace",
    "--all-targets",
    "--all-features",
    "--",
    "-D",
    "warnings",
]);

const CLIPPY_FUZZ: Line = Line::new(&[
    "cargo",
    "clippy",
    "--manifest-path",
    "fuzz/Cargo.toml",
    "--all-targets",
    "--",
    "-D",
    "warnings",
]);

/// The fuzz targets' own tests: the list of differences, the guardian's corpus.
const TEST_FUZZ: Line = Line::new(&["cargo", "test", "--manifest-path", "fuzz/Cargo.toml"]);

const FUZZ: Line = Line::new(&[
    "cargo",
    "run",
    "--manifest-path",
    "fuzz/Cargo.toml",
    "--bin",
    "smoke",
    "--",
    "--seconds",
    "5",
]);

/// What the test command builds: fresh behind it, with the same features, so that nothing is built twice.
const BUILD: Line = Line::new(&[
    "cargo",
    "test",
    "--workspace",
    "--all-features",
    "--no-run",
    "--quiet",
]);

/// Centrifuge's own SDKs, over each of their transports.
const SDK: Line = Line::new(&["tests/sdk/run.sh", "target/debug/examples/sdk_server"]);

const INSTALL_PLAYWRIGHT: Line = Line::new(&[
    "npm",
    "ci",
    "--prefix",
    "bench/browser",
    "--no-audit",
    "--no-fund",
]);

/// The pages, WebSockets and the fallback to server-sent events; what they cost is measured by `cargo xtask suite browser`.
const BROWSER: Line = Line::new(&[
    "python3",
    "bench/browser.py",
    "--without-cost",
    "--",
    "target/debug/ringmain",
    "run",
    "--listen",
    "127.0.0.1:$PORT",
]);

/// Runs the steps; all of them, so that one run shows everything that is wrong.
pub(crate) fn run(root: &Path, args: &[&str]) -> ExitCode {
    if args == ["--list"] {
        return list();
    }
    let steps = match chosen(args) {
        Ok(steps) => steps,
        Err(what) => return usage_error(&what),
    };
    let mut failed = Vec::new();
    for step in &steps {
        eprintln!("== {}", step.name);
        if let Err(what) = step.work.run(root) {
            eprintln!("== {} FAILED: {what}", step.name);
            failed.push(step.name);
        }
    }
    if failed.is_empty() {
        eprintln!("== ci: all {} steps passed", steps.len());
        return ExitCode::SUCCESS;
    }
    eprintln!("== ci: failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// The steps left after `--except NAME` for each name.
fn chosen(args: &[&str]) -> Result<Vec<&'static Step>, String> {
    let mut steps: Vec<&Step> = STEPS.iter().collect();
    for pair in args.chunks(2) {
        let ["--except", name] = pair else {
            return Err(format!(
                "`ci` does not know `{}`; it takes `--except STEP`",
                pair.join(" ")
            ));
        };
        if !STEPS.iter().any(|step| step.name == *name) {
            let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            return Err(format!("`ci` has no step `{name}`; it has {}", names.join(", ")));
        }
        steps.retain(|step| step.name != *name);
    }
    Ok(steps)
}

fn list() -> ExitCode {
    for step in STEPS {
        match step.work {
            Work::Commands(lines) | Work::With(_, lines) => lines
                .iter()
                .for_each(|line| println!("{:<12}$ {line}", step.name)),
            Work::Tidy => println!("{:<12}$ cargo xtask tidy", step.name),
            Work::Advisories => println!("{:<12}$ {ADVISORIES}", step.name),
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
            Work::Advisories => advisories(root),
            Work::With(programs, lines) => match programs.iter().find(|program| !is_installed(program)) {
                Some(program) => {
                    eprintln!(
                        "!! SKIPPED: there is no `{program}` on this machine; `.ci/run` installs what is missing"
                    );
                    Ok(())
                }
                None => lines.iter().try_for_each(|line| line.run(root, &[])),
            },
        }
    }
}

/// Whether a folder of `PATH` has the program.
fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

const FETCH_ADVISORIES: Line = Line::new(&["cargo", "deny", "fetch", "db"]);
const ADVISORIES: Line = Line::new(&["cargo", "deny", "check", "--disable-fetch", "advisories"]);

/// Without the database there is nothing to check against: said aloud, not failed.
fn advisories(root: &Path) -> Result<(), String> {
    if let Err(what) = FETCH_ADVISORIES.run(root, &[]) {
        eprintln!("!! SKIPPED: advisories were NOT checked, their database could not be fetched ({what})");
        eprintln!("!! run `cargo deny check advisories` on a machine that reaches it before a release");
        return Ok(());
    }
    ADVISORIES.run(root, &[])
}
