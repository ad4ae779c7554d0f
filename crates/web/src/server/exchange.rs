//! One request of an asynchronous handler: the state shared by its connection and its task.
//!
//! ```text
//!           launch                    finish, keep-alive
//! Idle ───────────────► Running ─────────────────────────► Idle (the next serial)
//!                          └────── finish, closing ──────► Closing (not used again)
//! ```
//!
//! The connection detects by the serial that its request is finished: the exchange may be serving another one by then. Knows
//! nothing of handlers and routes.

mod expect;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx, TaskId};
use ringmain_wire::h1::{BodyDecoder, BodyEvent, Field, FieldBlock};

use super::body_progress::{Coming, Incoming, Receiving};
use super::fast_path::{Early, PendingRequest};
use super::http2::Line;
use super::memory_budget::Collected;
use super::response_stream::EventFraming;
use crate::http::error::{Error, Result};
use crate::limits;
use crate::server::peer::Origin;
use crate::ws::Live;

/// A request as it is handed to a task.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) origin: Origin,
    pub(crate) began: Time,
    /// The response says `Connection: close`, whatever the client wants.
    pub(crate) last: bool,
}

/// The request's bytes, stored with the exchange to reuse their memory.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// The reservation of the body in the worker's budget.
    pub(crate) collected: Option<Collected>,
}

/// See the module.
pub(crate) struct Exchange {
    pub(crate) cx: Cx,
    serial: Cell<u64>,
    job: Cell<Option<Job>>,
    conn: Cell<Option<ConnId>>,
    task: Cell<Option<TaskId>>,
    /// The waker of the task while it waits for a request or for the client.
    waiting: RefCell<Option<Waker>>,
    /// The response closes the connection: shutdown has begun, or the client has shut down its side.
    pub(crate) last: Cell<bool>,
    /// The response has closed the connection.
    pub(crate) closing: Cell<bool>,
    /// The task exceeds the pool: it ends once idle.
    pub(super) surplus: Cell<bool>,
    /// The framing of an event stream, once started: the connection may end the stream.
    pub(crate) events: Cell<Option<EventFraming>>,
    pub(crate) buffers: RefCell<Buffers>,
    incoming: RefCell<Incoming>,
    /// A request to be answered without the task.
    pending: Cell<Option<PendingRequest>>,
    /// The WebSocket that a request, named by its serial, has made of its connection, until the connection takes it.
    socket: RefCell<Option<(u64, Box<Live>)>>,
    /// The holder of the request's ticket, also after it left the request to a task that has not started.
    early: RefCell<Option<Rc<dyn Early>>>,
    /// The HTTP/2 stream of the request.
    line: RefCell<Option<Line>>,
}

impl Exchange {
    pub(crate) fn new(cx: &Cx) -> Rc<Exchange> {
        Rc::new(Exchange {
            cx: cx.clone(),
            serial: Cell::new(0),
            job: Cell::new(None),
            conn: Cell::new(None),
            task: Cell::new(None),
            waiting: RefCell::new(None),
            last: Cell::new(false),
            closing: Cell::new(false),
            surplus: Cell::new(false),
            events: Cell::new(None),
            buffers: RefCell::default(),
            incoming: RefCell::default(),
            pending: Cell::new(None),
            socket: RefCell::default(),
            early: RefCell::new(None),
            line: RefCell::new(None),
        })
    }

    // Called by the connection.

    /// Hands a request to the task and returns its serial. `decoder`: the body is streamed.
    pub(crate) fn begin(&self, job: Job, decoder: Option<BodyDecoder>, expects: bool) -> u64 {
        self.job.set(Some(job));
        self.reset(job, decoder.map(Coming::Http1), expects);
        self.wake();
        self.serial.get()
    }

    /// Hands over a request of an HTTP/2 stream. `most`: its body is streamed, with this limit in bytes.
    pub(crate) fn begin_on(&self, job: Job, line: Line, most: Option<Option<u64>>, expects: bool) -> u64 {
        self.job.set(Some(job));
        let coming = most.map(|most| Coming::Http2 {
            received: 0,
            most,
            over: false,
        });
        self.reset(job, coming, expects);
        *self.line.borrow_mut() = Some(line);
        self.wake();
        self.serial.get()
    }

