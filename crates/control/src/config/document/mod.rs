//! The keys of a configuration file. The JSON Schema, the reference page and the error messages are generated from these
//! definitions.
//!
//! This module defines structure only; `build` validates values against each other.

mod traffic;
mod kubernetes;
mod nats;
mod policy;
mod push;
mod route;
mod sources;
mod upstream;

use ringmain_gateway::model::{Addr, HeaderName, Hostname, LogDestination, Network, TlsVersion};
use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use self::traffic::*;
pub(super) use self::kubernetes::*;
pub(super) use self::nats::*;
pub(super) use self::policy::*;
pub(super) use self::push::*;
pub(super) use self::route::*;
pub(super) use self::sources::*;
pub(super) use self::upstream::*;
use super::scalars::{Size, SizeOrOff, Time, TimeOrOff};
use super::fields::{At, Either, NumberOrOff, OneOrMany, Pairs, Switch, Text, secret};

/// An optional value.
pub(super) type Maybe<T> = Option<At<T>>;

/// An optional value, or list of values.
pub(super) type Some1<T> = Option<At<OneOrMany<T>>>;

/// The configuration of the gateway. In every string, `${env:NAME}` is replaced by an environment variable and `${file:PATH}`
/// by the contents of a file without its trailing line break; `$${` is a literal `${`. File paths are relative to this file.
/// An empty list is an error unless a key documents it otherwise: a key that is left out has its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of ringmain")]
pub(super) struct Document {
    /// The HTTP listen addresses, in short form: defines a listener named `default`.
    pub(super) listen: Some1<Text<Addr>>,
    /// The upstream for requests that match no other route, in short form: defines a route named `default`.
    pub(super) to: Some1<Either<Text<super::scalars::To>, Backend>>,
    /// The listeners, by name.
    pub(super) listeners: Pairs<Listener>,
    /// The routes, by name. Of routes that match equally the first applies.
    pub(super) routes: Pairs<Route>,
    /// The TCP and TLS routes, by name: connections that are forwarded as bytes.
    pub(super) streams: Pairs<Stream>,
    /// The upstreams, by name.
    pub(super) upstreams: Pairs<Either<Text<super::scalars::Url>, Upstream>>,
    /// The identity providers that sign tokens (JWT), by name; `policies.jwt` of rules refers to these names.
    pub(super) jwt_providers: Pairs<JwtProvider>,
    /// The push server: live updates in channels.
    pub(super) push: Maybe<Push>,
    /// The certificates with their private keys, by name.
    pub(super) certificates: Pairs<Certificate>,
    /// The certificate authorities that certificates are verified against, by name: PEM files.
    pub(super) authorities: Pairs<String>,
    /// Kubernetes as a second source of listeners, routes and upstreams, beside those of this file: the Gateways of a controller name
    /// and the routes that are attached to them. Default: none.
    pub(super) kubernetes: Maybe<Kubernetes>,
    /// The administration listener. Default: none.
    pub(super) admin: Maybe<Admin>,
    /// The access log. Default: none.
    pub(super) access_log: Maybe<Either<Text<LogDestination>, AccessLog>>,
    /// The limits of the process.
    pub(super) limits: Maybe<Limits>,
}

