//! Keys of policies, which are evaluated before a rule's action.

use ringmain_gateway::model::{HeaderName, Hostname, JwtAlgorithm, Network, PasswordHash};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    ConcurrencySection, Field, InjectSection, OnFailure, OneOrManyField, ProcessorSection, RateLimitSection,
    RateServiceSection, ShedSection,
};
use crate::config::fields::{
    AnyValue, OneOrMany, OrderedMap, Parsed, ShortOrFull, Switch, deserialize_secret,
};
use crate::config::scalars::{ByteSize, KeyDigest, PageUrl, Time, UpstreamTarget};

/// The policies of a rule, or of a route for all of its rules, evaluated in the order that docs/policies.md lists. A rule's
/// policy replaces the route's policy of the same kind; `false` removes it. Example: `{addresses: {allow: 10.0.0.0/8}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Policies")]
pub(in crate::config) struct PoliciesSection {
    /// Access control by client address.
    pub(in crate::config) addresses: Field<Switch<AddressesSection>>,
    /// Sends the client certificate to the upstream in the header `Client-Cert` (RFC 9440).
    pub(in crate::config) client_certificate: Field<Switch<ClientCertificateSection>>,
    /// Basic authentication with a user name and a password.
    pub(in crate::config) basic: Field<Switch<BasicAuthSection>>,
    /// Authentication with an API key.
    pub(in crate::config) api_keys: Field<Switch<ApiKeysSection>>,
    /// Authentication with a token (JWT) signed by an identity provider.
    pub(in crate::config) jwt: Field<Switch<JwtSection>>,
    /// The policies that must admit a request: all of `client_certificate`, `basic`, `api_keys` and `jwt`, or any one, where
    /// the networks in `addresses.allow` count as well. Default: the route's value, else `all`.
    pub(in crate::config) satisfy: Field<Satisfy>,
    /// External authorization: a service decides whether a request is allowed.
    pub(in crate::config) authz: Field<Switch<ExternalAuthSection>>,
    /// Rate limiting: one limit, or several that must all admit a request.
    pub(in crate::config) rate_limit: Field<Switch<OneOrMany<RateLimitSection>>>,
    /// Rate limiting by an external service, which counts for all gateways.
    pub(in crate::config) rate_limit_service: Field<Switch<RateServiceSection>>,
    /// A limit on concurrent requests.
    pub(in crate::config) concurrency: Field<Switch<ConcurrencySection>>,
    /// Load shedding: requests that are rejected first under overload.
    pub(in crate::config) shed: Field<Switch<ShedSection>>,
    /// Fault injection, for testing.
    pub(in crate::config) inject: Field<Switch<InjectSection>>,
    /// Processing of requests and responses by an external service.
    pub(in crate::config) ext_proc: Field<Switch<ProcessorSection>>,
    /// The custom filters of the program, run in this order; a name alone is a filter without options. `ringmain` itself has
    /// none: docs/how-to/custom-filters.md describes how a program adds filters.
    pub(in crate::config) filters: Field<Switch<OneOrMany<ShortOrFull<String, FilterSection>>>>,
}

