//! Load shedding: refuses a request that has waited in an overloaded worker for too long.

use std::time::Duration;

use super::{At, Outcome};
use crate::fault::Fault;

/// Load shedding for a rule: the most time that a request may have been queued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shed(pub(super) Duration);

impl Shed {
    pub(super) fn pass(self, at: &At<'_, '_>) -> Outcome {
        let cx = &at.worker.cx;
        if cx.queued() > self.0 {
            return Err(Fault::Shed.into());
        }
        Ok(())
    }
}
