//! One attempt: the request body upstream and the response downstream at the same time, each with back-pressure.
//!
//! ```text
//! head sent ─▶ body up │ head awaited ─┬─ head ─▶ body up │ body down ─┬─ request body sent ─▶ download
//!                                      ├─ 101 ─▶ tunnel               └─ response complete: the rest of the body is not sent
//!                                      └─ a status to retry or replace
//! ```
//!
//! An upstream may respond at any time (RFC 9112 §9.5): its response is relayed while the body is still being sent. When the response is
//! complete, or has an error status over HTTP/1.1, the rest of the body is not sent.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use ringmain_engine::backend::Time;
use ringmain_web::Reply;
use ringmain_wire::h1::Framing;

use super::Job;
use super::timeouts::Watch;
use crate::proxy::Failure;
use crate::proxy::filter_chain::Chain;
use crate::proxy::request_body::{NotSent, Progress, Unsent, Upload};
use crate::proxy::response::Reading;
use crate::proxy::response_body::{Clock, Down};
use crate::upstream::pool::{SelectedEndpoint, UpstreamConn};

/// The result of a complete head.
pub(super) enum Got {
    /// A body, whose first bytes may have been relayed already.
    Body(Down),
    Switch,
    /// A status after which the request is retried.
    Again(u16),
    /// A status that the rule has an error page for.
    Replaced(u16),
}

impl Job<'_, '_> {
    /// Sends the request, unless its head was sent already, and reads the response head; then relays both bodies until the request's is
    /// sent.
    pub(super) async fn converse(
        &self,
        chosen: &SelectedEndpoint,
        (link, is_sent): (&UpstreamConn, bool),
        clock: &mut Clock,
        reading: &mut Reading<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<Got, Failure> {
        let cx = &self.worker.cx;
        let unsent = self.begin_sending(chosen, link, is_sent)?;
        let begun = cx.now();
        let progress = Progress::new(begun);
        let upload = self.upload(link, &progress);
        let mut sending = self.req.head().framing != Framing::None;
        let mut up = pin!(upload.run(unsent));
        let mut watch = Watch::new(self, link);
        // While the body is being sent its own watch enforces the timeouts.
        link.set_deadline(clock.span(begun).filter(|_| !sending));
        let mut got = None;
        loop {
            let step = poll_fn(|context| {
                let was_sending = sending;
                if let Err(failure) = poll_up(up.as_mut(), &mut sending, context) {
                    return Poll::Ready(Err(failure));
                }
                if was_sending && !sending {
                    clock.exclude(progress.client_time(cx.now()));
                    link.set_deadline(clock.span(cx.now()));
                }
                let polled = self.poll_response(got.as_mut(), link, (clock, reading), reply, context);
                if sending && polled.is_pending() {
                    return watch
                        .poll(clock, &progress, got.is_some(), context)
                        .map(|fault| Err(fault.into()));
                }
                polled
            });
            match step.await? {
                Some(got @ (Got::Switch | Got::Again(_))) => return Ok(got),
                Some(got @ Got::Replaced(status)) => {
                    self.answered(chosen, self.upstream_time(begun, &progress), status);
                    return Ok(got);
                }
                Some(Got::Body(mut down)) => {
                    let status = reply.status_now();
                    self.answered(chosen, self.upstream_time(begun, &progress), status);
                    clock.head = None;
                    down.is_request_cut = sending && stops(link, &down, status);
                    got = Some(down);
                }
                None => progress.advance(cx.now()),
            }
            if let (Some(chain), Some(down)) = (self.chain, &mut got) {
                self.pass((chain, down, link), (up.as_mut(), &mut sending), reply)
                    .await?;
            }
            if let Some(down) = got.take_if(|down| down.is_over || down.is_request_cut || !sending) {
                return Ok(Got::Body(cut_request(down, sending)));
            }
            if got.is_some() {
                link.set_deadline(None);
                flush((up.as_mut(), &mut sending), reply).await?;
            }
            link.set_deadline(clock.span(cx.now()).filter(|_| !sending));
        }
    }

    /// Sends the head, unless it was sent. A request that started without a task has no body.
    fn begin_sending(
        &self,
        chosen: &SelectedEndpoint,
        link: &UpstreamConn,
        is_sent: bool,
    ) -> Result<Unsent, Failure> {
        match is_sent {
            true => Ok(Unsent::Nothing),
            false => Ok(self.send_head(chosen, link)?),
        }
    }

    /// Polls for the head of the response, or for more of its body.
    fn poll_response(
        &self,
        down: Option<&mut Down>,
        link: &UpstreamConn,
        (clock, reading): (&mut Clock, &mut Reading<'_, '_>),
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Got>, Failure>> {
        let Some(down) = down else {
            return self.poll_head(link, clock, reading, reply, context);
        };
        let polled = Down::poll(down, link, clock, reply, context);
        reading.detail = down.detail.take();
        polled.map_ok(|()| None)
    }

    /// Returns the start of an attempt, shifted by the time spent waiting for the client.
    fn upstream_time(&self, begun: Time, progress: &Progress) -> Time {
        begun.after(progress.client_time(self.worker.cx.now()))
    }

    /// Passes a received part of the response to filters, and continues sending the request body, which a filter may wait for.
    async fn pass(
        &self,
        (chain, down, link): (&Chain, &mut Down, &UpstreamConn),
        (mut up, sending): (Pin<&mut impl Future<Output = Result<(), NotSent>>>, &mut bool),
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        link.set_deadline(None);
        // Boxed, so that the future of requests without filters has no room for it.
        let mut passing = Box::pin(chain.answer(self.req, down, reply));
        poll_fn(|context| {
            if let Err(failure) = poll_up(up.as_mut(), sending, context) {
                return Poll::Ready(Err(failure));
            }
            passing.as_mut().poll(context)
        })
        .await
    }
}

impl<'r> Job<'_, 'r> {
    /// Returns the request body as sent by one attempt.
    pub(super) fn upload<'u>(&'u self, link: &'u UpstreamConn, progress: &'u Progress) -> Upload<'u, 'r> {
        Upload {
            worker: self.worker,
            req: self.req,
            link,
            most: self.forward.body.request,
            chain: self.chain,
            changes: &self.backend.request,
            cleared: self.sending.cleared,
            kept: &self.kept,
            web: &self.web,
            progress,
            held: &self.worth.held,
        }
    }
}

