//! Keys of policies, which are evaluated before a rule's action.

use ringmain_gateway::model::{HeaderName, Hostname, JwtAlgorithm, Network, PasswordHash};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Concurrency, Inject, Maybe, OnFailure, RateLimit, Shed, Some1};
use crate::config::scalars::{KeyDigest, PageUrl, Size, Time, To};
use crate::config::fields::{Either, Free, OneOrMany, Pairs, Switch, Text, secret};

/// The policies of a rule, or of a route for all of its rules, evaluated in the order that docs/policies.md lists. A rule's
/// policy replaces the route's policy of the same kind; `false` removes it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Policies {
    /// Access control by client address.
    pub(in crate::config) addresses: Maybe<Switch<Addresses>>,
    /// Sends the client certificate to the upstream in the header `Client-Cert` (RFC 9440).
    pub(in crate::config) client_certificate: Maybe<Switch<ClientCertificate>>,
    /// Basic authentication with a user name and a password.
    pub(in crate::config) basic: Maybe<Switch<BasicAuth>>,
    /// Authentication with an API key.
    pub(in crate::config) api_keys: Maybe<Switch<ApiKeys>>,
    /// Authentication with a token (JWT) signed by an identity provider.
    pub(in crate::config) jwt: Maybe<Switch<Jwt>>,
    /// The policies that must admit a request: all of `client_certificate`, `basic`, `api_keys` and `jwt`, or any one, where
    /// the networks in `addresses.allow` count as well. Default: the route's value, else `all`.
    pub(in crate::config) satisfy: Maybe<Satisfy>,
    /// External authorization: a service decides whether a request is allowed.
    pub(in crate::config) authz: Maybe<Switch<ExternalAuth>>,
    /// Rate limiting: one limit, or several that must all admit a request.
    pub(in crate::config) rate_limit: Maybe<Switch<OneOrMany<RateLimit>>>,
    /// A limit on concurrent requests.
    pub(in crate::config) concurrency: Maybe<Switch<Concurrency>>,
    /// Load shedding: requests that are rejected first under overload.
    pub(in crate::config) shed: Maybe<Switch<Shed>>,
    /// Fault injection, for testing.
    pub(in crate::config) inject: Maybe<Switch<Inject>>,
    /// The custom filters of the program, run in this order; a name alone is a filter without options. `ringmain` itself has
    /// none: docs/filters.md describes how a program adds filters.
    pub(in crate::config) filters: Maybe<Switch<OneOrMany<Either<String, Filter>>>>,
}

/// A custom filter and its options.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Filter {
    /// The name under which the program registers the filter.
    pub(in crate::config) name: Maybe<String>,
    /// The options of the filter; its keys are defined and validated by the program.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) options: Maybe<Pairs<Free>>,
}

/// The number of policies that must admit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Satisfy {
    /// All policies.
    All,
    /// One policy.
    Any,
}

/// Access control by client address, as determined by the listener's `client_address`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Addresses {
    /// The allowed networks; other addresses are rejected with 403. Default: all addresses are allowed.
    pub(in crate::config) allow: Some1<Text<Network>>,
    /// The denied networks, which take precedence over `allow`.
    pub(in crate::config) deny: Some1<Text<Network>>,
}

/// Forwarding of the client certificate. The listener requests it with `tls.clients`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ClientCertificate {
    /// Rejects clients without a certificate with 403. Default: `false`.
    pub(in crate::config) required: Maybe<bool>,
    /// Sends the intermediate certificates in `Client-Cert-Chain` as well. Default: `false`.
    pub(in crate::config) chain: Maybe<bool>,
    /// A header for the certificate's SHA-256 fingerprint, in hexadecimal digits. Default: none.
    pub(in crate::config) fingerprint: Maybe<Text<HeaderName>>,
    /// A header that tells upstreams whether it is valid: `verified`, `unverified` or `none`. With it they receive certificates that are
    /// not valid too, from a listener with `mode: unchecked`. Default: none, and a certificate that is not valid counts as none.
    pub(in crate::config) verification: Maybe<Text<HeaderName>>,
}

/// Basic authentication (RFC 7617). Passwords are verified outside the workers, at most 8 at a time in the process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct BasicAuth {
    /// The realm of the challenge. Default: `ringmain`.
    pub(in crate::config) realm: Maybe<String>,
    /// The password hashes, by user name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) users: Pairs<Text<PasswordHash>>,
    /// A file with lines `NAME:HASH`, as `htpasswd -B` writes it.
    pub(in crate::config) file: Maybe<String>,
    /// A request header that passes the user name to the upstream. Default: none.
    pub(in crate::config) user_header: Maybe<Text<HeaderName>>,
    /// Removes `Authorization` from forwarded requests. Default: `true`.
    pub(in crate::config) hide: Maybe<bool>,
}

/// Authentication with an API key. The first key in the headers, then the query, then the cookies is used.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ApiKeys {
    /// The headers that may contain the key; for `Authorization`, the value after `Bearer`. Default: `X-API-Key`, unless
    /// `query` or `cookie` is set.
    pub(in crate::config) header: Some1<Text<HeaderName>>,
    /// The query parameters that may contain the key.
    pub(in crate::config) query: Some1<String>,
    /// The cookies that may contain the key.
    pub(in crate::config) cookie: Some1<String>,
    /// The SHA-256 digests of keys, by consumer name.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) keys: Pairs<OneOrMany<Text<KeyDigest>>>,
    /// A file with lines `NAME sha256:HEX`.
    pub(in crate::config) file: Maybe<String>,
    /// A request header that passes the consumer name to the upstream. Default: none.
    pub(in crate::config) consumer_header: Maybe<Text<HeaderName>>,
    /// Removes headers with keys from forwarded requests; query parameters and cookies are forwarded. Default: `true`.
    pub(in crate::config) hide: Maybe<bool>,
}