    /// Returns the HTTP/2 stream of the request.
    pub(crate) fn line(&self) -> Option<Line> {
        self.line.borrow().clone()
    }

    /// Takes the HTTP/2 stream, when the request is done with it.
    pub(crate) fn take_line(&self) -> Option<Line> {
        self.line.borrow_mut().take()
    }

    /// Stores a request without a body to be answered without the task; `line`: its HTTP/2 stream. Returns its serial.
    pub(crate) fn store_pending(&self, asked: PendingRequest, line: Option<Line>) -> u64 {
        self.pending.set(Some(asked));
        self.reset(asked.job, None, false);
        *self.line.borrow_mut() = line;
        self.serial.get()
    }

    fn reset(&self, job: Job, coming: Option<Coming>, expects: bool) {
        *self.line.borrow_mut() = None;
        self.last.set(job.last);
        self.events.set(None);
        self.conn.set(Some(job.origin.conn));
        let mut incoming = self.incoming.borrow_mut();
        incoming.coming = coming;
        incoming.expects = expects && coming.is_some();
        incoming.invited = false;
        incoming.fault = None;
        incoming.paused = false;
        incoming.held = false;
        incoming.taken = Some(job.began);
        incoming.away = Duration::ZERO;
        incoming.ticking = false;
        incoming.tunnel = false;
        incoming.patient = false;
        incoming.rate = None;
        incoming.ended = false;
        incoming.half = false;
        incoming.line = None;
        incoming.queue.clear();
        incoming.trailers.clear();
    }

    // For a request that needs no task.

    /// Returns the pending request, until it is answered or handed to a task.
    pub(crate) fn pending(&self) -> Option<PendingRequest> {
        self.pending.get()
    }

    pub(crate) fn take_pending(&self) -> Option<PendingRequest> {
        self.pending.take()
    }

    pub(crate) fn set_early(&self, early: Rc<dyn Early>) {
        *self.early.borrow_mut() = Some(early);
    }

    pub(crate) fn take_early(&self) -> Option<Rc<dyn Early>> {
        self.early.borrow_mut().take()
    }

    /// Hands the request to the task, which the caller wakes or starts.
    pub(crate) fn hand_over(&self, job: Job) {
        self.job.set(Some(job));
    }

    /// Restores the pending request when no task could be started.
    pub(crate) fn take_back(&self, asked: PendingRequest) {
        self.job.set(None);
        self.pending.set(Some(asked));
    }

    /// Discards the rest of a request that was answered without a task.
    pub(crate) fn forget(&self) {
        self.pending.set(None);
        drop(self.take_early());
        let head = &mut self.buffers.borrow_mut().head;
        head.clear();
        head.shrink_to(limits::SCRATCH_BYTES);
    }

    pub(crate) fn set_task(&self, task: TaskId) {
        self.task.set(Some(task));
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        self.task.get()
    }

    /// Returns true while the request with this `serial` is being processed.
    pub(crate) fn runs(&self, serial: u64) -> bool {
        self.serial.get() == serial && !self.closing.get()
    }

    /// Returns true if the response to the request with this `serial` has closed the connection.
    pub(crate) fn closes(&self, serial: u64) -> bool {
        self.serial.get() == serial && self.closing.get()
    }

    /// Returns true if the task has not started on the request.
    pub(crate) fn was_not_begun(&self) -> bool {
        self.job.get().is_some()
    }

