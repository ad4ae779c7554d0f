//! The process's pool for blocking work: file reads that miss the page cache, name resolution, logs.
//!
//! Owns its threads and one bounded queue. Knows nothing of workers: a job reports back by itself, by
//! mail or by a wake. Locks are fine here, a worker takes one only to hand a job over.
//!
//! Threads start on demand, up to the limit, and end after a time without work. After
//! [`Pool::shutdown`] nothing new is taken; what was queued still runs.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::backend::{Job, PoolFull};
use crate::limits;

#[cfg(test)]
mod tests;

/// A pool of threads for blocking work; one for the process, shared by `Arc`.
///
/// Dropping it lets its threads finish the queue in the background.
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// A job was queued, or the pool closes.
    work: Condvar,
    /// A thread is about to end.
    ended: Condvar,
    threads: usize,
    queue: usize,
    idle: Duration,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that were started and have not announced their end.
    live: usize,
    /// Those of them that wait for work, or were told of it and have not woken yet.
    idle: usize,
    /// Threads started so far; it numbers their names.
    started: u64,
    panics: u64,
    closing: bool,
    handles: Vec<JoinHandle<()>>,
}

/// Threads were still running when [`Pool::shutdown`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{running} blocking jobs still ran at the end of the time given; {dropped} more were dropped")]
pub struct Unfinished {
    /// Threads whose job goes on; they end with the process.
    pub running: usize,
    /// Jobs that waited and will not run.
    pub dropped: usize,
}

impl Pool {
    /// A pool of up to `threads` threads and `queue` waiting jobs, normally
    /// [`limits::BLOCKING_THREADS`] and [`limits::BLOCKING_QUEUE`]. Starts no thread yet.
    ///
    /// # Panics
    /// If either is zero.
    #[must_use]
    pub fn new(threads: usize, queue: usize) -> Pool {
        Pool::with_idle(threads, queue, limits::BLOCKING_IDLE)
    }

    fn with_idle(threads: usize, queue: usize, idle: Duration) -> Pool {
        assert!(
            threads > 0 && queue > 0,
            "a pool needs a thread and room for a job"
        );
        Pool {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                ended: Condvar::new(),
                threads,
                queue,
                idle,
            }),
        }
    }

    /// Queues `job`. Jobs start in order; a job that panics is counted and harms no other.
    ///
    /// # Errors
    /// The job, if the queue is full, the pool is shut down, or no thread runs and none can be started.
    pub fn run(&self, job: Job) -> Result<(), PoolFull> {
        let mut state = self.shared.lock();
        if state.closing || state.jobs.len() == self.shared.queue {
            return Err(PoolFull(job));
        }
        // Threads told of earlier jobs count as idle until they wake, hence the comparison.
        if state.jobs.len() >= state.idle
            && state.live < self.shared.threads
            && let Err(error) = Shared::start(&self.shared, &mut state)
        {
            log::warn!(
                "cannot start a thread for blocking work: {error}; {} of at most {} run; \
                 look at the limits on threads (ulimit -u, pids.max) and memory",
                state.live,
                self.shared.threads
            );
            if state.live == 0 {
                return Err(PoolFull(job));
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// How many jobs have panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.shared.lock().panics
    }

    /// How many jobs wait for a thread.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// How many threads are alive.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.lock().live
    }

    /// Takes no more jobs, runs those queued and joins all threads. Do not call it from a job.
    ///
    /// # Errors
    /// After `timeout`: what still waits is dropped, what still runs is left running.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.work.notify_all();
        let (mut state, _) = self
            .shared
            .ended
            .wait_timeout_while(state, timeout, |state| state.live > 0)
            .unwrap_or_else(PoisonError::into_inner);
        let jobs = std::mem::take(&mut state.jobs);
        let handles = std::mem::take(&mut state.handles);
        let running = state.live;
        drop(state);
        if running > 0 {
            return Err(Unfinished {
                running,
                dropped: jobs.len(),
            });
        }
        for handle in handles {
            // Every thread has announced its end, and catches the panics of its jobs.
            handle.join().expect("a pool thread does not panic");
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    /// No job runs under the lock, so a poisoned one holds nothing half-done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(shared: &Arc<Shared>, state: &mut State) -> std::io::Result<()> {
        let name = format!("ringmain-blocking-{}", state.started);
        let body = {
            let shared = Arc::clone(shared);
            move || shared.work_until_idle()
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the pool of real back-ends; a simulation has its own"
        )]
        let handle = thread::Builder::new().name(name).spawn(body)?;
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(handle);
        state.started += 1;
        state.live += 1;
        Ok(())
    }

    /// The life of a thread.
    fn work_until_idle(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                let outcome = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                if let Err(payload) = outcome {
                    state.panics += 1;
                    // Dropping a payload may panic in turn; leaking it is the lesser harm.
                    std::mem::forget(payload);
                }
                continue;
            }
            if state.closing {
                break;
            }
            state.idle += 1;
            let (next, timeout) = self
                .work
                .wait_timeout_while(state, self.idle, |state| state.jobs.is_empty() && !state.closing)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() {
                break;
            }
        }
        state.live -= 1;
        self.ended.notify_all();
    }
}

/// Runs `work` on the pool that `run` hands jobs to, and waits for its result.
pub(crate) async fn call<T: Send + 'static>(
    run: impl FnOnce(Job) -> Result<(), PoolFull>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    struct Answer<T> {
        result: Option<T>,
        waker: Option<Waker>,
        over: bool,
    }
    /// Reports the end also when the work panics.
    struct Over<T>(Arc<Mutex<Answer<T>>>);
    impl<T> Drop for Over<T> {
        fn drop(&mut self) {
            let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            answer.over = true;
            if let Some(waker) = answer.waker.take() {
                waker.wake();
            }
        }
    }
    let answer = Arc::new(Mutex::new(Answer {
        result: None,
        waker: None,
        over: false,
    }));
    let over = Over(Arc::clone(&answer));
    let job = move || {
        let result = work();
        over.0.lock().unwrap_or_else(PoisonError::into_inner).result = Some(result);
    };
    if run(Box::new(job)).is_err() {
        return Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "the blocking pool is full or shut down: try again later, do less at once, or raise \
             Config::blocking_threads",
        ));
    }
    std::future::poll_fn(|context| {
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = answer.result.take() {
            return Poll::Ready(Ok(result));
        }
        if answer.over {
            return Poll::Ready(Err(io::Error::other("the work on the blocking pool panicked")));
        }
        crate::worker::cx::keep_waker(&mut answer.waker, context.waker());
        Poll::Pending
    })
    .await
}
