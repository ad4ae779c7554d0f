//! Whether and when a request is tried again: what its rule says, what its method allows, what the upstream's budget and caps have
//! room for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringmain_engine::backend::Time;
use ringmain_web::Method;

use super::Job;
use crate::exchange::filtered::Chain;
use crate::fault::{Fault, Retryable};
use crate::limits;
use crate::model::Retry;
use crate::upstream::breaker::Retrying;
use crate::upstream::local::End;

/// How far a request is.
#[derive(Default)]
pub(super) struct Tries {
    /// How many there were before this one.
    pub(super) before: Cell<usize>,
    /// Those of them that ended without a connection and were continued elsewhere: no retries.
    failovers: Cell<usize>,
    /// Endpoints to which this request could not be connected.
    pub(super) unreachable: RefCell<Vec<Rc<End>>>,
    /// When the first of these began.
    failing_since: Cell<Option<Time>>,
    /// What it is counted by from the second one on.
    retrying: Cell<Option<Retrying>>,
}

impl Job<'_, '_> {
    /// Whether this try may be followed by another one, as far as the rule's number of them goes.
    pub(super) fn has_tries(&self) -> Option<&Retry> {
        let retry = self.forward.retry.as_ref()?;
        let retries = self.tries.before.get().saturating_sub(self.tries.failovers.get());
        (retries < usize::from(retry.attempts)).then_some(retry)
    }

    /// Whether an attempt that got no connection to `end` continues at once with another endpoint. That is no retry, since no
    /// endpoint has seen this attempt: it needs no rule and no budget. Endpoints not yet tried are used first, then those that an
    /// earlier attempt has reached: a retry after their response or reset is allowed, and the others are down. `begun`: when the
    /// attempt began.
    pub(super) fn fails_over(&self, fault: Fault, begun: Time, end: &Rc<End>) -> bool {
        if !fault.is_connect_failure() {
            return false;
        }
        let tries = &self.tries;
        tries.unreachable.borrow_mut().push(Rc::clone(end));
        if !self.local.has_untried(&tries.unreachable.borrow()) {
            return false;
        }
        let since = tries.failing_since.get().unwrap_or(begun);
        tries.failing_since.set(Some(since));
        let most = self.local.connect_timeout() * limits::FAILOVER_CONNECT_TIMEOUTS;
        let fails_over = self.worker.cx.now().since(since) < most;
        tries
            .failovers
            .set(tries.failovers.get() + usize::from(fails_over));
        fails_over
    }

    /// Whether the request is tried again after such a fault; then that is counted.
    pub(super) fn goes_on(&self, fault: Fault) -> bool {
        self.has_tries().is_some_and(|retry| self.helps(retry, fault)) && self.begin_retry()
    }

    /// Whether the rule has requests tried again after such a fault.
    fn helps(&self, retry: &Retry, fault: Fault) -> bool {
        let wanted = match fault {
            Fault::HeadTimeout => retry.on.timeout,
            Fault::ResetBeforeHead | Fault::ClosedBeforeHead => retry.on.reset,
            fault => retry.on.connect && fault.retryable() == Retryable::Always,
        };
        wanted
            && match fault.retryable() {
                Retryable::Always => true,
                Retryable::IfIdempotent => is_idempotent(self.req.method()),
                Retryable::Never => false,
            }
    }

    /// Waits for a random time between the rule's shortest pause and one that is twice as long after each try, so that clients that fail
    /// together do not return together; no longer than until the request's own deadline.
    pub(super) async fn pause(&self, tries: usize) {
        let Some(retry) = &self.forward.retry else { return };
        let tries = tries.saturating_sub(self.tries.failovers.get()).max(1);
        let doubled = retry.backoff.saturating_mul(1 << (tries - 1).min(16));
        let least = retry.backoff_least;
        let span = doubled.min(retry.backoff_most).saturating_sub(least);
        let share = self.worker.cx.random() as u32 as f64 / f64::from(u32::MAX);
        let pause = least + span.mul_f64(share);
        let left = self.clock.total.map(|at| at.since(self.worker.cx.now()));
        self.worker
            .cx
            .sleep(left.map_or(pause, |left| pause.min(left)))
            .await;
    }

    /// Whether a request whose answer has such a status is tried again; then that is counted.
    pub(super) fn asks_again(&self) -> bool {
        self.can_replay() && self.begin_retry()
    }

    /// Whether another try can send all of the body that the tries so far have taken from the client.
    pub(super) fn can_replay(&self) -> bool {
        self.kept.can_replay() && self.chain.is_none_or(Chain::can_replay)
    }

    /// Counts that this request is tried again, if it may be.
    pub(super) fn begin_retry(&self) -> bool {
        let retrying = self.local.begin_retry(self.tries.retrying.take());
        let begins = retrying.is_some();
        self.tries.retrying.set(retrying);
        begins
    }
}

/// RFC 9110 §9.2.2.
pub(super) fn is_idempotent(method: Method<'_>) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace
    )
}
