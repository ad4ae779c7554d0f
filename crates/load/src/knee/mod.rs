//! The search for the knee: the highest rate that a target holds.
//!
//! ```text
//!            held: doubled        broke: halved                    gap ≤ 2 %               three times
//! Ramp ───────────────────┐  ┌──────────────────── Ramp                  ┌──────────────────────────▶ Done
//!   │ ▲                   │  │                      ▲ │                  │ held
//!   │ └───────────────────┘  └──────────────────────┘ │                  │
//!   └── one held, one broke ──────────────────────────┴─▶ Bisect ──▶ Confirm ◀─┐
//!   │                                                       ▲ │          │     │ broke: lowered by 5 %
//!   └── held at the ceiling ──▶ Confirm                     └─┘          └─────┘
//! ```
//!
//! A pure state machine: it says what rate to try and is told how that went. Knows no clock and no connection, and not what it is
//! that breaks: of requests a [`Break`], of a fan-out a [`crate::push::knee::Break`].

#[cfg(test)]
mod tests;

use std::fmt;

use crate::report::Run;
use crate::threshold::{Judgement, Measure, Threshold};

/// The rates that held and broke are at most this share apart when the search ends.
pub const PRECISION: f64 = 0.02;

/// How often the rate that was found must hold again.
pub const CONFIRMATIONS: u32 = 3;

/// The share by which a rate that was not confirmed is lowered.
pub const LOWERED: f64 = 0.05;

/// The most errors, as a share of all requests.
pub const ERRORS: f64 = 0.001;

/// No search takes more steps: doubling or halving through all rates that make sense, bisecting and confirming take fewer.
pub const STEPS: u32 = 64;

/// Below this many requests or publications a second nothing is tried: a target that breaks here holds nothing.
pub const FLOOR: f64 = 1.0;

/// A search. Ask [`Knee::next`], run it, tell [`Knee::feed`], until there is no next; then [`Knee::found`].
#[derive(Clone, Debug)]
pub struct Knee<B = Break> {
    state: State,
    ceiling: f64,
    steps: u32,
    /// The highest rate that held.
    held: Option<f64>,
    /// The lowest rate above that which broke, and why.
    broke: Option<(f64, Vec<B>)>,
}

/// See the diagram of the module.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ramp { rate: f64 },
    Bisect { rate: f64 },
    Confirm { rate: f64, held: u32 },
    Done { confirmed: Option<f64> },
}

/// What to try next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Requests or publications a second, for an open loop.
    pub rate: f64,
    /// What for.
    pub phase: Phase,
    /// Which step it is, counted from one.
    pub number: u32,
}

/// What a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Finding one rate that holds and one that breaks.
    Ramp,
    /// Closing in between them.
    Bisect,
    /// Trying the rate that was found once more: so many of [`CONFIRMATIONS`] have held.
    Confirm(u32),
}

/// How a step went. It held if nothing broke.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<B = Break> {
    /// What broke.
    pub broke: Vec<B>,
}

/// What broke at a rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Break {
    /// A threshold was not met.
    Objective(Judgement),
    /// More than [`ERRORS`] of the requests failed: this share.
    Errors(f64),
    /// Fewer responses than were requested: this share.
    Rate(f64),
    /// Nothing came back at all.
    Nothing,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<B = Break> {
    /// The highest rate that held and was confirmed; `None` if there is none.
    pub held: Option<f64>,
    /// The lowest rate tried above it that did not hold, and why; `None` if the ceiling held.
    pub broke: Option<(f64, Vec<B>)>,
    /// Steps taken.
    pub steps: u32,
}

impl Outcome {
    /// Of a run in an open loop: whether it kept the rate, had few errors and met the objectives. An objective for errors replaces
    /// [`ERRORS`].
    #[must_use]
    pub fn of(run: &Run, objectives: &[Threshold]) -> Outcome {
        let errors = Measure::Errors.of(run);
        let answered: u64 = run.rounds.iter().map(|round| round.figures.counts.answered).sum();
        if answered == 0 {
            return Outcome {
                broke: vec![Break::Nothing],
            };
        }
        let judged = objectives.iter().map(|objective| objective.judge(run));
        let mut broke: Vec<Break> = judged
            .filter(|judged| !judged.held())
            .map(Break::Objective)
            .collect();
        let has_own_limit = objectives
            .iter()
            .any(|objective| objective.measure == Measure::Errors);
        let share = errors.ok().map(|bounds| bounds.high);
        let share = share.filter(|share| *share > ERRORS && !has_own_limit);
        broke.extend(share.map(Break::Errors));
        let span = run.rounds.iter().map(|round| round.elapsed).sum();
        if run
            .plan
            .pace
            .least_answers(span)
            .is_some_and(|least| (answered as f64) < least)
        {
            let asked = run.plan.pace.rate().unwrap_or_default() * span.as_secs_f64();
            broke.push(Break::Rate(answered as f64 / asked));
        }
        Outcome { broke }
    }
}

