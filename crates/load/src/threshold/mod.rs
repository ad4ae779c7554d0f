//! What a run must reach: `p99<5ms`, `errors<0.1%`. Sets the exit code, and is the objective of a search for the knee.
//!
//! Owns the form, its reading (`parse`) and the judgement of a run by it. Knows no flag.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use parse::ThresholdError;

use crate::figures::Latency;
use crate::report::{Round, Run};
use crate::stats;

/// One condition, such as `p99.9<=20ms`. [`str::parse`] reads it, [`fmt::Display`] shows it as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// What is compared.
    pub measure: Measure,
    /// How.
    pub relation: Relation,
    /// With what, in [`Measure`]'s unit.
    pub limit: f64,
    text: String,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// `p99`, `service.p99`, `response.mean`, `max`: in nanoseconds, the median over the rounds.
    Latency(Clock, Point),
    /// `errors`: the share (0 to 1) of requests of all rounds that came to nothing; see [`Measure::of`].
    Errors,
    /// `rps`: whole answers a second, the median over the rounds.
    Throughput,
    /// `cpu`: nanoseconds of the server's CPU time for an answer, the median over the rounds.
    ServerCpu,
}

/// From when a latency counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// As users feel it: from the scheduled moment where there is a schedule, else from the sending.
    Felt,
    /// From the sending.
    Service,
    /// From the scheduled moment; a closed loop has none.
    Response,
}

/// Which of all latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Point {
    /// That which so many percent do not exceed: more than 0, at most 100.
    Percent(f64),
    /// The mean.
    Mean,
    /// The longest.
    Max,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named by what they are")]
pub enum Relation {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Whether a run has met a threshold. [`fmt::Display`] says it in one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The threshold.
    pub threshold: Threshold,
    /// What was compared with it, in [`Measure`]'s unit; the reason if the run does not have it.
    pub measured: Result<f64, &'static str>,
}

impl Threshold {
    /// Compares a run with it.
    #[must_use]
    pub fn judge(&self, run: &Run) -> Judgement {
        self.judge_as(self.measure.of(run))
    }

    /// Compares what was measured of something else with it.
    pub(crate) fn judge_as(&self, measured: Result<f64, &'static str>) -> Judgement {
        Judgement {
            threshold: self.clone(),
            measured,
        }
    }
}

impl Judgement {
    /// Whether the threshold is met. What was not measured is not met.
    #[must_use]
    pub fn held(&self) -> bool {
        self.measured
            .is_ok_and(|measured| self.threshold.relation.holds(measured, self.threshold.limit))
    }
}

impl Measure {
    /// What a run has of it; else the reason, as a sentence's end.
    ///
    /// Requests without an answer (timeouts, broken connections, arrivals that were never sent) are errors, and so are
    /// answers that failed a check; without one of its own a request expects a status from 200 to 399.
    ///
    /// # Errors
    ///
    /// If the run has none: no rounds, a round without an answer, a server that was not watched.
    pub fn of(self, run: &Run) -> Result<f64, &'static str> {
        if run.rounds.is_empty() {
            return Err("no round was run");
        }
        let open = run.plan.pace.rate().is_some();
        match self {
            Measure::Errors => errors(run),
            Measure::Throughput => over_rounds(run, |round| Ok(round.throughput())),
            Measure::ServerCpu => over_rounds(run, server_cpu),
            Measure::Latency(Clock::Response, _) if !open => {
                Err("a closed loop has no response times; give a rate")
            }
            Measure::Latency(clock, point) => over_rounds(run, |round| match clock {
                Clock::Felt if open => point.of(&round.figures.response),
                Clock::Response => point.of(&round.figures.response),
                Clock::Felt | Clock::Service => point.of(&round.figures.service),
            }),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Measure::Latency(..) | Measure::ServerCpu => {
                format!("{:.2?}", Duration::from_nanos(value as u64))
            }
            Measure::Errors => format!("{:.3}%", value * 100.0),
            Measure::Throughput => format!("{value:.0}/s"),
        }
    }
}

impl Point {
    pub(crate) fn of(self, latency: &Latency) -> Result<f64, &'static str> {
        if latency.count() == 0 {
            return Err("a round had no answer");
        }
        let duration = match self {
            Point::Percent(percent) => latency.percentile(percent),
            Point::Mean => latency.mean(),
            Point::Max => latency.max(),
        };
        Ok(duration.as_nanos() as f64)
    }
}

impl Relation {
    fn holds(self, measured: f64, limit: f64) -> bool {
        match self {
            Relation::Less => measured < limit,
            Relation::AtMost => measured <= limit,
            Relation::Greater => measured > limit,
            Relation::AtLeast => measured >= limit,
        }
    }
}

fn over_rounds(run: &Run, of: impl Fn(&Round) -> Result<f64, &'static str>) -> Result<f64, &'static str> {
    let values: Vec<f64> = run.rounds.iter().map(of).collect::<Result<_, _>>()?;
    stats::median(&values).ok_or("a round lasted no time")
}

fn server_cpu(round: &Round) -> Result<f64, &'static str> {
    let server = round.server.ok_or("the server's CPU was not watched")?;
    let microseconds = round
        .cpu_per_answer_us(server.cpu)
        .ok_or("a round had no answer")?;
    Ok(microseconds * 1e3)
}

fn errors(run: &Run) -> Result<f64, &'static str> {
    let (mut wrong, mut all) = (0, 0);
    for counts in run.rounds.iter().map(|round| &round.figures.counts) {
        wrong += counts.failed() + counts.dropped + counts.unexpected;
        all += counts.sent + counts.dropped;
    }
    if all == 0 {
        Err("nothing was sent")
    } else {
        Ok(wrong as f64 / all as f64)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threshold = &self.threshold;
        match self.measured {
            Err(reason) => write!(f, "{threshold} cannot be judged: {reason}"),
            Ok(measured) => {
                let verdict = if self.held() { "holds" } else { "does not hold" };
                write!(f, "{threshold} {verdict}: {}", threshold.measure.show(measured))
            }
        }
    }
}
