//! An engine at work: its watchdog, its counters, its end.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_sys::addr::Addr;
use ringmain_sys::clock;
use ringmain_sys::inherit::{self, StatePipe};

use super::service::{self, KeepAlive};
use super::watch::{Watchdog, watch};
use super::{Engine, EngineError, Fabric, Listeners, Reload};
use crate::blocking::Pool;
use crate::mail::Inbox;
use crate::probe::Selection;
use crate::worker::shared::{Counters, Kept, Shared, State};

/// A running engine. Dropping it ends the process's connections at once and waits for the workers.
pub struct Running<M> {
    shared: Arc<Shared>,
    selection: Selection,
    addrs: Vec<Addr>,
    listeners: Listeners,
    pool: Arc<Pool>,
    inboxes: Vec<Inbox<M>>,
    threads: Vec<JoinHandle<Result<(), EngineError>>>,
    watchdog: Option<Watchdog>,
    /// `SIGHUP`s that [`Engine::run_observed`] has seen.
    pub(super) hangups: AtomicU64,
    /// The same of `SIGUSR1`.
    pub(super) reopens: AtomicU64,
    /// The reload of the last `SIGHUP`, until the observer has been called.
    pub(super) reload: Mutex<Option<Reload>>,
    /// A new process has its listeners.
    handed_over: AtomicBool,
    drain_delay: Duration,
    /// The end of the delay before a shutdown, by the monotonic clock.
    drain_at: Mutex<Option<Duration>>,
    before_drain: Mutex<Option<Box<BeforeDrain>>>,
}

/// Called once before a graceful shutdown begins; see [`Running::before_drain`].
type BeforeDrain = dyn FnOnce(Option<StatePipe>) + Send;

/// Counts of one worker since the start; see [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in Counters, which says what they are")]
pub struct WorkerReport {
    pub connections: u32,
    pub accepted: u64,
    pub adopted: u64,
    pub given: u64,
    pub closed: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub no_buffers: u64,
    pub turns: u64,
    pub completions: u64,
    pub accept_pauses: u64,
    pub panics: u64,
    pub file_hits: u64,
    pub file_misses: u64,
}

/// What an engine is and has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// The back-end and its features.
    pub selection: Selection,
    /// One entry a worker.
    pub workers: Vec<WorkerReport>,
}

/// How an engine ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The last counts.
    pub report: Report,
}

