//! Keys of routes.

use ringmain_gateway::model::{
    HeaderName, HeaderValue, Hostname, MethodName, Origin, Path, Pattern, StatusRange,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Policies, PushAt, Some1};
use crate::config::scalars::{Condition, GrpcName, Share, Size, SizeOrOff, Time, TimeOrOff, To};
use crate::config::fields::{Either, OneManyOrNone, Pairs, Switch, Text, secret};

/// A set of rules for the requests of some hosts: either `rules` or `to`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Route {
    /// The names of listeners. Default: all HTTP listeners.
    pub(in crate::config) listeners: Some1<String>,
    /// The hosts. Default: all hosts of the route's listeners.
    pub(in crate::config) hosts: Some1<Text<Hostname>>,
    /// The policies for all rules of the route.
    pub(in crate::config) policies: Maybe<Policies>,
    /// The rules. The most specific match applies: exact paths, then regular expressions, then the longest prefix; then matches
    /// with a method, then with more headers, then with more query parameters, then the first.
    pub(in crate::config) rules: Option<Vec<crate::config::fields::At<Rule>>>,
    /// The upstreams for all requests, in place of `rules`.
    pub(in crate::config) to: Some1<Either<Text<To>, Backend>>,
}

/// A rule for matching requests: one of `to`, `redirect`, `respond`, `files` and `push`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Rule {
    /// The name in logs and metrics. Default: the rule's number, from 0.
    pub(in crate::config) name: Maybe<String>,
    /// The matches, one of which a request must satisfy; a string is a path prefix. Default: all requests match.
    #[serde(rename = "match")]
    pub(in crate::config) matches: Some1<Either<Text<Path>, Match>>,
    /// The upstreams: one, or several by weight.
    pub(in crate::config) to: Some1<Either<Text<To>, Backend>>,
    /// A redirect to another URL.
    pub(in crate::config) redirect: Maybe<Redirect>,
    /// A direct response: a status, or the full form.
    pub(in crate::config) respond: Maybe<Either<u16, Respond>>,
    /// Static files: a directory, or the full form.
    pub(in crate::config) files: Maybe<Either<String, Files>>,
    /// The endpoints of the push server, as configured by the key `push` of the file: `true`, or their location.
    pub(in crate::config) push: Maybe<Switch<PushAt>>,
    /// Changes to the request's headers.
    pub(in crate::config) request_headers: Maybe<HeaderChanges>,
    /// Changes to the response's headers, whatever generates the response: upstream, gateway or error page.
    pub(in crate::config) response_headers: Maybe<ResponseHeaders>,
    /// Custom error pages.
    pub(in crate::config) error_pages: Some1<ErrorPage>,
    /// The policies of the rule, in addition to the route's.
    pub(in crate::config) policies: Maybe<Policies>,
    /// CORS: the origins whose scripts may read responses. Preflight requests are answered by the gateway. Default: none, CORS
    /// headers of the upstream are forwarded.
    pub(in crate::config) cors: Maybe<Cors>,
    /// Rewrites the host and path of the request that is sent to the upstream. Only valid with `to`, like all keys below.
    pub(in crate::config) rewrite: Maybe<Rewrite>,
    /// Mirrors requests to further upstreams, whose responses are ignored.
    pub(in crate::config) mirror: Some1<Either<Text<To>, Mirror>>,
    /// The timeouts.
    pub(in crate::config) timeouts: Maybe<Timeouts>,
    /// The limits of body sizes.
    pub(in crate::config) body: Maybe<BodyLimits>,
    /// Retries; `true` retries once after a failed connection. Default: none.
    pub(in crate::config) retry: Maybe<Switch<Retry>>,
    /// The time without a response after which a hedged request is sent to another endpoint; the first response is used. Only
    /// for idempotent methods, and bodies of at most 64 KiB. Default: none.
    pub(in crate::config) hedge: Maybe<Text<Time>>,
    /// Session affinity: sends the requests of a client to the same endpoint.
    pub(in crate::config) affinity: Maybe<Affinity>,
    /// The protocols that a connection may be upgraded to; `[]` allows none. Default: `websocket`.
    pub(in crate::config) upgrades: Maybe<OneManyOrNone<String>>,
    /// Translates gRPC-Web calls to gRPC, and their responses back. Default: `false`.
    pub(in crate::config) grpc_web: Maybe<bool>,
    /// Applies error pages to error responses of the upstream as well. Default: `false`.
    pub(in crate::config) replace_errors: Maybe<bool>,
}

