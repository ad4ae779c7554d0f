//! The fast path: a request runs without a task until one of its steps must wait. A pooled connection, or a stream of a shared one, takes
//! it at once, and a response that arrives in one piece completes it.
//!
//! ```text
//! evaluate ─▶ ForwardTarget ─▶ send_head ─▶ response arrives ─▶ ResponseRules ─▶ Responder::forward ─▶ pool_conn
//!    │              │              │               │                  │
//!    └──────────────┴── must wait ─┴───────────────┴─ not in one piece, or not to be relayed as it is
//!                          ▼
//!            task: continues with FastPathState at the same step
//! ```
//!
//! Each step is the same function with and without a task. Owns the events between the steps: data of the connection, a client that
//! disconnects, the hand-over to a task. No byte of a response is consumed before all have arrived, so a task that takes over finds the
//! connection untouched.

mod abandoned;
pub(crate) mod requests;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Receiver;
use ringmain_web::{AbortHandle, Method, Request, Responder, ResponderId};
use ringmain_wire::h1::{FieldBlock, Framing, HeadScanner, Parsed, ResponseHead, parse_response};
use ringmain_wire::h2::load_response;

use super::backend::{ClearedRequest, ForwardTarget, replacement_pages};
use super::evaluation::{Evaluation, PolicyResult, evaluate};
use super::forward::has_retries;
use super::response::ResponseRules;
use super::response_body::ExchangeTimeouts;
use super::{RequestRoute, client, log_fields, request, response};
use crate::compile::plan::{Plan, StatusHeaderEdits};
use crate::gateway::scratch::{DateCache, WorkerScratch};
use crate::gateway::{View, Worker};
use crate::limits;
use crate::model::{Action, Forward};
use crate::table::CompiledRoute;
use crate::upstream::h2::StreamObserver;
use crate::upstream::pool::{SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{AffinityHint, RequestPermit};

/// A request on the fast path. Reused for other requests after it has finished.
pub(crate) struct FastPathRequest {
    worker: Weak<Worker>,
    weak_self: Weak<FastPathRequest>,
    state: RefCell<Option<FastPathState>>,
    /// Its index among the requests that wait for a stream.
    pub(super) waiting_index: Cell<Option<usize>>,
}

/// The state of a request that started without a task.
pub(crate) struct FastPathState {
    /// The configuration that it started with.
    pub(super) view: Rc<View>,
    /// The result of its rule's policies, which are not evaluated again.
    pub(super) policy_result: PolicyResult,
    /// Its first attempt; `None`: the task starts with that.
    pub(super) attempt: Option<StartedAttempt>,
    /// Its arrival.
    pub(super) arrived: Time,
    responder: Option<Responder>,
    id: ResponderId,
    /// Its series in metrics.
    series: u32,
    is_head: bool,
    /// The rule, if the response depends on it.
    rule: Option<(Arc<CompiledRoute<Plan>>, usize)>,
    /// The CORS fields of the response, if the rule has a CORS policy.
    cors: Option<FieldBlock>,
    /// The client's address for the access log.
    client: Option<IpAddr>,
}

/// A first attempt that was started.
pub(crate) struct StartedAttempt {
    pub(super) pool: Rc<UpstreamPool>,
    permit: RequestPermit,
    /// The index of its backend in the rule.
    pub(super) backend: usize,
    endpoint: SelectedEndpoint,
    /// The connection that carries its head. `None`: none was pooled, nothing was sent.
    conn: Option<UpstreamConn>,
    /// The time when its head was sent.
    sent: Time,
    /// The time limits of the request.
    pub(super) timeouts: ExchangeTimeouts,
}

/// Starts a request without a body, unless it has to wait or is not forwarded.
pub(crate) fn try_fast_path(
    worker: &Rc<Worker>,
    req: &Request<'_>,
    responder: Responder,
) -> Result<Rc<dyn AbortHandle>, Responder> {
    let Some(mut state) = start_request(worker, req, responder.id()) else {
        return Err(responder);
    };
    let request = worker.fast_path.take_idle().unwrap_or_else(|| {
        Rc::new_cyclic(|weak_self| FastPathRequest {
            worker: Rc::downgrade(worker),
            weak_self: Weak::clone(weak_self),
            state: RefCell::new(None),
            waiting_index: Cell::new(None),
        })
    });
    state.responder = Some(responder);
    match state.upstream_conn() {
        Some(UpstreamConn::Http1(pooled)) => {
            let receiver: Rc<dyn Receiver> = request.clone();
            pooled.stream.attend(Some(receiver));
            request.state.replace(Some(state));
        }
        Some(UpstreamConn::H2(channel)) => {
            let reader: Rc<dyn StreamObserver> = request.clone();
            channel.set_observer(Some(reader));
            worker.fast_path.add_waiting(worker.cx.now(), &request);
            request.state.replace(Some(state));
        }
        None => {
            request.state.replace(Some(state));
            request.hand_over_to_task();
        }
    }
    Ok(request)
}

/// Evaluates the policies and forwards a request's head, if nothing has to be waited for. `None`: nothing was changed.
fn start_request(worker: &Rc<Worker>, req: &Request<'_>, id: ResponderId) -> Option<FastPathState> {
    if req.head().upgrade.is_some() {
        return None;
    }
    let view = worker.view();
    let evaluation = evaluate(worker, &view, req, None, |route| needs_no_task(route));
    let Evaluation::Matched(mut request_route, Some(policy_result)) = evaluation else {
        return None;
    };
    let plan = request_route.matched.plan().ok()?;
    let Action::Forward(rule) = &request_route.matched.rule().action else {
        return None;
    };
    let started = policy_result.as_ref().ok().and_then(|cleared| {
        let request = ClearedRequest {
            req,
            cleared,
            rule,
            plan,
        };
        start_attempt(worker, &request_route, request)
    });
    let logged = req.is_logged();
    let route = request_route.matched.route();
    let changes = started
        .as_ref()
        .map(|started| &plan.backends[started.backend].response);
    let needs_rule = changes.is_some_and(|changes| needs_rule(rule, changes, logged));
    let series = match &started {
        Some(started) => &plan.backends[started.backend].series,
        None => &plan.number,
    };
    let counted = series.get().copied();
    let client = logged.then(|| client::address(&request_route.listener.client_address, req));
    Some(FastPathState {
        policy_result,
        arrived: worker.cx.now(),
        responder: None,
        id,
        series: counted.unwrap_or_else(|| worker.route_number(&route.route().name)),
        is_head: req.method() == Method::Head,
        rule: needs_rule.then(|| (Arc::clone(route), request_route.matched.rule_number())),
        cors: request_route.cors.take().map(|cors| cors.fields),
        client: client.flatten(),
        attempt: started,
        view,
    })
}

/// Returns whether the rule can serve a request without a task: it forwards the request as it is, to one endpoint. Preflight responses are
/// local.
fn needs_no_task(route: &RequestRoute<'_>) -> bool {
    let (Ok(plan), Action::Forward(rule)) = (route.matched.plan(), &route.matched.rule().action) else {
        return false;
    };
    let is_preflight = route.cors.as_ref().is_some_and(|cors| cors.is_preflight);
    let is_plain = plan.filters.is_none() && plan.mirrors.is_empty() && !is_preflight;
    is_plain && !rule.has_affinity() && rule.hedge.is_none() && !rule.grpc_web
}

/// Starts a request's first attempt. `None`: a task must start it, and reports errors.
fn start_attempt<'a>(
    worker: &Rc<Worker>,
    route: &RequestRoute<'a>,
    request: ClearedRequest<'_, 'a>,
) -> Option<StartedAttempt> {
    let target = ForwardTarget::new(worker, route, request, None).ok()?;
    if !target.pool.can_acquire_now() {
        return None;
    }
    let permit = target.pool.try_admit_request()?;
    let endpoint = target.pool.select(&[], target.key, AffinityHint::None).ok()?;
    target.pool.count_attempt();
    let conn = send_on_open_conn(worker, request, &target, &endpoint);
    if has_retries(request.rule) {
        target.pool.deposit_retry_budget();
    }
    Some(StartedAttempt {
        pool: target.pool,
        permit,
        backend: target.number,
        endpoint,
        conn,
        sent: worker.cx.now(),
        timeouts: target.timeouts,
    })
}

