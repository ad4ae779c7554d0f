//! Tasks that run asynchronous handlers, one request after another, so that a request allocates nothing.
//!
//! Owns the steps between a launched request and its response. Knows nothing of how connections are read.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{
    BodyDecoder, FieldBlock, FieldTable, HeadScanner, Parsed, RequestHead, parse_request,
};
use ringmain_wire::h2::{ErrorCode, load_request};

use super::exchange::{Buffers, Exchange, Job};
use super::http2::Line;
use super::memory_budget::Collected;
use super::response_stream::{self, Outgoing};
use super::{Then, response};
use crate::app::compiled::{Flow, Site};
use crate::http::error::{Error, Result};
use crate::http::path;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits;
use crate::router::Params;
use crate::server::worker_context::WorkerContext;
use crate::ws::{Carrier, Upgrade};

/// A request that a connection hands over.
pub(crate) struct Launched<'a> {
    pub(crate) job: Job,
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    /// Present when the body is streamed.
    pub(crate) decoder: Option<BodyDecoder>,
    /// The client waits for `100 Continue`.
    pub(crate) expects: bool,
    /// The HTTP/2 stream of the request and, if its body is streamed, the limit in bytes. `head` is in the form of
    /// `h2::store_request`.
    pub(crate) http2: Option<(Line, Option<Option<u64>>)>,
}

/// Starts asynchronous handlers of one route; hides their types.
pub(crate) trait Launch: Send + Sync {
    /// Hands a request to an idle runner, or to a new one. `None`: the worker runs the maximum number of requests.
    fn launch(
        &self,
        route: usize,
        site: &Arc<Site>,
        local: &Rc<WorkerContext>,
        request: Launched<'_>,
    ) -> Option<(Rc<Exchange>, u64)>;

    /// Starts a task for a request whose exchange has none. `false`: the worker runs the maximum number of tasks.
    fn adopt(
        &self,
        route: usize,
        site: &Arc<Site>,
        local: &Rc<WorkerContext>,
        exchange: &Rc<Exchange>,
    ) -> bool;

    /// Answers within an existing task.
    fn answer<'a>(&'a self, request: &'a Request<'_>, reply: &'a mut Reply<'_>) -> Answering<'a>;
}

/// A running handler of any type.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Result> + 'a>>;

/// A route's asynchronous handler.
pub(crate) struct Asynchronous<F>(pub(crate) Arc<F>);

impl<F> Launch for Asynchronous<F>
where
    F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
{
    fn launch(
        &self,
        route: usize,
        site: &Arc<Site>,
        local: &Rc<WorkerContext>,
        request: Launched<'_>,
    ) -> Option<(Rc<Exchange>, u64)> {
        let mut collected = None;
        if request.body.len() >= limits::LANE_BYTES {
            let mut counted = Collected::new(&local.bodies, None);
            if !counted.grow(request.body.len(), u64::MAX) {
                return None;
            }
            collected = Some(counted);
        }
        if !local.runners.enter() {
            return None;
        }
        let idle = local.runners.idle(route);
        let exchange = idle.unwrap_or_else(|| Exchange::new(&local.cx));
        let mut buffers = exchange.buffers.borrow_mut();
        buffers.head.extend_from_slice(request.head);
        buffers.body.extend_from_slice(request.body);
        buffers.collected = collected;
        drop(buffers);
        let serial = match request.http2 {
            None => exchange.begin(request.job, request.decoder, request.expects),
            Some((line, most)) => exchange.begin_on(request.job, line, most, request.expects),
        };
        if exchange.task().is_none() && !self.adopt(route, site, local, &exchange) {
            local.runners.leave();
            return None;
        }
        Some((exchange, serial))
    }

    fn adopt(
        &self,
        route: usize,
        site: &Arc<Site>,
        local: &Rc<WorkerContext>,
        exchange: &Rc<Exchange>,
    ) -> bool {
        let runner = run(
            Rc::clone(exchange),
            Arc::clone(site),
            Rc::clone(local),
            Arc::clone(&self.0),
            route,
        );
        let spawned = local.cx.spawn(runner);
        if let Ok(task) = &spawned {
            exchange.set_task(*task);
        }
        spawned.is_ok()
    }

    fn answer<'a>(&'a self, request: &'a Request<'_>, reply: &'a mut Reply<'_>) -> Answering<'a> {
        Box::pin((self.0)(request, reply))
    }
}

