//! Upstreams as all workers share them, with their counters.
//!
//! An [`UpstreamState`] lives while its name is configured; its current state ([`UpstreamSnapshot`]: configuration, endpoints)
//! is replaced as a whole, by a new configuration or a new result of DNS. State of an endpoint (requests in flight, health) belongs
//! to its address and survives both. Knows no requests.

pub(crate) mod attempts;
pub(crate) mod circuit_breaker;
pub(crate) mod client_share;
pub(crate) mod connect;
pub(crate) mod connection_budget;
mod counters;
pub(crate) mod h2;
pub(crate) mod pool;
pub(crate) mod registry;
pub(crate) mod retry_budget;
mod selection;
pub(crate) mod transport;
pub(crate) mod wait_queue;
mod zones;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::PeerName;

use self::attempts::AttemptCounters;
use self::circuit_breaker::CircuitBreaker;
use self::client_share::ClientShares;
use self::connection_budget::ConnectionBudget;
pub use self::counters::MirrorOutcome;
use self::counters::UpstreamCounters;
use self::retry_budget::RetryBudgetState;
pub(crate) use self::selection::{AffinityHint, BalancedEndpoint, Balancer};
use self::transport::Transport;
use self::wait_queue::WaitQueue;
use crate::balance::{Ewma, LoadReport, NodeLoad, ReceivedReport, SharedReport};
use crate::fault::{Fault, Violation};
use crate::health::EndpointHealth;
use crate::model::{Distance, Name, Upstream};

/// An upstream as all workers share it.
#[derive(Debug)]
pub(crate) struct UpstreamState {
    /// Index in each worker's list.
    pub(crate) id: usize,
    pub(crate) name: Name,
    snapshot: Mutex<Arc<UpstreamSnapshot>>,
    /// The version of `snapshot`: workers check it first.
    generation: CacheLine<AtomicU64>,
    /// The version of endpoints' health: workers check endpoints only when it has changed.
    health_version: CacheLine<AtomicU64>,
    /// Connections, process-wide.
    connections: CacheLine<AtomicU32>,
    /// Requests in flight, process-wide.
    requests: CacheLine<AtomicU32>,
    /// A shared connection is retiring in favor of requests that wait for another one.
    retiring_session: AtomicBool,
    /// The upstream is no longer configured.
    removed: AtomicBool,
    /// The number of the last staged configuration that lists the upstream.
    listed_in: AtomicU64,
    pub(crate) wait_queue: WaitQueue,
    /// Slots of the pool that are held by clients.
    slot_shares: ClientShares,
    /// Positions in `wait_queue` that are held by clients.
    queue_shares: ClientShares,
    /// The limit that all upstreams share.
    pub(crate) connection_budget: Arc<ConnectionBudget>,
    /// The budget for retries.
    pub(crate) retry_budget: RetryBudgetState,
    pub(crate) circuit_breaker: CircuitBreaker,
    pub(crate) counters: CacheLine<UpstreamCounters>,
    pub(crate) attempts: AttemptCounters,
}

/// The identity of an endpoint that a request waits for or a connection leads to: the same for all workers and configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointId(usize);

/// The cap that prevents a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReachedLimit {
    /// The upstream's cap is reached.
    Upstream,
    /// The cap for all upstreams together is reached.
    Process,
}

/// A value that several workers write, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// The current state of an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamSnapshot {
    pub(crate) config: Arc<Upstream>,
    /// The transport. Pooled connections survive a change of configuration while it remains the same.
    pub(crate) transport: Arc<Transport>,
    pub(crate) balancer: Balancer,
    pub(crate) endpoints: Box<[Arc<UpstreamEndpoint>]>,
    /// The fault of requests while there is no endpoint.
    pub(crate) fault_without_endpoints: Fault,
    /// There is no endpoint yet: names are being resolved for the first time.
    pub(crate) is_resolving: bool,
}

/// An endpoint: an address with its state.
#[derive(Debug)]
pub(crate) struct UpstreamEndpoint {
    pub(crate) addr: Addr,
    /// The `Host` of requests that do not forward the client's.
    pub(crate) authority: Box<str>,
    /// The name that the certificate has to match. Without it no TLS connection is made: the peer could not be identified.
    pub(crate) tls_name: Option<PeerName>,
    /// The name that clients receive for affinity.
    pub(crate) token: u64,
    pub(crate) weight: u32,
    pub(crate) distance: Distance,
    /// The endpoint is draining: it finishes its requests and receives new ones only if no other is available.
    pub(crate) draining: bool,
    pub(crate) state: Arc<EndpointState>,
}

