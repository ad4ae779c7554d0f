//! Fault injection: delays, and error responses.

use std::cell::Cell;
use std::sync::Arc;

use ringmain_wire::h1::FieldBlock;

use super::{At, Outcome, Refusal};
use crate::fault::Fault;
use crate::limits;
use crate::model::{self, Share};

/// Fault injection for a rule.
#[derive(Debug)]
pub(super) struct Inject(Arc<model::Inject>);

/// A delayed request, counted by its worker.
struct Held<'w>(&'w Cell<u32>);

impl<'w> Held<'w> {
    fn new(count: &'w Cell<u32>) -> Option<Held<'w>> {
        (count.get() < limits::DELAYED).then(|| {
            count.set(count.get() + 1);
            Held(count)
        })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Inject {
    /// Builds the policy. The header that opts in is not forwarded: it is added to `drops`.
    pub(super) fn of(policy: &Arc<model::Inject>, drops: &mut Vec<model::HeaderName>) -> Inject {
        drops.extend(policy.header.clone());
        Inject(Arc::clone(policy))
    }

    /// Returns whether a request may be delayed.
    pub(super) fn waits(&self, at: &At<'_, '_>) -> bool {
        self.0.delay.is_some_and(|(_, share)| share.part > 0) && self.meets(at)
    }

    fn meets(&self, at: &At<'_, '_>) -> bool {
        let there = |name: &model::HeaderName| at.req.head().fields.all(name.as_str()).next().is_some();
        self.0.header.as_ref().is_none_or(there)
    }

    pub(super) fn pass(&self, at: &At<'_, '_>) -> Outcome {
        match self.0.abort {
            Some((status, share)) if self.meets(at) && drawn(at, share) => Err(Box::new(Refusal {
                fault: Fault::Injected,
                status: Some(status),
                fields: FieldBlock::new(),
                answer: None,
            })),
            _ => Ok(()),
        }
    }

    pub(super) async fn pass_waiting(&self, at: &At<'_, '_>) -> Outcome {
        if let Some((span, share)) = self.0.delay
            && drawn(at, share)
            && let Some(_held) = Held::new(&at.worker.delaying)
        {
            at.worker.cx.sleep(span).await;
        }
        self.pass(at)
    }
}

/// Draws whether a request is in the share.
fn drawn(at: &At<'_, '_>, share: Share) -> bool {
    at.worker.cx.random() % u64::from(share.of.max(1)) < u64::from(share.part)
}