/// A worker's runners.
pub(crate) struct Runners {
    /// Idle exchanges by route.
    idle: RefCell<Vec<Vec<Rc<Exchange>>>>,
    running: Cell<usize>,
    limit: usize,
}

impl Runners {
    pub(crate) fn new(limit: usize) -> Runners {
        Runners {
            idle: RefCell::default(),
            running: Cell::new(0),
            limit,
        }
    }

    pub(super) fn enter(&self) -> bool {
        let fits = self.running.get() < self.limit;
        if fits {
            self.running.set(self.running.get() + 1);
        }
        fits
    }

    /// Removes a request that [`Launch::launch`] accepted from the count.
    pub(crate) fn leave(&self) {
        self.running.set(self.running.get() - 1);
    }

    pub(super) fn idle(&self, route: usize) -> Option<Rc<Exchange>> {
        self.idle.borrow_mut().get_mut(route)?.pop()
    }

    /// Pools an idle runner, unless the pool is full; if it holds too many, one more ends.
    pub(super) fn park(&self, route: usize, exchange: &Rc<Exchange>) -> bool {
        let mut idle = self.idle.borrow_mut();
        if idle.len() <= route {
            idle.resize_with(route + 1, Vec::new);
        }
        let idle = &mut idle[route];
        let most = limits::IDLE_RUNNERS.max(self.running.get());
        let fits = idle.len() < most;
        if fits {
            idle.push(Rc::clone(exchange));
        } else if idle.len() > most {
            // The runner that has been idle for longest, or nearly.
            let one = idle.swap_remove(0);
            one.surplus.set(true);
            one.wake();
        }
        fits
    }
}

#[cfg(feature = "testing")]
impl Runners {
    pub(crate) fn running(&self) -> usize {
        self.running.get()
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.idle.borrow().iter().map(Vec::len).sum()
    }
}

/// Removes a running request from the count when dropped.
struct RunningGuard<'a>(&'a Runners);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A request that ends because its client disconnects or the process stops: it is counted and logged as 499, the number that nginx
/// made common for it.
struct Unfinished<'a, 'r> {
    request: Option<&'a Request<'r>>,
    began: Time,
}

impl Drop for Unfinished<'_, '_> {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            request.local.stats.answered(499);
            request.local.log(request, 499, 0, self.began);
        }
    }
}

/// Memory that a runner reuses for each of its requests.
struct Scratch {
    table: FieldTable,
    fields: FieldBlock,
    body: Vec<u8>,
    path: String,
    out: Vec<u8>,
}

async fn run<F>(
    exchange: Rc<Exchange>,
    site: Arc<Site>,
    local: Rc<WorkerContext>,
    handler: Arc<F>,
    route: usize,
) where
    F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result,
{
    let mut scratch = Scratch {
        table: FieldTable::new(&site.limits.http1),
        fields: FieldBlock::new(),
        body: Vec::new(),
        path: String::new(),
        out: Vec::new(),
    };
    loop {
        let Some(job) = exchange.next().await else {
            return;
        };
        // The holder of the ticket needs no further notification.
        drop(exchange.take_early());
        let mut buffers = std::mem::take(&mut *exchange.buffers.borrow_mut());
        let guard = RunningGuard(&local.runners);
        let then = serve(&exchange, &site, &local, &*handler, job, &buffers, &mut scratch).await;
        drop(guard);
        if then == Then::Wait {
            // The connection is a socket now.
            return;
        }
        if then != Then::Next {
            return close(&exchange, &site, then);
        }
        shrink(&mut buffers, &mut scratch);
        *exchange.buffers.borrow_mut() = buffers;
        exchange.finish();
        if let Some(line) = exchange.take_line() {
            line.session.finished(line.stream);
        } else {
            let conn = exchange.conn();
            conn.set_deadline(Some(site.limits.idle_timeout));
            conn.resume();
        }
        if !local.runners.park(route, &exchange) {
            return;
        }
    }
}

