//! How many requests of a rule there are at once.

use std::rc::Rc;
use std::sync::Arc;

use super::{Cleared, Outcome};
use crate::fault::Fault;
use crate::model;
use crate::rate::counters::{Counters, Running, Runs};

/// A rule's caps, asked together.
#[derive(Debug)]
pub(super) struct Concurrency(Vec<(Arc<Running>, u32)>);

/// What a request is counted at as long as this is there.
#[derive(Debug)]
pub(super) struct Counted {
    _runs: Vec<Runs>,
}

impl Concurrency {
    /// One.
    pub(super) fn of(policy: &model::Concurrency, counters: &Counters) -> Concurrency {
        Concurrency(vec![(counters.running(&policy.name), policy.requests)])
    }

    /// One more.
    pub(super) fn add(&mut self, policy: &model::Concurrency, counters: &Counters) {
        self.0.push((counters.running(&policy.name), policy.requests));
    }

    pub(super) fn pass(&self, cleared: &mut Cleared) -> Outcome {
        let mut runs = Vec::with_capacity(self.0.len());
        for (running, most) in &self.0 {
            runs.push(running.begin(*most).ok_or(Fault::ConcurrencyFull)?);
        }
        cleared.findings().counted = Some(Rc::new(Counted { _runs: runs }));
        Ok(())
    }
}
