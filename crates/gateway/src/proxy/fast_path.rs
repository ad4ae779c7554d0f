//! The fast path: requests that need no task. A pooled connection, or a stream of a shared one, takes them at once, and a response that
//! arrives in one piece completes them.
//!
//! ```text
//! look ─┬─ something to wait for ───────────────────────────────────────────▶ task
//!       └─ head written to a connection ──────┬─ whole response in one piece ─▶ Ticket::forward, back to the pool
//!                                             ├─ anything else ─▶ handed over to a task, which continues
//!                                             └─ client disconnects ─▶ abandoned
//! ```
//!
//! No byte of a response is consumed before all have arrived, so a task that takes over finds the connection untouched. Makes no decision
//! differently from the task path; a request that it cannot serve in the same way it leaves to a task.

mod abandoned;
pub(crate) mod requests;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Receiver;
use ringmain_web::{Early, Method, Request, Ticket, TicketId};
use ringmain_wire::h1::{FieldBlock, Framing, HeadScanner, Parsed, ResponseHead, parse_response};
use ringmain_wire::h2::load_response;

use super::backend::{self, hash_key};
use super::request::UpstreamRequest;
use super::response_body::ExchangeTimeouts;
use super::{RequestRoute, Routed, client, find_route, log_fields, reject_unforwardable, request, response};
use crate::compile::plan::{HeaderEdits, Plan, StatusHeaderEdits};
use crate::gateway::scratch::{DateCache, WorkerScratch};
use crate::gateway::{View, Worker};
use crate::limits;
use crate::model::{Action, Forward};
use crate::policy::{self, Cleared, PolicyOutcome, Refusal};
use crate::table::CompiledRoute;
use crate::upstream::h2::{H2Stream, StreamObserver};
use crate::upstream::pool::{SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{AffinityHint, RequestPermit};

/// A request on the fast path. Reused for other requests after it has finished.
pub(crate) struct FastPathRequest {
    worker: Weak<Worker>,
    me: Weak<FastPathRequest>,
    state: RefCell<Option<FastPathState>>,
    /// Its index among the requests that wait for a stream.
    pub(super) waiting_index: Cell<Option<usize>>,
}

/// The state of a request that started without a task.
pub(crate) struct FastPathState {
    /// The configuration that it started with.
    pub(super) view: Rc<View>,
    /// The result of its rule's policies, which are not evaluated again.
    pub(super) policy_result: Result<Cleared, Box<Refusal>>,
    /// Its first attempt; `None`: the task starts with that.
    pub(super) attempt: Option<StartedAttempt>,
    /// Its arrival.
    pub(super) arrived: Time,
    ticket: Option<Ticket>,
    id: TicketId,
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
    pool: Rc<UpstreamPool>,
    permit: RequestPermit,
    /// The index of its backend in the rule.
    pub(super) backend: usize,
    endpoint: SelectedEndpoint,
    /// The connection that carries its head. `None`: none was pooled, nothing was sent.
    conn: Option<UpstreamConn>,
    /// The time when its head was sent.
    sent: Time,
    timeouts: ExchangeTimeouts,
}

/// Starts a request without a body, unless it has to wait or is not forwarded.
pub(crate) fn try_fast_path(
    worker: &Rc<Worker>,
    req: &Request<'_>,
    ticket: Ticket,
) -> Result<Rc<dyn Early>, Ticket> {
    let Some(mut ahead) = start_request(worker, req, ticket.id()) else {
        return Err(ticket);
    };
    let underway = worker.fast_path.take_idle().unwrap_or_else(|| {
        Rc::new_cyclic(|me| FastPathRequest {
            worker: Rc::downgrade(worker),
            me: Weak::clone(me),
            state: RefCell::new(None),
            waiting_index: Cell::new(None),
        })
    });
    ahead.ticket = Some(ticket);
    match ahead.upstream_conn() {
        Some(UpstreamConn::Http1(sole)) => {
            let receiver: Rc<dyn Receiver> = underway.clone();
            sole.stream.attend(Some(receiver));
            underway.state.replace(Some(ahead));
        }
        Some(UpstreamConn::H2(channel)) => {
            let reader: Rc<dyn StreamObserver> = underway.clone();
            channel.set_observer(Some(reader));
            worker.fast_path.add_waiting(worker.cx.now(), &underway);
            underway.state.replace(Some(ahead));
        }
        None => {
            underway.state.replace(Some(ahead));
            underway.hand_over_to_task();
        }
    }
    Ok(underway)
}

/// Evaluates the policies and forwards a request's head, if nothing has to be waited for. `None`: nothing was changed.
fn start_request(worker: &Rc<Worker>, req: &Request<'_>, id: TicketId) -> Option<FastPathState> {
    if req.head().upgrade.is_some() {
        return None;
    }
    let view = worker.view();
    let Ok(Routed::Rule(mut found)) = find_route(worker, &view, req) else {
        return None;
    };
    let plan = found.matched.plan().ok()?;
    let Action::Forward(rule) = &found.matched.rule().action else {
        return None;
    };
    if plan.filters.is_some() || reject_unforwardable(&found, req).is_err() {
        return None;
    }
    // Preflight responses are local.
    if found.cors.as_ref().is_some_and(|cross| cross.is_preflight) {
        return None;
    }
    if rule.has_affinity() || rule.hedge.is_some() || rule.grpc_web || !plan.mirrors.is_empty() {
        return None;
    }
    let walked = match policy::evaluate_sync(worker, &found, req) {
        PolicyOutcome::Cleared(cleared) => Ok(cleared),
        PolicyOutcome::Refused(refusal) => Err(refusal),
        PolicyOutcome::Pending => return None,
    };
    let started = walked
        .as_ref()
        .ok()
        .and_then(|cleared| start_attempt(worker, &found, rule, plan, (req, cleared)));
    let logged = req.is_logged();
    let route = found.matched.route();
    let changes = started
        .as_ref()
        .map(|started| &plan.backends[started.backend].response);
    let needed = changes.is_some_and(|changes| needs_rule(rule, changes, logged));
    let series = match &started {
        Some(started) => &plan.backends[started.backend].series,
        None => &plan.number,
    };
    let counted = series.get().copied();
    let client = logged.then(|| client::address(&found.listener.client_address, req));
    Some(FastPathState {
        policy_result: walked,
        arrived: worker.cx.now(),
        ticket: None,
        id,
        series: counted.unwrap_or_else(|| worker.route_number(&route.route().name)),
        is_head: req.method() == Method::Head,
        rule: needed.then(|| (Arc::clone(route), found.matched.rule_number())),
        cors: found.cors.take().map(|cross| cross.fields),
        client: client.flatten(),
        attempt: started,
        view,
    })
}

/// Starts a request's first attempt. `None`: a task must start it, and reports errors.
fn start_attempt(
    worker: &Rc<Worker>,
    found: &RequestRoute<'_>,
    rule: &Forward,
    plan: &Plan,
    (req, cleared): (&Request<'_>, &Cleared),
) -> Option<StartedAttempt> {
    let (number, backend) = backend::pick_backend(worker, plan).ok()?;
    let local = worker.pool(backend.upstream.as_ref()?);
    if !local.can_acquire_now() {
        return None;
    }
    let admitted = local.try_admit_request()?;
    let key = local
        .with_hash_key(|key| hash_key(key, found.listener, req))
        .flatten();
    let chosen = local.select(&[], key, AffinityHint::None).ok()?;
    let sending = backend::build_upstream_request(found, rule, backend, number, (req, cleared));
    let now = worker.cx.now();
    let mut clock = ExchangeTimeouts::start(&rule.timeouts, now);
    let tried = ExchangeTimeouts {
        head: rule.timeouts.per_try.map(|span| now.after(span)),
        ..clock
    };
    let desk = &mut *worker.scratch.borrow_mut();
    let link = match local.is_multiplexed(&chosen.endpoint) {
        true if has_long_timeout(worker, tried.wait_limit(now)) => {
            send_head_on_stream(&local, &chosen, desk, (req, &sending)).map(UpstreamConn::H2)
        }
        true => None,
        false => write_head(&local, &chosen, desk, (req, &sending), tried.wait_limit(now)),
    };
    if link.is_some() {
        clock = tried;
    }
    if rule.retry.as_ref().is_some_and(|retry| retry.attempts > 0) {
        local.deposit_retry_budget();
    }
    Some(StartedAttempt {
        pool: local,
        permit: admitted,
        backend: number,
        endpoint: chosen,
        conn: link,
        sent: now,
        timeouts: clock,
    })
}

/// Writes a request's head to a pooled connection.
fn write_head(
    local: &UpstreamPool,
    chosen: &SelectedEndpoint,
    desk: &mut WorkerScratch,
    (req, sending): (&Request<'_>, &UpstreamRequest<'_>),
    span: Option<Duration>,
) -> Option<UpstreamConn> {
    desk.out.clear();
    // The head declares no body.
    let written = request::write_head(desk, req, &chosen.endpoint.endpoint, sending);
    let sole = written
        .is_ok()
        .then(|| local.try_acquire_idle(&chosen.endpoint))
        .flatten();
    if let Some(sole) = &sole {
        // Fails if the connection has just closed, which its receiver is notified about.
        let _ = sole.stream.write_now(&desk.out);
        sole.stream.set_deadline(span);
    }
    desk.out.clear();
    sole.map(UpstreamConn::Http1)
}

/// Sends a request's head on a stream of a connection that has room for it.
fn send_head_on_stream(
    local: &UpstreamPool,
    chosen: &SelectedEndpoint,
    desk: &mut WorkerScratch,
    (req, sending): (&Request<'_>, &UpstreamRequest<'_>),
) -> Option<H2Stream> {
    let channel = local.try_acquire_stream(&chosen.endpoint)?;
    // A task would report the error.
    let asked = request::send_head(desk, req, &chosen.endpoint.endpoint, sending, &channel);
    asked.is_ok().then_some(channel)
}

/// Returns whether the timeout of a response on a stream is long enough for periodic checks.
fn has_long_timeout(worker: &Rc<Worker>, span: Option<Duration>) -> bool {
    span.is_none_or(|span| span > 2 * limits::EARLY_TICK) && worker.start_timeout_checks()
}

/// Returns whether the response depends on the rule. Otherwise no reference count that workers share is touched.
fn needs_rule(rule: &Forward, changes: &StatusHeaderEdits, logged: bool) -> bool {
    let again = rule
        .retry
        .as_ref()
        .is_some_and(|retry| !retry.on.statuses.is_empty());
    logged || again || rule.replace_errors || rule.body.response.is_some() || !changes.is_empty()
}

impl Receiver for FastPathRequest {
    fn data(&self, bytes: &[u8]) -> usize {
        let (Some(worker), Some(me)) = (self.worker.upgrade(), self.me.upgrade()) else {
            return bytes.len();
        };
        let Some(mut ahead) = self.state.take() else {
            return 0;
        };
        if !ahead.try_respond(&worker, |ahead, ticket| ahead.relay_http1(&worker, bytes, ticket)) {
            // The connection notifies again later.
            self.state.replace(Some(ahead));
            return 0;
        }
        worker.fast_path.recycle(me);
        bytes.len()
    }

    fn news(&self) {
        if self
            .state
            .borrow()
            .as_ref()
            .is_some_and(|ahead| ahead.ticket.is_some())
        {
            self.hand_over_to_task();
        }
    }
}

impl StreamObserver for FastPathRequest {
    fn on_ready(&self) {
        let (Some(worker), Some(me)) = (self.worker.upgrade(), self.me.upgrade()) else {
            return;
        };
        worker.fast_path.remove_waiting(self);
        let Some(mut ahead) = self.state.take() else {
            return;
        };
        if ahead.try_respond(&worker, |ahead, ticket| ahead.relay_h2(&worker, ticket)) {
            return worker.fast_path.recycle(me);
        }
        self.state.replace(Some(ahead));
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
        let (Some(worker), Some(me)) = (self.worker.upgrade(), self.me.upgrade()) else {
            return;
        };
        worker.fast_path.remove_waiting(self);
        let (ticket, id) = match &mut *self.state.borrow_mut() {
            Some(ahead) => {
                ahead.detach_observer();
                (ahead.ticket.take(), ahead.id)
            }
            None => return,
        };
        worker.fast_path.add_handed_over(id, me);
        // At the limit of tasks the request gets none, and its client was answered.
        if !ticket.is_some_and(Ticket::run) {
            self.finish_without_response(503);
        }
    }

    /// Finishes a request whose client expects no more response.
    fn finish_without_response(&self, status: u16) {
        let (Some(worker), Some(mut ahead)) = (self.worker.upgrade(), self.state.take()) else {
            return;
        };
        let span = worker.cx.now().since(ahead.arrived);
        worker.counters.count_response(ahead.series, status, span);
        // Its task would have logged the refusal.
        if let Err(refusal) = &ahead.policy_result {
            worker.counters.count_fault(refusal.fault);
        }
        let handed = worker.fast_path.take_handed_over(ahead.id);
        worker.fast_path.remove_waiting(self);
        ahead.detach_observer();
        ahead.finish_abandoned(&worker);
        drop(ahead);
        if let Some(underway) = handed.or_else(|| self.me.upgrade()) {
            worker.fast_path.recycle(underway);
        }
    }
}

impl Early for FastPathRequest {
    fn abandon(&self) {
        self.finish_without_response(499);
    }

    fn note(&self, req: &Request<'_>) {
        let ahead = self.state.borrow();
        if let (Some(worker), Some(ahead)) = (self.worker.upgrade(), &*ahead)
            && let Some(started) = &ahead.attempt
        {
            ahead.log_attempt(&worker, started, req);
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
            Some(UpstreamConn::Http1(sole)) => sole.stream.attend(None),
            Some(UpstreamConn::H2(channel)) => channel.set_observer(None),
            None => {}
        }
    }

    /// Answers the client if the received bytes are a whole response that only needs to be relayed. Returns whether it was answered.
    fn try_respond(
        &mut self,
        worker: &Rc<Worker>,
        read: impl FnOnce(&FastPathState, Ticket) -> Result<(u16, bool), Ticket>,
    ) -> bool {
        let Some(ticket) = self.ticket.take() else {
            return false;
        };
        match read(self, ticket) {
            Ok((status, keep_alive)) => {
                self.finish_responded(worker, status, keep_alive);
                true
            }
            Err(ticket) => {
                self.ticket = Some(ticket);
                false
            }
        }
    }

    /// Relays an HTTP/1 response, if these bytes are all of its head and body.
    fn relay_http1(&self, worker: &Rc<Worker>, bytes: &[u8], ticket: Ticket) -> Result<(u16, bool), Ticket> {
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
            return Err(ticket);
        };
        let body = &bytes[length..];
        let is_whole = match head.framing {
            Framing::None => body.is_empty(),
            Framing::Length(length) => body.len() as u64 == length,
            Framing::Chunked | Framing::UntilClose => false,
        };
        if is_whole && !head.switches {
            self.relay_response(worker, (&head, body), (fields, date), ticket)
        } else {
            Err(ticket)
        }
    }

    /// Relays a response on a stream, if the stream has ended.
    fn relay_h2(&self, worker: &Rc<Worker>, ticket: Ticket) -> Result<(u16, bool), Ticket> {
        let Some(UpstreamConn::H2(channel)) = self.upstream_conn() else {
            return Err(ticket);
        };
        let WorkerScratch {
            table, fields, date, ..
        } = &mut *worker.scratch.borrow_mut();
        let mut ticket = Some(ticket);
        let passed = channel.with_complete_response(|stored, body| {
            let head = load_response(stored, table)?;
            // A task drops a body that is not allowed here.
            if !body.is_empty() && (self.is_head || matches!(head.status, 204 | 304)) {
                return None;
            }
            let passed = self.relay_response(worker, (&head, body), (fields, date), ticket.take()?);
            passed.map_err(|back| ticket = Some(back)).ok()
        });
        match (passed.flatten(), ticket) {
            (Some(passed), _) => Ok(passed),
            (None, Some(ticket)) => Err(ticket),
            (None, None) => unreachable!("an unused ticket is returned"),
        }
    }

    fn relay_response(
        &self,
        worker: &Rc<Worker>,
        (head, body): (&ResponseHead<'_>, &[u8]),
        (fields, date): (&mut FieldBlock, &mut DateCache),
        ticket: Ticket,
    ) -> Result<(u16, bool), Ticket> {
        let (Ok(cleared), Some(started)) = (&self.policy_result, &self.attempt) else {
            return Err(ticket);
        };
        let changes = match self.response_edits(started.backend, head.status, body) {
            Some(changes) if !head.is_interim() => changes,
            _ => return Err(ticket),
        };
        fields.clear();
        let cross = self.cors.is_some();
        let copied = match changes {
            Some(changes) => response::copy_fields(&head.fields, changes, cross, fields),
            None => response::copy_fields(&head.fields, &HeaderEdits::default(), cross, fields),
        };
        match copied {
            Ok(true) => {}
            Ok(false) => date.add_date(worker.cx.wall(), fields),
            Err(_) => return Err(ticket),
        }
        if let Some(cross) = &self.cors {
            fields.append(cross);
        }
        fields.append(cleared.response_headers());
        let framing = response::client_framing(head, self.is_head);
        ticket.forward(head.status, fields, framing, body, |req| {
            self.log_attempt(worker, started, req)
        })?;
        Ok((head.status, head.keep_alive))
    }

    /// Returns the edits of a response's head. `None`: the rule requires more for this response than relaying.
    fn response_edits(&self, backend: usize, status: u16, body: &[u8]) -> Option<Option<&HeaderEdits>> {
        let Some((route, number)) = &self.rule else {
            return Some(None);
        };
        let rule = &route.route().rules[*number];
        let Action::Forward(forward) = &rule.action else {
            return None;
        };
        let again = forward.retry.iter().flat_map(|retry| &retry.on.statuses);
        let pages = rule.error_pages.iter().filter(|_| forward.replace_errors);
        let mut special = again.chain(pages.map(|page| &page.statuses));
        let fits = forward.body.response.is_none_or(|most| body.len() as u64 <= most);
        if !fits || special.any(|range| range.contains(status)) {
            return None;
        }
        let plan = route.plan(*number).ok()?;
        Some(
            plan.backends
                .get(backend)
                .map(|backend| backend.response.edits_for(status)),
        )
    }

    /// Adds the access log fields of the request.
    fn log_attempt(&self, worker: &Worker, started: &StartedAttempt, req: &Request<'_>) {
        if let Some((route, number)) = &self.rule {
            log_fields::log_rule(route.route(), *number, req);
        }
        if let Some(client) = self.client {
            req.note_client(client);
        }
        if let Some(identity) = self.policy_result.as_ref().ok().and_then(Cleared::identity) {
            log_fields::log_identity(identity, req);
        }
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
            pool: local,
            endpoint: chosen,
            conn: link,
            sent,
            ..
        }) = self.attempt.take()
        {
            local.record_response(&chosen.endpoint, now.since(sent), status);
            match link {
                Some(UpstreamConn::Http1(sole)) if keep_alive => {
                    local.release(&chosen.endpoint, sole);
                    worker.start_sweeping();
                }
                _ => {}
            }
        }
        worker
            .counters
            .count_response(self.series, status, now.since(self.arrived));
    }
}
