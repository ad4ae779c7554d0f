//! Keys of routes.

use ringmain_gateway::model::{
    HeaderName, HeaderValue, Hostname, MethodName, Origin, Path, Pattern, StatusRange,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField, PoliciesSection, PushLocationSection};
use crate::config::fields::{OneManyOrNone, OrderedMap, Parsed, ShortOrFull, Switch, deserialize_secret};
use crate::config::scalars::{
    ByteSize, ByteSizeOrOff, Fraction, GrpcMethodName, RetryCondition, Time, TimeOrOff, UpstreamTarget,
};

/// A set of rules for the requests of some hosts: either `rules` or `to`. Example: `{to: "http://127.0.0.1:3000"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Route")]
pub(in crate::config) struct RouteSection {
    /// The names of listeners. Default: all HTTP listeners. Example: `main`.
    pub(in crate::config) listeners: OneOrManyField<String>,
    /// The hosts. Default: all hosts of the route's listeners.
    pub(in crate::config) hosts: OneOrManyField<Parsed<Hostname>>,
    /// The policies for all rules of the route.
    pub(in crate::config) policies: Field<PoliciesSection>,
    /// The rules. The most specific match applies: exact paths, then regular expressions, then the longest prefix; then matches
    /// with a method, then with more headers, then with more query parameters, then the first.
    pub(in crate::config) rules: Option<Vec<crate::config::fields::Spanned<RuleSection>>>,
    /// The upstreams for all requests, in place of `rules`.
    pub(in crate::config) to: OneOrManyField<ShortOrFull<Parsed<UpstreamTarget>, BackendSection>>,
}

/// A rule for matching requests: one of `to`, `redirect`, `respond`, `files` and `push`. Example:
/// `{match: /cart, to: "http://127.0.0.1:3000"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Rule")]
pub(in crate::config) struct RuleSection {
    /// The name in logs and metrics. Default: the rule's number, from 1. Example: `catalogue`.
    pub(in crate::config) name: Field<String>,
    /// The matches, one of which a request must satisfy; a string is a path prefix. Default: all requests match.
    #[serde(rename = "match")]
    pub(in crate::config) matches: OneOrManyField<ShortOrFull<Parsed<Path>, MatchSection>>,
    /// The upstreams: one, or several by weight.
    pub(in crate::config) to: OneOrManyField<ShortOrFull<Parsed<UpstreamTarget>, BackendSection>>,
    /// A redirect to another URL.
    pub(in crate::config) redirect: Field<RedirectSection>,
    /// A direct response: a status, or the full form. Example: `404`.
    pub(in crate::config) respond: Field<ShortOrFull<u16, RespondSection>>,
    /// Static files: a directory, or the full form. Example: `assets`.
    pub(in crate::config) files: Field<ShortOrFull<String, FilesSection>>,
    /// The endpoints of the push server, as configured by the key `push` of the file: `true`, or their location.
    pub(in crate::config) push: Field<Switch<PushLocationSection>>,
    /// Changes to the request's headers.
    pub(in crate::config) request_headers: Field<HeaderChangesSection>,
    /// Changes to the response's headers, whatever generates the response: upstream, gateway or error page.
    pub(in crate::config) response_headers: Field<ResponseHeadersSection>,
    /// Custom error pages.
    pub(in crate::config) error_pages: OneOrManyField<ErrorPageSection>,
    /// The policies of the rule, in addition to the route's.
    pub(in crate::config) policies: Field<PoliciesSection>,
    /// CORS: the origins whose scripts may read responses. Preflight requests are answered by the gateway. Default: none, CORS
    /// headers of the upstream are forwarded.
    pub(in crate::config) cors: Field<CorsSection>,
    /// Rewrites the host and path of the request that is sent to the upstream. Only valid with `to`, like all keys below.
    pub(in crate::config) rewrite: Field<RewriteSection>,
    /// Mirrors requests to further upstreams, whose responses are ignored.
    pub(in crate::config) mirror: OneOrManyField<ShortOrFull<Parsed<UpstreamTarget>, MirrorSection>>,
    /// The timeouts.
    pub(in crate::config) timeouts: Field<TimeoutsSection>,
    /// The limits of body sizes.
    pub(in crate::config) body: Field<BodyLimitsSection>,
    /// Retries; `true` retries once after a failed connection. Default: none.
    pub(in crate::config) retry: Field<Switch<RetrySection>>,
    /// The time without a response after which a hedged request is sent to another endpoint; the first response is used. Only
    /// for idempotent methods, and bodies of at most 64 KiB. Default: none.
    pub(in crate::config) hedge: Field<Parsed<Time>>,
    /// Session affinity: sends the requests of a client to the same endpoint.
    pub(in crate::config) affinity: Field<AffinitySection>,
    /// The protocols that a connection may be upgraded to; `[]` allows none. Default: `websocket`. Example: `websocket`.
    pub(in crate::config) upgrades: Field<OneManyOrNone<String>>,
    /// Translates gRPC-Web calls to gRPC, and their responses back. Default: `false`.
    pub(in crate::config) grpc_web: Field<bool>,
    /// Applies error pages to error responses of the upstream as well. Default: `false`.
    pub(in crate::config) replace_errors: Field<bool>,
}