/// Sends a request's head on a pooled connection, or on a stream of an open one. `None`: none has room, and nothing was sent.
fn send_on_open_conn(
    worker: &Rc<Worker>,
    request: ClearedRequest<'_, '_>,
    target: &ForwardTarget<'_>,
    endpoint: &SelectedEndpoint,
) -> Option<UpstreamConn> {
    let (pool, now) = (&target.pool, worker.cx.now());
    let timeouts = target.timeouts.for_attempt(&request.rule.timeouts, now);
    let limit = timeouts.wait_limit(now);
    let conn = if !pool.is_multiplexed(&endpoint.endpoint) {
        pool.try_acquire_idle(&endpoint.endpoint).map(UpstreamConn::Http1)
    } else if has_long_timeout(worker, limit) {
        pool.try_acquire_stream(&endpoint.endpoint).map(UpstreamConn::H2)
    } else {
        None
    }?;
    let scratch = &mut *worker.scratch.borrow_mut();
    let address = &endpoint.endpoint.endpoint;
    // A task would report the error.
    request::send_head(scratch, request.req, address, &target.upstream_request, &conn).ok()?;
    if let UpstreamConn::Http1(conn) = &conn {
        conn.stream.set_deadline(limit);
    }
    Some(conn)
}

/// Returns whether the timeout of a response on a stream is long enough for periodic checks.
fn has_long_timeout(worker: &Rc<Worker>, span: Option<Duration>) -> bool {
    span.is_none_or(|span| span > 2 * limits::EARLY_TICK) && worker.start_timeout_checks()
}

