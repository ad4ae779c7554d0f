//! Keys of what a request must pass before its rule's action.

use ringmain_gateway::model::{HeaderName, Hostname, JwtAlgorithm, Network, PasswordHash};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Concurrency, Inject, Maybe, OnFailure, RateLimit, Shed, Some1};
use crate::config::texts::{KeyDigest, PageUrl, Time, To};
use crate::config::values::{Either, Free, OneOrMany, Pairs, Switch, Text, secret};

/// What a request must pass, in the order that docs/policies.md gives. Of a route: for all of its rules; a rule has its own in
/// place of one of the same kind, and `false` for none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Policies {
    /// From which addresses requests may come.
    pub(in crate::config) addresses: Maybe<Switch<Addresses>>,
    /// The upstream is told of the certificate that a client has shown, in the header `Client-Cert` (RFC 9440).
    pub(in crate::config) client_certificate: Maybe<Switch<ClientCertificate>>,
    /// A name and a password, by basic authentication.
    pub(in crate::config) basic: Maybe<Switch<BasicAuth>>,
    /// A key that consumers were given.
    pub(in crate::config) api_keys: Maybe<Switch<ApiKeys>>,
    /// A token (JWT) that an identity provider has signed.
    pub(in crate::config) jwt: Maybe<Switch<Jwt>>,
    /// Whether all of `client_certificate`, `basic`, `api_keys`, `jwt` must let a request in, or one of them or of the networks that
    /// `addresses` has to `allow` is enough: `all` if neither the rule nor its route says.
    pub(in crate::config) satisfy: Maybe<Satisfy>,
    /// Somebody else is asked whether a request may pass.
    pub(in crate::config) authz: Maybe<Switch<ExternalAuth>>,
    /// How many requests in a time: one limit, or several which all have to let a request pass.
    pub(in crate::config) rate_limit: Maybe<Switch<OneOrMany<RateLimit>>>,
    /// How many requests at once.
    pub(in crate::config) concurrency: Maybe<Switch<Concurrency>>,
    /// Requests that go first when there is too much to do.
    pub(in crate::config) shed: Maybe<Switch<Shed>>,
    /// Faults that are put in, to see what becomes of them.
    pub(in crate::config) inject: Maybe<Switch<Inject>>,
    /// Filters that the program brings along, passed in this order; by name alone where there is nothing to be told. `ringmain`
    /// itself has none: docs/filters.md says how a program gets some.
    pub(in crate::config) filters: Maybe<Switch<OneOrMany<Either<String, Filter>>>>,
}

/// A filter that the program brings along, and what it is told.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Filter {
    /// What the program calls it.
    pub(in crate::config) name: Maybe<String>,
    /// What it is told: its own keys, which the program says what is wrong with.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) options: Maybe<Pairs<Free>>,
}

/// How many of several must let a request in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Satisfy {
    /// All.
    All,
    /// One.
    Any,
}

/// From which addresses requests may come, by the client's address as the listener's `client_address` has it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Addresses {
    /// From these alone. From all if it does not say.
    pub(in crate::config) allow: Some1<Text<Network>>,
    /// Not from these, whatever is allowed.
    pub(in crate::config) deny: Some1<Text<Network>>,
}

/// What becomes of the certificate that a client has shown. The listener asks for it: `tls.clients`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ClientCertificate {
    /// Clients without one are answered 403. `false` if it does not say.
    pub(in crate::config) required: Maybe<bool>,
    /// Also those that lead to its authority, in `Client-Cert-Chain`. `false` if it does not say.
    pub(in crate::config) chain: Maybe<bool>,
    /// A header for its SHA-256 in hexadecimal digits. None if it does not say.
    pub(in crate::config) fingerprint: Maybe<Text<HeaderName>>,
    /// A header that tells upstreams whether it is valid: `verified`, `unverified` or `none`. With it they receive certificates that are
    /// not valid too, from a listener with `mode: unchecked`. Default: none, and a certificate that is not valid counts as none.
    pub(in crate::config) verification: Maybe<Text<HeaderName>>,
}

/// A name and a password (RFC 7617). Passwords are checked off the workers, at most 8 at once in the process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct BasicAuth {
    /// What users are told that the password is for: `ringmain` if it does not say.
    pub(in crate::config) realm: Maybe<String>,
    /// Hashes of passwords by the users' names.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) users: Pairs<Text<PasswordHash>>,
    /// A file of lines `NAME:HASH`, as `htpasswd -B` writes it.
    pub(in crate::config) file: Maybe<String>,
    /// A header that tells the upstream the user's name. None if it does not say.
    pub(in crate::config) user_header: Maybe<Text<HeaderName>>,
    /// `Authorization` goes no further. `true` if it does not say.
    pub(in crate::config) hide: Maybe<bool>,
}

