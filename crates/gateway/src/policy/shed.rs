//! Requests that go first when a worker is late.

use std::time::Duration;

use super::{At, Outcome};
use crate::fault::Fault;

/// See the module.
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
