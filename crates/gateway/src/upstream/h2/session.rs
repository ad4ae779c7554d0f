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

use super::Lost;
use super::receive::{Ear, Incoming, Reader};
use super::stream::Channel;
use crate::limits;
use crate::upstream::wait_queue::Handover;
use crate::upstream::{Permit, Toward};

/// State that a worker's sessions with an upstream share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(super) heads: RefCell<HeadBuffer>,
    /// Memory for lists of readers to notify.
    pub(super) readers: RefCell<Vec<Rc<dyn Reader>>>,
    /// Memory for received parts of streams.
    pub(super) spare: RefCell<Vec<Rc<Incoming>>>,
    /// The number of open connections.
    pub(super) open: Cell<usize>,
    /// Requests that may be about to open a connection.
    linking: Cell<usize>,
}

/// A request that may be about to open a connection, which may stay unused if another becomes free first.
pub(super) struct Linking<'c>(&'c Common);

impl Drop for Linking<'_> {
    fn drop(&mut self) {
        self.0.linking.set(self.0.linking.get() - 1);
    }
}

impl Common {
    pub(crate) fn new() -> Rc<Common> {
        Rc::new(Common {
            heads: RefCell::new(HeadBuffer::new(&super::limits_for(1))),
            readers: RefCell::default(),
            spare: RefCell::default(),
            open: Cell::new(0),
            linking: Cell::new(0),
        })
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Returns whether there is a connection, or may be soon.
    pub(crate) fn is_any(&self) -> bool {
        self.open.get() + self.linking.get() > 0
    }

    pub(super) fn linking(&self) -> Linking<'_> {
        self.linking.set(self.linking.get() + 1);
        Linking(self)
    }
}

/// An HTTP/2 connection.
pub(crate) struct Session {
    pub(super) cx: Cx,
    pub(super) common: Rc<Common>,
    /// `None`: closed.
    wire: RefCell<Option<Stream>>,
    pub(super) state: RefCell<State>,
    /// `None`: closed, or not counted.
    permit: RefCell<Option<Permit>>,
    toward: Toward,
    /// No more streams are opened.
    retired: Cell<bool>,
    /// It was retired in favor of requests that wait for another connection.
    leaves: Cell<bool>,
    /// A request was turned away because the output is full.
    is_choked: Cell<bool>,
    /// The endpoint has refused a stream, and accepted none since.
    pub(super) refuses: Cell<bool>,
    /// The limit of concurrent streams.
    most: u32,
    /// The limit of streams over the connection's life; `None`: no limit.
    lifetime: Option<u32>,
    /// Channels that have not opened a stream yet.
    pub(super) reserved: Cell<u32>,
    /// Streams opened so far.
    pub(super) served: Cell<u32>,
    /// The instant at which the last stream ended.
    idle_since: Cell<Time>,
    /// The instant of the last received bytes.
    pub(super) heard: Cell<Time>,
    /// A PING is outstanding.
    pub(super) is_pinged: Cell<bool>,
    writers: RefCell<Writers>,
    /// The request that waits until the endpoint has sent its limit of streams.
    beginner: RefCell<Option<Waker>>,
    /// The reason that the connection was closed.
    ended: Cell<Option<Lost>>,
    /// `:scheme` of its requests.
    pub(super) scheme: &'static str,
}

/// The codec and its buffers.
pub(super) struct State {
    pub(super) connection: Connection,
    /// Output that was not handed to the engine yet.
    pub(super) out: Vec<u8>,
    /// Bytes of an incomplete frame.
    pub(super) partial: Vec<u8>,
    /// By the codec's slots; `None` for streams without a reader.
    pub(super) streams: Vec<Option<Rc<Incoming>>>,
}

/// The queue for room in the connection's output: first in, first out.
#[derive(Default)]
struct Writers {
    tickets: u64,
    queue: VecDeque<(u64, Waker)>,
}

/// The parameters of a new session.
pub(crate) struct Beginning {
    pub(crate) stream: Stream,
    pub(crate) permit: Option<Permit>,
    /// The endpoint.
    pub(crate) toward: Toward,
    /// The connection uses TLS.
    pub(crate) secure: bool,
    /// The limit of concurrent streams.
    pub(crate) streams: u32,
    /// The limit of streams over the connection's life; `None`: no limit.
    pub(crate) lifetime: Option<u32>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?}, {} served)", self.wire, self.served.get())
    }
}

