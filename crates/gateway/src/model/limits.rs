//! Policies that bound the load: rate limits, concurrency limits and load shedding; and fault injection.

use std::sync::Arc;
use std::time::Duration;

use ringmain_web::limits::CLIENT_IPV6_BITS;

use super::{ClaimPath, Fraction, HeaderName, Name, Secret, Target};
use crate::limits;

/// A rate limit: a number of requests per period, for each key.
///
/// Requests are counted exactly and process-wide, across workers. GCRA admits a burst and then spaces requests evenly; it has no windows at
/// whose borders twice the number would pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Identifies the counters: limits with the same name share them, and they survive a reload. After a reload the new numbers apply at
    /// once: no key owes more than under the new numbers. Appears in headers, too: visible characters without quotes and backslashes.
    pub name: Name,
    /// Requests per [`per`](Self::per), at least 1.
    pub requests: u32,
    /// The period, at least 1 ms.
    pub per: Duration,
    /// Largest burst, at least 1. Default: [`requests`](Self::requests).
    pub burst: u32,
    /// The parts of the key, combined. Default: none, all requests of the rule count together.
    pub by: Vec<RateKey>,
    /// Keys that are remembered, rounded up, 16 bytes each: 1 to [`limits::RATE_KEYS_MOST`]. At the limit the key closest to its full burst
    /// is evicted. A change for an existing name takes effect at the next start. Default: [`limits::RATE_KEYS`]; 1 for a limit without
    /// [`by`](Self::by).
    pub keys: u32,
    /// Admits requests over the limit; the access log has the name of the limit as `over_limit`. Default: `false`.
    pub log_only: bool,
    /// The headers about the limit in responses. Default: the standard ones.
    pub headers: RateHeaders,
    /// Counts in Redis, together with other gateways. Default: `None`, in this process.
    pub redis: Option<Arc<Redis>>,
}

impl RateLimit {
    /// Creates a limit that counts all requests together, with defaults otherwise.
    #[must_use]
    pub fn new(name: impl Into<Name>, requests: u32, per: Duration) -> RateLimit {
        RateLimit {
            name: name.into(),
            requests,
            per,
            burst: requests,
            by: Vec::new(),
            keys: limits::RATE_KEYS,
            log_only: false,
            headers: RateHeaders::default(),
            redis: None,
        }
    }
}

/// A Redis server (version 5 or later) that counts for several gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// The upstream, with its endpoints, TLS and limits.
    pub upstream: Target,
    /// The prefix of keys; the name of the limit and the SHA-256 of the request's key follow. Default: `ringmain:`.
    pub prefix: Arc<str>,
    /// The user. Default: `None`, Redis' default user.
    pub user: Option<Arc<str>>,
    /// The password. Default: `None`, without authentication.
    pub password: Option<Secret>,
    /// Time limit of a reply, connecting included. Default: [`limits::REDIS_TIMEOUT`].
    pub timeout: Duration,
    /// Answers 503 while Redis does not respond in time. Default: `false`, this process counts the requests alone during that time.
    pub denies: bool,
}

impl Redis {
    /// Creates a configuration for this upstream, with defaults otherwise.
    #[must_use]
    pub fn of(upstream: Target) -> Redis {
        Redis {
            upstream,
            prefix: "ringmain:".into(),
            user: None,
            password: None,
            timeout: limits::REDIS_TIMEOUT,
            denies: false,
        }
    }
}

/// A part of the key of a limit. Requests that lack it share one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// The client's address ([`ClientAddress`](super::ClientAddress)), or its network: a client with one IPv6 address usually has a whole
    /// network.
    Source {
        /// Significant bits of an IPv4 address, at most 32. Default: 32.
        v4: u8,
        /// Significant bits of an IPv6 address, at most 128. Default: 64.
        v6: u8,
    },
    /// The value of a header; the first of several.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(Arc<str>),
    /// The identity of the client, as established by a policy. Without such a policy all requests share one key.
    Identity,
    /// A claim of the token that a `jwt` policy of the rule has verified, in the form of a header value. A request without such a token
    /// lacks this part, as does one whose token lacks the claim or has a value that no header can have.
    Claim(ClaimPath),
    /// The requested host.
    Host,
    /// The path, without its query.
    Path,
    /// The method.
    Method,
}

impl RateKey {
    /// The client's network, as [`client_network`](ringmain_web::limits::client_network) defines it.
    pub const SOURCE: RateKey = RateKey::Source {
        v4: 32,
        v6: CLIENT_IPV6_BITS,
    };
}

/// The headers about rate limits in responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateHeaders {
    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers).
    #[default]
    Standard,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (seconds from now), of the limit closest to being exceeded.
    Legacy,
    /// Both sets of headers.
    Both,
    /// None but `Retry-After` with 429.
    None,
}

/// A concurrency limit: requests of a rule in flight, process-wide, from the policy to the last byte of the response. Tunnels count until
/// they close. At the limit: 503 at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Identifies the counters: rules with the same name share them, and they survive a reload.
    pub name: Name,
    /// The limit, at least 1; with [`by`](Self::by) for each key.
    pub requests: u32,
    /// The parts of the key, combined: [`limits::RUNNING_KEYS`] keys may have requests in flight. Default: none, all requests count
    /// together.
    pub by: Vec<RateKey>,
}

/// Load shedding: requests that are refused first under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadShedding {
    /// Largest delay in the worker's queue, at least 1 ms. A request that waited longer is answered 503 before any other processing. From
    /// [`ringmain_web::Limits::max_queue_delay`] on it has no effect.
    pub max_delay: Duration,
}

/// Fault injection, to test clients and the services behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultInjection {
    /// Delays this share of requests for this time.
    pub delay: Option<(Duration, Fraction)>,
    /// Answers this share of requests with this status, 400 to 599, in place of their action.
    pub abort: Option<(u16, Fraction)>,
    /// Affects only requests with this header, which is not forwarded. Default: `None`, all requests.
    pub header: Option<HeaderName>,
}
