//! One HTTP/2 connection to an endpoint: its limit of streams, its queue of writers, its end.
//!
//! ```text
//! Serving ─┬─ GOAWAY, lifetime reached, surplus ─▶ Retired ─ its last stream ends ─▶ Closed
//!          └─ closed, broken, silent ──────────────────────────────────────────────▶ Closed
//! ```
//!
//! It is the receiver of an engine stream and runs on its events: nothing here waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::stream::Stream;
use ringmain_wire::h2::{Connection, ErrorCode, HeadBuffer, Role};

use super::StreamError;
use super::receive::{SessionReceiver, StreamInput, StreamObserver};
use super::stream::H2Stream;
use crate::limits;
use crate::upstream::wait_queue::Disposition;
use crate::upstream::{ConnectionPermit, EndpointId};

/// State that a worker's sessions with an upstream share.
#[derive(Debug)]
pub(crate) struct H2Pool {
    pub(super) heads: RefCell<HeadBuffer>,
    /// Memory for lists of readers to notify.
    pub(super) observers: RefCell<Vec<Rc<dyn StreamObserver>>>,
    /// Memory for received parts of streams.
    pub(super) spare_inputs: RefCell<Vec<Rc<StreamInput>>>,
    /// The number of open connections.
    pub(super) open_sessions: Cell<usize>,
    /// Requests that may be about to open a connection.
    acquiring: Cell<usize>,
}

/// A request that may be about to open a connection, which may stay unused if another becomes free first.
pub(super) struct AcquireGuard<'c>(&'c H2Pool);

impl Drop for AcquireGuard<'_> {
    fn drop(&mut self) {
        self.0.acquiring.set(self.0.acquiring.get() - 1);
    }
}

impl H2Pool {
    pub(crate) fn new() -> Rc<H2Pool> {
        Rc::new(H2Pool {
            heads: RefCell::new(HeadBuffer::new(&super::h2_limits(1))),
            observers: RefCell::default(),
            spare_inputs: RefCell::default(),
            open_sessions: Cell::new(0),
            acquiring: Cell::new(0),
        })
    }

    /// Returns the number of open connections.
    pub(crate) fn open_sessions(&self) -> usize {
        self.open_sessions.get()
    }

    /// Returns whether there is a connection, or may be soon.
    pub(crate) fn has_sessions(&self) -> bool {
        self.open_sessions.get() + self.acquiring.get() > 0
    }

    pub(super) fn start_acquire(&self) -> AcquireGuard<'_> {
        self.acquiring.set(self.acquiring.get() + 1);
        AcquireGuard(self)
    }
}

/// An HTTP/2 connection.
pub(crate) struct H2Session {
    pub(super) cx: Cx,
    pub(super) pool: Rc<H2Pool>,
    /// `None`: closed.
    transport: RefCell<Option<Stream>>,
    pub(super) state: RefCell<SessionState>,
    /// `None`: closed, or not counted.
    permit: RefCell<Option<ConnectionPermit>>,
    endpoint: EndpointId,
    /// No more streams are opened.
    is_retired: Cell<bool>,
    /// The session is retiring in favor of requests that wait for another connection.
    is_yielding: Cell<bool>,
    /// A request was turned away because the output is full.
    is_output_full: Cell<bool>,
    /// The endpoint has refused a stream, and accepted none since.
    pub(super) is_refusing: Cell<bool>,
    /// The limit of concurrent streams.
    max_streams: u32,
    /// The limit of streams over the connection's life; `None`: no limit.
    max_requests: Option<u32>,
    /// Reserved streams that no request has opened yet.
    pub(super) reserved: Cell<u32>,
    /// Streams opened so far.
    pub(super) served: Cell<u32>,
    /// The instant at which the last stream ended.
    idle_since: Cell<Time>,
    /// The instant of the last received bytes.
    pub(super) last_received: Cell<Time>,
    /// A PING is outstanding.
    pub(super) is_pinged: Cell<bool>,
    writers: RefCell<WriterQueue>,
    /// The request that waits until the endpoint has sent its limit of streams.
    settings_waiter: RefCell<Option<Waker>>,
    /// The reason that the connection was closed.
    error: Cell<Option<StreamError>>,
    /// `:scheme` of its requests.
    pub(super) scheme: &'static str,
}

