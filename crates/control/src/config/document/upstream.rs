//! Keys of upstreams.

use ringmain_gateway::model::{HeaderName, Hostname, StatusRange, SubjectName, TlsVersion, Where};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Some1};
use crate::config::texts::Time;
use crate::config::values::{Either, Switch, Text};

/// Endpoints that answer alike.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Upstream {
    /// Where they are.
    pub(in crate::config) endpoints: Some1<Either<Text<Where>, Endpoint>>,
    /// What is spoken: `http1` if it does not say.
    pub(in crate::config) protocol: Maybe<UpstreamProtocol>,
    /// TLS: `true` with the authorities that this system trusts. None if it does not say.
    pub(in crate::config) tls: Maybe<Switch<UpstreamTls>>,
    /// A PROXY protocol header before the first byte, `v1` or `v2`. None if it does not say.
    pub(in crate::config) proxy_protocol: Maybe<ProxyProtocolVersion>,
    /// Who is next: `least_request` if it does not say.
    pub(in crate::config) balance: Maybe<Balance>,
    /// How much at once.
    pub(in crate::config) pool: Maybe<Pool>,
    /// How long connecting may take, TLS included: `5s` if it does not say.
    pub(in crate::config) connect_timeout: Maybe<Text<Time>>,
    /// A new endpoint gets its share by and by: `true`, or how. At once if it does not say.
    pub(in crate::config) slow_start: Maybe<Switch<SlowStart>>,
    /// How it is found out who is well.
    pub(in crate::config) health: Maybe<Health>,
    /// How many of its requests may be tried again, whatever the rules say.
    pub(in crate::config) retry_budget: Maybe<RetryBudget>,
}

/// How many requests may be tried again, process-wide, so that whoever is overloaded is not asked for much more.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RetryBudget {
    /// In percent of the requests whose rules have them tried again: 20 if it does not say.
    pub(in crate::config) percent: Maybe<u8>,
    /// And so many a second whatever their number: 10 if it does not say.
    pub(in crate::config) least: Maybe<u32>,
}

/// One of those who answer.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Endpoint {
    /// Where it is.
    pub(in crate::config) at: Maybe<Text<Where>>,
    /// Its share among the endpoints: 1 if it does not say.
    pub(in crate::config) weight: Maybe<u32>,
    /// Where it stands, for balancing that prefers what is near.
    pub(in crate::config) zone: Maybe<String>,
    /// It finishes what it has and gets nothing new. `false` if it does not say.
    pub(in crate::config) draining: Maybe<bool>,
}

/// What is spoken to an upstream.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by ALPN with TLS, by prior knowledge (`h2c`) without. Requests share connections.
    Http2,
    /// HTTP/2 or HTTP/1.1, whichever the server chooses by ALPN; it needs `tls`.
    Auto,
}

/// TLS towards an upstream.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct UpstreamTls {
    /// The name that is asked for and that the certificate must be for: the endpoint's host if it does not say.
    pub(in crate::config) server_name: Maybe<Text<Hostname>>,
    /// Names, one of which the certificate must be for, in place of the server name.
    pub(in crate::config) subject_names: Some1<Text<SubjectName>>,
    /// Names of authorities that vouch: those that this system trusts if it does not say.
    pub(in crate::config) authorities: Some1<String>,
    /// The name of the certificate that is shown if one is asked for.
    pub(in crate::config) certificate: Maybe<String>,
    /// The oldest version that is spoken: `1.2` if it does not say.
    pub(in crate::config) minimum: Maybe<Text<TlsVersion>>,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ProxyProtocolVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// How the next endpoint is chosen.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Balance {
    /// In turn.
    RoundRobin,
    /// The one of two drawn by chance with fewer requests under way.
    LeastRequest,
    /// By chance.
    Random,
    /// The one of two drawn by chance whose answers have lately been quicker.
    PeakEwma(PeakEwma),
    /// By hash on a ring.
    RingHash(HashKey),
    /// By hash in a table: an even spread.
    Maglev(HashKey),
}

/// How answers' times are remembered.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PeakEwma {
    /// After how long a measured time counts half: `5s` if it does not say.
    pub(in crate::config) half_life: Maybe<Text<Time>>,
}

