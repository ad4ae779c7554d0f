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
mod tunnel;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx, TaskId};
use ringmain_wire::h1::{BodyDecoder, BodyEvent, Field, FieldBlock};

use super::body_progress::{BodyProgress, BodyQueue, ReceiveProgress};
use super::fast_path::{AbortHandle, PendingRequest};
use super::http2::StreamRef;
use super::memory_budget::BodyReservation;
use super::response_stream::EventFraming;
use crate::http::error::{Error, Result};
use crate::limits;
use crate::server::peer::PeerInfo;
use crate::ws::WsSession;

/// A request as it is handed to a task.
#[derive(Clone, Copy)]
pub(crate) struct TaskRequest {
    pub(crate) peer: PeerInfo,
    pub(crate) started_at: Time,
    /// The response says `Connection: close`, whatever the client wants.
    pub(crate) last: bool,
}

/// The request's bytes, stored with the exchange to reuse their memory.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// The reservation of the body in the worker's budget.
    pub(crate) collected: Option<BodyReservation>,
}

/// See the module.
pub(crate) struct Exchange {
    pub(crate) cx: Cx,
    serial: Cell<u64>,
    task_request: Cell<Option<TaskRequest>>,
    conn: Cell<Option<ConnId>>,
    task: Cell<Option<TaskId>>,
    /// The waker of the task while it waits for a request or for the client.
    waker: RefCell<Option<Waker>>,
    /// The response closes the connection: shutdown has begun, or the client has shut down its side.
    pub(crate) last: Cell<bool>,
    /// The response has closed the connection.
    pub(crate) closing: Cell<bool>,
    /// The task exceeds the pool: it ends once idle.
    pub(super) surplus: Cell<bool>,
    /// The framing of an event stream, once started: the connection may end the stream.
    pub(crate) events: Cell<Option<EventFraming>>,
    /// The handler ends the event stream when the process shuts down.
    pub(crate) outlives_drain: Cell<bool>,
    pub(crate) buffers: RefCell<Buffers>,
    body_queue: RefCell<BodyQueue>,
    /// A request to be answered without the task.
    pending: Cell<Option<PendingRequest>>,
    /// The WebSocket that a request, named by its serial, has made of its connection, until the connection takes it.
    socket: RefCell<Option<(u64, Box<WsSession>)>>,
    /// The holder of the request's responder, also after it left the request to a task that has not started.
    abort_handle: RefCell<Option<Rc<dyn AbortHandle>>>,
    /// The HTTP/2 stream of the request.
    stream_ref: RefCell<Option<StreamRef>>,
}

impl Exchange {
    pub(crate) fn new(cx: &Cx) -> Rc<Exchange> {
        Rc::new(Exchange {
            cx: cx.clone(),
            serial: Cell::new(0),
            task_request: Cell::new(None),
            conn: Cell::new(None),
            task: Cell::new(None),
            waker: RefCell::new(None),
            last: Cell::new(false),
            closing: Cell::new(false),
            surplus: Cell::new(false),
            events: Cell::new(None),
            outlives_drain: Cell::new(false),
            buffers: RefCell::default(),
            body_queue: RefCell::default(),
            pending: Cell::new(None),
            socket: RefCell::default(),
            abort_handle: RefCell::new(None),
            stream_ref: RefCell::new(None),
        })
    }

    // Called by the connection.

    /// Hands a request to the task and returns its serial. `decoder`: the body is streamed.
    pub(crate) fn start(
        &self,
        task_request: TaskRequest,
        decoder: Option<BodyDecoder>,
        expects: bool,
    ) -> u64 {
        self.task_request.set(Some(task_request));
        self.reset(task_request, decoder.map(BodyProgress::Http1), expects);
        self.wake();
        self.serial.get()
    }

    /// Hands over a request of an HTTP/2 stream. `most`: its body is streamed, with this limit in bytes.
    pub(crate) fn start_on_stream(
        &self,
        task_request: TaskRequest,
        stream_ref: StreamRef,
        most: Option<Option<u64>>,
        expects: bool,
    ) -> u64 {
        self.task_request.set(Some(task_request));
        let progress = most.map(|most| BodyProgress::Http2 {
            received: 0,
            most,
            ended: false,
        });
        self.reset(task_request, progress, expects);
        *self.stream_ref.borrow_mut() = Some(stream_ref);
        self.wake();
        self.serial.get()
    }

    /// Returns the HTTP/2 stream of the request.
    pub(crate) fn stream_ref(&self) -> Option<StreamRef> {
        self.stream_ref.borrow().clone()
    }

    /// Takes the HTTP/2 stream, when the request is done with it.
    pub(crate) fn take_stream_ref(&self) -> Option<StreamRef> {
        self.stream_ref.borrow_mut().take()
    }

