//! Sockets for asynchronous code: a task that awaits the next message.
//!
//! Owns the queue between received messages and the task. Built on [`Socket`], as an application could.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ringmain_wire::ws::{CloseCode, Message};

use super::{Closed, Socket, Ws};
use crate::http::error::{Error, Result};
use crate::limits;
use crate::server::response;

/// An owned message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedMessage {
    /// UTF-8.
    Text(String),
    /// Any bytes.
    Binary(Vec<u8>),
}

impl OwnedMessage {
    /// Returns its bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.borrowed().data()
    }

    /// Borrows the message, in the form for sending.
    #[must_use]
    pub fn borrowed(&self) -> Message<'_> {
        match self {
            OwnedMessage::Text(text) => Message::Text(text),
            OwnedMessage::Binary(bytes) => Message::Binary(bytes),
        }
    }
}

impl From<Message<'_>> for OwnedMessage {
    fn from(message: Message<'_>) -> OwnedMessage {
        match message {
            Message::Text(text) => OwnedMessage::Text(text.into()),
            Message::Binary(bytes) => OwnedMessage::Binary(bytes.into()),
        }
    }
}

/// A socket owned by a task: for handlers of [`App::ws_async`](crate::App::ws_async). Opened when the task runs.
pub struct WsStream(Rc<Inbox>);

/// The state shared by the socket and its task.
#[derive(Default)]
struct Inbox {
    ws: OnceCell<Ws>,
    messages: RefCell<VecDeque<OwnedMessage>>,
    bytes: Cell<usize>,
    over: Cell<bool>,
    /// The task has dropped its stream.
    abandoned: Cell<bool>,
    /// The waker of the task while it waits.
    waker: RefCell<Option<Waker>>,
}

impl WsStream {
    /// Waits for the next message; `None` when either side has closed the socket. Without calls the queue fills and the client is
    /// slowed down.
    ///
    /// # Errors
    /// None; the type permits `?` here as after a send.
    pub async fn next(&mut self) -> Result<Option<OwnedMessage>> {
        let inbox = &self.0;
        poll_fn(|context| {
            let message = inbox.messages.borrow_mut().pop_front();
            if let Some(message) = message {
                let remaining = inbox.bytes.get() - message.data().len() - limits::MESSAGE_OVERHEAD_BYTES;
                inbox.bytes.set(remaining);
                if remaining == 0 {
                    self.ws().resume();
                }
                return Poll::Ready(Ok(Some(message)));
            }
            if inbox.over.get() {
                return Poll::Ready(Ok(None));
            }
            inbox.wait(context)
        })
        .await
    }

    /// Sends a message, and waits while the client is [slow](Ws::is_full).
    ///
    /// # Errors
    /// The socket is closing or closed: end the task with `?`.
    pub async fn send(&self, message: Message<'_>) -> Result {
        if !self.ws().send(message) {
            return Err(Error::disconnected());
        }
        poll_fn(|context| match self.ws() {
            ws if !ws.is_open() || !ws.is_full() => Poll::Ready(()),
            _ => self.0.wait(context),
        })
        .await;
        Ok(())
    }

    /// Sends a text message; see [`WsStream::send`].
    ///
    /// # Errors
    /// As [`WsStream::send`].
    pub async fn send_text(&self, text: impl AsRef<str>) -> Result {
        self.send(Message::Text(text.as_ref())).await
    }

    /// Sends a binary message; see [`WsStream::send`].
    ///
    /// # Errors
    /// As [`WsStream::send`].
    pub async fn send_binary(&self, bytes: impl AsRef<[u8]>) -> Result {
        self.send(Message::Binary(bytes.as_ref())).await
    }

    /// Returns the sending handle, for other code on this worker, and for this task when it must not wait.
    ///
    /// # Panics
    /// Before the task runs: the socket is not open yet.
    #[must_use]
    pub fn ws(&self) -> &Ws {
        self.0
            .ws
            .get()
            .expect("the socket is opened before its task runs")
    }
}

impl Inbox {
    fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            place => *place = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The socket of an asynchronous handler.
pub(crate) struct AsyncSocketHandler<F> {
    inbox: Rc<Inbox>,
    /// Present until the socket is open.
    future: Option<F>,
}

impl<F: Future<Output = Result> + 'static> AsyncSocketHandler<F> {
    /// # Errors
    /// The error of `create`.
    pub(crate) fn new(create: impl FnOnce(WsStream) -> Result<F>) -> Result<Self> {
        let inbox = Rc::<Inbox>::default();
        let future = create(WsStream(Rc::clone(&inbox)))?;
        Ok(AsyncSocketHandler {
            inbox,
            future: Some(future),
        })
    }
}

impl<F: Future<Output = Result> + 'static> Socket for AsyncSocketHandler<F> {
    fn opened(&mut self, ws: &Ws) -> Result {
        let Some(future) = self.future.take() else {
            return Ok(());
        };
        let _ = self.inbox.ws.set(ws.clone());
        let task = run(ws.clone(), future);
        if ws.sockets().cx.spawn(task).is_err() {
            ws.close(CloseCode::TRY_AGAIN_LATER, "too many concurrent tasks");
        }
        Ok(())
    }

    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        if self.inbox.abandoned.get() {
            return Ok(());
        }
        let bytes = self.inbox.bytes.get() + message.data().len() + limits::MESSAGE_OVERHEAD_BYTES;
        self.inbox.bytes.set(bytes);
        self.inbox.messages.borrow_mut().push_back(message.into());
        if bytes >= limits::BODY_QUEUE_BYTES {
            ws.pause();
        }
        self.inbox.wake();
        Ok(())
    }

    fn drained(&mut self, _ws: &Ws) -> Result {
        self.inbox.wake();
        Ok(())
    }

    fn closed(&mut self, _closed: &Closed<'_>) {
        self.inbox.over.set(true);
        self.inbox.wake();
    }
}

/// Runs a handler to its end, then closes the socket.
async fn run(ws: Ws, future: impl Future<Output = Result>) {
    let mut future = pin!(future);
    let outcome = poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(response::panicked(&*panic))))
    })
    .await;
    match outcome {
        Ok(()) => {
            ws.close(CloseCode::NORMAL, "");
        }
        Err(error) => close_for(&ws, &error),
    }
}

/// Closes a socket after an error of its application.
pub(super) fn close_for(ws: &Ws, error: &Error) {
    if error.is_disconnected() {
        ws.close(CloseCode::NORMAL, "");
        return;
    }
    if error.status() < 500 {
        log::debug!("{ws:?}: {error}");
        ws.close(CloseCode::POLICY_VIOLATION, error.detail());
    } else {
        log::error!("{ws:?}: {error}");
        ws.close(CloseCode::INTERNAL_ERROR, "");
    }
}

impl Drop for WsStream {
    /// Messages that still arrive are dropped.
    fn drop(&mut self) {
        self.0.abandoned.set(true);
        self.0.messages.borrow_mut().clear();
        if let Some(ws) = self.0.ws.get() {
            ws.resume();
        }
    }
}

impl std::fmt::Debug for WsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.ws.get() {
            Some(ws) => write!(f, "WsStream of {ws:?}"),
            None => f.write_str("WsStream"),
        }
    }
}
