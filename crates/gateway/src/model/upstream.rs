//! Who answers: endpoints, how they are reached, which of them is next, and what tells that one is not well.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{HeaderName, Hostname, Name, StatusRange, UpstreamTls};
use crate::limits;

/// Endpoints that answer alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Unique among upstreams. Connections, counts and health belong to it and stay when all else of it changes, but what
    /// is said of an endpoint belongs to its address.
    pub name: Name,
    /// None: requests are answered 503.
    pub endpoints: Vec<Endpoint>,
    /// What is spoken to them.
    pub protocol: UpstreamProtocol,
    /// TLS. Default: `None`, none.
    pub tls: Option<UpstreamTls>,
    /// A PROXY protocol header before the first byte; such a connection serves one client only. Default: `None`.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
    /// Who is next.
    pub balance: Balance,
    /// How much at once.
    pub pool: Pool,
    /// How long connecting may take, TLS included; then the endpoint has failed (503). Default
    /// [`limits::CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// A new endpoint, or one that is well again, gets its share by and by. Default: `None`, at once.
    pub slow_start: Option<SlowStart>,
    /// How it is found out who is well.
    pub health: Health,
    /// How many of its requests may be tried again.
    pub retry_budget: RetryBudget,
}

impl Upstream {
    /// These endpoints, all else by default.
    #[must_use]
    pub fn new(name: impl Into<Name>, endpoints: Vec<Endpoint>) -> Upstream {
        Upstream {
            name: name.into(),
            endpoints,
            protocol: UpstreamProtocol::default(),
            tls: None,
            proxy_protocol: None,
            balance: Balance::default(),
            pool: Pool::default(),
            connect_timeout: limits::CONNECT_TIMEOUT,
            slow_start: None,
            health: Health::default(),
            retry_budget: RetryBudget::default(),
        }
    }
}

/// What is spoken to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN with TLS, by prior knowledge without (RFC 9113 §3.3). Requests share connections.
    Http2,
    /// What the server chooses of both by ALPN; without TLS HTTP/1.1.
    Auto,
}

/// One of those who answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// How it is reached.
    pub at: Where,
    /// Its share among the endpoints, at most [`limits::WEIGHT`]; 0: none. All addresses of a hostname have it each.
    /// Default 1.
    pub weight: u32,
    /// Where it stands, for balancing that prefers what is near. Default: `None`, nowhere in particular.
    pub zone: Option<Arc<str>>,
    /// It finishes what it has and gets nothing new, but if all others are gone. Default `false`.
    pub draining: bool,
}

impl Endpoint {
    /// There, with weight 1.
    #[must_use]
    pub fn new(at: Where) -> Endpoint {
        Endpoint {
            at,
            weight: 1,
            zone: None,
            draining: false,
        }
    }
}

/// How an endpoint is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// At an address.
    Address(SocketAddr),
    /// At the addresses that DNS has for a name, asked anew when an answer's time (within [`limits::DNS_TTL_LEAST`] and
    /// [`limits::DNS_TTL_MOST`]) is over. As long as there is no new answer the last good one holds.
    Host {
        /// The name; not a wildcard.
        name: Hostname,
        /// The port.
        port: u16,
    },
    /// At a Unix socket, absolute.
    Unix(PathBuf),
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// How the next endpoint is chosen, by weight, out of those that are well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn; each worker takes turns of its own.
    RoundRobin,
    /// The one of two drawn by chance that has fewer requests under way, all workers' counted.
    #[default]
    LeastRequest,
    /// The one of two drawn by chance whose answers have lately been quicker by what is under way, all workers' counted.
    PeakEwma {
        /// After how long a measured time counts half. Default 5 s.
        half_life: Duration,
    },
    /// By hash on a ring: most keys stay where they are when endpoints come and go.
    RingHash(HashKey),
    /// By hash in a table: an even spread and a quick choice; a few more keys move than on a ring.
    Maglev(HashKey),
    /// By chance.
    Random,
}

/// What is hashed. A request without it is sent by chance.
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
}

