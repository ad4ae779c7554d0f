//! Load shedding: refuses a request that has waited in an overloaded worker for too long.

use std::time::Duration;

use super::{PolicyInput, StepResult};
use crate::fault::Fault;

/// Load shedding for a rule: the most time that a request may have been queued.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadShedder(pub(super) Duration);

impl LoadShedder {
    pub(super) fn check(self, at: &PolicyInput<'_, '_>) -> StepResult {
        let cx = &at.worker.cx;
        if cx.queued() > self.0 {
            return Err(Fault::Shed.into());
        }
        Ok(())
    }
}
