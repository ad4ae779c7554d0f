//! The state of one worker for its application: its own state, constant fields, runners, counters.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{FieldTable, Fields, Known};

use crate::app::compiled::Site;
use crate::http::request::Request;
use crate::http::request_id::RequestId;
use crate::logging::access_log::{AccessWriter, Record};
use crate::logging::log_limit::LogLimit;
use crate::server::memory_budget::BodyBudget;
use crate::server::preamble::Preamble;
use crate::server::rejected::Refused;
use crate::server::task_pool::Runners;
use crate::stats::WorkerStats;
use crate::ws::Sockets;

pub(crate) struct WorkerContext {
    pub(crate) cx: Cx,
    pub(crate) site: Arc<Site>,
    /// The buffer for responses without a task.
    pub(crate) early: RefCell<Vec<u8>>,
    /// The buffer for frames of HTTP/2 tasks.
    pub(crate) framed: RefCell<Vec<u8>>,
    /// For heads that are parsed once more, to be logged.
    pub(crate) again: RefCell<FieldTable>,
    states: Vec<(TypeId, Box<dyn Any>)>,
    pub(crate) preamble: RefCell<Preamble>,
    pub(crate) runners: Runners,
    /// The budget of collected bodies.
    pub(crate) bodies: Rc<BodyBudget>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) sockets: Rc<Sockets>,
    pub(crate) access: Option<RefCell<AccessWriter>>,
    /// Limits log lines about unencrypted requests on TLS listeners, and about server names that are not DNS names.
    pub(crate) plain_http: LogLimit,
    /// Limits log lines about TLS on plain HTTP listeners.
    pub(crate) tls_in_the_clear: LogLimit,
    pub(crate) server_names: LogLimit,
    #[cfg(feature = "grpc")]
    pub(crate) grpc: RefCell<crate::grpc::Coder>,
    /// The state of the id sequence.
    ids: Cell<(u64, u64)>,
}

impl WorkerContext {
    pub(crate) fn new(site: &Arc<Site>, cx: Cx) -> WorkerContext {
        let states = site.per_worker.iter().map(|make| make(&cx)).collect();
        let preamble =
            Preamble::new(site.server_name.as_deref()).expect("checked when the application was built");
        let stats = site.stats.worker(cx.worker());
        let limits = &site.limits;
        let sockets = Sockets::new(
            cx.clone(),
            Arc::clone(&stats),
            limits.websocket,
            limits.rate_bytes,
        );
        WorkerContext {
            site: Arc::clone(site),
            early: RefCell::default(),
            framed: RefCell::default(),
            again: RefCell::new(FieldTable::new(&site.limits.http1)),
            states,
            preamble: RefCell::new(preamble),
            runners: Runners::new(site.limits.running_requests),
            bodies: BodyBudget::new(&cx, site.limits.collected_bytes),
            stats,
            sockets: Rc::new(sockets),
            plain_http: LogLimit::new(),
            tls_in_the_clear: LogLimit::new(),
            server_names: LogLimit::new(),
            access: site
                .access_log
                .as_ref()
                .map(|log| RefCell::new(log.writer_with(&site.redacted))),
            #[cfg(feature = "grpc")]
            grpc: RefCell::new(crate::grpc::Coder::new()),
            ids: Cell::new((cx.random(), cx.random())),
            cx,
        }
    }

    /// Updates the `Date` of responses. Cheap, but not free: called once for all responses of one turn.
    pub(crate) fn follow_the_clock(&self) {
        self.preamble.borrow_mut().follow(self.cx.wall());
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
    pub(crate) fn log(&self, request: &Request<'_>, status: u16, body_bytes: u64, began: Time) {
        let Some(access) = &self.access else {
            return;
        };
        let client = request.notes.client();
        request.notes.look(|notes| {
            access.borrow_mut().record(&Record {
                remote: client.or_else(|| request.remote().map(|remote| remote.ip())),
                time: self.cx.wall(),
                method: request.method().as_str(),
                target: request.target(),
                version: Some(request.version()),
                status,
                body_bytes,
                duration_us: micros(self.cx.clock().since(began)),
                referer: request.head.fields.known(Known::Referer),
                user_agent: request.head.fields.known(Known::UserAgent),
                request_id: request.id().map(RequestId::as_str),
                notes,
            });
        });
    }

    /// Returns the id of a request with these fields, if the application assigns ids.
    pub(crate) fn id_of(&self, fields: &Fields<'_>) -> Option<RequestId> {
        self.site.request_ids.then(|| {
            let sent = fields.known(Known::XRequestId).and_then(RequestId::accept);
            sent.unwrap_or_else(|| self.request_id())
        })
    }

    /// Records a request that no handler has seen.
    pub(crate) fn log_refused(
        &self,
        remote: Option<SocketAddr>,
        status: u16,
        refused: &Refused<'_>,
        began: Time,
    ) {
        let Some(access) = &self.access else {
            return;
        };
        access.borrow_mut().record(&Record {
            remote: remote.map(|remote| remote.ip()),
            time: self.cx.wall(),
            method: refused.method,
            target: refused.target,
            version: Some(refused.version),
            status,
            body_bytes: 0,
            duration_us: micros(self.cx.clock().since(began)),
            referer: refused.referer,
            user_agent: refused.user_agent,
            request_id: refused.id.as_ref().map(RequestId::as_str),
            notes: &[],
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