    /// Wakes the task if it waits.
    pub(crate) fn wake(&self) {
        let waker = self.waiting.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the streamed body's part of `input` and returns its length. The rest stays with the caller.
    pub(crate) fn feed(&self, conn: Conn<'_>, input: &[u8]) -> usize {
        let mut consumed = 0;
        let mut incoming = self.incoming.borrow_mut();
        let incoming = &mut *incoming;
        if incoming.tunnel {
            return incoming.feed_tunnel(conn, input);
        }
        loop {
            let over = incoming.coming.as_ref().is_none_or(Coming::is_over);
            if over || incoming.fault.is_some() || incoming.queue.len() >= limits::BODY_QUEUE {
                // The next request, or more than the queue may hold.
                if consumed < input.len() {
                    incoming.paused = true;
                    conn.pause();
                }
                break;
            }
            let Some(Coming::Http1(decoder)) = &mut incoming.coming else {
                break;
            };
            match decoder.decode(&input[consumed..]) {
                Ok(step) => {
                    consumed += step.consumed;
                    match step.event {
                        BodyEvent::Data(data) => incoming.queue.extend_from_slice(data),
                        BodyEvent::NeedMore => break,
                        BodyEvent::Trailers(trailers) => {
                            for field in trailers.iter() {
                                // Names are tokens; framing fields were rejected before.
                                let name = str::from_utf8(field.name).unwrap_or_default();
                                let _ = incoming.trailers.push(name, field.value);
                            }
                        }
                        BodyEvent::End => {}
                    }
                }
                Err(fault) => incoming.fault = Some(Error::from_fault(&fault)),
            }
        }
        consumed
    }

    /// Takes the WebSocket that the request with this `serial` opened.
    pub(crate) fn take_socket(&self, serial: u64) -> Option<Box<Live>> {
        let mut socket = self.socket.borrow_mut();
        socket.take_if(|(of, _)| *of == serial).map(|(_, live)| live)
    }

    /// Records that the client has sent its last byte.
    pub(crate) fn end_of_input(&self) {
        let mut incoming = self.incoming.borrow_mut();
        let incoming = &mut *incoming;
        incoming.ended = true;
        match &mut incoming.coming {
            Some(Coming::Http1(decoder)) => {
                if let Err(fault) = decoder.end_of_input() {
                    incoming.fault.get_or_insert_with(|| Error::from_fault(&fault));
                }
            }
            Some(Coming::Http2 { over: false, .. }) => {
                incoming.fault.get_or_insert_with(Error::disconnected);
            }
            _ => {}
        }
    }

    /// Queues part of a body that arrives on an HTTP/2 stream; returns the number of bytes that were discarded.
    pub(crate) fn push_body(&self, data: &[u8], end: bool) -> usize {
        let mut incoming = self.incoming.borrow_mut();
        let faulty = incoming.fault.is_some();
        let Some(Coming::Http2 { received, most, over }) = &mut incoming.coming else {
            return data.len();
        };
        *received += data.len() as u64;
        *over |= end;
        let too_long = most.is_some_and(|most| *received > most);
        if faulty || too_long {
            if too_long {
                let what = "expected a shorter body: this is more than is taken here";
                incoming.fault.get_or_insert_with(|| Error::new(413, what));
            }
            drop(incoming);
            self.wake();
            return data.len();
        }
        incoming.queue.extend_from_slice(data);
        drop(incoming);
        self.wake();
        0
    }

    /// Ends a body on an HTTP/2 stream, with its trailers.
    pub(crate) fn end_body<'f>(&self, trailers: impl Iterator<Item = Field<'f>>) {
        let mut incoming = self.incoming.borrow_mut();
        if let Some(Coming::Http2 { over, .. }) = &mut incoming.coming {
            *over = true;
        }
        for field in trailers {
            let name = str::from_utf8(field.name).unwrap_or_default();
            let _ = incoming.trailers.push(name, field.value);
        }
        drop(incoming);
        self.wake();
    }

    /// Returns true if the task still has work to do after the connection has closed properly: for the engine a tunnel is closed
    /// once both sides have sent their FIN, but its handler may still hold bytes from the client.
    pub(crate) fn outlives_connection(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.half && incoming.ended
    }