impl Session {
    /// Starts a session: sends the connection preface.
    pub(crate) fn new(cx: &Cx, common: &Rc<Common>, beginning: Beginning) -> Rc<Session> {
        let mut out = Vec::new();
        let limits = super::limits_for(beginning.streams);
        let now = cx.now();
        let connection = Connection::new(Role::Client, &limits, Duration::from_nanos(now.0), &mut out);
        let session = Rc::new(Session {
            cx: cx.clone(),
            common: Rc::clone(common),
            wire: RefCell::new(Some(beginning.stream)),
            state: RefCell::new(State {
                connection,
                out,
                partial: Vec::new(),
                streams: Vec::new(),
            }),
            permit: RefCell::new(beginning.permit),
            toward: beginning.toward,
            retired: Cell::new(false),
            leaves: Cell::new(false),
            is_choked: Cell::new(false),
            refuses: Cell::new(false),
            most: beginning.streams,
            lifetime: beginning.lifetime,
            reserved: Cell::new(0),
            served: Cell::new(0),
            idle_since: Cell::new(now),
            heard: Cell::new(now),
            is_pinged: Cell::new(false),
            writers: RefCell::default(),
            beginner: RefCell::default(),
            ended: Cell::new(None),
            scheme: if beginning.secure { "https" } else { "http" },
        });
        common.open.set(common.open.get() + 1);
        let ear = Ear(Rc::downgrade(&session));
        if let Some(stream) = &*session.wire.borrow() {
            stream.set_deadline(None);
            stream.attend(Some(Rc::new(ear)));
        }
        session.flush(&mut session.state.borrow_mut());
        // Bytes received before the receiver was set cause no event.
        session.listen();
        session
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.wire.borrow().is_none()
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
    pub(super) fn room(&self) -> usize {
        if self.retired.get() {
            return 0;
        }
        // More requests would only add to output that the endpoint does not read.
        let is_choked = |stream: &Stream| stream.unsent() >= WRITE_MARK;
        if self.wire.borrow().as_ref().is_none_or(is_choked) {
            self.is_choked.set(true);
            return 0;
        }
        let connection = &self.state.borrow().connection;
        if !connection.is_established() {
            return 0;
        }
        let reserved = self.reserved.get();
        let begun = self.served.get().saturating_add(reserved);
        let left = self.lifetime.map_or(u32::MAX, |most| most.saturating_sub(begun));
        let room = (self.most as usize).saturating_sub(connection.open_streams());
        let room = room.min(connection.openable()).saturating_sub(reserved as usize);
        room.min(left as usize)
    }

    /// Returns whether the endpoint has sent its limit of streams.
    pub(super) fn is_begun(&self) -> bool {
        self.state.borrow().connection.is_established()
    }

    /// Returns whether each channel without a stream can open one.
    pub(super) fn has_room_for_reserved(&self) -> bool {
        let openable = self.state.borrow().connection.openable();
        !self.is_closed() && openable >= self.reserved.get() as usize
    }

    /// Reserves a stream for a request, which opens it. Requires [`room`](Self::room).
    pub(crate) fn reserve(self: &Rc<Self>) -> Channel {
        self.reserved.set(self.reserved.get() + 1);
        Channel::new(Rc::clone(self))
    }

    /// Waits until the endpoint has sent its limit of streams.
    pub(super) fn poll_begun(&self, context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        if let Some(why) = self.ended.get() {
            return Poll::Ready(Err(why));
        }
        if self.state.borrow().connection.is_established() {
            return Poll::Ready(Ok(()));
        }
        *self.beginner.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// Wakes the request that waits for the limit: it was received, or will not be.
    pub(super) fn has_begun(&self) {
        let beginner = self.beginner.borrow_mut().take();
        beginner.into_iter().for_each(Waker::wake);
    }

    /// Retires the session: no more streams are opened, and it is closed when the last has ended.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        if self.is_idle() {
            drop(self.close());
        }
    }

    /// Closes the session with a GOAWAY. Returns the permit to open another connection in its place.
    pub(crate) fn close(&self) -> Option<Permit> {
        {
            let state = &mut *self.state.borrow_mut();
            if state.connection.fault().is_none() {
                state.connection.abandon(ErrorCode::NO_ERROR, &mut state.out);
            }
            self.flush(state);
        }
        self.end(Lost::Closed)
    }

    /// Ends the session after its connection has ended.
    pub(super) fn end(&self, why: Lost) -> Option<Permit> {
        self.retired.set(true);
        let wire = self.wire.borrow_mut().take()?;
        self.ended.set(Some(why));
        self.has_begun();
        let open = self.common.open.get() - 1;
        self.common.open.set(open);
        if open == 0 {
            self.common.spare.borrow_mut().clear();
        }
        let permit = self.permit.borrow_mut().take();
        if self.leaves.get()
            && let Some(permit) = &permit
        {
            permit.shared().left();
        }
        let streams = std::mem::take(&mut self.state.borrow_mut().streams);
        let mut readers = Vec::new();
        for incoming in streams.iter().flatten() {
            incoming.lose(why);
            readers.extend(incoming.attendant.take());
        }
        let writers = std::mem::take(&mut self.writers.borrow_mut().queue);
        writers.into_iter().for_each(|(_, waker)| waker.wake());
        drop(wire);
        readers.into_iter().for_each(|reader| reader.came());
        permit
    }

