//! The condition for a slot of an upstream: the request body is complete, or its first bytes have arrived, or its client's share has room.
//!
//! ```text
//! no body, or a complete one ──────────────────────────────────────────────▶ slot
//! a slot on the client's account is free ──────────────────────────────────▶ slot, charged to that account
//! none is ─▶ the body is buffered ─┬─ complete, or WORTH_BYTES arrived ────▶ slot
//!                                  ├─ a slot on the account became free ───▶ slot, charged to that account
//!                                  └─ a stream or tunnel waited too long ──▶ `client_share_full`
//! ```
//!
//! Under normal load nothing is buffered and nothing is delayed; a client with many slow bodies waits for itself.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use ringmain_wire::h1::Framing;

use super::{ForwardJob, is_live_stream};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::proxy::Failure;
use crate::proxy::client_address;
use crate::proxy::request_body::next_piece;
use crate::resolve::with_timeout;
use crate::upstream::client_share::{ClientKey, ShareGuard, ShareLimits, SharedResource};

/// The state of a request before it is entitled to a slot.
#[derive(Default)]
pub(super) struct ShareAdmission {
    /// The account that its slot is charged to.
    pub(super) share: RefCell<Option<ShareGuard>>,
    /// The buffered bytes.
    buffered: RefCell<Option<BufferedBody>>,
}

/// The bytes of one request in the worker's count of buffered bodies.
struct BufferedBody {
    worker: Rc<Worker>,
    bytes: Cell<usize>,
}

impl Drop for BufferedBody {
    fn drop(&mut self) {
        let collected = &self.worker.collected_bytes;
        collected.set(collected.get() - self.bytes.get());
    }
}

impl ForwardJob<'_, '_> {
    /// Waits until the request is entitled to a slot.
    pub(super) async fn wait_for_admission(&self) -> Result<(), Failure> {
        let is_tunnel = self.upstream_request.upgrade.is_some();
        let is_complete = self.req.head().framing == Framing::None || self.req.is_body_received();
        if is_complete && !is_tunnel {
            return Ok(());
        }
        // Boxed, so that the future of requests without a body has no room for it.
        Box::pin(self.wait_for_share(is_tunnel)).await
    }

    async fn wait_for_share(&self, is_tunnel: bool) -> Result<(), Failure> {
        let holder = ClientKey::from(client_address(self.upstream_request.listener, self.req));
        // Pieces that filters have taken would be lost with them; a client that expects 100 must get its response first.
        let mut collects = !is_tunnel && self.chain.is_none() && !self.req.head().expect_continue;
        let must_wait = !collects || is_live_stream(self.req);
        let mut collect = pin!(self.collect_first_bytes());
        let mut timeout = pin!(self.worker.cx.sleep(self.connect_time_left()));
        let held = poll_fn(|context| {
            let limits = self.share_limits(is_tunnel, collects);
            if let Some(held) =
                self.pool
                    .upstream
                    .acquire_share(SharedResource::Slot, holder, limits, context.waker())
            {
                return Poll::Ready(Ok(Some(held)));
            }
            if collects && let Poll::Ready(collected) = collect.as_mut().poll(context) {
                collects = false;
                match collected {
                    Ok(true) => return Poll::Ready(Ok(None)),
                    Ok(false) => {}
                    Err(failure) => return Poll::Ready(Err(failure)),
                }
            }
            if (must_wait || !collects) && timeout.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Fault::ClientShareFull.into()));
            }
            Poll::Pending
        });
        *self.admission.share.borrow_mut() = held.await?;
        Ok(())
    }

    /// Returns the number of slots that may be charged to clients. An upload need not occupy the only one while it is being buffered.
    fn share_limits(&self, is_tunnel: bool, collects: bool) -> ShareLimits {
        let (slots, share) = self.pool.slot_limits();
        let all = if is_tunnel {
            None
        } else if is_live_stream(self.req) || !collects {
            Some((slots / 2).max(1))
        } else {
            Some(slots / 2)
        };
        let client = u64::from(slots) * u64::from(share) / 100;
        ShareLimits {
            per_client: u32::try_from(client).unwrap_or(u32::MAX).max(1),
            total: all,
        }
    }

    /// Charges a place in the queue for a connection to the client's account, if the queue is more than half full.
    pub(super) fn acquire_queue_position(&self) -> Result<Option<ShareGuard>, Fault> {
        let waiting = self.pool.upstream.wait_queue.len();
        // Under normal load no request waits, and nothing more is checked.
        if waiting < limits::TURNS_FREE || waiting < self.pool.pending_limit() / 2 {
            return Ok(None);
        }
        let holder = ClientKey::from(client_address(self.upstream_request.listener, self.req));
        let limits = ShareLimits {
            per_client: (self.pool.pending_limit() / 4).max(1),
            total: None,
        };
        let held =
            self.pool
                .upstream
                .acquire_share(SharedResource::QueuePosition, holder, limits, Waker::noop());
        held.map(Some).ok_or(Fault::ClientShareFull)
    }

    /// Buffers the first bytes of the body. Returns whether it is complete or long enough. `false`: the worker is at its limit of buffered
    /// bytes.
    async fn collect_first_bytes(&self) -> Result<bool, Failure> {
        let mut total = 0;
        loop {
            let next = next_piece(self.req, None, &self.grpc_web);
            let piece = match self.deadlines.idle {
                None => next.await?,
                Some(idle) => with_timeout(&self.worker.cx, idle, Box::pin(next))
                    .await
                    .unwrap_or(Err(Fault::RequestIdle.into()))?,
            };
            let Some(piece) = piece else { return Ok(true) };
            total += piece.len();
            if self
                .forward
                .body
                .request
                .is_some_and(|limit| total as u64 > limit)
            {
                return Err(Fault::RequestTooLarge.into());
            }
            self.replay.push_unadmitted(&piece);
            self.count_buffered(piece.len());
            if total >= limits::WORTH_BYTES {
                return Ok(true);
            }
            if self.worker.collected_bytes.get() > limits::COLLECTED_BYTES {
                return Ok(false);
            }
        }
    }

    fn count_buffered(&self, bytes: usize) {
        let buffered = &mut *self.admission.buffered.borrow_mut();
        let buffered = buffered.get_or_insert_with(|| BufferedBody {
            worker: Rc::clone(self.worker),
            bytes: Cell::new(0),
        });
        buffered.bytes.set(buffered.bytes.get() + bytes);
        self.worker
            .collected_bytes
            .set(self.worker.collected_bytes.get() + bytes);
    }
}
