//! Policies that bound what comes through: rates, requests at once, lateness; and faults that are put in to see what happens.

use std::sync::Arc;
use std::time::Duration;

use ringmain_web::limits::CLIENT_IPV6_BITS;

use super::{ClaimPath, HeaderName, Name, Secret, Share, Target};
use crate::limits;

/// So many requests in a time, of each key. Counted process-wide and exactly, whichever workers they come to: by GCRA, which
/// lets a burst pass and then one request after the other, as time brings them, and has no windows at whose borders twice as
/// many would pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// What is counted belongs to this name: limits of one name count together, and it outlives changes of configuration. Then
    /// other numbers hold at once: nobody owes more than these would have had him owe. In headers, too: visible characters
    /// without quotes and backslashes.
    pub name: Name,
    /// How many in [`per`](Self::per), at least 1.
    pub requests: u32,
    /// The time, at least 1 ms.
    pub per: Duration,
    /// How many at once, at least 1. Default: as many as [`requests`](Self::requests).
    pub burst: u32,
    /// What tells requests apart, all of it together. Default: nothing, all requests of the rule count together.
    pub by: Vec<RateKey>,
    /// Keys that are remembered, rounded up; from 1 to [`limits::RATE_KEYS_MOST`]. Beyond it the one that owes least is
    /// forgotten. 16 bytes each. Of a name that is known already a change holds from the next start on. Default
    /// [`limits::RATE_KEYS`]; one for a limit without [`by`](Self::by).
    pub keys: u32,
    /// What it would refuse passes all the same; the access log has its name as `over_limit`. Default `false`.
    pub log_only: bool,
    /// What answers say of it. Default: the standard's headers.
    pub headers: RateHeaders,
    /// Counted there, by all gateways that do. Default: `None`, in this process.
    pub redis: Option<Arc<Redis>>,
}

impl RateLimit {
    /// So many in a time of all requests together, all else by default.
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

/// A Redis (from version 5 on) that counts for several gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// Where it is: its endpoints, TLS and caps are an upstream's.
    pub upstream: Target,
    /// Of the keys there: the limit's name and the SHA-256 of what tells requests apart follow. Default `ringmain:`.
    pub prefix: Arc<str>,
    /// Default: `None`, its default user.
    pub user: Option<Arc<str>>,
    /// Default: `None`, nobody signs in.
    pub password: Option<Secret>,
    /// How long an answer may take, connecting included. Default [`limits::REDIS_TIMEOUT`].
    pub timeout: Duration,
    /// Whether requests are answered 503 while it does not respond in time; else this process counts them alone. Default `false`.
    pub denies: bool,
}

impl Redis {
    /// That upstream, all else by default.
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

/// What tells requests apart. One that a request does not have is the same for all who do not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// The client's address ([`ClientAddress`](super::ClientAddress)), or the network that it is in: whoever has one address of
    /// IPv6 mostly has all of a network.
    Source {
        /// Bits of an IPv4 address that count, at most 32. Default 32.
        v4: u8,
        /// Bits of an IPv6 address that count, at most 128. Default 64.
        v6: u8,
    },
    /// The value of a header; of several the first.
    Header(HeaderName),
    /// The value of a cookie.
    Cookie(Arc<str>),
    /// Who asks, as a policy has found out. Without one that does, all are nobody.
    Identity,
    /// A claim of the token that has let the request in, which a policy `jwt` of the rule has checked: as a header would have it.
    /// A request without such a token, and a token without the claim or with one that no header can have, has none.
    Claim(ClaimPath),
    /// The host that is asked for.
    Host,
    /// The path, without its query.
    Path,
    /// The method.
    Method,
}

impl RateKey {
    /// The client's address as [`client_network`](ringmain_web::limits::client_network) has it.
    pub const SOURCE: RateKey = RateKey::Source {
        v4: 32,
        v6: CLIENT_IPV6_BITS,
    };
}

/// What answers say of limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateHeaders {
    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers).
    #[default]
    Standard,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (seconds from now), of the limit that is nearest.
    Legacy,
    /// Both.
    Both,
    /// Nothing but `Retry-After` of a 429.
    None,
}

/// So many requests of a rule at once, process-wide, from the policy to the last byte of the answer; tunnels count as long as
/// they last. Beyond it: 503 at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// What is counted belongs to this name: rules of one name count together, and it outlives changes of configuration.
    pub name: Name,
    /// How many, at least 1; with [`by`](Self::by) of each key.
    pub requests: u32,
    /// What tells requests apart, all of it together: [`limits::RUNNING_KEYS`] keys may have requests under way. Default: nothing,
    /// all requests count together.
    pub by: Vec<RateKey>,
}

/// Requests that are the first to go when there is too much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// A request that has waited for longer in its worker, because that was busy with others, is answered 503. It is looked at
    /// before anything else is done for it. At least 1 ms; from [`ringmain_web::Limits::patience`] on it changes nothing.
    pub late: Duration,
}

/// Faults that are put in, to see what clients and whoever is behind them make of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inject {
    /// Requests that are held for a time before they go on.
    pub delay: Option<(Duration, Share)>,
    /// Requests that are answered with this status, from 400 to 599, in place of their action.
    pub abort: Option<(u16, Share)>,
    /// Only requests with this header meet it. Default: `None`, all do. It goes no further.
    pub header: Option<HeaderName>,
}
