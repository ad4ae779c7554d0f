//! When a request is worth a place of its upstream: its body is whole, or has its first bytes, or its client's share has room.
//!
//! ```text
//! no body, or all of it received ──────────────────────────────────────────▶ a place
//! a place on the client's account is free ─────────────────────────────────▶ a place, held on that account
//! none is ─▶ the body is collected ─┬─ whole, or WORTH_BYTES of it ────────▶ a place
//!                                   ├─ a place on the account became free ─▶ a place, held on that account
//!                                   └─ a stream or tunnel waited too long ─▶ `client_share_full`
//! ```
//!
//! So in ordinary times nothing is collected and nothing is late; a client with many slow bodies waits for itself.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use ringmain_wire::h1::Framing;

use super::{Job, is_live};
use crate::exchange::Failure;
use crate::exchange::client_address;
use crate::exchange::upload::next_piece;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::resolve::within;
use crate::upstream::share::{Account, Held, Holder, Most};

/// What a request has before its upstream has it.
#[derive(Default)]
pub(super) struct Worth {
    /// Its place is held on its client's account.
    pub(super) held: RefCell<Option<Held>>,
    /// Bytes that were collected.
    ahead: RefCell<Option<Ahead>>,
}

/// Bytes of bodies that a worker has collected, of one request.
struct Ahead {
    worker: Rc<Worker>,
    bytes: Cell<usize>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let collected = &self.worker.collected;
        collected.set(collected.get() - self.bytes.get());
    }
}

impl Job<'_, '_> {
    /// Waits until the request is worth a place.
    pub(super) async fn become_worthy(&self) -> Result<(), Failure> {
        let is_tunnel = self.sending.upgrade.is_some();
        let is_whole = self.req.head().framing == Framing::None || self.req.is_body_received();
        if is_whole && !is_tunnel {
            return Ok(());
        }
        // Apart, so that requests without a body have no room for it.
        Box::pin(self.wait_for_worth(is_tunnel)).await
    }

    async fn wait_for_worth(&self, is_tunnel: bool) -> Result<(), Failure> {
        let holder = Holder::from(client_address(self.sending.listener, self.req));
        // What filters have taken of a piece would be lost with them; a client that expects 100 is to be answered first.
        let mut collects = !is_tunnel && self.chain.is_none() && !self.req.head().expect_continue;
        let waits = !collects || is_live(self.req);
        let mut collect = pin!(self.collect());
        let mut late = pin!(self.worker.cx.sleep(self.time_to_open()));
        let held = poll_fn(|context| {
            let most = self.most(is_tunnel, collects);
            if let Some(held) = self
                .local
                .shared
                .hold((Account::Place, holder), most, context.waker())
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
            if (waits || !collects) && late.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Fault::ClientShareFull.into()));
            }
            Poll::Pending
        });
        *self.worth.held.borrow_mut() = held.await?;
        Ok(())
    }

    /// Returns the number of places that may be held on account of clients. An upload need not hold the only one as long as it is collected.
    fn most(&self, is_tunnel: bool, collects: bool) -> Most {
        let (places, share) = self.local.places();
        let all = match is_tunnel {
            true => None,
            false if is_live(self.req) || !collects => Some((places / 2).max(1)),
            false => Some(places / 2),
        };
        let client = u64::from(places) * u64::from(share) / 100;
        Most {
            client: u32::try_from(client).unwrap_or(u32::MAX).max(1),
            all,
        }
    }

    /// Counts a turn in the queue for a connection, where it is more than half full, on the client's account.
    pub(super) fn take_turn(&self) -> Result<Option<Held>, Fault> {
        let waiting = self.local.shared.waiting.len();
        // In ordinary times nobody waits, and nothing more is looked at.
        if waiting < limits::TURNS_FREE || waiting < self.local.pending() / 2 {
            return Ok(None);
        }
        let holder = Holder::from(client_address(self.sending.listener, self.req));
        let most = Most {
            client: (self.local.pending() / 4).max(1),
            all: None,
        };
        let held = self
            .local
            .shared
            .hold((Account::Turn, holder), most, Waker::noop());
        held.map(Some).ok_or(Fault::ClientShareFull)
    }

    /// Collects the body's first bytes: whether it is whole or has brought enough. `false`: the worker has collected as much as it may.
    async fn collect(&self) -> Result<bool, Failure> {
        let mut total = 0;
        loop {
            let next = next_piece(self.req, None, &self.web);
            let piece = match self.clock.idle {
                None => next.await?,
                Some(idle) => within(&self.worker.cx, idle, Box::pin(next))
                    .await
                    .unwrap_or(Err(Fault::RequestIdle.into()))?,
            };
            let Some(piece) = piece else { return Ok(true) };
            total += piece.len();
            if self.forward.body.request.is_some_and(|most| total as u64 > most) {
                return Err(Fault::RequestTooLarge.into());
            }
            self.kept.collect(&piece);
            self.count_ahead(piece.len());
            if total >= limits::WORTH_BYTES {
                return Ok(true);
            }
            if self.worker.collected.get() > limits::COLLECTED_BYTES {
                return Ok(false);
            }
        }
    }

    fn count_ahead(&self, bytes: usize) {
        let ahead = &mut *self.worth.ahead.borrow_mut();
        let ahead = ahead.get_or_insert_with(|| Ahead {
            worker: Rc::clone(self.worker),
            bytes: Cell::new(0),
        });
        ahead.bytes.set(ahead.bytes.get() + bytes);
        self.worker.collected.set(self.worker.collected.get() + bytes);
    }
}
