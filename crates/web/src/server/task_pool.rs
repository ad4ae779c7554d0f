//! The pool of tasks that run asynchronous handlers, one request after another, so that a request allocates nothing.
//!
//! Owns the start of a task and the count of running requests. The task itself: `task.rs`.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_wire::h1::BodyDecoder;

use super::exchange::{Exchange, TaskRequest};
use super::http2::StreamRef;
use super::memory_budget::BodyReservation;
use super::task::run_task;
use crate::app::compiled::CompiledApp;
use crate::http::error::Result;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits;
use crate::server::worker_context::WorkerContext;

/// A request that a connection hands over.
pub(crate) struct PendingTask<'a> {
    pub(crate) task_request: TaskRequest,
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    /// Present when the body is streamed.
    pub(crate) decoder: Option<BodyDecoder>,
    /// The client waits for `100 Continue`.
    pub(crate) expects: bool,
    /// The HTTP/2 stream of the request and, if its body is streamed, the limit in bytes. `head` is in the form of
    /// `h2::store_request`.
    pub(crate) http2: Option<(StreamRef, Option<Option<u64>>)>,
}

/// Starts asynchronous handlers of one route; hides their types.
pub(crate) trait TaskFactory: Send + Sync {
    /// Hands a request to an idle task, or to a new one. `None`: the worker runs the maximum number of requests.
    fn start(
        &self,
        route: usize,
        app: &Arc<CompiledApp>,
        worker: &Rc<WorkerContext>,
        request: PendingTask<'_>,
    ) -> Option<(Rc<Exchange>, u64)>;

    /// Starts a task for a request whose exchange has none. `false`: the worker runs the maximum number of tasks.
    fn start_task_for(
        &self,
        route: usize,
        app: &Arc<CompiledApp>,
        worker: &Rc<WorkerContext>,
        exchange: &Rc<Exchange>,
    ) -> bool;

    /// Answers within an existing task.
    fn run_inline<'a>(&'a self, request: &'a Request<'_>, reply: &'a mut Reply<'_>) -> HandlerFuture<'a>;
}

/// A running handler of any type.
pub(crate) type HandlerFuture<'a> = Pin<Box<dyn Future<Output = Result> + 'a>>;

/// A route's asynchronous handler.
pub(crate) struct AsyncHandler<F>(pub(crate) Arc<F>);

impl<F> TaskFactory for AsyncHandler<F>
where
    F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
{
    fn start(
        &self,
        route: usize,
        app: &Arc<CompiledApp>,
        worker: &Rc<WorkerContext>,
        request: PendingTask<'_>,
    ) -> Option<(Rc<Exchange>, u64)> {
        let mut collected = None;
        if request.body.len() >= limits::STREAM_RECORD_BYTES {
            let mut counted = BodyReservation::new(&worker.bodies, None);
            if !counted.grow(request.body.len(), u64::MAX) {
                return None;
            }
            collected = Some(counted);
        }
        if !worker.tasks.acquire() {
            return None;
        }
        let idle = worker.tasks.take_idle(route);
        let exchange = idle.unwrap_or_else(|| Exchange::new(&worker.cx));
        let mut buffers = exchange.buffers.borrow_mut();
        buffers.head.extend_from_slice(request.head);
        buffers.body.extend_from_slice(request.body);
        buffers.collected = collected;
        drop(buffers);
        let serial = match request.http2 {
            None => exchange.start(request.task_request, request.decoder, request.expects),
            Some((stream_ref, limit)) => {
                exchange.start_on_stream(request.task_request, stream_ref, limit, request.expects)
            }
        };
        if exchange.task().is_none() && !self.start_task_for(route, app, worker, &exchange) {
            worker.tasks.release();
            return None;
        }
        Some((exchange, serial))
    }

    fn start_task_for(
        &self,
        route: usize,
        app: &Arc<CompiledApp>,
        worker: &Rc<WorkerContext>,
        exchange: &Rc<Exchange>,
    ) -> bool {
        let task = run_task(
            Rc::clone(exchange),
            Arc::clone(app),
            Rc::clone(worker),
            Arc::clone(&self.0),
            route,
        );
        let spawned = worker.cx.spawn(task);
        if let Ok(task) = &spawned {
            exchange.set_task(*task);
        }
        spawned.is_ok()
    }

    fn run_inline<'a>(&'a self, request: &'a Request<'_>, reply: &'a mut Reply<'_>) -> HandlerFuture<'a> {
        Box::pin((self.0)(request, reply))
    }
}

/// A worker's tasks.
pub(crate) struct TaskPool {
    /// Idle exchanges by route.
    idle: RefCell<Vec<Vec<Rc<Exchange>>>>,
    running: Cell<usize>,
    limit: usize,
}

impl TaskPool {
    pub(crate) fn new(limit: usize) -> TaskPool {
        TaskPool {
            idle: RefCell::default(),
            running: Cell::new(0),
            limit,
        }
    }

    pub(super) fn acquire(&self) -> bool {
        let is_admitted = self.running.get() < self.limit;
        if is_admitted {
            self.running.set(self.running.get() + 1);
        }
        is_admitted
    }

    /// Removes a request that [`TaskFactory::start`] accepted from the count.
    pub(crate) fn release(&self) {
        self.running.set(self.running.get() - 1);
    }

    pub(super) fn take_idle(&self, route: usize) -> Option<Rc<Exchange>> {
        self.idle.borrow_mut().get_mut(route)?.pop()
    }

    /// Pools an idle task, unless the pool is full; if it holds too many, one more ends.
    pub(super) fn recycle(&self, route: usize, exchange: &Rc<Exchange>) -> bool {
        let mut idle = self.idle.borrow_mut();
        if idle.len() <= route {
            idle.resize_with(route + 1, Vec::new);
        }
        let idle = &mut idle[route];
        let limit = limits::IDLE_TASKS.max(self.running.get());
        let is_admitted = idle.len() < limit;
        if is_admitted {
            idle.push(Rc::clone(exchange));
        } else if idle.len() > limit {
            // The task that has been idle for longest, or nearly.
            let one = idle.swap_remove(0);
            one.surplus.set(true);
            one.wake();
        }
        is_admitted
    }
}

#[cfg(feature = "testing")]
impl TaskPool {
    pub(crate) fn running(&self) -> usize {
        self.running.get()
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.idle.borrow().iter().map(Vec::len).sum()
    }
}
