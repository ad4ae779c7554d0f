//! Requests that are answered without a task: a callback inspects each before its task starts, and may retain its ticket.
//!
//! ```text
//! head ─▶ look ─┬─ returns the ticket ────────────────────────▶ task
//!               └─ retains it ─┬─ Ticket::forward ─▶ answered
//!                              ├─ Ticket::run ─────▶ task, with the whole request
//!                              └─ client leaves ───▶ Early::abandon
//! ```
//!
//! Owns the part of such a request on its connection or HTTP/2 stream. Knows no handler and no route.

use std::rc::Rc;

use ringmain_engine::ConnId;
use ringmain_wire::h1::{self, FieldBlock, Framing, Misuse, RequestHead};
use ringmain_wire::h2::ErrorCode;

use super::connection::{Connection, Phase};
use super::exchange::{Exchange, Job};
use super::http2::Line;
use super::receive::{Arrived, Chosen};
use super::{Machine, Then, response, task_pool};
use crate::app::compiled::{Action, Route, Verdict};
use crate::http::error::Error;
use crate::http::path;
use crate::http::reply::Kind;
use crate::http::request::Request;
use crate::router::Params;
use crate::server::preamble::Omitted;
use crate::server::worker_context::WorkerContext;

/// The holder of a ticket; see [`App::early`](crate::App::early).
pub trait Early {
    /// Called when the client has disconnected: no response is needed.
    fn abandon(&self);

    /// Adds notes to the access log record of a request whose client has disconnected, before it is [abandoned](Early::abandon).
    fn note(&self, request: &Request<'_>) {
        let _ = request;
    }
}

/// Inspects a request before its task starts: retains the ticket, or returns it.
pub(crate) type Look = dyn Fn(&Request<'_>, Ticket) -> Result<Rc<dyn Early>, Ticket> + Send + Sync;

/// The right to answer one request from any code on its worker. Dropping it unused closes the client's connection, or resets its
/// HTTP/2 stream: code that cannot answer lets the task [run](Ticket::run).
#[must_use = "a request whose ticket is dropped is not answered"]
pub struct Ticket {
    exchange: Rc<Exchange>,
    local: Rc<WorkerContext>,
}

/// Identifies a request whose ticket is or was held, among the requests of its worker, until its response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketId(usize);

impl TicketId {
    pub(crate) fn of(exchange: &Exchange) -> TicketId {
        TicketId(std::ptr::from_ref(exchange).addr())
    }
}

/// A request without a body, as presented to the callback.
pub(super) struct Shown<'a> {
    pub(super) job: Job,
    pub(super) head: &'a RequestHead<'a>,
    /// The head as a task would parse it.
    pub(super) bytes: &'a [u8],
    /// The HTTP/2 stream of the request.
    pub(super) line: Option<Line>,
}

/// The parts of a request that its response depends on.
#[derive(Clone, Copy)]
pub(crate) struct PendingRequest {
    pub(crate) job: Job,
    pub(crate) wire: h1::Exchange,
    /// The number of the handler's route.
    pub(crate) route: usize,
}

impl Ticket {
    pub(super) fn new(exchange: &Rc<Exchange>, local: &Rc<WorkerContext>) -> Ticket {
        Ticket {
            exchange: Rc::clone(exchange),
            local: Rc::clone(local),
        }
    }

    /// Returns the client's connection.
    #[must_use]
    pub fn connection(&self) -> ConnId {
        self.pending().job.origin.conn
    }

    /// Returns the id of the request, the same as [`Request::ticket`] in its task.
    #[must_use]
    pub fn id(&self) -> TicketId {
        TicketId::of(&self.exchange)
    }

    fn pending(&self) -> PendingRequest {
        self.exchange.pending().expect("a ticket is for a request")
    }

