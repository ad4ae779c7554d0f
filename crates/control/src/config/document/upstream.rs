//! Keys of upstreams.

use ringmain_gateway::model::{EndpointLocation, HeaderName, Hostname, StatusRange, SubjectName, TlsVersion};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField};
use crate::config::fields::{Parsed, ShortOrFull, Switch};
use crate::config::scalars::Time;

/// A group of equivalent endpoints. Example: `{endpoints: ["10.0.0.1:3000", "10.0.0.2:3000"]}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Upstream")]
pub(in crate::config) struct UpstreamSection {
    /// The endpoints, at least one.
    pub(in crate::config) endpoints: OneOrManyField<ShortOrFull<Parsed<EndpointLocation>, EndpointSection>>,
    /// The protocol. Default: `http1`.
    pub(in crate::config) protocol: Field<UpstreamProtocol>,
    /// TLS; `true` uses the system's trusted authorities. Default: none.
    pub(in crate::config) tls: Field<Switch<UpstreamTlsSection>>,
    /// Sends a PROXY protocol header at the start of each connection. Default: none.
    pub(in crate::config) proxy_protocol: Field<ProxyProtocolVersion>,
    /// The load balancing policy. Default: `least_request`.
    pub(in crate::config) balance: Field<Balance>,
    /// The bound of consistent hashing: an endpoint whose load is above this percentage of its share of the total is passed over, so
    /// that a frequent key does not overload it. The load is the number of requests in flight, or of clients where all endpoints
    /// report it. From 101 to 10000. Only with a hash key in `balance`. Default: none; 125 with `balance.push.key`. Example: `125`.
    pub(in crate::config) hash_balance_factor: Field<u16>,
    /// Prefers endpoints of the zone of this process, which needs the top-level key `zone`. Default: none.
    pub(in crate::config) zones: Field<ZonePreference>,
    /// The limits of connections and requests.
    pub(in crate::config) pool: Field<PoolSection>,
    /// The timeout for establishing a connection, including the TLS handshake. Default: `5s`.
    pub(in crate::config) connect_timeout: Field<Parsed<Time>>,
    /// Increases the share of a new endpoint gradually: `true`, or the full form. Default: none.
    pub(in crate::config) slow_start: Field<Switch<SlowStartSection>>,
    /// Health checks and outlier detection.
    pub(in crate::config) health: Field<HealthSection>,
    /// The retry budget, which applies to all rules.
    pub(in crate::config) retry_budget: Field<RetryBudgetSection>,
}

/// A limit on retries, process-wide, that protects an overloaded upstream. Example: `{percent: 10}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RetryBudget")]
pub(in crate::config) struct RetryBudgetSection {
    /// The number of retries, in percent of the requests whose rules allow retries. Default: 20.
    pub(in crate::config) percent: Field<u8>,
    /// Further retries in each `least_interval`, independent of the number of requests. Default: 10.
    pub(in crate::config) least: Field<u32>,
    /// The interval of `least`. Default: `1s`.
    pub(in crate::config) least_interval: Field<Parsed<Time>>,
    /// The time for which a request counts: retries that it allowed and that were not used expire after this time at the latest, and
    /// not before half this time. Default: none; up to 1000 unused retries are saved.
    pub(in crate::config) interval: Field<Parsed<Time>>,
}

/// An endpoint of an upstream. Example: `{at: "10.0.0.1:3000", weight: 2}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Endpoint")]
pub(in crate::config) struct EndpointSection {
    /// The address. Required.
    pub(in crate::config) at: Field<Parsed<EndpointLocation>>,
    /// The weight relative to the other endpoints. Default: 1.
    pub(in crate::config) weight: Field<u32>,
    /// The zone, for `zones` of the upstream. Example: `eu-1`.
    pub(in crate::config) zone: Field<String>,
    /// Excludes the endpoint from new requests; requests in flight complete. It is used if no other endpoint is left. Default:
    /// `false`.
    pub(in crate::config) draining: Field<bool>,
}

