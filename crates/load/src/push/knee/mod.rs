//! The highest rate of publications that a server brings to all clients: what breaks there, and what a search has found.
//!
//! The search itself is [`crate::knee`]'s. Knows no connection.

use std::fmt;
use std::time::Duration;

use super::report::Run;
use crate::figures::Bounds;
use crate::knee::{Found, Knee, Outcome, Phase, Step};
use crate::limits;
use crate::report::per_second;
use crate::threshold::{Clock, Judgement, Measure, Threshold};

/// A thread of the client that used this share of a CPU was the limit, whatever the server did.
pub const BUSY: f64 = 0.9;

/// What broke at a rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Break {
    /// A threshold was not met.
    Objective(Judgement),
    /// So many deliveries were lost.
    Lost(u64),
    /// So many publications were refused, had no response in time or were never sent.
    NotPublished(u64),
    /// So many clients were cut off.
    CutOff(u64),
    /// A thread of the client used this share of a CPU: of the server this says nothing.
    Client(f64),
    /// Nothing came at all.
    Nothing,
}

/// What a search has found.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The highest rate, in publications a second of all channels, and what broke above it.
    pub found: Found<Break>,
    /// The runs that confirmed it; empty if there is none.
    pub confirmed: Vec<Run>,
}

impl Searched {
    /// Deliveries a second of each run that confirmed the rate.
    pub fn deliveries_per_second(&self) -> impl Iterator<Item = f64> {
        let each = self.confirmed.iter();
        each.map(|run| per_second(run.delivered(), run.plan.duration))
    }

    /// Whether nothing but the client itself kept it from going higher: then the server may hold more.
    #[must_use]
    pub fn is_clients_limit(&self) -> bool {
        let broke = self.found.broke.as_ref();
        broke.is_some_and(|(_, why)| why.iter().any(|why| matches!(why, Break::Client(_))))
    }
}

/// How a run went, by these objectives: besides, nothing may be lost, refused or cut off, and the client must have had CPU to spare.
#[must_use]
pub fn outcome(run: &Run, objectives: &[Threshold]) -> Outcome<Break> {
    if run.delivered() == 0 {
        return Outcome {
            broke: vec![Break::Nothing],
        };
    }
    let judged = objectives
        .iter()
        .map(|objective| objective.judge_as(measured(run, objective.measure).map(Bounds::exact)));
    let mut broke: Vec<Break> = judged
        .filter(|judged| !judged.held())
        .map(Break::Objective)
        .collect();
    let published = &run.published;
    let lost = run.lost();
    let unpublished = published.due.saturating_sub(published.accepted);
    let cut_off = run.heard.counts.disconnects.total();
    broke.extend((lost > 0).then_some(Break::Lost(lost)));
    broke.extend((unpublished > 0).then_some(Break::NotPublished(unpublished)));
    broke.extend((cut_off > 0).then_some(Break::CutOff(cut_off)));
    let cpu = run
        .efforts
        .iter()
        .map(|effort| effort.cpu)
        .max()
        .unwrap_or_default();
    let share = cpu.as_secs_f64() / run.plan.duration.as_secs_f64();
    broke.extend((share >= BUSY).then_some(Break::Client(share)));
    Outcome { broke }
}

/// What a run has of what a threshold is about. Latencies are those of clients that read as fast as they can.
fn measured(run: &Run, measure: Measure) -> Result<f64, &'static str> {
    match measure {
        Measure::Latency(Clock::Felt, point) => point.of(&run.heard.fast),
        Measure::Latency(..) => {
            Err("a publication has one latency, that to its client: write it without service. or response.")
        }
        Measure::Errors => match run.totals.expected + run.totals.expected_slow {
            0 => Err("no deliveries were expected"),
            expected => Ok(run.lost() as f64 / expected as f64),
        },
        Measure::Throughput => Ok(per_second(run.delivered(), run.plan.duration)),
        Measure::ServerCpu => {
            let cpu = run
                .server_cpu_per_million()
                .ok_or("the server's CPU was not measured")?;
            Ok(cpu.as_nanos() as f64 / 1e6)
        }
    }
}

/// A search that goes on: the rates of each step follow from those that it began with.
#[derive(Debug)]
pub(super) struct Search {
    knee: Knee<Break>,
    /// What is published a second at first, to the channels in turn and to the common one.
    rates: [f64; 2],
    confirmed: Vec<Run>,
}

impl Search {
    /// Begins with these rates, one of which is more than 0, for steps that last so long.
    pub(super) fn new(rates: [f64; 2], span: Duration) -> Search {
        // More than that cannot be kept account of.
        let ceiling = f64::from(limits::PUBLICATIONS) / span.as_secs_f64().max(f64::MIN_POSITIVE);
        Search {
            knee: Knee::new(rates.iter().sum(), ceiling.min(limits::RATE)),
            rates,
            confirmed: Vec::new(),
        }
    }

    /// What to try next, if anything, and its rates.
    pub(super) fn next(&self) -> Option<(Step, [f64; 2])> {
        let step = self.knee.next()?;
        let factor = step.rate / self.rates.iter().sum::<f64>();
        Some((step, self.rates.map(|rate| rate * factor)))
    }

    /// Takes the run of a step.
    pub(super) fn feed(&mut self, step: Step, run: Run, outcome: Outcome<Break>) {
        // Those that confirm a rate are the result; the first of them follows from whatever was tried before.
        if !matches!(step.phase, Phase::Confirm(1..)) || !outcome.broke.is_empty() {
            self.confirmed.clear();
        }
        if matches!(step.phase, Phase::Confirm(_)) && outcome.broke.is_empty() {
            self.confirmed.push(run);
        }
        self.knee.feed(outcome);
    }

    /// What came of it; `None` before the end.
    pub(super) fn found(self) -> Option<Searched> {
        let found = self.knee.found()?;
        let confirmed = if found.held.is_some() {
            self.confirmed
        } else {
            Vec::new()
        };
        Some(Searched { found, confirmed })
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Break::Objective(judgement) => judgement.fmt(f),
            Break::Lost(count) => write!(f, "{count} deliveries were lost"),
            Break::NotPublished(count) => write!(f, "{count} publications were not accepted"),
            Break::CutOff(count) => write!(f, "{count} clients were cut off"),
            Break::Client(share) => write!(
                f,
                "a thread of the client used {:.0} % of a CPU: the client was the limit",
                share * 100.0
            ),
            Break::Nothing => f.write_str("nothing was delivered"),
        }
    }
}

#[cfg(test)]
mod tests;
