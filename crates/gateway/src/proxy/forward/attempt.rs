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

use super::ForwardJob;
use super::timeouts::AttemptTimeouts;
use crate::proxy::Failure;
use crate::proxy::filter_chain::FilterChain;
use crate::proxy::request_body::{RequestUpload, UnsentRequest, UploadError, UploadProgress};
use crate::proxy::response::ResponseReader;
use crate::proxy::response_body::{ExchangeTimeouts, ResponseBody};
use crate::upstream::pool::{SelectedEndpoint, UpstreamConn};

/// The result of a complete head.
pub(super) enum AttemptOutcome {
    /// A body, whose first bytes may have been relayed already.
    Body(ResponseBody),
    Upgrade,
    /// A status after which the request is retried.
    Retry(u16),
    /// A status that the rule has an error page for.
    ErrorPage(u16),
}

impl ForwardJob<'_, '_> {
    /// Sends the request, unless its head was sent already, and reads the response head; then relays both bodies until the request's is
    /// sent.
    pub(super) async fn exchange_messages(
        &self,
        chosen: &SelectedEndpoint,
        link: &UpstreamConn,
        is_sent: bool,
        clock: &mut ExchangeTimeouts,
        reading: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<AttemptOutcome, Failure> {
        let cx = &self.worker.cx;
        let unsent = self.begin_sending(chosen, link, is_sent)?;
        let begun = cx.now();
        let progress = UploadProgress::new(begun);
        let upload = self.request_upload(link, &progress);
        let mut sending = self.req.head().framing != Framing::None;
        let mut up = pin!(upload.run(unsent));
        let mut watch = AttemptTimeouts::new(self, link);
        // While the body is being sent its own watch enforces the timeouts.
        link.set_deadline(clock.wait_limit(begun).filter(|_| !sending));
        let mut got = None;
        loop {
            let step = poll_fn(|context| {
                let was_sending = sending;
                if let Err(failure) = poll_upload(up.as_mut(), &mut sending, context) {
                    return Poll::Ready(Err(failure));
                }
                if was_sending && !sending {
                    clock.extend_attempt(progress.client_time(cx.now()));
                    link.set_deadline(clock.wait_limit(cx.now()));
                }
                let polled = self.poll_response(got.as_mut(), link, clock, reading, reply, context);
                if sending && polled.is_pending() {
                    return watch
                        .poll(clock, &progress, got.is_some(), context)
                        .map(|fault| Err(fault.into()));
                }
                polled
            });
            match step.await? {
                Some(got @ (AttemptOutcome::Upgrade | AttemptOutcome::Retry(_))) => return Ok(got),
                Some(got @ AttemptOutcome::ErrorPage(status)) => {
                    self.record_response(chosen, self.start_without_client(begun, &progress), status);
                    return Ok(got);
                }
                Some(AttemptOutcome::Body(mut down)) => {
                    let status = reply.current_status();
                    self.record_response(chosen, self.start_without_client(begun, &progress), status);
                    clock.head = None;
                    down.is_request_aborted = sending && aborts_upload(link, &down, status);
                    got = Some(down);
                }
                None => progress.record_transfer(cx.now()),
            }
            if let (Some(chain), Some(down)) = (self.chain, &mut got) {
                self.pass_through_filters(chain, down, link, up.as_mut(), &mut sending, reply)
                    .await?;
            }
            if let Some(down) = got.take_if(|down| down.is_finished || down.is_request_aborted || !sending) {
                return Ok(AttemptOutcome::Body(mark_request_aborted(down, sending)));
            }
            if got.is_some() {
                link.set_deadline(None);
                flush_and_upload(up.as_mut(), &mut sending, reply).await?;
            }
            link.set_deadline(clock.wait_limit(cx.now()).filter(|_| !sending));
        }
    }

    /// Sends the head, unless it was sent. A request that started without a task has no body.
    fn begin_sending(
        &self,
        chosen: &SelectedEndpoint,
        link: &UpstreamConn,
        is_sent: bool,
    ) -> Result<UnsentRequest, Failure> {
        if is_sent {
            Ok(UnsentRequest::Nothing)
        } else {
            Ok(self.send_head(chosen, link)?)
        }
    }

    /// Polls for the head of the response, or for more of its body.
    fn poll_response(
        &self,
        down: Option<&mut ResponseBody>,
        link: &UpstreamConn,
        clock: &mut ExchangeTimeouts,
        reading: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        let Some(down) = down else {
            return self.poll_head(link, clock, reading, reply, context);
        };
        let polled = ResponseBody::poll_relay(down, link, clock, reply, context);
        reading.detail = down.detail.take();
        polled.map_ok(|()| None)
    }

    /// Returns the start of an attempt, shifted by the time spent waiting for the client.
    fn start_without_client(&self, begun: Time, progress: &UploadProgress) -> Time {
        begun.after(progress.client_time(self.worker.cx.now()))
    }

    /// Passes a received part of the response to filters, and continues sending the request body, which a filter may wait for.
    async fn pass_through_filters(
        &self,
        chain: &FilterChain,
        down: &mut ResponseBody,
        link: &UpstreamConn,
        mut up: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
        sending: &mut bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        link.set_deadline(None);
        // Boxed, so that the future of requests without filters has no room for it.
        let mut passing = Box::pin(chain.filter_received(self.req, down, reply));
        poll_fn(|context| {
            if let Err(failure) = poll_upload(up.as_mut(), sending, context) {
                return Poll::Ready(Err(failure));
            }
            passing.as_mut().poll(context)
        })
        .await
    }
}

impl<'r> ForwardJob<'_, 'r> {
    /// Returns the request body as sent by one attempt.
    pub(super) fn request_upload<'u>(
        &'u self,
        link: &'u UpstreamConn,
        progress: &'u UploadProgress,
    ) -> RequestUpload<'u, 'r> {
        RequestUpload {
            worker: self.worker,
            req: self.req,
            conn: link,
            most: self.forward.body.request,
            chain: self.chain,
            changes: &self.backend.request,
            cleared: self.upstream_request.cleared,
            replay: &self.replay,
            grpc_web: &self.grpc_web,
            progress,
            share: &self.admission.share,
        }
    }
}

