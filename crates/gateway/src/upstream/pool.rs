//! An upstream as one worker sees it: its pool of connections, and the selection of endpoints.
//!
//! Owns the life of a connection: opened under the process-wide cap, lent to a request, pooled, used again or closed. Connections
//! that many requests share are in `h2`.

mod connection;
pub(crate) mod dedicated;
mod endpoints;
mod idle;
mod outcomes;
mod select;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_tls::ConnectHandle;
use ringmain_wire::proxy::Addresses;

pub(crate) use self::connection::UpstreamConn;
pub(super) use self::endpoints::build_endpoints;
use self::endpoints::has_same_connections;
use super::attempts::AttemptCounts;
use super::circuit_breaker::{RetryPermit, UpstreamLimit};
use super::connect::ConnectError;
use super::h2::{H2Pool, H2Stream, SessionList};
use super::selection::HealthView;
use super::transport::TlsHandles;
use super::wait_queue::{Waiter, WaiterKey, poll_queue};
use super::{
    ActiveGuard, ConnectionPermit, ReachedLimit, RequestPermit, UpstreamEndpoint, UpstreamSnapshot,
    UpstreamState, connect, transport,
};
use crate::balance::RoundRobin;
use crate::fault::Fault;
use crate::limits;
use crate::model::{HashKey, UpstreamProtocol};

/// An upstream as one worker sees it.
#[derive(Debug)]
pub(crate) struct UpstreamPool {
    pub(super) cx: Cx,
    pub(crate) upstream: Arc<UpstreamState>,
    snapshot: RefCell<PoolSnapshot>,
    /// Idle connections of every endpoint, without those that are shared.
    idle_count: Cell<usize>,
    pub(super) h2: Rc<H2Pool>,
    /// This worker's counts.
    counts: Arc<AttemptCounts>,
}

#[derive(Debug)]
struct PoolSnapshot {
    generation: u64,
    upstream: Arc<UpstreamSnapshot>,
    /// The handles that TLS sessions are created from.
    tls: TlsHandles,
    endpoints: Vec<Rc<PoolEndpoint>>,
    health: HealthView,
    round_robin: RoundRobin,
}

/// An endpoint as one worker sees it.
#[derive(Debug)]
pub(crate) struct PoolEndpoint {
    pub(crate) endpoint: Arc<UpstreamEndpoint>,
    idle: RefCell<Vec<IdleConnection>>,
    pub(super) sessions: SessionList,
    /// The endpoint is no longer configured: its connections are closed after use.
    is_removed: Cell<bool>,
}

#[derive(Debug)]
struct IdleConnection {
    stream: Stream,
    permit: ConnectionPermit,
    requests: u32,
    since: Time,
}

/// A connection that a request has for itself. Closed when dropped.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pub(crate) stream: Stream,
    permit: ConnectionPermit,
    /// Requests on the connection before this one.
    pub(crate) requests: u32,
    /// The connection began with the PROXY header of one client: no other client's request may use it.
    has_client_preamble: bool,
}

/// A request's endpoint. The request is counted there until this is dropped.
#[derive(Debug)]
pub(crate) struct SelectedEndpoint {
    pub(crate) endpoint: Rc<PoolEndpoint>,
    _guard: ActiveGuard,
}

impl UpstreamPool {
    pub(crate) fn new(cx: &Cx, shared: Arc<UpstreamState>) -> UpstreamPool {
        let generation = shared.generation();
        let current = shared.snapshot();
        let endpoints = build_endpoints(&current, &[], true);
        let counts = shared.attempts.add_worker();
        UpstreamPool {
            counts,
            cx: cx.clone(),
            upstream: shared,
            snapshot: RefCell::new(PoolSnapshot {
                generation,
                tls: TlsHandles::from_transport(&current.transport),
                upstream: current,
                endpoints,
                health: HealthView::default(),
                round_robin: RoundRobin::default(),
            }),
            idle_count: Cell::new(0),
            h2: H2Pool::new(),
        }
    }

    /// Returns the protocol of the upstream.
    pub(super) fn protocol(&self) -> UpstreamProtocol {
        self.refresh_snapshot().upstream.config.protocol
    }