/// A custom filter and its options. Example: `{name: sign}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Filter")]
pub(in crate::config) struct FilterSection {
    /// The name under which the program registers the filter. Example: `sign`.
    pub(in crate::config) name: Field<String>,
    /// The options of the filter; its keys are defined and validated by the program. Example: `{key: "${env:SECRET}"}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) options: Field<OrderedMap<AnyValue>>,
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

/// Access control by client address, as determined by the listener's `client_address`. Example: `{allow: 10.0.0.0/8}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Addresses")]
pub(in crate::config) struct AddressesSection {
    /// The allowed networks; other addresses are rejected with 403. Default: all addresses are allowed.
    pub(in crate::config) allow: OneOrManyField<Parsed<Network>>,
    /// The denied networks, which take precedence over `allow`.
    pub(in crate::config) deny: OneOrManyField<Parsed<Network>>,
}

/// Forwarding of the client certificate. The listener requests it with `tls.clients`. Example: `{required: true}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClientCertificate")]
pub(in crate::config) struct ClientCertificateSection {
    /// Rejects clients without a certificate with 403. Default: `false`.
    pub(in crate::config) required: Field<bool>,
    /// Sends the intermediate certificates in `Client-Cert-Chain` as well. Default: `false`.
    pub(in crate::config) chain: Field<bool>,
    /// A header for the certificate's SHA-256 fingerprint, in hexadecimal digits. Default: none.
    pub(in crate::config) fingerprint: Field<Parsed<HeaderName>>,
    /// A header that tells upstreams whether it is valid: `verified`, `unverified` or `none`. With it they receive certificates that are
    /// not valid too, from a listener with `mode: unchecked`. Default: none, and a certificate that is not valid counts as none.
    pub(in crate::config) verification: Field<Parsed<HeaderName>>,
}

/// Basic authentication (RFC 7617). Passwords are verified outside the workers, at most 8 at a time in the process. Example:
/// `{file: users.htpasswd}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "BasicAuth")]
pub(in crate::config) struct BasicAuthSection {
    /// The realm of the challenge. Default: `ringmain`.
    pub(in crate::config) realm: Field<String>,
    /// The password hashes, by user name.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) users: OrderedMap<Parsed<PasswordHash>>,
    /// A file with lines `NAME:HASH`, as `htpasswd -B` writes it. Example: `users.htpasswd`.
    pub(in crate::config) file: Field<String>,
    /// A request header that passes the user name to the upstream. Default: none.
    pub(in crate::config) user_header: Field<Parsed<HeaderName>>,
    /// Removes `Authorization` from forwarded requests. Default: `true`.
    pub(in crate::config) hide: Field<bool>,
}

/// Authentication with an API key. The first key in the headers, then the query, then the cookies is used. Example:
/// `{file: keys.txt}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ApiKeys")]
pub(in crate::config) struct ApiKeysSection {
    /// The headers that may contain the key; for `Authorization`, the value after `Bearer`. Default: `X-API-Key`, unless
    /// `query` or `cookie` is set.
    pub(in crate::config) header: OneOrManyField<Parsed<HeaderName>>,
    /// The query parameters that may contain the key. Example: `key`.
    pub(in crate::config) query: OneOrManyField<String>,
    /// The cookies that may contain the key. Example: `key`.
    pub(in crate::config) cookie: OneOrManyField<String>,
    /// The SHA-256 digests of keys, by consumer name.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) keys: OrderedMap<OneOrMany<Parsed<KeyDigest>>>,
    /// A file with lines `NAME sha256:HEX`. Example: `keys.txt`.
    pub(in crate::config) file: Field<String>,
    /// A request header that passes the consumer name to the upstream. Default: none.
    pub(in crate::config) consumer_header: Field<Parsed<HeaderName>>,
    /// Removes headers with keys from forwarded requests; query parameters and cookies are forwarded. Default: `true`.
    pub(in crate::config) hide: Field<bool>,
}

/// Authentication with a token (JWT) of one of several providers, and the scopes and claims that it must have. Example:
/// `{provider: id}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Jwt")]
pub(in crate::config) struct JwtSection {
    /// The names of `jwt_providers`. Required. Example: `id`.
    pub(in crate::config) provider: OneOrManyField<String>,
    /// The required scopes: each must be in the token's `scope` or `scp`. Example: `cart:write`.
    pub(in crate::config) scopes: OneOrManyField<String>,
    /// The required claims, each by its name or by the path to it, names separated by dots: the claim must equal one of the
    /// given texts. In a claim that is a list, one element must. Example: `{role: [admin, editor]}`.
    pub(in crate::config) claims: OrderedMap<OneOrMany<String>>,
    /// Request headers that pass claims to the upstream, by header name. Example: `{X-User: sub}`.
    pub(in crate::config) headers: OrderedMap<String>,
    /// Removes headers with tokens from forwarded requests. Default: `false`.
    pub(in crate::config) hide: Field<bool>,
}

/// An identity provider that signs tokens. Its keys are either fetched (`jwks`) or read from a file (`keys`). Example:
/// `{issuer: "https://id.example", jwks: "https://id.example/keys"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "JwtProvider")]
pub(in crate::config) struct JwtProviderSection {
    /// The expected value of `iss`. Required. Example: `https://id.example`.
    pub(in crate::config) issuer: Field<String>,
    /// The accepted audiences: one must be `aud`, or in it. Default: none, `aud` is not checked. Example: `shop`.
    pub(in crate::config) audience: OneOrManyField<String>,
    /// The accepted signature algorithms. Default: RS, PS and ES in all sizes, and EdDSA. HS must be listed explicitly.
    pub(in crate::config) algorithms: OneOrManyField<Parsed<JwtAlgorithm>>,
    /// The JWKS endpoint: its URL, or the full form.
    pub(in crate::config) jwks: Field<ShortOrFull<Parsed<PageUrl>, JwksSection>>,
    /// A JWKS file, in place of `jwks`. Example: `jwks.json`.
    pub(in crate::config) keys: Field<String>,
    /// The tolerated clock skew. Default: `30s`.
    pub(in crate::config) leeway: Field<Parsed<Time>>,
    /// The headers that may contain the token. Default: `Authorization`, after `Bearer`, unless `query` or `cookie` is set.
    pub(in crate::config) header: OneOrManyField<Parsed<HeaderName>>,
    /// The query parameters that may contain the token. The gateway's own logs redact it; those of other servers may not.
    /// Example: `token`.
    pub(in crate::config) query: OneOrManyField<String>,
    /// The cookies that may contain the token. Example: `token`.
    pub(in crate::config) cookie: OneOrManyField<String>,
}

/// A JWKS endpoint. Example: `{url: "https://id.example/keys"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Jwks")]
pub(in crate::config) struct JwksSection {
    /// The URL. Either this, or `to` and `path`.
    pub(in crate::config) url: Field<Parsed<PageUrl>>,
    /// The upstream that serves the keys.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The path. Example: `/keys`.
    pub(in crate::config) path: Field<String>,
    /// The `Host` of the request. Default: the endpoint's host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// The refresh interval, at least `10s`. Default: `10m`. The keys are also fetched when a token names an unknown key, at
    /// most every 10 s.
    pub(in crate::config) refresh: Field<Parsed<Time>>,
    /// The time for which keys are used if they cannot be fetched again, at least `refresh`. Default: `1d`.
    pub(in crate::config) stale: Field<Parsed<Time>>,
}

/// External authorization over HTTP, or over gRPC with `grpc`. Over HTTP a 2xx response allows the request, a 3xx or 4xx response is returned to
/// the client, anything else is a failure. The service receives the request's `Authorization` and `Cookie`, and
/// `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`; its body only with `body`. Example:
/// `{to: "http://127.0.0.1:9000", path: /check}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ExternalAuth")]
pub(in crate::config) struct ExternalAuthSection {
    /// The upstream of the service. Required. With `grpc` it must use HTTP/2.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// Queries the service over gRPC, by Envoy's `envoy.service.auth.v3.Authorization/Check`. The service receives the attributes of the
    /// request and decides which headers and query parameters are changed. Not with `path`, `prefix` or `client_headers`. Default: `false`.
    pub(in crate::config) grpc: Field<Switch<GrpcCheckSection>>,
    /// The path of the authorization request, which is sent with GET. Without `path` and `prefix` it has the method and path of
    /// the client's request. Example: `/check`.
    pub(in crate::config) path: Field<String>,
    /// A prefix for the path of the authorization request, which otherwise has the method and path of the client's request.
    /// Example: `/auth`.
    pub(in crate::config) prefix: Field<String>,
    /// The `Host` of the authorization request. Default: the endpoint's host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// The maximum size of a request body that is sent to the service, at most `1MiB`. The whole body is received first; a larger one
    /// is rejected with 413, unless `grpc.partial_body` is set. Not with `path`, filters, `grpc_web` or push. Default: none; the body is not
    /// sent.
    pub(in crate::config) body: Field<Parsed<ByteSize>>,
    /// Further request headers that are sent to the service. With `grpc` all request headers are sent unless some are listed here.
    pub(in crate::config) request_headers: OneOrManyField<Parsed<HeaderName>>,
    /// Headers of the service's response that are sent to the upstream, and are never accepted from clients. With `grpc` the service may set
    /// others, too, in place of those of clients.
    pub(in crate::config) upstream_headers: OneOrManyField<Parsed<HeaderName>>,
    /// Further headers of a denying response that are returned to the client, besides `Content-Type`, `Location`, `Set-Cookie`
    /// and `WWW-Authenticate`.
    pub(in crate::config) client_headers: OneOrManyField<Parsed<HeaderName>>,
    /// The header of the service's response that contains the client's identity; with `grpc` a request header that it sets.
    pub(in crate::config) identity: Field<Parsed<HeaderName>>,
    /// The timeout of the authorization request. Default: `1s`.
    pub(in crate::config) timeout: Field<Parsed<Time>>,
    /// The handling of requests whose authorization request fails. Default: `deny`, 503. Failures that are due to limits of the
    /// gateway always deny.
    pub(in crate::config) on_failure: Field<OnFailure>,
    /// The status of requests that are rejected after a failure, from 400 to 599. Default: none; the status is 503. Example: `403`.
    pub(in crate::config) failure_status: Field<u16>,
}

/// Settings of an authorization service that is queried over gRPC. Example: `{context: {site: shop}, partial_body: true}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GrpcCheck")]
pub(in crate::config) struct GrpcCheckSection {
    /// Values that the service receives with each request (`context_extensions`). Example: `{site: shop}`.
    pub(in crate::config) context: OrderedMap<String>,
    /// Sends the beginning of a body that is larger than `body`, and forwards the whole body if the service allows the request. Default:
    /// `false`, 413.
    pub(in crate::config) partial_body: Field<bool>,
    /// Sends every body as bytes (`raw_body`). Default: `false`, only bodies that are not UTF-8.
    pub(in crate::config) raw_body: Field<bool>,
    /// Sends the client's TLS certificate. Default: `false`, only its name.
    pub(in crate::config) certificate: Field<bool>,
    /// The name of the text in the service's dynamic metadata that contains the client's identity. Default: none. Example: `user`.
    pub(in crate::config) identity_metadata: Field<String>,
}