/// The codec and its buffers.
pub(super) struct SessionState {
    pub(super) connection: Connection,
    /// Output that was not handed to the engine yet.
    pub(super) out: Vec<u8>,
    /// Bytes of an incomplete frame.
    pub(super) partial: Vec<u8>,
    /// By the codec's slots; `None` for streams without a reader.
    pub(super) streams: Vec<Option<Rc<StreamInput>>>,
}

/// The queue for room in the connection's output: first in, first out.
#[derive(Default)]
struct WriterQueue {
    tickets: u64,
    queue: VecDeque<(u64, Waker)>,
}

/// The parameters of a new session.
pub(crate) struct SessionParams {
    pub(crate) stream: Stream,
    pub(crate) permit: Option<ConnectionPermit>,
    /// The endpoint.
    pub(crate) endpoint: EndpointId,
    /// The connection uses TLS.
    pub(crate) secure: bool,
    /// The limit of concurrent streams.
    pub(crate) streams: u32,
    /// The limit of streams over the connection's life; `None`: no limit.
    pub(crate) lifetime: Option<u32>,
}

impl std::fmt::Debug for H2Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?}, {} served)", self.transport, self.served.get())
    }
}

impl H2Session {
    /// Starts a session: sends the connection preface.
    pub(crate) fn new(cx: &Cx, pool: &Rc<H2Pool>, params: SessionParams) -> Rc<H2Session> {
        let mut out = Vec::new();
        let limits = super::h2_limits(params.streams);
        let now = cx.now();
        let connection = Connection::new(Role::Client, &limits, Duration::from_nanos(now.0), &mut out);
        let session = Rc::new(H2Session {
            cx: cx.clone(),
            pool: Rc::clone(pool),
            transport: RefCell::new(Some(params.stream)),
            state: RefCell::new(SessionState {
                connection,
                out,
                partial: Vec::new(),
                streams: Vec::new(),
            }),
            permit: RefCell::new(params.permit),
            endpoint: params.endpoint,
            is_retired: Cell::new(false),
            is_yielding: Cell::new(false),
            is_output_full: Cell::new(false),
            is_refusing: Cell::new(false),
            max_streams: params.streams,
            max_requests: params.lifetime,
            reserved: Cell::new(0),
            served: Cell::new(0),
            idle_since: Cell::new(now),
            last_received: Cell::new(now),
            is_pinged: Cell::new(false),
            writers: RefCell::default(),
            settings_waiter: RefCell::default(),
            error: Cell::new(None),
            scheme: if params.secure { "https" } else { "http" },
        });
        pool.open_sessions.set(pool.open_sessions.get() + 1);
        let receiver = SessionReceiver(Rc::downgrade(&session));
        if let Some(stream) = &*session.transport.borrow() {
            stream.set_deadline(None);
            stream.attend(Some(Rc::new(receiver)));
        }
        session.flush_output(&mut session.state.borrow_mut());
        // Bytes received before the receiver was set cause no event.
        session.read_available();
        session
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.transport.borrow().is_none()
    }

