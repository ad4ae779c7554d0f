//! Forwarding of a request to an upstream: its attempts, one after the other.

mod admission;
mod attempt;
mod hedge;
mod response_head;
mod retry;
mod timeouts;

use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_web::{Reply, Request};
use ringmain_wire::h1::Framing;
use ringmain_wire::ws::Challenge;

use self::admission::ShareAdmission;
use self::attempt::AttemptOutcome;
use self::retry::{AttemptState, is_idempotent};
use super::affinity::AffinitySession;
use super::backend::{ClearedRequest, ForwardTarget, client_addresses, hash_client, replacement_pages};
use super::cors::CorsHeaders;
use super::fast_path::StartedAttempt;
use super::filter_chain::FilterChain;
use super::grpc::{self, RequestTextDecoder};
use super::mirror;
use super::replay_buffer::ReplayBuffer;
use super::request::{self, UpstreamRequest};
use super::request_body::UnsentRequest;
use super::response::{ResponseReader, ResponseRules};
use super::response_body::{ExchangeTimeouts, ResponseRelay};
use super::tunnel::Tunnel;
use super::{Continuation, Failure, RequestRoute, client_scheme, local_response, log_fields};
use crate::compile::plan::PlannedBackend;
use crate::fault::{Fault, FaultSide, Violation};
use crate::gateway::Worker;
use crate::health::RequestOutcome;
use crate::model::{Affinity, AffinityBy, ErrorPage, Forward};
use crate::policy::Cleared;
use crate::upstream::AffinityHint;
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamConn, UpstreamPool};

/// The parts of a request that are the same for all attempts.
struct ForwardJob<'a, 'r> {
    worker: &'a Rc<Worker>,
    pool: &'a Rc<UpstreamPool>,
    forward: &'a Forward,
    backend: &'a PlannedBackend,
    upstream_request: UpstreamRequest<'a>,
    req: &'a Request<'r>,
    deadlines: ExchangeTimeouts,
    /// The hash of the balancing key.
    key: Option<u64>,
    affinity_hint: AffinityHint,
    affinity: Option<&'a Affinity>,
    session: AffinitySession,
    /// The part of the body that is buffered for another attempt.
    replay: ReplayBuffer,
    admission: ShareAdmission,
    grpc_web: RequestTextDecoder,
    /// The CORS fields of the response.
    cors: Option<&'a CorsHeaders>,
    /// Error pages that replace the upstream's error responses.
    pages: &'a [ErrorPage],
    /// The filters of bodies and response.
    chain: Option<&'a FilterChain>,
    attempts: AttemptState,
}

/// A started attempt: its endpoint, the connection that carries its head, and its start.
pub(super) type StartedConn = (SelectedEndpoint, Option<UpstreamConn>, Time);

/// A failed attempt.
struct AttemptError {
    kind: AttemptErrorKind,
    /// The request was sent on a pooled connection, and no byte of a response arrived: the upstream may have closed it at the same time.
    is_stale: bool,
    /// The endpoint has reported that it did not process the request.
    is_unprocessed: bool,
    /// The rule that the endpoint violated, if any.
    detail: Option<Box<Violation>>,
}

impl AttemptError {
    /// Creates the error of a failure; `before`: the connection has served other requests.
    fn from_failure(failure: Failure, before: bool) -> AttemptError {
        AttemptError {
            is_stale: before && is_stale_connection(&failure),
            is_unprocessed: matches!(failure, Failure::Fault(Fault::StreamRefused)),
            detail: None,
            kind: AttemptErrorKind::Failure(failure),
        }
    }

    /// Creates the error of a response that is not relayed.
    fn from_status(status: u16) -> AttemptError {
        AttemptError {
            kind: AttemptErrorKind::Status(status),
            is_stale: false,
            is_unprocessed: false,
            detail: None,
        }
    }
}

