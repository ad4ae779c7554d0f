//! The application's way back into its worker: connections, timers, tasks, blocking work.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use ringmain_sys::addr::Addr;

use super::core::{Core, WriteError};
use super::drain::{DrainHold, DrainTurn};
use super::record::{Phase, Reason};
use super::tasks::{TaskId, Tasks, TooManyTasks};
use crate::backend::{Slot, SocketOption, Time};
use crate::stream::Stream;

pub(crate) struct Inner {
    pub(crate) core: RefCell<Core>,
    pub(crate) tasks: Tasks,
}

/// A handle to the worker that this code runs on; cheap to clone, never leaves its thread.
#[derive(Clone)]
pub struct Cx(pub(crate) Rc<Inner>);

/// Names a connection of this worker, in this life of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId(pub(crate) Slot);

/// One connection, for the time of a call.
#[derive(Clone, Copy)]
pub struct Conn<'a> {
    cx: &'a Cx,
    id: ConnId,
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index, self.0.generation)
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cx")
    }
}

impl Cx {
    pub(crate) fn core(&self) -> RefMut<'_, Core> {
        self.0.core.borrow_mut()
    }

    /// This worker's number, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.core().index
    }

    /// How many workers the engine runs.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.core().shared.workers.len()
    }

    /// The time, read once a loop turn.
    #[must_use]
    pub fn now(&self) -> Time {
        self.core().now()
    }

    /// The time at this moment, for measuring what a step costs. Reading it costs some tens of nanoseconds; in a
    /// simulation no time passes within a turn.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.core().backend.clock()
    }

    /// When the bytes that the handler is shown were there, at the latest: the time between then and
    /// [`Cx::clock`] they have waited at least, because the worker was busy or out of receive buffers. For an overloaded
    /// worker to know what has become too old to be worth an answer.
    #[must_use]
    pub fn ready_at(&self) -> Time {
        self.core().ready_at
    }

    /// How long the bytes that the handler is shown have waited in the worker's queue: the time since [`Cx::ready_at`], without
    /// steps of the worker that were long by themselves ([`crate::limits::LONG_STEP`]). One handler that computes for a second
    /// is no overload; more requests than the worker can answer are. Costs a reading of the clock.
    #[must_use]
    pub fn queued(&self) -> Duration {
        self.core().queued()
    }

    /// Whether the handler has been at work for so long within its present step that what it has written should leave
    /// ([`crate::limits::FLUSH_WITHIN`]): whoever has more bytes to look at had better [yield](Conn::yield_turn). Cheap enough to
    /// be asked between two messages.
    #[must_use]
    pub fn step_is_long(&self) -> bool {
        self.core().step_is_long()
    }

    /// Counts bytes that the caller holds for a slow reader, beside those of the engine, in [`crate::limits::HELD_BYTES`]: so
    /// many instead of so many `before`.
    pub fn hold(&self, before: usize, now: usize) {
        self.core().adjust_held(before, now);
    }

    /// Bytes that this worker's connections hold for slow readers; see [`crate::limits::HELD_BYTES`].
    #[must_use]
    pub fn held(&self) -> usize {
        self.core().holding.bytes()
    }

    /// What [`crate::limits::WRITE_MARK`] is at present: less while the worker holds its share of
    /// [`crate::limits::HELD_BYTES`].
    #[must_use]
    pub fn write_mark(&self) -> usize {
        self.core().holding.mark()
    }

    /// Notes that buffers of so many bytes were freed, so that memory goes back to the system; see
    /// [`crate::limits::RECLAIM_BYTES`].
    pub fn freed(&self, bytes: usize) {
        self.core().holding.freed += bytes;
    }

    /// Wall-clock time since the Unix epoch, read once a loop turn.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.core().backend.wall()
    }

    /// A random number; in a simulation it follows from the seed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.core().backend.random()
    }

    /// The connection of this name. Calls on one that is over do nothing.
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Conn<'_> {
        Conn { cx: self, id }
    }

    /// Opens a connection for the handler: `open` or `not_connected` follows, the latter with the kind of error. `AddrNotAvailable`
    /// says that all ports for this destination are in use, `WouldBlock` that the queue of a Unix listener is full (on epoll;
    /// io_uring waits for room). A deadline ([`Conn::set_deadline`]) holds while it connects, too, and ends it with
    /// [`Reason::Deadline`]; the same one goes on once the connection stands.
    ///
    /// # Errors
    /// No descriptor, no slot, or `source` is not an address of this host.
    pub fn connect(&self, to: &Addr, source: Option<&Addr>) -> io::Result<ConnId> {
        self.core().connect(to, source, false).map(ConnId)
    }

    /// Opens a connection as a stream.
    ///
    /// # Errors
    /// As [`Cx::connect`], and what the network says: refused, timed out, unreachable.
    pub async fn connect_stream(&self, to: &Addr, source: Option<&Addr>) -> io::Result<Stream> {
        let slot = self.core().connect(to, source, true)?;
        Stream::new(self.clone(), slot).connected().await
    }

    /// As [`Cx::connect_stream`], giving up after `span`.
    ///
    /// # Errors
    /// As there; `TimedOut` when the connection does not stand by then.
    pub async fn connect_within(
        &self,
        to: &Addr,
        source: Option<&Addr>,
        span: Duration,
    ) -> io::Result<Stream> {
        let slot = self.core().connect(to, source, true)?;
        let stream = Stream::new(self.clone(), slot);
        stream.set_deadline(Some(span));
        let stream = stream.connected().await?;
        stream.set_deadline(None);
        Ok(stream)
    }

    /// Runs a future on this worker, beginning in this loop turn.
    ///
    /// # Errors
    /// [`TooManyTasks`]; the future is dropped.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> Result<TaskId, TooManyTasks> {
        self.0.tasks.spawn(future)
    }

    /// Drops a task's future; nothing happens if it is over.
    pub fn cancel(&self, task: TaskId) {
        self.0.tasks.cancel(task);
    }

    /// Calls the handler's `timer` with `key` after `span` (1 ms resolution).
    ///
    /// Returns false when the worker has [`crate::limits::TIMERS_PER_WORKER`] timers already.
    #[must_use]
    pub fn timer(&self, span: Duration, key: u64) -> bool {
        let core = &mut *self.core();
        let at = core.now().after(span);
        core.sleepers.handler_timer(&mut core.wheel, at, key).is_some()
    }

    /// Calls the handler's `alarm` once, in the first turn that begins at `at` (on the clock of [`Cx::now`]) or later.
    /// A worker has one alarm: this replaces the last one, `None` takes it away.
    ///
    /// For schedules finer than [`Cx::timer`]: never early, and late by what the kernel's timer and the turn before cost,
    /// which is microseconds on an idle CPU (a millisecond on epoll before Linux 5.11).
    /// An alarm holds no shutdown up, and still comes during one.
    pub fn set_alarm(&self, at: Option<Time>) {
        let core = &mut *self.core();
        core.alarm = at.unwrap_or(Time::NEVER);
        if at.is_some() && !std::mem::replace(&mut core.exact, true) {
            core.backend.exact_timeouts();
        }
    }

    /// Whether the process is shutting down: no new connections, open ones should end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.core().draining
    }

    /// Returns true if a shutdown begins after a delay ([`Config::drain_delay`](crate::Config::drain_delay)): new connections are still served, and
    /// clients should be asked to use another one for later requests. It stays true while the process drains.
    #[must_use]
    pub fn is_drain_pending(&self) -> bool {
        let core = self.core();
        core.draining || core.drain.is_pending
    }

    /// Returns the time over which a shutdown spreads the ends of connections whose clients reconnect.
    #[must_use]
    pub fn drain_spread(&self) -> Duration {
        self.core().drain.spread
    }

    /// Waits for a turn in a shutdown: futures of this worker that wait when it begins complete at an even rate over
    /// [`Cx::drain_spread`], from [`crate::limits::DRAIN_SPREAD_START`] on; a future that is created during the shutdown completes at
    /// once. For connections whose clients reconnect, so that they do not all do it at the same time.
    pub fn drain_turn(&self) -> DrainTurn {
        DrainTurn::first(self)
    }

    /// Waits for a turn in the last [`Cx::drain_spread`] of the grace time: for connections that can only be cut, and may finish until then.
    pub fn last_drain_turn(&self) -> DrainTurn {
        DrainTurn::last(self)
    }

    /// Waits for a shutdown, then calls `end` with each of the values that `collect` returns, at the rate of [`Cx::drain_turn`]. `collect` is
    /// called after [`crate::limits::DRAIN_SPREAD_START`]; values that are due within [`crate::limits::DRAIN_TURN_INTERVAL`] end together.
    pub async fn end_in_turns<T>(&self, collect: impl FnOnce() -> Vec<T>, end: impl FnMut(T)) {
        super::drain::end_in_turns(self, collect, end).await;
    }

    /// Waits until the process begins to shut down. What a handler hears by `drain`, a task hears by this.
    #[must_use]
    pub fn draining(&self) -> Draining {
        Draining {
            cx: self.clone(),
            place: None,
        }
    }

    /// Has a graceful shutdown wait, at most for its grace time, until the result is dropped: for work without a connection.
    #[must_use]
    pub fn hold_drain(&self) -> DrainHold {
        DrainHold::new(self)
    }

    /// Returns whether the process is shutting down because another one has taken over its listeners.
    #[must_use]
    pub fn has_successor(&self) -> bool {
        self.core().shared.has_successor.load(Ordering::Acquire)
    }

    /// Begins the shutdown of the whole process, as a termination signal does.
    pub fn shut_down(&self) {
        self.core().shared.advance(super::shared::State::Draining);
    }
}

