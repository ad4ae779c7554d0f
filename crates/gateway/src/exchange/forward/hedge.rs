//! A second try beside the first, at another endpoint, when the first has not begun to answer in time: whose answer begins first
//! is passed on, and the other's connection is closed.
//!
//! ```text
//! first ──── sent ──────────── late ───────────── …          ┐ whose first byte comes first goes on as the request's only try
//!                               └─ second ── sent ── answer ─┘
//! ```
//!
//! Nothing of an answer is read before one of them has won: so nothing can have gone to the client. A body is there as a whole
//! before the first of them begins, so that both send the same; one that is too long for that is sent once, as without hedging.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::h1::Framing;

use super::{Begun, Broken, Job, Why, addresses, is_idempotent};
use crate::exchange::Failure;
use crate::exchange::request;
use crate::exchange::upload::{NotSent, Progress, Unsent, next_piece};
use crate::fault::{Fault, Side};
use crate::health::Meeting;
use crate::limits;
use crate::resolve::within;
use crate::upstream::Prefer;
use crate::upstream::local::bytes::Purpose;
use crate::upstream::local::{Chosen, End, Link};

/// A try that came to nothing before its answer began.
struct Lost {
    end: Rc<End>,
    broken: Broken,
}

/// The try that goes on.
pub(super) struct Won {
    /// Its connection has the request's head.
    pub(super) begun: Begun,
    /// Who was asked beside it.
    pub(super) beside: Option<Rc<End>>,
}

/// What has come of tries beside each other.
pub(super) type Raced = Result<Won, (Broken, Vec<Rc<End>>)>;

impl Job<'_, '_> {
    /// After how long this request is tried beside its first try. Waits for its body, if it may be short enough.
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
        // Apart, so that requests without a body have no room for it.
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

    /// Takes the body from the client before any of it is sent: whether it is there as a whole and no longer than what can be sent
    /// again.
    async fn gather(&self) -> Result<bool, Failure> {
        let mut total = 0;
        loop {
            // As filters leave it: each try sends that. What the client may send they count themselves.
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
            if !self.kept.take_ahead(&piece) {
                return Ok(false);
            }
        }
    }

    /// Has a first try go on until its answer begins, with another one beside it if that takes longer than `after`. If all come to
    /// nothing: why the last one did, and those who were asked, it last.
    pub(super) async fn race(&self, first: Begun, after: Duration) -> Raced {
        let first_end = Rc::clone(&first.0.end);
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
        let second_end = Rc::clone(&second.end);
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
                        let is_first = Rc::ptr_eq(&begun.0.end, &first_end);
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

    /// Somebody else to ask, if there is one and the upstream has room for it.
    fn another(&self, first: &Rc<End>) -> Option<Chosen> {
        let chosen = self
            .local
            .choose(std::slice::from_ref(first), self.key, Prefer::Any);
        let chosen = chosen
            .ok()
            .filter(|chosen| chosen.end.endpoint.addr != first.endpoint.addr)?;
        self.begin_retry().then(|| {
            self.local.shared.breaker.hedged();
            chosen
        })
    }

    /// One try, until its answer begins.
    async fn leg(&self, (chosen, link, begun): Begun) -> Result<Begun, Lost> {
        let end = Rc::clone(&chosen.end);
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
            Err(fault) => Err(lost(fault, link.requests() > 0)),
        }
    }

    /// Sends the body that is there, if there is one, until an answer begins: an endpoint may answer without having taken it.
    async fn send_kept(&self, link: &Link, unsent: Unsent, begun: Time) -> Result<(), Failure> {
        if self.req.head().framing == Framing::None {
            // What the head says of a body is that there is none.
            return Ok(());
        }
        let progress = Progress::new(begun);
        let upload = self.upload(link, &progress);
        let mut up = pin!(upload.run(unsent));
        let mut answers = pin!(self.answers(link, begun));
        poll_fn(|context| match up.as_mut().poll(context) {
            // That it is not taken is told better by what is answered.
            Poll::Ready(Ok(()) | Err(NotSent::Refused)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(NotSent::Failure(failure))) => Poll::Ready(Err(failure)),
            Poll::Pending => answers.as_mut().poll(context).map_err(Failure::from),
        })
        .await
    }

    /// How long connecting may take.
    pub(super) fn time_to_open(&self) -> Duration {
        let span = self.local.connect_timeout();
        let left = self.clock.total.map(|total| total.since(self.worker.cx.now()));
        left.map_or(span, |left| span.min(left))
    }

    /// A connection to an endpoint.
    pub(super) async fn open(&self, chosen: &Chosen, fresh: bool) -> Result<Link, Fault> {
        let _turn = self.take_turn()?;
        let span = self.time_to_open();
        let greeting = self.local.greeting(|| addresses(self.req));
        self.worker
            .link(self.local, &chosen.end, (fresh, &greeting), span)
            .await
    }

    /// In place of a stream that has no other protocol for a request that asks for one: a connection of HTTP/1.1, if the endpoint
    /// speaks that, too.
    pub(super) async fn switchable(&self, link: Link, chosen: &Chosen) -> Result<Link, Fault> {
        match &link {
            Link::Shared(channel) if self.sending.upgrade.is_some() && self.local.lets_choose() => {
                if request::connects(self.req, &self.sending, channel) {
                    return Ok(link);
                }
            }
            _ => return Ok(link),
        }
        drop(link);
        let span = self.time_to_open();
        let greeting = self.local.greeting(|| addresses(self.req));
        // Apart, so that other requests have no room for it.
        let opened = Box::pin(
            self.local
                .open_alone(&chosen.end, Purpose::Switch, &greeting, span),
        );
        opened.await.map(Link::Sole)
    }

    /// Waits for the first byte of an answer, and consumes none.
    async fn answers(&self, link: &Link, begun: Time) -> Result<(), Fault> {
        let cx = &self.worker.cx;
        let mut clock = self.clock;
        clock.head = self.forward.timeouts.per_try.map(|span| begun.after(span));
        link.set_deadline(clock.span(cx.now()));
        let late = || clock.fault(cx.now(), Fault::HeadTimeout);
        let link = match link {
            Link::Sole(sole) => sole,
            Link::Shared(channel) => {
                let begun = poll_fn(|context| channel.poll_begun(context)).await;
                return begun.map_err(|lost| lost.before_head(late));
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

    /// An endpoint has failed beside another one that may still answer.
    fn met_failure(&self, lost: &Lost) {
        if let Why::Failure(Failure::Fault(fault)) = lost.broken.why
            && fault.side() == Side::Upstream
        {
            self.worker.counting.fault(fault);
            self.local.met(&lost.end, Meeting::Bad);
        }
    }
}
