//! Snapshots of upstreams, endpoints and limits for operators.

use std::time::Duration;

use crate::balance::LoadReport;
use crate::fault::Fault;
use crate::health::{CheckError, CheckVerdict, ConnectFailure, EjectionReason};
use crate::model::{Addr, Distance, Name};
pub use crate::upstream::circuit_breaker::UpstreamLimit;
use crate::upstream::{MirrorOutcome, UpstreamEndpoint, UpstreamState};

/// A snapshot of an upstream and its endpoints. Each number is read at its own instant while workers continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// The name of the upstream.
    pub name: Name,
    /// Requests in flight.
    pub requests: u32,
    /// Open connections, idle ones included, and connection attempts.
    pub connections: u32,
    /// Requests that wait for a connection.
    pub waiting: u32,
    /// Retries in flight.
    pub retrying: u32,
    /// Requests that were hedged to a second endpoint, since the upstream is configured.
    pub hedged: u64,
    /// The number of refusals by each cap, since the upstream is configured.
    pub refused: [(UpstreamLimit, u64); UpstreamLimit::ALL.len()],
    /// Retries that the budget has granted, since the name is configured.
    pub retries: u64,
    /// Retries that the budget has refused.
    pub retries_refused: u64,
    /// Mirrored requests to the upstream, in the order of [`MirrorOutcome::ALL`].
    pub mirrors: [u64; MirrorOutcome::ALL.len()],
    /// Attempts since the name is configured: requests to an endpoint, retried, hedged and mirrored ones included; for TCP and TLS routes
    /// connections.
    pub attempts: u64,
    /// Responses of the upstream by the first digit of their status from 1, retried ones included, those to mirrored requests not. A
    /// tunnel counts as 1xx.
    pub responses: [u64; 5],
    /// Attempts by distance of the endpoint, in the order of [`Distance::ALL`]. `None`: the upstream does not prefer near endpoints.
    pub distances: Option<[u64; Distance::ALL.len()]>,
    /// Failed attempts by fault, since the name is configured; faults that have not occurred are left out.
    pub faults: Vec<(Fault, u64)>,
    /// The current endpoints.
    pub endpoints: Vec<EndpointStatus>,
    /// The reason why there is no endpoint; `None`: there is one, or names are being resolved for the first time.
    pub no_endpoint: Option<Fault>,
}

/// A policy's counter, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterStatus {
    /// The name of the limit.
    pub name: Name,
    /// The counter's state.
    pub state: CounterState,
}

/// State of a policy's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterState {
    /// A rate limit's keys.
    RateLimitKeys {
        /// The most keys that are tracked at once.
        room: usize,
        /// Keys that were evicted for lack of room before their debt had expired: each may have exceeded its rate since.
        forgotten: u64,
    },
    /// Requests in flight of the rules with a concurrency cap of this name.
    InFlight(u32),
}

/// A snapshot of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// The address.
    pub addr: Addr,
    /// The weight in load balancing.
    pub weight: u32,
    /// The endpoint is draining: it receives no new requests.
    pub draining: bool,
    /// Requests in flight.
    pub requests: u32,
    /// The load that the endpoint has reported last, which may be stale. `None`: its responses to health checks have no report.
    pub load: Option<LoadReport>,
    /// Failed attempts since the endpoint is configured: no connection, no response, or a status from 500 on.
    pub failures: u64,
    /// The result of active health checks.
    pub verdict: CheckVerdict,
    /// The error of the last health check; `None`: it succeeded, or there was none.
    pub check_error: Option<CheckError>,
    /// The last ejection, which may have ended.
    pub ejection: Option<Ejection>,
    /// The end of the last period in which the endpoint counted as unreachable, since the Unix epoch; it may have passed. `None`: never.
    pub unreachable_until: Option<Duration>,
    /// The failed connection attempts since the last success, of a request or of a health check that connects to the same address. `None`:
    /// the last attempt succeeded, or there was none.
    pub connect_failure: Option<ConnectFailure>,
}

/// An ejection of an endpoint by outlier detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// The end, since the Unix epoch.
    pub until: Duration,
    /// The reason.
    pub reason: EjectionReason,
    /// The number of ejections, less one for each interval without one: the duration of the next is doubled accordingly.
    pub times: u32,
}

impl UpstreamStatus {
    pub(crate) fn read(state: &UpstreamState) -> UpstreamStatus {
        let current = state.snapshot();
        let (attempts, responses) = state.attempts.totals();
        let is_empty = current.endpoints.is_empty() && !current.is_resolving;
        UpstreamStatus {
            name: state.name.clone(),
            requests: state.requests_in_flight(),
            connections: state.open_connections(),
            waiting: state.wait_queue.len(),
            retrying: state.circuit_breaker.retries_in_flight(),
            hedged: state.circuit_breaker.hedge_count(),
            refused: state.circuit_breaker.refusals(),
            retries: state.counters.0.granted_retries(),
            retries_refused: state.counters.0.refused_retries(),
            mirrors: state.counters.0.mirror_counts(),
            attempts,
            responses,
            distances: current.config.zones.map(|_| state.counters.0.distance_counts()),
            faults: state.counters.0.fault_counts(),
            no_endpoint: is_empty.then_some(current.fault_without_endpoints),
            endpoints: current
                .endpoints
                .iter()
                .map(|endpoint| EndpointStatus::read(endpoint))
                .collect(),
        }
    }
}

impl EndpointStatus {
    fn read(endpoint: &UpstreamEndpoint) -> EndpointStatus {
        let health = endpoint.state.health();
        EndpointStatus {
            addr: endpoint.addr.clone(),
            weight: endpoint.weight,
            draining: endpoint.draining,
            requests: endpoint.state.requests_in_flight(),
            load: endpoint.state.load_report(),
            failures: health.outliers.failures(),
            verdict: health.verdict(),
            check_error: health.check_error(),
            ejection: health.outliers.ejection(),
            unreachable_until: health.unreachable_until(),
            connect_failure: health.connect_failure(),
        }
    }
}