/// State of an endpoint, by its address. Instants are nanoseconds of the engine's clock.
#[derive(Debug, Default)]
pub(crate) struct EndpointState {
    /// Requests in flight over all workers.
    active: CacheLine<AtomicU32>,
    /// Rarely written, read by each selection.
    health: CacheLine<EndpointHealth>,
    latency: CacheLine<Latency>,
    /// The last load report.
    load: SharedReport,
    /// The rule that the endpoint violated at the last failed connection, if any.
    connect_violation: Mutex<Option<(Fault, Box<Violation>)>>,
}

#[derive(Debug, Default)]
struct Latency {
    value: AtomicU64,
    at: AtomicU64,
}

impl UpstreamState {
    pub(crate) fn new(
        id: usize,
        name: Name,
        current: Arc<UpstreamSnapshot>,
        room: Arc<ConnectionBudget>,
    ) -> UpstreamState {
        UpstreamState {
            id,
            name,
            snapshot: Mutex::new(current),
            generation: CacheLine::default(),
            health_version: CacheLine(AtomicU64::new(1)),
            connections: CacheLine::default(),
            requests: CacheLine::default(),
            retiring_session: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            listed_in: AtomicU64::new(0),
            wait_queue: WaitQueue::default(),
            slot_shares: ClientShares::default(),
            queue_shares: ClientShares::default(),
            connection_budget: room,
            retry_budget: RetryBudgetState::default(),
            circuit_breaker: CircuitBreaker::default(),
            counters: CacheLine::default(),
            attempts: AttemptCounters::default(),
        }
    }

    /// Replaces the present state.
    pub(crate) fn publish(&self, current: Arc<UpstreamSnapshot>) {
        let mut current_snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::replace(&mut *current_snapshot, current);
        self.generation.0.fetch_add(1, Ordering::Release);
        drop(current_snapshot);
        drop(previous);
    }

    /// Marks the upstream as listed in a staged configuration. Returns `false` if it is already.
    fn list_in(&self, staging: u64) -> bool {
        self.listed_in.swap(staging, Ordering::Relaxed) != staging
    }

    /// Returns whether this configuration is the last one that lists the upstream.
    fn is_listed_in(&self, staging: u64) -> bool {
        self.listed_in.load(Ordering::Relaxed) == staging
    }

    /// Marks the upstream as removed: workers close its connections when they follow the configuration.
    pub(crate) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.0.load(Ordering::Acquire)
    }

    pub(crate) fn snapshot(&self) -> Arc<UpstreamSnapshot> {
        Arc::clone(&self.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the version of endpoints' health.
    pub(crate) fn health_version(&self) -> u64 {
        self.health_version.0.load(Ordering::Acquire)
    }

    /// Makes workers check endpoints' health again.
    pub(crate) fn bump_health_version(&self) {
        self.health_version.0.fetch_add(1, Ordering::Release);
    }

    /// Counts a request, unless the limit is reached.
    pub(crate) fn acquire_request(self: &Arc<Self>, max: u32) -> Option<RequestPermit> {
        increment_below(&self.requests.0, max).then(|| RequestPermit(Arc::clone(self)))
    }

    /// Counts a connection, unless a limit is reached: `max` for this upstream, or that for all upstreams.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn acquire_connection(self: &Arc<Self>, max: u32) -> Result<ConnectionPermit, ReachedLimit> {
        // Checked first, so that a request for this upstream does not touch the shared count in vain.
        if self.open_connections() >= max {
            return Err(ReachedLimit::Upstream);
        }
        if !self.connection_budget.try_acquire() {
            return Err(ReachedLimit::Process);
        }
        if !increment_below(&self.connections.0, max) {
            self.connection_budget.release();
            return Err(ReachedLimit::Upstream);
        }
        Ok(ConnectionPermit(Arc::clone(self)))
    }

    /// Returns whether no shared connection is retiring in favor of waiters: one at a time, since its longest request delays it.
    pub(crate) fn may_retire_session(&self) -> bool {
        !self.retiring_session.load(Ordering::SeqCst)
    }

    /// Marks a shared connection as retiring; `false`: another one is.
    pub(crate) fn begin_session_retirement(&self) -> bool {
        !self.retiring_session.swap(true, Ordering::SeqCst)
    }

    /// Marks it as closed.
    pub(crate) fn end_session_retirement(&self) {
        self.retiring_session.store(false, Ordering::SeqCst);
    }

    /// Returns the number of requests in flight.
    pub(crate) fn requests_in_flight(&self) -> u32 {
        self.requests.0.load(Ordering::Relaxed)
    }

    /// Returns the number of connections and connection attempts.
    pub(crate) fn open_connections(&self) -> u32 {
        self.connections.0.load(Ordering::SeqCst)
    }
}