impl<B> Default for Outcome<B> {
    fn default() -> Outcome<B> {
        Outcome { broke: Vec::new() }
    }
}

impl<B: Clone> Knee<B> {
    /// Begins at `start` requests a second and never tries more than `ceiling`; both are at least [`FLOOR`].
    #[must_use]
    pub fn new(start: f64, ceiling: f64) -> Knee<B> {
        let ceiling = ceiling.max(FLOOR);
        Knee {
            state: State::Ramp {
                rate: start.clamp(FLOOR, ceiling),
            },
            ceiling,
            steps: 0,
            held: None,
            broke: None,
        }
    }

    /// What to try; `None` if the search has ended. Asking twice changes nothing.
    #[must_use]
    pub fn next(&self) -> Option<Step> {
        let (rate, phase) = match self.state {
            State::Ramp { rate } => (rate, Phase::Ramp),
            State::Bisect { rate } => (rate, Phase::Bisect),
            State::Confirm { rate, held } => (rate, Phase::Confirm(held)),
            State::Done { .. } => return None,
        };
        Some(Step {
            rate,
            phase,
            number: self.steps + 1,
        })
    }

    /// Takes how the step went that [`Knee::next`] says. After the end it does nothing.
    pub fn feed(&mut self, outcome: Outcome<B>) {
        let Some(step) = self.next() else { return };
        self.steps += 1;
        let held = outcome.broke.is_empty();
        if held {
            self.held = Some(step.rate);
        } else {
            self.broke = Some((step.rate, outcome.broke));
        }
        self.state = match self.state {
            State::Ramp { rate } if held => self.above(rate),
            State::Ramp { rate } => self.below(rate),
            State::Bisect { .. } => self.between(),
            State::Confirm { rate, held: times } if held && times + 1 == CONFIRMATIONS => State::Done {
                confirmed: Some(rate),
            },
            State::Confirm { rate, held: times } if held => State::Confirm {
                rate,
                held: times + 1,
            },
            State::Confirm { rate, .. } => lowered(rate),
            State::Done { .. } => self.state,
        };
        if self.steps == STEPS && self.next().is_some() {
            self.state = State::Done { confirmed: None };
        }
    }

    /// What came of it; `None` before the end.
    #[must_use]
    pub fn found(&self) -> Option<Found<B>> {
        let State::Done { confirmed } = self.state else {
            return None;
        };
        Some(Found {
            held: confirmed,
            broke: self.broke.clone(),
            steps: self.steps,
        })
    }

    fn above(&self, rate: f64) -> State {
        match self.broke {
            Some(_) => self.between(),
            None if rate >= self.ceiling => State::Confirm { rate, held: 0 },
            None => State::Ramp {
                rate: (rate * 2.0).min(self.ceiling),
            },
        }
    }

    fn below(&self, rate: f64) -> State {
        match self.held {
            Some(_) => self.between(),
            None if rate <= FLOOR => State::Done { confirmed: None },
            None => State::Ramp {
                rate: (rate / 2.0).max(FLOOR),
            },
        }
    }

    fn between(&self) -> State {
        let (Some(held), Some((broke, _))) = (self.held, &self.broke) else {
            unreachable!("only asked for with a rate on each side")
        };
        if (broke - held) / broke <= PRECISION {
            State::Confirm { rate: held, held: 0 }
        } else {
            State::Bisect {
                rate: f64::midpoint(held, *broke),
            }
        }
    }
}

fn lowered(rate: f64) -> State {
    let rate = rate * (1.0 - LOWERED);
    if rate < FLOOR {
        State::Done { confirmed: None }
    } else {
        State::Confirm { rate, held: 0 }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Break::Objective(judgement) => judgement.fmt(f),
            Break::Errors(share) => write!(f, "{:.2}% of the requests failed", share * 100.0),
            Break::Rate(share) => write!(f, "only {:.1}% of the target rate was reached", share * 100.0),
            Break::Nothing => f.write_str("no response to any request"),
        }
    }
}
