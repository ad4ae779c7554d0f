//! The task of an asynchronous handler: runs one request after another, from its head to the end of its response.
//!
//! Owns the steps between a started request and its response. Knows nothing of how connections are read.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{FieldBlock, FieldTable, HeadScanner, Parsed, RequestHead, parse_request};
use ringmain_wire::h2::{ErrorCode, load_request};

use super::drain::LongLived;
use super::exchange::{Buffers, Exchange, TaskRequest};
use super::http2::StreamRef;
use super::response_stream::{self, Outgoing};
use super::task_pool::TaskPool;
use super::{NextAction, response};
use crate::app::compiled::{CompiledApp, Flow};
use crate::http::error::{Error, Result};
use crate::http::path;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits;
use crate::router::Params;
use crate::server::worker_context::WorkerContext;
use crate::ws::{Upgrade, WsTransport};

/// Removes a running request from the count when dropped.
struct RunningGuard<'a>(&'a TaskPool);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A request that ends because its client disconnects or the process stops: it is counted and logged as 499, nginx's convention.
struct UnfinishedRequest<'a, 'r> {
    request: Option<&'a Request<'r>>,
    started_at: Time,
}

impl Drop for UnfinishedRequest<'_, '_> {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            request.worker.stats.answered(499);
            request.worker.log(request, 499, 0, self.started_at);
        }
    }
}

/// Memory that a task reuses for each of its requests.
struct TaskScratch {
    table: FieldTable,
    fields: FieldBlock,
    body: Vec<u8>,
    path: String,
    out: Vec<u8>,
}

/// Serves the requests that the connection assigns to `exchange`, until the pool has no room for it.
pub(super) async fn run_task<F>(
    exchange: Rc<Exchange>,
    app: Arc<CompiledApp>,
    worker: Rc<WorkerContext>,
    handler: Arc<F>,
    route: usize,
) where
    F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result,
{
    let mut scratch = TaskScratch {
        table: FieldTable::new(&app.limits.http1),
        fields: FieldBlock::new(),
        body: Vec::new(),
        path: String::new(),
        out: Vec::new(),
    };
    loop {
        let Some(task_request) = exchange.next_request().await else {
            return;
        };
        // The holder of the responder needs no further notification.
        drop(exchange.take_abort_handle());
        let mut buffers = std::mem::take(&mut *exchange.buffers.borrow_mut());
        let guard = RunningGuard(&worker.tasks);
        let next = serve(
            &exchange,
            &app,
            &worker,
            &*handler,
            task_request,
            &buffers,
            &mut scratch,
        )
        .await;
        drop(guard);
        if next == NextAction::Wait {
            // The connection is a socket now.
            return;
        }
        if next != NextAction::Continue {
            return close(&exchange, &app, next);
        }
        shrink(&mut buffers, &mut scratch);
        *exchange.buffers.borrow_mut() = buffers;
        exchange.finish();
        if let Some(stream_ref) = exchange.take_stream_ref() {
            stream_ref.session.release_stream(stream_ref.stream);
        } else {
            let conn = exchange.conn();
            conn.set_deadline(Some(app.limits.idle_timeout));
            conn.resume();
        }
        if !worker.tasks.recycle(route, &exchange) {
            return;
        }
    }
}

/// Frees memory that one large request has caused to grow.
fn shrink(buffers: &mut Buffers, scratch: &mut TaskScratch) {
    buffers.collected = None;
    let all = [
        &mut buffers.head,
        &mut buffers.body,
        &mut scratch.body,
        &mut scratch.out,
    ];
    for buffer in all {
        buffer.clear();
        buffer.shrink_to(limits::SCRATCH_BYTES);
    }
}

/// Closes the connection after a response that announced it, at once or (the connection does that) when the client has had time to
/// read it.
pub(super) fn close(exchange: &Exchange, app: &CompiledApp, next: NextAction) {
    exchange.closing.set(true);
    let conn = exchange.conn();
    if next == NextAction::Close {
        conn.close();
    } else {
        conn.shutdown();
        conn.set_deadline(Some(app.limits.linger));
        conn.resume();
    }
}

