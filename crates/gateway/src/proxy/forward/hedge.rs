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
        let gathered = match self.deadlines.total {
            None => Some(Box::pin(self.collect_body()).await),
            Some(total) => {
                let left = total.since(self.worker.cx.now());
                with_timeout(&self.worker.cx, left, Box::pin(self.collect_body())).await
            }
        };
        let whole = gathered.unwrap_or(Err(Fault::RequestTimeout.into()))?;
        Ok(whole.then_some(after))
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
            let most = self.forward.body.request.filter(|_| self.chain.is_none());
            if most.is_some_and(|most| total > most) {
                return Err(Fault::RequestTooLarge.into());
            }
            if !self.replay.buffer_unsent(&piece) {
                return Ok(false);
            }
        }
    }

    /// Runs a first attempt until its response starts, with a second one if that takes longer than `after`. If all fail: the error of the
    /// last one, and the endpoints, the last one's last.
    pub(super) async fn race_attempts(&self, first: StartedConn, after: Duration) -> HedgeResult {
        let first_end = Rc::clone(&first.0.endpoint);
        let mut one = pin!(self.run_until_response(first));
        let mut sleep = pin!(self.worker.cx.sleep(after));
        let ended = poll_fn(|context| match one.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        });
        #[expect(clippy::result_large_err, reason = "returned once, to the only caller")]
        let alone = |ended: Result<StartedConn, HedgeLoser>| match ended {
            Ok(begun) => Ok(HedgeWinner {
                conn: begun,
                other: None,
            }),
            Err(lost) => Err((lost.error, vec![lost.endpoint])),
        };
        if let Some(ended) = ended.await {
            return alone(ended);
        }
        let Some(second) = self.select_other(&first_end) else {
            return alone(one.await);
        };
        let second_end = Rc::clone(&second.endpoint);
        let mut two = pin!(self.run_until_response((second, None, self.worker.cx.now())));
        let mut legs = [Some(one.as_mut()), Some(two.as_mut())];
        let mut failed: Option<HedgeLoser> = None;
        poll_fn(|context| {
            for place in &mut legs {
                let Some(Poll::Ready(ended)) = place.as_mut().map(|leg| leg.as_mut().poll(context)) else {
                    continue;
                };
                *place = None;
                match ended {
                    Ok(begun) => {
                        let is_first = Rc::ptr_eq(&begun.0.endpoint, &first_end);
                        let beside = Some(Rc::clone(if is_first { &second_end } else { &first_end }));
                        return Poll::Ready(Ok(HedgeWinner {
                            conn: begun,
                            other: beside,
                        }));
                    }
                    Err(lost) => match failed.take() {
                        None => {
                            self.record_failure(&lost);
                            failed = Some(lost);
                        }
                        Some(before) => {
                            return Poll::Ready(Err((lost.error, vec![before.endpoint, lost.endpoint])));
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
        let chosen = self
            .pool
            .select(std::slice::from_ref(first), self.key, AffinityHint::None);
        let chosen = chosen
            .ok()
            .filter(|chosen| chosen.endpoint.endpoint.addr != first.endpoint.addr)?;
        self.acquire_retry().then(|| {
            self.pool.upstream.circuit_breaker.count_hedge();
            chosen
        })
    }

    /// Runs one attempt until its response starts.
    async fn run_until_response(
        &self,
        (chosen, link, begun): StartedConn,
    ) -> Result<StartedConn, HedgeLoser> {
        let end = Rc::clone(&chosen.endpoint);
        let lost = |fault: Fault, before| HedgeLoser {
            endpoint: Rc::clone(&end),
            error: AttemptError::from_failure(Failure::Fault(fault), before),
        };
        let cx = &self.worker.cx;
        let (link, begun) = match link {
            Some(link) => (link, begun),
            None => {
                let link = self
                    .open_conn(&chosen, false)
                    .await
                    .map_err(|fault| lost(fault, false))?;
                let unsent = self
                    .send_head(&chosen, &link)
                    .map_err(|fault| lost(fault, false))?;
                let begun = cx.now();
                self.send_replay(&link, unsent, begun)
                    .await
                    .map_err(|failure| HedgeLoser {
                        endpoint: Rc::clone(&end),
                        error: failure.into(),
                    })?;
                (link, begun)
            }
        };
        match self.wait_for_response(&link, begun).await {
            Ok(()) => Ok((chosen, Some(link), begun)),
            Err(fault) => Err(lost(fault, link.requests_before() > 0)),
        }
    }

    /// Sends the buffered body, if there is one, until a response starts: an endpoint may respond without having read it.
    async fn send_replay(
        &self,
        link: &UpstreamConn,
        unsent: UnsentRequest,
        begun: Time,
    ) -> Result<(), Failure> {
        if self.req.head().framing == Framing::None {
            // The head declares no body.
            return Ok(());
        }
        let progress = UploadProgress::new(begun);
        let upload = self.request_upload(link, &progress);
        let mut up = pin!(upload.run(unsent));
        let mut answers = pin!(self.wait_for_response(link, begun));
        poll_fn(|context| match up.as_mut().poll(context) {
            // If it was not accepted, the response reports the precise fault.
            Poll::Ready(Ok(()) | Err(UploadError::Refused)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(UploadError::Failure(failure))) => Poll::Ready(Err(failure)),
            Poll::Pending => answers.as_mut().poll(context).map_err(Failure::from),
        })
        .await
    }

    /// Returns the time limit for connecting.
    pub(super) fn connect_time_left(&self) -> Duration {
        self.limit_to_request(self.pool.connect_timeout())
    }

    /// Returns a wait, shortened to the rest of the request's time limit.
    pub(super) fn limit_to_request(&self, span: Duration) -> Duration {
        let left = self
            .deadlines
            .total
            .map(|total| total.since(self.worker.cx.now()));
        left.map_or(span, |left| span.min(left))
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
        chosen: &SelectedEndpoint,
        fresh: bool,
    ) -> Result<UpstreamConn, Fault> {
        let _turn = self.acquire_queue_position()?;
        let span = self.connect_time_left();
        let greeting = self.pool.proxy_header(|| client_addresses(self.req));
        self.worker
            .acquire_conn(self.pool, &chosen.endpoint, fresh, &greeting, span)
            .await
    }

    /// Replaces a stream that cannot switch protocols, if the request requires a switch, with an HTTP/1.1 connection, if the endpoint
    /// supports that, too.
    pub(super) async fn upgradable_conn(
        &self,
        link: UpstreamConn,
        chosen: &SelectedEndpoint,
    ) -> Result<UpstreamConn, Fault> {
        match &link {
            UpstreamConn::H2(channel)
                if self.upstream_request.upgrade.is_some() && self.pool.negotiates_protocol() =>
            {
                if request::uses_extended_connect(self.req, &self.upstream_request, channel) {
                    return Ok(link);
                }
            }
            _ => return Ok(link),
        }
        drop(link);
        let span = self.connect_time_left();
        let greeting = self.pool.proxy_header(|| client_addresses(self.req));
        // Boxed, so that the future of other requests has no room for it.
        let opened =
            Box::pin(
                self.pool
                    .open_dedicated(&chosen.endpoint, DedicatedUse::Upgrade, &greeting, span),
            );
        opened.await.map(UpstreamConn::Http1)
    }

    /// Waits for the first byte of a response, and consumes none.
    async fn wait_for_response(&self, link: &UpstreamConn, begun: Time) -> Result<(), Fault> {
        let cx = &self.worker.cx;
        let clock = self.deadlines.for_attempt(&self.forward.timeouts, begun);
        link.set_deadline(clock.wait_limit(cx.now()));
        let late = || clock.expiry_fault(cx.now(), Fault::HeadTimeout);
        let link = match link {
            UpstreamConn::Http1(sole) => sole,
            UpstreamConn::H2(channel) => {
                let begun = poll_fn(|context| channel.poll_response_started(context)).await;
                return begun.map_err(|lost| lost.fault_before_head(late));
            }
        };
        let mut there = false;
        let received = poll_fn(|context| {
            let look = |bytes: &[u8]| {
                there = !bytes.is_empty();
                0
            };
            let polled = link.stream.poll_received(context, look);
            if there { Poll::Ready(Ok(1)) } else { polled }
        });
        match received.await {
            Ok(0) => Err(Fault::ClosedBeforeHead),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(late()),
            Err(_) => Err(Fault::ResetBeforeHead),
        }
    }

    /// Records the failure of an endpoint while another one may still respond.
    fn record_failure(&self, lost: &HedgeLoser) {
        if let AttemptErrorKind::Failure(Failure::Fault(fault)) = lost.error.kind
            && fault.side() == FaultSide::Upstream
        {
            self.worker.counters.count_fault(fault);
            self.pool.record_outcome(&lost.endpoint, RequestOutcome::Failure);
        }
    }
}
