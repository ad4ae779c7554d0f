//! Hedging: a second attempt at another endpoint when the first has not received a response in time. The response that starts first is
//! relayed, and the other connection is closed.
//!
//! ```text
//! first ──── sent ──────────── late ───────────── …             ┐ the one with the first byte continues as the only attempt
//!                               └─ second ── sent ── response ──┘
//! ```
//!
//! No byte of a response is consumed before one attempt has won, so none was sent to the client. The body is complete before the first
//! attempt starts, so that both send the same; a body that is too long for that is sent once, as without hedging.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::h1::Framing;

use super::{AttemptError, AttemptErrorKind, ForwardJob, StartedConn, client_addresses, is_idempotent};
use crate::fault::{Fault, FaultSide};
use crate::health::RequestOutcome;
use crate::limits;
use crate::proxy::Failure;
use crate::proxy::request;
use crate::proxy::request_body::{UnsentRequest, UploadError, UploadProgress, next_piece};
use crate::resolve::with_timeout;
use crate::upstream::AffinityHint;
use crate::upstream::pool::dedicated::DedicatedUse;
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamConn};

/// An attempt that failed before its response started.
struct HedgeLoser {
    endpoint: Rc<PoolEndpoint>,
    error: AttemptError,
}

/// The attempt that continues.
pub(super) struct HedgeWinner {
    /// Its connection carries the request's head.
    pub(super) conn: StartedConn,
    /// The endpoint of the other attempt.
    pub(super) other: Option<Rc<PoolEndpoint>>,
}

/// The result of concurrent attempts.
pub(super) type HedgeResult = Result<HedgeWinner, (AttemptError, Vec<Rc<PoolEndpoint>>)>;

impl ForwardJob<'_, '_> {
    /// Returns the delay after which this request is hedged. Waits for its body, if it may be short enough.
    pub(super) async fn hedge_delay(&self) -> Result<Option<Duration>, Failure> {
        let Some(after) = self.forward.hedge else {
            return Ok(None);
        };
        let framing = self.req.head().framing;
        let too_long = matches!(framing, Framing::Length(length) if length > limits::REPLAY_BYTES as u64);
        if too_long || !is_idempotent(self.req.method()) || self.upstream_request.upgrade.is_some() {
            return Ok(None);
        }
        if framing == Framing::None {
            return Ok(Some(after));
        }
        // Boxed, so that the future of requests without a body has no room for it.
        let collected = match self.deadlines.total {
            None => Some(Box::pin(self.collect_body()).await),
            Some(total) => {
                let remaining = total.since(self.worker.cx.now());
                with_timeout(&self.worker.cx, remaining, Box::pin(self.collect_body())).await
            }
        };
        let is_complete = collected.unwrap_or(Err(Fault::RequestTimeout.into()))?;
        Ok(is_complete.then_some(after))
    }

    /// Receives the body from the client before a byte is sent. Returns whether it is complete, and no longer than can be sent again.
    async fn collect_body(&self) -> Result<bool, Failure> {
        let mut total = 0;
        loop {
            // In the form after filters, which each attempt sends. The filters themselves enforce the limit of the client's bytes.
            let next = next_piece(self.req, self.chain, &self.grpc_web);
            let piece = match self.deadlines.idle {
                None => next.await?,
                Some(idle) => with_timeout(&self.worker.cx, idle, Box::pin(next))
                    .await
                    .unwrap_or(Err(Fault::RequestIdle.into()))?,
            };
            let Some(piece) = piece else {
                return Ok(true);
            };
            total += piece.len() as u64;
            let limit = self.forward.body.request.filter(|_| self.chain.is_none());
            if limit.is_some_and(|limit| total > limit) {
                return Err(Fault::RequestTooLarge.into());
            }
            if !self.replay.buffer_unsent(&piece) {
                return Ok(false);
            }
        }
    }