/// What is hashed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum HashKey {
    /// The value of a cookie.
    Cookie(String),
    /// The value of a header.
    Header(Text<HeaderName>),
    /// The client's address.
    Source,
    /// The path.
    Path,
}

/// Caps of connections and requests, process-wide.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Pool {
    /// Connections; beyond it requests wait: 1024 if it does not say.
    pub(in crate::config) connections: Maybe<u32>,
    /// Requests that wait; beyond it 503: 1024 if it does not say.
    pub(in crate::config) pending: Maybe<u32>,
    /// Requests under way; beyond it 503: 16384 if it does not say.
    pub(in crate::config) requests: Maybe<u32>,
    /// Requests that are tried again at the same time; beyond it the answer is that of the last try: 1024 if it does not say.
    pub(in crate::config) retries: Maybe<u32>,
    /// How long a connection is kept without a request: `55s` if it does not say; `0s` closes it after each.
    pub(in crate::config) idle: Maybe<Text<Time>>,
    /// Requests that a connection serves: any number if it does not say.
    pub(in crate::config) requests_per_connection: Maybe<u32>,
    /// Requests under way by one connection of HTTP/2; beyond it there is another one: 100 if it does not say.
    pub(in crate::config) streams_per_connection: Maybe<u32>,
    /// How many percent of the connections (times streams over HTTP/2) one client address may hold by request bodies that have not
    /// arrived and by tunnels, from 1 to 100. Default: 50. Behind a proxy that
    /// is not in `client_address.trusted` all clients have one address: 100 there.
    pub(in crate::config) client_share: Maybe<u8>,
}

/// How an endpoint's share grows.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct SlowStart {
    /// Until it is whole: `30s` if it does not say.
    pub(in crate::config) window: Maybe<Text<Time>>,
    /// What it begins with, in percent from 1 to 100: 10 if it does not say.
    pub(in crate::config) from_percent: Maybe<u8>,
}

/// How it is found out who is well.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Health {
    /// By asking: `true` connects. Nobody asks if it does not say.
    pub(in crate::config) active: Maybe<Switch<ActiveHealth>>,
    /// By what requests meet: `true`, or how.
    pub(in crate::config) outliers: Maybe<Switch<Outliers>>,
    /// When fewer than so many percent of the endpoints that respond are healthy, all that respond are used. Default: 0, never.
    pub(in crate::config) panic_percent: Maybe<u8>,
}

/// Endpoints are asked from time to time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ActiveHealth {
    /// GET of this path and query; without it a connection is enough.
    pub(in crate::config) path: Maybe<String>,
    /// `Host` of that request: the upstream's name in TLS, or the endpoint's address, if it does not say.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// Answers that are good: `2xx` if it does not say.
    pub(in crate::config) status: Maybe<Text<StatusRange>>,
    /// From one time to the next: `5s` if it does not say.
    pub(in crate::config) every: Maybe<Text<Time>>,
    /// How long an answer may take: `2s` if it does not say.
    pub(in crate::config) timeout: Maybe<Text<Time>>,
    /// Good answers in a row after which it is well: 2 if it does not say.
    pub(in crate::config) healthy_after: Maybe<u8>,
    /// Bad ones after which it is not: 3 if it does not say.
    pub(in crate::config) unhealthy_after: Maybe<u8>,
    /// Another port than the endpoint's.
    pub(in crate::config) port: Maybe<u16>,
}

/// An endpoint whose answers are bad is passed over for a while.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Outliers {
    /// Failures in a row after which: 5 if it does not say; 0 is never.
    pub(in crate::config) consecutive: Maybe<u32>,
    /// Or so many percent of an interval's requests: never if it does not say.
    pub(in crate::config) failure_percent: Maybe<u8>,
    /// Requests that such an interval needs: 100 if it does not say.
    pub(in crate::config) least_requests: Maybe<u32>,
    /// `10s` if it does not say.
    pub(in crate::config) interval: Maybe<Text<Time>>,
    /// For how long, twice as long each time: `30s` if it does not say.
    pub(in crate::config) ejected: Maybe<Text<Time>>,
    /// How long at most: `5m` if it does not say.
    pub(in crate::config) ejected_most: Maybe<Text<Time>>,
    /// How many percent of the endpoints at once: 50 if it does not say.
    pub(in crate::config) most_percent: Maybe<u8>,
}