/// Returns whether the response depends on the rule. Otherwise no reference count that workers share is touched.
fn needs_rule(rule: &Forward, changes: &StatusHeaderEdits, logged: bool) -> bool {
    let has_retry_statuses = rule
        .retry
        .as_ref()
        .is_some_and(|retry| !retry.on.statuses.is_empty());
    logged || has_retry_statuses || rule.replace_errors || rule.body.response.is_some() || !changes.is_empty()
}

impl Receiver for FastPathRequest {
    fn data(&self, bytes: &[u8]) -> usize {
        let (Some(worker), Some(weak_self)) = (self.worker.upgrade(), self.weak_self.upgrade()) else {
            return bytes.len();
        };
        let Some(mut state) = self.state.take() else {
            return 0;
        };
        if !state.try_respond(&worker, |state, responder| {
            state.relay_http1(&worker, bytes, responder)
        }) {
            // The connection notifies again later.
            self.state.replace(Some(state));
            return 0;
        }
        worker.fast_path.recycle(weak_self);
        bytes.len()
    }

    fn news(&self) {
        if self
            .state
            .borrow()
            .as_ref()
            .is_some_and(|state| state.responder.is_some())
        {
            self.hand_over_to_task();
        }
    }
}

impl StreamObserver for FastPathRequest {
    fn on_ready(&self) {
        let (Some(worker), Some(weak_self)) = (self.worker.upgrade(), self.weak_self.upgrade()) else {
            return;
        };
        worker.fast_path.remove_waiting(self);
        let Some(mut state) = self.state.take() else {
            return;
        };
        if state.try_respond(&worker, |state, responder| state.relay_h2(&worker, responder)) {
            return worker.fast_path.recycle(weak_self);
        }
        self.state.replace(Some(state));
        self.hand_over_to_task();
    }
}

impl FastPathRequest {
    /// Takes the state, for its task.
    pub(super) fn take_state(&self) -> Option<FastPathState> {
        self.state.take()
    }

