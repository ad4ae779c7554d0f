//! One call of a filter: it has its request to itself, may wait, and may panic.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Poll, Waker};

use super::{Chain, Entry};
use crate::exchange::Failure;
use crate::fault::Fault;
use crate::filter::{Answer, End, Flow, Hook, Outcome, Running, Waiting};
use crate::limits;

/// How a request goes on.
pub(super) enum Verdict {
    Continue,
    Hold,
    Answer(Answer),
}

/// Where a filter of a request is while it is not called: both bodies may want it at once.
pub(super) struct Seat {
    running: Cell<Option<Box<dyn Running>>>,
    /// Somebody has it and brings it back.
    lent: Cell<bool>,
    waiting: Cell<Option<Waker>>,
}

impl Seat {
    pub(super) fn new(running: Box<dyn Running>) -> Seat {
        Seat {
            running: Cell::new(Some(running)),
            lent: Cell::new(false),
            waiting: Cell::new(None),
        }
    }

    /// The filter, when nobody else has it. `None`: it has panicked.
    async fn lend(&self) -> Option<Lent<'_>> {
        poll_fn(|context| {
            if self.lent.get() {
                self.waiting.set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            let running = self.running.take();
            self.lent.set(running.is_some());
            Poll::Ready(running.map(|running| Lent {
                seat: self,
                running: Some(running),
            }))
        })
        .await
    }

    /// The exchange is over.
    pub(super) fn over(&self, end: &End) {
        if let Some(running) = self.running.take() {
            // One that panics is told by the process' panic hook, and concerns nobody any more.
            let _ = catch_unwind(AssertUnwindSafe(|| running.over(end)));
        }
    }
}

/// A filter that is called.
struct Lent<'s> {
    seat: &'s Seat,
    running: Option<Box<dyn Running>>,
}

impl Lent<'_> {
    /// It is not to be called again.
    fn forget(&mut self) {
        let running = self.running.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(running)));
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.seat.running.set(self.running.take());
        self.seat.lent.set(false);
        if let Some(waker) = self.seat.waiting.take() {
            waker.wake();
        }
    }
}

/// Why there is no verdict.
enum Broken {
    /// It said why.
    Failed(String),
    Panicked,
    Late,
}

impl Chain {
    /// Calls a filter. If it fails, no filter sees the answer.
    pub(super) async fn call(&self, entry: &Entry, hook: Hook<'_, '_>) -> Result<Verdict, Failure> {
        let Some(mut lent) = entry.seat.lend().await else {
            return Err(self.failed(Fault::FilterFailed));
        };
        let broken = match self.verdict(&mut lent, hook).await {
            Ok(verdict) => return Ok(verdict),
            Err(broken) => broken,
        };
        let name = &entry.name;
        Err(self.failed(match broken {
            Broken::Failed(why) => {
                log::error!("the filter `{name}` failed: {why}");
                Fault::FilterFailed
            }
            Broken::Panicked => {
                log::error!("the filter `{name}` panicked");
                lent.forget();
                Fault::FilterFailed
            }
            Broken::Late => {
                log::error!(
                    "the filter `{name}` has waited for longer than {:?}",
                    limits::FILTER_WAIT
                );
                Fault::FilterTimeout
            }
        }))
    }

    async fn verdict(&self, lent: &mut Lent<'_>, hook: Hook<'_, '_>) -> Result<Verdict, Broken> {
        let running = lent.running.as_mut().ok_or(Broken::Panicked)?;
        let called = catch_unwind(AssertUnwindSafe(|| running.call(hook)));
        let outcome = match called.map_err(|_| Broken::Panicked)? {
            Ok(Flow::Wait(future)) => self.wait(future).await?,
            outcome => outcome,
        };
        match outcome {
            Ok(Flow::Continue) => Ok(Verdict::Continue),
            Ok(Flow::Hold) => Ok(Verdict::Hold),
            Ok(Flow::Answer(answer)) => Ok(Verdict::Answer(answer)),
            Ok(Flow::Wait(_)) => Err(Broken::Failed("what it waited for waits again".to_owned())),
            Err(why) => Err(Broken::Failed(why.to_string())),
        }
    }

    pub(super) fn failed(&self, fault: Fault) -> Failure {
        self.reached.set(0);
        fault.into()
    }

    /// Waits for a filter, for so long and no longer.
    async fn wait<'a>(&self, mut future: Waiting<'a>) -> Result<Outcome<'a>, Broken> {
        let mut late = pin!(self.cx.sleep(limits::FILTER_WAIT));
        poll_fn(|context| {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                Ok(Poll::Ready(outcome)) => return Poll::Ready(Ok(outcome)),
                Ok(Poll::Pending) => {}
                Err(_) => return Poll::Ready(Err(Broken::Panicked)),
            }
            late.as_mut().poll(context).map(|()| Err(Broken::Late))
        })
        .await
    }
}
