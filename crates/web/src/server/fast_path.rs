//! Requests that are answered without a task: a callback inspects each before its task starts, and may retain its responder.
//!
//! ```text
//! head ─▶ inspect ─┬─ returns the responder ──────────────────▶ task
//!                  └─ retains it ─┬─ Responder::forward ────▶ answered
//!                                 ├─ Responder::start_task ─▶ task, with the whole request
//!                                 └─ client disconnects ────▶ AbortHandle::abandon
//! ```
//!
//! Owns the part of such a request on its connection or HTTP/2 stream. Knows no handler and no route.

use std::rc::Rc;

use ringmain_engine::ConnId;
use ringmain_wire::h1::{self, FieldBlock, Framing, Misuse, RequestHead};
use ringmain_wire::h2::ErrorCode;

use super::connection::{ConnPhase, Connection};
use super::dispatch::{IncomingRequest, MatchedRequest};
use super::exchange::{Exchange, TaskRequest};
use super::http2::StreamRef;
use super::response::ForwardedResponse;
use super::{HttpServer, NextAction, response, task};
use crate::app::compiled::{Action, CompiledRoute, RouteMatch};
use crate::http::error::Error;
use crate::http::path;
use crate::http::request::Request;
use crate::router::Params;
use crate::server::worker_context::WorkerContext;
use crate::stats::Rejection;

/// The holder of a responder; see [`App::fast_path`](crate::App::fast_path).
pub trait AbortHandle {
    /// Called when the client has disconnected: no response is needed.
    fn abandon(&self);

    /// Adds log fields to the access log record of a request whose client has disconnected, before it is [abandoned](AbortHandle::abandon).
    fn add_log_fields(&self, request: &Request<'_>) {
        let _ = request;
    }
}

/// Inspects a request before its task starts: retains the responder, or returns it.
pub(crate) type FastPath =
    dyn Fn(&Request<'_>, Responder) -> Result<Rc<dyn AbortHandle>, Responder> + Send + Sync;

/// The right to answer one request from any code on its worker. Dropping it unused closes the client's connection, or resets its
/// HTTP/2 stream: code that cannot answer lets the task [run](Responder::start_task).
#[must_use = "a request whose responder is dropped receives no response"]
pub struct Responder {
    exchange: Rc<Exchange>,
    worker: Rc<WorkerContext>,
}

/// Identifies a request whose responder is or was held, among the requests of its worker, until its response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderId(usize);

impl ResponderId {
    pub(crate) fn of(exchange: &Exchange) -> ResponderId {
        ResponderId(std::ptr::from_ref(exchange).addr())
    }
}

/// A request without a body, as presented to the callback.
pub(super) struct RequestView<'a> {
    pub(super) task_request: TaskRequest,
    pub(super) head: &'a RequestHead<'a>,
    /// The head as a task would parse it.
    pub(super) bytes: &'a [u8],
    /// The HTTP/2 stream of the request.
    pub(super) stream_ref: Option<StreamRef>,
}

/// The parts of a request that its response depends on.
#[derive(Clone, Copy)]
pub(crate) struct PendingRequest {
    pub(crate) task_request: TaskRequest,
    pub(crate) wire: h1::Exchange,
    /// The number of the handler's route.
    pub(crate) route: usize,
}

impl Responder {
    pub(super) fn new(exchange: &Rc<Exchange>, worker: &Rc<WorkerContext>) -> Responder {
        Responder {
            exchange: Rc::clone(exchange),
            worker: Rc::clone(worker),
        }
    }

    /// Returns the client's connection.
    #[must_use]
    pub fn connection(&self) -> ConnId {
        self.pending().task_request.peer.conn
    }

    /// Returns the id of the request, the same as [`Request::responder_id`] in its task.
    #[must_use]
    pub fn id(&self) -> ResponderId {
        ResponderId::of(&self.exchange)
    }

    fn pending(&self) -> PendingRequest {
        self.exchange.pending().expect("a responder is for a request")
    }

