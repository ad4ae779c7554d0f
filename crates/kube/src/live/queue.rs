//! The queue of writes: in the order of their arrival, each with a back-off of its own after a failure. Pure: times are
//! since any origin.
//!
//! ```text
//! replace ─▶ ready ─▶ next ─┬─ done ─▶ removed
//!              ▲ ▲          ├─ failed ─▶ paused ─┐
//!              │ └──────────┼── the pause ends ◀─┘
//!              └─ postponed ┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::backoff::Backoff;
use crate::objects::{Id, Key, Kind};

/// A document to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Service(Id, Arc<Value>),
    Status(Key, Arc<Value>),
}

/// The writes to make; their number is that of objects.
#[derive(Debug, Default)]
pub(super) struct Queue {
    writes: VecDeque<Write>,
    /// Objects whose last write has failed.
    failed: BTreeMap<Key, Retry>,
}

#[derive(Debug)]
struct Retry {
    backoff: Backoff,
    at: Duration,
}

/// The next write.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Ready(Write),
    /// Every object pauses; the first pause ends at this time.
    At(Duration),
    Empty,
}

impl Write {
    /// The object. No kind is written in both ways.
    fn key(&self) -> Key {
        match self {
            Write::Service(id, _) => Key::new(Kind::Service, Arc::clone(&id.namespace), Arc::clone(&id.name)),
            Write::Status(key, _) => key.clone(),
        }
    }
}

impl Queue {
    /// Replaces all writes. Objects that are written again keep their pauses.
    pub(super) fn replace(&mut self, writes: impl Iterator<Item = Write>) {
        self.writes = writes.collect();
        if !self.failed.is_empty() {
            let mut failed = std::mem::take(&mut self.failed);
            let keys = self.writes.iter().map(Write::key);
            self.failed = keys.filter_map(|key| failed.remove_entry(&key)).collect();
        }
    }

    /// Ends all pauses: the failures were those of another replica's time.
    pub(super) fn forget_failures(&mut self) {
        self.failed.clear();
    }

    /// Returns the first write whose object does not pause.
    pub(super) fn next(&self, now: Duration) -> Next {
        let due = |write: &&Write| self.failed.get(&write.key()).map(|retry| retry.at);
        let is_ready = |write: &&Write| due(write).is_none_or(|at| at <= now);
        if let Some(write) = self.writes.iter().find(is_ready) {
            return Next::Ready(write.clone());
        }
        let first = self.writes.iter().filter_map(|write| due(&write)).min();
        first.map_or(Next::Empty, Next::At)
    }

    /// Removes a write that was made or will never succeed.
    pub(super) fn done(&mut self, write: &Write) {
        self.failed.remove(&write.key());
        self.remove(write);
    }

    /// Has the object of a failed write pause, without delaying others. Returns `true` for its first failure.
    pub(super) fn fail(&mut self, write: &Write, now: Duration) -> bool {
        let fresh = || Retry {
            backoff: Backoff::new(),
            at: now,
        };
        let retry = self.failed.entry(write.key()).or_insert_with(fresh);
        let is_first = retry.backoff.is_reset();
        retry.at = now + retry.backoff.next();
        self.postpone(write);
        is_first
    }

    /// Moves a write behind all others.
    pub(super) fn postpone(&mut self, write: &Write) {
        if self.remove(write) {
            self.writes.push_back(write.clone());
        }
    }

    fn remove(&mut self, write: &Write) -> bool {
        let position = self.writes.iter().position(|present| present == write);
        position
            .and_then(|position| self.writes.remove(position))
            .is_some()
    }
}