impl<M: Send + 'static> Running<M> {
    pub(super) fn new(
        engine: Engine,
        shared: Arc<Shared>,
        fabric: Fabric,
        pool: Arc<Pool>,
        inboxes: Vec<Inbox<M>>,
        threads: Vec<JoinHandle<Result<(), EngineError>>>,
    ) -> Running<M> {
        let watchdog = watch(Arc::clone(&shared), fabric, engine.config.stall);
        let listeners = Listeners::new(Arc::clone(&shared), engine.opening(), &engine.listeners);
        Running {
            shared,
            selection: engine.selection,
            addrs: engine.listeners.into_iter().map(|bound| bound.addr).collect(),
            listeners,
            pool,
            inboxes,
            threads,
            watchdog: watchdog.ok(),
            hangups: AtomicU64::new(0),
            reopens: AtomicU64::new(0),
            reload: Mutex::new(None),
            handed_over: AtomicBool::new(false),
            drain_delay: engine.config.drain_delay,
            drain_at: Mutex::new(None),
            before_drain: Mutex::new(None),
        }
    }

    /// Waits until every worker listens; ends all if one cannot.
    pub(super) fn wait_started(
        self,
        started: &mpsc::Receiver<Result<(), EngineError>>,
        workers: usize,
    ) -> Result<Running<M>, EngineError> {
        for _ in 0..workers {
            match started.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error),
                // All others have reported: the missing one died, and joining says of what.
                Err(_) => {
                    return self
                        .join()
                        .map(|_| unreachable!("a worker that never reported has died"));
                }
            }
        }
        for file in self.shared.kept().iter_mut().filter_map(|k| k.file.as_mut()) {
            file.arm();
        }
        Ok(self)
    }

    /// Where it has listened at its start, ports filled in.
    #[must_use]
    pub fn addrs(&self) -> &[Addr] {
        &self.addrs
    }

    /// Opens and closes listeners while it runs. Those of its start have numbers from 0 on, in their order.
    #[must_use]
    pub fn listeners(&self) -> Listeners {
        self.listeners.clone()
    }

    /// The way to send to worker `index` from any thread.
    #[must_use]
    pub fn inbox(&self, index: usize) -> &Inbox<M> {
        &self.inboxes[index]
    }

    /// How many `SIGHUP`s have come so far: the sign to read configuration and certificates anew. Only
    /// [`Engine::run_observed`] looks for signals.
    #[must_use]
    pub fn hangups(&self) -> u64 {
        self.hangups.load(Ordering::Relaxed)
    }

    /// Takes the reload that a `SIGHUP` has started, for an observer that finishes it later: the service manager receives `READY=1`
    /// when it is dropped. One that no observer takes is finished when the observer returns.
    #[must_use]
    pub fn take_reload(&self) -> Option<Reload> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How many `SIGUSR1`s have come so far: the sign to open logs anew that were moved away. As [`Running::hangups`].
    #[must_use]
    pub fn reopens(&self) -> u64 {
        self.reopens.load(Ordering::Relaxed)
    }

    /// Whether it takes no new connections any more: it is being shut down, or has a successor.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.state() >= State::Draining
    }

    /// Returns true if a shutdown is announced or has begun: load balancers should send no more to this process, which still takes new connections
    /// during [`Config::drain_delay`](crate::Config::drain_delay).
    #[must_use]
    pub fn is_drain_pending(&self) -> bool {
        self.shared.state() != State::Running
    }

    /// Whether a new process has taken its listeners over.
    #[must_use]
    pub fn has_successor(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let worker = |worker: &crate::worker::shared::WorkerShared| {
            let c: &Counters = &worker.counters;
            WorkerReport {
                connections: worker.load.load(Ordering::Relaxed),
                accepted: read(&c.accepted),
                adopted: read(&c.adopted),
                given: read(&c.given),
                closed: read(&c.closed),
                bytes_received: read(&c.bytes_received),
                bytes_sent: read(&c.bytes_sent),
                no_buffers: read(&c.no_buffers),
                turns: read(&c.turns),
                completions: read(&c.completions),
                accept_pauses: read(&c.accept_pauses),
                panics: read(&c.panics),
                file_hits: read(&c.file_hits),
                file_misses: read(&c.file_misses),
            }
        };
        Report {
            selection: self.selection.clone(),
            workers: self.shared.workers.iter().map(worker).collect(),
        }
    }

    /// Has this called once, on the thread that begins a graceful shutdown, while all workers still run: for state that must outlive the
    /// process. With a successor it has the pipe to it ([`inherit::state`]). The shutdown waits for it.
    pub fn before_drain(&self, hook: impl FnOnce(Option<StatePipe>) + Send + 'static) {
        *self.before_drain.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    /// Starts to report to the service manager whether the workers turn, if it wants that.
    pub(super) fn keep_service_alive(&self) -> Option<KeepAlive> {
        let started = KeepAlive::start(service::current()?, Arc::clone(&self.shared));
        started.unwrap_or_else(|error| {
            log::warn!("the service manager receives no pings: cannot start a thread: {error}");
            None
        })
    }

    fn call_before_drain(&self, pipe: Option<StatePipe>) {
        let hook = self
            .before_drain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(hook) = hook {
            hook(pipe);
        }
    }

    /// Begins a graceful shutdown as a termination signal does: at once, or after [`Config::drain_delay`](crate::Config::drain_delay), in
    /// which connections are accepted and served, and clients asked to use another one. [`Engine::run_observed`] ends the delay; without
    /// it [`Running::shut_down`] must. Has no effect on a shutdown that has begun.
    pub fn begin_drain(&self) {
        if self.shared.state() != State::Running {
            return;
        }
        if self.drain_delay.is_zero() {
            return self.shut_down();
        }
        *self.drain_at() = Some(clock::monotonic().saturating_add(self.drain_delay));
        self.shared.advance(State::DrainDelay);
        self.log_drain_delay();
    }

    /// Logs the remaining time of the delay, rounded up to seconds.
    pub(super) fn log_drain_delay(&self) {
        let left = self.drain_due_in().unwrap_or_default();
        log::info!(
            "shutting down in {} s: new connections are still accepted; a second signal ends the delay",
            left.as_millis().div_ceil(1000)
        );
    }

    /// Returns whether the delay before a shutdown lasts.
    pub(super) fn is_drain_delayed(&self) -> bool {
        self.shared.state() == State::DrainDelay
    }

    /// Returns the remaining time of the delay before a shutdown.
    pub(super) fn drain_due_in(&self) -> Option<Duration> {
        let at = self.drain_at().filter(|_| self.is_drain_delayed())?;
        Some(at.saturating_sub(clock::monotonic()))
    }

    /// Returns the time until a shutdown that is to begin now or was announced, if it is delayed.
    pub(super) fn delay_to_drain(&self) -> Option<Duration> {
        match self.shared.state() {
            State::Running => Some(self.drain_delay).filter(|delay| !delay.is_zero()),
            _ => self.drain_due_in(),
        }
    }

    fn drain_at(&self) -> MutexGuard<'_, Option<Duration>> {
        self.drain_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of open connections.
    pub(super) fn open_connections(&self) -> u32 {
        self.shared.connections()
    }

    /// Begins a graceful shutdown: no new connections but those in the listen queues, which are accepted; open ones get
    /// the grace time and end with [`Reason::Shutdown`](crate::Reason::Shutdown) then. Tasks and datagram sockets end with
    /// the last connection of their worker; blocking work is not waited for by the workers, but by whoever drops or joins this, for
    /// up to five seconds.
    pub fn shut_down(&self) {
        if self.shared.state() < State::Draining {
            self.call_before_drain(None);
        }
        self.shared.kept().clear();
        self.shared.advance(State::Draining);
    }

    /// Ends all connections at once.
    pub fn stop(&self) {
        self.shared.kept().clear();
        self.shared.advance(State::Stopping);
    }

    /// Starts `program` with all listeners, waits until it says that it serves
    /// ([`inherit::ready`]), and begins a graceful shutdown here. The queues of the listeners pass on
    /// as they are: no connection is refused or reset.
    ///
    /// # Errors
    /// The program could not be started, ended before it was ready, or was not ready within `patience` and
    /// has been ended; this process goes on serving then.
    pub fn hand_over(
        &self,
        program: &Path,
        arguments: &[std::ffi::OsString],
        patience: Duration,
    ) -> io::Result<u32> {
        // None is opened or closed meanwhile.
        let _doors = self.shared.doors();
        if self.shared.state() != State::Running {
            return Err(io::Error::other(
                "this process is shutting down and listens no more",
            ));
        }
        // Out of reach of a shutdown meanwhile, which would remove what the successor needs.
        let mut kept = std::mem::take(&mut *self.shared.kept());
        match succeed(&kept, program, arguments, patience) {
            Ok(mut successor) => {
                if let Some(service) = service::current() {
                    service.replaced_by(successor.process.id());
                }
                self.call_before_drain(successor.take_state());
                for file in kept.iter_mut().filter_map(|kept| kept.file.as_mut()) {
                    file.disarm();
                }
                self.handed_over.store(true, Ordering::Relaxed);
                self.shared.has_successor.store(true, Ordering::Release);
                self.shared.advance(State::Draining);
                Ok(successor.process.id())
            }
            Err(error) => {
                if self.shared.state() < State::Draining {
                    *self.shared.kept() = kept;
                }
                Err(error)
            }
        }
    }

    /// Whether all workers have ended: after a shutdown, or because one of them failed, which ends the others.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all workers have ended.
    ///
    /// # Errors
    /// The first worker that ended by a failure.
    pub fn join(mut self) -> Result<Summary, EngineError> {
        let mut outcome = Ok(());
        for (worker, thread) in self.threads.drain(..).enumerate() {
            let ended = thread.join().unwrap_or_else(|_| {
                let source = io::Error::other("it panicked outside any handler");
                Err(EngineError::Worker { worker, source })
            });
            outcome = outcome.and(ended);
        }
        outcome.map(|()| Summary {
            report: self.report(),
        })
    }
}