/// The conditions of a match, all of which must hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Match {
    /// A path prefix of whole segments; or an exact path, or a regular expression.
    pub(in crate::config) path: Maybe<Either<Text<Path>, PathMatch>>,
    /// A gRPC service, or one of its methods, in place of path and method.
    pub(in crate::config) grpc: Maybe<Text<GrpcName>>,
    /// The method.
    pub(in crate::config) method: Maybe<Text<MethodName>>,
    /// The headers, by name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) headers: Pairs<Either<String, ValueMatch>>,
    /// The query parameters, by name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) query: Pairs<Either<String, ValueMatch>>,
}

/// A path match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PathMatch {
    /// The exact path.
    Exact(Text<Path>),
    /// This path and all paths below it.
    Prefix(Text<Path>),
    /// A regular expression that matches the whole path.
    Regex(Text<Pattern>),
}

/// A value match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ValueMatch {
    /// The exact value.
    Exact(String),
    /// A regular expression that matches the whole value.
    Regex(Text<Pattern>),
    /// Any value, if present: `present: true`.
    Present(bool),
}

/// A weighted upstream.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Backend {
    /// The upstream. Required.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// The weight relative to the other upstreams of the rule. Default: 1.
    pub(in crate::config) weight: Maybe<u32>,
    /// Changes to the request's headers, applied after those of the rule.
    pub(in crate::config) request_headers: Maybe<HeaderChanges>,
    /// Changes to the response's headers, applied after those of the rule.
    pub(in crate::config) response_headers: Maybe<ResponseHeaders>,
    /// A rewrite in place of the rule's.
    pub(in crate::config) rewrite: Maybe<Rewrite>,
    /// Session affinity within this upstream in place of the rule's. Backends whose cookies or headers have different names hold one
    /// session each for the same client.
    pub(in crate::config) affinity: Maybe<Affinity>,
}

/// Changes to headers, applied in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct HeaderChanges {
    /// Headers that are removed.
    pub(in crate::config) remove: Some1<Text<HeaderName>>,
    /// Headers that are set, replacing existing ones of the same name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) set: Pairs<Text<HeaderValue>>,
    /// Headers that are added to existing ones of the same name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) add: Pairs<Text<HeaderValue>>,
}

/// Changes to a response's headers, applied in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ResponseHeaders {
    /// Headers that are removed. `server` and `date` are also removed from the gateway's own responses.
    pub(in crate::config) remove: Some1<Text<HeaderName>>,
    /// Headers that are set, replacing existing ones of the same name.
    pub(in crate::config) set: Pairs<Text<HeaderValue>>,
    /// Headers that are added to existing ones of the same name.
    pub(in crate::config) add: Pairs<Text<HeaderValue>>,
    /// Further changes for responses with given statuses: `{status: 2xx, set: {cache-control: immutable}}`.
    pub(in crate::config) by_status: Some1<StatusHeaders>,
}

/// Changes to the headers of responses with given statuses, applied in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct StatusHeaders {
    /// The statuses, as received by the client. Required.
    pub(in crate::config) status: Some1<Text<StatusRange>>,
    /// Headers that are removed.
    pub(in crate::config) remove: Some1<Text<HeaderName>>,
    /// Headers that are set, replacing existing ones of the same name.
    pub(in crate::config) set: Pairs<Text<HeaderValue>>,
    /// Headers that are added to existing ones of the same name.
    pub(in crate::config) add: Pairs<Text<HeaderValue>>,
}

