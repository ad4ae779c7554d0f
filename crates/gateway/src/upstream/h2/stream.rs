//! A request's stream: its head and body up, the response's down. If it is dropped before both have finished, the stream is reset.
//!
//! ```text
//! Reserved ─ request ─▶ Open ─ finish ─▶ end of the response ─▶ dropped
//! ```

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::{Cx, Sleep};
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Misuse, Request};

use super::StreamError;
use super::receive::{StreamInput, StreamObserver};
use super::session::H2Session;
use crate::limits;

/// A request's stream.
pub(crate) struct H2Stream {
    session: Rc<H2Session>,
    input: OnceCell<Rc<StreamInput>>,
    /// Requests on the connection before this one.
    requests: u32,
    /// The request was sent in full.
    is_sent: Cell<bool>,
    /// By its head, the response has no body.
    is_bodiless: Cell<bool>,
    deadline: Cell<Option<Time>>,
    /// The timer for the deadline, and the instant at which it fires.
    sleep: RefCell<Option<(Time, Sleep)>>,
    /// Position in the queue of writers.
    writer_ticket: Cell<u64>,
    /// Bytes of the body that were sent.
    sent: Cell<u64>,
}

/// The endpoint accepts no more of a request; it may have responded all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyRefused;

impl std::fmt::Debug for H2Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.input.get().map(|incoming| incoming.stream.id());
        write!(f, "H2Stream({id:?} of {:?})", self.session)
    }
}

impl H2Stream {
    pub(super) fn new(session: Rc<H2Session>) -> H2Stream {
        H2Stream {
            requests: session.served.get(),
            session,
            input: OnceCell::new(),
            is_sent: Cell::new(false),
            is_bodiless: Cell::new(false),
            deadline: Cell::new(None),
            sleep: RefCell::new(None),
            writer_ticket: Cell::new(0),
            sent: Cell::new(0),
        }
    }

    /// Returns the worker's handle.
    pub(crate) fn cx(&self) -> &Cx {
        &self.session.cx
    }

    /// Returns the number of requests on the connection before this one.
    pub(crate) fn requests_before(&self) -> u32 {
        self.requests
    }

