//! Commands as data: how they run, how they are displayed, how long they took. Knows no particular command.

#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// A command line with its environment, run from the repository's root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Variables set for the command.
    env: &'static [(&'static str, &'static str)],
    /// The program, then its arguments, separated by white space.
    text: &'static str,
}

impl Line {
    /// A command without variables of its own; no shell reads `text`, and its words cannot contain white space.
    pub(crate) const fn new(text: &'static str) -> Line {
        Line { env: &[], text }
    }

    /// The same command with these variables.
    pub(crate) const fn with(self, env: &'static [(&'static str, &'static str)]) -> Line {
        Line { env, ..self }
    }

    /// The program, then its arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.text.split_whitespace()
    }

    /// Prints and runs the command with `extra` arguments; `Err` describes the failure.
    ///
    /// Words below `target/` follow `CARGO_TARGET_DIR`.
    pub(crate) fn run(&self, root: &Path, extra: &[&str]) -> Result<(), String> {
        eprintln!(
            "$ {self}{}",
            extra.iter().map(|word| format!(" {word}")).collect::<String>()
        );
        let folder = env::var("CARGO_TARGET_DIR").ok();
        let mut words = self.words().map(|word| in_target_folder(word, folder.as_deref()));
        let program = words.next().expect("a command has a program");
        let status = Command::new(&program)
            .args(words)
            .args(extra)
            .envs(self.env.iter().copied())
            .current_dir(root)
            .status()
            .map_err(|error| format!("`{program}` could not be started: {error}; is it installed?"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`{self}` ended with {status}"))
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.env {
            write!(f, "{name}={value} ")?;
        }
        f.write_str(self.text)
    }
}

/// `word` with its leading `target/` replaced by the folder that cargo builds into.
fn in_target_folder(word: &str, folder: Option<&str>) -> String {
    match (word.strip_prefix("target/"), folder) {
        (Some(rest), Some(folder)) => format!("{folder}/{rest}"),
        _ => word.to_owned(),
    }
}

/// The names after each `--except`; `Err` is the part that is not understood.
pub(crate) fn excepted<'a>(args: &[&'a str]) -> Result<Vec<&'a str>, String> {
    args.chunks(2)
        .map(|pair| match pair {
            ["--except", name] => Ok(*name),
            _ => Err(pair.join(" ")),
        })
        .collect()
}

/// The result of a step or suite, with the time it took.
pub(crate) struct Outcome {
    name: &'static str,
    /// A description of the failure.
    pub(crate) failure: Option<String>,
    took: Duration,
}

impl Outcome {
    /// Runs `work` and measures it.
    pub(crate) fn of(name: &'static str, work: impl FnOnce() -> Result<(), String>) -> Outcome {
        #[expect(
            clippy::disallowed_methods,
            reason = "measures programs that run in real time"
        )]
        let started = Instant::now();
        let failure = work().err();
        Outcome {
            name,
            failure,
            took: started.elapsed(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.failure.is_none() {
            "passed"
        } else {
            "FAILED"
        };
        write!(f, "{:<15}{verdict}  {:>8}", self.name, clock(self.took))?;
        match &self.failure {
            Some(what) => write!(f, "  {what}"),
            None => Ok(()),
        }
    }
}

/// A duration as `1h02m03s`, `2m03s` or `3.4s`.
fn clock(took: Duration) -> String {
    let seconds = took.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{:.1}s", took.as_secs_f64()),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes:02}m{seconds:02}s"),
    }
}

/// Prints a table of the outcomes and their total; fails if one of them failed.
pub(crate) fn report(title: &str, outcomes: &[Outcome]) -> ExitCode {
    eprintln!("== {title}:");
    for outcome in outcomes {
        eprintln!("   {outcome}");
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_some())
        .map(|outcome| outcome.name)
        .collect();
    let total = clock(outcomes.iter().map(|outcome| outcome.took).sum());
    if failed.is_empty() {
        eprintln!("== {title}: all {} passed in {total}", outcomes.len());
        return ExitCode::SUCCESS;
    }
    eprintln!("== {title}: failed after {total}: {}", failed.join(", "));
    ExitCode::FAILURE
}
