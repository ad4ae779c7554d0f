//! Reading of an upstream's response head: from the bytes of a connection, or from a stream.

use std::io;
use std::task::{Context, Poll};

use ringmain_engine::stream::Stream;
use ringmain_web::Reply;

use super::{Got, Job};
use crate::fault::Fault;
use crate::proxy::Failure;
use crate::proxy::response::{Head, Reading};
use crate::proxy::response_body::{Clock, Down};
use crate::upstream::h2::H2Stream;
use crate::upstream::pool::UpstreamConn;

impl Job<'_, '_> {
    /// Reads the received part of the response head, and of its body.
    pub(super) fn poll_head(
        &self,
        link: &UpstreamConn,
        clock: &Clock,
        reading: &mut Reading<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Got>, Failure>> {
        match link {
            UpstreamConn::Http1(sole) => self.poll_head_sole(&sole.stream, clock, reading, reply, context),
            UpstreamConn::H2(channel) => {
                self.poll_head_shared((link, channel), clock, reading, reply, context)
            }
        }
    }

    /// Reads a head over HTTP/2, where heads arrive complete.
    fn poll_head_shared(
        &self,
        (link, channel): (&UpstreamConn, &H2Stream),
        clock: &Clock,
        reading: &mut Reading<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Got>, Failure>> {
        let stored = match channel.poll_head(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(stored)) => stored,
            Poll::Ready(Err(lost)) => {
                reading.detail = lost.detail();
                let late = || clock.fault(self.worker.cx.now(), Fault::HeadTimeout);
                return Poll::Ready(Err(lost.fault_before_head(late).into()));
            }
        };
        let (changes, most) = (&self.backend.response, self.forward.body.response);
        let head = {
            let desk = &mut *self.worker.desk.borrow_mut();
            let mut head = reading.look_stored(&stored, desk, changes, most, reply)?;
            if matches!(head, Some(Head::Again(_))) && !self.should_retry_status() {
                // Without a retry it is relayed.
                reading.again = &[];
                head = reading.look_stored(&stored, desk, changes, most, reply)?;
            }
            head
        };
        Poll::Ready(Ok(match head {
            None => None,
            Some(Head::Body {
                decoding,
                keep_alive,
                sieve,
                framing,
                web,
            }) => {
                let mut down = Down::new(decoding, keep_alive, sieve, web);
                if reading.filtered {
                    down.filter(framing);
                }
                if down.is_over {
                    channel.mark_bodiless();
                } else if let Poll::Ready(fed) = down.poll(link, clock, reply, context) {
                    // The first bytes of the body are relayed with the head.
                    reading.detail = down.detail.take();
                    fed?;
                }
                Some(Got::Body(down))
            }
            Some(Head::Switch) => Some(Got::Switch),
            Some(Head::Again(status)) => Some(Got::Again(status)),
            Some(Head::Replaced(status)) => Some(Got::Replaced(status)),
        }))
    }

    fn poll_head_sole(
        &self,
        stream: &Stream,
        clock: &Clock,
        reading: &mut Reading<'_, '_>,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Got>, Failure>> {
        let most = self.forward.body.response;
        let mut looked = Ok(None);
        let received = stream.poll_received(context, |bytes| {
            let desk = &mut *self.worker.desk.borrow_mut();
            let changes = &self.backend.response;
            let (mut consumed, mut head) = reading.look(bytes, desk, changes, most, reply);
            if matches!(head, Ok(Some(Head::Again(_)))) && !self.should_retry_status() {
                // Without a retry it is relayed.
                reading.again = &[];
                let (more, looked) = reading.look(&bytes[consumed..], desk, changes, most, reply);
                (consumed, head) = (consumed + more, looked);
            }
            let (fed, outcome) = match head {
                Ok(Some(Head::Body {
                    decoding,
                    keep_alive,
                    sieve,
                    framing,
                    web,
                })) => {
                    let mut down = Down::new(decoding, keep_alive, sieve, web);
                    if reading.filtered {
                        down.filter(framing);
                    }
                    let (fed, outcome) = down.feed(&bytes[consumed..], reply);
                    reading.detail = down.detail.take();
                    (fed, outcome.map(|()| Some(Got::Body(down))))
                }
                Ok(Some(Head::Switch)) => (0, Ok(Some(Got::Switch))),
                Ok(Some(Head::Again(status))) => (0, Ok(Some(Got::Again(status)))),
                Ok(Some(Head::Replaced(status))) => (0, Ok(Some(Got::Replaced(status)))),
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
                io::ErrorKind::TimedOut => clock.fault(self.worker.cx.now(), Fault::HeadTimeout),
                _ => Fault::ResetBeforeHead,
            }
            .into())),
            (Poll::Pending, Ok(None)) => Poll::Pending,
        }
    }
}