    /// Changes the codec's state, writes the resulting output, and offers streams that became free.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let before = state.connection.open_streams();
        let outcome = change(&mut state);
        self.flush(&mut state);
        let freed = before.saturating_sub(state.connection.open_streams());
        drop(state);
        if freed > 0 {
            self.freed(freed);
        }
        outcome
    }

    /// Handles that `count` streams have ended.
    pub(super) fn freed(&self, count: usize) {
        let is_worn = self.lifetime.is_some_and(|most| self.served.get() >= most);
        if is_worn {
            self.retired.set(true);
        }
        if self.is_idle() {
            self.idle_since.set(self.cx.now());
        }
        self.offer(count);
    }

    /// Offers `count` free streams to requests that wait for a connection; closes the session if they need its place.
    pub(super) fn offer(&self, count: usize) {
        let shared = self.permit.borrow().as_ref().map(Permit::shared);
        for _ in 0..count.min(self.room()) {
            let Some(shared) = &shared else { break };
            // An idle session can be closed at once, so any waiter can profit.
            let (worker, is_idle) = (self.cx.worker(), self.is_idle());
            let may_close = is_idle || shared.may_leave();
            let handed = match is_idle {
                true => shared.waiting.hand_over(worker),
                false => shared.waiting.hand_over_stream(worker, self.toward, may_close),
            };
            let close = match handed {
                Handover::Close => true,
                Handover::Handed => may_close && shared.room.wants_handed(),
                Handover::Keep => is_idle && shared.room.wants_idle(),
            };
            if close && (is_idle || shared.begin_leaving()) {
                self.leaves.set(!is_idle);
                self.retired.set(true);
                break;
            }
        }
        if self.is_idle() && (self.retired.get() || self.cx.is_draining()) {
            drop(self.close());
        }
    }

    /// Offers streams again after the output was too full.
    pub(super) fn breathe(&self) {
        if self.is_choked.replace(false) {
            self.offer(self.room());
        }
    }

    /// Hands the output to the engine.
    pub(super) fn flush(&self, state: &mut State) {
        if state.out.is_empty() {
            return;
        }
        if let Some(stream) = &*self.wire.borrow() {
            // Fails if the connection has just ended, which the receiver observes.
            let _ = stream.write_now(&state.out);
        }
        state.out.clear();
        state.out.shrink_to(limits::SESSION_OUT_KEPT);
    }

    /// Reads all received bytes.
    pub(super) fn listen(&self) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let mut bytes = Vec::new();
            let polled = match &*self.wire.borrow() {
                None => return,
                Some(stream) => stream.poll_received(&mut context, |received| {
                    bytes.extend_from_slice(received);
                    received.len()
                }),
            };
            let why = match polled {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => Lost::Closed,
                Poll::Ready(Ok(_)) => {
                    self.hear(&bytes);
                    continue;
                }
                Poll::Ready(Err(_)) => Lost::Reset,
            };
            drop(self.end(why));
            return;
        }
    }

    /// Sends a PING unless one is outstanding: without a response the connection is closed.
    pub(super) fn ping(&self) {
        if self.is_pinged.replace(true) {
            return;
        }
        if let Some(stream) = &*self.wire.borrow() {
            stream.set_deadline(Some(limits::UPSTREAM_PING_WAIT));
        }
        self.with(|state| state.connection.ping(*b"ringmain", &mut state.out));
    }

    /// Records received bytes: the connection is alive.
    pub(super) fn lives(&self) {
        self.heard.set(self.cx.now());
        if self.is_pinged.replace(false)
            && let Some(stream) = &*self.wire.borrow()
        {
            stream.set_deadline(None);
        }
    }

    /// Waits until the connection accepts more output, in turn. `ticket` is the caller's position in the queue, 0 for none.
    pub(super) fn poll_room(&self, ticket: &Cell<u64>, context: &mut Context<'_>) -> Poll<()> {
        let wire = self.wire.borrow();
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
    pub(super) fn leave(&self, ticket: &Cell<u64>) {
        if ticket.get() != 0 {
            self.writers.borrow_mut().leave(ticket);
        }
    }
}

impl Writers {
    fn join(&mut self, ticket: &Cell<u64>, waker: &Waker) {
        if ticket.get() != 0
            && let Some((_, own)) = self.queue.iter_mut().find(|(other, _)| *other == ticket.get())
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
        self.queue.retain(|(other, _)| *other != own);
        if let Some((_, first)) = self.queue.front() {
            first.wake_by_ref();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.close());
    }
}

/// A weak reference to a session.
pub(super) type Gone = Weak<Session>;
