//! Keys of an external rate limit service.

use ringmain_gateway::model::{HeaderName, Hostname};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OnFailure, OneOrManyField, ValueMatch};
use crate::config::fields::{OrderedMap, Parsed, ShortOrFull, deserialize_secret};
use crate::config::scalars::{Time, UpstreamTarget};

/// A rate limit service, queried over gRPC by Envoy's `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`. A request over a limit
/// is rejected with 429; one without any of the descriptors is admitted without a call. Example:
/// `{to: "h2c://127.0.0.1:8081", domain: shop, descriptors: {entries: {by: source}}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RateLimitService")]
pub(in crate::config) struct RateServiceSection {
    /// The upstream of the service, which must use HTTP/2. Required.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The domain of the service's configuration. Required. Example: `shop`.
    pub(in crate::config) domain: Field<String>,
    /// The descriptors, from 1 to 16, which are sent in one call: a request that exceeds the limit of one is rejected. Required.
    pub(in crate::config) descriptors: OneOrManyField<RateDescriptorSection>,
    /// The `Host` of calls. Default: the endpoint's host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// Headers that the service may add to admitted requests, and that are never accepted from clients. The service may add others, too, in
    /// place of those of clients.
    pub(in crate::config) upstream_headers: OneOrManyField<Parsed<HeaderName>>,
    /// Adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` to responses. Default: `false`.
    pub(in crate::config) limit_headers: Field<bool>,
    /// The status of requests over the limit, from 400 to 599. Default: 429.
    pub(in crate::config) status: Field<u16>,
    /// The timeout of a call, at least `1ms`; includes connecting. Default: `100ms`.
    pub(in crate::config) timeout: Field<Parsed<Time>>,
    /// The handling of requests whose call fails. Default: `deny`, 503. Failures that are due to limits of the gateway, or that a client can
    /// cause, always deny.
    pub(in crate::config) on_failure: Field<OnFailure>,
}

/// A descriptor, by which the service finds a limit. It is omitted for requests that lack the value of an entry. Example:
/// `{entries: [{by: source}, {by: {header: x-tenant}, key: tenant}], hits: 2}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RateLimitDescriptor")]
pub(in crate::config) struct RateDescriptorSection {
    /// The entries, from 1 to 16, in this order. Required.
    pub(in crate::config) entries: OneOrManyField<RateEntrySection>,
    /// The number of hits that a request counts for. Default: none, the service counts 1. Example: `2`.
    pub(in crate::config) hits: Field<u64>,
}

/// An entry of a descriptor: a key, and a value that is a text or a part of the request. Example: `{by: {header: x-tenant}, key: tenant}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RateLimitEntry")]
pub(in crate::config) struct RateEntrySection {
    /// The key. Default: `generic_key` for a `value`, `header_match` for one with `headers`, `remote_address` for `by: source`,
    /// `masked_remote_address` for one with a prefix, the name in lower case for a header, cookie or claim, else the value of `by`. Example:
    /// `tenant`.
    pub(in crate::config) key: Field<String>,
    /// The part of the request that is the value. Either this, or `value`.
    pub(in crate::config) by: Field<RateEntryPart>,
    /// A fixed value. Example: `checkout`.
    pub(in crate::config) value: Field<String>,
    /// The headers that a request must have for `value` to apply, by name. Default: none, `value` always applies. Example:
    /// `{X-Beta: {present: true}}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) headers: OrderedMap<ShortOrFull<String, ValueMatch>>,
    /// Applies `value` to requests that do not have all of `headers`. Default: `false`.
    pub(in crate::config) invert: Field<bool>,
    /// The prefix length of IPv4 addresses for `by: source`, from 0 to 32; the value is then a network such as `192.0.2.0/24`. Default: none,
    /// the value is the address, or with `ipv6_prefix` 32. Example: `24`.
    pub(in crate::config) ipv4_prefix: Field<u8>,
    /// The prefix length of IPv6 addresses for `by: source`, from 0 to 128. Default: none, the value is the address, or with `ipv4_prefix` 128. Example: `64`.
    pub(in crate::config) ipv6_prefix: Field<u8>,
    /// Omits the entry, in place of the descriptor, for requests that lack the value. Default: `false`.
    pub(in crate::config) optional: Field<bool>,
}

/// A part of a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum RateEntryPart {
    /// The client's address.
    Source,
    /// The value of a header; the first of several.
    Header(Parsed<HeaderName>),
    /// The value of a cookie.
    Cookie(String),
    /// The client's identity, as determined by the rule's policies.
    Identity,
    /// A claim of the token that the rule's policy `jwt` has verified, such as `sub` or `realm_access.tenant`.
    Claim(String),
    /// The requested host.
    Host,
    /// The path, without the query.
    Path,
    /// The method.
    Method,
    /// The name of the route.
    Route,
}
