//! Targets against each other: in which order their rounds are run, and what the rounds show.
//!
//! Rounds that were run next to each other are compared with each other, so that what changes slowly (heat, other
//! tenants) falls on both. Knows nothing of how a round is run.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Serialize;

use crate::figures::{Figures, Population};
use crate::limits;
use crate::report::{Round, Run};
use crate::stats::{self, Estimate};

/// Fewer pairs of rounds never show a difference.
pub const PAIRS: usize = 5;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Whole answers a second.
    Throughput,
    /// Microseconds of the server's CPU time for an answer.
    ServerCpu,
    /// Microseconds of service time that half of the answers do not exceed.
    ServiceP50,
    /// That which 99 of 100 do not exceed.
    ServiceP99,
    /// As [`Metric::ServiceP50`], from the scheduled moment; in an open loop only.
    ResponseP50,
    /// As [`Metric::ServiceP99`], from the scheduled moment; in an open loop only.
    ResponseP99,
}

/// One target against the first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The name of the first target, which the ratios are relative to.
    pub first: String,
    /// The name of the other one.
    pub other: String,
    /// One entry for each metric that at least one pair of rounds has.
    pub ratios: Vec<Ratio>,
}

/// One metric of the other target, divided by that of the first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// What is compared.
    pub metric: Metric,
    /// The median of the first target's rounds, in [`Metric`]'s unit.
    pub first: f64,
    /// The median of the other's.
    pub other: f64,
    /// Pairs of rounds that have the metric.
    pub pairs: usize,
    /// The median of their ratios, with its interval.
    pub ratio: Estimate,
    /// What follows.
    pub verdict: Verdict,
}

/// Whether two targets differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There are at least [`PAIRS`] pairs, the interval leaves out 1, and so many pairs agree which target is better as
    /// chance makes agree one time in sixteen at most. The last is because of few pairs the interval alone is too
    /// narrow: of seven, it leaves out 1 by chance one time in nine.
    Different {
        /// Whether the other target is the better one.
        better: bool,
    },
    /// Chance explains what was seen.
    Noise {
        /// So many more rounds of each target would probably show the difference, if it is as large as it seems; `None`
        /// if nothing points to one, or more than [`limits::ROUNDS`] would be needed.
        more_rounds: Option<u32>,
    },
}

/// The order of rounds: each item is the index of the target that is next. In every other turn the order is reversed
/// (AB BA AB …), so that a steady drift favours nobody.
pub fn order(targets: usize, rounds: u32) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| {
        (0..targets).map(move |place| {
            if round % 2 == 0 {
                place
            } else {
                targets - 1 - place
            }
        })
    })
}

/// Compares each run with the first one, round by round; of unequal numbers of rounds, those that both have. The same
/// runs and seed give the same intervals.
#[must_use]
pub fn compare(runs: &[Run], seed: u64) -> Vec<Comparison> {
    let Some((first, others)) = runs.split_first() else {
        return Vec::new();
    };
    let against_first = |other: &Run| Comparison {
        first: first.name.clone(),
        other: other.name.clone(),
        ratios: Metric::ALL
            .into_iter()
            .filter_map(|metric| ratio(metric, first, other, seed))
            .collect(),
    };
    others.iter().map(against_first).collect()
}

impl Metric {
    /// All, in the order in which they are shown.
    pub const ALL: [Metric; 6] = [
        Metric::Throughput,
        Metric::ServerCpu,
        Metric::ServiceP50,
        Metric::ServiceP99,
        Metric::ResponseP50,
        Metric::ResponseP99,
    ];

    /// Whether more of it is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        self == Metric::Throughput
    }

    /// What a round has of it; `None` if it has none, or nothing that could be divided by.
    #[must_use]
    pub fn of(self, round: &Round) -> Option<f64> {
        let figures = &round.figures;
        let value = match self {
            Metric::Throughput => round.throughput(),
            Metric::ServerCpu => round.cpu_per_answer_us(round.server?.cpu)?,
            Metric::ServiceP50 => percentile_us(figures, false, 50.0)?,
            Metric::ServiceP99 => percentile_us(figures, false, 99.0)?,
            Metric::ResponseP50 => percentile_us(figures, true, 50.0)?,
            Metric::ResponseP99 => percentile_us(figures, true, 99.0)?,
        };
        (value > 0.0).then_some(value)
    }
}

/// Returns a percentile of all requests of a round in microseconds; a request without a response took as long as the client waited for
/// it. `None` in a round without a response, or without a schedule where times count from it.
fn percentile_us(figures: &Figures, from_schedule: bool, percent: f64) -> Option<f64> {
    let answered = if from_schedule {
        &figures.response
    } else {
        &figures.service
    };
    (answered.count() > 0).then(|| Population::of(figures, from_schedule, 0).percentile(percent).low / 1e3)
}

fn ratio(metric: Metric, first: &Run, other: &Run, seed: u64) -> Option<Ratio> {
    let pairs = first.rounds.iter().zip(&other.rounds);
    let (firsts, others): (Vec<f64>, Vec<f64>) = pairs
        .filter_map(|(first, other)| Some((metric.of(first)?, metric.of(other)?)))
        .unzip();
    let ratios: Vec<f64> = firsts
        .iter()
        .zip(&others)
        .map(|(first, other)| other / first)
        .collect();
    let ratio = stats::bootstrap(&ratios, seed)?;
    Some(Ratio {
        metric,
        first: stats::median(&firsts)?,
        other: stats::median(&others)?,
        pairs: ratios.len(),
        ratio,
        verdict: verdict(metric, ratio, &ratios),
    })
}

fn verdict(metric: Metric, ratio: Estimate, ratios: &[f64]) -> Verdict {
    if ratio.excludes(1.0) && ratios.len() >= PAIRS && agree(ratios) {
        return Verdict::Different {
            better: (ratio.median > 1.0) == metric.more_is_better(),
        };
    }
    Verdict::Noise {
        more_rounds: more_rounds(ratio, ratios.len()),
    }
}

/// The sign test, two-sided: if each pair came out one way or the other by a coin, so many would agree with a probability
/// of one sixteenth at most. That is the least that [`PAIRS`] can reach.
fn agree(ratios: &[f64]) -> bool {
    let above = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    let below = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    let (pairs, most) = (ratios.len(), above.max(below));
    let mut exactly = 0.5f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX));
    let mut so_many = 0.0;
    // From all that agree down to as many as do: each binomial coefficient from the one before.
    for disagree in 0..=pairs - most {
        so_many += exactly;
        exactly *= (pairs - disagree) as f64 / (disagree + 1) as f64;
    }
    2.0 * so_many <= 1.0 / 16.0
}

/// The interval shrinks with the root of the number of pairs: until its near end has passed 1.
fn more_rounds(ratio: Estimate, pairs: usize) -> Option<u32> {
    let effect = ratio.median.ln();
    let near = if effect > 0.0 { ratio.low } else { ratio.high };
    let reach = (effect - near.ln()).abs();
    if effect == 0.0 {
        return None;
    }
    let needed = (pairs as f64 * (reach / effect).powi(2)).ceil().max(PAIRS as f64);
    if needed > f64::from(limits::ROUNDS) {
        return None;
    }
    // Where the interval ends at 1 to the digit, one more is what decides.
    Some((needed as u32).saturating_sub(pairs as u32).max(1))
}
