//! Test programs without the standard harness, whose threads would allocate while a case counts its allocations.
//!
//! Owns the command line, in the form that `cargo test` and `cargo nextest` use. Each case runs in a process of its own, so that none sees
//! what an earlier one has allocated.

#[cfg(test)]
mod tests;

use std::process::{Command, ExitCode};

/// A case by its name. It fails by a panic.
pub type Case = (&'static str, fn());

/// Set in the process that runs one case.
const INSIDE: &str = "RINGMAIN_TEST_CASE";

/// Runs the cases that the command line selects; returns what `main` returns.
///
/// Takes `--list`, `--exact`, `--skip NAME`, `--ignored` (no case is) and parts of names, and ignores what concerns output and threads.
#[expect(clippy::print_stdout, reason = "without a harness this is its report")]
pub fn main(cases: &[Case]) -> ExitCode {
    if let Ok(name) = std::env::var(INSIDE) {
        let (_, run) = cases
            .iter()
            .find(|(case, _)| *case == name)
            .expect("a case of this program");
        run();
        return ExitCode::SUCCESS;
    }
    let wish = match Wish::parse(std::env::args().skip(1)) {
        Ok(wish) => wish,
        Err(unknown) => {
            println!("expected --list, --exact, --skip NAME or a part of a name, found `{unknown}`");
            return ExitCode::from(2);
        }
    };
    let selected: Vec<&str> = cases
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| wish.selects(name))
        .collect();
    if wish.list {
        selected.iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", selected.len());
    let failed: Vec<&&str> = selected.iter().filter(|name| !passes(name)).collect();
    let passed = selected.len() - failed.len();
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; {} filtered out\n",
        failed.len(),
        cases.len() - selected.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

/// Runs a case in a process of its own, with the output of this one.
#[expect(clippy::print_stdout, reason = "without a harness this is its report")]
fn passes(name: &str) -> bool {
    let program = std::env::current_exe().expect("the path of this program");
    let status = Command::new(program).env(INSIDE, name).status();
    let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    match (passed, status) {
        (true, _) => println!("test {name} ... ok"),
        (false, Ok(status)) => println!("test {name} ... FAILED ({status})"),
        (false, Err(error)) => println!("test {name} ... FAILED (not started: {error})"),
    }
    passed
}

/// The requests of the command line.
#[derive(Debug, Default, PartialEq)]
struct Wish {
    list: bool,
    exact: bool,
    ignored: bool,
    parts: Vec<String>,
    skipped: Vec<String>,
}

impl Wish {
    /// `Err` is the argument that is not known.
    fn parse(args: impl Iterator<Item = String>) -> Result<Wish, String> {
        let mut wish = Wish::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--list" => wish.list = true,
                "--exact" => wish.exact = true,
                "--ignored" => wish.ignored = true,
                "--skip" => wish.skipped.extend(args.next()),
                // Each has a value.
                "--format" | "--color" | "--test-threads" | "--logfile" | "-Z" => drop(args.next()),
                "--nocapture" | "--no-capture" | "--show-output" | "--include-ignored" | "-q" | "--quiet" => {
                }
                _ if arg.starts_with("--skip=") => wish.skipped.push(arg["--skip=".len()..].to_owned()),
                _ if ["--format=", "--color=", "--test-threads=", "--logfile=", "-Z"]
                    .iter()
                    .any(|option| arg.starts_with(option)) => {}
                _ if arg.starts_with('-') => return Err(arg),
                _ => wish.parts.push(arg),
            }
        }
        Ok(wish)
    }

    fn selects(&self, name: &str) -> bool {
        let is = |part: &String| {
            if self.exact {
                name == part
            } else {
                name.contains(part)
            }
        };
        !self.ignored && (self.parts.is_empty() || self.parts.iter().any(is)) && !self.skipped.iter().any(is)
    }
}
