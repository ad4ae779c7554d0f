//! HTTPRoute, GRPCRoute, TLSRoute, TCPRoute and UDPRoute.
//!
//! Fields with a fixed set of values are texts here: the translation decides about values that it does not know.

use serde::Deserialize;

use super::external_auth::ExternalAuth;
use super::policy::ObjectRef;
use super::traffic::SessionPersistence;
use super::{Meta, Status};

macro_rules! route {
    ($(#[$docs:meta])* $name:ident, $spec:ident, $rule:ident) => {
        $(#[$docs])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Its metadata.
            pub metadata: Meta,
            /// Its specification.
            pub spec: $spec,
            /// As the API server has it.
            pub status: Status,
        }

        #[doc = concat!("The specification of a [`", stringify!($name), "`].")]
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $spec {
            /// The listeners that it attaches to.
            pub parent_refs: Vec<ParentRef>,
            /// Its hosts; none: all hosts of its listeners. A TCPRoute or UDPRoute has none.
            pub hostnames: Vec<String>,
            /// Its rules.
            pub rules: Vec<$rule>,
        }
    };
}

route! {
    /// Rules for HTTP requests.
    HttpRoute, HttpRouteSpec, HttpRule
}
route! {
    /// Rules for calls of gRPC.
    GrpcRoute, GrpcRouteSpec, GrpcRule
}
route! {
    /// Backends of TLS connections, by SNI.
    TlsRoute, TlsRouteSpec, StreamRule
}
route! {
    /// Backends of TCP connections.
    TcpRoute, TcpRouteSpec, StreamRule
}
route! {
    /// Backends of UDP datagrams.
    UdpRoute, UdpRouteSpec, StreamRule
}

/// A reference to a Gateway or a ListenerSet, or to one of its listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentRef {
    /// Default: that of the Gateway API.
    pub group: Option<String>,
    /// Default: `Gateway`.
    pub kind: Option<String>,
    /// Default: the route's.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The name of one listener; `None`: every listener.
    pub section_name: Option<String>,
    /// The port of the listeners; `None`: any.
    pub port: Option<u16>,
}

/// A rule of an HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRule {
    /// Unique in its route.
    pub name: Option<String>,
    /// A request needs to match one entry; none: all requests.
    pub matches: Vec<HttpMatch>,
    /// Changes of requests and responses, or the response.
    pub filters: Vec<Filter>,
    /// The backends.
    pub backend_refs: Vec<WeightedRef>,
    /// Times of a request.
    pub timeouts: Option<Timeouts>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Experimental.
    pub session_persistence: Option<SessionPersistence>,
}

/// The requests of an HTTPRoute's rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatch {
    /// Default: the prefix `/`.
    pub path: Option<PathSpec>,
    /// Every entry must match.
    pub headers: Vec<ValueSpec>,
    /// Every entry must match.
    pub query_params: Vec<ValueSpec>,
    /// Default: any.
    pub method: Option<String>,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PathSpec {
    /// `Exact`, `PathPrefix` (the default) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Default: `/`.
    pub value: Option<String>,
}

/// A header or a query parameter with a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ValueSpec {
    /// `Exact` (the default) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A rule of a GRPCRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRule {
    /// Unique in its route.
    pub name: Option<String>,
    /// A call needs to match one entry; none: all calls.
    pub matches: Vec<GrpcMatch>,
    /// Changes of requests and responses.
    pub filters: Vec<Filter>,
    /// The backends.
    pub backend_refs: Vec<WeightedRef>,
    /// Experimental.
    pub session_persistence: Option<SessionPersistence>,
}

/// The calls of a GRPCRoute's rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GrpcMatch {
    /// Default: any.
    pub method: Option<GrpcMethod>,
    /// Every entry must match.
    pub headers: Vec<ValueSpec>,
}

/// Methods of gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GrpcMethod {
    /// `Exact` (the default) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Default: any.
    pub service: Option<String>,
    /// Default: any.
    pub method: Option<String>,
}

