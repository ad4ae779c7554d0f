//! The state of one worker for its application: its own state, constant fields, tasks, counters.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{FieldTable, Fields, Known};

use crate::app::compiled::CompiledApp;
use crate::http::request::Request;
use crate::http::request_id::RequestId;
use crate::logging::access_log::{AccessWriter, Record};
use crate::logging::log_limit::LogLimit;
use crate::server::drain::DrainQueue;
use crate::server::memory_budget::BodyBudget;
use crate::server::preamble::Preamble;
use crate::server::rejected::{RejectedRequest, RequestClient};
use crate::server::task_pool::TaskPool;
use crate::stats::WorkerStats;
use crate::ws::WsWorkerState;

pub(crate) struct WorkerContext {
    pub(crate) cx: Cx,
    pub(crate) app: Arc<CompiledApp>,
    /// The buffer for responses without a task.
    pub(crate) fast_path_out: RefCell<Vec<u8>>,
    /// The buffer for frames of HTTP/2 tasks.
    pub(crate) frame_out: RefCell<Vec<u8>>,
    /// For heads that are parsed once more, to be logged.
    pub(crate) reparse_table: RefCell<FieldTable>,
    states: Vec<(TypeId, Box<dyn Any>)>,
    pub(crate) preamble: RefCell<Preamble>,
    pub(crate) tasks: TaskPool,
    /// The budget of collected bodies.
    pub(crate) bodies: Rc<BodyBudget>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) sockets: Rc<WsWorkerState>,
    pub(crate) drain_queue: Rc<DrainQueue>,
    pub(crate) access: Option<RefCell<AccessWriter>>,
    /// Limits log lines about unencrypted requests on TLS listeners, and about server names that are not DNS names.
    pub(crate) plain_http_on_tls_port: LogLimit,
    /// Limits log lines about TLS on plain HTTP listeners.
    pub(crate) tls_on_plain_port: LogLimit,
    pub(crate) invalid_server_names: LogLimit,
    #[cfg(feature = "grpc")]
    pub(crate) grpc: RefCell<crate::grpc::Compressor>,
    /// The state of the id sequence.
    ids: Cell<(u64, u64)>,
}

impl WorkerContext {
    pub(crate) fn new(app: &Arc<CompiledApp>, cx: Cx) -> WorkerContext {
        let states = app.per_worker.iter().map(|create| create(&cx)).collect();
        let preamble =
            Preamble::new(app.server_name.as_deref()).expect("checked when the application was built");
        let stats = app.stats.worker(cx.worker());
        let limits = &app.limits;
        let sockets = WsWorkerState::new(
            cx.clone(),
            Arc::clone(&stats),
            limits.websocket,
            limits.rate_bytes,
        );
        WorkerContext {
            app: Arc::clone(app),
            fast_path_out: RefCell::default(),
            frame_out: RefCell::default(),
            reparse_table: RefCell::new(FieldTable::new(&app.limits.http1)),
            states,
            preamble: RefCell::new(preamble),
            tasks: TaskPool::new(app.limits.running_requests),
            bodies: BodyBudget::new(&cx, app.limits.collected_bytes),
            stats,
            sockets: Rc::new(sockets),
            drain_queue: DrainQueue::new(&cx),
            plain_http_on_tls_port: LogLimit::new(),
            tls_on_plain_port: LogLimit::new(),
            invalid_server_names: LogLimit::new(),
            access: app
                .access_log
                .as_ref()
                .map(|log| RefCell::new(log.writer_with(&app.redacted))),
            #[cfg(feature = "grpc")]
            grpc: RefCell::new(crate::grpc::Compressor::new()),
            ids: Cell::new((cx.random(), cx.random())),
            cx,
        }
    }

    /// Updates the `Date` of responses. Cheap, but not free: called once for all responses of one turn.
    pub(crate) fn refresh_date(&self) {
        self.preamble.borrow_mut().update(self.cx.wall());
    }

    /// Returns a new id. Its random part differs between workers and processes, the rest between the worker's requests.
    pub(crate) fn request_id(&self) -> RequestId {
        let (high, low) = self.ids.get();
        // A Weyl sequence: every value occurs once before any repeats.
        let low = low.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.ids.set((high, low));
        RequestId::new(high, low)
    }

    /// Records a response in the access log, if there is one.
    pub(crate) fn log(&self, request: &Request<'_>, status: u16, body_bytes: u64, started_at: Time) {
        let Some(access) = &self.access else {
            return;
        };
        let client = request.log_fields.client();
        request.log_fields.with_all(|log_fields| {
            access.borrow_mut().record(&Record {
                remote: client.or_else(|| request.remote().map(|remote| remote.ip())),
                time: self.cx.wall(),
                method: request.method().as_str(),
                target: request.target(),
                version: Some(request.version()),
                status,
                body_bytes,
                duration_us: micros(self.cx.clock().since(started_at)),
                referer: request.head.fields.known(Known::Referer),
                user_agent: request.head.fields.known(Known::UserAgent),
                request_id: request.id().map(RequestId::as_str),
                log_fields,
            });
        });
    }

    /// Returns the id of a request with these fields, if the application assigns ids.
    pub(crate) fn request_id_for(&self, fields: &Fields<'_>) -> Option<RequestId> {
        self.app.request_ids.then(|| {
            let sent = fields.known(Known::XRequestId).and_then(RequestId::accept);
            sent.unwrap_or_else(|| self.request_id())
        })
    }

    /// Records a request that no handler has seen.
    pub(crate) fn log_rejected(&self, client: RequestClient, status: u16, rejected: &RejectedRequest<'_>) {
        let Some(access) = &self.access else {
            return;
        };
        access.borrow_mut().record(&Record {
            remote: client.remote.map(|remote| remote.ip()),
            time: self.cx.wall(),
            method: rejected.method,
            target: rejected.target,
            version: Some(rejected.version),
            status,
            body_bytes: 0,
            duration_us: micros(self.cx.clock().since(client.started_at)),
            referer: rejected.referer,
            user_agent: rejected.user_agent,
            request_id: rejected.id.as_ref().map(RequestId::as_str),
            log_fields: &[],
        });
    }

    pub(crate) fn state<T: 'static>(&self) -> Option<&T> {
        let (_, value) = self.states.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        value.downcast_ref()
    }
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