/// Returns whether a response that starts before the request body is sent makes the rest unwanted: an HTTP/1.1 connection could be reused
/// only after the whole body (RFC 9112 §9.5). Over HTTP/2 the endpoint signals it itself.
fn aborts_upload(link: &UpstreamConn, down: &ResponseBody, status: u16) -> bool {
    matches!(link, UpstreamConn::Http1(_)) && (status >= 400 || down.is_finished)
}

/// Waits until the client has received enough of the response, and continues sending the request body.
async fn flush_and_upload(
    mut up: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
    sending: &mut bool,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut flush = pin!(reply.flush());
    poll_fn(|context| {
        if let Err(failure) = poll_upload(up.as_mut(), sending, context) {
            return Poll::Ready(Err(failure));
        }
        flush.as_mut().poll(context).map_err(Failure::from)
    })
    .await
}

/// Continues sending a body, unless it is finished. An upstream that accepts no more may have responded nevertheless.
fn poll_upload(
    up: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
    sending: &mut bool,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    if *sending && let Poll::Ready(sent) = up.poll(context) {
        *sending = false;
        if let Err(UploadError::Failure(failure)) = sent {
            return Err(failure);
        }
    }
    Ok(())
}

/// Marks a response that was complete before its request was sent: the rest of the request is not sent, and the connection is closed.
fn mark_request_aborted(mut down: ResponseBody, sending: bool) -> ResponseBody {
    down.is_request_aborted |= sending;
    down.keep_alive &= !down.is_request_aborted;
    down
}