    /// Answers with another server's head and body; none of the server's own fields is added. `framing` describes the body to the client;
    /// for HTTP/1 clients its length must be known. `body` is the whole body, or empty where the request or the status forbids one. If
    /// there is an access log, `note` receives the request again to add log fields.
    ///
    /// # Errors
    /// The responder, if such a response cannot be encoded: nothing was sent.
    pub fn forward(
        self,
        status: u16,
        fields: &FieldBlock,
        framing: Framing,
        body: &[u8],
        note: impl FnOnce(&Request<'_>),
    ) -> Result<(), Responder> {
        let pending = self.pending();
        // Content in a 205 would violate a rule on which clients may rely (RFC 9110 §15.3.6).
        let (framing, body) = match status {
            205 => (Framing::Length(0), &[][..]),
            _ => (framing, body),
        };
        let mut wire = pending.wire;
        wire.keep_alive &= !self.exchange.is_last();
        let response = ForwardedResponse {
            status,
            fields,
            framing,
            body,
        };
        if self.write_response(&response, wire).is_none() {
            return Err(self);
        }
        let worker = &self.worker;
        worker.stats.answered(status);
        worker
            .stats
            .took(worker.cx.clock().since(pending.task_request.started_at));
        if worker.access.is_some() {
            self.log(pending, status, body.len() as u64, note);
        }
        let next = match (
            wire.keep_alive,
            pending.wire.keep_alive || pending.task_request.peer.secure,
        ) {
            _ if pending.wire.version == h1::Version::Http2 => NextAction::Continue,
            (true, _) => NextAction::Continue,
            (false, true) => NextAction::Linger,
            (false, false) => NextAction::Close,
        };
        self.complete(pending, next);
        Ok(())
    }

    /// Writes a response. `None`: it cannot be encoded.
    fn write_response(&self, response: &ForwardedResponse<'_>, wire: h1::Exchange) -> Option<()> {
        if let Some(stream_ref) = self.exchange.stream_ref() {
            return stream_ref.session.forward(response, stream_ref.stream).ok();
        }
        if matches!(response.framing, Framing::Chunked | Framing::UntilClose) {
            return None;
        }
        let out = &mut *self.worker.fast_path_out.borrow_mut();
        out.clear();
        encode(&self.worker, response, wire, out).ok()?;
        // Fails only when the connection is closed, which is reported elsewhere.
        let _ = self.exchange.conn().write(out);
        Some(())
    }

    /// Lets the handler's task answer after all. `false`: the worker runs the maximum number of tasks, and the client received 503.
    #[must_use]
    pub fn start_task(self) -> bool {
        let Some(pending) = self.exchange.take_pending() else {
            return false;
        };
        self.exchange.assign_request(pending.task_request);
        if self.exchange.task().is_some() {
            self.exchange.wake();
            return true;
        }
        let app = &self.worker.app;
        let started = match &app.fallback {
            Some(CompiledRoute {
                action: Action::Task { factory, .. },
                ..
            }) => factory.start_task_for(pending.route, app, &self.worker, &self.exchange),
            _ => false,
        };
        if started {
            return true;
        }
        // The worker runs the maximum number of tasks.
        self.exchange.restore_pending(pending);
        self.worker.stats.rejected(Rejection::RunningRequests);
        let overloaded = Error::new(503, "too many concurrent requests").with_header("Retry-After", "1");
        match self.exchange.stream_ref() {
            Some(stream_ref) => stream_ref.session.reject(&overloaded, stream_ref.stream),
            None => {
                let mut out = Vec::new();
                response::encode_rejection(&self.worker, &overloaded, pending.wire, None, &mut out);
                // Fails only when the connection is closed.
                let _ = self.exchange.conn().write(&out);
            }
        }
        self.worker.stats.answered(503);
        if self.worker.access.is_some() {
            self.log(pending, 503, 0, |_| {});
        }
        let framed = pending.wire.version == h1::Version::Http2;
        self.complete(
            pending,
            if framed {
                NextAction::Continue
            } else {
                NextAction::Linger
            },
        );
        false
    }

    /// Completes the request after its response.
    fn complete(&self, pending: PendingRequest, next: NextAction) {
        let Responder { exchange, worker } = self;
        exchange.discard_request();
        worker.tasks.release();
        if next != NextAction::Continue {
            self.cancel_task();
            return task::close(exchange, &worker.app, next);
        }
        exchange.finish();
        match exchange.take_stream_ref() {
            Some(stream_ref) => stream_ref.session.rearm_deadline(),
            None => {
                let conn = exchange.conn();
                conn.set_deadline(Some(worker.app.limits.idle_timeout));
                conn.resume();
            }
        }
        worker.tasks.recycle(pending.route, exchange);
    }

    /// Ends the task of an exchange that ends with its connection and is not used again: the task that an earlier request may have
    /// left there would wait permanently for the next one.
    fn cancel_task(&self) {
        if let Some(task) = self.exchange.task() {
            self.worker.cx.cancel(task);
        }
    }

    /// Records the response in the access log, for which the head is parsed again.
    fn log(&self, pending: PendingRequest, status: u16, sent: u64, note: impl FnOnce(&Request<'_>)) {
        with_reparsed_request(&self.exchange, &self.worker, pending, |request| {
            note(request);
            self.worker
                .log(request, status, sent, pending.task_request.started_at);
        });
    }
}

impl HttpServer {
    /// Presents an HTTP/1 request to the callback. `None`: the task is to answer.
    pub(super) fn try_fast_path(
        &self,
        state: &Connection,
        incoming: &IncomingRequest<'_>,
        matched: &MatchedRequest<'_>,
        route: usize,
    ) -> Option<ConnPhase> {
        let view = RequestView {
            task_request: TaskRequest {
                peer: state.peer,
                started_at: state.started_at,
                last: state.last,
            },
            head: incoming.head,
            bytes: incoming.bytes,
            stream_ref: None,
        };
        let (exchange, serial) = self.offer_request(view, matched, route)?;
        Some(ConnPhase::Running { exchange, serial })
    }

    /// Presents a request without a body to the callback. `None`: the task is to answer.
    pub(super) fn offer_request(
        &self,
        view: RequestView<'_>,
        matched: &MatchedRequest<'_>,
        route: usize,
    ) -> Option<(Rc<Exchange>, u64)> {
        let RequestView {
            task_request, head, ..
        } = view;
        let RouteMatch::Route(matched_route) = matched.route_match else {
            return None;
        };
        let look = self.app.fast_path.as_ref()?;
        let fallback = self.app.fallback.as_ref()?;
        let has_hooks = !(matched_route.hooks.before.is_empty() && matched_route.hooks.after.is_empty());
        if fallback.index != route || has_hooks || head.framing != Framing::None || self.app.request_ids {
            return None;
        }
        let tasks = &self.worker.tasks;
        if !tasks.acquire() {
            return None;
        }
        let idle = tasks.take_idle(route);
        let exchange = idle.unwrap_or_else(|| Exchange::new(&self.worker.cx));
        exchange.buffers.borrow_mut().head.extend_from_slice(view.bytes);
        let pending = PendingRequest {
            task_request,
            wire: head.exchange(),
            route,
        };
        let serial = exchange.store_pending(pending, view.stream_ref);
        let request = Request::new(
            head,
            matched.path,
            matched.params,
            &[],
            &self.app,
            &self.worker,
            &matched.route_match,
            task_request.peer,
            None,
        );
        match look(&request, Responder::new(&exchange, &self.worker)) {
            Ok(abort_handle) => {
                // Unless the request is finished: no task could be started, and the client received the response.
                if exchange.is_running(serial) {
                    exchange.set_abort_handle(abort_handle);
                }
                Some((exchange, serial))
            }
            Err(responder) => {
                exchange.discard_request();
                drop(responder);
                drop(exchange.take_stream_ref());
                tasks.release();
                tasks.recycle(route, &exchange);
                None
            }
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(pending) = self.exchange.take_pending() {
            log::error!(
                "{:?}: a request received no response: its connection is aborted",
                pending.task_request.peer.conn
            );
            self.exchange.discard_request();
            self.cancel_task();
            self.worker.tasks.release();
            self.worker.stats.answered(500);
            self.exchange.closing.set(true);
            match self.exchange.take_stream_ref() {
                Some(stream_ref) => {
                    stream_ref
                        .session
                        .reset(stream_ref.stream, ErrorCode::INTERNAL_ERROR);
                    stream_ref.session.release_stream(stream_ref.stream);
                }
                None => self.exchange.conn().abort(),
            }
        }
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder")
    }
}

/// Cancels a request whose client has disconnected before the response.
pub(super) fn cancel(exchange: &Rc<Exchange>, worker: &Rc<WorkerContext>) {
    if exchange.pending().is_some() {
        return abort_pending(exchange, worker);
    }
    if let Some(task) = exchange.task() {
        worker.cx.cancel(task);
    }
    if exchange.has_unstarted_request() {
        if let Some(abort_handle) = exchange.take_abort_handle() {
            abort_handle.abandon();
        }
        // The task would have left the count.
        worker.tasks.release();
    }
}

/// Abandons a request whose client has disconnected while its responder was held.
fn abort_pending(exchange: &Rc<Exchange>, worker: &Rc<WorkerContext>) {
    let Some(pending) = exchange.take_pending() else {
        return;
    };
    let abort_handle = exchange.take_abort_handle();
    // 499, as for a task (nginx's convention).
    worker.stats.answered(499);
    if worker.access.is_some() {
        with_reparsed_request(exchange, worker, pending, |request| {
            if let Some(abort_handle) = &abort_handle {
                abort_handle.add_log_fields(request);
            }
            worker.log(request, 499, 0, pending.task_request.started_at);
        });
    }
    if let Some(abort_handle) = abort_handle {
        abort_handle.abandon();
    }
    exchange.discard_request();
    worker.tasks.release();
    exchange.finish();
    drop(exchange.take_stream_ref());
    worker.tasks.recycle(pending.route, exchange);
}

/// Presents the request to `look` once more, parsed from the bytes of its head.
fn with_reparsed_request(
    exchange: &Exchange,
    worker: &Rc<WorkerContext>,
    pending: PendingRequest,
    look: impl FnOnce(&Request<'_>),
) {
    let app = &worker.app;
    let buffers = exchange.buffers.borrow();
    let mut table = worker.reparse_table.borrow_mut();
    let framed = pending.wire.version == h1::Version::Http2;
    let head = task::reparse_head(&buffers.head, framed, app, &mut table);
    let mut text = String::new();
    let path = path::normalise(head.target.path(), &mut text).expect("the connection has normalised it");
    let mut params = Params::new();
    let route_match = app.find(head.method, path, &mut params);
    let peer = pending.task_request.peer;
    let request = Request::new(&head, path, params, &[], app, worker, &route_match, peer, None);
    look(&request);
}

fn encode(
    worker: &WorkerContext,
    response: &ForwardedResponse<'_>,
    wire: h1::Exchange,
    out: &mut Vec<u8>,
) -> Result<(), Misuse> {
    let mut body = response::head(worker, &response.parts(), wire, response.framing, out)?;
    if !response.body.is_empty() {
        body.data(out, response.body)?;
    }
    if !body.is_silent() {
        body.finish(out)?;
    }
    Ok(())
}
