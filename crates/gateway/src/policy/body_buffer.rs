//! Collects the request body that a policy needs before the request is forwarded: as a whole, within limits.
//!
//! ```text
//! pieces of the client ─▶ held ─┬─ end of the body ─▶ the authorization service, then the upstream
//!                               ├─ more than the policy's limit ─▶ 413, or, if a part suffices, the same
//!                               └─ more than the worker's limit ─▶ 503
//! ```
//!
//! Knows no service: it stores the body with the request's results.

use std::cell::Cell;
use std::rc::Rc;

use ringmain_wire::h1::Framing;

use super::{Cleared, PolicyInput, StepResult};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::model::Action;
use crate::proxy::Failure;
use crate::resolve::with_timeout;

/// A collected body, counted among the bytes that its worker has collected.
pub(super) struct CollectedBody {
    worker: Rc<Worker>,
    bytes: Vec<u8>,
    counted: Cell<usize>,
    is_complete: bool,
}

impl CollectedBody {
    fn new(worker: &Rc<Worker>) -> CollectedBody {
        CollectedBody {
            worker: Rc::clone(worker),
            bytes: Vec::new(),
            counted: Cell::new(0),
            is_complete: false,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether these are all bytes of the body.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Adds a piece. Returns `false` if the worker's limit of collected bytes is reached.
    fn add(&mut self, piece: &[u8]) -> bool {
        let collected = &self.worker.collected_bytes;
        if collected.get() > limits::COLLECTED_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(piece);
        self.counted.set(self.counted.get() + piece.len());
        collected.set(collected.get() + piece.len());
        true
    }
}

impl std::fmt::Debug for CollectedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a body of {} bytes", self.bytes.len())
    }
}

impl Drop for CollectedBody {
    fn drop(&mut self) {
        let collected = &self.worker.collected_bytes;
        collected.set(collected.get() - self.counted.get());
    }
}

/// Collects the body of a request, as far as no other policy has. `partial`: the beginning of a body that exceeds `limit` suffices; the
/// rest is relayed later. A request to upgrade the protocol that declares a body is forwarded with that body and without the upgrade, so
/// its body is collected, too.
pub(super) async fn collect_body(
    at: &PolicyInput<'_, '_>,
    cleared: &mut Cleared,
    limit: u64,
    partial: bool,
) -> StepResult {
    let (idle, rule) = match &at.route.matched.rule().action {
        Action::Forward(forward) => (forward.timeouts.idle, forward.body.request),
        _ => (Some(limits::IDLE_TIMEOUT), None),
    };
    let rule = rule.unwrap_or(u64::MAX);
    // A part suffices for the policy's limit; the limit of the rule applies to the whole body.
    let most = if partial { rule } else { limit.min(rule) };
    let declared = match at.req.head().framing {
        Framing::None => return Ok(()),
        Framing::Length(length) => length,
        _ => 0,
    };
    if declared > most {
        return Err(Fault::RequestTooLarge.into());
    }
    let body = cleared.take_body();
    let mut body = body.unwrap_or_else(|| CollectedBody::new(at.worker));
    while !(body.is_complete || partial && body.bytes.len() as u64 >= limit) {
        let next = at.req.chunk();
        let piece = match idle {
            None => next.await,
            Some(idle) => match with_timeout(&at.worker.cx, idle, Box::pin(next)).await {
                Some(piece) => piece,
                None => return Err(Fault::RequestIdle.into()),
            },
        };
        let piece = piece.map_err(|error| match Failure::from_body_error(error) {
            Failure::Fault(fault) => fault,
            // The client has left.
            _ => Fault::RequestCut,
        })?;
        let Some(piece) = piece else {
            body.is_complete = true;
            break;
        };
        if (body.bytes.len() + piece.len()) as u64 > most {
            return Err(Fault::RequestTooLarge.into());
        }
        if !body.add(&piece) {
            return Err(Fault::ClientShareFull.into());
        }
    }
    let is_of_declared_length =
        matches!(at.req.head().framing, Framing::Length(length) if length == body.bytes.len() as u64);
    body.is_complete |= is_of_declared_length;
    let is_too_large = body.bytes.len() as u64 > most;
    cleared.set_body(body);
    if is_too_large {
        return Err(Fault::RequestTooLarge.into());
    }
    Ok(())
}
