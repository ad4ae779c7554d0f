//! What is known of a run while it goes on. Time comes in as a parameter.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_load::figures::{Counts, Percentiles};
use ringmain_load::plan::{Extent, Pace, Plan};
use ringmain_load::report::{Interval, per_second};

use crate::limits::LIVE_RATES;

/// What is shown.
#[derive(Debug)]
pub(super) struct State {
    /// The target's name, if there are several.
    pub(super) name: Option<String>,
    /// The round that runs, from 0.
    pub(super) number: u32,
    pub(super) rounds: u32,
    pub(super) phase: Phase,
    /// When the phase began.
    pub(super) since: Duration,
    pub(super) warmup: Duration,
    pub(super) extent: Extent,
    pub(super) pace: Pace,
    pub(super) connections: u32,
    pub(super) threads: usize,
    /// What was counted in this round so far.
    pub(super) counts: Counts,
    /// Answers a second, of this round and those before it, the newest last.
    pub(super) rates: VecDeque<f64>,
    /// The interval before now.
    pub(super) last: Option<LastInterval>,
}

/// The last interval in short.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastInterval {
    pub(super) length: Duration,
    pub(super) rate: f64,
    /// Response times in an open loop, else service times.
    pub(super) latency: Percentiles,
    /// How many CPUs this process kept busy.
    pub(super) cpus: f64,
}

/// What a round goes through.
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
    /// Before the first round.
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
    /// A round begins, at `now`.
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

    /// A phase begins, at `now`.
    pub(super) fn enter_phase(&mut self, phase: Phase, now: Duration) {
        self.phase = phase;
        self.since = now;
    }

    /// An interval is over, in which this process computed for `cpu`.
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

    /// How much of the round is done, 0 to 1, warm-up and measured time together.
    pub(super) fn completed_share(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.since);
        let by_count = self.extent.count().map_or(0.0, |count| {
            let ended = (self.counts.answered + self.counts.failed()) as f64;
            match self.phase {
                Phase::Measuring if count > 0 => (ended / count as f64).min(1.0),
                _ => 0.0,
            }
        });
        // The time of a number of requests is not known before: the warm-up counts as nothing of it.
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

    /// How long it will still take: this round and those after it, if that can be told.
    pub(super) fn remaining_time(&self, now: Duration) -> Option<Duration> {
        let round = self.warmup + self.extent.time()?;
        let left = round.mul_f64(1.0 - self.completed_share(now).clamp(0.0, 1.0));
        let after = self.rounds.saturating_sub(self.number + 1);
        // With several targets their rounds alternate, and only who runs them knows how many.
        self.name.is_none().then(|| left + round * after)
    }
}
