//! The state of a run for the live view. Time is a parameter.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_load::figures::{Counts, Percentiles};
use ringmain_load::plan::{Extent, Pace, Plan};
use ringmain_load::report::{Interval, per_second};

use crate::limits::LIVE_RATES;

/// The data of the view.
#[derive(Debug)]
pub(super) struct State {
    /// The target's name, if there are several.
    pub(super) name: Option<String>,
    /// The current round, from 0.
    pub(super) number: u32,
    pub(super) rounds: u32,
    pub(super) phase: Phase,
    /// Start of the phase.
    pub(super) since: Duration,
    pub(super) warmup: Duration,
    pub(super) extent: Extent,
    pub(super) pace: Pace,
    pub(super) connections: u32,
    pub(super) threads: usize,
    /// Counters of this round.
    pub(super) counts: Counts,
    /// Responses per second of the last intervals, also of earlier rounds; the newest last.
    pub(super) rates: VecDeque<f64>,
    /// The last finished interval.
    pub(super) last: Option<LastInterval>,
}

/// The metrics of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastInterval {
    pub(super) length: Duration,
    pub(super) rate: f64,
    /// Response times in an open loop, else service times.
    pub(super) latency: Percentiles,
    /// Number of CPUs that this process used.
    pub(super) cpus: f64,
}

/// The phases of a round.
///
/// ```text
/// Connecting ─▶ Warming ─▶ Measuring
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Connecting,
    Warming,
    Measuring,
}

impl Default for State {
    /// Returns the state before the first round.
    fn default() -> State {
        State {
            name: None,
            number: 0,
            rounds: 0,
            phase: Phase::Connecting,
            since: Duration::ZERO,
            warmup: Duration::ZERO,
            extent: Extent::Count(0),
            pace: Pace::Closed,
            connections: 0,
            threads: 0,
            counts: Counts::default(),
            rates: VecDeque::with_capacity(LIVE_RATES),
            last: None,
        }
    }
}

impl State {
    /// Starts a round at `now`.
    pub(super) fn begin_round(&mut self, name: Option<&str>, number: u32, plan: &Plan, now: Duration) {
        self.name = name.map(String::from);
        self.number = number;
        self.rounds = plan.rounds;
        self.warmup = plan.warmup;
        self.extent = plan.extent;
        self.pace = plan.pace;
        self.connections = plan.connections;
        self.threads = plan.threads;
        self.counts = Counts::default();
        self.last = None;
        self.enter_phase(Phase::Connecting, now);
    }

    /// Starts a phase at `now`.
    pub(super) fn enter_phase(&mut self, phase: Phase, now: Duration) {
        self.phase = phase;
        self.since = now;
    }

    /// Records a finished interval; `cpu`: the CPU time that this process used.
    pub(super) fn record_interval(&mut self, interval: &Interval, cpu: Duration) {
        self.counts.merge(&interval.counts);
        let rate = per_second(interval.counts.answered, interval.length);
        if self.rates.len() == LIVE_RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
        let length = interval.length.as_secs_f64();
        self.last = Some(LastInterval {
            length: interval.length,
            rate,
            latency: if self.pace.rate().is_some() {
                interval.response
            } else {
                interval.service
            },
            cpus: if length > 0.0 {
                cpu.as_secs_f64() / length
            } else {
                0.0
            },
        });
    }

    /// Returns the completed share of the round, from 0 to 1, including warm-up.
    pub(super) fn completed_share(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.since);
        let by_count = self.extent.count().map_or(0.0, |count| {
            let ended = (self.counts.answered + self.counts.failed()) as f64;
            match self.phase {
                Phase::Measuring if count > 0 => (ended / count as f64).min(1.0),
                _ => 0.0,
            }
        });
        // The duration of a number of requests is unknown: the warm-up has no share.
        let Some(measured) = self.extent.time() else {
            return by_count;
        };
        let whole = (self.warmup + measured).as_secs_f64();
        let passed = match self.phase {
            Phase::Connecting => Duration::ZERO,
            Phase::Warming => passed.min(self.warmup),
            Phase::Measuring => self.warmup + passed.min(measured),
        };
        let by_time = if whole > 0.0 {
            passed.as_secs_f64() / whole
        } else {
            0.0
        };
        by_time.max(by_count)
    }

    /// Returns the remaining time of this round and the following ones, if it is known.
    pub(super) fn remaining_time(&self, now: Duration) -> Option<Duration> {
        let round = self.warmup + self.extent.time()?;
        let left = round.mul_f64(1.0 - self.completed_share(now).clamp(0.0, 1.0));
        let after = self.rounds.saturating_sub(self.number + 1);
        // Rounds of several targets alternate: their number is unknown here.
        self.name.is_none().then(|| left + round * after)
    }
}
