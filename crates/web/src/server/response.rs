//! Responses: runs hooks and handlers, encodes heads and bodies, logs errors and panics.
//!
//! Knows no connection: bytes are written to a buffer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use ringmain_wire::h1::{self, BodyEncoder, Exchange, FieldBlock, Framing, Misuse, ResponseEncoder};
use ringmain_wire::ws::{Acceptance, HandshakeFault};

use crate::app::compiled::{Flow, Hooks, RouteMatch};
use crate::http::error::{Error, Result};
use crate::http::reply::{ContentKind, Reply};
use crate::http::request::Request;
use crate::http::request_id::RequestId;
use crate::limits;
use crate::server::preamble::Omitted;
use crate::server::worker_context::WorkerContext;

/// The parts of a head.
pub(crate) struct ResponseParts<'a> {
    pub(crate) status: u16,
    pub(crate) kind: ContentKind,
    /// The server's own fields that are omitted.
    pub(crate) omitted: Omitted,
    pub(crate) fields: &'a FieldBlock,
    pub(crate) id: Option<&'a RequestId>,
    /// Another server's head: only the id is added.
    pub(crate) forwarded: bool,
    /// The fault of a WebSocket handshake.
    pub(crate) handshake: Option<HandshakeFault>,
}

/// Another server's whole response, sent without a task.
#[derive(Clone, Copy)]
pub(crate) struct ForwardedResponse<'a> {
    pub(crate) status: u16,
    pub(crate) fields: &'a FieldBlock,
    /// Describes the body to the client.
    pub(crate) framing: Framing,
    pub(crate) body: &'a [u8],
}

impl<'a> ForwardedResponse<'a> {
    /// Returns the parts of its head.
    pub(crate) fn parts(&self) -> ResponseParts<'a> {
        ResponseParts {
            status: self.status,
            kind: ContentKind::None,
            omitted: Omitted::default(),
            fields: self.fields,
            id: None,
            forwarded: true,
            handshake: None,
        }
    }
}

/// Runs the hooks and the plain handler of a request; the outcome is in `reply`, also if it is an error.
pub(crate) fn run(route_match: &RouteMatch<'_>, request: &Request<'_>, reply: &mut Reply<'_>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| match run_before(request, reply)? {
        Flow::Stop => Ok(()),
        Flow::Continue => route_match.answer(request, reply),
    }));
    apply_outcome(outcome.unwrap_or_else(|panic| Err(panicked(&*panic))), reply);
}

/// Runs the `before` hooks in the order in which they were added.
pub(crate) fn run_before(request: &Request<'_>, reply: &mut Reply<'_>) -> Result<Flow> {
    for hook in &request.hooks().before {
        if hook(request, reply)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Continue)
}

/// Turns an error into the response, then runs the `after` hooks.
pub(crate) fn apply_outcome(outcome: Result, reply: &mut Reply<'_>) {
    if let Err(error) = outcome {
        reply.fail(&error);
    }
    run_after(reply);
}

/// Runs the `after` hooks. A hook that fails leaves the response unchanged.
pub(crate) fn run_after(reply: &mut Reply<'_>) {
    let request = reply.request;
    let hooks: &Hooks = reply.hooks;
    for hook in &hooks.after {
        let outcome = catch_unwind(AssertUnwindSafe(|| hook(request, reply)));
        if let Err(error) = outcome.unwrap_or_else(|panic| Err(panicked(&*panic))) {
            log::error!("{request:?}: an `after` hook failed: {error}");
        }
    }
}

/// Returns the 500 for a panic in a handler. Its cause, for the log, has the message and, for the most common mistake, the remedy.
#[cold]
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::internal(panic_text(panic))
}

/// Returns the message of a panic, with the remedy.
#[cold]
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    match message {
        Some(message) if needs_tokio(message) => format!("the handler panicked: {message}: {NO_TOKIO}"),
        Some(message) => format!("the handler panicked: {message}"),
        None => "the handler panicked".to_owned(),
    }
}

/// The hint in the log of a program that calls a tokio library from a worker.
const NO_TOKIO: &str = "workers run no tokio runtime; call libraries that need one (reqwest, sqlx, tokio's timers and sockets) \
    on a runtime of their own and await the result: see docs/how-to/app-tokio.md";

/// Returns true if the message is tokio's report of a missing runtime. These are its sentences since 1.0; a new one only costs the
/// hint.
fn needs_tokio(message: &str) -> bool {
    message.contains("there is no reactor running")
        || message.contains("must be called from the context of a Tokio")
        || message.contains("no Tokio runtime")
        || message.contains("A Tokio 1.x context was found, but")
}

/// Encodes a whole response into `out`. The returned bytes follow those in `out` and were not copied.
///
/// `exchange.keep_alive` is the caller's decision.
pub(crate) fn encode(reply: &mut Reply<'_>, exchange: Exchange, out: &mut Vec<u8>) -> Option<Bytes> {
    let start = out.len();
    match try_encode(reply, exchange, out) {
        Ok(rest) => rest,
        Err(misuse) => {
            // Every part was validated when it was set, so this is a bug of the server; the client still receives a response.
            log::error!(
                "{:?}: cannot encode the response with status {}: {misuse}",
                reply.request,
                reply.status
            );
            out.truncate(start);
            out.extend_from_slice(LAST_RESORT);
            // Matches the caller's decision: a response that announces the close must be the last.
            let end: &[u8] = if exchange.keep_alive {
                b"\r\n"
            } else {
                b"Connection: close\r\n\r\n"
            };
            out.extend_from_slice(end);
            None
        }
    }
}