/// Returns whether a response that starts before the request body is sent makes the rest unwanted: an HTTP/1.1 connection could be reused
/// only after the whole body (RFC 9112 §9.5). Over HTTP/2 the endpoint signals it itself.
fn stops(link: &UpstreamConn, down: &Down, status: u16) -> bool {
    matches!(link, UpstreamConn::Http1(_)) && (status >= 400 || down.is_over)
}

/// Waits until the client has received enough of the response, and continues sending the request body.
async fn flush(
    (mut up, sending): (Pin<&mut impl Future<Output = Result<(), NotSent>>>, &mut bool),
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut flush = pin!(reply.flush());
    poll_fn(|context| {
        if let Err(failure) = poll_up(up.as_mut(), sending, context) {
            return Poll::Ready(Err(failure));
        }
        flush.as_mut().poll(context).map_err(Failure::from)
    })
    .await
}

/// Continues sending a body, unless it is finished. An upstream that accepts no more may have responded nevertheless.
fn poll_up(
    up: Pin<&mut impl Future<Output = Result<(), NotSent>>>,
    sending: &mut bool,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    if *sending && let Poll::Ready(sent) = up.poll(context) {
        *sending = false;
        if let Err(NotSent::Failure(failure)) = sent {
            return Err(failure);
        }
    }
    Ok(())
}

/// Marks a response that was complete before its request was sent: the rest of the request is not sent, and the connection is closed.
fn cut_request(mut down: Down, sending: bool) -> Down {
    down.is_request_cut |= sending;
    down.keep_alive &= !down.is_request_cut;
    down
}
