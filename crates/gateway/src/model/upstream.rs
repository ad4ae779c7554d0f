//! Upstreams: endpoints, connections to them, load balancing and health.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{ClaimPath, HeaderName, Hostname, Name, StatusRange, UpstreamTls};
use crate::limits;

/// A group of interchangeable endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Unique among upstreams. Identifies its connections, counters and health, which survive changes of everything else. State of an
    /// endpoint is identified by the endpoint's address.
    pub name: Name,
    /// The endpoints. None: requests are answered 503.
    pub endpoints: Vec<Endpoint>,
    /// The protocol of connections to them.
    pub protocol: UpstreamProtocol,
    /// TLS. Default: `None`, without TLS.
    pub tls: Option<UpstreamTls>,
    /// Sends a PROXY protocol header before the first byte; such a connection serves one client only. Default: `None`.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
    /// The load-balancing algorithm.
    pub balance: Balance,
    /// Bounds the load of consistent hashing: an endpoint whose load is above this percentage of its share of the total is passed over, so
    /// that a frequent key does not overload it. Default: `None`, not bounded.
    pub hash_balance_factor: Option<u16>,
    /// Prefers near endpoints ([`Endpoint::distance`]) to those that are farther away. Default: `None`, distances do not matter.
    pub zones: Option<ZonePreference>,
    /// Limits of connections and requests.
    pub pool: Pool,
    /// Time limit for connecting, TLS included. Then the endpoint has failed (503). Default: [`limits::CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Increases the share of a new or recovered endpoint gradually. Default: `None`, it gets its whole share at once.
    pub slow_start: Option<SlowStart>,
    /// Health checks and outlier detection.
    pub health: Health,
    /// Limit of retries.
    pub retry_budget: RetryBudget,
}

impl Upstream {
    /// Creates an upstream with these endpoints, and defaults otherwise.
    #[must_use]
    pub fn new(name: impl Into<Name>, endpoints: Vec<Endpoint>) -> Upstream {
        Upstream {
            name: name.into(),
            endpoints,
            protocol: UpstreamProtocol::default(),
            tls: None,
            proxy_protocol: None,
            balance: Balance::default(),
            hash_balance_factor: None,
            zones: None,
            pool: Pool::default(),
            connect_timeout: limits::CONNECT_TIMEOUT,
            slow_start: None,
            health: Health::default(),
            retry_budget: RetryBudget::default(),
        }
    }
}

/// The protocol of connections to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: negotiated through ALPN with TLS, by prior knowledge without (RFC 9113 §3.3). Requests share connections.
    Http2,
    /// The protocol that the server selects through ALPN; HTTP/1.1 without TLS.
    Auto,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: EndpointLocation,
    /// Its weight among the endpoints, at most [`limits::WEIGHT`]; 0: it gets no requests. Applies to each address of a hostname. Default:
    /// 1.
    pub weight: u32,
    /// Its zone, by which [`ZonePreference::Balance`] counts zones. Default: `None`.
    pub zone: Option<Arc<str>>,
    /// Its distance from this process, which the source of the configuration knows. Default: [`Distance::Elsewhere`].
    pub distance: Distance,
    /// Drains it: it finishes its requests and gets no new ones, unless all others are unavailable. Default: `false`.
    pub draining: bool,
}

impl Endpoint {
    /// Creates an endpoint with weight 1.
    #[must_use]
    pub fn new(at: EndpointLocation) -> Endpoint {
        Endpoint {
            address: at,
            weight: 1,
            zone: None,
            distance: Distance::default(),
            draining: false,
        }
    }
}

/// The distance of an endpoint from this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same node.
    Node,
    /// The same zone.
    Zone,
    /// Another zone, or an unknown one.
    #[default]
    Elsewhere,
}

impl Distance {
    /// Every value, the nearest first.
    pub const ALL: [Distance; 3] = [Distance::Node, Distance::Zone, Distance::Elsewhere];

    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Distance::Node => "node",
            Distance::Zone => "zone",
            Distance::Elsewhere => "elsewhere",
        }
    }
}

/// The preference of near endpoints. With either, requests go to farther endpoints in the measure in which nearer ones are unhealthy: the
/// healthy part of a distance carries [`limits::ZONE_LOAD_PERCENT`] of its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonePreference {
    /// Near endpoints get every request that they can carry.
    Prefer,
    /// Near endpoints get no more requests than their share of the endpoints can carry, if each zone sends as many requests as another. So
    /// zones with few endpoints are not overloaded.
    Balance,
}