const LAST_RESORT: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n";

fn try_encode(
    reply: &mut Reply<'_>,
    exchange: Exchange,
    out: &mut Vec<u8>,
) -> std::result::Result<Option<Bytes>, Misuse> {
    let parts = ResponseParts {
        status: reply.status,
        kind: reply.kind,
        omitted: reply.omitted,
        fields: reply.fields,
        id: reply.request.id(),
        forwarded: reply.forwarded,
        handshake: reply
            .handshake
            .filter(|fault| fault.kind.status() == reply.status),
    };
    let length = reply.frame.as_ref().map_or(reply.body.len(), Bytes::len);
    let framing = if h1::allows_content(reply.status) {
        Framing::Length(length as u64)
    } else {
        Framing::None
    };
    let mut body = head(reply.request.worker, &parts, exchange, framing, out)?;
    if framing == Framing::None || !body.begin(out, length as u64)? {
        return Ok(None);
    }
    reply.sent = length as u64;
    match reply.frame.take() {
        Some(frame) if length <= limits::COPIED_BODY_BYTES => out.extend_from_slice(&frame),
        Some(frame) => return Ok(Some(frame)),
        None if length <= limits::COPIED_BODY_BYTES => out.extend_from_slice(reply.body),
        None => return Ok(Some(Bytes::from(std::mem::take(reply.body)))),
    }
    Ok(None)
}

/// Encodes a head.
pub(crate) fn head(
    worker: &WorkerContext,
    parts: &ResponseParts<'_>,
    exchange: Exchange,
    framing: Framing,
    out: &mut Vec<u8>,
) -> std::result::Result<BodyEncoder, Misuse> {
    let preamble = worker.preamble.borrow();
    let mut head = if parts.forwarded {
        ResponseEncoder::new(out, parts.status, exchange)?
    } else if !parts.omitted.is_none() {
        let mut head = ResponseEncoder::new(out, parts.status, exchange)?;
        preamble.write_fields(parts.kind, parts.omitted, |name, value| head.field(name, value))?;
        head
    } else if parts.status == 200 {
        ResponseEncoder::with_preface(out, preamble.ok(parts.kind), exchange)
    } else {
        let mut head = ResponseEncoder::new(out, parts.status, exchange)?;
        head.block(preamble.fields(parts.kind));
        head
    };
    if !parts.fields.is_empty() {
        head.block(parts.fields);
    }
    if let Some(id) = parts.id {
        head.field("X-Request-Id", id.as_str().as_bytes())?;
    }
    if let Some(fault) = parts.handshake {
        fault.write_fields(&mut head)?;
    }
    head.finish(framing)
}

/// Encodes the 101 that opens a WebSocket, with the fields that hooks have set.
pub(crate) fn encode_switch(reply: &Reply<'_>, acceptance: &Acceptance<'_>, out: &mut Vec<u8>) {
    let exchange = reply.request.head.exchange();
    let preamble = reply.request.worker.preamble.borrow();
    let encoded = ResponseEncoder::new(out, 101, exchange).and_then(|mut head| {
        preamble.write_fields(ContentKind::None, reply.omitted, |name, value| {
            head.field(name, value)
        })?;
        head.block(reply.fields);
        if let Some(id) = reply.request.id() {
            head.field("X-Request-Id", id.as_str().as_bytes())?;
        }
        acceptance.write_fields(&mut head)?;
        head.switch(b"websocket")
    });
    encoded.expect("every part was checked when it was set");
}

/// Encodes the response to bytes that could not be parsed as a request; the connection closes after it. `exchange` is
/// [`h1::Exchange::REFUSED`] if not even the head was parsed.
pub(crate) fn encode_rejection(
    worker: &WorkerContext,
    error: &Error,
    exchange: Exchange,
    id: Option<&RequestId>,
    out: &mut Vec<u8>,
) {
    worker.refresh_date();
    let mut problem = Vec::new();
    error.write_problem(&mut problem);
    let mut fields = FieldBlock::new();
    if let Some((name, value)) = error.field() {
        // Validated when the error was created.
        let _ = fields.push(name, value.as_bytes());
    }
    let parts = ResponseParts {
        status: error.status(),
        kind: ContentKind::Problem,
        omitted: Omitted::default(),
        fields: &fields,
        id,
        forwarded: false,
        handshake: None,
    };
    let exchange = Exchange {
        keep_alive: false,
        ..exchange
    };
    let framing = Framing::Length(problem.len() as u64);
    if let Ok(mut body) = head(worker, &parts, exchange, framing, out) {
        // Has the declared length.
        let _ = body.data(out, &problem);
    }
}

#[cfg(test)]
mod tests;