/// The conditions of a match, all of which must hold. Example: `{path: /cart, method: GET}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Match")]
pub(in crate::config) struct MatchSection {
    /// A path prefix of whole segments; or an exact path, or a regular expression.
    pub(in crate::config) path: Field<ShortOrFull<Parsed<Path>, PathMatch>>,
    /// A gRPC service, or one of its methods, in place of path and method.
    pub(in crate::config) grpc: Field<Parsed<GrpcMethodName>>,
    /// The method.
    pub(in crate::config) method: Field<Parsed<MethodName>>,
    /// The headers, by name. Example: `{X-Beta: {present: true}}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) headers: OrderedMap<ShortOrFull<String, ValueMatch>>,
    /// The query parameters, by name. Example: `{version: "2"}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) query: OrderedMap<ShortOrFull<String, ValueMatch>>,
}

/// A path match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PathMatch {
    /// The exact path.
    Exact(Parsed<Path>),
    /// This path and all paths below it.
    Prefix(Parsed<Path>),
    /// A regular expression that matches the whole path.
    Regex(Parsed<Pattern>),
}

/// A value match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ValueMatch {
    /// The exact value.
    Exact(String),
    /// A regular expression that matches the whole value.
    Regex(Parsed<Pattern>),
    /// Any value, if present: `present: true`.
    Present(bool),
}

/// A weighted upstream. Example: `{to: "http://127.0.0.1:3000", weight: 9}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Backend")]
pub(in crate::config) struct BackendSection {
    /// The upstream. Required.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The weight relative to the other upstreams of the rule. Default: 1.
    pub(in crate::config) weight: Field<u32>,
    /// Changes to the request's headers, applied after those of the rule.
    pub(in crate::config) request_headers: Field<HeaderChangesSection>,
    /// Changes to the response's headers, applied after those of the rule.
    pub(in crate::config) response_headers: Field<ResponseHeadersSection>,
    /// A rewrite in place of the rule's.
    pub(in crate::config) rewrite: Field<RewriteSection>,
    /// Session affinity within this upstream in place of the rule's. Backends whose cookies or headers have different names hold one
    /// session each for the same client.
    pub(in crate::config) affinity: Field<AffinitySection>,
}

/// Changes to headers, applied in this order. Example: `{remove: Cookie, set: {X-Team: cart}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "HeaderChanges")]
pub(in crate::config) struct HeaderChangesSection {
    /// Headers that are removed.
    pub(in crate::config) remove: OneOrManyField<Parsed<HeaderName>>,
    /// Headers that are set, replacing existing ones of the same name.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) set: OrderedMap<Parsed<HeaderValue>>,
    /// Headers that are added to existing ones of the same name.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) add: OrderedMap<Parsed<HeaderValue>>,
}

/// Changes to a response's headers, applied in this order. Example: `{remove: Server}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ResponseHeaders")]
pub(in crate::config) struct ResponseHeadersSection {
    /// Headers that are removed. `server` and `date` are also removed from the gateway's own responses.
    pub(in crate::config) remove: OneOrManyField<Parsed<HeaderName>>,
    /// Headers that are set, replacing existing ones of the same name.
    pub(in crate::config) set: OrderedMap<Parsed<HeaderValue>>,
    /// Headers that are added to existing ones of the same name.
    pub(in crate::config) add: OrderedMap<Parsed<HeaderValue>>,
    /// Further changes for responses with given statuses: `{status: 2xx, set: {cache-control: immutable}}`.
    pub(in crate::config) by_status: OneOrManyField<StatusHeadersSection>,
}

/// Changes to the headers of responses with given statuses, applied in this order. Example:
/// `{status: 2xx, set: {Cache-Control: immutable}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "StatusHeaders")]
pub(in crate::config) struct StatusHeadersSection {
    /// The statuses, as received by the client. Required.
    pub(in crate::config) status: OneOrManyField<Parsed<StatusRange>>,
    /// Headers that are removed.
    pub(in crate::config) remove: OneOrManyField<Parsed<HeaderName>>,
    /// Headers that are set, replacing existing ones of the same name.
    pub(in crate::config) set: OrderedMap<Parsed<HeaderValue>>,
    /// Headers that are added to existing ones of the same name.
    pub(in crate::config) add: OrderedMap<Parsed<HeaderValue>>,
}

