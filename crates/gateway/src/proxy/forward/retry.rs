//! Retries: whether and when a request is retried, by its rule, its method, and the upstream's budget and limits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringmain_engine::backend::Time;
use ringmain_web::Method;

use super::ForwardJob;
use crate::fault::{Fault, Retryable};
use crate::limits;
use crate::model::Retry;
use crate::proxy::filter_chain::FilterChain;
use crate::upstream::circuit_breaker::RetryPermit;
use crate::upstream::pool::PoolEndpoint;

/// The attempts of a request so far.
#[derive(Default)]
pub(super) struct AttemptState {
    /// Number of attempts before this one.
    pub(super) retries: Cell<usize>,
    /// Attempts among these that failed to connect and continued at another endpoint, which is no retry.
    failovers: Cell<usize>,
    /// Endpoints to which this request could not be connected.
    pub(super) unreachable: RefCell<Vec<Rc<PoolEndpoint>>>,
    /// Start of the first attempt that failed to connect.
    failing_since: Cell<Option<Time>>,
    /// The retry in progress, from the second attempt on.
    retrying: Cell<Option<RetryPermit>>,
}

impl ForwardJob<'_, '_> {
    /// Returns the retry policy if its number of attempts is not exhausted.
    pub(super) fn remaining_policy(&self) -> Option<&Retry> {
        let retry = self.forward.retry.as_ref()?;
        let retries = self
            .attempts
            .retries
            .get()
            .saturating_sub(self.attempts.failovers.get());
        (retries < usize::from(retry.attempts)).then_some(retry)
    }

    /// Returns whether an attempt that failed to connect to `end` continues immediately with another endpoint. That is no retry, since no
    /// endpoint has seen this attempt: it needs no policy and no budget. Untried endpoints are used first, then those that an earlier
    /// attempt has reached: a retry after their response or reset is allowed, and the others are down. `started_at`: the start of the attempt.
    pub(super) fn should_fail_over(&self, fault: Fault, started_at: Time, end: &Rc<PoolEndpoint>) -> bool {
        if !fault.is_connect_failure() {
            return false;
        }
        let attempts = &self.attempts;
        attempts.unreachable.borrow_mut().push(Rc::clone(end));
        if !self.pool.has_untried_endpoint(&attempts.unreachable.borrow()) {
            return false;
        }
        let since = attempts.failing_since.get().unwrap_or(started_at);
        attempts.failing_since.set(Some(since));
        let max_span = self.pool.connect_timeout() * limits::FAILOVER_CONNECT_TIMEOUTS;
        let fails_over = self.worker.cx.now().since(since) < max_span;
        attempts
            .failovers
            .set(attempts.failovers.get() + usize::from(fails_over));
        fails_over
    }

    /// Returns whether the request is retried after this fault, and counts the retry.
    pub(super) fn should_retry(&self, fault: Fault) -> bool {
        self.remaining_policy()
            .is_some_and(|retry| self.policy_covers(retry, fault))
            && self.acquire_retry()
    }

    /// Returns whether the policy retries after this fault.
    fn policy_covers(&self, retry: &Retry, fault: Fault) -> bool {
        let is_covered = match fault {
            Fault::HeadTimeout => retry.on.timeout,
            Fault::ResetBeforeHead | Fault::ClosedBeforeHead => retry.on.reset,
            fault => retry.on.connect && fault.retryable() == Retryable::Always,
        };
        is_covered
            && match fault.retryable() {
                Retryable::Always => true,
                Retryable::IfIdempotent => is_idempotent(self.req.method()),
                Retryable::Never => false,
            }
    }

    /// Waits for a random time between the policy's shortest pause and its longest, which doubles with each attempt, so that clients that
    /// fail together do not return together. Ends at the request's own deadline at the latest.
    pub(super) async fn wait_backoff(&self, attempts: usize) {
        let Some(retry) = &self.forward.retry else { return };
        let attempts = attempts.saturating_sub(self.attempts.failovers.get()).max(1);
        let ceiling = retry.backoff.saturating_mul(1 << (attempts - 1).min(16));
        let min = retry.backoff_min;
        let span = ceiling.min(retry.backoff_max).saturating_sub(min);
        let fraction = self.worker.cx.random() as u32 as f64 / f64::from(u32::MAX);
        let pause = self.limit_to_request(min + span.mul_f64(fraction));
        self.worker.cx.sleep(pause).await;
    }

    /// Returns whether the request is retried after a response with a retryable status, and counts the retry.
    pub(super) fn should_retry_status(&self) -> bool {
        self.can_replay() && self.acquire_retry()
    }

    /// Returns whether another attempt can send every byte that earlier attempts have taken from the client.
    pub(super) fn can_replay(&self) -> bool {
        self.replay.can_replay() && self.chain.is_none_or(FilterChain::can_replay)
    }

    /// Starts and counts a retry, if the budget and the limits allow it.
    pub(super) fn acquire_retry(&self) -> bool {
        let retrying = self.pool.acquire_retry(self.attempts.retrying.take());
        let is_allowed = retrying.is_some();
        self.attempts.retrying.set(retrying);
        is_allowed
    }
}

/// Returns whether a method is idempotent (RFC 9110 §9.2.2).
pub(super) fn is_idempotent(method: Method<'_>) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace
    )
}