    /// Runs a first attempt until its response starts, with a second one if that takes longer than `after`. If all fail: the error of the
    /// last attempt, and the endpoints in the order of failure.
    pub(super) async fn race_attempts(&self, first: StartedConn, after: Duration) -> HedgeResult {
        let first_end = Rc::clone(&first.0.endpoint);
        let mut first_run = pin!(self.run_until_response(first));
        let mut sleep = pin!(self.worker.cx.sleep(after));
        let result = poll_fn(|context| match first_run.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        });
        #[expect(clippy::result_large_err, reason = "returned once, to the only caller")]
        let without_hedge = |result: Result<StartedConn, HedgeLoser>| match result {
            Ok(started) => Ok(HedgeWinner {
                conn: started,
                other: None,
            }),
            Err(loser) => Err((loser.error, vec![loser.endpoint])),
        };
        if let Some(result) = result.await {
            return without_hedge(result);
        }
        let Some(second) = self.select_other(&first_end) else {
            return without_hedge(first_run.await);
        };
        let second_end = Rc::clone(&second.endpoint);
        let mut second_run = pin!(self.run_until_response((second, None, self.worker.cx.now())));
        let mut runs = [Some(first_run.as_mut()), Some(second_run.as_mut())];
        let mut failed: Option<HedgeLoser> = None;
        poll_fn(|context| {
            for slot in &mut runs {
                let Some(Poll::Ready(result)) = slot.as_mut().map(|run| run.as_mut().poll(context)) else {
                    continue;
                };
                *slot = None;
                match result {
                    Ok(started) => {
                        let is_first = Rc::ptr_eq(&started.0.endpoint, &first_end);
                        let other = Some(Rc::clone(if is_first { &second_end } else { &first_end }));
                        return Poll::Ready(Ok(HedgeWinner { conn: started, other }));
                    }
                    Err(loser) => match failed.take() {
                        None => {
                            self.record_failure(&loser);
                            failed = Some(loser);
                        }
                        Some(before) => {
                            return Poll::Ready(Err((loser.error, vec![before.endpoint, loser.endpoint])));
                        }
                    },
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns another endpoint, if there is one and the upstream's limits allow the attempt.
    fn select_other(&self, first: &Rc<PoolEndpoint>) -> Option<SelectedEndpoint> {
        let selected = self
            .pool
            .select(std::slice::from_ref(first), self.key, AffinityHint::None);
        let selected = selected
            .ok()
            .filter(|selected| selected.endpoint.endpoint.addr != first.endpoint.addr)?;
        self.acquire_retry().then(|| {
            self.pool.upstream.circuit_breaker.count_hedge();
            self.pool.count_attempt();
            selected
        })
    }

    /// Runs one attempt until its response starts.
    async fn run_until_response(
        &self,
        (selected, conn, started_at): StartedConn,
    ) -> Result<StartedConn, HedgeLoser> {
        let end = Rc::clone(&selected.endpoint);
        let failed = |fault: Fault, before| HedgeLoser {
            endpoint: Rc::clone(&end),
            error: AttemptError::from_failure(Failure::Fault(fault), before),
        };
        let cx = &self.worker.cx;
        let (conn, started_at) = match conn {
            Some(conn) => (conn, started_at),
            None => {
                let conn = self
                    .open_conn(&selected, false)
                    .await
                    .map_err(|fault| failed(fault, false))?;
                let unsent = self
                    .send_head(&selected, &conn)
                    .map_err(|fault| failed(fault, false))?;
                let started_at = cx.now();
                self.send_replay(&conn, unsent, started_at)
                    .await
                    .map_err(|failure| HedgeLoser {
                        endpoint: Rc::clone(&end),
                        error: failure.into(),
                    })?;
                (conn, started_at)
            }
        };
        match self.wait_for_response(&conn, started_at).await {
            Ok(()) => Ok((selected, Some(conn), started_at)),
            Err(fault) => Err(failed(fault, conn.requests_before() > 0)),
        }
    }

    /// Sends the buffered body, if there is one, until a response starts: an endpoint may respond without having read it.
    async fn send_replay(
        &self,
        conn: &UpstreamConn,
        unsent: UnsentRequest,
        started_at: Time,
    ) -> Result<(), Failure> {
        if self.req.head().framing == Framing::None {
            // The head declares no body.
            return Ok(());
        }
        let progress = UploadProgress::new(started_at);
        let upload = self.request_upload(conn, &progress);
        let mut upload_future = pin!(upload.run(unsent));
        let mut response = pin!(self.wait_for_response(conn, started_at));
        poll_fn(|context| match upload_future.as_mut().poll(context) {
            // If it was not accepted, the response reports the precise fault.
            Poll::Ready(Ok(()) | Err(UploadError::Refused)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(UploadError::Failure(failure))) => Poll::Ready(Err(failure)),
            Poll::Pending => response.as_mut().poll(context).map_err(Failure::from),
        })
        .await
    }

    /// Returns the time limit for connecting.
    pub(super) fn connect_time_left(&self) -> Duration {
        self.limit_to_request(self.pool.connect_timeout())
    }

    /// Returns a wait, shortened to the rest of the request's time limit.
    pub(super) fn limit_to_request(&self, span: Duration) -> Duration {
        let remaining = self
            .deadlines
            .total
            .map(|total| total.since(self.worker.cx.now()));
        remaining.map_or(span, |remaining| span.min(remaining))
    }

    /// # Errors
    /// The request's time limit is reached.
    pub(super) fn check_request_timeout(&self) -> Result<(), Fault> {
        if self.deadlines.total.is_some_and(|at| self.worker.cx.now() >= at) {
            Err(Fault::RequestTimeout)
        } else {
            Ok(())
        }
    }

    /// Connects to an endpoint.
    pub(super) async fn open_conn(
        &self,
        selected: &SelectedEndpoint,
        fresh: bool,
    ) -> Result<UpstreamConn, Fault> {
        let _queue_position = self.acquire_queue_position()?;
        let span = self.connect_time_left();
        let proxy_header = self.pool.proxy_header(|| client_addresses(self.req));
        self.worker
            .acquire_conn(self.pool, &selected.endpoint, fresh, &proxy_header, span)
            .await
    }

    /// Replaces a stream that cannot switch protocols, if the request requires a switch, with an HTTP/1.1 connection, if the endpoint
    /// supports that, too.
    pub(super) async fn upgradable_conn(
        &self,
        conn: UpstreamConn,
        selected: &SelectedEndpoint,
    ) -> Result<UpstreamConn, Fault> {
        match &conn {
            UpstreamConn::H2(channel)
                if self.upstream_request.upgrade.is_some() && self.pool.negotiates_protocol() =>
            {
                if request::uses_extended_connect(self.req, &self.upstream_request, channel) {
                    return Ok(conn);
                }
            }
            _ => return Ok(conn),
        }
        drop(conn);
        let span = self.connect_time_left();
        let proxy_header = self.pool.proxy_header(|| client_addresses(self.req));
        // Boxed, so that the future of other requests has no room for it.
        let opened = Box::pin(self.pool.open_dedicated(
            &selected.endpoint,
            DedicatedUse::Upgrade,
            &proxy_header,
            span,
        ));
        opened.await.map(UpstreamConn::Http1)
    }

    /// Waits for the first byte of a response, and consumes none.
    async fn wait_for_response(&self, conn: &UpstreamConn, started_at: Time) -> Result<(), Fault> {
        let cx = &self.worker.cx;
        let clock = self.deadlines.for_attempt(&self.forward.timeouts, started_at);
        conn.set_deadline(clock.wait_limit(cx.now()));
        let fault = || clock.expiry_fault(cx.now(), Fault::HeadTimeout);
        let conn = match conn {
            UpstreamConn::Http1(pooled) => pooled,
            UpstreamConn::H2(channel) => {
                let started = poll_fn(|context| channel.poll_response_started(context)).await;
                return started.map_err(|error| error.fault_before_head(fault));
            }
        };
        let mut is_readable = false;
        let received = poll_fn(|context| {
            let peek = |bytes: &[u8]| {
                is_readable = !bytes.is_empty();
                0
            };
            let polled = conn.stream.poll_received(context, peek);
            if is_readable { Poll::Ready(Ok(1)) } else { polled }
        });
        match received.await {
            Ok(0) => Err(Fault::ClosedBeforeHead),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(fault()),
            Err(_) => Err(Fault::ResetBeforeHead),
        }
    }

    /// Records the failure of an endpoint while another one may still respond.
    fn record_failure(&self, loser: &HedgeLoser) {
        if let AttemptErrorKind::Failure(Failure::Fault(fault)) = loser.error.kind
            && fault.side() == FaultSide::Upstream
        {
            self.worker.counters.count_fault(fault);
            self.pool.count_fault(fault);
            self.pool.record_outcome(&loser.endpoint, RequestOutcome::Failure);
        }
    }
}