    /// Returns the progress of the body; `None` when no byte is expected from the client.
    pub(crate) fn receiving(&self) -> Option<Receiving> {
        let incoming = &mut *self.incoming.borrow_mut();
        let coming = incoming.coming.as_ref()?;
        let held = incoming.paused || incoming.expects || incoming.queue.len() >= limits::BODY_QUEUE;
        if held || incoming.patient || incoming.fault.is_some() || coming.is_over() {
            incoming.held = true;
            incoming.ticking = false;
            return None;
        }
        if incoming.taken.is_some() {
            // The handler is not reading; its next read sets the deadline.
            incoming.ticking = false;
            return None;
        }
        Some(Receiving {
            bytes: coming.consumed(),
            anew: std::mem::take(&mut incoming.held),
            away: std::mem::take(&mut incoming.away),
            rate: incoming.rate,
        })
    }

    /// See [`Incoming::line_due`].
    pub(crate) fn line_due(&self, now: Time, span: Duration) -> Option<Time> {
        self.incoming.borrow_mut().line_due(now, span)
    }

    /// Returns the minimum rate of this request's body and response in bytes per second; `None`: the application's.
    pub(crate) fn rate(&self) -> Option<u32> {
        self.incoming.borrow().rate
    }

    /// Returns true if the deadline belongs to the body.
    pub(crate) fn is_ticking(&self) -> bool {
        self.incoming.borrow().ticking
    }

    /// Ends the body with an error, which the handler receives at its next read.
    pub(crate) fn fail(&self, error: Error) {
        let mut incoming = self.incoming.borrow_mut();
        incoming.ticking = false;
        incoming.fault.get_or_insert(error);
        drop(incoming);
        self.wake();
    }

    // Called by the task.

    /// Waits for the next request; `None`: the task is surplus.
    pub(crate) async fn next(&self) -> Option<Job> {
        poll_fn(|context| match self.job.take() {
            Some(job) => Poll::Ready(Some(job)),
            None if self.surplus.get() => Poll::Ready(None),
            None => self.wait(context),
        })
        .await
    }

