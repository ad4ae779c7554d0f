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
        link: &UpstreamConn,
        clock: &ExchangeTimeouts,
        reading: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        match link {
            UpstreamConn::Http1(sole) => self.poll_head_http1(&sole.stream, clock, reading, reply, context),
            UpstreamConn::H2(channel) => self.poll_head_h2(link, channel, clock, reading, reply, context),
        }
    }

    /// Reads a head over HTTP/2, where heads arrive complete.
    fn poll_head_h2(
        &self,
        link: &UpstreamConn,
        channel: &H2Stream,
        clock: &ExchangeTimeouts,
        reading: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        let stored = match channel.poll_head(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(stored)) => stored,
            Poll::Ready(Err(lost)) => {
                reading.detail = lost.detail();
                let late = || clock.expiry_fault(self.worker.cx.now(), Fault::HeadTimeout);
                return Poll::Ready(Err(lost.fault_before_head(late).into()));
            }
        };
        let head = {
            let desk = &mut *self.worker.scratch.borrow_mut();
            let mut head = reading.read_stored(&stored, desk, reply)?;
            if matches!(head, Some(ResponseStart::Retry(_))) && !self.should_retry_status() {
                // Without a retry it is relayed.
                reading.rules.retry = &[];
                head = reading.read_stored(&stored, desk, reply)?;
            }
            head
        };
        Poll::Ready(Ok(match head {
            None => None,
            Some(ResponseStart::Body {
                decoding,
                keep_alive,
                sieve,
                framing,
                web,
            }) => {
                let mut down = ResponseBody::new(decoding, keep_alive, sieve, web);
                if reading.filtered {
                    down.enable_filters(framing);
                }
                if down.is_finished {
                    channel.mark_bodiless();
                } else if let Poll::Ready(fed) = down.poll_relay(link, clock, reply, context) {
                    // The first bytes of the body are relayed with the head.
                    reading.detail = down.detail.take();
                    fed?;
                }
                Some(AttemptOutcome::Body(down))
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
        reading: &mut ResponseReader<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AttemptOutcome>, Failure>> {
        let mut looked = Ok(None);
        let received = stream.poll_received(context, |bytes| {
            let desk = &mut *self.worker.scratch.borrow_mut();
            let (mut consumed, mut head) = reading.read_bytes(bytes, desk, reply);
            if matches!(head, Ok(Some(ResponseStart::Retry(_)))) && !self.should_retry_status() {
                // Without a retry it is relayed.
                reading.rules.retry = &[];
                let (more, looked) = reading.read_bytes(&bytes[consumed..], desk, reply);
                (consumed, head) = (consumed + more, looked);
            }
            let (fed, outcome) = match head {
                Ok(Some(ResponseStart::Body {
                    decoding,
                    keep_alive,
                    sieve,
                    framing,
                    web,
                })) => {
                    let mut down = ResponseBody::new(decoding, keep_alive, sieve, web);
                    if reading.filtered {
                        down.enable_filters(framing);
                    }
                    let (fed, outcome) = down.feed(&bytes[consumed..], reply);
                    reading.detail = down.detail.take();
                    (fed, outcome.map(|()| Some(AttemptOutcome::Body(down))))
                }
                Ok(Some(ResponseStart::Upgrade)) => (0, Ok(Some(AttemptOutcome::Upgrade))),
                Ok(Some(ResponseStart::Retry(status))) => (0, Ok(Some(AttemptOutcome::Retry(status)))),
                Ok(Some(ResponseStart::ErrorPage(status))) => {
                    (0, Ok(Some(AttemptOutcome::ErrorPage(status))))
                }
                Ok(None) => (0, Ok(None)),
                Err(failure) => (0, Err(failure)),
            };
            looked = outcome;
            consumed + fed
        });
        match (received, looked) {
            (_, Err(failure)) => Poll::Ready(Err(failure)),
            (_, Ok(Some(got))) => Poll::Ready(Ok(Some(got))),
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
