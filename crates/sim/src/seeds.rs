//! The seeds of simulation tests, and the report of a seed that failed.
//!
//! Environment variables choose them: `SIM_SEED=n` is seed n alone, `SIM_SEEDS=n` are those before n, `SIM_FIRST=n` leaves out those
//! before n.

use std::env;
use std::io::Write;
use std::ops::Range;

use crate::World;

/// The seeds of a run without variables, which each commit passes. `cargo xtask suite sim` runs 10,000.
pub const COMMIT: u64 = 100;

/// Lines of the trace in a report.
const TRACE_LINES: usize = 300;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Returns the seeds of this run of a test.
#[must_use]
pub fn all() -> Range<u64> {
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => number("SIM_FIRST").unwrap_or(0)..number("SIM_SEEDS").unwrap_or(COMMIT),
    }
}

/// Returns the seeds of a test that needs few: `count` with `SIM_SEEDS`, otherwise a fifth.
#[must_use]
pub fn some(count: u64) -> Range<u64> {
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None if number("SIM_SEEDS").is_some() => 0..count,
        None => 0..count.div_ceil(5),
    }
}

/// Returns whether a run had enough seeds for claims on averages: at least [`COMMIT`].
#[must_use]
pub fn are_many(runs: impl TryInto<u64>) -> bool {
    runs.try_into().is_ok_and(|runs| runs >= COMMIT)
}

/// Reports its seed and the end of its world's trace on standard error if it is dropped by a panic.
#[derive(Debug)]
pub struct Named {
    /// The seed.
    pub seed: u64,
    again: String,
    world: World,
}

impl Named {
    /// `again` is the command that runs the test, without its variables.
    #[must_use]
    pub fn new(seed: u64, world: &World, again: impl Into<String>) -> Named {
        Named {
            seed,
            again: again.into(),
            world: world.clone(),
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (seed, again) = (self.seed, &self.again);
        let trace = self.world.trace_text();
        // Idle turns have no information, and there may be many.
        let lines: Vec<&str> = trace.lines().filter(|line| !line.contains("  wait")).collect();
        let end = lines[lines.len().saturating_sub(TRACE_LINES)..].join("\n");
        let report = format!("the end of seed {seed}:\n{end}\nagain: SIM_SEED={seed} {again}\n");
        // The panic itself was reported.
        let _ = std::io::stderr().write_all(report.as_bytes());
    }
}
