//! Keys of rules that bound what comes through, and of faults that are put in.

use ringmain_gateway::model::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Some1};
use crate::config::texts::{Share, Time, To};
use crate::config::values::{Either, Text, secret};

/// So many requests in a time, of each key; then 429. Counted exactly, all workers together.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RateLimit {
    /// How many.
    pub(in crate::config) requests: Maybe<u32>,
    /// In which time: `1s` if it does not say.
    pub(in crate::config) per: Maybe<Text<Time>>,
    /// How many at once: as many as `requests` if it does not say.
    pub(in crate::config) burst: Maybe<u32>,
    /// What tells requests apart, all of it together. If it does not say, all requests count together.
    pub(in crate::config) by: Some1<RateKey>,
    /// Bits of an IPv4 address that count for `source`: 32 if it does not say.
    pub(in crate::config) ipv4_prefix: Maybe<u8>,
    /// Bits of an IPv6 address that count for `source`: 64 if it does not say.
    pub(in crate::config) ipv6_prefix: Maybe<u8>,
    /// What is counted belongs to this name, also over changes of the configuration; limits of one name count together. The
    /// route's name and the numbers of rule and limit if it does not say: then what is counted goes with the numbers.
    pub(in crate::config) name: Maybe<String>,
    /// Keys that are remembered, with 16 bytes each: 16384 if it does not say. Beyond it the one that owes least is forgotten.
    pub(in crate::config) keys: Maybe<u32>,
    /// Nothing is refused; the access log says what would have been. `false` if it does not say.
    pub(in crate::config) log_only: Maybe<bool>,
    /// What answers say of it: `standard` if it does not say.
    pub(in crate::config) headers: Maybe<RateHeaders>,
    /// Counted in a Redis, by all gateways that do so with the same name: where, or all about it. In this process if it does not
    /// say.
    pub(in crate::config) redis: Maybe<Either<Text<To>, Redis>>,
}

/// A Redis, from version 5 on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Redis {
    /// Where: an upstream, or `http://HOST:PORT`, whose scheme says no more than that there is no TLS.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// What its keys begin with: `ringmain:` if it does not say.
    pub(in crate::config) prefix: Maybe<String>,
    /// Who signs in: its default user if it does not say.
    pub(in crate::config) user: Maybe<String>,
    /// The password. Nobody signs in if it does not say.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Maybe<String>,
    /// How long it may take, connecting included: `50ms` if it does not say.
    pub(in crate::config) timeout: Maybe<Text<Time>>,
    /// What becomes of requests while it does not respond. Default: `allow`, they are counted by this process alone.
    pub(in crate::config) on_failure: Maybe<OnFailure>,
}

/// What becomes of requests when whoever is asked about them does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum OnFailure {
    /// They are allowed: counted by this process alone, or without the decision of the service.
    Allow,
    /// 503.
    Deny,
}

/// What tells requests apart. All that do not have it are one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum RateKey {
    /// The client's address.
    Source,
    /// The value of a header.
    Header(Text<HeaderName>),
    /// The value of a cookie.
    Cookie(String),
    /// Who asks, as the rule has it found out.
    Identity,
    /// A claim of the token that the policy `jwt` of the rule has checked, such as `sub` or `realm_access.tenant`.
    Claim(String),
    /// The host that is asked for.
    Host,
    /// The path.
    Path,
    /// The method.
    Method,
}

/// What answers say of limits.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum RateHeaders {
    /// `RateLimit-Policy` and `RateLimit`.
    Standard,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    Legacy,
    /// Both.
    Both,
    /// Nothing but `Retry-After` of a 429.
    None,
}

/// How many requests at once; then 503.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Concurrency {
    /// How many; with `by` of each key.
    pub(in crate::config) requests: Maybe<u32>,
    /// What tells requests apart, all of it together; of `source` IPv4 addresses as a whole, of IPv6 the first 64 bits. If it does
    /// not say, all requests count together.
    pub(in crate::config) by: Some1<RateKey>,
    /// Rules of one name count together. The route's name and the rule's number if it does not say.
    pub(in crate::config) name: Maybe<String>,
}

/// Requests that go first when there is too much to do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Shed {
    /// What has waited for longer in a busy worker is answered 503: `50ms` if it does not say. From `--patience` on, 250 ms, all are.
    pub(in crate::config) late: Maybe<Text<Time>>,
}

/// Faults that are put in, to see what becomes of them: at least one of `delay` and `abort`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Inject {
    /// Requests that are held for a time before they go on.
    pub(in crate::config) delay: Maybe<InjectDelay>,
    /// Requests that are answered with an error.
    pub(in crate::config) abort: Maybe<InjectAbort>,
    /// Only requests with this header meet it, which goes no further. All do if it does not say.
    pub(in crate::config) header: Maybe<Text<HeaderName>>,
}

/// Requests that are held for a time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct InjectDelay {
    /// For how long, at most `1m`.
    pub(in crate::config) time: Maybe<Text<Time>>,
    /// How many of them: all if it does not say.
    pub(in crate::config) share: Maybe<Text<Share>>,
}

/// Requests that are answered with an error.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct InjectAbort {
    /// From 400 to 599: 503 if it does not say.
    pub(in crate::config) status: Maybe<u16>,
    /// How many of them: all if it does not say.
    pub(in crate::config) share: Maybe<Text<Share>>,
}