/// The address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndpointLocation {
    /// An IP address and port.
    Address(SocketAddr),
    /// The addresses of a hostname. The name is resolved again when the TTL of a response expires (clamped to [`limits::DNS_TTL_LEAST`] and
    /// [`limits::DNS_TTL_MOST`]). Until a new response arrives the last valid one is used.
    Host {
        /// The hostname; not a wildcard.
        name: Hostname,
        /// The port.
        port: u16,
    },
    /// A Unix socket, by absolute path.
    Unix(PathBuf),
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// The text form.
    V1,
    /// The binary form.
    V2,
}

/// The load-balancing algorithm, which picks among healthy endpoints by weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Round robin, independent in each worker.
    RoundRobin,
    /// The one of two random endpoints with fewer requests in flight, over all workers.
    #[default]
    LeastRequest,
    /// The one of two random endpoints with the lower product of recent response time and requests in flight, over all workers.
    PeakEwma {
        /// Half-life of a measured response time. Default: 5 s.
        half_life: Duration,
    },
    /// Consistent hashing on a ring: most keys keep their endpoint when endpoints are added or removed.
    RingHash(HashKey),
    /// Consistent hashing in a table: an even distribution and a fast lookup; slightly more keys move than on a ring.
    Maglev(HashKey),
    /// A random endpoint.
    Random,
    /// For new clients of push servers, which report their load in responses to health checks ([`LoadReport`](crate::LoadReport)): servers of
    /// this zone unless their load is above [`limits::PUSH_ZONE_PERCENT`] of that of the others; then the one of two random servers with
    /// the smaller share of the clients that it has room for. Without current reports, the one with fewer requests in flight.
    Push(PushBalance),
}

/// Options of [`Balance::Push`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushBalance {
    /// Clients with the same key go to the same server, as long as it has room and is within [`Upstream::hash_balance_factor`], by default
    /// [`limits::PUSH_KEY_FACTOR`]. Default: `None`.
    pub key: Option<HashKey>,
}

/// The key of consistent hashing. A request without it goes to a random endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The value of a cookie.
    Cookie(Arc<str>),
    /// The value of a header.
    Header(HeaderName),
    /// The client's address ([`ClientAddress`](super::ClientAddress)).
    Source,
    /// The path, without its query.
    Path,
    /// The first value of a query parameter.
    Query(Arc<str>),
    /// The identity that the rule's policies have established.
    Identity,
    /// A claim of the token that the rule's policy has verified.
    Claim(ClaimPath),
}

/// Limits of connections and requests, process-wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Connections, at least 1. At the limit requests wait. Default: [`limits::UPSTREAM_CONNECTIONS`].
    pub connections: u32,
    /// Requests that wait for a connection. At the limit: 503 at once. Default: [`limits::UPSTREAM_PENDING`].
    pub pending: u32,
    /// Requests in flight. At the limit: 503 at once. Default: [`limits::UPSTREAM_REQUESTS`].
    pub requests: u32,
    /// Concurrent retries, whatever their [budget](RetryBudget). At the limit a request gets the result of its last attempt. 0: none.
    /// Default: [`limits::UPSTREAM_RETRIES`].
    pub retries: u32,
    /// Time for which an idle connection stays in the pool; 0: connections are closed after each request. Default:
    /// [`limits::UPSTREAM_IDLE`].
    pub idle: Duration,
    /// Requests of a connection, which is then closed. Default: `None`, unlimited.
    pub requests_per_connection: Option<u32>,
    /// Concurrent requests on one HTTP/2 connection, at least 1; the endpoint may allow fewer. Beyond it another connection is opened.
    /// Default: [`limits::UPSTREAM_STREAMS`].
    pub streams_per_connection: u32,
    /// Share, in percent, of the slots (connections, times streams over HTTP/2) that one client address may occupy with incomplete request
    /// bodies and with tunnels: 1 to 100. Default: [`limits::UPSTREAM_CLIENT_SHARE`].
    pub client_share: u8,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            connections: limits::UPSTREAM_CONNECTIONS,
            pending: limits::UPSTREAM_PENDING,
            requests: limits::UPSTREAM_REQUESTS,
            retries: limits::UPSTREAM_RETRIES,
            idle: limits::UPSTREAM_IDLE,
            requests_per_connection: None,
            streams_per_connection: limits::UPSTREAM_STREAMS,
            client_share: limits::UPSTREAM_CLIENT_SHARE,
        }
    }
}