    /// Returns the limit of concurrent requests on a shared connection.
    pub(super) fn streams_per_connection(&self) -> u32 {
        self.refresh_snapshot()
            .upstream
            .config
            .pool
            .streams_per_connection
    }

    /// Returns the number of requests that a connection serves; `None`: no limit.
    pub(super) fn requests_per_connection(&self) -> Option<u32> {
        self.refresh_snapshot()
            .upstream
            .config
            .pool
            .requests_per_connection
    }

    pub(super) fn connection_limit(&self) -> u32 {
        self.refresh_snapshot().upstream.config.pool.connections
    }

    /// Returns the limit of requests on the upstream's connections, and the percentage of these that one client may hold.
    pub(crate) fn slot_limits(&self) -> (u32, u8) {
        let snapshot = self.refresh_snapshot();
        let pool = &snapshot.upstream.config.pool;
        let assumed = match snapshot.upstream.config.protocol {
            UpstreamProtocol::Http1 | UpstreamProtocol::Auto => 1,
            UpstreamProtocol::Http2 => pool.streams_per_connection,
        };
        (pool.connections.saturating_mul(assumed), pool.client_share)
    }

    /// Returns the limit of requests that wait for a connection.
    pub(crate) fn pending_limit(&self) -> u32 {
        self.refresh_snapshot().upstream.config.pool.pending
    }

    /// Returns the handle that TLS sessions for HTTP are created from.
    pub(super) fn http_tls(&self) -> Option<Rc<ConnectHandle>> {
        self.refresh_snapshot().tls.http.clone()
    }

    /// Returns whether there are pooled or shared connections, or may be soon.
    pub(crate) fn has_connections(&self) -> bool {
        self.idle_count.get() > 0 || self.h2.has_sessions()
    }

    /// Returns whether the upstream's connections are shared, as far as that is known.
    pub(crate) fn may_multiplex(&self) -> bool {
        self.protocol() != UpstreamProtocol::Http1
    }