/// The preference of endpoints by zone. Requests go to other zones in the measure in which endpoints of this zone are unhealthy: they
/// carry all requests while 72 % are healthy, 70 % of the requests if half are, and none if no endpoint is healthy.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ZonePreference {
    /// Endpoints of this zone get every request that they can carry.
    Prefer,
    /// Endpoints of this zone get no more requests than their share of the endpoints can carry, if each zone sends as many requests as
    /// another: one of ten endpoints in two zones gets a fifth of the requests of its zone.
    Balance,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: negotiated with ALPN over TLS, with prior knowledge (`h2c`) without TLS. Requests share connections.
    Http2,
    /// HTTP/2 or HTTP/1.1, as selected by the server with ALPN; requires `tls`.
    Auto,
}

/// TLS to an upstream. Example: `{server_name: cart.internal}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "UpstreamTls")]
pub(in crate::config) struct UpstreamTlsSection {
    /// The server name that is sent (SNI) and that the certificate is verified against. Default: the endpoint's host.
    pub(in crate::config) server_name: Field<Parsed<Hostname>>,
    /// The names that the certificate is verified against in place of the server name; one must match.
    pub(in crate::config) subject_names: OneOrManyField<Parsed<SubjectName>>,
    /// The names of trusted authorities. Default: the system's trusted authorities. Example: `staff`.
    pub(in crate::config) authorities: OneOrManyField<String>,
    /// The name of the client certificate, which is presented on request. Example: `site`.
    pub(in crate::config) certificate: Field<String>,
    /// The minimum TLS version. Default: `1.2`.
    pub(in crate::config) minimum: Field<Parsed<TlsVersion>>,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ProxyProtocolVersion {
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
}

/// A load balancing policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Balance {
    /// Round robin.
    RoundRobin,
    /// Least requests: of two random endpoints the one with fewer requests in flight.
    LeastRequest,
    /// Random.
    Random,
    /// Peak EWMA: of two random endpoints the one with the lower recent latency.
    PeakEwma(PeakEwmaSection),
    /// Ring hash.
    RingHash(HashKey),
    /// Maglev: a hash table with an even distribution.
    Maglev(HashKey),
    /// For new clients of push servers: of two random servers with room the one that is less loaded, by the load that they report in
    /// responses to health checks; those of this zone first, unless they are 1.5 times as loaded as the others.
    Push(PushBalanceSection),
}

/// The options of the policy for push servers. Example: `{key: {claim: sub}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushBalance")]
pub(in crate::config) struct PushBalanceSection {
    /// The key by which clients go to the same server, as long as that has room and its load is within `hash_balance_factor`, by
    /// default 125. Default: none, clients go to the less loaded server. Example: `{claim: sub}`.
    pub(in crate::config) key: Field<HashKey>,
}

/// The options of peak EWMA. Example: `{half_life: 10s}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PeakEwma")]
pub(in crate::config) struct PeakEwmaSection {
    /// The half-life of a measured latency. Default: `5s`.
    pub(in crate::config) half_life: Field<Parsed<Time>>,
}

/// The hash key. Requests without it go to a random endpoint.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum HashKey {
    /// The value of a cookie.
    Cookie(String),
    /// The value of a header.
    Header(Parsed<HeaderName>),
    /// The client's address.
    Source,
    /// The path.
    Path,
    /// The first value of a query parameter.
    Query(String),
    /// The client's identity, as determined by the rule's policies.
    Identity,
    /// A claim of the token that the rule's policy `jwt` has verified, such as `sub` or `realm_access.tenant`.
    Claim(String),
}