/// A set of listen addresses with one protocol and one set of hosts. Listeners may share an address if their hosts differ.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listener {
    /// The listen addresses. Required.
    pub(super) address: Some1<Text<Addr>>,
    /// The protocol. Default: `https` with `tls`, else `http`.
    pub(super) protocol: Maybe<Protocol>,
    /// The hosts. Default: all hosts that no other listener of the address has.
    pub(super) hosts: Some1<Text<Hostname>>,
    /// TLS termination: certificates, and verification of client certificates.
    pub(super) tls: Maybe<ListenerTls>,
    /// Requires a PROXY protocol header at the start of each connection.
    pub(super) proxy_protocol: Maybe<ProxyProtocol>,
    /// Redirects every request to the same URL under `https`.
    pub(super) redirect_to_https: Maybe<Switch<HttpsRedirect>>,
    /// The proxies that are trusted to report the client's address. Default: none, the client is the peer of the connection.
    pub(super) client_address: Maybe<ClientAddress>,
    /// Merges repeated slashes in paths sent to upstreams. Default: `false`, the path is sent as received. Rules are always
    /// matched against the path with merged slashes.
    pub(super) merge_slashes: Maybe<bool>,
    /// The handling of `%2F`, `%5C` and `\` in paths. Default: `reject` if a rule of the listener protects a part of its paths,
    /// else `keep`.
    pub(super) escaped_slashes: Maybe<EscapedSlashes>,
    /// The limits of connections and request heads.
    pub(super) limits: Maybe<HttpLimits>,
}

/// The handling of escaped slashes and of backslashes in paths.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum EscapedSlashes {
    /// Treats them as part of their segment: `/admin%2fx` does not match `/admin`.
    Keep,
    /// Treats them as slashes, for rules and for upstreams.
    Decode,
    /// Rejects the request with 400.
    Reject,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Protocol {
    /// HTTP without TLS: HTTP/1.1, and HTTP/2 with clients that send its connection preface.
    Http,
    /// HTTP/2 only, without TLS (prior knowledge); connections that start with anything else are closed.
    H2c,
    /// HTTP over TLS.
    Https,
    /// TCP, forwarded as bytes.
    Tcp,
    /// TLS that is terminated, with its content forwarded as bytes; routed by SNI.
    Tls,
    /// TLS that is forwarded without termination; routed by SNI.
    TlsPassthrough,
}

/// TLS termination at a listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListenerTls {
    /// The names of certificates. The one that matches the SNI is presented, else the first.
    pub(super) certificates: Some1<String>,
    /// Verification of client certificates. Default: none, no certificate is requested.
    pub(super) clients: Maybe<ClientCertificates>,
    /// The minimum TLS version. Default: `1.2`.
    pub(super) minimum: Maybe<Text<TlsVersion>>,
}

/// Verification of client certificates.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientCertificates {
    /// The names of the authorities that client certificates are verified against.
    pub(super) authorities: Some1<String>,
    /// The handling of clients without a valid certificate. Default: `required`.
    pub(super) mode: Maybe<ClientCertificateMode>,
}

/// The handling of clients without a valid certificate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientCertificateMode {
    /// The handshake fails.
    Required,
    /// Clients without a certificate are admitted without an identity; clients with an invalid certificate are rejected.
    Optional,
    /// All clients are admitted, and a certificate that does not pass counts as none: for tests, and while authorities are replaced.
    Unchecked,
}

/// A PROXY protocol header, version 1 or 2.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProxyProtocol {
    /// The networks that must send it; connections from other addresses are closed.
    pub(super) from: Some1<Text<Network>>,
    /// The timeout for its arrival; then the connection is closed. Default: `5s`.
    pub(super) timeout: Maybe<Text<Time>>,
}

/// A redirect of requests without TLS.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpsRedirect {
    /// The port of the URL. Default: 443.
    pub(super) port: Maybe<u16>,
    /// The status: 301, 302, 303, 307 or 308. Default: 308.
    pub(super) status: Maybe<u16>,
}

/// The source of the client's address. The header is read from its end, skipping addresses of trusted networks; the first other
/// address is the client's.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientAddress {
    /// The networks of trusted proxies.
    pub(super) trusted: Some1<Text<Network>>,
    /// The header with the client's address: `X-Forwarded-For`, `Forwarded`, or a header with a single address. Default:
    /// `X-Forwarded-For`.
    pub(super) header: Maybe<Text<HeaderName>>,
    /// The maximum number of proxies, from 1 to 16. Default: unlimited.
    pub(super) hops: Maybe<u8>,
}

