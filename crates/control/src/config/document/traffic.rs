//! Keys of rate limits, concurrency limits, load shedding and fault injection.

use ringmain_gateway::model::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField};
use crate::config::fields::{Parsed, ShortOrFull, deserialize_secret};
use crate::config::scalars::{Fraction, Time, UpstreamTarget};

/// A rate limit (GCRA): at most `requests` in the period `per` for each key; further requests are rejected with 429. Requests
/// are counted exactly, across all workers. Example: `{requests: 100, per: 1m, by: source}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RateLimit")]
pub(in crate::config) struct RateLimitSection {
    /// The number of requests allowed in `per`, at least 1. Required. Example: `100`.
    pub(in crate::config) requests: Field<u32>,
    /// The period, at least `1ms`. Default: `1s`.
    pub(in crate::config) per: Field<Parsed<Time>>,
    /// The number of requests that may pass at once, at least 1. Default: the value of `requests`. Example: `20`.
    pub(in crate::config) burst: Field<u32>,
    /// The key that requests are counted by; several components form one combined key. Default: none, all requests share one
    /// counter.
    pub(in crate::config) by: OneOrManyField<RateKey>,
    /// The prefix length of IPv4 addresses for `by: source`, from 0 to 32. Default: 32.
    pub(in crate::config) ipv4_prefix: Field<u8>,
    /// The prefix length of IPv6 addresses for `by: source`, from 0 to 128. Default: 64.
    pub(in crate::config) ipv6_prefix: Field<u8>,
    /// The name of the counters. Counters are preserved across reloads under their name, and limits with the same name share
    /// them. Default: the route's name with the numbers of the rule and of the limit; the counters then follow these numbers.
    /// Example: `login`.
    pub(in crate::config) name: Field<String>,
    /// The maximum number of keys that are tracked, 16 bytes each. At the limit the key that has used the least of its limit is
    /// evicted. Default: 16384.
    pub(in crate::config) keys: Field<u32>,
    /// Reports requests over the limit without rejecting them: the access log has the limit's name in `over_limit`. Default:
    /// `false`.
    pub(in crate::config) log_only: Field<bool>,
    /// The rate limit headers of responses. Default: `standard`.
    pub(in crate::config) headers: Field<RateHeaders>,
    /// A Redis server that holds the counters, shared by all gateways that use it for a limit of the same name: its address, or
    /// the full form. Default: none, requests are counted in this process.
    pub(in crate::config) redis: Field<ShortOrFull<Parsed<UpstreamTarget>, RedisSection>>,
}

/// A Redis server, version 5 or later. Example: `{to: "http://127.0.0.1:6379"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Redis")]
pub(in crate::config) struct RedisSection {
    /// The server: an upstream, or `http://HOST:PORT`, where the scheme only means that TLS is not used. Required.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The prefix of the keys stored in Redis. Default: `ringmain:`.
    pub(in crate::config) prefix: Field<String>,
    /// The user name, which requires `password`. Default: the default user of Redis. Example: `ringmain`.
    pub(in crate::config) user: Field<String>,
    /// The password. Default: none, connections are not authenticated. Example: `${env:REDIS_PASSWORD}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Field<String>,
    /// The timeout of a query, at least `1ms`; includes connecting. Default: `50ms`.
    pub(in crate::config) timeout: Field<Parsed<Time>>,
    /// The handling of requests while Redis does not respond. Default: `allow`, requests are counted by this process alone.
    pub(in crate::config) on_failure: Field<OnFailure>,
}

/// The handling of requests when an external service does not respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum OnFailure {
    /// Allows requests: counted by this process alone, or without the decision of the service.
    Allow,
    /// Rejects requests with 503.
    Deny,
}

/// A component of the key that requests are counted by. Requests without the component share one key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum RateKey {
    /// The client's address.
    Source,
    /// The value of a header.
    Header(Parsed<HeaderName>),
    /// The value of a cookie.
    Cookie(String),
    /// The client's identity, as determined by the rule's policies.
    Identity,
    /// A claim of the token that the rule's policy `jwt` has verified, such as `sub` or `realm_access.tenant`.
    Claim(String),
    /// The requested host.
    Host,
    /// The path.
    Path,
    /// The method.
    Method,
}

/// The rate limit headers of responses.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum RateHeaders {
    /// `RateLimit-Policy` and `RateLimit`.
    Standard,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    Legacy,
    /// Both sets of headers.
    Both,
    /// Only `Retry-After`, in 429 responses.
    None,
}

/// A limit on concurrent requests; further requests are rejected with 503. Example: `{requests: 200}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Concurrency")]
pub(in crate::config) struct ConcurrencySection {
    /// The number of concurrent requests, at least 1; with `by`, for each key. Required. Example: `200`.
    pub(in crate::config) requests: Field<u32>,
    /// The key that requests are counted by; several components form one combined key. With `source`, IPv4 addresses count
    /// individually and IPv6 addresses by their /64. Default: none, all requests share one counter.
    pub(in crate::config) by: OneOrManyField<RateKey>,
    /// The name of the counter, which rules with the same name share. Default: the route's name and the rule's number. Example:
    /// `checkout`.
    pub(in crate::config) name: Field<String>,
}

/// Load shedding: requests that are rejected first under overload. Example: `{late: 20ms}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Shed")]
pub(in crate::config) struct ShedSection {
    /// The time that a request may be queued in a busy worker, at least `1ms`; beyond it 503. Default: `50ms`. From
    /// `--max-queue-delay` (250 ms) on it has no effect, since that limit applies to all requests.
    pub(in crate::config) late: Field<Parsed<Time>>,
}

/// Fault injection, for testing: at least one of `delay` and `abort`. Example: `{delay: {time: 200ms, share: 10%}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Inject")]
pub(in crate::config) struct InjectSection {
    /// A delay of requests.
    pub(in crate::config) delay: Field<InjectDelaySection>,
    /// An error response in place of the rule's action.
    pub(in crate::config) abort: Field<InjectAbortSection>,
    /// A header that selects the requests to inject faults into; it is not forwarded. Default: none, all requests.
    pub(in crate::config) header: Field<Parsed<HeaderName>>,
}

/// An injected delay. Example: `{time: 200ms, share: 10%}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "InjectDelay")]
pub(in crate::config) struct InjectDelaySection {
    /// The delay, at most `1m`. Required.
    pub(in crate::config) time: Field<Parsed<Time>>,
    /// The share of requests that are delayed. Default: all.
    pub(in crate::config) share: Field<Parsed<Fraction>>,
}

/// An injected error response. Example: `{status: 503, share: 1%}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "InjectAbort")]
pub(in crate::config) struct InjectAbortSection {
    /// The status, from 400 to 599. Default: 503.
    pub(in crate::config) status: Field<u16>,
    /// The share of requests that are aborted. Default: all.
    pub(in crate::config) share: Field<Parsed<Fraction>>,
}