/// A rewrite of the request that is sent to the upstream: the host, and the whole path or its matched prefix. Example:
/// `{prefix: /v1}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Rewrite")]
pub(in crate::config) struct RewriteSection {
    /// The new host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// A path in place of the whole path.
    pub(in crate::config) path: Field<Parsed<Path>>,
    /// A path in place of the matched prefix.
    pub(in crate::config) prefix: Field<Parsed<Path>>,
}

/// A redirect. Parts that are not set are taken from the URL that the client requested: behind a trusted proxy
/// (`client_address`) from `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port`, or from `Forwarded`. Example:
/// `{scheme: https}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Redirect")]
pub(in crate::config) struct RedirectSection {
    /// The scheme: `http` or `https`.
    pub(in crate::config) scheme: Field<Scheme>,
    /// The host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// The port. Example: `8443`.
    pub(in crate::config) port: Field<u16>,
    /// A path in place of the whole path.
    pub(in crate::config) path: Field<Parsed<Path>>,
    /// A path in place of the matched prefix.
    pub(in crate::config) prefix: Field<Parsed<Path>>,
    /// The status: 301, 302, 303, 307 or 308. Default: 302. Example: `301`.
    pub(in crate::config) status: Field<u16>,
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Scheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

/// A direct response, without an upstream; at most one of `body` and `file`. Example: `{status: 404, body: "not found"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Respond")]
pub(in crate::config) struct RespondSection {
    /// The status, from 200 to 599. Default: 200. Example: `404`.
    pub(in crate::config) status: Field<u16>,
    /// The content type. Default: `text/plain; charset=utf-8` for a response with a body.
    pub(in crate::config) content_type: Field<Parsed<HeaderValue>>,
    /// The body. Example: `not found`.
    pub(in crate::config) body: Field<String>,
    /// A file with the body, read when the configuration is loaded. Example: `page.html`.
    pub(in crate::config) file: Field<String>,
}

/// A custom error page; one of `body` and `file`. The status is preserved. Example: `{status: 5xx, body: "try again later"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ErrorPage")]
pub(in crate::config) struct ErrorPageSection {
    /// The statuses for which the page is sent, from 400. Required.
    pub(in crate::config) status: OneOrManyField<Parsed<StatusRange>>,
    /// The content type. Default: `text/plain; charset=utf-8` for `body`, `text/html; charset=utf-8` for `file`.
    pub(in crate::config) content_type: Field<Parsed<HeaderValue>>,
    /// The body. Example: `try again later`.
    pub(in crate::config) body: Field<String>,
    /// A file with the body, read when the configuration is loaded. Example: `page.html`.
    pub(in crate::config) file: Field<String>,
}

/// Static files from a directory. Files outside the directory are never served. Example: `{root: assets}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Files")]
pub(in crate::config) struct FilesSection {
    /// The directory. Required. Example: `assets`.
    pub(in crate::config) root: Field<String>,
    /// Removes the matched prefix from the path before the file lookup. Default: `true`.
    pub(in crate::config) strip_prefix: Field<bool>,
    /// The index files of directories; the first that exists is served. Default: `index.html`. Example: `index.html`.
    pub(in crate::config) index: OneOrManyField<String>,
    /// The file for paths without a file, for single-page applications. Default: none, 404.
    pub(in crate::config) fallback: Field<Parsed<Path>>,
    /// The `max-age` of `Cache-Control`. Default: none, the header is not sent.
    pub(in crate::config) max_age: Field<Parsed<Time>>,
    /// Media types by file extension, without a dot (`usdz: model/vnd.usdz+zip`). They take precedence over the built-in table,
    /// which has those registered with IANA and the usual ones of nginx and Apache; default for others:
    /// `application/octet-stream`.
    pub(in crate::config) types: OrderedMap<Parsed<HeaderValue>>,
    /// Serves files and directories whose name starts with a dot, such as `.env` and `.git`. Default: `false`, 404;
    /// `.well-known` is always served.
    pub(in crate::config) dot_files: Field<bool>,
}

/// A target of mirrored requests. Example: `{to: "http://127.0.0.1:3001", share: 1%}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Mirror")]
pub(in crate::config) struct MirrorSection {
    /// The upstream. Required.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The share of requests that are mirrored. Default: all.
    pub(in crate::config) share: Field<Parsed<Fraction>>,
    /// The maximum body size; requests with a larger body are not mirrored. Default: `1MiB`.
    pub(in crate::config) body: Field<Parsed<ByteSize>>,
}

/// The timeouts of an exchange. Example: `{request: 30s, per_try: 5s}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Timeouts")]
pub(in crate::config) struct TimeoutsSection {
    /// The timeout of the whole exchange, including all attempts. Default: `limits.request_timeout`, else `off`.
    pub(in crate::config) request: Field<Parsed<TimeOrOff>>,
    /// The timeout of one attempt, until its response starts; time spent waiting for the client does not count. Default: `off`.
    pub(in crate::config) per_try: Field<Parsed<TimeOrOff>>,
    /// The idle timeout: the time without a byte in either direction. Default: `60s`.
    pub(in crate::config) idle: Field<Parsed<TimeOrOff>>,
    /// The minimum rate per second of a response body, averaged over 5 s, after a grace period of 5 s. Default: none. Not for
    /// event streams, which may be silent.
    pub(in crate::config) minimum_rate: Field<Parsed<ByteSize>>,
}

/// The limits of body sizes. Example: `{request: 64MiB}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "BodyLimits")]
pub(in crate::config) struct BodyLimitsSection {
    /// The maximum size of request bodies; beyond it 413. Default: `limits.body`, else `16MiB`.
    pub(in crate::config) request: Field<Parsed<ByteSizeOrOff>>,
    /// The maximum size of response bodies; a larger response is aborted. Default: `off`.
    pub(in crate::config) response: Field<Parsed<ByteSizeOrOff>>,
}

/// Cross-origin resource sharing (CORS). Example: `{origins: "https://shop.example"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Cors")]
pub(in crate::config) struct CorsSection {
    /// The allowed origins. Required.
    pub(in crate::config) origins: OneOrManyField<Parsed<Origin>>,
    /// The allowed methods, as preflight responses list them; `*` for all. Default: GET, HEAD and POST, which browsers allow even
    /// if they are not listed.
    pub(in crate::config) methods: OneOrManyField<Parsed<MethodName>>,
    /// The allowed request headers besides the safelisted ones; `*` for all.
    pub(in crate::config) headers: OneOrManyField<Parsed<HeaderName>>,
    /// The response headers that scripts may read, besides the safelisted ones; `*` for all, but not with `credentials`.
    pub(in crate::config) expose: OneOrManyField<Parsed<HeaderName>>,
    /// Allows requests with credentials, such as cookies. Default: `false`.
    pub(in crate::config) credentials: Field<bool>,
    /// The time that a preflight response may be cached. Default: the browser's default, 5 s.
    pub(in crate::config) max_age: Field<Parsed<Time>>,
}

/// Retries, at another endpoint if there is one. A request is only retried if it has not reached an upstream, or if its method
/// is idempotent and at most 64 KiB of its body were sent. Example: `{attempts: 2, on: [connect, 503]}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Retry")]
pub(in crate::config) struct RetrySection {
    /// The maximum number of retries, at most 10. Default: 1.
    pub(in crate::config) attempts: Field<u8>,
    /// The conditions for a retry. Default: `connect`.
    pub(in crate::config) on: OneOrManyField<Parsed<RetryCondition>>,
    /// The minimum delay before a retry. Default: `0ms`.
    pub(in crate::config) backoff_min: Field<Parsed<Time>>,
    /// The maximum delay before the first retry, which is random between the minimum and this; it doubles with each retry. Default:
    /// `25ms`.
    pub(in crate::config) backoff: Field<Parsed<Time>>,
    /// The upper limit of the delay. Default: `250ms`.
    pub(in crate::config) backoff_max: Field<Parsed<Time>>,
}

/// Session affinity: one of `cookie`, `header` and `source`. Example: `{cookie: session}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Affinity")]
pub(in crate::config) struct AffinitySection {
    /// A cookie that the gateway sets: its name, or the full form. Example: `session`.
    pub(in crate::config) cookie: Field<ShortOrFull<String, CookieSection>>,
    /// A header that the gateway sets and clients send back.
    pub(in crate::config) header: Field<Parsed<HeaderName>>,
    /// `true`: the client's address.
    pub(in crate::config) source: Field<bool>,
    /// The maximum duration of a session. Default: the lifetime of its cookie.
    pub(in crate::config) lasts: Field<Parsed<Time>>,
    /// The idle timeout of a session. Default: none.
    pub(in crate::config) idle: Field<Parsed<Time>>,
}

/// A cookie that the gateway sets. Example: `{name: session, max_age: 1h}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Cookie")]
pub(in crate::config) struct CookieSection {
    /// The name. Default: `ringmain`.
    pub(in crate::config) name: Field<String>,
    /// The path. Default: `/`.
    pub(in crate::config) path: Field<String>,
    /// The lifetime (`Max-Age`). Default: none, until the browser closes.
    pub(in crate::config) max_age: Field<Parsed<Time>>,
}
