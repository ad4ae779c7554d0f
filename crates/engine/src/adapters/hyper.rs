//! Streams, timers and tasks as hyper's runtime traits: HTTP by hyper's own connection on an engine's worker.
//!
//! hyper wants timers that are `Send + Sync`, and a worker's are neither. So [`HyperTimer`] is a handle to a
//! task on the worker, which does the sleeping and wakes by ordinary wakers; the lock between them is
//! taken by one thread only, as long as the futures stay where they were made.
//!
//! hyper reads its own clock (`Instant::now`) for deadlines; spans run on the worker's clock, which stands
//! still during a loop turn. In a simulation use spans only.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ::hyper::rt::{Executor, Read, ReadBufCursor, Timer, Write};

use crate::backend::Time;
use crate::limits;
use crate::stream::Stream;
use crate::worker::cx::{Cx, Sleep, keep_waker};
use crate::worker::tasks::TooManyTasks;

/// A stream with hyper's I/O traits.
#[derive(Debug)]
pub struct HyperStream(Stream);

impl HyperStream {
    /// Wraps the stream.
    #[must_use]
    pub fn new(stream: Stream) -> HyperStream {
        HyperStream(stream)
    }

    /// The stream itself, for its deadline and addresses.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.0
    }

    /// Gives the stream back, for instance after an upgrade.
    #[must_use]
    pub fn into_inner(self) -> Stream {
        self.0
    }
}

impl Read for HyperStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let take = |bytes: &[u8]| {
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            count
        };
        self.0.poll_received(context, take).map_ok(drop)
    }
}

impl Write for HyperStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(context)
    }
}

/// Runs hyper's background futures as tasks of the worker.
#[derive(Clone, Debug)]
pub struct HyperExecutor(Cx);

impl HyperExecutor {
    /// An executor on this worker.
    #[must_use]
    pub fn new(cx: &Cx) -> HyperExecutor {
        HyperExecutor(cx.clone())
    }
}

impl<F: Future + 'static> Executor<F> for HyperExecutor {
    /// With too many tasks the future is dropped, which ends what hyper wanted it for, and the log says so.
    fn execute(&self, future: F) {
        let task = async move {
            future.await;
        };
        if let Err(error) = self.0.spawn(task) {
            log::error!("a background future of hyper is dropped: {error}");
        }
    }
}

/// Sleeps by a worker's timers. Clones share one task of the worker, which ends after the last of
/// them and of their sleeps; when the worker ends before, its sleeps end at once.
#[derive(Clone, Debug)]
pub struct HyperTimer(Arc<Shared>);

impl HyperTimer {
    /// Begins the task that sleeps.
    ///
    /// # Errors
    /// [`TooManyTasks`]
    pub fn new(cx: &Cx) -> Result<HyperTimer, TooManyTasks> {
        let shared = Arc::new(Shared::default());
        cx.spawn(Driver {
            cx: cx.clone(),
            shared: Arc::downgrade(&shared),
            sleep: None,
        })?;
        Ok(HyperTimer(shared))
    }
}

impl Timer for HyperTimer {
    fn sleep(&self, span: Duration) -> Pin<Box<dyn ::hyper::rt::Sleep>> {
        Box::pin(HyperSleep {
            id: self.0.add(span),
            shared: Arc::clone(&self.0),
        })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn ::hyper::rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

/// One sleep of a [`HyperTimer`].
struct HyperSleep {
    shared: Arc<Shared>,
    /// `None`: over from the start, because there are too many.
    id: Option<u64>,
}

impl ::hyper::rt::Sleep for HyperSleep {}

impl Future for HyperSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        if state.over {
            return Poll::Ready(());
        }
        let Some(sleeper) = self.id.and_then(|id| state.sleepers.get_mut(&id)) else {
            return Poll::Ready(());
        };
        keep_waker(&mut sleeper.waker, context.waker());
        Poll::Pending
    }
}

impl Drop for HyperSleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut state = self.shared.lock();
            let sleeper = state.sleepers.remove(&id);
            if let Some(at) = sleeper.and_then(|sleeper| sleeper.at) {
                state.order.remove(&(at, id));
            }
        }
    }
}

/// What the handles and the task on the worker share.
#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Sleeps that are not over, by their number.
    sleepers: BTreeMap<u64, Sleeper>,
    /// Those of them whose end is known, earliest first.
    order: BTreeSet<(Time, u64)>,
    /// Those that the task has not seen yet: it reads the clock, the handles cannot.
    fresh: Vec<(u64, Duration)>,
    next: u64,
    driver: Option<Waker>,
    /// The worker has ended.
    over: bool,
}

#[derive(Debug, Default)]
struct Sleeper {
    at: Option<Time>,
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, span: Duration) -> Option<u64> {
        let mut state = self.lock();
        if state.sleepers.len() >= limits::HYPER_SLEEPS {
            log::warn!(
                "a sleep of hyper ends at once: {} wait already on this timer",
                limits::HYPER_SLEEPS
            );
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.sleepers.insert(id, Sleeper::default());
        state.fresh.push((id, span));
        if let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
        Some(id)
    }
}

impl Drop for Shared {
    /// The last handle is gone: the task finds nobody and ends.
    fn drop(&mut self) {
        if let Some(driver) = self.lock().driver.take() {
            driver.wake();
        }
    }
}

/// The task on the worker.
struct Driver {
    cx: Cx,
    shared: Weak<Shared>,
    /// Until the earliest end, as far as it was known when this began.
    sleep: Option<(Time, Sleep)>,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(shared) = this.shared.upgrade() else {
            return Poll::Ready(());
        };
        loop {
            let now = this.cx.now();
            let mut state = shared.lock();
            keep_waker(&mut state.driver, context.waker());
            state.look_at_fresh(now);
            let ended = state.take_ended(now);
            let next = state.order.first().map(|(at, _)| *at);
            drop(state);
            ended.into_iter().flatten().for_each(Waker::wake);
            let Some(next) = next else {
                this.sleep = None;
                return Poll::Pending;
            };
            if this.sleep.as_ref().is_none_or(|(at, _)| *at != next) {
                this.sleep = Some((next, this.cx.sleep(next.since(now))));
            }
            let (_, sleep) = this.sleep.as_mut().expect("set above");
            if Pin::new(sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
            this.sleep = None;
        }
    }
}

impl State {
    fn look_at_fresh(&mut self, now: Time) {
        for (id, span) in self.fresh.drain(..) {
            // One that is gone was dropped before the task came by.
            if let Some(sleeper) = self.sleepers.get_mut(&id) {
                let at = now.after(span);
                sleeper.at = Some(at);
                self.order.insert((at, id));
            }
        }
    }

    /// Ends the sleeps whose time has come; returns whom to wake.
    fn take_ended(&mut self, now: Time) -> Vec<Option<Waker>> {
        let mut ended = Vec::new();
        while let Some(&(at, id)) = self.order.first()
            && at <= now
        {
            self.order.pop_first();
            ended.extend(self.sleepers.remove(&id).map(|sleeper| sleeper.waker));
        }
        ended
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut state = shared.lock();
        state.over = true;
        state.driver = None;
        state.order.clear();
        let all = std::mem::take(&mut state.sleepers);
        drop(state);
        all.into_values()
            .filter_map(|sleeper| sleeper.waker)
            .for_each(Waker::wake);
    }
}
