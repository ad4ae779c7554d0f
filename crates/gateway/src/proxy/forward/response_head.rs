//! Reading of an upstream's response head: from the bytes of a connection, or from a stream.

use std::io;
use std::task::{Context, Poll};

use ringmain_engine::stream::Stream;
use ringmain_web::Reply;

use super::{AttemptOutcome, ForwardJob};
use crate::fault::Fault;
use crate::proxy::Failure;
use crate::proxy::response::{ResponseReader, ResponseStart};
use crate::proxy::response_body::{ExchangeTimeouts, ResponseBody};
use crate::upstream::h2::H2Stream;
use crate::upstream::pool::UpstreamConn;

impl ForwardJob<'_, '_> {
    /// Reads the received part of the response head, and of its body.
    pub(super) fn poll_head(
        &self,
        conn: &UpstreamConn,
        clock: &ExchangeTimeouts,
        reader: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        match conn {
            UpstreamConn::Http1(pooled) => {
                self.poll_head_http1(&pooled.stream, clock, reader, reply, context)
            }
            UpstreamConn::H2(channel) => self.poll_head_h2(conn, channel, clock, reader, reply, context),
        }
    }

    /// Reads a head over HTTP/2, where heads arrive complete.
    fn poll_head_h2(
        &self,
        conn: &UpstreamConn,
        channel: &H2Stream,
        clock: &ExchangeTimeouts,
        reader: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        let stored = match channel.poll_head(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(stored)) => stored,
            Poll::Ready(Err(error)) => {
                reader.detail = error.detail();
                let fault = || clock.expiry_fault(self.worker.cx.now(), Fault::HeadTimeout);
                return Poll::Ready(Err(error.fault_before_head(fault).into()));
            }
        };
        let head = {
            let scratch = &mut *self.worker.scratch.borrow_mut();
            let mut head = reader.read_stored(&stored, scratch, reply)?;
            if matches!(head, Some(ResponseStart::Retry(_))) && !self.should_retry_status() {
                // Without a retry the response is relayed.
                reader.rules.retry = &[];
                head = reader.read_stored(&stored, scratch, reply)?;
            }
            head
        };
        Poll::Ready(Ok(match head {
            None => None,
            Some(ResponseStart::Body {
                decoding,
                keep_alive,
                trailer_filter,
                framing,
                web,
                events,
            }) => {
                let mut body = ResponseBody::new(decoding, keep_alive, trailer_filter, web, events);
                if reader.filtered {
                    body.enable_filters(framing);
                }
                if body.is_finished {
                    channel.mark_bodiless();
                } else if let Poll::Ready(fed) = body.poll_relay(conn, clock, reply, context) {
                    // The first bytes of the body are relayed with the head.
                    reader.detail = body.detail.take();
                    fed?;
                }
                Some(AttemptOutcome::Body(body))
            }
            Some(ResponseStart::Upgrade) => Some(AttemptOutcome::Upgrade),
            Some(ResponseStart::Retry(status)) => Some(AttemptOutcome::Retry(status)),
            Some(ResponseStart::ErrorPage(status)) => Some(AttemptOutcome::ErrorPage(status)),
        }))
    }

    fn poll_head_http1(
        &self,
        stream: &Stream,
        clock: &ExchangeTimeouts,
        reader: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        let mut result = Ok(None);
        let received = stream.poll_received(context, |bytes| {
            let scratch = &mut *self.worker.scratch.borrow_mut();
            let (mut consumed, mut head) = reader.read_bytes(bytes, scratch, reply);
            if matches!(head, Ok(Some(ResponseStart::Retry(_)))) && !self.should_retry_status() {
                // Without a retry the response is relayed.
                reader.rules.retry = &[];
                let (consumed_again, result) = reader.read_bytes(&bytes[consumed..], scratch, reply);
                (consumed, head) = (consumed + consumed_again, result);
            }
            let (fed, outcome) = match head {
                Ok(Some(ResponseStart::Body {
                    decoding,
                    keep_alive,
                    trailer_filter,
                    framing,
                    web,
                    events,
                })) => {
                    let mut body = ResponseBody::new(decoding, keep_alive, trailer_filter, web, events);
                    if reader.filtered {
                        body.enable_filters(framing);
                    }
                    let (fed, outcome) = body.feed(&bytes[consumed..], reply);
                    reader.detail = body.detail.take();
                    (fed, outcome.map(|()| Some(AttemptOutcome::Body(body))))
                }
                Ok(Some(ResponseStart::Upgrade)) => (0, Ok(Some(AttemptOutcome::Upgrade))),
                Ok(Some(ResponseStart::Retry(status))) => (0, Ok(Some(AttemptOutcome::Retry(status)))),
                Ok(Some(ResponseStart::ErrorPage(status))) => {
                    (0, Ok(Some(AttemptOutcome::ErrorPage(status))))
                }
                Ok(None) => (0, Ok(None)),
                Err(failure) => (0, Err(failure)),
            };
            result = outcome;
            consumed + fed
        });
        match (received, result) {
            (_, Err(failure)) => Poll::Ready(Err(failure)),
            (_, Ok(Some(outcome))) => Poll::Ready(Ok(Some(outcome))),
            (Poll::Ready(Ok(0)), Ok(None)) => Poll::Ready(Err(Fault::ClosedBeforeHead.into())),
            (Poll::Ready(Ok(_)), Ok(None)) => Poll::Ready(Ok(None)),
            (Poll::Ready(Err(error)), Ok(None)) => Poll::Ready(Err(match error.kind() {
                io::ErrorKind::TimedOut => clock.expiry_fault(self.worker.cx.now(), Fault::HeadTimeout),
                _ => Fault::ResetBeforeHead,
            }
            .into())),
            (Poll::Pending, Ok(None)) => Poll::Pending,
        }
    }
}
