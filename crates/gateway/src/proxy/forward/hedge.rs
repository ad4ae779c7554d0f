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

use super::{Begun, Broken, Job, Why, addresses, is_idempotent};
use crate::fault::{Fault, Side};
use crate::health::Meeting;
use crate::limits;
use crate::proxy::Failure;
use crate::proxy::request;
use crate::proxy::request_body::{NotSent, Progress, Unsent, next_piece};
use crate::resolve::within;
use crate::upstream::AffinityHint;
use crate::upstream::pool::dedicated::DedicatedUse;
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamConn};

/// An attempt that failed before its response started.
struct Lost {
    end: Rc<PoolEndpoint>,
    broken: Broken,
}

/// The attempt that continues.
pub(super) struct Won {
    /// Its connection carries the request's head.
    pub(super) begun: Begun,
    /// The endpoint of the other attempt.
    pub(super) beside: Option<Rc<PoolEndpoint>>,
}

/// The result of concurrent attempts.
pub(super) type Raced = Result<Won, (Broken, Vec<Rc<PoolEndpoint>>)>;

impl Job<'_, '_> {
    /// Returns the delay after which this request is hedged. Waits for its body, if it may be short enough.
    pub(super) async fn hedge(&self) -> Result<Option<Duration>, Failure> {
        let Some(after) = self.forward.hedge else {
            return Ok(None);
        };
        let framing = self.req.head().framing;
        let too_long = matches!(framing, Framing::Length(length) if length > limits::REPLAY_BYTES as u64);
        if too_long || !is_idempotent(self.req.method()) || self.sending.upgrade.is_some() {
            return Ok(None);
        }
        if framing == Framing::None {
            return Ok(Some(after));
        }
        // Boxed, so that the future of requests without a body has no room for it.
        let gathered = match self.clock.total {
            None => Some(Box::pin(self.gather()).await),
            Some(total) => {
                let left = total.since(self.worker.cx.now());
                within(&self.worker.cx, left, Box::pin(self.gather())).await
            }
        };
        let whole = gathered.unwrap_or(Err(Fault::RequestTimeout.into()))?;
        Ok(whole.then_some(after))
    }

    /// Receives the body from the client before a byte is sent. Returns whether it is complete, and no longer than can be sent again.
    async fn gather(&self) -> Result<bool, Failure> {
        let mut total = 0;
        loop {
            // In the form after filters, which each attempt sends. The filters themselves enforce the limit of the client's bytes.
            let next = next_piece(self.req, self.chain, &self.web);
            let piece = match self.clock.idle {
                None => next.await?,
                Some(idle) => within(&self.worker.cx, idle, Box::pin(next))
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
            if !self.kept.buffer_unsent(&piece) {
                return Ok(false);
            }
        }
    }

    /// Runs a first attempt until its response starts, with a second one if that takes longer than `after`. If all fail: the error of the
    /// last one, and the endpoints, the last one's last.
    pub(super) async fn race(&self, first: Begun, after: Duration) -> Raced {
        let first_end = Rc::clone(&first.0.endpoint);
        let mut one = pin!(self.leg(first));
        let mut sleep = pin!(self.worker.cx.sleep(after));
        let ended = poll_fn(|context| match one.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        });
        #[expect(clippy::result_large_err, reason = "returned once, to the only caller")]
        let alone = |ended: Result<Begun, Lost>| match ended {
            Ok(begun) => Ok(Won { begun, beside: None }),
            Err(lost) => Err((lost.broken, vec![lost.end])),
        };
        if let Some(ended) = ended.await {
            return alone(ended);
        }
        let Some(second) = self.another(&first_end) else {
            return alone(one.await);
        };
        let second_end = Rc::clone(&second.endpoint);
        let mut two = pin!(self.leg((second, None, self.worker.cx.now())));
        let mut legs = [Some(one.as_mut()), Some(two.as_mut())];
        let mut failed: Option<Lost> = None;
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
                        return Poll::Ready(Ok(Won { begun, beside }));
                    }
                    Err(lost) => match failed.take() {
                        None => {
                            self.met_failure(&lost);
                            failed = Some(lost);
                        }
                        Some(before) => return Poll::Ready(Err((lost.broken, vec![before.end, lost.end]))),
                    },
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns another endpoint, if there is one and the upstream's limits allow the attempt.
    fn another(&self, first: &Rc<PoolEndpoint>) -> Option<SelectedEndpoint> {
        let chosen = self
            .local
            .select(std::slice::from_ref(first), self.key, AffinityHint::None);
        let chosen = chosen
            .ok()
            .filter(|chosen| chosen.endpoint.endpoint.addr != first.endpoint.addr)?;
        self.begin_retry().then(|| {
            self.local.upstream.circuit_breaker.count_hedge();
            chosen
        })
    }

