//! What a run must reach: `p99<5ms`, `errors<0.1%`. Sets the exit code, and is the objective of a search for the knee.
//!
//! Owns the form, its reading (`parse`) and the judgement of a run by it. Knows no flag.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use parse::ThresholdError;

use crate::figures::{Bounds, Figures, Latency, Population};
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

/// Whether a run has met a threshold. [`fmt::Display`] shows it in one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The threshold.
    pub threshold: Threshold,
    /// The figure compared with it, in [`Measure`]'s unit; the reason if the run does not have it.
    pub measured: Result<Bounds, &'static str>,
}

impl Threshold {
    /// Compares a run with it.
    #[must_use]
    pub fn judge(&self, run: &Run) -> Judgement {
        self.judge_as(self.measure.of(run))
    }

    /// Compares a figure that was measured elsewhere with it.
    pub(crate) fn judge_as(&self, measured: Result<Bounds, &'static str>) -> Judgement {
        Judgement {
            threshold: self.clone(),
            measured,
        }
    }
}

impl Judgement {
    /// Returns whether the threshold is met whatever requests without a response would have taken. A threshold that cannot be
    /// judged is missed.
    #[must_use]
    pub fn held(&self) -> bool {
        self.verdict() == Verdict::Held
    }

    fn verdict(&self) -> Verdict {
        let Ok(measured) = self.measured else {
            return Verdict::Unknown;
        };
        let holds = |value| self.threshold.relation.holds(value, self.threshold.limit);
        match (holds(measured.low), holds(measured.high)) {
            (true, true) => Verdict::Held,
            (false, false) => Verdict::Missed,
            _ => Verdict::Unknown,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Held,
    Missed,
    Unknown,
}

impl Measure {
    /// Returns the figure of a run; else the reason, as a sentence's end.
    ///
    /// Errors are requests without a response (timeouts, broken connections, arrivals that were never sent, and requests in flight
    /// at the end that had waited longer than every response of their round took) and responses that failed a check; without one
    /// of its own a request expects a status from 200 to 399. In latencies a request without a response took at least as long as
    /// the client waited for it. A closed loop sends nothing while a connection cannot be established: the requests that it would
    /// have carried at the pace of the others count as errors, and as latencies of which nothing is known.
    ///
    /// # Errors
    ///
    /// If the run has none: no rounds, a round without a response, a server that was not watched.
    pub fn of(self, run: &Run) -> Result<Bounds, &'static str> {
        if run.rounds.is_empty() {
            return Err("no round was run");
        }
        let open = run.plan.pace.rate().is_some();
        match self {
            Measure::Errors => errors(run).map(Bounds::exact),
            Measure::Throughput => over_rounds(run, |round| Ok(Bounds::exact(round.throughput()))),
            Measure::ServerCpu => over_rounds(run, |round| server_cpu(round).map(Bounds::exact)),
            Measure::Latency(Clock::Response, _) if !open => {
                Err("a closed loop has no response times; give a rate")
            }
            Measure::Latency(clock, point) => over_rounds(run, |round| {
                let missing = missing(run, round);
                match clock {
                    Clock::Felt if open => point.of_requests(&round.figures, Clock::Response, missing),
                    Clock::Response => point.of_requests(&round.figures, Clock::Response, missing),
                    Clock::Felt | Clock::Service => {
                        point.of_requests(&round.figures, Clock::Service, missing)
                    }
                }
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
    /// Returns the bounds of the point over all requests of a round, with and without a response.
    fn of_requests(self, figures: &Figures, clock: Clock, missing: u64) -> Result<Bounds, &'static str> {
        if figures.counts.answered == 0 {
            return Err("a round had no response");
        }
        let requests = Population::of(figures, clock == Clock::Response, missing);
        Ok(match self {
            Point::Percent(percent) => requests.percentile(percent),
            Point::Mean => requests.mean(),
            Point::Max => requests.max(),
        })
    }

    pub(crate) fn of(self, latency: &Latency) -> Result<f64, &'static str> {
        if latency.count() == 0 {
            return Err("a round had no response");
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

fn over_rounds(
    run: &Run,
    of: impl Fn(&Round) -> Result<Bounds, &'static str>,
) -> Result<Bounds, &'static str> {
    let values: Vec<Bounds> = run.rounds.iter().map(of).collect::<Result<_, _>>()?;
    let low: Vec<f64> = values.iter().map(|value| value.low).collect();
    let mut high: Vec<f64> = values.iter().map(|value| value.high).collect();
    high.sort_by(f64::total_cmp);
    let low = stats::median(&low).ok_or("a round has no duration")?;
    // Infinite bounds have a median, too, which `stats` refuses.
    let middle = [high[(high.len() - 1) / 2], high[high.len() / 2]];
    Ok(Bounds {
        low,
        high: middle.iter().sum::<f64>() / 2.0,
    })
}

fn server_cpu(round: &Round) -> Result<f64, &'static str> {
    let server = round.server.ok_or("the server's CPU was not measured")?;
    let microseconds = round
        .cpu_per_answer_us(server.cpu)
        .ok_or("a round had no response")?;
    Ok(microseconds * 1e3)
}

/// Requests that a round lacks since connections could not be established.
fn missing(run: &Run, round: &Round) -> u64 {
    round.figures.missing(round.elapsed * run.plan.connections)
}

fn errors(run: &Run) -> Result<f64, &'static str> {
    let (mut wrong, mut all) = (0, 0);
    for round in &run.rounds {
        let (figures, missing) = (&round.figures, missing(run, round));
        let counts = &figures.counts;
        wrong += counts.failed() + counts.dropped + counts.unexpected + figures.overdue() + missing;
        all += counts.sent + counts.dropped + missing;
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
        let measured = match self.measured {
            Err(reason) => return write!(f, "{threshold} cannot be judged: {reason}"),
            Ok(measured) => measured,
        };
        let low = threshold.measure.show(measured.low);
        match self.verdict() {
            Verdict::Unknown => write!(
                f,
                "{threshold} cannot be judged: at least {low}, but requests without a response could make it any longer"
            ),
            Verdict::Held | Verdict::Missed => {
                let verdict = if self.held() { "met" } else { "missed" };
                let at_least = if measured.is_exact() { "" } else { "at least " };
                write!(f, "{threshold} {verdict}: {at_least}{low}")
            }
        }
    }
}
