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
        selected: &SelectedEndpoint,
        conn: &UpstreamConn,
        is_sent: bool,
        clock: &mut ExchangeTimeouts,
        reader: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<AttemptOutcome, Failure> {
        let cx = &self.worker.cx;
        let unsent = self.begin_sending(selected, conn, is_sent)?;
        let started_at = cx.now();
        let progress = UploadProgress::new(started_at);
        let upload = self.request_upload(conn, &progress);
        let mut sending = self.req.head().framing != Framing::None;
        let mut upload_future = pin!(upload.run(unsent));
        let mut timeouts = AttemptTimeouts::new(self, conn);
        // While the body is being sent, `timeouts` enforces the deadlines.
        conn.set_deadline(clock.wait_limit(started_at).filter(|_| !sending));
        let mut outcome = None;
        loop {
            let step = poll_fn(|context| {
                let was_sending = sending;
                if let Err(failure) = poll_upload(upload_future.as_mut(), &mut sending, context) {
                    return Poll::Ready(Err(failure));
                }
                if was_sending && !sending {
                    clock.extend_attempt(progress.client_time(cx.now()));
                    conn.set_deadline(clock.wait_limit(cx.now()));
                }
                let polled = self.poll_response(outcome.as_mut(), conn, clock, reader, reply, context);
                if sending && polled.is_pending() {
                    return timeouts
                        .poll(clock, &progress, outcome.is_some(), context)
                        .map(|fault| Err(fault.into()));
                }
                polled
            });
            match step.await? {
                Some(outcome @ (AttemptOutcome::Upgrade | AttemptOutcome::Retry(_))) => return Ok(outcome),
                Some(outcome @ AttemptOutcome::ErrorPage(status)) => {
                    self.record_response(selected, self.start_without_client(started_at, &progress), status);
                    return Ok(outcome);
                }
                Some(AttemptOutcome::Body(mut body)) => {
                    let status = reply.current_status();
                    self.record_response(selected, self.start_without_client(started_at, &progress), status);
                    clock.head = None;
                    body.is_request_aborted = sending && aborts_upload(conn, &body, status);
                    outcome = Some(body);
                }
                None => progress.record_transfer(cx.now()),
            }
            if let (Some(chain), Some(body)) = (self.chain, &mut outcome) {
                self.pass_through_filters(chain, body, conn, upload_future.as_mut(), &mut sending, reply)
                    .await?;
            }
            if let Some(body) =
                outcome.take_if(|body| body.is_finished || body.is_request_aborted || !sending)
            {
                return Ok(AttemptOutcome::Body(mark_request_aborted(body, sending)));
            }
            if outcome.is_some() {
                conn.set_deadline(None);
                flush_and_upload(upload_future.as_mut(), &mut sending, reply).await?;
            }
            conn.set_deadline(clock.wait_limit(cx.now()).filter(|_| !sending));
        }
    }

    /// Sends the head, unless it was sent. A request that started without a task has no body.
    fn begin_sending(
        &self,
        selected: &SelectedEndpoint,
        conn: &UpstreamConn,
        is_sent: bool,
    ) -> Result<UnsentRequest, Failure> {
        if is_sent {
            Ok(UnsentRequest::Nothing)
        } else {
            Ok(self.send_head(selected, conn)?)
        }
    }

    /// Polls for the head of the response, or for more of its body.
    fn poll_response(
        &self,
        body: Option<&mut ResponseBody>,
        conn: &UpstreamConn,
        clock: &mut ExchangeTimeouts,
        reader: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        let Some(body) = body else {
            return self.poll_head(conn, clock, reader, reply, context);
        };
        let polled = ResponseBody::poll_relay(body, conn, clock, reply, context);
        reader.detail = body.detail.take();
        polled.map_ok(|()| None)
    }

    /// Returns the start of an attempt, shifted by the time spent waiting for the client.
    fn start_without_client(&self, started_at: Time, progress: &UploadProgress) -> Time {
        started_at.after(progress.client_time(self.worker.cx.now()))
    }

    /// Passes a received part of the response to filters, and continues sending the request body, which a filter may wait for.
    async fn pass_through_filters(
        &self,
        chain: &FilterChain,
        body: &mut ResponseBody,
        conn: &UpstreamConn,
        mut upload_future: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
        sending: &mut bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        conn.set_deadline(None);
        // Boxed, so that the future of requests without filters has no room for it.
        let mut filtering = Box::pin(chain.filter_received(self.req, body, reply));
        poll_fn(|context| {
            if let Err(failure) = poll_upload(upload_future.as_mut(), sending, context) {
                return Poll::Ready(Err(failure));
            }
            filtering.as_mut().poll(context)
        })
        .await
    }
}

impl<'r> ForwardJob<'_, 'r> {
    /// Returns the request body as sent by one attempt.
    pub(super) fn request_upload<'u>(
        &'u self,
        conn: &'u UpstreamConn,
        progress: &'u UploadProgress,
    ) -> RequestUpload<'u, 'r> {
        RequestUpload {
            worker: self.worker,
            req: self.req,
            conn,
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
/// only after the whole body (RFC 9112 §9.5). Over HTTP/2 the endpoint resets the stream itself.
fn aborts_upload(conn: &UpstreamConn, body: &ResponseBody, status: u16) -> bool {
    matches!(conn, UpstreamConn::Http1(_)) && (status >= 400 || body.is_finished)
}

/// Waits until the client has received enough of the response, and continues sending the request body.
async fn flush_and_upload(
    mut upload_future: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
    sending: &mut bool,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut flush = pin!(reply.flush());
    poll_fn(|context| {
        if let Err(failure) = poll_upload(upload_future.as_mut(), sending, context) {
            return Poll::Ready(Err(failure));
        }
        flush.as_mut().poll(context).map_err(Failure::from)
    })
    .await
}

/// Continues sending a body, unless it is finished. An upstream that accepts no more may have responded nevertheless.
fn poll_upload(
    upload_future: Pin<&mut impl Future<Output = Result<(), UploadError>>>,
    sending: &mut bool,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    if *sending && let Poll::Ready(sent) = upload_future.poll(context) {
        *sending = false;
        if let Err(UploadError::Failure(failure)) = sent {
            return Err(failure);
        }
    }
    Ok(())
}

/// Marks a response that was complete before its request was sent: the rest of the request is not sent, and the connection is closed.
fn mark_request_aborted(mut body: ResponseBody, sending: bool) -> ResponseBody {
    body.is_request_aborted |= sending;
    body.keep_alive &= !body.is_request_aborted;
    body
}
