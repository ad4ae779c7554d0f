//! Keys of routes.

use ringmain_gateway::model::{
    HeaderName, HeaderValue, Hostname, MethodName, Origin, Path, Pattern, StatusRange,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Policies, PushAt, Some1};
use crate::config::texts::{Condition, GrpcName, Share, Size, SizeOrOff, Time, TimeOrOff, To};
use crate::config::values::{Either, OneManyOrNone, Pairs, Switch, Text, secret};

/// Rules for the requests of some hosts: `rules`, or the keys of one rule.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Route {
    /// Names of listeners. All of HTTP if it does not say.
    pub(in crate::config) listeners: Some1<String>,
    /// For which hosts. For all of its listeners' if it does not say.
    pub(in crate::config) hosts: Some1<Text<Hostname>>,
    /// What requests must pass, for all of its rules.
    pub(in crate::config) policies: Maybe<Policies>,
    /// What is done with which requests. The most specific counts: exact paths, then expressions, then the longest prefix;
    /// then one with a method, then more headers, then more of the query, then the first.
    pub(in crate::config) rules: Option<Vec<crate::config::values::At<Rule>>>,
    /// In place of `rules`: who answers all requests.
    pub(in crate::config) to: Some1<Either<Text<To>, Backend>>,
}

/// What is done with which requests: one of `to`, `redirect`, `respond`, `files` and `push`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Rule {
    /// For logs and metrics.
    pub(in crate::config) name: Maybe<String>,
    /// A request needs to match one of them; every request does if it does not say. A text is the prefix of a path.
    #[serde(rename = "match")]
    pub(in crate::config) matches: Some1<Either<Text<Path>, Match>>,
    /// Who answers: one, or several by weight.
    pub(in crate::config) to: Some1<Either<Text<To>, Backend>>,
    /// Another URL answers.
    pub(in crate::config) redirect: Maybe<Redirect>,
    /// An answer at once: a status, or all of it.
    pub(in crate::config) respond: Maybe<Either<u16, Respond>>,
    /// Files answer: a directory, or all about it.
    pub(in crate::config) files: Maybe<Either<String, Files>>,
    /// Clients connect that are pushed to, as the key `push` of the file says: `true`, or where.
    pub(in crate::config) push: Maybe<Switch<PushAt>>,
    /// Changes of the request's headers.
    pub(in crate::config) request_headers: Maybe<HeaderChanges>,
    /// Changes of the response's headers, whoever makes the response: upstream, gateway or error page.
    pub(in crate::config) response_headers: Maybe<ResponseHeaders>,
    /// What clients see in place of errors.
    pub(in crate::config) error_pages: Some1<ErrorPage>,
    /// What requests must pass, beside what the route says.
    pub(in crate::config) policies: Maybe<Policies>,
    /// Which other sites' scripts may read answers. Preflights are answered by the gateway. Without it nothing is said of it
    /// but what the upstream says.
    pub(in crate::config) cors: Maybe<Cors>,
    /// What the upstream sees in place of the request's host and path. Only with `to`, as all that follows.
    pub(in crate::config) rewrite: Maybe<Rewrite>,
    /// Copies of requests, whose answers nobody waits for.
    pub(in crate::config) mirror: Some1<Either<Text<To>, Mirror>>,
    /// How long things may take.
    pub(in crate::config) timeouts: Maybe<Timeouts>,
    /// How many bytes bodies may have.
    pub(in crate::config) body: Maybe<BodyLimits>,
    /// When a request is tried again: `true` is once after a failed connection.
    pub(in crate::config) retry: Maybe<Switch<Retry>>,
    /// After this time without an answer a request is tried at another endpoint as well, and the answer that begins first counts.
    /// Only one whose method is idempotent, and whose body, if it has one, is of 64 KiB at most. Never if it does not say.
    pub(in crate::config) hedge: Maybe<Text<Time>>,
    /// Requests of one client go to one endpoint.
    pub(in crate::config) affinity: Maybe<Affinity>,
    /// Protocols that a connection may switch to: `websocket` if it does not say, `[]` for none.
    pub(in crate::config) upgrades: Maybe<OneManyOrNone<String>>,
    /// Calls of gRPC-Web are sent on as gRPC, and their answers back. `false` if it does not say.
    pub(in crate::config) grpc_web: Maybe<bool>,
    /// Error pages are also for the upstream's own errors. `false` if it does not say.
    pub(in crate::config) replace_errors: Maybe<bool>,
}

/// What a request must be: all of it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Match {
    /// A prefix by whole segments; or exact, or an expression.
    pub(in crate::config) path: Maybe<Either<Text<Path>, PathMatch>>,
    /// In place of path and method: a service of gRPC, or one of its methods.
    pub(in crate::config) grpc: Maybe<Text<GrpcName>>,
    /// The method.
    pub(in crate::config) method: Maybe<Text<MethodName>>,
    /// Headers by name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) headers: Pairs<Either<String, ValueMatch>>,
    /// Parameters of the query by name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) query: Pairs<Either<String, ValueMatch>>,
}