impl<M> Drop for Running<M> {
    fn drop(&mut self) {
        self.shared.kept().clear();
        self.shared.advance(State::Stopping);
        for thread in self.threads.drain(..) {
            // Its outcome has no reader any more.
            let _ = thread.join();
        }
        if let Some((stop, thread)) = self.watchdog.take() {
            drop(stop);
            let _ = thread.join();
        }
        if let Err(unfinished) = self.pool.shutdown(Duration::from_secs(5)) {
            log::warn!("blocking work was still running at the end: {unfinished}");
        }
    }
}

/// Starts the successor and waits until it serves; one that does not in time is ended, for two must not serve
/// side by side for good.
fn succeed(
    kept: &[Kept],
    program: &Path,
    arguments: &[std::ffi::OsString],
    patience: Duration,
) -> io::Result<inherit::Successor> {
    let listeners: Vec<_> = kept
        .iter()
        .map(|kept| (kept.fd.as_fd(), kept.name.as_str()))
        .collect();
    let mut successor = inherit::spawn_with(&listeners, program, arguments)?;
    if let Err(error) = successor.wait_ready(Some(patience)) {
        // It may have ended by itself: then there is nothing to kill and its status is taken already.
        let _ = successor.process.kill();
        let _ = successor.process.wait();
        return Err(error);
    }
    Ok(successor)
}