/// Frees memory that one large request has caused to grow.
fn shrink(buffers: &mut Buffers, scratch: &mut Scratch) {
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
pub(super) fn close(exchange: &Exchange, site: &Site, then: Then) {
    exchange.closing.set(true);
    let conn = exchange.conn();
    if then == Then::Close {
        conn.close();
    } else {
        conn.shutdown();
        conn.set_deadline(Some(site.limits.linger));
        conn.resume();
    }
}

/// Answers one request. Returns the next action of the connection: [`Then::Next`] if it continues, [`Then::Wait`] if it continues
/// as a WebSocket.
async fn serve<F>(
    exchange: &Exchange,
    site: &Site,
    local: &WorkerContext,
    handler: &F,
    job: Job,
    buffers: &Buffers,
    scratch: &mut Scratch,
) -> Then
where
    F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result,
{
    let head = read_head(&buffers.head, exchange.line().is_some(), site, &mut scratch.table);
    let path =
        path::normalise(head.target.path(), &mut scratch.path).expect("the connection has normalised it");
    let mut params = Params::new();
    let verdict = site.find(head.method, path, &mut params);
    let request = Request::new(
        &head,
        path,
        params,
        &buffers.body,
        site,
        local,
        &verdict,
        job.origin,
        Some(exchange),
    );
    let mut unfinished = Unfinished {
        request: Some(&request),
        began: job.began,
    };
    let mut reply = Reply::new(&request, &mut scratch.fields, &mut scratch.body);
    reply.outgoing = Some(Outgoing::new(exchange, job.began, &mut scratch.out));
    let outcome = {
        let work = pin!(async {
            match response::run_before(&request, &mut reply)? {
                Flow::Continue => handler(&request, &mut reply).await,
                Flow::Stop => Ok(()),
            }
        });
        caught(work, response::panicked).await
    };
    if outcome.as_ref().is_err_and(Error::is_disconnected) {
        // Counted and logged as unfinished: a client that can no longer complete its request gets no response.
        if let Some(line) = exchange.line() {
            line.session.reset(line.stream, ErrorCode::CANCEL);
        }
        return ending(exchange, false, head.keep_alive, job);
    }
    if outcome.is_ok()
        && let Some(upgrade) = reply.upgrade.take()
    {
        unfinished.request = None;
        return switch(exchange, *upgrade, &mut reply, job);
    }
    let kept = conclude(exchange, &mut reply, outcome, job.began).await;
    unfinished.request = None;
    local.stats.answered(reply.status);
    local.log(&request, reply.status, reply.sent, job.began);
    ending(exchange, kept, head.keep_alive, job)
}

/// Sends the rest of a response. Returns whether the connection can be reused.
async fn conclude(exchange: &Exchange, reply: &mut Reply<'_>, outcome: Result, began: Time) -> bool {
    if reply.is_streaming() {
        return end_stream(outcome, reply);
    }
    if outcome.is_ok() && reply.ends_in_trailers() {
        let said = reply.send_whole().await;
        return end_stream(said, reply);
    }
    response::settle(outcome, reply);
    let local = reply.request.local;
    local.stats.took(local.cx.clock().since(began));
    send(exchange, reply).await
}

/// Parses the head of a request that a connection has handed over.
pub(super) fn read_head<'a>(
    bytes: &'a [u8],
    http2: bool,
    site: &Site,
    table: &'a mut FieldTable,
) -> RequestHead<'a> {
    if http2 {
        let Some(head) = load_request(bytes, table) else {
            unreachable!("the connection has stored these bytes");
        };
        return head;
    }
    let parsed = parse_request(bytes, &site.limits.http1, &mut HeadScanner::new(), table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        unreachable!("the connection has parsed these bytes");
    };
    head
}