    /// Stores a request without a body to be answered without the task; `stream_ref`: its HTTP/2 stream. Returns its serial.
    pub(crate) fn store_pending(&self, pending: PendingRequest, stream_ref: Option<StreamRef>) -> u64 {
        self.pending.set(Some(pending));
        self.reset(pending.task_request, None, false);
        *self.stream_ref.borrow_mut() = stream_ref;
        self.serial.get()
    }

    fn reset(&self, task_request: TaskRequest, progress: Option<BodyProgress>, expects: bool) {
        *self.stream_ref.borrow_mut() = None;
        self.last.set(task_request.last);
        self.events.set(None);
        self.outlives_drain.set(false);
        self.conn.set(Some(task_request.peer.conn));
        let mut body = self.body_queue.borrow_mut();
        body.progress = progress;
        body.expects_continue = expects && progress.is_some();
        body.continue_sent = false;
        body.fault = None;
        body.paused = false;
        body.was_paused = false;
        body.taken_at = Some(task_request.started_at);
        body.handler_time = Duration::ZERO;
        body.has_rate_deadline = false;
        body.tunnel = false;
        body.rate_exempt = false;
        body.minimum_rate = None;
        body.client_ended = false;
        body.half_closed = false;
        body.partial_line = None;
        body.queue.clear();
        body.trailers.clear();
    }

    // For a request that needs no task.

    /// Returns the pending request, until it is answered or handed to a task.
    pub(crate) fn pending(&self) -> Option<PendingRequest> {
        self.pending.get()
    }

    pub(crate) fn take_pending(&self) -> Option<PendingRequest> {
        self.pending.take()
    }

    pub(crate) fn set_abort_handle(&self, abort_handle: Rc<dyn AbortHandle>) {
        *self.abort_handle.borrow_mut() = Some(abort_handle);
    }

    pub(crate) fn take_abort_handle(&self) -> Option<Rc<dyn AbortHandle>> {
        self.abort_handle.borrow_mut().take()
    }

    /// Hands the request to the task, which the caller wakes or starts.
    pub(crate) fn assign_request(&self, task_request: TaskRequest) {
        self.task_request.set(Some(task_request));
    }

    /// Restores the pending request when no task could be started.
    pub(crate) fn restore_pending(&self, pending: PendingRequest) {
        self.task_request.set(None);
        self.pending.set(Some(pending));
    }

    /// Discards the rest of a request that was answered without a task.
    pub(crate) fn discard_request(&self) {
        self.pending.set(None);
        drop(self.take_abort_handle());
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

    /// Returns the serial of the current request.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.get()
    }

    /// Returns true while the request with this `serial` is being processed.
    pub(crate) fn is_running(&self, serial: u64) -> bool {
        self.serial.get() == serial && !self.closing.get()
    }

    /// Returns true if the response to the request with this `serial` has closed the connection.
    pub(crate) fn has_closed(&self, serial: u64) -> bool {
        self.serial.get() == serial && self.closing.get()
    }

    /// Returns true if the task has not started on the request.
    pub(crate) fn has_unstarted_request(&self) -> bool {
        self.task_request.get().is_some()
    }

    /// Wakes the task if it waits.
    pub(crate) fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the streamed body's part of `input` and returns its length. The rest stays with the caller.
    pub(crate) fn feed(&self, conn: Conn<'_>, input: &[u8]) -> usize {
        let mut consumed = 0;
        let mut body = self.body_queue.borrow_mut();
        let body = &mut *body;
        if body.tunnel {
            return body.feed_tunnel(conn, input);
        }
        loop {
            let complete = body.progress.as_ref().is_none_or(BodyProgress::is_complete);
            if complete || body.fault.is_some() || body.queue.len() >= limits::BODY_QUEUE_BYTES {
                // The next request, or more than the queue may hold.
                if consumed < input.len() {
                    body.paused = true;
                    conn.pause();
                }
                break;
            }
            let Some(BodyProgress::Http1(decoder)) = &mut body.progress else {
                break;
            };
            match decoder.decode(&input[consumed..]) {
                Ok(step) => {
                    consumed += step.consumed;
                    match step.event {
                        BodyEvent::Data(data) => body.queue.extend_from_slice(data),
                        BodyEvent::NeedMore => break,
                        BodyEvent::Trailers(trailers) => {
                            for field in trailers.iter() {
                                // Names are tokens; framing fields were rejected before.
                                let name = str::from_utf8(field.name).unwrap_or_default();
                                let _ = body.trailers.push(name, field.value);
                            }
                        }
                        BodyEvent::End => {}
                    }
                }
                Err(fault) => body.fault = Some(Error::from_fault(&fault)),
            }
        }
        consumed
    }

