//! Whether the figures of a round fit each other, the other rounds and what was asked for.

use std::time::Duration;

use super::{Kind, Seen, Severity, percent};
use crate::figures::Latency;
use crate::limits;
use crate::plan::{Extent, Pace, Plan};
use crate::report::{Round, Run, amount};
use crate::stats;

/// How far the mean number of requests in flight may be from what was asked for.
const CONCURRENCY: f64 = 0.1;

/// How far a round's throughput may be from the median.
const DEVIATION: f64 = 0.1;

/// How far the measured time may be from that asked for.
const ELAPSED: f64 = 0.1;

/// Less is too short for anything rare to happen.
const SHORT: Duration = Duration::from_secs(1);

/// A percentile with fewer answers beyond it is chance.
const BEHIND: f64 = 100.0;

/// The percentiles that are shown, and the share of responses beyond each.
const SHOWN: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.1),
    ("p99", 0.01),
    ("p99.9", 0.001),
    ("p99.99", 0.000_1),
];

pub(super) fn rate_missed(run: &Run, round: &Round) -> Option<Seen> {
    let pace = run.plan.pace;
    let least = pace.least_answers(round.elapsed)?;
    let counts = &round.figures.counts;
    let rate = pace.rate()?;
    let share = round.throughput() / rate;
    ((counts.answered as f64) < least).then(|| Seen {
        kind: Kind::RateMissed,
        severity: Severity::Warning,
        badness: -share,
        message: format!(
            "{:.0} of the {rate:.0} scheduled requests/s completed ({}), {} scheduled requests were never sent and {} \
             requests unfinished at the end: the rate is above the saturation point, and latencies show the duration of the overload, not \
             the speed of the server; lower the rate, or search for the saturation point (--find-max)",
            round.throughput(),
            percent(share),
            counts.dropped,
            counts.unfinished,
        ),
    })
}

/// Little's law: what is in flight on average is what comes back a second times how long each takes.
pub(super) fn concurrency(run: &Run, round: &Round) -> Option<Seen> {
    let Plan {
        connections,
        pipeline,
        ..
    } = run.plan;
    // A server may take fewer.
    let pipeline = round
        .figures
        .counts
        .streams_allowed
        .unwrap_or(pipeline)
        .min(pipeline);
    if run.plan.pace != Pace::Closed || round.figures.counts.answered == 0 {
        return None;
    }
    let asked = f64::from(connections) * f64::from(pipeline);
    let seen = in_flight(run, round);
    let off = stats::deviation(seen, asked);
    let meaning = if seen < asked {
        "connections were idle or broken part of the time, so the server received less load than requested; look for errors \
         and a busy client"
    } else {
        "latencies were measured too long or responses were not counted; look for a busy client and short rounds"
    };
    (off > CONCURRENCY).then(|| Seen {
        kind: Kind::Concurrency,
        severity: Severity::Warning,
        badness: off,
        message: format!(
            "throughput times mean service time implies that {seen:.1} requests were in flight where {asked:.0} were \
             requested: {meaning}"
        ),
    })
}

/// A connection that is opened anew after some answers (reconnecting) carries no request meanwhile.
fn in_flight(run: &Run, round: &Round) -> f64 {
    let figures = &round.figures;
    let mut busy = figures.service.mean().as_secs_f64() * figures.counts.answered as f64;
    if run.plan.reconnect_after.is_some() {
        let steps = [&figures.connect, &figures.handshake, &figures.opening];
        // Those that the round began with were there before it.
        let later = |step: &Latency| step.count().saturating_sub(u64::from(run.plan.connections));
        let spent = |step: &Latency| step.mean().as_secs_f64() * later(step) as f64;
        let connecting: f64 = steps.into_iter().map(spent).sum();
        busy += connecting * f64::from(run.plan.pipeline);
    }
    let elapsed = round.elapsed.as_secs_f64();
    if elapsed > 0.0 { busy / elapsed } else { 0.0 }
}

pub(super) fn round_deviates(run: &Run, round: &Round) -> Option<Seen> {
    let throughputs: Vec<f64> = run.rounds.iter().map(Round::throughput).collect();
    let median = stats::median(&throughputs)?;
    let off = stats::deviation(round.throughput(), median);
    (off > DEVIATION).then(|| Seen {
        kind: Kind::RoundDeviates,
        severity: Severity::Warning,
        badness: off,
        message: format!(
            "the round's {:.0} responses/s are {} off the median of {median:.0}: something else ran, or the server \
             was still warming up; warm up longer, quiet the host or run more rounds",
            round.throughput(),
            percent(off),
        ),
    })
}

pub(super) fn elapsed(run: &Run, round: &Round) -> Option<Seen> {
    // With a number of requests besides, the round may end before.
    let Extent::Time(asked) = run.plan.extent else {
        return None;
    };
    let off = stats::deviation(round.elapsed.as_secs_f64(), asked.as_secs_f64());
    (off > ELAPSED).then(|| Seen {
        kind: Kind::Elapsed,
        severity: Severity::Warning,
        badness: off,
        message: format!(
            "the round took {} where {} were requested: the client was held up or stopped, so rates cover another duration \
             than requested; check what else ran on the host and repeat",
            amount::time(round.elapsed),
            amount::span(asked),
        ),
    })
}

pub(super) fn short(_: &Run, round: &Round) -> Option<Seen> {
    (round.elapsed < SHORT).then(|| Seen {
        kind: Kind::Short,
        severity: Severity::Note,
        badness: -round.elapsed.as_secs_f64(),
        message: format!(
            "only {} were measured: pauses that occur every second or more rarely may be missing; measure longer for \
             the tail",
            amount::time(round.elapsed),
        ),
    })
}

pub(super) fn longest_latency(_: &Run, round: &Round) -> Option<Seen> {
    let longest = round.figures.service.max().max(round.figures.response.max());
    (longest >= limits::LATENCY).then(|| Seen {
        kind: Kind::LongestLatency,
        severity: Severity::Warning,
        badness: 0.0,
        message: format!(
            "latencies of {} s or more occurred, and all count as this long: the maximum is higher than shown; \
             set a shorter timeout",
            limits::LATENCY.as_secs(),
        ),
    })
}

pub(super) fn few_answers(_: &Run, round: &Round) -> Option<Seen> {
    let answered = round.figures.service.count();
    let (name, beyond) = SHOWN
        .into_iter()
        .find(|(_, share)| answered as f64 * share < BEHIND)?;
    (answered > 0).then(|| Seen {
        kind: Kind::FewAnswers,
        severity: Severity::Note,
        badness: -(answered as f64),
        message: format!(
            "of {answered} responses {:.0} lie beyond {name}: it and all higher percentiles are noise; {:.0} responses are \
             needed for it, so measure longer",
            answered as f64 * beyond,
            BEHIND / beyond,
        ),
    })
}
