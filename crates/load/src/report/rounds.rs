//! What all rounds of a run say together: medians with their spread, sums, and each percentile as far as there are
//! answers enough to tell it.
//!
//! Knows no output.

use std::time::Duration;

use super::{Round, Run};
use crate::figures::{Figures, Latency};
use crate::plan::Protocol;
use crate::stats::Spread;

/// The percentiles that every output shows, with their names; the longest comes after them.
pub(crate) const SHOWN: [(f64, &str); 5] = [
    (50.0, "p50"),
    (90.0, "p90"),
    (99.0, "p99"),
    (99.9, "p99.9"),
    (99.99, "p99.99"),
];

/// One of the latencies.
pub(crate) type Of = fn(&Figures) -> &Latency;

/// The handshakes that connections of this run had, in their order, with their names.
pub(crate) fn handshakes(run: &Run) -> impl Iterator<Item = (&'static str, Of)> {
    let known: [(&'static str, Of); 2] = [
        ("TLS", |figures| &figures.handshake),
        match run.plan.protocol {
            Protocol::Http2 | Protocol::Grpc(_) => ("HTTP/2 settings", |figures| &figures.opening),
            _ => ("WebSocket", |figures| &figures.opening),
        },
    ];
    let had = |of: Of| run.rounds.iter().any(|round| of(&round.figures).count() > 0);
    known.into_iter().filter(move |(_, of)| had(*of))
}

/// What an answer has done that is not the expected one.
pub(crate) fn unexpected(runs: &[&Run]) -> &'static str {
    let is_echo = |run: &&Run| matches!(run.plan.protocol, Protocol::WebSocket(_));
    if runs.iter().all(is_echo) {
        "echo differs"
    } else {
        "failed a check"
    }
}

/// One figure a round; `None` unless each round has it.
pub(crate) fn spread(run: &Run, figure: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
    Spread::of(&run.rounds.iter().map(figure).collect::<Option<Vec<f64>>>()?)
}

/// A percentile of each round in seconds; `None` if a round has too few answers to tell it.
pub(crate) fn spread_of_percentile(
    run: &Run,
    percent: f64,
    latency: impl Fn(&Figures) -> &Latency,
) -> Option<Spread> {
    spread(run, |round| percentile(latency(&round.figures), percent))
}

/// The longest of each round in seconds; `None` if a round has no answer.
pub(crate) fn spread_of_longest(run: &Run, latency: impl Fn(&Figures) -> &Latency) -> Option<Spread> {
    spread(run, |round| {
        let latency = latency(&round.figures);
        (latency.count() > 0).then(|| latency.max().as_secs_f64())
    })
}

/// The percentile in seconds, if at least one latency lies above it: of a hundred answers nobody can tell the p99.9.
pub(crate) fn percentile(latency: &Latency, percent: f64) -> Option<f64> {
    let above = latency.count() as f64 * (100.0 - percent) / 100.0;
    // A little less than one makes up for what the division loses.
    (above >= 1.0 - 1e-6).then(|| latency.percentile(percent).as_secs_f64())
}

/// The figures of all rounds as one.
pub(crate) fn merged(run: &Run) -> Figures {
    let mut merged = Figures::default();
    for round in &run.rounds {
        merged.merge(&round.figures);
    }
    merged
}

/// The measured time of all rounds.
pub(crate) fn elapsed(run: &Run) -> Duration {
    run.rounds.iter().map(|round| round.elapsed).sum()
}

/// Whether requests had a scheduled time.
pub(crate) fn has_schedule(run: &Run) -> bool {
    run.plan.pace.rate().is_some()
}

/// CPU seconds that the server used for each answer; `None` if it was not watched.
pub(crate) fn server_cpu(round: &Round) -> Option<f64> {
    let server = round.server?;
    Some(round.cpu_per_answer_us(server.cpu)? / 1e6)
}

/// CPU seconds that the client used for each answer.
pub(crate) fn client_cpu(round: &Round) -> Option<f64> {
    Some(round.cpu_per_answer_us(round.client_cpu())? / 1e6)
}

/// How much of the time the client's busiest worker computed, 0 to 1.
pub(crate) fn busiest(round: &Round) -> Option<f64> {
    let most = round.workers.iter().map(|worker| worker.cpu).max()?;
    (!round.elapsed.is_zero()).then(|| most.as_secs_f64() / round.elapsed.as_secs_f64())
}
