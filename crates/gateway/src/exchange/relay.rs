//! Bodies on their way, up and down, each side held back by the other.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_web::limits::SEND_SHARE;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::{BodyDecoder, BodyEncoder, BodyEvent, FieldBlock, Framing};

use super::filtered::Chain;
use super::kept::Kept;
use super::trailers::Sieve;
use super::{Failure, filtered, note};
use crate::fault::Fault;
use crate::filter::Edits;
use crate::gateway::Worker;
use crate::limits;
use crate::model::Timeouts;
use crate::plan::Changes;
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

/// Sends the request's body, as far as the upstream takes it, after what a try before this has taken of it; `kept` has what
/// may be wanted again.
pub(super) async fn upload(
    worker: &Worker,
    req: &Request<'_>,
    stream: &Stream,
    encoder: Option<BodyEncoder>,
    (most, chain): (Option<u64>, Option<&Chain>),
    (changes, edits): (&Changes, Option<&Edits>),
    kept: &Kept,
) -> Result<(), NotSent> {
    // A request without a body, whose head is sent.
    let Some(mut encoder) = encoder else { return Ok(()) };
    let write = |out: &mut Vec<u8>| {
        let written = stream.write_now(out);
        out.clear();
        written.map_err(|_closed| NotSent::Refused)
    };
    let broken = |misuse| NotSent::Failure(Error::internal(misuse).into());
    let mut total = {
        let again = kept.bytes();
        let out = &mut worker.desk.borrow_mut().out;
        encoder.data(out, &again).map_err(broken)?;
        write(out)?;
        again.len() as u64
    };
    loop {
        let chunk = match chain {
            None => req.chunk().await.map_err(Failure::from),
            // Apart, so that requests without it have no room for it. What the client may send it counts itself.
            Some(chain) => Box::pin(chain.chunk(req)).await,
        };
        let chunk = chunk.map_err(NotSent::Failure)?;
        let Some(bytes) = chunk else { break };
        kept.take(&bytes);
        total += bytes.len() as u64;
        if chain.is_none() && most.is_some_and(|most| total > most) {
            return Err(NotSent::Failure(Fault::RequestTooLarge.into()));
        }
        {
            let out = &mut worker.desk.borrow_mut().out;
            encoder.begin(out, bytes.len() as u64).map_err(broken)?;
            write(out)?;
        }
        stream
            .write_frame(bytes)
            .await
            .map_err(|_closed| NotSent::Refused)?;
        let out = &mut worker.desk.borrow_mut().out;
        encoder.end(out);
        write(out)?;
    }
    kept.end(req.trailers());
    let trailers = kept.trailers();
    let out = &mut worker.desk.borrow_mut().out;
    if trailers.is_empty() || !encoder.is_chunked() {
        encoder.finish(out).map_err(broken)?;
    } else {
        let mut sifted = Sieve::of(&req.head().fields, changes).sift_block(&trailers);
        if let Some(edits) = edits {
            edits.sift(&mut sifted);
        }
        encoder.finish_with_trailers(out, &sifted).map_err(broken)?;
    }
    write(out)
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
    decoder: BodyDecoder,
    /// What of the trailers goes further, if any does.
    sieve: Option<Sieve>,
    /// Bytes of it, framing included.
    came: u64,
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
    pub(super) fn new(decoder: BodyDecoder, keep_alive: bool, sieve: Option<Sieve>) -> Down {
        Down {
            is_over: decoder.is_over(),
            decoder,
            sieve,
            came: 0,
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

    /// Passes on what belongs to the body: how many bytes that were.
    pub(super) fn feed(&mut self, bytes: &[u8], reply: &mut Reply<'_>) -> (usize, Result<(), Failure>) {
        let bytes = &bytes[..bytes.len().min(SEND_SHARE)];
        let mut consumed = 0;
        loop {
            let step = match self.decoder.decode(&bytes[consumed..]) {
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
                BodyEvent::Data(data) => match &mut self.filtered {
                    Some(filtered) => filtered.bytes.extend_from_slice(data),
                    None => {
                        if let Err(error) = reply.put(data) {
                            return (consumed, Err(error.into()));
                        }
                    }
                },
                BodyEvent::Trailers(trailers) => {
                    let sifted = self.sieve.as_ref().map(|sieve| sieve.sift(&trailers));
                    match (&mut self.filtered, sifted) {
                        (Some(filtered), sifted) => filtered.trailers = sifted,
                        (None, Some(sifted)) => reply.put_trailers(sifted),
                        (None, None) => {}
                    }
                }
                BodyEvent::NeedMore if !self.decoder.is_over() => return (consumed, Ok(())),
                BodyEvent::NeedMore | BodyEvent::End => {
                    // What is behind a whole answer is nobody's.
                    self.keep_alive &= consumed == bytes.len();
                    self.is_over = true;
                    return (consumed, Ok(()));
                }
            }
        }
    }

    /// Reads what there is, or waits for it.
    pub(super) fn poll(
        &mut self,
        stream: &Stream,
        clock: &Clock,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let mut outcome = Ok(());
        let received = stream.poll_received(context, |bytes| {
            let (consumed, fed) = self.feed(bytes, reply);
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
                let end = self.decoder.end_of_input();
                Poll::Ready(end.map_err(|_| Fault::BodyCut.into()))
            }
            (Poll::Ready(Ok(_)), _) => Poll::Ready(Ok(())),
            (Poll::Ready(Err(error)), _) => Poll::Ready(Err(body_fault(&error, clock, stream.cx()).into())),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
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
            self.link.stream.set_deadline(None);
            reply.flush().await?;
            let (began, came) = (worker.cx.now(), self.down.came);
            let span = self.clock.span(began);
            let left = (rate > 0).then(|| pace.left(rate).max(Duration::from_millis(1)));
            let (down, stream, clock) = (&mut self.down, &self.link.stream, &self.clock);
            stream.set_deadline([span, left].into_iter().flatten().min());
            let step = poll_fn(|context| down.poll(stream, clock, reply, context)).await;
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
                self.link.stream.set_deadline(None);
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
        if self.down.keep_alive {
            self.local.keep(&self.chosen.end, self.link);
            worker.sweep_later();
        }
    }
}
