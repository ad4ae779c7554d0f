//! Concurrency limits: requests in flight by rule or by key.

use std::sync::Arc;

use super::{Cleared, PolicyInput, StepResult, limit_key};
use crate::fault::Fault;
use crate::model::{self, RateKey};
use crate::rate::counters::{KeyedRequestCounts, LimitCounters, RequestCount};

/// The concurrency limits of a rule, evaluated together.
#[derive(Debug)]
pub(super) struct ConcurrencyLimits(Vec<ConcurrencyLimit>);

#[derive(Debug)]
struct ConcurrencyLimit {
    counter: ConcurrencyCounter,
    max: u32,
}

#[derive(Debug)]
enum ConcurrencyCounter {
    /// All requests together.
    All(Arc<RequestCount>),
    /// The requests of each key.
    By(Arc<KeyedRequestCounts>, Box<[RateKey]>),
}

impl ConcurrencyLimits {
    /// Builds the limits with a first one.
    pub(super) fn compile(policy: &model::Concurrency, counters: &LimitCounters) -> ConcurrencyLimits {
        let mut limits = ConcurrencyLimits(Vec::new());
        limits.add_limit(policy, counters);
        limits
    }

    /// Adds a limit.
    pub(super) fn add_limit(&mut self, policy: &model::Concurrency, counters: &LimitCounters) {
        let counted = match &policy.by[..] {
            [] => ConcurrencyCounter::All(counters.request_count(&policy.name)),
            by => ConcurrencyCounter::By(counters.keyed_counts(&policy.name), by.into()),
        };
        self.0.push(ConcurrencyLimit {
            counter: counted,
            max: policy.requests,
        });
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        for ConcurrencyLimit {
            counter: counted,
            max,
        } in &self.0
        {
            let guard = match counted {
                ConcurrencyCounter::All(count) => count.try_count(*max),
                ConcurrencyCounter::By(crowd, by) => {
                    let secret = crowd.secret(|| at.worker.cx.random());
                    crowd.try_count(limit_key::hash_key(by, secret, at, cleared), *max)
                }
            };
            // If a later limit refuses, the counts of the earlier ones are released with `cleared`.
            let guard = guard.ok_or(Fault::ConcurrencyFull)?;
            cleared.context_mut().permits.get_mut().push(guard);
        }
        Ok(())
    }
}