    /// Hands the rest over to a task.
    pub(super) fn hand_over_to_task(&self) {
        let (Some(worker), Some(weak_self)) = (self.worker.upgrade(), self.weak_self.upgrade()) else {
            return;
        };
        worker.fast_path.remove_waiting(self);
        let (responder, id) = match &mut *self.state.borrow_mut() {
            Some(state) => {
                state.detach_observer();
                (state.responder.take(), state.id)
            }
            None => return,
        };
        worker.fast_path.add_handed_over(id, weak_self);
        // At the limit of tasks the request gets none, and its client was answered.
        if !responder.is_some_and(Responder::start_task) {
            self.finish_without_response(503);
        }
    }

    /// Finishes a request whose client expects no more response.
    fn finish_without_response(&self, status: u16) {
        let (Some(worker), Some(mut state)) = (self.worker.upgrade(), self.state.take()) else {
            return;
        };
        let span = worker.cx.now().since(state.arrived);
        worker.counters.count_response(state.series, status, span);
        // Its task would have logged the refusal.
        if let Err(refusal) = &state.policy_result {
            worker.counters.count_fault(refusal.fault);
        }
        let handed = worker.fast_path.take_handed_over(state.id);
        worker.fast_path.remove_waiting(self);
        state.detach_observer();
        state.finish_abandoned(&worker);
        drop(state);
        if let Some(request) = handed.or_else(|| self.weak_self.upgrade()) {
            worker.fast_path.recycle(request);
        }
    }
}

impl AbortHandle for FastPathRequest {
    fn abandon(&self) {
        self.finish_without_response(499);
    }

    fn add_log_fields(&self, req: &Request<'_>) {
        let state = self.state.borrow();
        if let (Some(worker), Some(state)) = (self.worker.upgrade(), &*state)
            && let Some(started) = &state.attempt
        {
            state.log_attempt(&worker, started, req);
        }
    }
}

impl FastPathState {
    /// Returns the connection that carries the request's head.
    fn upstream_conn(&self) -> Option<&UpstreamConn> {
        self.attempt.as_ref()?.conn.as_ref()
    }

    /// Stops receiving events of the connection.
    fn detach_observer(&self) {
        match self.upstream_conn() {
            Some(UpstreamConn::Http1(pooled)) => pooled.stream.attend(None),
            Some(UpstreamConn::H2(channel)) => channel.set_observer(None),
            None => {}
        }
    }

    /// Answers the client if the received bytes are a whole response that only needs to be relayed. Returns whether it was answered.
    fn try_respond(
        &mut self,
        worker: &Rc<Worker>,
        read: impl FnOnce(&FastPathState, Responder) -> Result<(u16, bool), Responder>,
    ) -> bool {
        let Some(responder) = self.responder.take() else {
            return false;
        };
        match read(self, responder) {
            Ok((status, keep_alive)) => {
                self.finish_responded(worker, status, keep_alive);
                true
            }
            Err(responder) => {
                self.responder = Some(responder);
                false
            }
        }
    }

    /// Relays an HTTP/1 response, if these bytes are all of its head and body.
    fn relay_http1(
        &self,
        worker: &Rc<Worker>,
        bytes: &[u8],
        responder: Responder,
    ) -> Result<(u16, bool), Responder> {
        let WorkerScratch {
            limits,
            table,
            fields,
            date,
            ..
        } = &mut *worker.scratch.borrow_mut();
        let method = if self.is_head { Method::Head } else { Method::Get };
        let parsed = parse_response(bytes, method, limits, &mut HeadScanner::new(), table);
        let Ok(Parsed::Complete { head, bytes: length }) = parsed else {
            return Err(responder);
        };
        let body = &bytes[length..];
        let is_complete = match head.framing {
            Framing::None => body.is_empty(),
            Framing::Length(length) => body.len() as u64 == length,
            Framing::Chunked | Framing::UntilClose => false,
        };
        if is_complete && !head.switches {
            self.relay_response(worker, &head, body, fields, date, responder)
        } else {
            Err(responder)
        }
    }