/// A path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PathMatch {
    /// This path alone.
    Exact(Text<Path>),
    /// This path and what is below it.
    Prefix(Text<Path>),
    /// The whole path matches.
    Regex(Text<Pattern>),
}

/// A value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ValueMatch {
    /// This text.
    Exact(String),
    /// All of it matches.
    Regex(Text<Pattern>),
    /// Anything, if it is there: `present: true`.
    Present(bool),
}

/// One of those who may answer.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Backend {
    /// Who.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// Its share among all: 1 if it does not say.
    pub(in crate::config) weight: Maybe<u32>,
    /// After those of the rule.
    pub(in crate::config) request_headers: Maybe<HeaderChanges>,
    /// After those of the rule.
    pub(in crate::config) response_headers: Maybe<ResponseHeaders>,
    /// In place of the rule's.
    pub(in crate::config) rewrite: Maybe<Rewrite>,
}

/// Changes of headers, in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct HeaderChanges {
    /// Gone.
    pub(in crate::config) remove: Some1<Text<HeaderName>>,
    /// There once, with this value.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) set: Pairs<Text<HeaderValue>>,
    /// There once more, with this value.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) add: Pairs<Text<HeaderValue>>,
}

/// Changes of a response's headers, in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ResponseHeaders {
    /// Removed. `server` and `date` are also removed from the gateway's own responses.
    pub(in crate::config) remove: Some1<Text<HeaderName>>,
    /// Present once, with this value.
    pub(in crate::config) set: Pairs<Text<HeaderValue>>,
    /// Present once more, with this value.
    pub(in crate::config) add: Pairs<Text<HeaderValue>>,
    /// Further changes, only for responses with some statuses: `{status: 2xx, set: {cache-control: immutable}}`.
    pub(in crate::config) by_status: Some1<StatusHeaders>,
}

/// Changes of the headers of responses with some statuses, in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct StatusHeaders {
    /// Which: the status that the client receives.
    pub(in crate::config) status: Some1<Text<StatusRange>>,
    /// Removed.
    pub(in crate::config) remove: Some1<Text<HeaderName>>,
    /// Present once, with this value.
    pub(in crate::config) set: Pairs<Text<HeaderValue>>,
    /// Present once more, with this value.
    pub(in crate::config) add: Pairs<Text<HeaderValue>>,
}

/// What the upstream sees: a host, and a path in place of the whole or of the prefix that matched.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Rewrite {
    /// The host.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// In place of the whole path.
    pub(in crate::config) path: Maybe<Text<Path>>,
    /// In place of the prefix that matched.
    pub(in crate::config) prefix: Maybe<Text<Path>>,
}

/// Another URL. Parts that it does not set are those of the URL that the client requested: behind a trusted proxy
/// (`client_address`) those of `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port`, or of `Forwarded`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Redirect {
    /// `http` or `https`.
    pub(in crate::config) scheme: Maybe<Scheme>,
    /// The host.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// The port.
    pub(in crate::config) port: Maybe<u16>,
    /// In place of the whole path.
    pub(in crate::config) path: Maybe<Text<Path>>,
    /// In place of the prefix that matched.
    pub(in crate::config) prefix: Maybe<Text<Path>>,
    /// 301, 302, 303, 307 or 308; 302 if it does not say.
    pub(in crate::config) status: Maybe<u16>,
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

/// An answer without an upstream; at most one of `body` and `file`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Respond {
    /// From 200 to 599; 200 if it does not say.
    pub(in crate::config) status: Maybe<u16>,
    /// `text/plain; charset=utf-8` if there is a body and it does not say.
    pub(in crate::config) content_type: Maybe<Text<HeaderValue>>,
    /// The body.
    pub(in crate::config) body: Maybe<String>,
    /// The file that is the body; read once.
    pub(in crate::config) file: Maybe<String>,
}

/// What clients see in place of an error; one of `body` and `file`. The status stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ErrorPage {
    /// In place of which, from 400.
    pub(in crate::config) status: Some1<Text<StatusRange>>,
    /// `text/plain; charset=utf-8` for a body, `text/html; charset=utf-8` for a file, if it does not say.
    pub(in crate::config) content_type: Maybe<Text<HeaderValue>>,
    /// The body.
    pub(in crate::config) body: Maybe<String>,
    /// The file that is the body; read once.
    pub(in crate::config) file: Maybe<String>,
}