/// Answers one request. Returns the next action of the connection: [`NextAction::Continue`] if it continues, [`NextAction::Wait`] if it continues
/// as a WebSocket.
async fn serve<F>(
    exchange: &Rc<Exchange>,
    app: &CompiledApp,
    worker: &WorkerContext,
    handler: &F,
    task_request: TaskRequest,
    buffers: &Buffers,
    scratch: &mut TaskScratch,
) -> NextAction
where
    F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result,
{
    let head = reparse_head(
        &buffers.head,
        exchange.stream_ref().is_some(),
        app,
        &mut scratch.table,
    );
    let path =
        path::normalise(head.target.path(), &mut scratch.path).expect("the connection has normalised it");
    let mut params = Params::new();
    let route_match = app.find(head.method, path, &mut params);
    let request = Request::new(
        &head,
        path,
        params,
        &buffers.body,
        app,
        worker,
        &route_match,
        task_request.peer,
        Some(&**exchange),
    );
    let mut unfinished = UnfinishedRequest {
        request: Some(&request),
        started_at: task_request.started_at,
    };
    let mut reply = Reply::new(&request, &mut scratch.fields, &mut scratch.body);
    reply.outgoing = Some(Outgoing::new(exchange, task_request.started_at, &mut scratch.out));
    let outcome = {
        let handler_future = pin!(async {
            match response::run_before(&request, &mut reply)? {
                Flow::Continue => handler(&request, &mut reply).await,
                Flow::Stop => Ok(()),
            }
        });
        catch_panics(handler_future, response::panicked).await
    };
    if outcome.as_ref().is_err_and(Error::is_disconnected) {
        // Counted and logged as unfinished: a client that can no longer complete its request gets no response.
        if let Some(stream_ref) = exchange.stream_ref() {
            stream_ref.session.reset(stream_ref.stream, ErrorCode::CANCEL);
        }
        return next_action(exchange, false, head.keep_alive, task_request);
    }
    if outcome.is_ok()
        && let Some(upgrade) = reply.upgrade.take()
    {
        unfinished.request = None;
        return switch_to_websocket(exchange, *upgrade, &mut reply, task_request);
    }
    let reusable = send_response(exchange, &mut reply, outcome, task_request.started_at).await;
    unfinished.request = None;
    worker.stats.answered(reply.status);
    worker.log(&request, reply.status, reply.sent, task_request.started_at);
    next_action(exchange, reusable, head.keep_alive, task_request)
}

/// Sends the rest of a response. Returns whether the connection can be reused.
async fn send_response(
    exchange: &Exchange,
    reply: &mut Reply<'_>,
    outcome: Result,
    started_at: Time,
) -> bool {
    if reply.is_streaming() {
        return end_stream(outcome, reply);
    }
    if outcome.is_ok() && reply.ends_in_trailers() {
        let outcome = reply.send_whole().await;
        return end_stream(outcome, reply);
    }
    response::apply_outcome(outcome, reply);
    let worker = reply.request.worker;
    worker.stats.took(worker.cx.clock().since(started_at));
    send(exchange, reply).await
}

/// Parses the head of a request that a connection has handed over.
pub(super) fn reparse_head<'a>(
    bytes: &'a [u8],
    http2: bool,
    app: &CompiledApp,
    table: &'a mut FieldTable,
) -> RequestHead<'a> {
    if http2 {
        let Some(head) = load_request(bytes, table) else {
            unreachable!("the connection has stored these bytes");
        };
        return head;
    }
    let parsed = parse_request(bytes, &app.limits.http1, &mut HeadScanner::new(), table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        unreachable!("the connection has parsed these bytes");
    };
    head
}

/// Returns the next action of the connection. If it closes: while bytes of this body or of a next request may still be in flight, a
/// reset for them could lose the response. Over TLS the client may still send its close_notify.
fn next_action(
    exchange: &Exchange,
    reusable: bool,
    body_handling: bool,
    task_request: TaskRequest,
) -> NextAction {
    if exchange.stream_ref().is_some() {
        // The connection's other streams continue.
        return NextAction::Continue;
    }
    let is_finished = exchange.is_body_complete() && !body_handling && !task_request.peer.secure;
    match (reusable, is_finished) {
        (true, _) => NextAction::Continue,
        (false, true) => NextAction::Close,
        (false, false) => NextAction::Linger,
    }
}

/// Responds with 101 and switches the connection to WebSocket. Over HTTP/2 only the stream is switched, and the connection
/// continues.
fn switch_to_websocket(
    exchange: &Exchange,
    upgrade: Upgrade,
    reply: &mut Reply<'_>,
    task_request: TaskRequest,
) -> NextAction {
    response::run_after(reply);
    if let Some(stream_ref) = exchange.stream_ref() {
        switch_stream_to_websocket(&stream_ref, exchange, upgrade, reply, task_request);
        return NextAction::Continue;
    }
    let Outgoing { out, .. } = reply.outgoing.take().expect("given to each reply of a task");
    let request = reply.request;
    let worker = request.worker;
    worker.refresh_date();
    response::encode_switch(reply, &upgrade.acceptance, out);
    let conn = exchange.conn();
    // Fails only when the connection is closed.
    let _ = conn.write(out);
    out.clear();
    worker.stats.answered(101);
    worker
        .stats
        .took(worker.cx.clock().since(task_request.started_at));
    worker.log(request, 101, 0, task_request.started_at);
    let mut ws_session = upgrade.into_session(&worker.sockets, WsTransport::Connection(conn.id()));
    ws_session.open();
    // Both may have happened while the handler waited.
    if exchange.has_client_ended() {
        ws_session.end();
        conn.close();
    } else if worker.cx.is_draining()
        && let Some(ws) = ws_session.drain()
    {
        worker.drain_queue.push(LongLived::Socket(ws));
    }
    exchange.finish_as_socket(ws_session);
    conn.resume();
    NextAction::Wait
}