/// A rewrite of the request that is sent to the upstream: the host, and the whole path or its matched prefix.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Rewrite {
    /// The new host.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// A path in place of the whole path.
    pub(in crate::config) path: Maybe<Text<Path>>,
    /// A path in place of the matched prefix.
    pub(in crate::config) prefix: Maybe<Text<Path>>,
}

/// A redirect. Parts that are not set are taken from the URL that the client requested: behind a trusted proxy
/// (`client_address`) from `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port`, or from `Forwarded`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Redirect {
    /// The scheme: `http` or `https`.
    pub(in crate::config) scheme: Maybe<Scheme>,
    /// The host.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// The port.
    pub(in crate::config) port: Maybe<u16>,
    /// A path in place of the whole path.
    pub(in crate::config) path: Maybe<Text<Path>>,
    /// A path in place of the matched prefix.
    pub(in crate::config) prefix: Maybe<Text<Path>>,
    /// The status: 301, 302, 303, 307 or 308. Default: 302.
    pub(in crate::config) status: Maybe<u16>,
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

/// A direct response, without an upstream; at most one of `body` and `file`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Respond {
    /// The status, from 200 to 599. Default: 200.
    pub(in crate::config) status: Maybe<u16>,
    /// The content type. Default: `text/plain; charset=utf-8` for a response with a body.
    pub(in crate::config) content_type: Maybe<Text<HeaderValue>>,
    /// The body.
    pub(in crate::config) body: Maybe<String>,
    /// A file with the body, read when the configuration is loaded.
    pub(in crate::config) file: Maybe<String>,
}

/// A custom error page; one of `body` and `file`. The status is preserved.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ErrorPage {
    /// The statuses for which the page is sent, from 400. Required.
    pub(in crate::config) status: Some1<Text<StatusRange>>,
    /// The content type. Default: `text/plain; charset=utf-8` for `body`, `text/html; charset=utf-8` for `file`.
    pub(in crate::config) content_type: Maybe<Text<HeaderValue>>,
    /// The body.
    pub(in crate::config) body: Maybe<String>,
    /// A file with the body, read when the configuration is loaded.
    pub(in crate::config) file: Maybe<String>,
}

/// Static files from a directory. Files outside the directory are never served.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Files {
    /// The directory. Required.
    pub(in crate::config) root: Maybe<String>,
    /// Removes the matched prefix from the path before the file lookup. Default: `true`.
    pub(in crate::config) strip_prefix: Maybe<bool>,
    /// The index files of directories; the first that exists is served. Default: `index.html`.
    pub(in crate::config) index: Some1<String>,
    /// The file for paths without a file, for single-page applications. Default: none, 404.
    pub(in crate::config) fallback: Maybe<Text<Path>>,
    /// The `max-age` of `Cache-Control`. Default: none, the header is not sent.
    pub(in crate::config) max_age: Maybe<Text<Time>>,
    /// Media types by file extension, without a dot (`usdz: model/vnd.usdz+zip`). They take precedence over the built-in table,
    /// which has those registered with IANA and the usual ones of nginx and Apache; default for others:
    /// `application/octet-stream`.
    pub(in crate::config) types: Pairs<Text<HeaderValue>>,
    /// Serves files and directories whose name starts with a dot, such as `.env` and `.git`. Default: `false`, 404;
    /// `.well-known` is always served.
    pub(in crate::config) dot_files: Maybe<bool>,
}

/// A target of mirrored requests.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Mirror {
    /// The upstream. Required.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// The share of requests that are mirrored. Default: all.
    pub(in crate::config) share: Maybe<Text<Share>>,
    /// The maximum body size; requests with a larger body are not mirrored. Default: `1MiB`.
    pub(in crate::config) body: Maybe<Text<Size>>,
}

