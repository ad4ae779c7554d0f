//! The test programs of `cargo test`, several at once: most of them wait for servers and clients, and one after the other they leave
//! CPUs idle.
//!
//! Owns starting them as cargo does, and printing the output of those that fail. Knows nothing of the tests in them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::Value;

/// The programs that take longest: they start first, so that none runs alone at the end.
const LONG: [&str; 8] = [
    "gateway it",
    "gateway alloc",
    "web it",
    "sources it",
    "load ringmain_load",
    "gateway sim",
    "cli it",
    "engine it",
];

/// The programs that run by themselves at the end: their subject is real time, which others beside them would stretch.
const ALONE: [&str; 1] = ["load it"];

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The package's folder, in which it runs.
    folder: PathBuf,
    /// The name of its target.
    target: String,
    executable: PathBuf,
}

impl Program {
    /// The package and the target, as in `gateway it`.
    fn name(&self) -> String {
        let package = self.folder.file_name().unwrap_or_default();
        format!("{} {}", package.to_string_lossy(), self.target)
    }

    fn command(&self, filters: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .args(filters)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }
}

/// Builds the tests that `selection` names. `Err`: they do not compile, which cargo has explained.
pub(super) fn build(root: &Path, selection: &[&str]) -> Result<Vec<Program>, String> {
    let mut words = vec!["test", "--no-run", "--message-format=json-render-diagnostics"];
    words.extend(selection);
    let shown = format!("cargo {}", words.join(" "));
    eprintln!("$ {shown}");
    let mut command = super::cargo(root, &words);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` ended with {}", output.status));
    }
    let mut programs = programs(&String::from_utf8_lossy(&output.stdout))?;
    programs.sort_by_key(|program| {
        let name = program.name();
        LONG.iter().position(|long| *long == name).unwrap_or(LONG.len())
    });
    Ok(programs)
}

/// The test programs among cargo's messages, one JSON object a line.
pub(super) fn programs(messages: &str) -> Result<Vec<Program>, String> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)
            .map_err(|error| format!("expected a message of cargo in JSON, found `{line}`: {error}"))?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if message["profile"]["test"] != Value::Bool(true) {
            continue;
        }
        let (Some(executable), Some(manifest), Some(target)) = (
            text(&message["executable"]),
            text(&message["manifest_path"]),
            text(&message["target"]["name"]),
        ) else {
            continue;
        };
        let manifest = PathBuf::from(manifest);
        found.push(Program {
            folder: manifest.parent().unwrap_or(&manifest).to_owned(),
            target,
            executable: executable.into(),
        });
    }
    Ok(found)
}

/// The programs that run at once: as many as there are CPUs. `TEST_PROGRAMS` sets another number.
fn width() -> Result<usize, String> {
    match env::var("TEST_PROGRAMS") {
        Ok(text) => text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
            format!("TEST_PROGRAMS: expected a number of test programs to run at once, found `{text}`")
        }),
        Err(_) => Ok(thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// Runs all programs. Returns a line for each that failed.
///
/// Standard error is passed on at once: tests that are skipped report it there. Of a program that passes, standard output is reduced
/// to its summary.
pub(super) fn run(programs: &[Program], filters: &[&str]) -> Result<Vec<String>, String> {
    let (width, mut failures) = (width()?, Vec::new());
    let is_alone = |program: &&Program| ALONE.contains(&program.name().as_str());
    let (alone, others): (Vec<&Program>, Vec<&Program>) = programs.iter().partition(is_alone);
    for (programs, width) in [(others, width), (alone, 1)] {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let failure = run_one(program, filters);
                failed.lock().expect("no holder panics").extend(failure);
            }
        };
        thread::scope(|scope| {
            for _ in 0..width.min(programs.len()) {
                scope.spawn(work);
            }
        });
        failures.extend(failed.into_inner().expect("no holder panics"));
    }
    Ok(failures)
}

fn run_one(program: &Program, filters: &[&str]) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "measures programs that run in real time"
    )]
    let begun = Instant::now();
    let name = program.name();
    let child = program.command(filters).spawn();
    let output = match child.and_then(Child::wait_with_output) {
        Ok(output) => output,
        Err(error) => return Some(format!("{name}: could not be started: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let took = begun.elapsed().as_secs_f64();
    if output.status.success() {
        let summary = text
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("test result: "));
        let summary = summary.unwrap_or("ok");
        if !summary.starts_with("ok. 0 passed; 0 failed; 0 ignored") {
            println!("{name:<28} {took:6.1} s  {summary}");
        }
        return None;
    }
    println!("{name:<28} {took:6.1} s  FAILED\n{text}");
    Some(format!("{name}: {}", output.status))
}
