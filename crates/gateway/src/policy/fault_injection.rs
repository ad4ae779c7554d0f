//! Fault injection: delays, and error responses.

use std::cell::Cell;
use std::sync::Arc;

use ringmain_wire::h1::FieldBlock;

use super::{PolicyInput, PolicyRecord, Refusal, StepResult};
use crate::fault::Fault;
use crate::limits;
use crate::model::{self, Fraction};

/// Fault injection for a rule.
#[derive(Debug)]
pub(super) struct FaultInjector(Arc<model::FaultInjection>);

/// A delayed request, counted by its worker.
struct DelayGuard<'w>(&'w Cell<u32>);

impl<'w> DelayGuard<'w> {
    fn new(count: &'w Cell<u32>) -> Option<DelayGuard<'w>> {
        (count.get() < limits::DELAYED).then(|| {
            count.set(count.get() + 1);
            DelayGuard(count)
        })
    }
}

impl Drop for DelayGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl FaultInjector {
    /// Builds the policy. The header that opts in is not forwarded: it is added to `drops`.
    pub(super) fn compile(
        policy: &Arc<model::FaultInjection>,
        drops: &mut Vec<model::HeaderName>,
    ) -> FaultInjector {
        drops.extend(policy.header.clone());
        FaultInjector(Arc::clone(policy))
    }

    /// Returns whether a request may be delayed.
    pub(super) fn must_wait(&self, at: &PolicyInput<'_, '_>) -> bool {
        self.0.delay.is_some_and(|(_, fraction)| fraction.part > 0) && self.applies_to(at)
    }

    fn applies_to(&self, at: &PolicyInput<'_, '_>) -> bool {
        let is_present = |name: &model::HeaderName| at.req.head().fields.all(name.as_str()).next().is_some();
        self.0.header.as_ref().is_none_or(is_present)
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>) -> StepResult {
        match self.0.abort {
            Some((status, fraction)) if self.applies_to(at) && is_in_share(at, fraction) => {
                Err(Box::new(Refusal {
                    fault: Fault::Injected,
                    status: Some(status),
                    fields: FieldBlock::new(),
                    response: None,
                    record: PolicyRecord::default(),
                }))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>) -> StepResult {
        if let Some((span, fraction)) = self.0.delay
            && is_in_share(at, fraction)
            && let Some(_held) = DelayGuard::new(&at.worker.delayed_requests)
        {
            at.worker.cx.sleep(span).await;
        }
        self.check(at)
    }
}

/// Draws whether a request is in the share.
fn is_in_share(at: &PolicyInput<'_, '_>, fraction: Fraction) -> bool {
    at.worker.cx.random() % u64::from(fraction.of.max(1)) < u64::from(fraction.part)
}