/// Files of a directory. Nothing outside it is served.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Files {
    /// The directory.
    pub(in crate::config) root: Maybe<String>,
    /// The prefix that matched is not part of the file's path. `true` if it does not say.
    pub(in crate::config) strip_prefix: Maybe<bool>,
    /// What a directory is answered with: `index.html` if it does not say.
    pub(in crate::config) index: Some1<String>,
    /// The file for paths that name none, for applications that route in the browser. 404 if it does not say.
    pub(in crate::config) fallback: Maybe<Text<Path>>,
    /// How long it may be kept. Nothing is said of it if it does not say.
    pub(in crate::config) max_age: Maybe<Text<Time>>,
    /// Media types by file extension, without a dot (`usdz: model/vnd.usdz+zip`). They take precedence over the built-in
    /// table, which has those registered with IANA and the usual ones of nginx and Apache; default for others:
    /// `application/octet-stream`.
    pub(in crate::config) types: Pairs<Text<HeaderValue>>,
    /// Serves files and directories whose name begins with a dot, such as `.env` and `.git`, too. Default: `false`, 404;
    /// `.well-known` is always served.
    pub(in crate::config) dot_files: Maybe<bool>,
}

/// A copy of requests for another upstream.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Mirror {
    /// Who gets them.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// Of how many: of all if it does not say.
    pub(in crate::config) share: Maybe<Text<Share>>,
    /// A request with a longer body is not mirrored: `1MiB` if it does not say.
    pub(in crate::config) body: Maybe<Text<Size>>,
}

/// How long parts of an exchange may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Timeouts {
    /// The whole of it, all tries together: `off` if it does not say.
    pub(in crate::config) request: Maybe<Text<TimeOrOff>>,
    /// One attempt, until its response begins; time in which the client is waited for does not count. Default: `off`.
    pub(in crate::config) per_try: Maybe<Text<TimeOrOff>>,
    /// Without a byte in either direction, whoever is silent. Default: `60s`.
    pub(in crate::config) idle: Maybe<Text<TimeOrOff>>,
    /// What an answer's body must bring a second, on average over 5 s and behind as long a grace: any number if it does not
    /// say. Not for event streams, which may have little to say.
    pub(in crate::config) minimum_rate: Maybe<Text<Size>>,
}

/// How many bytes bodies may have.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct BodyLimits {
    /// Of requests: `16MiB` if it does not say.
    pub(in crate::config) request: Maybe<Text<SizeOrOff>>,
    /// Of answers: `off` if it does not say.
    pub(in crate::config) response: Maybe<Text<SizeOrOff>>,
}

/// Cross-origin resource sharing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Cors {
    /// Whose scripts.
    pub(in crate::config) origins: Some1<Text<Origin>>,
    /// Methods besides GET, HEAD and POST; `*` for all.
    pub(in crate::config) methods: Some1<Text<MethodName>>,
    /// Headers of requests besides those that are safe; `*` for all.
    pub(in crate::config) headers: Some1<Text<HeaderName>>,
    /// Headers of answers, besides those that are safe, that scripts may read.
    pub(in crate::config) expose: Some1<Text<HeaderName>>,
    /// Cookies and the like are sent. `false` if it does not say.
    pub(in crate::config) credentials: Maybe<bool>,
    /// How long a preflight's answer holds: what the browser has, 5 s, if it does not say.
    pub(in crate::config) max_age: Maybe<Text<Time>>,
}

/// When a request is tried again, at another endpoint if there is one. Only one that nobody has acted on: that reached nobody, or
/// whose method is idempotent, with no more than 64 KiB of a body.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Retry {
    /// How often again, at most 10: 1 if it does not say.
    pub(in crate::config) attempts: Maybe<u8>,
    /// After what: `connect` if it does not say.
    pub(in crate::config) on: Some1<Text<Condition>>,
    /// How long until the second try at most, a random part of it; then of twice as long each time: `25ms` if it does not say.
    pub(in crate::config) backoff: Maybe<Text<Time>>,
    /// How long at most: `250ms` if it does not say.
    pub(in crate::config) backoff_most: Maybe<Text<Time>>,
}

/// Requests of one client go to one endpoint: one of `cookie`, `header` and `source`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Affinity {
    /// A cookie that the gateway sets: its name, or all about it.
    pub(in crate::config) cookie: Maybe<Either<String, Cookie>>,
    /// A header that the gateway sets and clients send back.
    pub(in crate::config) header: Maybe<Text<HeaderName>>,
    /// `true`: the client's address.
    pub(in crate::config) source: Maybe<bool>,
    /// How long a session lasts: as long as its cookie if it does not say.
    pub(in crate::config) lasts: Maybe<Text<Time>>,
    /// How long it lasts without a request.
    pub(in crate::config) idle: Maybe<Text<Time>>,
}

/// A cookie that the gateway sets.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Cookie {
    /// Its name: `ringmain` if it does not say.
    pub(in crate::config) name: Maybe<String>,
    /// Its path: `/` if it does not say.
    pub(in crate::config) path: Maybe<String>,
    /// How long it lasts: until the browser closes if it does not say.
    pub(in crate::config) max_age: Maybe<Text<Time>>,
}
