//! Bodies on their way, up and down, each side held back by the other.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::{BodyEncoder, BodyEvent, FieldBlock, Framing, Misuse};

pub(super) use super::decoding::Decoding;
use super::filtered::Chain;
use super::grpc::{Unwrapping, Wrapping};
use super::kept::Kept;
use super::trailers::Sieve;
use super::{Failure, filtered, note};
use crate::fault::Fault;
use crate::filter::Edits;
use crate::gateway::Worker;
use crate::limits;
use crate::model::Timeouts;
use crate::plan::Changes;
use crate::upstream::h2::{Channel, Refused};
use crate::upstream::local::{Chosen, Link, Local};

/// What the times of an exchange still allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// When all of it must be over.
    pub(super) total: Option<Time>,
    /// When this try must have an answer's head.
    pub(super) head: Option<Time>,
    /// Without a byte.
    pub(super) idle: Option<Duration>,
    /// Bytes of an answer that have to come in a second; 0: any number.
    pub(super) rate: u32,
}

/// How fast an answer comes, in the time in which it is waited for: a client that holds it back does not count.
#[derive(Debug, Default)]
pub(super) struct Pace {
    waited: Duration,
    /// Bytes since then.
    came: u64,
}

impl Pace {
    /// How long the next bytes may be waited for.
    fn left(&self, rate: u32) -> Duration {
        let due = Duration::from_secs_f64(self.came as f64 / f64::from(rate));
        (limits::ANSWER_RATE_GRACE + due).saturating_sub(self.waited)
    }

    /// Bytes came after such a time. A window that was met is followed by the next: a fast beginning does not pay for what
    /// is slow behind it.
    fn note(&mut self, waited: Duration, bytes: u64) {
        self.waited += waited;
        self.came += bytes;
        if self.waited > limits::ANSWER_RATE_GRACE + limits::ANSWER_RATE_WINDOW {
            *self = Pace::default();
        }
    }
}

impl Clock {
    /// Of a request that comes now.
    pub(super) fn of(timeouts: &Timeouts, now: Time) -> Clock {
        Clock {
            total: timeouts.request.map(|span| now.after(span)),
            head: None,
            idle: timeouts.idle,
            rate: timeouts.minimum_rate,
        }
    }

    /// How long the upstream may be waited for.
    pub(super) fn span(&self, now: Time) -> Option<Duration> {
        let left = |at: Time| at.since(now).max(Duration::from_millis(1));
        [self.total.map(left), self.head.map(left), self.idle]
            .into_iter()
            .flatten()
            .min()
    }

    /// What it means that it was waited for in vain.
    pub(super) fn fault(&self, now: Time, otherwise: Fault) -> Fault {
        if self.total.is_some_and(|at| now >= at) {
            Fault::RequestTimeout
        } else {
            otherwise
        }
    }
}

/// Why a body did not get to the upstream.
#[derive(Debug)]
pub(super) enum NotSent {
    /// The client's doing, or the rule's limit.
    Failure(Failure),
    /// The upstream takes no more; it may have answered all the same.
    Refused,
}

impl From<Refused> for NotSent {
    fn from(_: Refused) -> NotSent {
        NotSent::Refused
    }
}

/// What is left to send of a request behind its head.
pub(super) enum Unsent {
    /// There is no body.
    Nothing,
    /// A body in the framing of HTTP/1.1.
    Encoded(BodyEncoder),
    /// A body in frames.
    Framed,
}

/// Where a request's body goes.
enum Outlet<'l> {
    Sole(&'l Stream, BodyEncoder),
    Shared(&'l Channel),
}

impl Outlet<'_> {
    /// Sends what was kept of it.
    async fn again(&mut self, worker: &Worker, kept: &Kept) -> Result<u64, NotSent> {
        match self {
            Outlet::Sole(stream, encoder) => {
                let again = kept.bytes();
                let out = &mut worker.desk.borrow_mut().out;
                encoder.data(out, &again).map_err(broken)?;
                write(stream, out)?;
                Ok(again.len() as u64)
            }
            Outlet::Shared(channel) => {
                let again = kept.bytes().to_vec();
                channel.send(&again).await?;
                Ok(again.len() as u64)
            }
        }
    }

    async fn piece(&mut self, worker: &Worker, bytes: Bytes) -> Result<(), NotSent> {
        match self {
            Outlet::Sole(stream, encoder) => {
                {
                    let out = &mut worker.desk.borrow_mut().out;
                    encoder.begin(out, bytes.len() as u64).map_err(broken)?;
                    write(stream, out)?;
                }
                stream
                    .write_frame(bytes)
                    .await
                    .map_err(|_closed| NotSent::Refused)?;
                let out = &mut worker.desk.borrow_mut().out;
                encoder.end(out);
                write(stream, out)
            }
            Outlet::Shared(channel) => Ok(channel.send(&bytes).await?),
        }
    }

    /// Ends it, with these fields behind it.
    fn finish(&mut self, worker: &Worker, trailers: Option<&FieldBlock>) -> Result<(), NotSent> {
        match self {
            Outlet::Sole(stream, encoder) => {
                let out = &mut worker.desk.borrow_mut().out;
                match trailers.filter(|_| encoder.is_chunked()) {
                    None => encoder.finish(out).map_err(broken)?,
                    Some(trailers) => encoder.finish_with_trailers(out, trailers).map_err(broken)?,
                }
                write(stream, out)
            }
            Outlet::Shared(channel) => Ok(channel.finish(trailers.unwrap_or(&FieldBlock::new()))?),
        }
    }
}