/// Authentication with a token (JWT) of one of several providers, and the scopes and claims that it must have.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Jwt {
    /// The names of `jwt_providers`. Required.
    pub(in crate::config) provider: Some1<String>,
    /// The required scopes: each must be in the token's `scope` or `scp`.
    pub(in crate::config) scopes: Some1<String>,
    /// The required claims, each by its name or by the path to it, names separated by dots: the claim must equal one of the
    /// given texts. In a claim that is a list, one element must.
    pub(in crate::config) claims: Pairs<OneOrMany<String>>,
    /// Request headers that pass claims to the upstream, by header name.
    pub(in crate::config) headers: Pairs<String>,
    /// Removes headers with tokens from forwarded requests. Default: `false`.
    pub(in crate::config) hide: Maybe<bool>,
}

/// An identity provider that signs tokens. Its keys are either fetched (`jwks`) or read from a file (`keys`).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct JwtProvider {
    /// The expected value of `iss`. Required.
    pub(in crate::config) issuer: Maybe<String>,
    /// The accepted audiences: one must be `aud`, or in it. Default: none, `aud` is not checked.
    pub(in crate::config) audience: Some1<String>,
    /// The accepted signature algorithms. Default: RS, PS and ES in all sizes, and EdDSA. HS must be listed explicitly.
    pub(in crate::config) algorithms: Some1<Text<JwtAlgorithm>>,
    /// The JWKS endpoint: its URL, or the full form.
    pub(in crate::config) jwks: Maybe<Either<Text<PageUrl>, Jwks>>,
    /// A JWKS file, in place of `jwks`.
    pub(in crate::config) keys: Maybe<String>,
    /// The tolerated clock skew. Default: `30s`.
    pub(in crate::config) leeway: Maybe<Text<Time>>,
    /// The headers that may contain the token. Default: `Authorization`, after `Bearer`, unless `query` or `cookie` is set.
    pub(in crate::config) header: Some1<Text<HeaderName>>,
    /// The query parameters that may contain the token. The gateway's own logs redact it; those of other servers may not.
    pub(in crate::config) query: Some1<String>,
    /// The cookies that may contain the token.
    pub(in crate::config) cookie: Some1<String>,
}

/// A JWKS endpoint.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Jwks {
    /// The URL. Either this, or `to` and `path`.
    pub(in crate::config) url: Maybe<Text<PageUrl>>,
    /// The upstream that serves the keys.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// The path.
    pub(in crate::config) path: Maybe<String>,
    /// The `Host` of the request. Default: the endpoint's host.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// The refresh interval, at least `10s`. Default: `10m`. The keys are also fetched when a token names an unknown key, at
    /// most every 10 s.
    pub(in crate::config) refresh: Maybe<Text<Time>>,
    /// The time for which keys are used if they cannot be fetched again, at least `refresh`. Default: `1d`.
    pub(in crate::config) stale: Maybe<Text<Time>>,
}

/// External authorization over HTTP. A 2xx response allows the request, a 3xx or 4xx response is returned to the client,
/// anything else is a failure. The service receives the request's `Authorization` and `Cookie`, and `X-Forwarded-Method`,
/// `-Proto`, `-Host`, `-Uri` and `-For`; never its body.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ExternalAuth {
    /// The upstream of the service. Required.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// The path of the authorization request, which is sent with GET. Without `path` and `prefix` it has the method and path of
    /// the client's request.
    pub(in crate::config) path: Maybe<String>,
    /// A prefix for the path of the authorization request, which otherwise has the method and path of the client's request.
    pub(in crate::config) prefix: Maybe<String>,
    /// The `Host` of the authorization request. Default: the endpoint's host.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// The maximum size of a request body that is sent to the service, at most `1MiB`. The whole body is received first; a larger one
    /// is rejected with 413. Not with `path`, filters, `grpc_web` or push. Default: none; the body is not sent.
    pub(in crate::config) body: Maybe<Text<Size>>,
    /// Further request headers that are sent to the service.
    pub(in crate::config) request_headers: Some1<Text<HeaderName>>,
    /// Headers of the service's response that are sent to the upstream.
    pub(in crate::config) upstream_headers: Some1<Text<HeaderName>>,
    /// Further headers of a denying response that are returned to the client, besides `Content-Type`, `Location`, `Set-Cookie`
    /// and `WWW-Authenticate`.
    pub(in crate::config) client_headers: Some1<Text<HeaderName>>,
    /// The header of the service's response that contains the client's identity.
    pub(in crate::config) identity: Maybe<Text<HeaderName>>,
    /// The timeout of the authorization request. Default: `1s`.
    pub(in crate::config) timeout: Maybe<Text<Time>>,
    /// The handling of requests whose authorization request fails. Default: `deny`, 503. Failures that are due to limits of the
    /// gateway always deny.
    pub(in crate::config) on_failure: Maybe<OnFailure>,
}
