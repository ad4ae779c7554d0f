//! One call of a filter: it has exclusive access to its request, may wait, and may panic.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Poll, Waker};

use super::{Chain, Entry};
use crate::fault::Fault;
use crate::filter::{Answer, End, Flow, Hook, Outcome, Running, Waiting};
use crate::limits;
use crate::proxy::Failure;

/// The continuation of a request after a call.
pub(super) enum Verdict {
    Continue,
    Hold,
    Answer(Answer),
}

/// The slot of a filter between its calls: both bodies may need it at the same time.
pub(super) struct Seat {
    running: Cell<Option<Box<dyn Running>>>,
    /// Set while a call has taken the filter.
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

    /// Takes the filter once no other call has it. `None`: it has panicked.
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

    /// Notifies the filter that the exchange has finished.
    pub(super) fn over(&self, end: &End) {
        if let Some(running) = self.running.take() {
            // The process' panic hook reports a panic; the exchange is not affected any more.
            let _ = catch_unwind(AssertUnwindSafe(|| running.over(end)));
        }
    }
}

/// A filter during a call.
struct Lent<'s> {
    seat: &'s Seat,
    running: Option<Box<dyn Running>>,
}

impl Lent<'_> {
    /// Drops the filter, so that it is not called again.
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

/// The reason why a call has no verdict.
enum Broken {
    /// The filter's own error.
    Failed(String),
    Panicked,
    Late,
}

impl Chain {
    /// Calls a filter. If it fails, no filter processes the response.
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
            Ok(Flow::Wait(_)) => Err(Broken::Failed(
                "its future returned another future to wait for".to_owned(),
            )),
            Err(why) => Err(Broken::Failed(why.to_string())),
        }
    }

    pub(super) fn failed(&self, fault: Fault) -> Failure {
        self.reached.set(0);
        fault.into()
    }

    /// Waits for a filter, for at most [`limits::FILTER_WAIT`].
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