/// The cause of a failed attempt.
enum AttemptErrorKind {
    Failure(Failure),
    /// The response has a status after which the request is retried.
    Status(u16),
}

impl<F: Into<Failure>> From<F> for AttemptError {
    fn from(failure: F) -> AttemptError {
        AttemptError::from_failure(failure.into(), false)
    }
}

/// Forwards a request, and retries it if that is allowed. `started`: its first attempt, if the fast path has started it.
pub(super) async fn forward(
    worker: &Rc<Worker>,
    route: &RequestRoute<'_>,
    request: ClearedRequest<'_, '_>,
    started: Option<StartedAttempt>,
    chain: Option<&FilterChain>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Failure> {
    let ClearedRequest {
        req,
        cleared,
        rule: forward,
        plan,
    } = request;
    let ForwardTarget {
        number,
        backend,
        pool,
        timeouts,
        key,
        upstream_request,
    } = ForwardTarget::new(worker, route, request, started.as_ref())?;
    if let (Some(count), Some(series)) = (route.counter, backend.series.get()) {
        count.series(*series);
    }
    check_body(forward, req)?;
    let is_new = started.is_none();
    let (permit, first) = started.map(StartedAttempt::into_parts).unzip();
    let affinity = forward.affinity_of(number);
    let session = affinity.map(|by| AffinitySession::from_request(by, req, worker.cx.wall().as_secs()));
    let session = session.unwrap_or_default();
    let job = ForwardJob {
        worker,
        pool: &pool,
        forward,
        backend,
        upstream_request,
        req,
        deadlines: timeouts,
        key,
        affinity,
        affinity_hint: affinity_hint(route, affinity, &session, req),
        session,
        admission: ShareAdmission::default(),
        replay: start_replay(forward, &pool, cleared),
        grpc_web: RequestTextDecoder::from_content_type(grpc::grpc_web_type(forward, req)),
        cors: route.cors.as_ref(),
        pages: replacement_pages(route.matched.rule(), forward),
        chain,
        attempts: AttemptState::default(),
    };
    if is_new {
        job.wait_for_admission().await?;
    }
    // A request that is not entitled to a slot yet is not counted.
    let permit = permit.map_or_else(|| pool.admit_request(), Ok)?;
    if is_new && (forward.hedge.is_some() || has_retries(forward)) {
        pool.deposit_retry_budget();
    }
    let outcome = job.run_attempts(first, reply).await;
    drop(permit);
    if !plan.mirrors.is_empty() && !matches!(outcome, Err(Failure::Web(_))) {
        mirror::send_mirrors(worker, route, request, &job.replay);
    }
    outcome
}

/// Creates the buffer of a request's body; it has the body that a policy has received completely, including its end.
fn start_replay(forward: &Forward, pool: &UpstreamPool, cleared: &Cleared) -> ReplayBuffer {
    let replay = ReplayBuffer::for_request(forward, pool.may_multiplex());
    if let Some(body) = cleared.body() {
        replay.buffer_unsent(body);
    }
    replay
}

/// Returns whether the rule retries requests: each deposits a share in the upstream's retry budget.
pub(super) fn has_retries(forward: &Forward) -> bool {
    forward.retry.as_ref().is_some_and(|retry| retry.attempts > 0)
}

/// Checks the declared length of the request body, and exempts live streams from the listener's minimum rate.
///
/// # Errors
/// [`Fault::RequestTooLarge`] if the declared length exceeds the rule's limit.
fn check_body(forward: &Forward, req: &Request<'_>) -> Result<(), Fault> {
    if let (Framing::Length(length), Some(limit)) = (req.head().framing, forward.body.request)
        && length > limit
    {
        return Err(Fault::RequestTooLarge);
    }
    if is_live_stream(req) {
        req.disable_body_rate();
    }
    Ok(())
}

/// Returns whether a request body is a live stream rather than an upload: its length is not declared (RFC 9112 §6.3, RFC 9113 §8.1.1).
///
/// A client that declares a length has the whole body: only the network, or malice, makes it slow, and its listener's minimum rate applies.
/// A client that does not produces the body as it sends it (gRPC calls, message streams, logs) and may have nothing to send for a while:
/// only silence in both directions ends the exchange, after `timeouts.idle`.
fn is_live_stream(req: &Request<'_>) -> bool {
    req.head().framing == Framing::Chunked
}

/// Returns the endpoint that affinity prefers for the client.
fn affinity_hint(
    route: &RequestRoute<'_>,
    affinity: Option<&Affinity>,
    session: &AffinitySession,
    req: &Request<'_>,
) -> AffinityHint {
    match affinity {
        Some(affinity) if affinity.by == AffinityBy::Source => {
            hash_client(route.listener, req).map_or(AffinityHint::None, AffinityHint::KeyHash)
        }
        _ => session.hint(),
    }
}

impl ForwardJob<'_, '_> {
    /// Runs the attempts. `first`: the first one, if it was started before.
    async fn run_attempts(
        &self,
        mut first: Option<StartedConn>,
        reply: &mut Reply<'_>,
    ) -> Result<Continuation, Failure> {
        let mut tried: Vec<Rc<PoolEndpoint>> = Vec::new();
        let mut fresh = false;
        let hedge = self.hedge_delay().await?;
        if first.is_none() {
            self.pool.wait_until_resolved(self.connect_time_left()).await;
            self.check_request_timeout()?;
        }
        let pending = log_fields::PendingAttempt::new(self.worker, self.req, &self.pool.upstream.name);
        loop {
            self.attempts.retries.set(tried.len());
            let (selected, conn, started_at) = match first.take() {
                Some(started) => started,
                None => self.select_next(&tried)?,
            };
            pending.start(&selected.endpoint, started_at, tried.len());
            let (attempted, end, started_at) = self
                .run_next((selected, conn, started_at), hedge, &mut tried, fresh, reply)
                .await;
            pending.finish();
            self.log_attempt(&end, started_at, tried.len());
            let error = match attempted {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let fault = match error.kind {
                AttemptErrorKind::Failure(Failure::Fault(fault)) => Some(fault),
                AttemptErrorKind::Failure(failure) => return Err(failure),
                AttemptErrorKind::Status(_) => None,
            };
            if let Some(fault) = fault.filter(|fault| fault.side() != FaultSide::Client) {
                self.count_fault(fault, &error, &end);
            }
            let can_retry = !reply.is_streaming() && self.can_replay();
            // RFC 9112 §9.3.1: once, without a retry policy, on a new connection. RFC 9113 §8.7: whatever the method.
            let stale = error.is_stale && is_idempotent(self.req.method());
            if can_retry && !fresh && (stale || error.is_unprocessed) {
                fresh = true;
                continue;
            }
            if fault.is_none_or(|fault| fault.side() == FaultSide::Upstream) {
                let failed = !matches!(error.kind, AttemptErrorKind::Status(..500));
                self.pool
                    .record_outcome(&end, RequestOutcome::from_failed(failed));
            }
            fresh = false;
            let fails_over = can_retry && fault.is_some_and(|it| self.should_fail_over(it, started_at, &end));
            tried.push(end);
            // After a status the decision was made when the head was read.
            if let Some(fault) = fault {
                if !(fails_over || can_retry && self.should_retry(fault)) {
                    return Err(fault.into());
                }
                self.worker.counters.count_fault(fault);
            }
            if !fails_over {
                self.wait_backoff(tried.len()).await;
            }
            self.check_request_timeout()?;
        }
    }

    /// Selects the endpoint of the next attempt, which has no connection yet.
    fn select_next(&self, tried: &[Rc<PoolEndpoint>]) -> Result<StartedConn, Fault> {
        let unreachable = self.attempts.unreachable.borrow();
        let selected = self
            .pool
            .select_for_retry(tried, &unreachable, self.key, self.affinity_hint)?;
        self.pool.count_attempt();
        Ok((selected, None, self.worker.cx.now()))
    }

    fn log_attempt(&self, end: &PoolEndpoint, started_at: Time, before: usize) {
        let upstream = &self.pool.upstream.name;
        log_fields::log_attempt(self.worker, self.req, upstream, end, started_at, before);
    }

    /// Counts a fault that is not the client's, and records the violated rule if it is known.
    fn count_fault(&self, fault: Fault, error: &AttemptError, end: &PoolEndpoint) {
        self.pool.count_fault(fault);
        let connect_violation = || end.endpoint.state.connect_violation(fault);
        if let Some(detail) = error.detail.as_deref().cloned().or_else(connect_violation) {
            let (upstream, addr) = (&self.pool.upstream.name, &end.endpoint.addr);
            log_fields::log_violation(self.worker, self.req, upstream, addr, &detail);
        }
    }

    /// Runs one attempt, or the first one with a hedge. Returns its result, its endpoint and its start.
    async fn run_next(
        &self,
        (selected, conn, started_at): StartedConn,
        hedge: Option<Duration>,
        tried: &mut Vec<Rc<PoolEndpoint>>,
        fresh: bool,
        reply: &mut Reply<'_>,
    ) -> (Result<Continuation, AttemptError>, Rc<PoolEndpoint>, Time) {
        let (mut end, mut started_at) = (Rc::clone(&selected.endpoint), started_at);
        let mut attempt = (selected, conn);
        if let Some(after) = hedge.filter(|_| tried.is_empty() && !fresh) {
            // Boxed, so that the future of requests without a hedge has no room for it.
            match Box::pin(self.race_attempts((attempt.0, attempt.1, started_at), after)).await {
                Ok(winner) => {
                    tried.extend(winner.other);
                    self.attempts.retries.set(tried.len());
                    (attempt, started_at) = ((winner.conn.0, winner.conn.1), winner.conn.2);
                    end = Rc::clone(&attempt.0.endpoint);
                }
                Err((error, mut tried_endpoints)) => {
                    let last = tried_endpoints.pop().unwrap_or(end);
                    tried.extend(tried_endpoints);
                    self.attempts.retries.set(tried.len());
                    return (Err(error), last, started_at);
                }
            }
        }
        let attempted = self
            .run_attempt(attempt.0, (attempt.1, started_at), fresh, reply)
            .await;
        (attempted, end, started_at)
    }

    /// Runs one attempt. `sent`: the connection that already carries the request's head, if there is one, and the time when it was sent.
    async fn run_attempt(
        &self,
        selected: SelectedEndpoint,
        sent: (Option<UpstreamConn>, Time),
        fresh: bool,
        reply: &mut Reply<'_>,
    ) -> Result<Continuation, AttemptError> {
        let cx = &self.worker.cx;
        let is_sent = sent.0.is_some();
        let (conn, started_at) = match sent {
            (Some(conn), started_at) => (conn, started_at),
            (None, _) => {
                let conn = self.open_conn(&selected, fresh).await?;
                (self.upgradable_conn(conn, &selected).await?, cx.now())
            }
        };
        let mut clock = self.deadlines.for_attempt(&self.forward.timeouts, started_at);
        let mut reader = self.response_reader(&selected)?;
        if let UpstreamConn::H2(channel) = &conn {
            let extended = request::uses_extended_connect(self.req, &self.upstream_request, channel);
            reader.is_extended_connect = extended;
            // A client on a stream has no key.
            reader.key = extended.then(|| Challenge::of(self.req.head())).flatten();
        }
        let outcome = self
            .exchange_messages(&selected, &conn, is_sent, &mut clock, &mut reader, reply)
            .await;
        let outcome = outcome.map_err(|failure| AttemptError {
            detail: reader.detail.take(),
            ..AttemptError::from_failure(failure, conn.requests_before() > 0 && !reader.has_started)
        })?;
        let download = match outcome {
            AttemptOutcome::Upgrade => {
                self.pool.count_response(101);
                return Ok(Continuation::Tunnel(Tunnel {
                    conn,
                    _share: self.admission.share.take(),
                    _endpoint: selected,
                    idle: clock.idle,
                }));
            }
            // The rest of the response is not read, so the connection is closed.
            AttemptOutcome::Retry(status) => {
                self.pool.count_response(status);
                conn.discard();
                return Err(AttemptError::from_status(status));
            }
            // Nor is a replaced response.
            AttemptOutcome::ErrorPage(status) => {
                conn.discard();
                return Ok(self.send_error_page(status, reply)?);
            }
            AttemptOutcome::Body(body) => ResponseRelay {
                pool: Rc::clone(self.pool),
                endpoint: selected,
                conn,
                body,
                timeouts: clock,
                client_rate: self.upstream_request.listener.limits.rate_bytes,
            },
        };
        if download.body.is_finished {
            download.finish(self.worker);
            return Ok(Continuation::Done);
        }
        Ok(Continuation::Body(download))
    }

    /// Prepares reading the response head, with the fields to add to it.
    fn response_reader(&self, selected: &SelectedEndpoint) -> Result<ResponseReader<'_, '_>, Fault> {
        let cors = self.cors.map(|cors| &cors.fields);
        let mut rules = ResponseRules::new(cors, self.upstream_request.cleared);
        rules.edits = Some(&self.backend.response);
        rules.body_limit = self.forward.body.response;
        rules.pages = self.pages;
        if let Some(affinity) = self.affinity {
            let secure = client_scheme(self.upstream_request.listener, self.req) == "https";
            let token = selected.endpoint.endpoint.token;
            if let Some((name, value)) =
                self.session
                    .response_field(affinity, token, secure, self.worker.cx.wall().as_secs())
            {
                let pushed = rules.cookie.push(name, value.as_bytes());
                pushed.map_err(|_misuse| Fault::BrokenRule)?;
            }
        }
        if let Some(retry) = self.remaining_policy()
            && is_idempotent(self.req.method())
        {
            rules.retry = &retry.on.statuses;
        }
        let mut reader = ResponseReader::new(
            self.req.method(),
            self.upstream_request.upgrade,
            self.upstream_request.challenge,
            self.upstream_request.trailers,
            rules,
        );
        reader.filtered = self.chain.is_some();
        reader.grpc_web = self.upstream_request.grpc_web.map(|kind| kind.dialect);
        Ok(reader)
    }

    /// Sends the rule's error page in place of the upstream's response.
    fn send_error_page(&self, status: u16, reply: &mut Reply<'_>) -> Result<Continuation, Failure> {
        local_response::send_error_page(reply, self.pages, status)?;
        local_response::edit_headers(reply, &self.backend.response)?;
        Ok(Continuation::Done)
    }

    /// Sends the head. Returns the unsent part of the request.
    fn send_head(&self, selected: &SelectedEndpoint, conn: &UpstreamConn) -> Result<UnsentRequest, Fault> {
        let scratch = &mut *self.worker.scratch.borrow_mut();
        let endpoint = &selected.endpoint.endpoint;
        request::send_head(scratch, self.req, endpoint, &self.upstream_request, conn)
    }

    /// Records the response of an endpoint.
    fn record_response(&self, selected: &SelectedEndpoint, started_at: Time, status: u16) {
        let span = self.worker.cx.now().since(started_at);
        self.pool.record_response(&selected.endpoint, span, status);
    }
}

/// Returns whether a failure is typical of a pooled connection that the upstream has closed.
fn is_stale_connection(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Fault(Fault::ClosedBeforeHead | Fault::ResetBeforeHead)
    )
}
