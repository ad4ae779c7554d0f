//! How many requests of a rule there are at once.

use std::sync::Arc;

use super::{Cleared, Outcome};
use crate::fault::Fault;
use crate::model;
use crate::rate::counters::{Counters, Running};

/// A rule's caps, asked together.
#[derive(Debug)]
pub(super) struct Concurrency(Vec<(Arc<Running>, u32)>);

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
        // Those that let it pass are given back with what is cleared, if another does not.
        let runs = cleared.findings().runs.get_mut();
        for (running, most) in &self.0 {
            runs.push(running.begin(*most).ok_or(Fault::ConcurrencyFull)?);
        }
        Ok(())
    }
}