/// Increments a count unless it has reached `max`. Never exceeds it, even briefly: a concurrent caller would be refused in vain.
fn increment_below(count: &AtomicU32, max: u32) -> bool {
    let next = |count: u32| (count < max).then(|| count + 1);
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
        .is_ok()
}

/// A request that is counted at its upstream.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<UpstreamState>);

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.0.requests.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is counted at its upstream.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<UpstreamState>);

impl ConnectionPermit {
    /// Returns the upstream of the connection.
    pub(crate) fn upstream(&self) -> Arc<UpstreamState> {
        Arc::clone(&self.0)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.0.fetch_sub(1, Ordering::SeqCst);
        self.0.wait_queue.wake_one();
        self.0.connection_budget.release();
    }
}

impl UpstreamEndpoint {
    /// Returns the identity of the endpoint.
    pub(crate) fn endpoint_id(&self) -> EndpointId {
        EndpointId(Arc::as_ptr(&self.state).addr())
    }
}

impl EndpointState {
    /// Counts a request.
    pub(crate) fn count_request(self: &Arc<Self>) -> ActiveGuard {
        self.active.0.fetch_add(1, Ordering::Relaxed);
        ActiveGuard(Arc::clone(self))
    }

    /// Returns the number of requests in flight.
    pub(crate) fn requests_in_flight(&self) -> u32 {
        self.active.0.load(Ordering::Relaxed)
    }

    /// Returns the health of the endpoint.
    pub(crate) fn health(&self) -> &EndpointHealth {
        &self.health.0
    }

    /// Records a load report; `None`: a response without a valid one. `until` is the end of its validity in nanoseconds. Returns whether the
    /// endpoint has begun or ceased to leave.
    pub(crate) fn record_load(&self, report: Option<LoadReport>, until: u64) -> bool {
        let in_flight = self.requests_in_flight();
        self.load.store(report.map(|report| ReceivedReport {
            report,
            until,
            in_flight,
        }))
    }

    /// Returns the last load report.
    pub(crate) fn load_report(&self) -> Option<LoadReport> {
        self.load.load().map(|received| received.report)
    }

    /// Returns whether the endpoint has reported that it sends its clients away.
    pub(crate) fn is_leaving(&self) -> bool {
        self.load.is_leaving()
    }

    /// Estimates the load for an endpoint of this weight, which is above 0.
    pub(crate) fn node_load(&self, weight: u64, now: u64) -> NodeLoad {
        NodeLoad::estimate(self.load.load(), self.requests_in_flight(), weight, now)
    }

    /// Records the rule that the endpoint violated in a failed connection attempt; `None`: the rule is not known.
    pub(crate) fn record_connect_violation(&self, fault: Fault, detail: Option<Box<Violation>>) {
        let mut violation = self
            .connect_violation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // That of an earlier attempt is not the reason for this one.
        *violation = detail.map(|detail| (fault, detail));
    }

    /// Returns the rule that the endpoint violated in the last connection attempt, if that led to this fault.
    pub(crate) fn connect_violation(&self, fault: Fault) -> Option<Violation> {
        if !matches!(fault, Fault::TlsFailed | Fault::TlsCertificate) {
            return None;
        }
        let violation = self
            .connect_violation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (of, detail) = violation.as_ref()?;
        (*of == fault).then(|| Violation::clone(detail))
    }

    /// Returns the average response time.
    pub(crate) fn latency(&self) -> Ewma {
        // The two values may be from different responses: the average is an estimate.
        Ewma {
            value: self.latency.0.value.load(Ordering::Relaxed),
            at: self.latency.0.at.load(Ordering::Relaxed),
        }
    }

    /// Records a response time.
    pub(crate) fn record_latency(&self, now: u64, span: Duration, half_life: Duration) {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let next = self.latency().with_sample(now, span, half_life);
        self.latency.0.value.store(next.value, Ordering::Relaxed);
        self.latency.0.at.store(next.at, Ordering::Relaxed);
    }
}

/// A request that is counted at its endpoint.
#[derive(Debug)]
pub(crate) struct ActiveGuard(Arc<EndpointState>);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.active.0.fetch_sub(1, Ordering::Relaxed);
    }
}
