//! One call of a filter: it has exclusive access to its request, may wait, and may panic.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Poll, Waker};

use super::{ChainEntry, FilterChain};
use crate::fault::Fault;
use crate::filter::{
    ExchangeEnd, FilterFault, FilterFuture, FilterResponse, Flow, Hook, Outcome, RunningFilter,
};
use crate::limits;
use crate::proxy::Failure;

/// The continuation of a request after a call.
pub(super) enum CallResult {
    Continue,
    Hold,
    Respond(FilterResponse),
}

/// The slot of a filter between its calls: both bodies may need it at the same time.
pub(super) struct FilterSlot {
    running: Cell<Option<Box<dyn RunningFilter>>>,
    /// Set while a call has taken the filter.
    is_in_use: Cell<bool>,
    waiting: Cell<Option<Waker>>,
}

impl FilterSlot {
    pub(super) fn new(running: Box<dyn RunningFilter>) -> FilterSlot {
        FilterSlot {
            running: Cell::new(Some(running)),
            is_in_use: Cell::new(false),
            waiting: Cell::new(None),
        }
    }

    /// Takes the filter once no other call has it. `None`: it has panicked.
    async fn acquire(&self) -> Option<FilterGuard<'_>> {
        poll_fn(|context| {
            if self.is_in_use.get() {
                self.waiting.set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            let running = self.running.take();
            self.is_in_use.set(running.is_some());
            Poll::Ready(running.map(|running| FilterGuard {
                slot: self,
                running: Some(running),
            }))
        })
        .await
    }

    /// Notifies the filter that the exchange has finished.
    pub(super) fn finish(&self, end: &ExchangeEnd) {
        if let Some(running) = self.running.take() {
            // The process' panic hook reports a panic; the exchange is not affected any more.
            let _ = catch_unwind(AssertUnwindSafe(|| running.finish(end)));
        }
    }
}

/// A filter during a call.
struct FilterGuard<'s> {
    slot: &'s FilterSlot,
    running: Option<Box<dyn RunningFilter>>,
}

impl FilterGuard<'_> {
    /// Drops the filter, so that it is not called again.
    fn discard(&mut self) {
        let running = self.running.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(running)));
    }
}

impl Drop for FilterGuard<'_> {
    fn drop(&mut self) {
        self.slot.running.set(self.running.take());
        self.slot.is_in_use.set(false);
        if let Some(waker) = self.slot.waiting.take() {
            waker.wake();
        }
    }
}

/// The reason why a call has no verdict.
enum CallError {
    /// The filter's own error.
    Failed(String),
    Panicked,
    TimedOut,
    /// The fault of a filter of the gateway's own, which has logged it.
    Fault(Fault),
}

impl FilterChain {
    /// Calls a filter. If it fails, no filter processes the response.
    pub(super) async fn call_filter(
        &self,
        entry: &ChainEntry,
        hook: Hook<'_, '_>,
    ) -> Result<CallResult, Failure> {
        let Some(mut filter) = entry.slot.acquire().await else {
            return Err(self.record_failure(Fault::FilterFailed));
        };
        let error = match self.call_result(&mut filter, hook).await {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let name = &entry.name;
        Err(self.record_failure(match error {
            CallError::Fault(fault) => fault,
            CallError::Failed(why) => {
                log::error!("the filter `{name}` failed: {why}");
                Fault::FilterFailed
            }
            CallError::Panicked => {
                log::error!("the filter `{name}` panicked");
                filter.discard();
                Fault::FilterFailed
            }
            CallError::TimedOut => {
                log::error!(
                    "the filter `{name}` has waited for longer than {:?}",
                    limits::FILTER_WAIT
                );
                Fault::FilterTimeout
            }
        }))
    }

    async fn call_result(
        &self,
        filter: &mut FilterGuard<'_>,
        hook: Hook<'_, '_>,
    ) -> Result<CallResult, CallError> {
        let running = filter.running.as_mut().ok_or(CallError::Panicked)?;
        let called = catch_unwind(AssertUnwindSafe(|| running.call(hook)));
        let outcome = match called.map_err(|_| CallError::Panicked)? {
            Ok(Flow::Wait(future)) => self.wait_for_filter(future).await?,
            outcome => outcome,
        };
        match outcome {
            Ok(Flow::Continue) => Ok(CallResult::Continue),
            Ok(Flow::Hold) => Ok(CallResult::Hold),
            Ok(Flow::Respond(answer)) => Ok(CallResult::Respond(answer)),
            Ok(Flow::Wait(_)) => Err(CallError::Failed(
                "its future returned another future to wait for".to_owned(),
            )),
            Err(why) => Err(match why.downcast::<FilterFault>() {
                Ok(fault) => CallError::Fault(fault.0),
                Err(why) => CallError::Failed(why.to_string()),
            }),
        }
    }

    pub(super) fn record_failure(&self, fault: Fault) -> Failure {
        self.reached.set(0);
        fault.into()
    }

    /// Waits for a filter, for at most [`limits::FILTER_WAIT`].
    async fn wait_for_filter<'a>(&self, mut future: FilterFuture<'a>) -> Result<Outcome<'a>, CallError> {
        let mut timeout = pin!(self.cx.sleep(limits::FILTER_WAIT));
        poll_fn(|context| {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                Ok(Poll::Ready(outcome)) => return Poll::Ready(Ok(outcome)),
                Ok(Poll::Pending) => {}
                Err(_) => return Poll::Ready(Err(CallError::Panicked)),
            }
            timeout.as_mut().poll(context).map(|()| Err(CallError::TimedOut))
        })
        .await
    }
}