impl<'a> Conn<'a> {
    pub(crate) fn new(cx: &'a Cx, slot: Slot) -> Conn<'a> {
        Conn { cx, id: ConnId(slot) }
    }

    /// The worker's handle.
    #[must_use]
    pub fn cx(&self) -> &'a Cx {
        self.cx
    }

    /// The connection's name, to be kept for later.
    #[must_use]
    pub fn id(&self) -> ConnId {
        self.id
    }

    /// Whether it can still be written to.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.cx.core().connection(self.id.0).is_some_and(|c| c.writable())
    }

    /// Queues a copy of `bytes`; they leave at the end of the loop turn.
    ///
    /// # Errors
    /// [`WriteError::Full`] beyond [`crate::limits::WRITE_LIMIT`]: the connection is closed for it.
    pub fn write(&self, bytes: &[u8]) -> Result<(), WriteError> {
        self.cx.core().write(self.id.0, bytes)
    }

    /// Queues a shared frame without copying it; of many that are queued in one turn of the loop, small ones are copied behind the
    /// first, so that all leave in one send.
    ///
    /// # Errors
    /// As [`Conn::write`].
    pub fn write_frame(&self, frame: Bytes) -> Result<(), WriteError> {
        self.cx.core().write_frame(self.id.0, frame)
    }

    /// Bytes written and not yet handed to the kernel.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.cx.core().connection(self.id.0).map_or(0, |c| c.unsent())
    }

    /// Whether `more` bytes fit below the present mark ([`Cx::write_mark`]) with those that are unsent. If they do not, the
    /// handler's `drained` follows once there is room again.
    #[must_use]
    pub fn has_room(&self, more: usize) -> bool {
        let core = &mut *self.cx.core();
        let mark = core.holding.mark();
        let Some(connection) = core.connection(self.id.0) else {
            return true;
        };
        let unsent = connection.unsent();
        if unsent + more <= mark {
            return true;
        }
        if !connection.output.is_empty() && !std::mem::replace(&mut connection.flags.blocked, true) {
            core.update_recv(self.id.0);
        }
        false
    }

    /// Bytes handed to the kernel since it was opened: what a slow reader has taken, but for what the kernel's socket
    /// buffers hold.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.cx.core().connection(self.id.0).map_or(0, |c| c.sent)
    }

    /// Has [`Conn::sent`] brought up to date by the next turns. Where the kernel takes a whole send before it says
    /// anything ([`crate::limits::SEND_BYTES`] on `uring`), a slow reader looks like one who reads nothing. Costs two
    /// operations if a send waits, else nothing.
    pub fn count_sent(&self) {
        self.cx.core().count_sent(self.id.0);
    }

    /// Closes it when all that was written is sent; nothing more is received.
    ///
    /// Bytes that the peer has sent and this side has not taken make the kernel reset the connection, which may cost the
    /// peer the last bytes. Where that matters, [`Conn::shutdown`] and close in `end`.
    pub fn close(&self) {
        self.cx.core().close(self.id.0, Reason::Closed);
    }

    /// Sends FIN after what was written; the peer's bytes are still received.
    pub fn shutdown(&self) {
        self.cx.core().shutdown(self.id.0);
    }

    /// Ends it at once: unsent bytes are dropped and the peer sees a reset.
    pub fn abort(&self) {
        self.abort_because(Reason::Aborted);
    }

    /// As [`Conn::abort`], with the reason that `closed` is told.
    pub fn abort_because(&self, reason: Reason) {
        self.cx.core().abort(self.id.0, reason);
    }

    /// Receives nothing more in this turn: bytes that `data` leaves are offered again in the next, behind the other
    /// connections' steps, and count as waiting since they arrived.
    pub fn yield_turn(&self) {
        let core = &mut *self.cx.core();
        let since = core.ready_at;
        if let Some(connection) = core.connection(self.id.0)
            && !std::mem::replace(&mut connection.flags.yielded, true)
        {
            core.yielded.push((self.id.0, since));
            core.update_recv(self.id.0);
        }
    }

    /// Receives nothing until [`Conn::resume`]; what is on its way is kept.
    pub fn pause(&self) {
        let mut core = self.cx.core();
        if let Some(connection) = core.connection(self.id.0) {
            connection.flags.paused = true;
            core.update_recv(self.id.0);
        }
    }

    /// Receives again, and offers what is kept.
    pub fn resume(&self) {
        let mut core = self.cx.core();
        if let Some(connection) = core.connection(self.id.0)
            && std::mem::replace(&mut connection.flags.paused, false)
        {
            core.update_recv(self.id.0);
            core.offer_unread(self.id.0);
        }
    }

    /// Calls the handler's `deadline` after `span` unless it is moved before; `None` removes it. Cheap
    /// enough to be called for each request.
    /// After [`Conn::close`] it does nothing: then [`crate::Config::flush`] holds.
    pub fn set_deadline(&self, span: Option<Duration>) {
        let mut core = self.cx.core();
        let phase = core.connection(self.id.0).map(|c| c.phase);
        if matches!(phase, Some(Phase::Open | Phase::Connecting)) {
            core.set_deadline(self.id.0, span);
        }
    }

    /// The peer's address; `None` for an unnamed Unix socket. Costs a system call.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn peer_addr(&self) -> io::Result<Option<Addr>> {
        let core = &mut *self.cx.core();
        let connection = core.connection(self.id.0).filter(|c| c.phase == Phase::Open);
        let socket = connection.ok_or(io::ErrorKind::NotConnected)?.socket;
        core.backend.peer_addr(socket)
    }

    /// The local address. Costs up to three system calls.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn local_addr(&self) -> io::Result<Option<Addr>> {
        let core = &mut *self.cx.core();
        let connection = core.connection(self.id.0).filter(|c| c.phase == Phase::Open);
        let socket = connection.ok_or(io::ErrorKind::NotConnected)?.socket;
        core.backend.local_addr(socket)
    }

    /// Sets a socket option. Options wanted on all connections belong on the listener.
    ///
    /// # Errors
    /// As `setsockopt(2)`; `NotConnected` when the connection is over.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        let core = &mut *self.cx.core();
        let connection = core.connection(self.id.0).filter(|c| c.phase == Phase::Open);
        let socket = connection.ok_or(io::ErrorKind::NotConnected)?.socket;
        core.backend.set_option(socket, option)
    }

    /// Makes it an asynchronous stream; the handler hears no more of it. To be called in `open`, which then returns `None`, or
    /// in `data`, whose state is dropped then without `closed`: what `data` does not consume is the stream's.
    #[must_use]
    pub fn into_stream(self) -> Stream {
        let mut core = self.cx.core();
        if let Some(connection) = core.connection(self.id.0) {
            connection.flags.streamed = true;
            connection.stream.get_or_insert_default();
            core.told.push_back(super::core::Told::Taken(self.id.0));
        }
        drop(core);
        Stream::new(self.cx.clone(), self.id.0)
    }
}

