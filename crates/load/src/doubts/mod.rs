//! What speaks against believing a run: the client was the limit, figures contradict each other, too little was measured.
//!
//! Pure judgement of what a run shows. `client` asks whether the client did its part, `figures` whether the figures fit
//! each other and the question, `answers` whether the answers were right. Knows no output.

mod answers;
mod client;
mod figures;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Serialize;

use crate::report::{Round, Run, Severity};

/// A reason to doubt a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What it is about.
    pub kind: Kind,
    /// The round in which it was seen, counted from zero; `None` if it is about the whole run or all rounds of several.
    pub round: Option<usize>,
    /// What was seen, what it means and what to do.
    pub message: String,
    /// How much it matters.
    pub severity: Severity,
}

/// What a doubt is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A worker of the client used up its CPU.
    ClientBusy,
    /// A worker of the client had no CPU while it was ready.
    ClientStarved,
    /// Requests left late although a connection was free.
    SendLag,
    /// Client and server ran on the same CPU.
    SharedCpu,
    /// Requests left late, for whatever reason.
    Late,
    /// Fewer answers than the rate asked for.
    RateMissed,
    /// Throughput, latency and the number of connections contradict each other.
    Concurrency,
    /// A round had another throughput than the others.
    RoundDeviates,
    /// The round took another time than was asked for.
    Elapsed,
    /// Too little time was measured.
    Short,
    /// A percentile rests on few answers.
    FewAnswers,
    /// A latency was longer than can be recorded.
    LongestLatency,
    /// Nothing was answered.
    NoAnswer,
    /// Answers with statuses other than 2xx and 3xx.
    Statuses,
    /// Answers that failed a check.
    Unexpected,
    /// Requests without an answer in time.
    Timeouts,
    /// Requests whose connection failed.
    Broken,
    /// Attempts to connect that failed.
    ConnectErrors,
    /// Messages were to be deflated, and went as they were.
    NotDeflated,
    /// A server took fewer streams at once than were asked for.
    FewerStreams,
    /// TLS sessions were to be resumed, and none was.
    NotResumed,
}

/// What a run does not show itself.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The CPUs that the server may run on; `None` if that is not known or it is on another host.
    pub server_cpus: Option<Vec<usize>>,
    /// The CPUs that the client may run on.
    pub client_cpus: Vec<usize>,
}

/// What a check has seen in one round.
struct Seen {
    kind: Kind,
    severity: Severity,
    /// How bad it is: of several rounds the worst one is told.
    badness: f64,
    message: String,
}

/// Looks at one round of a run.
type Check = fn(&Run, &Round) -> Option<Seen>;

/// In the order in which doubts are told.
const CHECKS: [Check; 20] = [
    client::busy,
    client::starved,
    client::send_lag,
    client::late,
    figures::rate_missed,
    figures::concurrency,
    figures::round_deviates,
    figures::elapsed,
    figures::short,
    answers::none,
    answers::statuses,
    answers::unexpected,
    answers::timeouts,
    answers::broken,
    answers::connect_errors,
    answers::not_deflated,
    answers::fewer_streams,
    answers::not_resumed,
    figures::longest_latency,
    figures::few_answers,
];

/// All doubts about a run, the weightier ones first. What all of several rounds share is one doubt, which tells of the
/// worst.
#[must_use]
pub fn doubts(run: &Run, context: &Context) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> = client::shared_cpu(context).into_iter().collect();
    for check in CHECKS {
        let seen = run.rounds.iter().enumerate();
        let seen = seen
            .filter_map(|(round, figures)| Some((round, check(run, figures)?)))
            .collect();
        fold(run.rounds.len(), seen, &mut doubts);
    }
    doubts.sort_by_key(|doubt| std::cmp::Reverse(doubt.severity));
    doubts
}

fn fold(rounds: usize, seen: Vec<(usize, Seen)>, doubts: &mut Vec<Doubt>) {
    if rounds < 2 || seen.len() < rounds {
        let doubt = |(round, seen): (usize, Seen)| Doubt {
            kind: seen.kind,
            round: Some(round),
            message: seen.message,
            severity: seen.severity,
        };
        doubts.extend(seen.into_iter().map(doubt));
        return;
    }
    let worst = seen
        .into_iter()
        .map(|(_, seen)| seen)
        .max_by(|a, b| a.badness.total_cmp(&b.badness));
    doubts.extend(worst.map(|worst| Doubt {
        kind: worst.kind,
        round: None,
        message: format!("In all {rounds} rounds, at worst: {}", worst.message),
        severity: worst.severity,
    }));
}

/// A share as percent with as many digits as it needs.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 {
        format!("{percent:.0}%")
    } else {
        format!("{percent:.2}%")
    }
}
