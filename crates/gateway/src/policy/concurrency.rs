//! Concurrency limits: requests in flight by rule or by key.

use std::sync::Arc;

use super::{At, Cleared, Outcome, limit_key};
use crate::fault::Fault;
use crate::model::{self, RateKey};
use crate::rate::counters::{Counters, Crowd, Running};

/// The concurrency limits of a rule, evaluated together.
#[derive(Debug)]
pub(super) struct Concurrency(Vec<Cap>);

#[derive(Debug)]
struct Cap {
    counted: Counted,
    most: u32,
}

#[derive(Debug)]
enum Counted {
    /// All requests together.
    All(Arc<Running>),
    /// The requests of each key.
    By(Arc<Crowd>, Box<[RateKey]>),
}

impl Concurrency {
    /// Builds the limits with a first one.
    pub(super) fn of(policy: &model::Concurrency, counters: &Counters) -> Concurrency {
        let mut caps = Concurrency(Vec::new());
        caps.add(policy, counters);
        caps
    }

    /// Adds a limit.
    pub(super) fn add(&mut self, policy: &model::Concurrency, counters: &Counters) {
        let counted = match &policy.by[..] {
            [] => Counted::All(counters.running(&policy.name)),
            by => Counted::By(counters.crowd(&policy.name), by.into()),
        };
        self.0.push(Cap {
            counted,
            most: policy.requests,
        });
    }

    pub(super) fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        for Cap { counted, most } in &self.0 {
            let runs = match counted {
                Counted::All(running) => running.begin(*most),
                Counted::By(crowd, by) => {
                    let secret = crowd.secret(|| at.worker.cx.random());
                    crowd.begin(limit_key::hash(by, secret, at, cleared), *most)
                }
            };
            // If a later limit refuses, the counts of the earlier ones are released with `cleared`.
            let runs = runs.ok_or(Fault::ConcurrencyFull)?;
            cleared.findings().runs.get_mut().push(runs);
        }
        Ok(())
    }
}