    /// Takes the WebSocket that the request with this `serial` opened.
    pub(crate) fn take_socket(&self, serial: u64) -> Option<Box<WsSession>> {
        let mut socket = self.socket.borrow_mut();
        socket
            .take_if(|(of, _)| *of == serial)
            .map(|(_, ws_session)| ws_session)
    }

    /// Records that the client has sent its last byte.
    pub(crate) fn end_of_input(&self) {
        let mut body = self.body_queue.borrow_mut();
        let body = &mut *body;
        body.client_ended = true;
        match &mut body.progress {
            Some(BodyProgress::Http1(decoder)) => {
                if let Err(fault) = decoder.end_of_input() {
                    body.fault.get_or_insert_with(|| Error::from_fault(&fault));
                }
            }
            Some(BodyProgress::Http2 { ended: false, .. }) => {
                body.fault.get_or_insert_with(Error::disconnected);
            }
            _ => {}
        }
    }

    /// Queues part of a body that arrives on an HTTP/2 stream; returns the number of bytes that were discarded.
    pub(crate) fn push_body(&self, data: &[u8], end: bool) -> usize {
        let mut body = self.body_queue.borrow_mut();
        let faulty = body.fault.is_some();
        let Some(BodyProgress::Http2 {
            received,
            most,
            ended,
        }) = &mut body.progress
        else {
            return data.len();
        };
        *received += data.len() as u64;
        *ended |= end;
        let too_long = most.is_some_and(|most| *received > most);
        if faulty || too_long {
            if too_long {
                let message = "request body is longer than this route allows";
                body.fault.get_or_insert_with(|| Error::new(413, message));
            }
            drop(body);
            self.wake();
            return data.len();
        }
        body.queue.extend_from_slice(data);
        drop(body);
        self.wake();
        0
    }