fn broken(misuse: Misuse) -> NotSent {
    NotSent::Failure(Error::internal(misuse).into())
}

fn write(stream: &Stream, out: &mut Vec<u8>) -> Result<(), NotSent> {
    let written = stream.write_now(out);
    out.clear();
    written.map_err(|_closed| NotSent::Refused)
}

/// Sends the request's body, as far as the upstream takes it, after what a try before this has taken of it; `kept` has what
/// may be wanted again.
pub(super) async fn upload(
    worker: &Worker,
    req: &Request<'_>,
    (link, unsent): (&Link, Unsent),
    (most, chain): (Option<u64>, Option<&Chain>),
    (changes, edits): (&Changes, Option<&Edits>),
    (kept, web): (&Kept, &Unwrapping),
) -> Result<(), NotSent> {
    let mut outlet = match (link, unsent) {
        (Link::Sole(sole), Unsent::Encoded(encoder)) => Outlet::Sole(&sole.stream, encoder),
        (Link::Shared(channel), Unsent::Framed) => Outlet::Shared(channel),
        _ => return Ok(()),
    };
    let mut total = outlet.again(worker, kept).await?;
    loop {
        let chunk = match chain {
            None => req.chunk().await.map_err(Failure::from),
            // Apart, so that requests without it have no room for it. What the client may send it counts itself.
            Some(chain) => Box::pin(chain.chunk(req)).await,
        };
        let chunk = chunk
            .and_then(|bytes| web.piece(bytes))
            .map_err(NotSent::Failure)?;
        let Some(bytes) = chunk else { break };
        kept.take(&bytes);
        total += bytes.len() as u64;
        if chain.is_none() && most.is_some_and(|most| total > most) {
            return Err(NotSent::Failure(Fault::RequestTooLarge.into()));
        }
        outlet.piece(worker, bytes).await?;
    }
    kept.end(req.trailers());
    let trailers = kept.trailers();
    if trailers.is_empty() {
        return outlet.finish(worker, None);
    }
    let mut sifted = Sieve::of(&req.head().fields, changes).sift_block(&trailers);
    if let Some(edits) = edits {
        edits.sift(&mut sifted);
    }
    outlet.finish(worker, Some(&sifted))
}

/// An answer's body on its way to the client.
pub(super) struct Download {
    pub(super) local: Rc<Local>,
    pub(super) chosen: Chosen,
    pub(super) link: Link,
    pub(super) down: Down,
    pub(super) clock: Clock,
}

/// What is known of the body.
pub(super) struct Down {
    decoding: Decoding,
    /// What of the trailers goes further, if any does.
    sieve: Option<Sieve>,
    /// The client speaks gRPC-Web.
    web: Option<Wrapping>,
    /// Bytes of it, framing included.
    came: u64,
    /// What has come of these.
    trailers: Option<FieldBlock>,
    /// What is to pass filters, if there are any.
    filtered: Option<Box<Unseen>>,
    /// Whether the connection may be used again.
    pub(super) keep_alive: bool,
    pub(super) is_over: bool,
}

/// What filters have not seen yet of an answer.
#[derive(Default)]
pub(super) struct Unseen {
    /// That of its head.
    pub(super) framing: Option<Framing>,
    /// What has come of its body.
    pub(super) bytes: Vec<u8>,
    /// What has come behind it, and goes further.
    pub(super) trailers: Option<FieldBlock>,
}

impl Down {
    pub(super) fn new(
        decoding: Decoding,
        keep_alive: bool,
        sieve: Option<Sieve>,
        web: Option<Wrapping>,
    ) -> Down {
        Down {
            web,
            is_over: decoding.is_over(),
            decoding,
            sieve,
            came: 0,
            trailers: None,
            filtered: None,
            keep_alive,
        }
    }

    /// Has head and body pass filters, instead of putting the body into the reply.
    pub(super) fn filter(&mut self, framing: Framing) {
        self.filtered = Some(Box::new(Unseen {
            framing: Some(framing),
            ..Unseen::default()
        }));
    }

