//! Stall watchdog: names the step that holds a worker for too long.
//!
//! Owns what a worker says about its present step ([`Heartbeat`]), the table of step names ([`Names`])
//! and the judgement ([`Watch::check`]). Knows neither clock nor thread: whoever runs it calls `check`
//! every quarter of the threshold or so and logs what comes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::backend::Time;
use crate::limits;

#[cfg(test)]
mod tests;

/// The name of a step as a number, from [`Names::intern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepName(u32);

impl StepName {
    /// What all names beyond the table's limit share.
    pub const OTHER: StepName = StepName(0);
}

/// The names of steps: handlers, phases of a loop turn. One table for the process, shared by `Arc`.
#[derive(Debug)]
pub struct Names(Mutex<Vec<&'static str>>);

impl Default for Names {
    fn default() -> Names {
        Names::new()
    }
}

impl Names {
    /// A table that knows [`StepName::OTHER`] alone.
    #[must_use]
    pub fn new() -> Names {
        Names(Mutex::new(vec!["other"]))
    }

    /// The number of `name`, the same for the same text. Call it once when a handler is
    /// registered, not on each request: it locks and searches. Beyond [`limits::STEP_NAMES`]
    /// names it gives [`StepName::OTHER`].
    #[must_use]
    pub fn intern(&self, name: &'static str) -> StepName {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|&known| known == name);
        let index = known.unwrap_or_else(|| {
            if names.len() == limits::STEP_NAMES {
                return 0;
            }
            names.push(name);
            names.len() - 1
        });
        StepName(u32::try_from(index).expect("below STEP_NAMES"))
    }

    /// The text of `step`; "other" if it is of another table.
    #[must_use]
    pub fn text(&self, step: StepName) -> &'static str {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(step.0 as usize).copied().unwrap_or("other")
    }
}

/// What one worker does right now. Written by that worker alone, read by the watchdog.
///
/// ```text
///        enter(now, step)
/// idle ------------------> in a step
///      <------------------
///            leave()
/// ```
///
/// Entering and leaving is a few plain stores; on its own cache lines they disturb nobody.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Heartbeat {
    /// High half: how many steps were entered (wraps). Low half: the step's number plus one, 0 when idle.
    beat: AtomicU64,
    /// When the step was entered, in nanoseconds of [`Time`]; meaningless when idle.
    since: AtomicU64,
}

impl Heartbeat {
    /// An idle worker's heartbeat.
    #[must_use]
    pub fn new() -> Heartbeat {
        Heartbeat::default()
    }

    /// The worker begins `step`. `now` may be as old as the loop turn. Leaving the last step is implied.
    pub fn enter(&self, now: Time, step: StepName) {
        let entered = (self.beat.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        // Idle in between, so that a reader cannot join one step's name to another's time: whoever
        // sees the new `since` sees this store too and knows that `beat` changed under its reading.
        self.beat.store(entered, Ordering::Release);
        self.since.store(now.0, Ordering::Release);
        self.beat
            .store(entered | u64::from(step.0 + 1), Ordering::Release);
    }

    /// The worker is between steps or about to sleep.
    pub fn leave(&self) {
        let beat = self.beat.load(Ordering::Relaxed);
        self.beat.store(beat >> 32 << 32, Ordering::Release);
    }

    /// For how long the worker has been in its present step; zero if idle.
    #[must_use]
    pub fn held_for(&self, now: Time) -> Duration {
        self.read().map_or(Duration::ZERO, |(.., since)| now.since(since))
    }

    /// The present step, its number and its beginning; `None` if idle or changing right now.
    fn read(&self) -> Option<(u64, StepName, Time)> {
        let beat = self.beat.load(Ordering::Acquire);
        let step = u32::try_from(beat & u64::from(u32::MAX))
            .expect("masked")
            .checked_sub(1)?;
        let since = self.since.load(Ordering::Acquire);
        (self.beat.load(Ordering::Relaxed) == beat).then_some((beat, StepName(step), Time(since)))
    }
}

/// What [`Watch::check`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker is held by one step. Reported once, when the threshold is passed.
    Stalled {
        /// The worker's number.
        worker: usize,
        /// The step that holds it.
        what: StepName,
        /// When the step began, or a little earlier: at most one loop turn or one pause between checks.
        since: Time,
    },
    /// A stall that was reported is over.
    Recovered {
        /// The worker's number.
        worker: usize,
        /// The step that held it.
        what: StepName,
        /// For how long at most: it ended between the last check and this one.
        held: Duration,
    },
}

/// What the watchdog remembers from check to check.
#[derive(Debug)]
pub struct Watch {
    threshold: Duration,
    last: Option<Time>,
    /// By worker.
    seen: Vec<Option<Seen>>,
    /// Of the last check: a check allocates nothing, however often workers are held.
    events: Vec<Event>,
}

/// A step in which a worker was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    beat: u64,
    what: StepName,
    since: Time,
    reported: bool,
}

impl Watch {
    /// A watch that calls it a stall when one step takes `threshold` or longer.
    #[must_use]
    pub fn new(threshold: Duration) -> Watch {
        Watch {
            threshold,
            last: None,
            seen: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Looks at all heartbeats (of the same workers each time) and says what has changed.
    /// Stalls shorter than the pause between two checks may go unseen.
    pub fn check(&mut self, beats: &[Heartbeat], now: Time) -> &[Event] {
        self.seen.resize(beats.len(), None);
        self.events.clear();
        // A worker has two at most: the end of a stall, and the next one.
        self.events.reserve(2 * beats.len());
        for (worker, (heartbeat, seen)) in beats.iter().zip(&mut self.seen).enumerate() {
            let read = heartbeat.read();
            if let Some(before) = *seen
                && read.is_none_or(|(beat, ..)| beat != before.beat)
            {
                if before.reported {
                    let held = now.since(before.since);
                    self.events.push(Event::Recovered {
                        worker,
                        what: before.what,
                        held,
                    });
                }
                *seen = None;
            }
            let Some((beat, what, since)) = read else {
                continue;
            };
            let current = seen.get_or_insert_with(|| {
                // `since` may be the turn's beginning and count an earlier step's time. But a step that
                // the last check did not see has begun after it.
                let since = self.last.map_or(since, |last| since.max(last));
                Seen {
                    beat,
                    what,
                    since,
                    reported: false,
                }
            });
            if !current.reported && now.since(current.since) >= self.threshold {
                current.reported = true;
                self.events.push(Event::Stalled {
                    worker,
                    what,
                    since: current.since,
                });
            }
        }
        self.last = Some(now);
        &self.events
    }
}