    /// Ends a body on an HTTP/2 stream, with its trailers.
    pub(crate) fn end_body<'f>(&self, trailers: impl Iterator<Item = Field<'f>>) {
        let mut body = self.body_queue.borrow_mut();
        if let Some(BodyProgress::Http2 { ended, .. }) = &mut body.progress {
            *ended = true;
        }
        for field in trailers {
            let name = str::from_utf8(field.name).unwrap_or_default();
            let _ = body.trailers.push(name, field.value);
        }
        drop(body);
        self.wake();
    }

    /// Returns the progress of the body; `None` when no byte is expected from the client.
    pub(crate) fn receive_progress(&self) -> Option<ReceiveProgress> {
        let body = &mut *self.body_queue.borrow_mut();
        let progress = body.progress.as_ref()?;
        let held = body.paused || body.expects_continue || body.queue.len() >= limits::BODY_QUEUE_BYTES;
        if held || body.rate_exempt || body.fault.is_some() || progress.is_complete() {
            body.was_paused = true;
            body.has_rate_deadline = false;
            return None;
        }
        if body.taken_at.is_some() {
            // The handler is not reading; its next read sets the deadline.
            body.has_rate_deadline = false;
            return None;
        }
        Some(ReceiveProgress {
            bytes: progress.consumed(),
            restart: std::mem::take(&mut body.was_paused),
            handler_time: std::mem::take(&mut body.handler_time),
            minimum_rate: body.minimum_rate,
        })
    }

    /// See [`BodyQueue::line_deadline`].
    pub(crate) fn line_deadline(&self, now: Time, span: Duration) -> Option<Time> {
        self.body_queue.borrow_mut().line_deadline(now, span)
    }

    /// Returns the minimum rate of this request's body and response in bytes per second; `None`: the application's.
    pub(crate) fn minimum_rate(&self) -> Option<u32> {
        self.body_queue.borrow().minimum_rate
    }

    /// Returns true if the deadline belongs to the body.
    pub(crate) fn has_rate_deadline(&self) -> bool {
        self.body_queue.borrow().has_rate_deadline
    }

    /// Ends the body with an error, which the handler receives at its next read.
    pub(crate) fn fail(&self, error: Error) {
        let mut body = self.body_queue.borrow_mut();
        body.has_rate_deadline = false;
        body.fault.get_or_insert(error);
        drop(body);
        self.wake();
    }

    // Called by the task.

    /// Waits for the next request; `None`: the task is surplus.
    pub(crate) async fn next_request(&self) -> Option<TaskRequest> {
        poll_fn(|context| match self.task_request.take() {
            Some(task_request) => Poll::Ready(Some(task_request)),
            None if self.surplus.get() => Poll::Ready(None),
            None => self.wait(context),
        })
        .await
    }

    /// Waits until the connection wakes the task.
    pub(crate) fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            place => *place = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns the next chunk of the streamed body.
    pub(crate) async fn chunk(&self) -> Result<Option<Bytes>> {
        if self.body_queue.borrow().tunnel {
            return Ok(self.tunnel_chunk().await);
        }
        poll_fn(|context| {
            let conn = self.conn();
            let stream_ref = self.stream_ref();
            let mut body = self.body_queue.borrow_mut();
            let Some(progress) = body.progress else {
                return Poll::Ready(Ok(None));
            };
            if std::mem::take(&mut body.expects_continue) {
                body.continue_sent = true;
                // Fails only when the connection is closed; the task then ends.
                let _ = match &stream_ref {
                    Some(stream_ref) => {
                        stream_ref
                            .session
                            .interim(stream_ref.stream, 100, &FieldBlock::new())
                    }
                    None => conn.write(CONTINUE).map_err(super::response_stream::disconnected),
                };
            }
            if !body.queue.is_empty() {
                let bytes = Bytes::from(std::mem::take(&mut body.queue));
                let paused = std::mem::take(&mut body.paused);
                body.was_paused |= paused;
                body.taken_at = Some(self.cx.now());
                drop(body);
                match &stream_ref {
                    Some(stream_ref) => stream_ref.session.consume(stream_ref.stream, bytes.len()),
                    None if paused && !progress.is_complete() => conn.resume(),
                    None => {}
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            if let Some(fault) = &body.fault {
                return Poll::Ready(Err(fault.clone_without_cause()));
            }
            if progress.is_complete() {
                return Poll::Ready(Ok(None));
            }
            if let Some(taken) = body.taken_at.take() {
                body.handler_time += self.cx.now().since(taken);
            }
            // Setting the deadline again at each chunk would postpone it.
            if !body.rate_exempt
                && !std::mem::replace(&mut body.has_rate_deadline, true)
                && stream_ref.is_none()
            {
                conn.set_deadline(Some(limits::RATE_TICK));
            }
            drop(body);
            self.wait(context)
        })
        .await
    }

    /// Disables the minimum rate of the streamed body.
    pub(crate) fn disable_body_rate(&self) {
        self.body_queue.borrow_mut().rate_exempt = true;
    }

    /// Sets the minimum rate of this request, in place of the application's.
    pub(crate) fn set_minimum_rate(&self, bytes: u32) {
        self.body_queue.borrow_mut().minimum_rate = Some(bytes);
    }

    /// Takes the trailers of the streamed body.
    pub(crate) fn trailers(&self) -> FieldBlock {
        std::mem::take(&mut self.body_queue.borrow_mut().trailers)
    }

    /// Takes the bytes received on an HTTP/2 stream that becomes a socket, and whether the client has ended the stream.
    pub(crate) fn take_queue(&self) -> (Vec<u8>, bool) {
        let body = &mut *self.body_queue.borrow_mut();
        (
            std::mem::take(&mut body.queue),
            body.progress.as_ref().is_some_and(BodyProgress::is_complete),
        )
    }

    /// Marks the start of the final response: no interim one may follow (RFC 9110 §15.2). A client that waits for `100 Continue`
    /// sends its body after the final head, or not at all.
    pub(crate) fn start_response(&self) {
        self.body_queue.borrow_mut().expects_continue = false;
    }

    /// Returns true if the whole body was received, so that the next request can be found.
    pub(crate) fn is_body_complete(&self) -> bool {
        let body = self.body_queue.borrow();
        body.fault.is_none() && body.progress.as_ref().is_none_or(BodyProgress::is_complete)
    }

    /// Returns true if the response closes the connection. A handler that waits for the shutdown is notified before the connection
    /// is, and a delay before it notifies none.
    pub(crate) fn is_last(&self) -> bool {
        self.last.get() || self.cx.is_drain_pending()
    }

    /// Returns the request's connection.
    pub(crate) fn conn(&self) -> Conn<'_> {
        let id = self.conn.get().expect("a request has a connection");
        self.cx.conn(id)
    }

    /// Returns the bytes that the client has taken from its connection or its HTTP/2 stream, up to date at the next call.
    pub(crate) fn bytes_taken(&self) -> u64 {
        if let Some(stream_ref) = self.stream_ref() {
            return stream_ref.session.sent(stream_ref.stream);
        }
        let conn = self.conn();
        conn.count_sent();
        conn.sent()
    }

    /// Returns true if the client has sent its last byte.
    pub(crate) fn has_client_ended(&self) -> bool {
        self.body_queue.borrow().client_ended
    }

    /// Completes the request; the connection continues as a socket. The exchange is not used again.
    pub(crate) fn finish_as_socket(&self, ws_session: Box<WsSession>) {
        *self.socket.borrow_mut() = Some((self.serial.get(), ws_session));
        self.finish();
    }

    /// Completes the request; the connection stays open.
    pub(crate) fn finish(&self) {
        self.serial.set(self.serial.get() + 1);
    }
}

/// RFC 9110 §15.2.1.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
