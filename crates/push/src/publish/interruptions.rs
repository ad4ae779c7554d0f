//! Interruptions of sources, in order with the publications of other threads around them.
//!
//! ```text
//! source ─ publish ─▶ queue ─▶ shard            queued: publications in the queue so far
//!        ─ interrupt ─▶ (queued, scope) ── due once as many were taken ─▶ new epoch in the channels of the scope
//! ```
//!
//! An interruption that took effect before the publications that were queued before would leave a client that subscribes again in
//! between with an unnoticed gap.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_hub::mail::Origin;
use ringmain_hub::shard::ChannelShard;

use crate::limits;

/// The channels that an interruption affects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// All whose names start with this text.
    Prefix(Arc<str>),
    /// Those with the prefix that a source may have fed.
    Fed(Arc<str>, Origin),
    Channel(Arc<str>),
}

/// The interruptions that one worker has not applied yet.
#[derive(Default)]
pub(crate) struct Interruptions {
    /// Publications that were queued, each counted before.
    queued: AtomicU64,
    taken: AtomicU64,
    is_pending: AtomicBool,
    /// By scope, the values of `queued` at its first and its last interruption.
    pending: Mutex<BTreeMap<Scope, (u64, u64)>>,
}

impl Interruptions {
    pub(crate) fn count_queued(&self, count: usize) {
        self.queued.fetch_add(count as u64, Ordering::AcqRel);
    }

    /// Counts publications that the worker has taken.
    pub(crate) fn count_taken(&self, taken: usize) {
        self.taken.fetch_add(taken as u64, Ordering::AcqRel);
    }

    /// Adds an interruption behind all publications that were queued so far. Beyond [`limits::INTERRUPTIONS`] scopes it affects all
    /// channels.
    pub(crate) fn add_scope(&self, scope: Scope) {
        let at = self.queued.load(Ordering::Acquire);
        let mut pending = self.pending();
        let scope = if pending.len() < limits::INTERRUPTIONS || pending.contains_key(&scope) {
            scope
        } else {
            pending.clear();
            Scope::Prefix("".into())
        };
        pending.entry(scope).or_insert((at, at)).1 = at;
        self.is_pending.store(true, Ordering::Release);
    }

    fn take_due(&self, is_queue_empty: bool) -> Vec<Scope> {
        let mut pending = self.pending();
        let taken = self.taken.load(Ordering::Acquire);
        let is_due = |at: u64| is_queue_empty || at <= taken;
        let mut due = Vec::new();
        pending.retain(|scope, (first, last)| {
            if is_due(*first) {
                due.push(scope.clone());
                *first = *last;
                return !is_due(*last);
            }
            true
        });
        self.is_pending.store(!pending.is_empty(), Ordering::Release);
        due
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<Scope, (u64, u64)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The interruptions that a worker is applying.
#[derive(Default)]
pub(crate) struct ActiveInterruptions {
    /// The earliest time at which more are applied.
    next: Duration,
    due: VecDeque<Scope>,
    /// The channel behind which the first of `due` continues.
    after: Option<Arc<str>>,
}

impl ActiveInterruptions {
    /// Applies interruptions that are due, a limited number of channels a turn. Returns whether there is more to do at once.
    pub(crate) fn apply(
        &mut self,
        interruptions: &Interruptions,
        is_queue_empty: bool,
        shard: &mut ChannelShard,
        now: Duration,
    ) -> bool {
        let is_pending = interruptions.is_pending.load(Ordering::Acquire);
        if self.due.is_empty() && !is_pending {
            return false;
        }
        // Limits how often clients of an unreliable source resubscribe.
        if self.due.is_empty() && now >= self.next {
            self.due = interruptions.take_due(is_queue_empty).into();
            self.next = now + limits::INTERRUPTION_INTERVAL;
        }
        let Some(scope) = self.due.front() else {
            return false;
        };
        self.after = match scope {
            Scope::Channel(channel) => {
                shard.interrupt(channel);
                None
            }
            Scope::Prefix(prefix) => {
                shard.interrupt_all(prefix, self.after.as_deref(), limits::INTERRUPTED_PER_TURN)
            }
            Scope::Fed(prefix, origin) => {
                let after = self.after.as_deref();
                shard.interrupt_source(prefix, *origin, after, limits::INTERRUPTED_PER_TURN)
            }
        };
        if self.after.is_none() {
            self.due.pop_front();
        }
        !self.due.is_empty()
    }
}

#[cfg(test)]
mod tests;