    /// Returns whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.reserved.get() == 0 && self.state.borrow().connection.is_idle()
    }

    /// Returns the time since the last request ended; `None` while one is in flight.
    pub(crate) fn idle_for(&self, now: Time) -> Option<Duration> {
        self.is_idle().then(|| now.since(self.idle_since.get()))
    }

    /// Returns the number of requests that can be started now.
    pub(super) fn stream_capacity(&self) -> usize {
        if self.is_retired.get() {
            return 0;
        }
        // More requests would only add to output that the endpoint does not read.
        let is_blocked = |stream: &Stream| stream.unsent() >= WRITE_MARK;
        if self.transport.borrow().as_ref().is_none_or(is_blocked) {
            self.is_output_full.set(true);
            return 0;
        }
        let connection = &self.state.borrow().connection;
        if !connection.is_established() {
            return 0;
        }
        let reserved = self.reserved.get();
        let started = self.served.get().saturating_add(reserved);
        let remaining = self
            .max_requests
            .map_or(u32::MAX, |most| most.saturating_sub(started));
        let room = (self.max_streams as usize).saturating_sub(connection.open_streams());
        let room = room.min(connection.openable()).saturating_sub(reserved as usize);
        room.min(remaining as usize)
    }

    /// Returns whether the endpoint has sent its limit of streams.
    pub(super) fn has_settings(&self) -> bool {
        self.state.borrow().connection.is_established()
    }

    /// Returns whether each channel without a stream can open one.
    pub(super) fn can_open_reserved(&self) -> bool {
        let openable = self.state.borrow().connection.openable();
        !self.is_closed() && openable >= self.reserved.get() as usize
    }

    /// Reserves a stream for a request, which opens it. Requires room for it.
    pub(crate) fn reserve_stream(self: &Rc<Self>) -> H2Stream {
        self.reserved.set(self.reserved.get() + 1);
        H2Stream::new(Rc::clone(self))
    }

    /// Waits until the endpoint has sent its limit of streams.
    pub(super) fn poll_settings(&self, context: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        if let Some(error) = self.error.get() {
            return Poll::Ready(Err(error));
        }
        if self.state.borrow().connection.is_established() {
            return Poll::Ready(Ok(()));
        }
        *self.settings_waiter.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// Wakes the request that waits for the limit: it was received, or will not be.
    pub(super) fn notify_settings(&self) {
        let waker = self.settings_waiter.borrow_mut().take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Retires the session: no more streams are opened, and it is closed when the last has ended.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        if self.is_idle() {
            drop(self.close());
        }
    }

    /// Closes the session with a GOAWAY. Returns the permit to open another connection in its place.
    pub(crate) fn close(&self) -> Option<ConnectionPermit> {
        {
            let state = &mut *self.state.borrow_mut();
            if state.connection.fault().is_none() {
                state.connection.abandon(ErrorCode::NO_ERROR, &mut state.out);
            }
            self.flush_output(state);
        }
        self.fail(StreamError::Closed)
    }

    /// Ends the session after its connection has ended.
    pub(super) fn fail(&self, error: StreamError) -> Option<ConnectionPermit> {
        self.is_retired.set(true);
        let wire = self.transport.borrow_mut().take()?;
        self.error.set(Some(error));
        self.notify_settings();
        let open = self.pool.open_sessions.get() - 1;
        self.pool.open_sessions.set(open);
        if open == 0 {
            self.pool.spare_inputs.borrow_mut().clear();
        }
        let permit = self.permit.borrow_mut().take();
        if self.is_yielding.get()
            && let Some(permit) = &permit
        {
            permit.upstream().end_session_retirement();
        }
        let streams = std::mem::take(&mut self.state.borrow_mut().streams);
        let mut readers = Vec::new();
        for incoming in streams.iter().flatten() {
            incoming.fail(error);
            readers.extend(incoming.observer.take());
        }
        let writers = std::mem::take(&mut self.writers.borrow_mut().queue);
        writers.into_iter().for_each(|(_, waker)| waker.wake());
        drop(wire);
        readers.into_iter().for_each(|reader| reader.on_ready());
        permit
    }

    /// Changes the codec's state, writes the resulting output, and offers streams that became free.
    pub(super) fn with_state<R>(&self, change: impl FnOnce(&mut SessionState) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let before = state.connection.open_streams();
        let outcome = change(&mut state);
        self.flush_output(&mut state);
        let freed = before.saturating_sub(state.connection.open_streams());
        drop(state);
        if freed > 0 {
            self.on_streams_closed(freed);
        }
        outcome
    }

    /// Handles that `count` streams have ended.
    pub(super) fn on_streams_closed(&self, count: usize) {
        let is_exhausted = self.max_requests.is_some_and(|most| self.served.get() >= most);
        if is_exhausted {
            self.is_retired.set(true);
        }
        if self.is_idle() {
            self.idle_since.set(self.cx.now());
        }
        self.offer_streams(count);
    }

    /// Offers `count` free streams to requests that wait for a connection; closes the session if they need its place.
    pub(super) fn offer_streams(&self, count: usize) {
        let upstream = self.permit.borrow().as_ref().map(ConnectionPermit::upstream);
        for _ in 0..count.min(self.stream_capacity()) {
            let Some(upstream) = &upstream else { break };
            // An idle session can be closed at once, so any waiter can profit.
            let (worker, is_idle) = (self.cx.worker(), self.is_idle());
            let may_close = is_idle || upstream.may_retire_session();
            let handed = if is_idle {
                upstream.wait_queue.assign_connection(worker)
            } else {
                upstream
                    .wait_queue
                    .assign_stream(worker, self.endpoint, may_close)
            };
            let close = match handed {
                Disposition::Close => true,
                Disposition::Reserved => may_close && upstream.connection_budget.must_close_reserved(),
                Disposition::Pool => is_idle && upstream.connection_budget.must_close_idle(),
            };
            if close && (is_idle || upstream.begin_session_retirement()) {
                self.is_yielding.set(!is_idle);
                self.is_retired.set(true);
                break;
            }
        }
        if self.is_idle() && (self.is_retired.get() || self.cx.is_draining()) {
            drop(self.close());
        }
    }

    /// Offers streams again after the output was too full.
    pub(super) fn resume_offers(&self) {
        if self.is_output_full.replace(false) {
            self.offer_streams(self.stream_capacity());
        }
    }

    /// Hands the output to the engine.
    pub(super) fn flush_output(&self, state: &mut SessionState) {
        if state.out.is_empty() {
            return;
        }
        if let Some(stream) = &*self.transport.borrow() {
            // Fails if the connection has just ended, which the receiver observes.
            let _ = stream.write_now(&state.out);
        }
        state.out.clear();
        state.out.shrink_to(limits::SESSION_OUT_KEPT);
    }

    /// Reads all received bytes.
    pub(super) fn read_available(&self) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let mut bytes = Vec::new();
            let polled = match &*self.transport.borrow() {
                None => return,
                Some(stream) => stream.poll_received(&mut context, |received| {
                    bytes.extend_from_slice(received);
                    received.len()
                }),
            };
            let error = match polled {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => StreamError::Closed,
                Poll::Ready(Ok(_)) => {
                    self.on_data(&bytes);
                    continue;
                }
                Poll::Ready(Err(_)) => StreamError::Reset,
            };
            drop(self.fail(error));
            return;
        }
    }

    /// Sends a PING unless one is outstanding: without a response the connection is closed.
    pub(super) fn send_ping(&self) {
        if self.is_pinged.replace(true) {
            return;
        }
        if let Some(stream) = &*self.transport.borrow() {
            stream.set_deadline(Some(limits::UPSTREAM_PING_WAIT));
        }
        self.with_state(|state| state.connection.ping(*b"ringmain", &mut state.out));
    }

    /// Records received bytes: the connection is alive.
    pub(super) fn record_activity(&self) {
        self.last_received.set(self.cx.now());
        if self.is_pinged.replace(false)
            && let Some(stream) = &*self.transport.borrow()
        {
            stream.set_deadline(None);
        }
    }

    /// Waits until the connection accepts more output, in turn. `ticket` is the caller's position in the queue, 0 for none.
    pub(super) fn poll_output(&self, ticket: &Cell<u64>, context: &mut Context<'_>) -> Poll<()> {
        let wire = self.transport.borrow();
        let Some(stream) = &*wire else {
            return Poll::Ready(());
        };
        let writers = &mut *self.writers.borrow_mut();
        let first = writers.queue.front().map(|(first, _)| *first);
        if first.is_none_or(|first| first == ticket.get()) && stream.poll_room(context).is_ready() {
            writers.leave(ticket);
            return Poll::Ready(());
        }
        writers.join(ticket, context.waker());
        Poll::Pending
    }

    /// Leaves the queue of writers.
    pub(super) fn leave_writer_queue(&self, ticket: &Cell<u64>) {
        if ticket.get() != 0 {
            self.writers.borrow_mut().leave(ticket);
        }
    }
}

impl WriterQueue {
    fn join(&mut self, ticket: &Cell<u64>, waker: &Waker) {
        if ticket.get() != 0
            && let Some((_, own)) = self
                .queue
                .iter_mut()
                .find(|(queued_ticket, _)| *queued_ticket == ticket.get())
        {
            return own.clone_from(waker);
        }
        self.tickets += 1;
        ticket.set(self.tickets);
        self.queue.push_back((self.tickets, waker.clone()));
    }

    /// Leaves the queue; the next writer is woken to check for room.
    fn leave(&mut self, ticket: &Cell<u64>) {
        let own = ticket.replace(0);
        self.queue.retain(|(queued_ticket, _)| *queued_ticket != own);
        if let Some((_, first)) = self.queue.front() {
            first.wake_by_ref();
        }
    }
}

impl Drop for H2Session {
    fn drop(&mut self) {
        drop(self.close());
    }
}

/// A weak reference to a session.
pub(super) type WeakSession = Weak<H2Session>;
