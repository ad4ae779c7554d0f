//! One attempt: the request's body up beside the answer down, each as far as the other side takes it.
//!
//! ```text
//! head sent ─▶ body up │ head awaited ─┬─ head ─▶ body up │ body down ─┬─ the body is sent ─▶ download
//!                                      ├─ 101 ─▶ tunnel               └─ the answer is over: the rest of the body is not sent
//!                                      └─ a status to retry or replace
//! ```
//!
//! An upstream may answer at any time (RFC 9112 §9.5): its answer is relayed while the body is still sent, and with its end, or
//! with an error status by HTTP/1.1, the rest of the body is stopped.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use ringmain_engine::backend::Time;
use ringmain_web::Reply;
use ringmain_wire::h1::Framing;

use super::Job;
use super::watch::Watch;
use crate::exchange::Failure;
use crate::exchange::filtered::Chain;
use crate::exchange::relay::{Clock, Down};
use crate::exchange::response::Reading;
use crate::exchange::upload::{NotSent, Progress, Unsent, Upload};
use crate::upstream::local::{Chosen, Link};

/// What a whole head has led to.
pub(super) enum Got {
    /// A body, of which what had come was passed on.
    Body(Down),
    Switch,
    /// A status after which the request is tried again.
    Again(u16),
    /// A status that the rule has a page for.
    Replaced(u16),
}

impl Job<'_, '_> {
    /// Sends the request, unless its head is sent already, and reads the answer's head; then goes on with both bodies as long as the request's is not sent.
    pub(super) async fn converse(
        &self,
        chosen: &Chosen,
        (link, is_sent): (&Link, bool),
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
        // As long as the body is sent its own watch keeps the time.
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

    /// Sends the head, unless it is sent. What is sent before there is a task has no body.
    fn begin_sending(&self, chosen: &Chosen, link: &Link, is_sent: bool) -> Result<Unsent, Failure> {
        match is_sent {
            true => Ok(Unsent::Nothing),
            false => Ok(self.send_head(chosen, link)?),
        }
    }

    /// Polls for the head of the response, or for more of its body.
    fn poll_response(
        &self,
        down: Option<&mut Down>,
        link: &Link,
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

    /// When an attempt would have begun if its client had been waited for never.
    fn upstream_time(&self, begun: Time, progress: &Progress) -> Time {
        begun.after(progress.client_time(self.worker.cx.now()))
    }

    /// Has filters see what has come of an answer, and sends the request's body beside that: it may be what one of them waits for.
    async fn pass(
        &self,
        (chain, down, link): (&Chain, &mut Down, &Link),
        (mut up, sending): (Pin<&mut impl Future<Output = Result<(), NotSent>>>, &mut bool),
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        link.set_deadline(None);
        // Apart, so that requests without them have no room for it.
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
    /// The request's body as one attempt sends it.
    pub(super) fn upload<'u>(&'u self, link: &'u Link, progress: &'u Progress) -> Upload<'u, 'r> {
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

/// Whether an answer that begins before the request's body is sent means that the rest of it is not wanted: a connection of HTTP/1.1
/// could only be used again behind the whole body (RFC 9112 §9.5). An endpoint says so itself by HTTP/2.
fn stops(link: &Link, down: &Down, status: u16) -> bool {
    matches!(link, Link::Sole(_)) && (status >= 400 || down.is_over)
}

/// Waits until the client has taken enough of the answer; the request's body is sent beside that.
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

/// Goes on sending a body, unless that is over. What an upstream does not take it may have answered all the same.
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

/// A response that is over before its request was sent takes the rest of the request with it, and its connection.
fn cut_request(mut down: Down, sending: bool) -> Down {
    down.is_request_cut |= sending;
    down.keep_alive &= !down.is_request_cut;
    down
}