    /// Waits until the connection wakes the task.
    pub(crate) fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waiting = self.waiting.borrow_mut();
        match &mut *waiting {
            Some(waker) if waker.will_wake(context.waker()) => {}
            place => *place = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns the next chunk of the streamed body.
    pub(crate) async fn chunk(&self) -> Result<Option<Bytes>> {
        if self.incoming.borrow().tunnel {
            return Ok(self.tunnelled().await);
        }
        poll_fn(|context| {
            let conn = self.conn();
            let line = self.line();
            let mut incoming = self.incoming.borrow_mut();
            let Some(coming) = incoming.coming else {
                return Poll::Ready(Ok(None));
            };
            if std::mem::take(&mut incoming.expects) {
                incoming.invited = true;
                // Fails only when the connection is closed; the task then ends.
                let _ = match &line {
                    Some(line) => line.session.interim(line.stream, 100, &FieldBlock::new()),
                    None => conn.write(CONTINUE).map_err(super::response_stream::gone),
                };
            }
            if !incoming.queue.is_empty() {
                let bytes = Bytes::from(std::mem::take(&mut incoming.queue));
                let paused = std::mem::take(&mut incoming.paused);
                incoming.held |= paused;
                incoming.taken = Some(self.cx.now());
                drop(incoming);
                match &line {
                    Some(line) => line.session.consume(line.stream, bytes.len()),
                    None if paused && !coming.is_over() => conn.resume(),
                    None => {}
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            if let Some(fault) = &incoming.fault {
                return Poll::Ready(Err(fault.again()));
            }
            if coming.is_over() {
                return Poll::Ready(Ok(None));
            }
            if let Some(taken) = incoming.taken.take() {
                incoming.away += self.cx.now().since(taken);
            }
            // Setting the deadline again at each chunk would postpone it.
            if !incoming.patient && !std::mem::replace(&mut incoming.ticking, true) && line.is_none() {
                conn.set_deadline(Some(limits::RATE_TICK));
            }
            drop(incoming);
            self.wait(context)
        })
        .await
    }

    /// Disables the minimum rate of the streamed body.
    pub(crate) fn wait_patiently(&self) {
        self.incoming.borrow_mut().patient = true;
    }

    /// Sets the minimum rate of this request, in place of the application's.
    pub(crate) fn set_minimum_rate(&self, bytes: u32) {
        self.incoming.borrow_mut().rate = Some(bytes);
    }

    /// Takes the trailers of the streamed body.
    pub(crate) fn trailers(&self) -> FieldBlock {
        std::mem::take(&mut self.incoming.borrow_mut().trailers)
    }

    /// Takes the bytes received on an HTTP/2 stream that becomes a socket, and whether the client has ended the stream.
    pub(crate) fn take_queue(&self) -> (Vec<u8>, bool) {
        let incoming = &mut *self.incoming.borrow_mut();
        (
            std::mem::take(&mut incoming.queue),
            incoming.coming.as_ref().is_some_and(Coming::is_over),
        )
    }

    /// Turns the connection into a tunnel: the client's bytes are handed over as they arrive, after those already received.
    pub(crate) fn become_tunnel(&self) {
        let mut incoming = self.incoming.borrow_mut();
        incoming.tunnel = true;
        incoming.coming = None;
        let paused = std::mem::take(&mut incoming.paused);
        drop(incoming);
        self.last.set(true);
        let conn = self.conn();
        conn.set_deadline(None);
        if paused {
            conn.resume();
        }
    }

    /// Shuts down the sending side of a tunnel; the client may continue to send.
    pub(crate) fn end_half(&self) {
        self.incoming.borrow_mut().half = true;
        self.conn().shutdown();
    }

    /// Returns the next bytes of a tunnel; `None` at its end.
    async fn tunnelled(&self) -> Option<Bytes> {
        poll_fn(|context| {
            let mut incoming = self.incoming.borrow_mut();
            if incoming.queue.is_empty() {
                let ended = incoming.ended;
                drop(incoming);
                return if ended {
                    Poll::Ready(None)
                } else {
                    self.wait(context)
                };
            }
            let bytes = Bytes::from(std::mem::take(&mut incoming.queue));
            let paused = std::mem::take(&mut incoming.paused);
            drop(incoming);
            if paused {
                self.conn().resume();
            }
            Poll::Ready(Some(bytes))
        })
        .await
    }

    /// Marks the start of the final response: no interim one may follow (RFC 9110 §15.2). A client that waits for `100 Continue`
    /// sends its body after the final head, or not at all.
    pub(crate) fn answers(&self) {
        self.incoming.borrow_mut().expects = false;
    }

    /// Returns true if the whole body was received, so that the next request can be found.
    pub(crate) fn body_is_over(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.fault.is_none() && incoming.coming.as_ref().is_none_or(Coming::is_over)
    }

    /// Returns true if the response closes the connection. A handler that waits for the shutdown is notified before the connection
    /// is.
    pub(crate) fn is_last(&self) -> bool {
        self.last.get() || self.cx.is_draining()
    }

    /// Returns the request's connection.
    pub(crate) fn conn(&self) -> Conn<'_> {
        let id = self.conn.get().expect("a request has a connection");
        self.cx.conn(id)
    }

    /// Returns the bytes that the client has taken from its connection or its HTTP/2 stream, up to date at the next call.
    pub(crate) fn taken(&self) -> u64 {
        if let Some(line) = self.line() {
            return line.session.sent(line.stream);
        }
        let conn = self.conn();
        conn.count_sent();
        conn.sent()
    }

    /// Returns true if the client has sent its last byte.
    pub(crate) fn has_ended(&self) -> bool {
        self.incoming.borrow().ended
    }

    /// Completes the request; the connection continues as a socket. The exchange is not used again.
    pub(crate) fn finish_as(&self, live: Box<Live>) {
        *self.socket.borrow_mut() = Some((self.serial.get(), live));
        self.finish();
    }

    /// Completes the request; the connection stays open.
    pub(crate) fn finish(&self) {
        self.serial.set(self.serial.get() + 1);
    }
}

/// RFC 9110 §15.2.1.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