    /// Answers with another server's head and body; no field of our own is added. `framing` describes the body to the client; for
    /// HTTP/1 clients its length must be known. `body` is the whole body, or empty where the request or the status forbids one. If
    /// there is an access log, `note` receives the request again to add notes.
    ///
    /// # Errors
    /// The ticket, if such a response cannot be encoded: nothing was sent.
    pub fn forward(
        self,
        status: u16,
        fields: &FieldBlock,
        framing: Framing,
        body: &[u8],
        note: impl FnOnce(&Request<'_>),
    ) -> Result<(), Ticket> {
        let asked = self.pending();
        // Content in a 205 would violate a rule on which clients may rely (RFC 9110 §15.3.6).
        let (framing, body) = match status {
            205 => (Framing::Length(0), &[][..]),
            _ => (framing, body),
        };
        let mut wire = asked.wire;
        wire.keep_alive &= !self.exchange.is_last();
        if self.send(status, fields, (framing, body), wire).is_none() {
            return Err(self);
        }
        let local = &self.local;
        local.stats.answered(status);
        local.stats.took(local.cx.clock().since(asked.job.began));
        if local.access.is_some() {
            self.log(asked, status, body.len() as u64, note);
        }
        let then = match (wire.keep_alive, asked.wire.keep_alive || asked.job.origin.secure) {
            _ if asked.wire.version == h1::Version::Http2 => Then::Next,
            (true, _) => Then::Next,
            (false, true) => Then::Linger,
            (false, false) => Then::Close,
        };
        self.finish(asked, then);
        Ok(())
    }

    /// Writes a response. `None`: it cannot be encoded.
    fn send(
        &self,
        status: u16,
        fields: &FieldBlock,
        (framing, body): (Framing, &[u8]),
        wire: h1::Exchange,
    ) -> Option<()> {
        let Some(line) = self.exchange.line() else {
            if matches!(framing, Framing::Chunked | Framing::UntilClose) {
                return None;
            }
            let out = &mut *self.local.early.borrow_mut();
            out.clear();
            encode(&self.local, status, fields, wire, (framing, body), out).ok()?;
            // Fails only when the connection is closed, which is reported elsewhere.
            let _ = self.exchange.conn().write(out);
            return Some(());
        };
        let sent = line
            .session
            .forward((status, fields), (framing, body), line.stream);
        sent.ok()
    }

    /// Lets the handler's task answer after all. `false`: the worker runs the maximum number of tasks, and the client received 503.
    #[must_use]
    pub fn run(self) -> bool {
        let Some(asked) = self.exchange.take_pending() else {
            return false;
        };
        self.exchange.hand_over(asked.job);
        if self.exchange.task().is_some() {
            self.exchange.wake();
            return true;
        }
        let site = &self.local.site;
        let launched = match &site.fallback {
            Some(Route {
                action: Action::Task { launch, .. },
                ..
            }) => launch.adopt(asked.route, site, &self.local, &self.exchange),
            _ => false,
        };
        if launched {
            return true;
        }
        // The worker runs the maximum number of tasks.
        self.exchange.take_back(asked);
        let busy =
            Error::new(503, "the server runs as many requests as it may").with_header("Retry-After", "1");
        match self.exchange.line() {
            Some(line) => line.session.refuse(&busy, line.stream),
            None => {
                let mut out = Vec::new();
                response::refuse(&self.local, &busy, (asked.wire, None), &mut out);
                // Fails only when the connection is closed.
                let _ = self.exchange.conn().write(&out);
            }
        }
        self.local.stats.answered(503);
        if self.local.access.is_some() {
            self.log(asked, 503, 0, |_| {});
        }
        let framed = asked.wire.version == h1::Version::Http2;
        self.finish(asked, if framed { Then::Next } else { Then::Linger });
        false
    }

    /// Completes the request after its response.
    fn finish(&self, asked: PendingRequest, then: Then) {
        let Ticket { exchange, local } = self;
        exchange.forget();
        local.runners.leave();
        if then != Then::Next {
            self.end_task();
            return task_pool::close(exchange, &local.site, then);
        }
        exchange.finish();
        match exchange.take_line() {
            Some(line) => line.session.settle(),
            None => {
                let conn = exchange.conn();
                conn.set_deadline(Some(local.site.limits.idle_timeout));
                conn.resume();
            }
        }
        local.runners.park(asked.route, exchange);
    }

    /// Ends the task of an exchange that ends with its connection and is not used again: the task that an earlier request may have
    /// left there would wait permanently for the next one.
    fn end_task(&self) {
        if let Some(task) = self.exchange.task() {
            self.local.cx.cancel(task);
        }
    }

    /// Records the response in the access log, for which the head is parsed again.
    fn log(&self, asked: PendingRequest, status: u16, sent: u64, note: impl FnOnce(&Request<'_>)) {
        look_again(&self.exchange, &self.local, asked, |request| {
            note(request);
            self.local.log(request, status, sent, asked.job.began);
        });
    }
}

impl Machine {
    /// Presents an HTTP/1 request to the callback. `None`: the task is to answer.
    pub(super) fn look(
        &self,
        state: &Connection,
        arrived: &Arrived<'_>,
        chosen: &Chosen<'_>,
        route: usize,
    ) -> Option<Phase> {
        let shown = Shown {
            job: Job {
                origin: state.origin,
                began: state.began,
                last: state.last,
            },
            head: arrived.head,
            bytes: arrived.bytes,
            line: None,
        };
        let (exchange, serial) = self.show(shown, chosen, route)?;
        Some(Phase::Running { exchange, serial })
    }

    /// Presents a request without a body to the callback. `None`: the task is to answer.
    pub(super) fn show(
        &self,
        shown: Shown<'_>,
        chosen: &Chosen<'_>,
        route: usize,
    ) -> Option<(Rc<Exchange>, u64)> {
        let Shown { job, head, .. } = shown;
        let Verdict::Route(whose) = chosen.verdict else {
            return None;
        };
        let look = self.site.early.as_ref()?;
        let fallback = self.site.fallback.as_ref()?;
        let hooked = !(whose.hooks.before.is_empty() && whose.hooks.after.is_empty());
        if fallback.index != route || hooked || head.framing != Framing::None || self.site.request_ids {
            return None;
        }
        let runners = &self.local.runners;
        if !runners.enter() {
            return None;
        }
        let idle = runners.idle(route);
        let exchange = idle.unwrap_or_else(|| Exchange::new(&self.local.cx));
        exchange.buffers.borrow_mut().head.extend_from_slice(shown.bytes);
        let asked = PendingRequest {
            job,
            wire: head.exchange(),
            route,
        };
        let serial = exchange.store_pending(asked, shown.line);
        let request = Request::new(
            head,
            chosen.path,
            chosen.params,
            &[],
            &self.site,
            &self.local,
            &chosen.verdict,
            job.origin,
            None,
        );
        match look(&request, Ticket::new(&exchange, &self.local)) {
            Ok(early) => {
                // Unless the request is finished: no task could be started, and the client received the response.
                if exchange.runs(serial) {
                    exchange.set_early(early);
                }
                Some((exchange, serial))
            }
            Err(ticket) => {
                exchange.forget();
                drop(ticket);
                drop(exchange.take_line());
                runners.leave();
                runners.park(route, &exchange);
                None
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(asked) = self.exchange.take_pending() {
            log::error!(
                "{:?}: a request was not answered: its connection is cut",
                asked.job.origin.conn
            );
            self.exchange.forget();
            self.end_task();
            self.local.runners.leave();
            self.local.stats.answered(500);
            self.exchange.closing.set(true);
            match self.exchange.take_line() {
                Some(line) => {
                    line.session.reset(line.stream, ErrorCode::INTERNAL_ERROR);
                    line.session.finished(line.stream);
                }
                None => self.exchange.conn().abort(),
            }
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

/// Cancels a request whose client has disconnected before the response.
pub(super) fn cancel(exchange: &Rc<Exchange>, local: &Rc<WorkerContext>) {
    if exchange.pending().is_some() {
        return left(exchange, local);
    }
    if let Some(task) = exchange.task() {
        local.cx.cancel(task);
    }
    if exchange.was_not_begun() {
        if let Some(early) = exchange.take_early() {
            early.abandon();
        }
        // The task would have left the count.
        local.runners.leave();
    }
}

/// Abandons a request whose client has disconnected while its ticket was held.
fn left(exchange: &Rc<Exchange>, local: &Rc<WorkerContext>) {
    let Some(asked) = exchange.take_pending() else {
        return;
    };
    let early = exchange.take_early();
    // As for a task; nginx made the number common.
    local.stats.answered(499);
    if local.access.is_some() {
        look_again(exchange, local, asked, |request| {
            if let Some(early) = &early {
                early.note(request);
            }
            local.log(request, 499, 0, asked.job.began);
        });
    }
    if let Some(early) = early {
        early.abandon();
    }
    exchange.forget();
    local.runners.leave();
    exchange.finish();
    drop(exchange.take_line());
    local.runners.park(asked.route, exchange);
}

/// Presents the request to `look` once more, parsed from the bytes of its head.
fn look_again(
    exchange: &Exchange,
    local: &Rc<WorkerContext>,
    asked: PendingRequest,
    look: impl FnOnce(&Request<'_>),
) {
    let site = &local.site;
    let buffers = exchange.buffers.borrow();
    let mut table = local.again.borrow_mut();
    let framed = asked.wire.version == h1::Version::Http2;
    let head = task_pool::read_head(&buffers.head, framed, site, &mut table);
    let mut text = String::new();
    let path = path::normalise(head.target.path(), &mut text).expect("the connection has normalised it");
    let mut params = Params::new();
    let verdict = site.find(head.method, path, &mut params);
    let origin = asked.job.origin;
    let request = Request::new(&head, path, params, &[], site, local, &verdict, origin, None);
    look(&request);
}

fn encode(
    local: &WorkerContext,
    status: u16,
    fields: &FieldBlock,
    wire: h1::Exchange,
    (framing, content): (Framing, &[u8]),
    out: &mut Vec<u8>,
) -> Result<(), Misuse> {
    let parts = response::Parts {
        status,
        kind: Kind::None,
        omitted: Omitted::default(),
        fields,
        id: None,
        forwarded: true,
        handshake: None,
    };
    let mut body = response::head(local, &parts, wire, framing, out)?;
    if !content.is_empty() {
        body.data(out, content)?;
    }
    if !body.is_silent() {
        body.finish(out)?;
    }
    Ok(())
}