/// The timeouts of an exchange.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Timeouts {
    /// The timeout of the whole exchange, including all attempts. Default: `limits.request_timeout`, else `off`.
    pub(in crate::config) request: Maybe<Text<TimeOrOff>>,
    /// The timeout of one attempt, until its response starts; time spent waiting for the client does not count. Default: `off`.
    pub(in crate::config) per_try: Maybe<Text<TimeOrOff>>,
    /// The idle timeout: the time without a byte in either direction. Default: `60s`.
    pub(in crate::config) idle: Maybe<Text<TimeOrOff>>,
    /// The minimum rate per second of a response body, averaged over 5 s, after a grace period of 5 s. Default: none. Not for
    /// event streams, which may be silent.
    pub(in crate::config) minimum_rate: Maybe<Text<Size>>,
}

/// The limits of body sizes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct BodyLimits {
    /// The maximum size of request bodies; beyond it 413. Default: `limits.body`, else `16MiB`.
    pub(in crate::config) request: Maybe<Text<SizeOrOff>>,
    /// The maximum size of response bodies; a larger response is aborted. Default: `off`.
    pub(in crate::config) response: Maybe<Text<SizeOrOff>>,
}

/// Cross-origin resource sharing (CORS).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Cors {
    /// The allowed origins. Required.
    pub(in crate::config) origins: Some1<Text<Origin>>,
    /// The allowed methods, as preflight responses list them; `*` for all. Default: GET, HEAD and POST, which browsers allow even
    /// if they are not listed.
    pub(in crate::config) methods: Some1<Text<MethodName>>,
    /// The allowed request headers besides the safelisted ones; `*` for all.
    pub(in crate::config) headers: Some1<Text<HeaderName>>,
    /// The response headers that scripts may read, besides the safelisted ones; `*` for all, but not with `credentials`.
    pub(in crate::config) expose: Some1<Text<HeaderName>>,
    /// Allows requests with credentials, such as cookies. Default: `false`.
    pub(in crate::config) credentials: Maybe<bool>,
    /// The time that a preflight response may be cached. Default: the browser's default, 5 s.
    pub(in crate::config) max_age: Maybe<Text<Time>>,
}

/// Retries, at another endpoint if there is one. A request is only retried if it has not reached an upstream, or if its method
/// is idempotent and at most 64 KiB of its body were sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Retry {
    /// The maximum number of retries, at most 10. Default: 1.
    pub(in crate::config) attempts: Maybe<u8>,
    /// The conditions for a retry. Default: `connect`.
    pub(in crate::config) on: Some1<Text<Condition>>,
    /// The minimum delay before a retry. Default: `0ms`.
    pub(in crate::config) backoff_least: Maybe<Text<Time>>,
    /// The maximum delay before the first retry, which is random between the minimum and this; it doubles with each retry. Default:
    /// `25ms`.
    pub(in crate::config) backoff: Maybe<Text<Time>>,
    /// The upper limit of the delay. Default: `250ms`.
    pub(in crate::config) backoff_most: Maybe<Text<Time>>,
}

/// Session affinity: one of `cookie`, `header` and `source`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Affinity {
    /// A cookie that the gateway sets: its name, or the full form.
    pub(in crate::config) cookie: Maybe<Either<String, Cookie>>,
    /// A header that the gateway sets and clients send back.
    pub(in crate::config) header: Maybe<Text<HeaderName>>,
    /// `true`: the client's address.
    pub(in crate::config) source: Maybe<bool>,
    /// The maximum duration of a session. Default: the lifetime of its cookie.
    pub(in crate::config) lasts: Maybe<Text<Time>>,
    /// The idle timeout of a session. Default: none.
    pub(in crate::config) idle: Maybe<Text<Time>>,
}

/// A cookie that the gateway sets.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Cookie {
    /// The name. Default: `ringmain`.
    pub(in crate::config) name: Maybe<String>,
    /// The path. Default: `/`.
    pub(in crate::config) path: Maybe<String>,
    /// The lifetime (`Max-Age`). Default: none, until the browser closes.
    pub(in crate::config) max_age: Maybe<Text<Time>>,
}
