//! Interruptions of what arrives from outside the workers, in their order among the publications around them.
//!
//! ```text
//! source ─ publish ─▶ queue ─▶ home            put: publications handed to the queue so far
//!        ─ interrupt ─▶ (put, scope) ── due once as many were taken ─▶ new epoch in the channels of the scope
//! ```
//!
//! An interruption that took effect before the publications that were queued ahead of it would leave a client that subscribes again
//! in between with a gap that it is not notified of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_hub::mail::Origin;

use crate::desk::Desk;
use crate::limits;

/// The channels that an interruption affects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// All whose names begin with this text.
    Prefix(Arc<str>),
    /// Those of them that a source may have fed.
    Fed(Arc<str>, Origin),
    Channel(Arc<str>),
}

/// The interruptions that one worker has not applied yet.
#[derive(Default)]
pub(crate) struct Interruptions {
    /// Publications that were put into the queue, counted before each is.
    put: AtomicU64,
    taken: AtomicU64,
    is_pending: AtomicBool,
    /// By scope, the counts of `put` at the first and the last of its interruptions.
    pending: Mutex<BTreeMap<Scope, (u64, u64)>>,
}

impl Interruptions {
    pub(crate) fn before_put(&self, count: usize) {
        self.put.fetch_add(count as u64, Ordering::AcqRel);
    }

    /// The worker alone takes.
    pub(crate) fn count_taken(&self, taken: usize) {
        self.taken.fetch_add(taken as u64, Ordering::AcqRel);
    }

    /// Adds one behind all publications that were put so far. Beyond [`limits::INTERRUPTIONS`] scopes it affects all channels.
    pub(crate) fn add(&self, scope: Scope) {
        let at = self.put.load(Ordering::Acquire);
        let mut pending = self.pending();
        let scope = match pending.len() < limits::INTERRUPTIONS || pending.contains_key(&scope) {
            true => scope,
            false => {
                pending.clear();
                Scope::Prefix("".into())
            }
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
pub(crate) struct Applying {
    /// Those that are due are looked for from then on.
    next: Duration,
    due: VecDeque<Scope>,
    /// The channel behind which the first of `due` continues.
    after: Option<Arc<str>>,
}

impl Desk {
    /// Applies interruptions that are due, a limited number of channels a turn. Returns whether there is more to do at once.
    pub(crate) fn apply_interruptions(&self, interruptions: &Interruptions, is_queue_empty: bool) -> bool {
        let applying = &mut *self.applying.borrow_mut();
        let is_pending = interruptions.is_pending.load(Ordering::Acquire);
        if applying.due.is_empty() && !is_pending {
            return false;
        }
        let now = self.cx.now().since(Time(0));
        // A source that loses publications all the time must not have its clients subscribe all the time.
        if applying.due.is_empty() && now >= applying.next {
            applying.due = interruptions.take_due(is_queue_empty).into();
            applying.next = now + limits::INTERRUPTED_EVERY;
        }
        let Some(scope) = applying.due.front() else {
            return false;
        };
        let mut home = self.home.borrow_mut();
        applying.after = match scope {
            Scope::Channel(channel) => {
                home.interrupt(channel);
                None
            }
            Scope::Prefix(prefix) => {
                home.interrupt_all(prefix, applying.after.as_deref(), limits::INTERRUPTED_A_TURN)
            }
            Scope::Fed(prefix, origin) => {
                let after = applying.after.as_deref();
                home.interrupt_source(prefix, *origin, after, limits::INTERRUPTED_A_TURN)
            }
        };
        if applying.after.is_none() {
            applying.due.pop_front();
        }
        !applying.due.is_empty()
    }
}

#[cfg(test)]
mod tests;