/// A future that waits; see [`Cx::sleep`].
pub struct Sleep {
    cx: Cx,
    at: Time,
    slot: Option<Slot>,
}

impl Cx {
    /// Waits for `span` (1 ms resolution, never early).
    #[must_use]
    pub fn sleep(&self, span: Duration) -> Sleep {
        Sleep {
            cx: self.clone(),
            at: self.now().after(span),
            slot: None,
        }
    }

    /// Runs `work` on a thread of the blocking pool. If the future is dropped the work still runs, and its result is
    /// dropped there.
    ///
    /// # Errors
    /// `WouldBlock` when [`crate::limits::BLOCKING_QUEUE`] jobs wait already: try again later or do less at once;
    /// `Other` when the work panicked.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        crate::blocking::call(|job| self.core().backend.run_blocking(job), work).await
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        use std::task::Poll;
        let this = &mut *self;
        let core = &mut *this.cx.0.core.borrow_mut();
        if let Some(slot) = this.slot {
            let sleeper = core.sleepers.get_mut(slot).expect("removed only by this future");
            if !sleeper.fired {
                keep_waker(&mut sleeper.waker, context.waker());
                return Poll::Pending;
            }
            core.sleepers.remove(&mut core.wheel, slot);
            this.slot = None;
            return Poll::Ready(());
        }
        if core.now() >= this.at {
            return Poll::Ready(());
        }
        this.slot = core
            .sleepers
            .sleep(&mut core.wheel, this.at, context.waker().clone());
        if this.slot.is_none() {
            // No timer is free: try again in the next turn rather than never.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let core = &mut *self.cx.0.core.borrow_mut();
            core.sleepers.remove(&mut core.wheel, slot);
        }
    }
}

/// A future that waits for the shutdown; see [`Cx::draining`].
pub struct Draining {
    cx: Cx,
    place: Option<Slot>,
}

impl Future for Draining {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        use std::task::Poll;
        let this = &mut *self;
        let core = &mut *this.cx.0.core.borrow_mut();
        if core.draining {
            return Poll::Ready(());
        }
        let place = this.place.and_then(|place| core.drain_waiters.get_mut(place));
        match place {
            Some(waker) => waker.clone_from(context.waker()),
            None => this.place = core.drain_waiters.insert(context.waker().clone()).ok(),
        }
        if this.place.is_none() {
            // As many wait as tasks may run: look again in the next turn rather than never.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.cx.0.core.borrow_mut().drain_waiters.remove(place);
        }
    }
}

/// Keeps the waker, cloning only when it is another one.
pub(crate) fn keep_waker(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(old) if old.will_wake(waker) => {}
        _ => *place = Some(waker.clone()),
    }
}
