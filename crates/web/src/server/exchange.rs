//! One request of an asynchronous handler: what its connection and its task tell each other.
//!
//! ```text
//!           launch                    finish, kept alive
//! Idle ───────────────► Running ─────────────────────────► Idle (the next serial)
//!                          └────── finish, closing ──────► Closing (not used again)
//! ```
//!
//! The connection recognises by the serial that its exchange is over: the exchange may be serving another one by
//! then. Knows nothing of handlers and routes.

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

use super::coming::{Coming, Incoming, Receiving};
use super::early::{Asked, Early};
use super::held::Collected;
use super::http2::Line;
use super::stream::EventFraming;
use crate::error::{Error, Result};
use crate::limits;
use crate::origin::Origin;
use crate::ws::Live;

/// A request as it is handed to a task.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) origin: Origin,
    pub(crate) began: Time,
    /// Whether the answer says `Connection: close`, whatever the client wants.
    pub(crate) last: bool,
}

/// The request's bytes: kept with the exchange, so that their memory is used again.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// What the body counts in the worker's budget.
    pub(crate) collected: Option<Collected>,
}

/// See the module.
pub(crate) struct Exchange {
    pub(crate) cx: Cx,
    serial: Cell<u64>,
    job: Cell<Option<Job>>,
    conn: Cell<Option<ConnId>>,
    task: Cell<Option<TaskId>>,
    /// The task, while it waits for a job or for the client.
    waiting: RefCell<Option<Waker>>,
    /// The answer closes the connection: shutdown has begun, or the client has sent its end.
    pub(crate) last: Cell<bool>,
    /// It has closed it.
    pub(crate) closing: Cell<bool>,
    /// The task is not kept: idle, it ends.
    pub(super) surplus: Cell<bool>,
    /// An event stream has begun, in chunks or not: the connection may end it.
    pub(crate) events: Cell<Option<EventFraming>>,
    pub(crate) buffers: RefCell<Buffers>,
    incoming: RefCell<Incoming>,
    /// A request that is to be answered without the task.
    asked: Cell<Option<Asked>>,
    /// What a request has made of its connection, which has not seen it yet: by the request's serial.
    socket: RefCell<Option<(u64, Box<Live>)>>,
    /// Who has its ticket, or left it to a task that has not begun.
    early: RefCell<Option<Rc<dyn Early>>>,
    /// The stream of HTTP/2 that it is of.
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
            asked: Cell::new(None),
            socket: RefCell::default(),
            early: RefCell::new(None),
            line: RefCell::new(None),
        })
    }

    // What the connection calls.

    /// Hands a request to the task. `decoder`: the body is streamed.
    pub(crate) fn begin(&self, job: Job, decoder: Option<BodyDecoder>, expects: bool) -> u64 {
        self.job.set(Some(job));
        self.reset(job, decoder.map(Coming::Http1), expects);
        self.wake();
        self.serial.get()
    }

    /// The same for a stream of HTTP/2. `most`: its body is streamed, of so many bytes at most.
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

    /// The stream of HTTP/2 that it is of.
    pub(crate) fn line(&self) -> Option<Line> {
        self.line.borrow().clone()
    }

    /// The same, for it is done with it.
    pub(crate) fn take_line(&self) -> Option<Line> {
        self.line.borrow_mut().take()
    }

    /// A request without a body that is to be answered without the task; `line`: it is of that stream of HTTP/2.
    pub(crate) fn ask(&self, asked: Asked, line: Option<Line>) -> u64 {
        self.asked.set(Some(asked));
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

    // What has to do with a request that needs no task.

    /// What was asked, as long as nobody has answered and no task is to.
    pub(crate) fn asked(&self) -> Option<Asked> {
        self.asked.get()
    }

    pub(crate) fn take_asked(&self) -> Option<Asked> {
        self.asked.take()
    }

    pub(crate) fn set_early(&self, early: Rc<dyn Early>) {
        *self.early.borrow_mut() = Some(early);
    }

    pub(crate) fn take_early(&self) -> Option<Rc<dyn Early>> {
        self.early.borrow_mut().take()
    }

    /// The request is the task's, which is to be woken or begun.
    pub(crate) fn hand_over(&self, job: Job) {
        self.job.set(Some(job));
    }

    /// No task could be begun.
    pub(crate) fn take_back(&self, asked: Asked) {
        self.job.set(None);
        self.asked.set(Some(asked));
    }

    /// Nothing of such a request is left.
    pub(crate) fn forget(&self) {
        self.asked.set(None);
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

    /// Whether the request that began with `serial` is being answered still.
    pub(crate) fn runs(&self, serial: u64) -> bool {
        self.serial.get() == serial && !self.closing.get()
    }

    /// Whether that request's answer has closed the connection.
    pub(crate) fn closes(&self, serial: u64) -> bool {
        self.serial.get() == serial && self.closing.get()
    }

    /// Whether the task has not even looked at the request.
    pub(crate) fn was_not_begun(&self) -> bool {
        self.job.get().is_some()
    }

    /// Something that the task may wait for has happened.
    pub(crate) fn wake(&self) {
        let waker = self.waiting.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what belongs to the streamed body from `input`; returns how much. The rest waits.
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
                // The next request, or more than the handler has asked for.
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
                                // Names are tokens; those that frame a message were refused before.
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

    /// What the request that began with `serial` has made of the connection.
    pub(crate) fn take_socket(&self, serial: u64) -> Option<Box<Live>> {
        let mut socket = self.socket.borrow_mut();
        socket.take_if(|(of, _)| *of == serial).map(|(_, live)| live)
    }

    /// The client has sent its last byte.
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

    /// Takes part of a body that comes on a stream of HTTP/2; returns how many bytes of it nobody will take.
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

    /// What follows a body on a stream of HTTP/2, and its end.
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

    /// Whether the task has what is left to do of a connection that has ended in order: a tunnel is over for the engine when
    /// both sides have sent their end, and its handler may still hold bytes of the client's.
    pub(crate) fn outlives_connection(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.half && incoming.ended
    }

    /// How the body comes in; `None` when nothing is expected of the client.
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
            // Nobody reads; who does next sets the deadline.
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

    /// Bytes a second that this request's body and response must move; `None`: as the application has it.
    pub(crate) fn rate(&self) -> Option<u32> {
        self.incoming.borrow().rate
    }

    /// Whether the deadline is that of the body.
    pub(crate) fn is_ticking(&self) -> bool {
        self.incoming.borrow().ticking
    }

    /// There will be no more of the body: the handler is told at its next piece.
    pub(crate) fn fail(&self, error: Error) {
        let mut incoming = self.incoming.borrow_mut();
        incoming.ticking = false;
        incoming.fault.get_or_insert(error);
        drop(incoming);
        self.wake();
    }

    // What the task calls.

    /// The next request; `None`: there is none for it any more.
    pub(crate) async fn next(&self) -> Option<Job> {
        poll_fn(|context| match self.job.take() {
            Some(job) => Poll::Ready(Some(job)),
            None if self.surplus.get() => Poll::Ready(None),
            None => self.wait(context),
        })
        .await
    }

    /// Waits until the connection has something to say.
    pub(crate) fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waiting = self.waiting.borrow_mut();
        match &mut *waiting {
            Some(waker) if waker.will_wake(context.waker()) => {}
            place => *place = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// The next piece of the streamed body.
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
                // Refused only when the connection is over; then the task is ended.
                let _ = match &line {
                    Some(line) => line.session.interim(line.stream, 100, &FieldBlock::new()),
                    None => conn.write(CONTINUE).map_err(super::stream::gone),
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
            // Each piece would put it off, if it were set anew.
            if !incoming.patient && !std::mem::replace(&mut incoming.ticking, true) && line.is_none() {
                conn.set_deadline(Some(limits::RATE_TICK));
            }
            drop(incoming);
            self.wait(context)
        })
        .await
    }

    /// Asks no rate of the streamed body from here on.
    pub(crate) fn wait_patiently(&self) {
        self.incoming.borrow_mut().patient = true;
    }

    /// Sets the rate of this request, in place of the application's.
    pub(crate) fn set_minimum_rate(&self, bytes: u32) {
        self.incoming.borrow_mut().rate = Some(bytes);
    }

    /// The fields that came behind the streamed body; once.
    pub(crate) fn trailers(&self) -> FieldBlock {
        std::mem::take(&mut self.incoming.borrow_mut().trailers)
    }

    /// What has come on a stream of HTTP/2 that is to be a socket, and whether the client has ended it.
    pub(crate) fn take_queue(&self) -> (Vec<u8>, bool) {
        let incoming = &mut *self.incoming.borrow_mut();
        (
            std::mem::take(&mut incoming.queue),
            incoming.coming.as_ref().is_some_and(Coming::is_over),
        )
    }

    /// From here on what the client sends is handed over as it comes. What it has sent already is there first.
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

    /// Tells a tunnel's client that nothing more comes; it may go on.
    pub(crate) fn end_half(&self) {
        self.incoming.borrow_mut().half = true;
        self.conn().shutdown();
    }

    /// The next bytes of a tunnel; `None` at its end.
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

    /// The final answer begins: no interim one may follow (RFC 9110 §15.2). A client that waits for `100 Continue` sends
    /// its body after the final head, or not at all.
    pub(crate) fn answers(&self) {
        self.incoming.borrow_mut().expects = false;
    }

    /// Whether all of the body was received: the next request can be found.
    pub(crate) fn body_is_over(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.fault.is_none() && incoming.coming.as_ref().is_none_or(Coming::is_over)
    }

    /// Whether the answer closes the connection. A handler that waits for the shutdown hears of it before the
    /// connection does.
    pub(crate) fn is_last(&self) -> bool {
        self.last.get() || self.cx.is_draining()
    }

    /// The connection that is answered.
    pub(crate) fn conn(&self) -> Conn<'_> {
        let id = self.conn.get().expect("a request has a connection");
        self.cx.conn(id)
    }

    /// Bytes that the client has taken: of its connection, or of its stream of HTTP/2. Up to date at the next call.
    pub(crate) fn taken(&self) -> u64 {
        if let Some(line) = self.line() {
            return line.session.sent(line.stream);
        }
        let conn = self.conn();
        conn.count_sent();
        conn.sent()
    }

    /// Whether the client has sent its last byte.
    pub(crate) fn has_ended(&self) -> bool {
        self.incoming.borrow().ended
    }

    /// The request is answered and the connection lives on as a socket. The exchange is not used again.
    pub(crate) fn finish_as(&self, live: Box<Live>) {
        *self.socket.borrow_mut() = Some((self.serial.get(), live));
        self.finish();
    }

    /// The request is answered and the connection lives on.
    pub(crate) fn finish(&self) {
        self.serial.set(self.serial.get() + 1);
    }
}

/// RFC 9110 §15.2.1.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