    /// Returns the scheme of requests.
    pub(crate) fn scheme(&self) -> &'static str {
        self.session.scheme
    }

    /// Returns the bytes of the body that were sent.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.sent.get()
    }

    /// Checks whether the connection is alive, by a PING.
    pub(crate) fn check_connection(&self) {
        self.session.send_ping();
    }

    /// Returns whether the endpoint supports extended CONNECT (RFC 8441 §3).
    pub(crate) fn supports_extended_connect(&self) -> bool {
        self.session.state.borrow().connection.takes_extended_connect()
    }

    /// Sends a request's head. `end`: the request has no body.
    ///
    /// # Errors
    /// The connection is closed or accepts no more streams, or the request cannot be sent over HTTP/2.
    pub(crate) fn send_head(
        &self,
        request: &Request<'_>,
        fields: &FieldBlock,
        length: Option<u64>,
        end: bool,
    ) -> Result<(), Misuse> {
        let session = &self.session;
        if session.is_closed() {
            return Err(Misuse::TooManyStreams);
        }
        let silent_for = session.cx.now().since(session.last_received.get());
        session.with_state(|state| {
            let stream = state
                .connection
                .request(request, fields, length, end, &mut state.out)?;
            let incoming = session.pool.stream_input(stream);
            state.put(&incoming);
            session.reserved.set(session.reserved.get() - 1);
            session.served.set(session.served.get() + 1);
            let first = self.input.set(incoming);
            debug_assert!(first.is_ok(), "one request");
            Ok(())
        })?;
        self.is_sent.set(end);
        if silent_for >= limits::UPSTREAM_PING_AFTER {
            // The connection was silent for a while and may be dead.
            session.send_ping();
        }
        Ok(())
    }

    /// Sets the deadline of the next wait; `None`: no deadline.
    pub(crate) fn set_deadline(&self, span: Option<Duration>) {
        self.deadline
            .set(span.map(|span| self.session.cx.now().after(span)));
    }

    /// Returns the next head, as stored: interim ones, then that of the response.
    ///
    /// # Errors
    /// The reason that the stream ended before a further head.
    pub(crate) fn poll_head(&self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, StreamError>> {
        let Some(incoming) = self.input.get() else {
            return Poll::Ready(Err(StreamError::Refused));
        };
        let received = &mut *incoming.received.borrow_mut();
        if let Some(head) = received.heads.pop_front() {
            return Poll::Ready(Ok(head));
        }
        if let Some(error) = received.error {
            return Poll::Ready(Err(error));
        }
        received.reader = Some(context.waker().clone());
        self.poll_deadline(context).map(Err)
    }

    /// Waits until any part of the response has arrived.
    ///
    /// # Errors
    /// The reason that the stream ended before any head.
    pub(crate) fn poll_response_started(&self, context: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let Some(incoming) = self.input.get() else {
            return Poll::Ready(Err(StreamError::Refused));
        };
        let received = &mut *incoming.received.borrow_mut();
        match received.error {
            _ if !received.heads.is_empty() => Poll::Ready(Ok(())),
            Some(error) => Poll::Ready(Err(error)),
            None => {
                received.reader = Some(context.waker().clone());
                self.poll_deadline(context).map(Err)
            }
        }
    }

    /// Sets or removes the reader that is notified without a task.
    pub(crate) fn set_observer(&self, reader: Option<Rc<dyn StreamObserver>>) {
        if let Some(incoming) = self.input.get() {
            *incoming.observer.borrow_mut() = reader;
        }
    }

    /// Passes the head, as stored, and the body of a response to `read` if the response is complete and has no other parts.
    pub(crate) fn with_complete_response<T>(&self, read: impl FnOnce(&[u8], &[u8]) -> T) -> Option<T> {
        let received = &*self.input.get()?.received.borrow();
        let is_whole =
            received.ended && received.error.is_none() && received.trailers.is_none() && received.read == 0;
        match (is_whole, received.heads.as_slices()) {
            (true, ([head], [])) => Some(read(head, &received.body)),
            _ => None,
        }
    }

    /// Records that by its head the response has no body.
    pub(crate) fn mark_bodiless(&self) {
        self.is_bodiless.set(true);
    }

    /// Passes received bytes of the body to `consume`, which returns the number of bytes consumed: the endpoint may send as many again.
    /// `None`: the body has ended.
    ///
    /// # Errors
    /// The reason that the stream ended within the body.
    pub(crate) fn poll_body(
        &self,
        context: &mut Context<'_>,
        consume: impl FnOnce(&[u8]) -> usize,
    ) -> Poll<Result<Option<usize>, StreamError>> {
        let Some(incoming) = self.input.get() else {
            return Poll::Ready(Err(StreamError::Refused));
        };
        let mut received = incoming.received.borrow_mut();
        if received.read < received.body.len() {
            // Without a borrow: `consume` may write to this session.
            let (mut body, read) = (std::mem::take(&mut received.body), received.read);
            drop(received);
            let consumed = consume(&body[read..]).min(body.len() - read);
            let received = &mut *incoming.received.borrow_mut();
            received.read = read + consumed;
            if received.read == body.len() {
                body.clear();
                body.shrink_to(limits::CHANNEL_BODY_KEPT);
                received.read = 0;
            } else if received.read >= body.len() / 2 {
                // Removing the bytes already read makes room: a slow reader may never take the whole buffer.
                body.drain(..received.read);
                received.read = 0;
            }
            received.body = body;
            let cx = &self.session.cx;
            received.update_held_bytes(cx);
            received.consumed += consumed as u64;
            let is_fast = received.consumed >= u64::from(limits::UPSTREAM_FIRST_WINDOW);
            let window = if is_fast && cx.write_mark() == WRITE_MARK {
                limits::UPSTREAM_STREAM_WINDOW
            } else {
                limits::UPSTREAM_FIRST_WINDOW
            };
            self.session.with_state(|state| {
                let (connection, out) = (&mut state.connection, &mut state.out);
                connection.consume_within(incoming.stream, consumed, window, out);
            });
            return Poll::Ready(Ok(Some(consumed)));
        }
        if received.ended {
            return Poll::Ready(Ok(None));
        }
        if let Some(error) = received.error {
            return Poll::Ready(Err(error));
        }
        received.reader = Some(context.waker().clone());
        drop(received);
        self.poll_deadline(context).map(Err)
    }

    /// Waits until the stream is closed: the endpoint has reset it, or the deadline has passed.
    pub(crate) fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(incoming) = self.input.get() else {
            return Poll::Ready(());
        };
        let is_open = self.session.state.borrow().connection.is_open(incoming.stream);
        let mut received = incoming.received.borrow_mut();
        if !is_open || received.error.is_some() {
            return Poll::Ready(());
        }
        received.reader = Some(context.waker().clone());
        drop(received);
        self.poll_deadline(context).map(|_error| ())
    }

    /// Returns whether the response was read in full.
    pub(crate) fn is_finished(&self) -> bool {
        self.input.get().is_some_and(|incoming| {
            let received = incoming.received.borrow();
            received.ended && received.heads.is_empty() && received.read == received.body.len()
        })
    }

    /// Returns the trailers of the response, once.
    pub(crate) fn take_trailers(&self) -> Option<FieldBlock> {
        let incoming = self.input.get()?;
        incoming.received.borrow_mut().trailers.take()
    }

    /// Sends part of the body, at the rate of flow control.
    ///
    /// # Errors
    /// The endpoint accepts no more of the request, or the deadline has passed.
    pub(crate) async fn send_body(&self, bytes: &[u8]) -> Result<(), BodyRefused> {
        let mut sent = 0;
        poll_fn(|context| {
            while sent < bytes.len() {
                match self.poll_send(&bytes[sent..], context) {
                    Poll::Ready(Ok(consumed)) => sent += consumed,
                    Poll::Ready(Err(refused)) => return Poll::Ready(Err(refused)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    fn poll_send(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize, BodyRefused>> {
        let incoming = self.input.get().ok_or(BodyRefused)?;
        let stream = incoming.stream;
        let (is_open, window) = {
            let connection = &self.session.state.borrow().connection;
            (connection.is_open(stream), connection.window(stream))
        };
        if !is_open || incoming.received.borrow().error.is_some() {
            return Poll::Ready(Err(BodyRefused));
        }
        if window == 0 {
            incoming.received.borrow_mut().writer = Some(context.waker().clone());
            // Other writers may be able to send.
            self.session.leave_writer_queue(&self.writer_ticket);
            return self.poll_deadline(context).map(|_error| Err(BodyRefused));
        }
        if self
            .session
            .poll_output(&self.writer_ticket, context)
            .is_pending()
        {
            return self.poll_deadline(context).map(|_error| Err(BodyRefused));
        }
        self.session.resume_offers();
        let consumed = self.session.with_state(|state| {
            let consumed = state
                .connection
                .begin_data(stream, bytes.len(), false, &mut state.out)?;
            state.out.extend_from_slice(&bytes[..consumed]);
            Ok::<_, Misuse>(consumed)
        });
        let consumed = consumed.map_err(|_misuse| BodyRefused)?;
        self.sent.set(self.sent.get() + consumed as u64);
        Poll::Ready(Ok(consumed))
    }

    /// Ends the request, with trailers if there are any.
    ///
    /// # Errors
    /// The endpoint accepts no more of the request.
    pub(crate) fn finish_body(&self, trailers: &FieldBlock) -> Result<(), BodyRefused> {
        let incoming = self.input.get().ok_or(BodyRefused)?;
        let result = self.session.with_state(|state| {
            let (connection, out) = (&mut state.connection, &mut state.out);
            if trailers.is_empty() {
                connection.data(incoming.stream, &[], true, out).map(|_none| ())
            } else {
                connection.trailers(incoming.stream, trailers, out)
            }
        });
        result.map_err(|_misuse| BodyRefused)?;
        self.is_sent.set(true);
        Ok(())
    }

    /// Ready when the deadline has passed: then the connection is checked by a PING.
    fn poll_deadline(&self, context: &mut Context<'_>) -> Poll<StreamError> {
        let Some(at) = self.deadline.get() else {
            return Poll::Pending;
        };
        let cx = &self.session.cx;
        let timer = &mut *self.sleep.borrow_mut();
        loop {
            let now = cx.now();
            if now >= at {
                *timer = None;
                self.session.send_ping();
                return Poll::Ready(StreamError::TimedOut);
            }
            // A timer that fires too early is followed by another: deadlines are moved far more often than met. One that would fire too late
            // is replaced.
            if timer.as_ref().is_some_and(|(fires, _)| *fires > at) {
                *timer = None;
            }
            let (_, sleep) = timer.get_or_insert_with(|| (at, cx.sleep(at.since(now))));
            match Pin::new(sleep).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => *timer = None,
            }
        }
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        let session = &self.session;
        session.leave_writer_queue(&self.writer_ticket);
        let Some(incoming) = self.input.take() else {
            session.reserved.set(session.reserved.get() - 1);
            if !session.has_settings() {
                // The request that opened the session no longer waits for it.
                return session.retire();
            }
            return session.on_streams_closed(1);
        };
        let stream = incoming.stream;
        let (unread_bytes, result) = {
            let received = &mut *incoming.received.borrow_mut();
            let unread_bytes = received.body.len() - received.read;
            received.discard_body(&session.cx);
            (unread_bytes, received.ended)
        };
        session.with_state(|state| {
            let (connection, out) = (&mut state.connection, &mut state.out);
            connection.consume(stream, unread_bytes, out);
            // A response without a body lacks only its end: frequent resets would look like an attack.
            let awaits = self.is_bodiless.get() && self.is_sent.get() && unread_bytes == 0 && !result;
            if !awaits {
                let code = if result {
                    ErrorCode::NO_ERROR
                } else {
                    ErrorCode::CANCEL
                };
                connection.reset(stream, code, out);
            }
            state.remove_stream(stream);
        });
        session.pool.recycle(incoming);
    }
}