fn switch_stream_to_websocket(
    stream_ref: &StreamRef,
    exchange: &Exchange,
    upgrade: Upgrade,
    reply: &mut Reply<'_>,
    task_request: TaskRequest,
) {
    let worker = reply.request.worker;
    worker.refresh_date();
    let early = exchange.take_queue();
    let switched = stream_ref
        .session
        .switch_to_websocket(reply, upgrade, stream_ref.stream, early);
    let status = match switched {
        Ok(()) => 200,
        Err(error) => {
            log::debug!("{:?}: no WebSocket was opened: {error}", reply.request);
            499
        }
    };
    worker.stats.answered(status);
    worker
        .stats
        .took(worker.cx.clock().since(task_request.started_at));
    worker.log(reply.request, status, 0, task_request.started_at);
    if worker.cx.is_draining() {
        stream_ref.session.drain_socket(stream_ref.stream);
    }
}

/// Runs a handler; a panic becomes an error. Takes it pinned, because the state of a handler is large and should not be moved.
pub(crate) fn catch_panics<E>(
    mut handler: Pin<&mut impl Future<Output = std::result::Result<(), E>>>,
    panicked: impl Fn(&(dyn Any + Send)) -> E,
) -> impl Future<Output = std::result::Result<(), E>> {
    poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
    })
}

/// Ends a response that has started. An error can only truncate it: the client detects that it is incomplete.
fn end_stream(outcome: Result, reply: &mut Reply<'_>) -> bool {
    let outcome = match outcome {
        Err(error) if error.is_head_sent() => Ok(()),
        outcome => outcome,
    };
    let finished = outcome.and_then(|()| reply.finish_stream().map_err(Error::internal));
    match finished {
        Ok(reusable) => reusable,
        Err(error) => {
            // A connection that refuses a chunk is closing: bytes that it had accepted are still sent.
            if !error.is_disconnected() {
                let (level, code) = match error.status() {
                    // Caused by the client.
                    ..500 => (log::Level::Debug, ErrorCode::CANCEL),
                    _ => (log::Level::Error, ErrorCode::INTERNAL_ERROR),
                };
                log::log!(level, "{:?}: response truncated: {error}", reply.request);
                // Put and not yet flushed.
                if let Some(stream_ref) = reply
                    .outgoing
                    .as_ref()
                    .and_then(|outgoing| outgoing.exchange.stream_ref())
                {
                    stream_ref.session.reset(stream_ref.stream, code);
                    return false;
                }
                if let Some(outgoing) = &mut reply.outgoing {
                    let _ = outgoing.exchange.conn().write(outgoing.out);
                    outgoing.out.clear();
                }
                // Without its last chunk or byte the client detects the truncation, and earlier responses still reach it. Only a
                // response that lasts until the connection ends needs a reset to be recognized as truncated.
                if let Some(outgoing) = &reply.outgoing
                    && !outgoing.is_delimited(reply.request.version())
                {
                    outgoing.exchange.conn().abort();
                }
            }
            false
        }
    }
}

/// Sends a whole response.
async fn send(exchange: &Exchange, reply: &mut Reply<'_>) -> bool {
    let Outgoing { out, .. } = reply.outgoing.take().expect("given to each reply of a task");
    reply.request.worker.refresh_date();
    if let Some(stream_ref) = exchange.stream_ref() {
        stream_ref.session.reply(reply, stream_ref.stream);
        return true;
    }
    let mut wire = reply.request.head.exchange();
    wire.keep_alive &= !exchange.is_last() && exchange.is_body_complete() && !reply.closes_after;
    let rest = response::encode(reply, wire, out);
    let conn = exchange.conn();
    // Fails only when the connection is closed: this task then ends.
    let _ = conn.write(out);
    if let Some(rest) = rest
        && send_rest(exchange, rest).await.is_err()
    {
        return false;
    }
    // The client's FIN or the shutdown may have arrived while the rest was sent.
    wire.keep_alive && !exchange.last.get()
}

async fn send_rest(exchange: &Exchange, mut rest: Bytes) -> Result {
    while !rest.is_empty() {
        let chunk = rest.split_to(rest.len().min(limits::SEND_CHUNK_BYTES));
        exchange
            .conn()
            .write_frame(chunk)
            .map_err(response_stream::disconnected)?;
        response_stream::wait_for_room(exchange).await?;
    }
    Ok(())
}