    /// Runs one attempt until its response starts.
    async fn leg(&self, (chosen, link, begun): Begun) -> Result<Begun, Lost> {
        let end = Rc::clone(&chosen.endpoint);
        let lost = |fault: Fault, before| Lost {
            end: Rc::clone(&end),
            broken: Broken::by(Failure::Fault(fault), before),
        };
        let cx = &self.worker.cx;
        let (link, begun) = match link {
            Some(link) => (link, begun),
            None => {
                let link = self
                    .open(&chosen, false)
                    .await
                    .map_err(|fault| lost(fault, false))?;
                let unsent = self
                    .send_head(&chosen, &link)
                    .map_err(|fault| lost(fault, false))?;
                let begun = cx.now();
                self.send_kept(&link, unsent, begun)
                    .await
                    .map_err(|failure| Lost {
                        end: Rc::clone(&end),
                        broken: failure.into(),
                    })?;
                (link, begun)
            }
        };
        match self.answers(&link, begun).await {
            Ok(()) => Ok((chosen, Some(link), begun)),
            Err(fault) => Err(lost(fault, link.requests_before() > 0)),
        }
    }

    /// Sends the buffered body, if there is one, until a response starts: an endpoint may respond without having read it.
    async fn send_kept(&self, link: &UpstreamConn, unsent: Unsent, begun: Time) -> Result<(), Failure> {
        if self.req.head().framing == Framing::None {
            // The head declares no body.
            return Ok(());
        }
        let progress = Progress::new(begun);
        let upload = self.upload(link, &progress);
        let mut up = pin!(upload.run(unsent));
        let mut answers = pin!(self.answers(link, begun));
        poll_fn(|context| match up.as_mut().poll(context) {
            // If it was not accepted, the response reports the precise fault.
            Poll::Ready(Ok(()) | Err(NotSent::Refused)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(NotSent::Failure(failure))) => Poll::Ready(Err(failure)),
            Poll::Pending => answers.as_mut().poll(context).map_err(Failure::from),
        })
        .await
    }

    /// Returns the time limit for connecting.
    pub(super) fn time_to_open(&self) -> Duration {
        self.within_total(self.local.connect_timeout())
    }

    /// Returns a wait, shortened to the rest of the request's time limit.
    pub(super) fn within_total(&self, span: Duration) -> Duration {
        let left = self.clock.total.map(|total| total.since(self.worker.cx.now()));
        left.map_or(span, |left| span.min(left))
    }

    /// # Errors
    /// The request's time limit is reached.
    pub(super) fn check_total(&self) -> Result<(), Fault> {
        match self.clock.total.is_some_and(|at| self.worker.cx.now() >= at) {
            true => Err(Fault::RequestTimeout),
            false => Ok(()),
        }
    }

    /// Connects to an endpoint.
    pub(super) async fn open(&self, chosen: &SelectedEndpoint, fresh: bool) -> Result<UpstreamConn, Fault> {
        let _turn = self.take_turn()?;
        let span = self.time_to_open();
        let greeting = self.local.proxy_header(|| addresses(self.req));
        self.worker
            .link(self.local, &chosen.endpoint, (fresh, &greeting), span)
            .await
    }

    /// Replaces a stream that cannot switch protocols, if the request requires a switch, with an HTTP/1.1 connection, if the endpoint
    /// supports that, too.
    pub(super) async fn switchable(
        &self,
        link: UpstreamConn,
        chosen: &SelectedEndpoint,
    ) -> Result<UpstreamConn, Fault> {
        match &link {
            UpstreamConn::H2(channel)
                if self.sending.upgrade.is_some() && self.local.negotiates_protocol() =>
            {
                if request::connects(self.req, &self.sending, channel) {
                    return Ok(link);
                }
            }
            _ => return Ok(link),
        }
        drop(link);
        let span = self.time_to_open();
        let greeting = self.local.proxy_header(|| addresses(self.req));
        // Boxed, so that the future of other requests has no room for it.
        let opened =
            Box::pin(
                self.local
                    .open_dedicated(&chosen.endpoint, DedicatedUse::Upgrade, &greeting, span),
            );
        opened.await.map(UpstreamConn::Http1)
    }

    /// Waits for the first byte of a response, and consumes none.
    async fn answers(&self, link: &UpstreamConn, begun: Time) -> Result<(), Fault> {
        let cx = &self.worker.cx;
        let mut clock = self.clock;
        clock.head = self.forward.timeouts.per_try.map(|span| begun.after(span));
        link.set_deadline(clock.span(cx.now()));
        let late = || clock.fault(cx.now(), Fault::HeadTimeout);
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
    fn met_failure(&self, lost: &Lost) {
        if let Why::Failure(Failure::Fault(fault)) = lost.broken.why
            && fault.side() == Side::Upstream
        {
            self.worker.counting.fault(fault);
            self.local.record_outcome(&lost.end, Meeting::Bad);
        }
    }
}