    /// Relays a response on a stream, if the stream has ended.
    fn relay_h2(&self, worker: &Rc<Worker>, responder: Responder) -> Result<(u16, bool), Responder> {
        let Some(UpstreamConn::H2(channel)) = self.upstream_conn() else {
            return Err(responder);
        };
        let WorkerScratch {
            table, fields, date, ..
        } = &mut *worker.scratch.borrow_mut();
        let mut responder = Some(responder);
        let relayed = channel.with_complete_response(|stored, body| {
            let head = load_response(stored, table)?;
            // A task drops a body that is not allowed here.
            if !body.is_empty() && (self.is_head || matches!(head.status, 204 | 304)) {
                return None;
            }
            let relayed = self.relay_response(worker, &head, body, fields, date, responder.take()?);
            relayed.map_err(|returned| responder = Some(returned)).ok()
        });
        match (relayed.flatten(), responder) {
            (Some(relayed), _) => Ok(relayed),
            (None, Some(responder)) => Err(responder),
            (None, None) => unreachable!("an unused ticket is returned"),
        }
    }

    /// Relays a whole response, if the client receives it as it is but for the edits of its head. Returns its status, and whether its
    /// connection can be reused.
    fn relay_response(
        &self,
        worker: &Rc<Worker>,
        head: &ResponseHead<'_>,
        body: &[u8],
        fields: &mut FieldBlock,
        date: &mut DateCache,
        responder: Responder,
    ) -> Result<(u16, bool), Responder> {
        let Some((attempt, rules)) = self.response_rules().filter(|_| !head.is_interim()) else {
            return Err(responder);
        };
        let is_too_long = rules.body_limit.is_some_and(|limit| body.len() as u64 > limit);
        if is_too_long || rules.special(head.status).is_some() {
            return Err(responder);
        }
        fields.clear();
        if rules.write_fields(head, fields, date, worker.cx.wall()).is_err() {
            return Err(responder);
        }
        let framing = response::client_framing(head, self.is_head);
        responder.forward(head.status, fields, framing, body, |req| {
            self.log_attempt(worker, attempt, req)
        })?;
        Ok((head.status, head.keep_alive))
    }

    /// Returns the attempt, and the rule's treatment of its response. `None`: no attempt was started.
    fn response_rules(&self) -> Option<(&StartedAttempt, ResponseRules<'_>)> {
        let (Ok(cleared), Some(attempt)) = (&self.policy_result, &self.attempt) else {
            return None;
        };
        let mut rules = ResponseRules::new(self.cors.as_ref(), cleared);
        if let Some((route, number)) = &self.rule {
            let rule = &route.route().rules[*number];
            let Action::Forward(forward) = &rule.action else {
                return None;
            };
            let plan = route.plan(*number).ok()?;
            rules.retry = forward.retry.as_ref().map_or(&[], |retry| &retry.on.statuses);
            rules.pages = replacement_pages(rule, forward);
            rules.body_limit = forward.body.response;
            rules.edits = Some(&plan.backends.get(attempt.backend)?.response);
        }
        Some((attempt, rules))
    }

    /// Adds the access log fields of the request.
    fn log_attempt(&self, worker: &Worker, started: &StartedAttempt, req: &Request<'_>) {
        if let Some((route, number)) = &self.rule {
            log_fields::log_rule(route.route(), *number, self.client, req);
        }
        log_fields::log_policies(&self.policy_result, req);
        log_fields::log_attempt(
            worker,
            req,
            &started.pool.upstream.name,
            &started.endpoint.endpoint,
            started.sent,
            0,
        );
    }

    /// Finishes a request whose client was answered.
    fn finish_responded(&mut self, worker: &Rc<Worker>, status: u16, keep_alive: bool) {
        let now = worker.cx.now();
        self.detach_observer();
        if let Some(StartedAttempt {
            pool,
            endpoint: selected,
            conn,
            sent,
            ..
        }) = self.attempt.take()
        {
            pool.record_response(&selected.endpoint, now.since(sent), status);
            if let Some(conn) = conn {
                worker.pool_conn(&pool, &selected.endpoint, conn, keep_alive);
            }
        }
        worker
            .counters
            .count_response(self.series, status, now.since(self.arrived));
    }
}
