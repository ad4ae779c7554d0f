//! Judgements, as they stand in a document.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::round::Latency;
use crate::compare::{Comparison, Metric, Ratio, Verdict as Judged};
use crate::doubts::{Doubt, Kind};
use crate::figures;
use crate::knee::Found;
use crate::record::{Recorded, Tagged};
use crate::report::Severity;
use crate::stats;
use crate::threshold::Judgement;

/// A reason to doubt.
#[derive(JsonSchema, Serialize)]
pub(super) struct Told<'a> {
    /// What it is about, as one word: `client_busy`, `send_lag`, …
    kind: Kind,
    /// `note` or `warning`.
    severity: Severity,
    /// The index in `rounds`; `null` if it is about all.
    round: Option<usize>,
    /// What was seen, what it means and what to do.
    message: &'a str,
}

/// A threshold and whether it was met.
#[derive(JsonSchema, Serialize)]
pub(super) struct Verdict {
    /// As it was given.
    threshold: String,
    held: bool,
    /// What was measured, or why it was not, in one line.
    message: String,
}

/// A target against the first one.
#[derive(JsonSchema, Serialize)]
pub(super) struct Against<'a> {
    /// The name of the first target.
    first: &'a str,
    /// The name of the other.
    other: &'a str,
    /// How sure the intervals are.
    confidence: f64,
    metrics: Vec<Compared>,
}

/// One metric.
#[derive(JsonSchema, Serialize)]
struct Compared {
    /// `throughput` (a second), `server_cpu` (microseconds an answer), `service_p50`, `service_p99`, `response_p50`,
    /// `response_p99` (microseconds).
    metric: Metric,
    /// The median of the first target's rounds, in the metric's unit.
    first: f64,
    /// The median of the other's.
    other: f64,
    /// Pairs of rounds.
    pairs: usize,
    /// The median over the pairs of the other's figure divided by the first's.
    ratio: f64,
    /// The lower end of its interval.
    ratio_low: f64,
    /// The upper end of its interval.
    ratio_high: f64,
    /// `better`, `worse` (the other one, than the first) or `noise`.
    verdict: &'static str,
    /// Of noise: rounds that would probably show the difference; `null` if that cannot be said.
    more_rounds: Option<u32>,
}

/// The outcome of a search for the highest rate.
#[derive(JsonSchema, Serialize)]
pub(super) struct Search {
    /// The highest rate that held and was confirmed; `null` if none was.
    held_per_s: Option<f64>,
    /// The lowest rate tried above it that did not hold; `null` if none was tried.
    broke_per_s: Option<f64>,
    /// Why that did not hold, a line each.
    why: Vec<String>,
    steps: u32,
}

/// Files of histograms put together.
#[derive(JsonSchema, Serialize)]
pub(super) struct Merged<'a> {
    /// By tag.
    tags: BTreeMap<&'a str, Part>,
}

#[derive(JsonSchema, Serialize)]
struct Part {
    /// Lines of the files.
    lines: u64,
    /// The beginning of the first, since the Unix epoch.
    from_s: f64,
    /// The end of the last.
    until_s: f64,
    /// Of values in nanoseconds.
    latency: Option<Latency>,
}

impl<'a> Told<'a> {
    pub(super) fn of(doubt: &'a Doubt) -> Told<'a> {
        Told {
            kind: doubt.kind,
            severity: doubt.severity,
            round: doubt.round,
            message: &doubt.message,
        }
    }
}

impl Verdict {
    pub(super) fn of(judgement: &Judgement) -> Verdict {
        Verdict {
            threshold: judgement.threshold.to_string(),
            held: judgement.held(),
            message: judgement.to_string(),
        }
    }
}

impl<'a> Against<'a> {
    pub(super) fn of(comparison: &'a Comparison) -> Against<'a> {
        Against {
            first: &comparison.first,
            other: &comparison.other,
            confidence: stats::CONFIDENCE,
            metrics: comparison.ratios.iter().map(Compared::of).collect(),
        }
    }
}

impl Compared {
    fn of(ratio: &Ratio) -> Compared {
        let (verdict, more_rounds) = match ratio.verdict {
            Judged::Different { better: true } => ("better", None),
            Judged::Different { better: false } => ("worse", None),
            Judged::Noise { more_rounds } => ("noise", more_rounds),
        };
        Compared {
            metric: ratio.metric,
            first: ratio.first,
            other: ratio.other,
            pairs: ratio.pairs,
            ratio: ratio.ratio.median,
            ratio_low: ratio.ratio.low,
            ratio_high: ratio.ratio.high,
            verdict,
            more_rounds,
        }
    }
}

impl Search {
    pub(super) fn of(found: &Found) -> Search {
        let (broke, why) = found
            .broke
            .as_ref()
            .map_or((None, &[][..]), |(rate, why)| (Some(*rate), why));
        Search {
            held_per_s: found.held,
            broke_per_s: broke,
            why: why.iter().map(ToString::to_string).collect(),
            steps: found.steps,
        }
    }
}

impl<'a> Merged<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> Merged<'a> {
        Merged {
            tags: recorded
                .tags
                .iter()
                .map(|(tag, tagged)| (tag.as_str(), Part::of(tagged)))
                .collect(),
        }
    }
}

impl Part {
    fn of(tagged: &Tagged) -> Part {
        Part {
            lines: tagged.lines,
            from_s: tagged.from.as_secs_f64(),
            until_s: tagged.until.as_secs_f64(),
            latency: Latency::of(&figures::Latency::of(&tagged.histogram)),
        }
    }
}
