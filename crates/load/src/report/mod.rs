//! What a run has shown: the one form that all outputs are made from.
//!
//! The model is plain data and what follows from it, and knows no output. Each output is a folder of its own that knows
//! the model and no other output: [`text`] for a terminal, [`page`] for a
//! browser, [`json`] for programs.

pub mod amount;
mod comparison;
#[cfg(test)]
mod fixture;
pub mod json;
pub mod page;
mod remark;
mod rounds;
pub mod text;

pub use comparison::{Against, ComparisonTable, Row, Tone, Unit, letter};
pub use remark::{Remark, Severity};

use std::time::Duration;

use crate::figures::{Counts, Figures, Percentiles};
use crate::plan::Plan;

/// A whole run against one target.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the user calls the target: its address, or a name given to it.
    pub name: String,
    /// What was asked for.
    pub plan: Plan,
    /// The engine that the client ran on, with its features, as `--version` says it.
    pub engine: String,
    /// One entry a round.
    pub rounds: Vec<Round>,
}

/// One round, the measured part only.
#[derive(Clone, Debug)]
pub struct Round {
    /// How long it was measured, until its end was told, not until connections were closed.
    pub elapsed: Duration,
    /// When measuring began, since the Unix epoch.
    pub began: Duration,
    /// Everything of the round.
    pub figures: Figures,
    /// The same over time, [`Plan::interval`] apart; the last entry may be shorter. Never more than
    /// [`crate::limits::SERIES`]: of a longer run each entry covers a longer time.
    pub series: Vec<Interval>,
    /// What the client itself used, one entry a worker.
    pub workers: Vec<Effort>,
    /// What the server used, if it was watched.
    pub server: Option<ServerUse>,
}

/// A part of a round, in short: the histograms of all parts would fill the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Its end, since the beginning of the measured time.
    pub until: Duration,
    /// Its length.
    pub length: Duration,
    /// What was counted in it.
    pub counts: Counts,
    /// Service times of the answers that came in it.
    pub service: Percentiles,
    /// Response times of the same; all zero in a closed loop.
    pub response: Percentiles,
}

/// What one worker of the client used while it measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// CPU time of its thread.
    pub cpu: Duration,
    /// How long it was ready and had no CPU, because others had it; `None` where the kernel does not say.
    pub waited: Option<Duration>,
    /// The CPU that it was pinned to.
    pub pinned: Option<usize>,
}

/// What the server's process and all its descendants used while it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerUse {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// The most memory resident at a time, in bytes, summed over the processes.
    pub peak_memory_bytes: u64,
    /// Processes at the end.
    pub processes: u32,
}

impl Round {
    /// Whole answers a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        per_second(self.figures.counts.answered, self.elapsed)
    }

    /// CPU time of the client's workers.
    #[must_use]
    pub fn client_cpu(&self) -> Duration {
        self.workers.iter().map(|worker| worker.cpu).sum()
    }

    /// CPU microseconds for each answer; `None` without an answer.
    #[must_use]
    pub fn cpu_per_answer_us(&self, cpu: Duration) -> Option<f64> {
        let answered = self.figures.counts.answered;
        (answered > 0).then(|| cpu.as_secs_f64() * 1e6 / answered as f64)
    }
}

/// `count` divided by `span`; zero for no time.
#[must_use]
pub fn per_second(count: u64, span: Duration) -> f64 {
    if span.is_zero() {
        return 0.0;
    }
    count as f64 / span.as_secs_f64()
}