/// Caps of connections and requests, process-wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Connections, at least 1. Beyond it requests wait. Default [`limits::UPSTREAM_CONNECTIONS`].
    pub connections: u32,
    /// Requests that wait for a connection. Beyond it: 503 at once. Default [`limits::UPSTREAM_PENDING`].
    pub pending: u32,
    /// Requests under way. Beyond it: 503 at once. Default [`limits::UPSTREAM_REQUESTS`].
    pub requests: u32,
    /// Requests that are tried again at the same time, whatever their [budget](RetryBudget). Beyond it one is answered as its last
    /// try was. 0: none. Default [`limits::UPSTREAM_RETRIES`].
    pub retries: u32,
    /// How long a connection is kept without a request; 0: it is closed after each. Default [`limits::UPSTREAM_IDLE`].
    pub idle: Duration,
    /// Requests that a connection serves; then it is closed. Default: `None`, any number.
    pub requests_per_connection: Option<u32>,
    /// Requests under way by one connection of HTTP/2, at least 1; the endpoint may take fewer. Beyond it there is another connection.
    /// Default [`limits::UPSTREAM_STREAMS`].
    pub streams_per_connection: u32,
    /// How many percent of the places (connections, times streams by HTTP/2) one client address may hold by request bodies that have
    /// not arrived and by tunnels, from 1 to 100. Default [`limits::UPSTREAM_CLIENT_SHARE`].
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

/// How many requests to an upstream may be tried again, process-wide: whoever is overloaded is not asked for more than so
/// much more. A request whose turn it is not is answered as its last try was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// In percent of its requests whose rules have them tried again, at most 100. Default 20.
    pub percent: u8,
    /// And so many in each [`least_interval`](Self::least_interval) whatever their number, for upstreams that are seldom asked.
    /// Default 10.
    pub least: u32,
    /// Default 1 s.
    pub least_interval: Duration,
    /// The time for which requests and elapsed time count: retries that they allowed and that were not used expire after this time at
    /// the latest, and not before half this time. Default: `None`, up to [`limits::RETRIES_SAVED`] are saved for any time.
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

/// How an endpoint's share grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStart {
    /// Until it is whole. Default 30 s.
    pub window: Duration,
    /// What it begins with, in percent, from 1 to 100. Default 10.
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

/// How it is found out who is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// By asking. Default: `None`, nobody asks.
    pub active: Option<ActiveHealth>,
    /// By what requests meet. Default: `None`, only whoever cannot be connected to is passed over for a second.
    pub outliers: Option<OutlierDetection>,
    /// When fewer than so many percent of the endpoints that respond are healthy, all that respond are used: too few would break
    /// under the load of many. Endpoints that accept no connections or do not respond to health checks are neither counted nor
    /// used. 0: never. Default 0.
    pub panic_percent: u8,
}

/// Endpoints are asked from time to time, once per process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// What is asked.
    pub check: HealthCheck,
    /// From one time to the next, give or take a tenth. Default 5 s.
    pub every: Duration,
    /// How long an answer may take. Default 2 s.
    pub timeout: Duration,
    /// After so many good answers in a row it is well. Default 2; the first answer of all counts at once.
    pub healthy_after: u8,
    /// After so many bad ones it is not. Default 3.
    pub unhealthy_after: u8,
    /// Another port than the endpoint's. Default: `None`, the same.
    pub port: Option<u16>,
}

impl ActiveHealth {
    /// This check, all else by default.
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

/// What an endpoint is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// A connection, TLS included where the upstream has it.
    Connect,
    /// GET.
    Http {
        /// Path and query. Default `/`.
        target: Arc<str>,
        /// `Host`. Default: `None`, the upstream's name in TLS, else the endpoint's hostname or address.
        host: Option<Hostname>,
        /// Answers that are good. Default: 200 to 299.
        statuses: StatusRange,
    },
}

/// An endpoint whose answers are bad is passed over for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    /// After so many failures in a row (no connection, reset, timeout, or an answer from 500 on). Default 5; 0: never.
    pub consecutive: u32,
    /// When so many percent of its requests of the last [`interval`](Self::interval) failed. Default `None`: never.
    pub failure_percent: Option<u8>,
    /// How many requests an interval needs for its percentage to mean something. Default 100.
    pub least_requests: u32,
    /// Default 10 s.
    pub interval: Duration,
    /// For how long; twice as long the next time, up to [`ejected_most`](Self::ejected_most). Default 30 s.
    pub ejected: Duration,
    /// Default 5 min.
    pub ejected_most: Duration,
    /// How many percent of an upstream's endpoints may be passed over at once; one always may, if there are others.
    /// Default 50.
    pub most_percent: u8,
}

impl Default for OutlierDetection {
    fn default() -> OutlierDetection {
        OutlierDetection {
            consecutive: 5,
            failure_percent: None,
            least_requests: 100,
            interval: Duration::from_secs(10),
            ejected: Duration::from_secs(30),
            ejected_most: Duration::from_mins(5),
            most_percent: 50,
        }
    }
}