    /// Returns the timeout for connecting.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.refresh_snapshot().upstream.config.connect_timeout
    }

    fn refresh_snapshot(&self) -> std::cell::RefMut<'_, PoolSnapshot> {
        let mut snapshot = self.snapshot.borrow_mut();
        if snapshot.generation != self.upstream.generation() {
            snapshot.generation = self.upstream.generation();
            let last = std::mem::replace(&mut snapshot.upstream, self.upstream.snapshot());
            let is_same_transport = Arc::ptr_eq(&last.transport, &snapshot.upstream.transport);
            if !is_same_transport {
                snapshot.tls = TlsHandles::from_transport(&snapshot.upstream.transport);
            }
            snapshot.health.reset();
            snapshot.round_robin.reset();
            let endpoints = build_endpoints(&snapshot.upstream, &snapshot.endpoints, is_same_transport);
            for old in std::mem::replace(&mut snapshot.endpoints, endpoints) {
                if !snapshot.endpoints.iter().any(|new| Rc::ptr_eq(new, &old)) {
                    old.is_removed.set(true);
                    let closed = std::mem::take(&mut *old.idle.borrow_mut());
                    self.idle_count.set(self.idle_count.get() - closed.len());
                    old.sessions.retire_all();
                }
            }
        }
        snapshot
    }

    /// Returns an endpoint as it is configured now, which owns its connections. One that is no longer configured is returned unchanged.
    pub(crate) fn current_endpoint(&self, endpoint: &Rc<PoolEndpoint>) -> Rc<PoolEndpoint> {
        let snapshot = self.refresh_snapshot();
        if !endpoint.is_removed.get() {
            return Rc::clone(endpoint);
        }
        let is_same = |other: &&Rc<PoolEndpoint>| has_same_connections(&other.endpoint, &endpoint.endpoint);
        Rc::clone(snapshot.endpoints.iter().find(is_same).unwrap_or(endpoint))
    }

    /// Counts a request at the upstream.
    ///
    /// # Errors
    /// [`Fault::RequestsFull`]: the limit of requests in flight is reached.
    pub(crate) fn admit_request(&self) -> Result<RequestPermit, Fault> {
        self.try_admit_request().ok_or_else(|| {
            self.upstream
                .circuit_breaker
                .count_refusal(UpstreamLimit::Requests);
            Fault::RequestsFull
        })
    }

    /// Like [`UpstreamPool::admit_request`], but does not count a refusal: the caller retries.
    pub(crate) fn try_admit_request(&self) -> Option<RequestPermit> {
        let limit = self.refresh_snapshot().upstream.config.pool.requests;
        self.upstream.acquire_request(limit)
    }

    /// Deposits the share of a new request in the retry budget.
    pub(crate) fn deposit_retry_budget(&self) {
        let rules = self.refresh_snapshot().upstream.config.retry_budget;
        self.upstream.retry_budget.deposit(&rules, self.cx.now().0);
    }

    /// Counts a retry if it is allowed; `again` is the count of the request's previous retry.
    pub(crate) fn acquire_retry(&self, again: Option<RetryPermit>) -> Option<RetryPermit> {
        let (rules, limit) = {
            let snapshot = self.refresh_snapshot();
            (
                snapshot.upstream.config.retry_budget,
                snapshot.upstream.config.pool.retries,
            )
        };
        let Some(retrying) = again.or_else(|| self.upstream.acquire_retry(limit)) else {
            self.upstream
                .circuit_breaker
                .count_refusal(UpstreamLimit::Retries);
            return None;
        };
        let granted = self.upstream.retry_budget.withdraw(&rules, self.cx.now().0);
        self.upstream.counters.0.count_retry(granted);
        if granted {
            return Some(retrying);
        }
        self.upstream.circuit_breaker.count_refusal(UpstreamLimit::Budget);
        None
    }

    /// Passes the part of a request that is hashed for balancing to `read`.
    pub(crate) fn with_hash_key<T>(&self, read: impl FnOnce(&HashKey) -> T) -> Option<T> {
        self.refresh_snapshot().upstream.balancer.hash_key().map(read)
    }

    /// Applies changes of the upstream, also without a request.
    pub(crate) fn apply_changes(&self) {
        drop(self.refresh_snapshot());
    }

    /// Waits until names that are being resolved for the first time have addresses.
    pub(crate) async fn wait_until_resolved(&self, span: Duration) {
        let deadline = self.cx.now().after(span);
        while self.refresh_snapshot().upstream.is_resolving && self.cx.now() < deadline {
            self.cx.sleep(limits::PENDING_LOOK).await;
        }
    }

    /// Returns the PROXY protocol header that a connection begins with; empty if the upstream does not use it.
    pub(crate) fn proxy_header(&self, addresses: impl FnOnce() -> Option<Addresses>) -> Vec<u8> {
        let version = self.refresh_snapshot().upstream.transport.proxy_protocol();
        version.map_or_else(Vec::new, |version| transport::proxy_header(version, addresses()))
    }

    /// Returns a connection to an endpoint, or a stream of one, within `span`. With a PROXY header the connection is new and serves this
    /// request alone; with `fresh` it is not a pooled one.
    ///
    /// # Errors
    /// The fault of the attempt, or of a limit that was reached for as long as `span`.
    pub(crate) async fn acquire(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        fresh: bool,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<UpstreamConn, Fault> {
        if self.may_multiplex() {
            // Boxed, so that requests over HTTP/1.1 do not reserve space for it.
            return Box::pin(self.acquire_h2(endpoint, fresh, proxy_header, span)).await;
        }
        self.acquire_http1(endpoint, fresh, proxy_header, span).await
    }

    /// Like [`UpstreamPool::acquire`], for protocols without multiplexing.
    ///
    /// # Errors
    /// Those of a connection; [`Fault::NoHttp2`] if the upstream's protocol has changed to HTTP/2 meanwhile.
    pub(crate) async fn acquire_exclusive(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        fresh: bool,
        span: Duration,
    ) -> Result<PooledConnection, Fault> {
        match self.acquire_http1(endpoint, fresh, &[], span).await? {
            UpstreamConn::Http1(pooled) => Ok(pooled),
            UpstreamConn::H2(_) => Err(Fault::NoHttp2),
        }
    }

    /// Returns an HTTP/1.1 connection to an endpoint, or a stream if the upstream's protocol has changed to HTTP/2 meanwhile.
    pub(super) async fn acquire_http1(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        fresh: bool,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<UpstreamConn, Fault> {
        let fresh = fresh || !proxy_header.is_empty();
        if !fresh && let Some(conn) = self.try_acquire_idle(endpoint) {
            return Ok(UpstreamConn::Http1(conn));
        }
        let limit = self.refresh_snapshot().upstream.config.pool.connections;
        let permit = match self.upstream.acquire_connection(limit) {
            Ok(permit) => permit,
            Err(_) => match self.wait_for_connection(endpoint, fresh, limit, span).await? {
                WaitOutcome::Permit(permit) => permit,
                WaitOutcome::Connection(conn) => return Ok(conn),
            },
        };
        if self.protocol() != UpstreamProtocol::Http1 {
            // The protocol has changed during the wait.
            return Box::pin(self.open_session(endpoint, permit, proxy_header, span)).await;
        }
        let tls = self.http_tls();
        let opened = self
            .open_connection(endpoint, permit, proxy_header, tls, span)
            .await;
        opened.map(UpstreamConn::Http1)
    }

    /// Opens a connection.
    pub(super) async fn open_connection(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        permit: ConnectionPermit,
        proxy_header: &[u8],
        tls: Option<Rc<ConnectHandle>>,
        span: Duration,
    ) -> Result<PooledConnection, Fault> {
        let transport = Arc::clone(&self.refresh_snapshot().upstream.transport);
        // The TLS settings are invalid, or no stream route uses this upstream any more: never fall back to plain text.
        if transport.connector.is_some() && tls.is_none() {
            return Err(Fault::TlsFailed);
        }
        let params = connect::ConnectParams {
            addr: &endpoint.endpoint.addr,
            peer: endpoint.endpoint.tls_name.as_ref(),
            tls: tls.as_deref(),
            preamble: proxy_header,
        };
        match connect::connect(&self.cx, &params, span).await {
            Ok(stream) => {
                endpoint.endpoint.state.health().record_connect_success();
                Ok(PooledConnection {
                    stream,
                    permit,
                    requests: 0,
                    has_client_preamble: !proxy_header.is_empty(),
                })
            }
            Err(ConnectError { fault, detail }) => {
                endpoint.endpoint.state.record_connect_violation(fault, detail);
                self.record_connect_failure(endpoint, fault, span);
                Err(fault)
            }
        }
    }

    /// Records that no connection to an endpoint could be established within `span`: others are preferred for a while, unless the failure
    /// is more likely caused by this process or by the caller's deadline.
    pub(crate) fn record_connect_failure(&self, endpoint: &PoolEndpoint, fault: Fault, span: Duration) {
        let too_short = fault == Fault::ConnectTimeout
            && span < limits::CONNECT_TIMEOUT_LEAST.min(self.connect_timeout());
        if fault == Fault::NoResources || too_short {
            return;
        }
        let health = endpoint.endpoint.state.health();
        health.mark_unreachable(fault, self.cx.now(), self.cx.wall());
        self.upstream.bump_health_version();
    }

    /// Returns whether a connection need not wait for addresses and does not begin with the header of one client.
    pub(crate) fn can_acquire_now(&self) -> bool {
        let snapshot = self.refresh_snapshot();
        !snapshot.upstream.is_resolving && snapshot.upstream.transport.proxy_protocol().is_none()
    }

    /// Returns a stream of an open shared connection, if one has room.
    pub(crate) fn try_acquire_stream(&self, endpoint: &PoolEndpoint) -> Option<H2Stream> {
        endpoint.sessions.try_acquire_stream(false)
    }

    /// Returns a pooled connection, if there is one.
    pub(crate) fn try_acquire_idle(&self, endpoint: &PoolEndpoint) -> Option<PooledConnection> {
        loop {
            let idle = endpoint.idle.borrow_mut().pop()?;
            self.idle_count.set(self.idle_count.get() - 1);
            if idle.stream.is_quiet() {
                return Some(PooledConnection {
                    stream: idle.stream,
                    permit: idle.permit,
                    requests: idle.requests,
                    has_client_preamble: false,
                });
            }
        }
    }

    /// Waits until a connection of this worker is free or a new one may be opened: in the upstream's queue, and in that of the process
    /// if its limit is the one reached.
    pub(super) async fn wait_for_connection(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        fresh: bool,
        limit: u32,
        span: Duration,
    ) -> Result<WaitOutcome, Fault> {
        let pending = self.refresh_snapshot().upstream.config.pool.pending;
        let budget = &self.upstream.connection_budget;
        let key = WaiterKey::new(self.cx.worker(), endpoint.endpoint.endpoint_id());
        let mut position = None;
        let mut outer = None;
        let mut sleep = std::pin::pin!(self.cx.sleep(span));
        poll_fn(|context| {
            if !poll_queue(
                &self.upstream.wait_queue,
                &mut position,
                key,
                pending,
                context.waker(),
            ) {
                self.upstream
                    .circuit_breaker
                    .count_refusal(UpstreamLimit::Pending);
                return Poll::Ready(Err(Fault::PendingFull));
            }
            let mut result = self.try_acquire(endpoint, fresh, limit);
            if matches!(result, Err(ReachedLimit::Process)) {
                let most_waiting = limits::PROCESS_PENDING;
                if !poll_queue(&budget.wait_queue, &mut outer, key, most_waiting, context.waker()) {
                    return Poll::Ready(Err(Fault::ProcessPendingFull));
                }
                // Connections that became free before the registration sent no call.
                result = self.try_acquire(endpoint, fresh, limit);
            }
            let full = match result {
                Ok(result) => {
                    position.take().into_iter().for_each(Waiter::take_connection);
                    // With a pooled connection, the process-wide slot of this call goes to the next waiter.
                    let outer = outer.take().filter(|_| matches!(result, WaitOutcome::Permit(_)));
                    outer.into_iter().for_each(Waiter::take_connection);
                    // A connection that was reserved for this waiter and not used may serve another.
                    if self.upstream.wait_queue.has_uncalled_waiter()
                        || budget.wait_queue.has_uncalled_waiter()
                    {
                        budget.idle_requests.notify();
                    }
                    return Poll::Ready(Ok(result));
                }
                Err(full) => full,
            };
            if full == ReachedLimit::Upstream {
                outer = None;
            }
            budget.idle_requests.notify();
            let timeout = std::future::Future::poll(sleep.as_mut(), context);
            timeout.map(|()| {
                Err(match full {
                    ReachedLimit::Upstream => {
                        self.upstream
                            .circuit_breaker
                            .count_refusal(UpstreamLimit::Connections);
                        Fault::PendingTimeout
                    }
                    ReachedLimit::Process => Fault::ProcessPendingTimeout,
                })
            })
        })
        .await
    }

    /// Tries to get a connection without waiting.
    fn try_acquire(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        fresh: bool,
        limit: u32,
    ) -> Result<WaitOutcome, ReachedLimit> {
        if !fresh {
            let endpoint = &self.current_endpoint(endpoint);
            let pooled = if self.is_multiplexed(endpoint) {
                endpoint.sessions.try_acquire_stream(false).map(UpstreamConn::H2)
            } else {
                self.try_acquire_idle(endpoint).map(UpstreamConn::Http1)
            };
            if let Some(conn) = pooled {
                return Ok(WaitOutcome::Connection(conn));
            }
        }
        match self.upstream.acquire_connection(limit) {
            Ok(permit) => Ok(WaitOutcome::Permit(permit)),
            Err(full) => self.close_idle().map(WaitOutcome::Permit).ok_or(full),
        }
    }
}

impl PoolEndpoint {
    /// Returns whether the endpoint is no longer configured.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.get()
    }
}

impl PooledConnection {
    pub(super) fn into_parts(self) -> (Stream, ConnectionPermit) {
        (self.stream, self.permit)
    }
}

/// The result of waiting for a connection.
pub(super) enum WaitOutcome {
    Permit(ConnectionPermit),
    Connection(UpstreamConn),
}