/// A rule of a TLSRoute, a TCPRoute or a UDPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRule {
    /// The backends.
    pub backend_refs: Vec<WeightedRef>,
}

/// A backend with a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WeightedRef {
    /// The backend.
    #[serde(flatten)]
    pub backend: BackendRef,
    /// Default: 1.
    pub weight: Option<u32>,
    /// Changes for this backend alone.
    pub filters: Vec<Filter>,
}

/// A reference to a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BackendRef {
    /// Default: the core group.
    pub group: Option<String>,
    /// Default: `Service`.
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// Default: the route's.
    pub namespace: Option<String>,
    /// Needed for Services.
    pub port: Option<u16>,
}

/// A filter: one of the fields, as the type says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    /// The field that is set, or a type that is not supported.
    #[serde(rename = "type")]
    pub kind: String,
    /// `RequestHeaderModifier`.
    pub request_header_modifier: Option<HeaderModifier>,
    /// `ResponseHeaderModifier`.
    pub response_header_modifier: Option<HeaderModifier>,
    /// `RequestMirror`.
    pub request_mirror: Option<Mirror>,
    /// `RequestRedirect`.
    pub request_redirect: Option<Redirect>,
    /// `URLRewrite`.
    pub url_rewrite: Option<UrlRewrite>,
    /// `CORS`.
    pub cors: Option<Cors>,
    /// `ExtensionRef`.
    pub extension_ref: Option<ObjectRef>,
    /// `ExternalAuth`, experimental.
    pub external_auth: Option<ExternalAuth>,
}

/// Changes of headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeaderModifier {
    /// Headers in place of those of the same name.
    pub set: Vec<HeaderPair>,
    /// Further headers.
    pub add: Vec<HeaderPair>,
    /// Names of headers.
    pub remove: Vec<String>,
}

/// A header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeaderPair {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A mirrored request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mirror {
    /// Its backend.
    pub backend_ref: BackendRef,
    /// The percentage of requests; with neither this nor a fraction: all.
    pub percent: Option<u32>,
    /// The fraction of requests.
    pub fraction: Option<Fraction>,
}

/// A fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Fraction {
    /// At most the denominator.
    pub numerator: u32,
    /// Default: 100.
    pub denominator: Option<u32>,
}

/// A redirect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// The host.
    pub hostname: Option<String>,
    /// The path.
    pub path: Option<PathModifier>,
    /// The port.
    pub port: Option<u16>,
    /// Default: 302.
    pub status_code: Option<u16>,
}

/// Another host and path towards the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UrlRewrite {
    /// The host.
    pub hostname: Option<String>,
    /// The path.
    pub path: Option<PathModifier>,
}

/// A path in place of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For `ReplaceFullPath`.
    pub replace_full_path: Option<String>,
    /// For `ReplacePrefixMatch`.
    pub replace_prefix_match: Option<String>,
}

/// Cross-origin resource sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cors {
    /// The origins that are permitted.
    pub allow_origins: Vec<String>,
    /// Default: `false`.
    pub allow_credentials: Option<bool>,
    /// The methods that are permitted; `*`: all.
    pub allow_methods: Vec<String>,
    /// The request headers that are permitted; `*`: all.
    pub allow_headers: Vec<String>,
    /// The response headers that scripts may read; `*`: all.
    pub expose_headers: Vec<String>,
    /// Seconds for which a preflight response is cached. Default: 5.
    pub max_age: Option<u32>,
}

/// Times of a request, as durations of GEP-2257.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// All attempts together.
    pub request: Option<String>,
    /// Each attempt.
    pub backend_request: Option<String>,
}

/// Retries of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// Statuses that are retried.
    pub codes: Vec<u16>,
    /// Retries after the first attempt; 0: none.
    pub attempts: Option<u32>,
    /// The base interval: the shortest time between attempts.
    pub backoff: Option<String>,
}