/// The limits of connections and requests, process-wide. Example: `{connections: 256}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Pool")]
pub(in crate::config) struct PoolSection {
    /// The maximum number of connections; beyond it requests are queued. Default: 1024.
    pub(in crate::config) connections: Field<u32>,
    /// The maximum number of queued requests; beyond it 503. Default: 1024.
    pub(in crate::config) pending: Field<u32>,
    /// The maximum number of requests in flight; beyond it 503. Default: 16384.
    pub(in crate::config) requests: Field<u32>,
    /// The maximum number of concurrent retries; beyond it the response of the last attempt is returned. Default: 1024.
    pub(in crate::config) retries: Field<u32>,
    /// The idle timeout of pooled connections; `0s` closes a connection after each request. Default: `55s`.
    pub(in crate::config) idle: Field<Parsed<Time>>,
    /// The maximum number of requests on a connection. Default: unlimited. Example: `1000`.
    pub(in crate::config) requests_per_connection: Field<u32>,
    /// The maximum number of requests in flight on an HTTP/2 connection; beyond it another connection is opened. Default: 100.
    pub(in crate::config) streams_per_connection: Field<u32>,
    /// The percentage of connections (times streams over HTTP/2) that one client address may occupy with incomplete request
    /// bodies and with tunnels, from 1 to 100. Default: 50. Behind a proxy that is not in `client_address.trusted` all clients
    /// share one address: set 100 there.
    pub(in crate::config) client_share: Field<u8>,
}

/// The growth of a new endpoint's share. Example: `{window: 1m}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "SlowStart")]
pub(in crate::config) struct SlowStartSection {
    /// The time until the endpoint receives its full share. Default: `30s`.
    pub(in crate::config) window: Field<Parsed<Time>>,
    /// The initial share in percent, from 1 to 100. Default: 10.
    pub(in crate::config) from_percent: Field<u8>,
}

/// Health checks and outlier detection. Example: `{outliers: true}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Health")]
pub(in crate::config) struct HealthSection {
    /// Active health checks; `true` checks that a connection can be established. Default: none.
    pub(in crate::config) active: Field<Switch<ActiveHealthSection>>,
    /// Outlier detection, by the outcome of requests: `true`, or the full form. Default: none.
    pub(in crate::config) outliers: Field<Switch<OutliersSection>>,
    /// The panic threshold: when fewer than this percentage of the responding endpoints are healthy, all that respond are used.
    /// Default: 0, never.
    pub(in crate::config) panic_percent: Field<u8>,
}

/// Active health checks. Example: `{path: /healthz}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ActiveHealth")]
pub(in crate::config) struct ActiveHealthSection {
    /// The path and query of the GET request. Default: none, an established connection is sufficient. Example: `/healthz`.
    pub(in crate::config) path: Field<String>,
    /// The `Host` of the request. Default: the TLS server name of the upstream, else the endpoint's address.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// The statuses of a healthy endpoint. Default: `2xx`.
    pub(in crate::config) status: Field<Parsed<StatusRange>>,
    /// The interval between checks. Default: `5s`.
    pub(in crate::config) every: Field<Parsed<Time>>,
    /// The timeout of a check. Default: `2s`.
    pub(in crate::config) timeout: Field<Parsed<Time>>,
    /// The number of consecutive successful checks after which an endpoint is healthy. Default: 2.
    pub(in crate::config) healthy_after: Field<u8>,
    /// The number of consecutive failed checks after which an endpoint is unhealthy. Default: 3.
    pub(in crate::config) unhealthy_after: Field<u8>,
    /// The port of the check. Default: the endpoint's port. Example: `8081`.
    pub(in crate::config) port: Field<u16>,
}

/// Outlier detection: endpoints with failing requests are ejected temporarily. Example: `{consecutive: 3}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Outliers")]
pub(in crate::config) struct OutliersSection {
    /// The number of consecutive failures after which an endpoint is ejected; 0 disables this. Default: 5.
    pub(in crate::config) consecutive: Field<u32>,
    /// The percentage of failed requests in an interval at which an endpoint is ejected. Default: none. Example: `50`.
    pub(in crate::config) failure_percent: Field<u8>,
    /// The minimum number of requests in an interval for `failure_percent` to apply. Default: 100.
    pub(in crate::config) least_requests: Field<u32>,
    /// The interval. Default: `10s`.
    pub(in crate::config) interval: Field<Parsed<Time>>,
    /// The duration of an ejection, which doubles each time. Default: `30s`.
    pub(in crate::config) ejected: Field<Parsed<Time>>,
    /// The maximum duration of an ejection. Default: `5m`.
    pub(in crate::config) max_ejected_time: Field<Parsed<Time>>,
    /// The maximum percentage of endpoints that are ejected at the same time. Default: 50.
    pub(in crate::config) max_ejected_percent: Field<u8>,
}