/// The limits of an HTTP connection.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpLimits {
    /// The maximum size of the request line and headers, at most `48KiB`. Default: `32KiB`.
    pub(super) head: Maybe<Text<Size>>,
    /// The maximum number of headers. Default: 100.
    pub(super) headers: Maybe<u16>,
    /// The timeout for receiving a request head, from its first byte to its last. Default: `10s`.
    pub(super) head_timeout: Maybe<Text<Time>>,
    /// The idle timeout between requests. Default: `75s`.
    pub(super) keep_alive: Maybe<Text<Time>>,
    /// The maximum number of requests on a connection. Default: unlimited.
    pub(super) requests_per_connection: Maybe<u32>,
    /// The minimum rate per second at which a client must send or receive, after a grace period of 5 s. Default: `240B`.
    /// Request bodies without an announced length are live streams and exempt; `timeouts.idle` applies to these.
    pub(super) minimum_rate: Maybe<Text<Size>>,
}

/// A certificate with its private key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Certificate {
    /// A PEM file with the certificate, followed by its intermediate certificates.
    pub(super) chain: Maybe<String>,
    /// A PEM file with the private key.
    pub(super) key: Maybe<String>,
}

/// A TCP or TLS route: connections are forwarded as bytes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stream {
    /// The names of listeners. Default: all that are not HTTP listeners.
    pub(super) listeners: Some1<String>,
    /// The hosts, matched against the SNI. Default: all.
    pub(super) hosts: Some1<Text<Hostname>>,
    /// The upstreams: one, or several by weight.
    pub(super) to: Some1<Either<Text<super::scalars::To>, Backend>>,
    /// The idle timeout: the time without a byte in either direction after which the connection is reset. Default: `1h`.
    pub(super) idle: Maybe<Text<TimeOrOff>>,
}

/// The administration listener. Every client that can connect to it may read everything, and may also change state unless
/// `token` is set.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    /// The listen addresses: on the loopback interface or a Unix socket, unless access is restricted by other means. Required.
    pub(super) address: Some1<Text<Addr>>,
    /// The host names accepted in `Host`, besides IP addresses and `localhost`; others are rejected with 421, as a protection
    /// against DNS rebinding. Default: none.
    pub(super) hosts: Some1<Text<Hostname>>,
    /// The token that requests which change state (`/drain`, `/log`) must send in `Authorization: Bearer`; best as `${env:…}`
    /// or `${file:…}`. Default: none.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(super) token: Maybe<String>,
    /// The addresses of a listener with `/metrics`, `/healthz` and `/readyz` only, for any `Host`: for clients without access
    /// to the administration. Default: none.
    pub(super) metrics: Some1<Text<Addr>>,
}

/// The access log, with one line per request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessLog {
    /// The destination. Default: `stdout`.
    pub(super) to: Maybe<Text<LogDestination>>,
    /// The format: `json`, `combined`, or a template with fields as `{name}`, which docs/gateway.md lists. Default: `json`.
    pub(super) format: Maybe<String>,
}

/// The limits of the process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// The maximum number of client connections. Default: derived from the limit of file descriptors.
    pub(super) connections: Maybe<u32>,
    /// The maximum number of connections to all upstreams together. Default: unlimited, the limits of each upstream apply.
    pub(super) upstream_connections: Maybe<u32>,
    /// The maximum number of connections per client address (IPv6: per /64); further connections are closed. Default: 1024, or
    /// `off` if a listener trusts proxies (`client_address`, `proxy_protocol`). The flag `--per-address` takes precedence.
    pub(super) connections_per_address: Maybe<Text<NumberOrOff>>,
    /// The maximum size of request bodies sent to upstreams, for rules without `body.request`. Default: `16MiB`.
    pub(super) body: Maybe<Text<SizeOrOff>>,
    /// The timeout of a whole exchange, for rules without `timeouts.request`. Default: `off`.
    pub(super) request_timeout: Maybe<Text<TimeOrOff>>,
    /// The time that requests in flight have to complete during a graceful shutdown. Default: `30s`.
    pub(super) drain: Maybe<Text<Time>>,
}