/// Limit of the retries of requests to an upstream, process-wide, so that an overloaded upstream gets only this much additional load. A
/// request beyond it gets the result of its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Share of the requests with a retry policy, in percent, at most 100. Default: 20.
    pub percent: u8,
    /// Retries that are allowed in each [`least_interval`](Self::least_interval) in addition, for upstreams with few requests. Default: 10.
    pub least: u32,
    /// The interval of [`least`](Self::least). Default: 1 s.
    pub least_interval: Duration,
    /// The time for which requests and elapsed time count: unused retries that they allowed expire after this time at the latest, and not
    /// before half this time. Default: `None`, up to [`limits::RETRIES_SAVED`] retries accumulate without an expiry.
    pub interval: Option<Duration>,
}

impl Default for RetryBudget {
    fn default() -> RetryBudget {
        RetryBudget {
            percent: 20,
            least: 10,
            least_interval: Duration::from_secs(1),
            interval: None,
        }
    }
}

/// The growth of an endpoint's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStart {
    /// Time until it is whole. Default: 30 s.
    pub window: Duration,
    /// Initial share, in percent, 1 to 100. Default: 10.
    pub from_percent: u8,
}

impl Default for SlowStart {
    fn default() -> SlowStart {
        SlowStart {
            window: Duration::from_secs(30),
            from_percent: 10,
        }
    }
}

/// The health checks of an upstream's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Active health checks. Default: `None`.
    pub active: Option<ActiveHealth>,
    /// Outlier detection, by the results of requests. Default: `None`, only an endpoint that cannot be connected to is skipped, for one
    /// second.
    pub outliers: Option<OutlierDetection>,
    /// Panic threshold: when fewer than this share, in percent, of the responding endpoints are healthy, all responding endpoints are used,
    /// since too few would be overloaded. Endpoints that accept no connections or do not respond to health checks are neither counted nor
    /// used. Default: 0, never.
    pub panic_percent: u8,
}

/// Periodic health checks of endpoints, once per process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// The check.
    pub check: HealthCheck,
    /// Interval, with a jitter of 10 %. Default: 5 s.
    pub every: Duration,
    /// Time limit of a response. Default: 2 s.
    pub timeout: Duration,
    /// Consecutive successes after which an endpoint is healthy. Default: 2; the result of the very first check applies at once.
    pub healthy_after: u8,
    /// Consecutive failures after which it is unhealthy. Default: 3.
    pub unhealthy_after: u8,
    /// The port of checks. Default: `None`, the endpoint's.
    pub port: Option<u16>,
}

impl ActiveHealth {
    /// Creates a configuration for this check, with defaults otherwise.
    #[must_use]
    pub fn new(check: HealthCheck) -> ActiveHealth {
        ActiveHealth {
            check,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_after: 2,
            unhealthy_after: 3,
            port: None,
        }
    }
}

/// The kind of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// Opens a connection, TLS included where the upstream has it.
    Connect,
    /// Sends a GET request.
    Http {
        /// The path and query. Default: `/`.
        target: Arc<str>,
        /// The `Host`. Default: `None`, the upstream's TLS server name, else the endpoint's hostname or address.
        host: Option<Hostname>,
        /// Statuses of healthy endpoints. Default: 200 to 299.
        statuses: StatusRange,
    },
}

/// Outlier detection: endpoints with failing requests are ejected for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    /// Consecutive failures (no connection, reset, timeout, or a status of 500 or above) that eject an endpoint. Default: 5; 0: never.
    pub consecutive: u32,
    /// Share of failed requests, in percent, in the last [`interval`](Self::interval) that ejects an endpoint. Default: `None`, never.
    pub failure_percent: Option<u8>,
    /// Requests in an interval below which its percentage is ignored. Default: 100.
    pub least_requests: u32,
    /// The interval of [`failure_percent`](Self::failure_percent). Default: 10 s.
    pub interval: Duration,
    /// Time of the first ejection; it doubles with each further one, up to [`max_ejected_time`](Self::max_ejected_time). Default: 30 s.
    pub ejected: Duration,
    /// Longest time of an ejection. Default: 5 min.
    pub max_ejected_time: Duration,
    /// Share of an upstream's endpoints, in percent, that may be ejected at the same time; one always may, if there are others. Default:
    /// 50.
    pub max_ejected_percent: u8,
}

impl Default for OutlierDetection {
    fn default() -> OutlierDetection {
        OutlierDetection {
            consecutive: 5,
            failure_percent: None,
            least_requests: 100,
            interval: Duration::from_secs(10),
            ejected: Duration::from_secs(30),
            max_ejected_time: Duration::from_mins(5),
            max_ejected_percent: 50,
        }
    }
}