/// Returns the next action of the connection. If it closes: while bytes of this body or of a next request may still be in flight, a
/// reset for them could lose the response. Over TLS the client may still send its close_notify.
fn ending(exchange: &Exchange, kept: bool, wanted: bool, job: Job) -> Then {
    if exchange.line().is_some() {
        // The connection's other streams continue.
        return Then::Next;
    }
    let over = exchange.body_is_over() && !wanted && !job.origin.secure;
    match (kept, over) {
        (true, _) => Then::Next,
        (false, true) => Then::Close,
        (false, false) => Then::Linger,
    }
}

/// Responds with 101 and switches the connection to WebSocket. Over HTTP/2 only the stream is switched, and the connection
/// continues.
fn switch(exchange: &Exchange, upgrade: Upgrade, reply: &mut Reply<'_>, job: Job) -> Then {
    response::run_after(reply);
    if let Some(line) = exchange.line() {
        switch_stream(&line, exchange, upgrade, reply, job);
        return Then::Next;
    }
    let Outgoing { out, .. } = reply.outgoing.take().expect("given to each reply of a runner");
    let request = reply.request;
    let local = request.local;
    local.follow_the_clock();
    response::switch(reply, &upgrade.acceptance, out);
    let conn = exchange.conn();
    // Fails only when the connection is closed.
    let _ = conn.write(out);
    out.clear();
    local.stats.answered(101);
    local.stats.took(local.cx.clock().since(job.began));
    local.log(request, 101, 0, job.began);
    let mut live = upgrade.into_live(&local.sockets, Carrier::Connection(conn.id()));
    live.open();
    // Both may have happened while the handler waited.
    if exchange.has_ended() {
        live.end();
        conn.close();
    } else if local.cx.is_draining() {
        live.drain();
    }
    exchange.finish_as(live);
    conn.resume();
    Then::Wait
}

fn switch_stream(line: &Line, exchange: &Exchange, upgrade: Upgrade, reply: &mut Reply<'_>, job: Job) {
    let local = reply.request.local;
    local.follow_the_clock();
    let early = exchange.take_queue();
    let switched = line.session.switch(reply, upgrade, line.stream, early);
    let status = match switched {
        Ok(()) => 200,
        Err(error) => {
            log::debug!("{:?}: no WebSocket was opened: {error}", reply.request);
            499
        }
    };
    local.stats.answered(status);
    local.stats.took(local.cx.clock().since(job.began));
    local.log(reply.request, status, 0, job.began);
    if local.cx.is_draining() {
        line.session.drain_sockets();
    }
}

/// Runs a handler; a panic becomes an error. Takes it pinned, because the state of a handler is large and should not be moved.
pub(crate) fn caught<E>(
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
    let ended = outcome.and_then(|()| reply.finish_stream().map_err(Error::internal));
    match ended {
        Ok(kept) => kept,
        Err(error) => {
            // A connection that refuses a chunk is closing: bytes that it had accepted are still sent.
            if !error.is_disconnected() {
                let (level, code) = match error.status() {
                    // Caused by the client.
                    ..500 => (log::Level::Debug, ErrorCode::CANCEL),
                    _ => (log::Level::Error, ErrorCode::INTERNAL_ERROR),
                };
                log::log!(level, "{:?}: cut while it was answered: {error}", reply.request);
                // Put and not yet flushed.
                if let Some(line) = reply
                    .outgoing
                    .as_ref()
                    .and_then(|outgoing| outgoing.exchange.line())
                {
                    line.session.reset(line.stream, code);
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
    let Outgoing { out, .. } = reply.outgoing.take().expect("given to each reply of a runner");
    reply.request.local.follow_the_clock();
    if let Some(line) = exchange.line() {
        line.session.reply(reply, line.stream);
        return true;
    }
    let mut wire = reply.request.head.exchange();
    wire.keep_alive &= !exchange.is_last() && exchange.body_is_over() && !reply.closes;
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
        let share = rest.split_to(rest.len().min(limits::SEND_SHARE));
        exchange
            .conn()
            .write_frame(share)
            .map_err(response_stream::gone)?;
        response_stream::taken(exchange).await?;
    }
    Ok(())
}