/// Keys that consumers were given. The first that a request has counts: in a header, then in the query, then in a cookie.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ApiKeys {
    /// Headers that may have the key; of `Authorization` what is behind `Bearer`. `X-API-Key` if nothing else is said.
    pub(in crate::config) header: Some1<Text<HeaderName>>,
    /// Parameters of the query that may have it.
    pub(in crate::config) query: Some1<String>,
    /// Cookies that may have it.
    pub(in crate::config) cookie: Some1<String>,
    /// SHA-256 of keys by the consumers' names.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) keys: Pairs<OneOrMany<Text<KeyDigest>>>,
    /// A file of lines `NAME sha256:HEX`.
    pub(in crate::config) file: Maybe<String>,
    /// A header that tells the upstream the consumer's name. None if it does not say.
    pub(in crate::config) consumer_header: Maybe<Text<HeaderName>>,
    /// Headers with keys go no further; queries and cookies do. `true` if it does not say.
    pub(in crate::config) hide: Maybe<bool>,
}

/// A token (JWT) that one of some providers has signed, and what it must say.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Jwt {
    /// Names of `jwt_providers`.
    pub(in crate::config) provider: Some1<String>,
    /// All of these must be among the token's `scope` and `scp`.
    pub(in crate::config) scopes: Some1<String>,
    /// What claims must be: each by its name, or the names on the way to it with dots between them, one of these texts. Of a
    /// claim that is a list one element must be.
    pub(in crate::config) claims: Pairs<OneOrMany<String>>,
    /// Headers that tell the upstream claims, by the headers' names.
    pub(in crate::config) headers: Pairs<String>,
    /// Headers with tokens go no further. `false` if it does not say.
    pub(in crate::config) hide: Maybe<bool>,
}

/// Who signs tokens. Its keys are either served by it (`jwks`) or in a file (`keys`).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct JwtProvider {
    /// What `iss` is.
    pub(in crate::config) issuer: Maybe<String>,
    /// One of these is `aud`, or is among it. `aud` is not looked at if it does not say.
    pub(in crate::config) audience: Some1<String>,
    /// Algorithms of signatures that are taken: all of RS, PS, ES and EdDSA if it does not say. HS must be said.
    pub(in crate::config) algorithms: Some1<Text<JwtAlgorithm>>,
    /// Where its keys are served: the URL of the set (JWKS), or all about it.
    pub(in crate::config) jwks: Maybe<Either<Text<PageUrl>, Jwks>>,
    /// A file of its keys (JWKS), in place of `jwks`.
    pub(in crate::config) keys: Maybe<String>,
    /// By how much clocks may differ: `30s` if it does not say.
    pub(in crate::config) leeway: Maybe<Text<Time>>,
    /// Headers that may have the token: `Authorization`, behind `Bearer`, if nothing else is said.
    pub(in crate::config) header: Some1<Text<HeaderName>>,
    /// Parameters of the query that may have it. Logs of what was asked have it, too.
    pub(in crate::config) query: Some1<String>,
    /// Cookies that may have it.
    pub(in crate::config) cookie: Some1<String>,
}

/// Where a set of keys is served.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Jwks {
    /// Its URL. Either this, or `to` and `path`.
    pub(in crate::config) url: Maybe<Text<PageUrl>>,
    /// Who serves it.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// Its path.
    pub(in crate::config) path: Maybe<String>,
    /// The host that is asked for: that of the endpoint if it does not say.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// How often it is fetched: `10m` if it does not say. Also when a token names a key that is not in it, at most every 10 s.
    pub(in crate::config) refresh: Maybe<Text<Time>>,
    /// For how long it is used if it cannot be fetched again: `1d` if it does not say; not shorter than `refresh`.
    pub(in crate::config) stale: Maybe<Text<Time>>,
}

/// A service is asked by HTTP whether a request may pass: 2xx lets it pass, 3xx and 4xx are what the client is answered, and all
/// else is a failure. It sees the request's `Authorization` and `Cookie`, and `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri`
/// and `-For`; never its body.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ExternalAuth {
    /// Who is asked.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// It is asked by GET of this path. If nothing is said, or `prefix`, it is asked with the request's method and path.
    pub(in crate::config) path: Maybe<String>,
    /// It is asked with the request's method, and its path behind this.
    pub(in crate::config) prefix: Maybe<String>,
    /// The host that is asked for: that of the endpoint if it does not say.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// More headers of the request that it sees.
    pub(in crate::config) request_headers: Some1<Text<HeaderName>>,
    /// Headers of its answer for the upstream.
    pub(in crate::config) upstream_headers: Some1<Text<HeaderName>>,
    /// More headers of its refusals for the client, who gets `Content-Type`, `Location`, `Set-Cookie` and `WWW-Authenticate`.
    pub(in crate::config) client_headers: Some1<Text<HeaderName>>,
    /// The header of its answer that says who asks.
    pub(in crate::config) identity: Maybe<Text<HeaderName>>,
    /// How long it may take: `1s` if it does not say.
    pub(in crate::config) timeout: Maybe<Text<Time>>,
    /// What becomes of a request that it fails: `deny` by default. The gateway's own limits always deny.
    pub(in crate::config) on_failure: Maybe<OnFailure>,
}