    /// What filters have not seen yet.
    pub(super) fn take(&mut self) -> Unseen {
        self.filtered
            .as_deref_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Passes on what belongs to the body, up to [`limits::RELAY_SHARE`]: how many bytes that were.
    pub(super) fn feed(&mut self, bytes: &[u8], reply: &mut Reply<'_>) -> (usize, Result<(), Failure>) {
        self.feed_share(bytes, limits::RELAY_SHARE, reply)
    }

    /// The same, up to `share`, which is less while many clients are slow.
    fn feed_at_present(
        &mut self,
        bytes: &[u8],
        cx: &Cx,
        reply: &mut Reply<'_>,
    ) -> (usize, Result<(), Failure>) {
        let share = cx.write_mark().min(limits::RELAY_SHARE);
        match self.feed_share(bytes, share, reply) {
            // A line that is longer than the share is taken as a whole.
            (0, Ok(())) if bytes.len() > share && !self.is_over => self.feed(bytes, reply),
            fed => fed,
        }
    }

    fn feed_share(
        &mut self,
        bytes: &[u8],
        share: usize,
        reply: &mut Reply<'_>,
    ) -> (usize, Result<(), Failure>) {
        let all = bytes.len();
        let bytes = &bytes[..all.min(share)];
        let mut consumed = 0;
        loop {
            let Decoding::Encoded(decoder) = &mut self.decoding else {
                return self.feed_framed(bytes, reply);
            };
            let step = match decoder.decode(&bytes[consumed..]) {
                Ok(step) => step,
                Err(fault) => {
                    let fault = if fault.status() == 413 {
                        Fault::ResponseTooLarge
                    } else {
                        Fault::GarbageBody
                    };
                    return (consumed, Err(fault.into()));
                }
            };
            consumed += step.consumed;
            self.came += step.consumed as u64;
            match step.event {
                BodyEvent::Data(data) => {
                    if let Err(failure) = put((&mut self.filtered, self.web), data, reply) {
                        return (consumed, Err(failure));
                    }
                }
                BodyEvent::Trailers(trailers) => {
                    self.trailers = self.sieve.as_ref().map(|sieve| sieve.sift(&trailers));
                }
                BodyEvent::NeedMore if !self.decoding.is_over() => return (consumed, Ok(())),
                BodyEvent::NeedMore | BodyEvent::End => {
                    // What is behind a whole answer is nobody's.
                    self.keep_alive &= consumed == all;
                    self.is_over = true;
                    return (consumed, self.behind(reply));
                }
            }
        }
    }

    /// The same of a body that comes in frames.
    fn feed_framed(&mut self, bytes: &[u8], reply: &mut Reply<'_>) -> (usize, Result<(), Failure>) {
        if let Decoding::Framed { left: Some(left), .. } = &mut self.decoding {
            let Some(rest) = left.checked_sub(bytes.len() as u64) else {
                return (0, Err(Fault::ResponseTooLarge.into()));
            };
            *left = rest;
        }
        self.came += bytes.len() as u64;
        let put = put((&mut self.filtered, self.web), bytes, reply);
        (bytes.len(), put)
    }

    /// Reads what there is, or waits for it.
    pub(super) fn poll(
        &mut self,
        link: &Link,
        clock: &Clock,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        match link {
            Link::Sole(sole) => self.poll_sole(&sole.stream, clock, reply, context),
            Link::Shared(channel) => self.poll_shared(channel, clock, reply, context),
        }
    }

    fn poll_shared(
        &mut self,
        channel: &Channel,
        clock: &Clock,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let mut outcome = Ok(());
        let polled = channel.poll_body(context, |bytes| {
            let (consumed, fed) = self.feed_at_present(bytes, channel.cx(), reply);
            outcome = fed;
            consumed
        });
        let lost = match polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(_))) if outcome.is_err() || !channel.is_over() => {
                return Poll::Ready(outcome);
            }
            Poll::Ready(Ok(_)) => {
                self.is_over = true;
                let trailers = channel.take_trailers();
                self.trailers = match (&self.sieve, trailers) {
                    (Some(sieve), Some(trailers)) => Some(sieve.sift_block(&trailers)),
                    _ => None,
                };
                return Poll::Ready(self.behind(reply));
            }
            Poll::Ready(Err(lost)) => lost,
        };
        let fault = lost.within_body(|| clock.fault(channel.cx().now(), Fault::BodyTimeout));
        Poll::Ready(Err(fault.into()))
    }

    /// The body is over: passes on what has come behind it.
    fn behind(&mut self, reply: &mut Reply<'_>) -> Result<(), Failure> {
        let trailers = self.trailers.take();
        if let Some(web) = self.web {
            let end = web.end(trailers.as_ref());
            return put((&mut self.filtered, None), &end, reply);
        }
        match (&mut self.filtered, trailers) {
            (Some(filtered), trailers) => filtered.trailers = trailers,
            (None, Some(trailers)) => reply.put_trailers(trailers),
            (None, None) => {}
        }
        Ok(())
    }

    fn poll_sole(
        &mut self,
        stream: &Stream,
        clock: &Clock,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let mut outcome = Ok(());
        let received = stream.poll_received(context, |bytes| {
            let (consumed, fed) = self.feed_at_present(bytes, stream.cx(), reply);
            outcome = fed;
            consumed
        });
        match (received, outcome) {
            (_, Err(failure)) => Poll::Ready(Err(failure)),
            _ if self.is_over => Poll::Ready(Ok(())),
            (Poll::Ready(Ok(0)), _) => {
                self.keep_alive = false;
                self.is_over = true;
                // By TLS the end is said: without that anybody may have cut it.
                if stream.was_cut() {
                    return Poll::Ready(Err(Fault::BodyCut.into()));
                }
                let end = match &mut self.decoding {
                    Decoding::Encoded(decoder) => decoder.end_of_input().is_ok(),
                    Decoding::Framed { .. } => false,
                };
                Poll::Ready(end.then_some(()).ok_or(Fault::BodyCut.into()))
            }
            (Poll::Ready(Ok(_)), _) => Poll::Ready(Ok(())),
            (Poll::Ready(Err(error)), _) => Poll::Ready(Err(body_fault(&error, clock, stream.cx()).into())),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}

/// Passes part of a body on: to filters if there are any, else to the client.
fn put(
    (filtered, web): (&mut Option<Box<Unseen>>, Option<Wrapping>),
    bytes: &[u8],
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let wrapped = web.map(|web| web.piece(bytes));
    let bytes = wrapped.as_deref().unwrap_or(bytes);
    match filtered {
        Some(filtered) => filtered.bytes.extend_from_slice(bytes),
        None => reply.put(bytes)?,
    }
    Ok(())
}

fn body_fault(error: &io::Error, clock: &Clock, cx: &Cx) -> Fault {
    match error.kind() {
        io::ErrorKind::TimedOut => clock.fault(cx.now(), Fault::BodyTimeout),
        _ => Fault::BodyCut,
    }
}

impl Download {
    /// Passes the rest on.
    pub(super) async fn run(
        self,
        worker: &Rc<Worker>,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
        chain: Option<&Chain>,
    ) -> Result<(), Error> {
        match self.drive(worker, req, reply, chain).await {
            Ok(()) => Ok(()),
            Err(Failure::Fault(fault)) => {
                note::fault(worker, req, fault);
                Err(Error::internal(fault))
            }
            Err(Failure::Web(error)) => Err(error),
            Err(Failure::Instead(_)) => Err(filtered::too_late()),
        }
    }

    /// The same, for who knows what is done with faults.
    pub(super) async fn drive(
        mut self,
        worker: &Rc<Worker>,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
        chain: Option<&Chain>,
    ) -> Result<(), Failure> {
        let mut pace = Pace::default();
        let rate = self.clock.rate;
        // The rate's time was up, and bytes that came at the same moment were taken first.
        let mut was_late = false;
        loop {
            // The client's own pace is the server's to judge.
            self.link.set_deadline(None);
            reply.flush().await?;
            let (began, came) = (worker.cx.now(), self.down.came);
            let span = self.clock.span(began);
            let left = (rate > 0).then(|| pace.left(rate).max(Duration::from_millis(1)));
            let (down, link, clock) = (&mut self.down, &self.link, &self.clock);
            link.set_deadline([span, left].into_iter().flatten().min());
            let step = poll_fn(|context| down.poll(link, clock, reply, context)).await;
            let waited = worker.cx.now().since(began);
            pace.note(waited, self.down.came - came);
            let is_late = left.is_some_and(|left| waited >= left && span.is_none_or(|span| left < span));
            match step {
                Err(Failure::Fault(Fault::BodyTimeout)) if is_late || was_late => {
                    return Err(Fault::BodyTooSlow.into());
                }
                Ok(()) => {}
                Err(failure) => return Err(failure),
            }
            if let Some(chain) = chain {
                self.link.set_deadline(None);
                Box::pin(chain.answer(req, &mut self.down, reply)).await?;
            }
            if self.down.is_over {
                self.keep(worker);
                return Ok(());
            }
            was_late = is_late;
        }
    }

    /// The answer is over.
    pub(super) fn keep(self, worker: &Rc<Worker>) {
        if let Link::Sole(sole) = self.link
            && self.down.keep_alive
        {
            self.local.keep(&self.chosen.end, sole);
            worker.sweep_later();
        }
    }
}
