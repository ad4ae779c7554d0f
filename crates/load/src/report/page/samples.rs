//! What the plots are drawn from: percentiles, shares and series, thinned to what a screen can show.
//!
//! Knows figures; knows neither colours nor SVG.

use std::time::Duration;

use crate::figures::{Counts, Latency, Percentiles};
use crate::report::{Round, Run, per_second, rounds};

/// Points of one run's series.
const POINTS: usize = 300;

/// Points of a percentile curve for each nine.
const POINTS_PER_NINE: usize = 60;

/// Bars of a histogram from one power of ten to the next.
pub(super) const BARS: i32 = 16;

/// A short time of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Its beginning in seconds since the first round began, as if the rounds followed each other without a pause.
    pub(super) from: f64,
    /// Its end.
    pub(super) until: f64,
    /// Responses per second.
    pub(super) rate: f64,
    /// Errors of all kinds a second.
    pub(super) errors: f64,
    /// Seconds; `None` without an answer.
    pub(super) p50: Option<f64>,
    /// The highest of the intervals that the sample stands for.
    pub(super) p99: Option<f64>,
}

/// The series of each round, one behind the other; each begins at a multiple of `length`.
pub(super) fn series(run: &Run, length: f64) -> Vec<Vec<Sample>> {
    let intervals: usize = run.rounds.iter().map(|round| round.series.len()).sum();
    let together = intervals.div_ceil(POINTS).max(1);
    let open = rounds::has_schedule(run);
    let round = |(number, round): (usize, &Round)| {
        let start = number as f64 * length;
        let chunks = round.series.chunks(together);
        chunks.map(|chunk| sample(chunk, start, open)).collect()
    };
    run.rounds.iter().enumerate().map(round).collect()
}

fn sample(chunk: &[crate::report::Interval], start: f64, open: bool) -> Sample {
    let mut counts = Counts::default();
    let mut length = Duration::ZERO;
    let (mut p50, mut p99) = (0.0, 0.0f64);
    for interval in chunk {
        counts.merge(&interval.counts);
        length += interval.length;
        let latency: &Percentiles = if open {
            &interval.response
        } else {
            &interval.service
        };
        p50 += latency.p50.as_secs_f64() * interval.counts.answered as f64;
        p99 = p99.max(latency.p99.as_secs_f64());
    }
    let answered = counts.answered > 0;
    let until = start + chunk.last().map_or(0.0, |last| last.until.as_secs_f64());
    Sample {
        from: (until - length.as_secs_f64()).max(start),
        until,
        rate: per_second(counts.answered, length),
        errors: per_second(errors(&counts), length),
        p50: answered.then(|| p50 / counts.answered as f64),
        p99: answered.then_some(p99),
    }
}

/// All that went wrong: no connection, no answer, an answer that says so or that failed a check.
pub(super) fn errors(counts: &Counts) -> u64 {
    let unconnected: u64 = counts.connect_errors.values().sum();
    counts.failed() + counts.http_errors() + counts.unexpected + unconnected
}

/// Latency in seconds over nines (`-log10(1 - quantile)`), up to the one longest of all.
pub(super) fn percentiles(latency: &Latency) -> Vec<(f64, f64)> {
    if latency.count() == 0 {
        return vec![];
    }
    let nines = (latency.count() as f64).log10();
    let steps = (nines * POINTS_PER_NINE as f64) as usize;
    let mut points = Vec::with_capacity(steps + 1);
    for step in 0..=steps {
        let nines = step as f64 / POINTS_PER_NINE as f64;
        let percent = 100.0 - 100.0 * 10f64.powf(-nines);
        points.push((nines, latency.percentile(percent).as_secs_f64()));
    }
    points.push((nines, latency.max().as_secs_f64()));
    points
}

/// The share of all latencies, in percent, in bars of equal width on a logarithmic axis: each bar's lower end in
/// seconds, its upper end, the share. Bars without any between others are there too.
pub(super) fn shares(latency: &Latency) -> Vec<(f64, f64, f64)> {
    let bar = |seconds: f64| (seconds.log10() * f64::from(BARS) + 1e-9).floor() as i32;
    let edge = |bar: i32| 10f64.powf(f64::from(bar) / f64::from(BARS));
    if latency.count() == 0 {
        return vec![];
    }
    let nanosecond = 1e-9;
    let first = bar(latency.min().as_secs_f64().max(nanosecond));
    let last = bar(latency.max().as_secs_f64().max(nanosecond));
    let mut counts = vec![0u64; (last - first + 1) as usize];
    for value in latency.histogram().iter_recorded() {
        let seconds = (value.value_iterated_to() as f64 * nanosecond).max(nanosecond);
        let at = (bar(seconds) - first).clamp(0, last - first) as usize;
        counts[at] += value.count_since_last_iteration();
    }
    let whole = latency.count() as f64;
    let share = |(at, count): (usize, u64)| {
        let bar = first + at as i32;
        (edge(bar), edge(bar + 1), count as f64 * 100.0 / whole)
    };
    counts.into_iter().enumerate().map(share).collect()
}
