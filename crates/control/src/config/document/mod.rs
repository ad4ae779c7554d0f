//! The keys of a configuration file. The JSON Schema, the reference page and the error messages are generated from these
//! definitions.
//!
//! This module defines structure only; `build` validates values against each other.

mod ext_proc;
mod kubernetes;
mod nats;
mod policy;
mod push;
mod push_cluster;
mod push_log;
mod rate_service;
mod route;
mod sources;
mod traffic;
mod upstream;

use ringmain_gateway::model::{Addr, HeaderName, Hostname, LogDestination, Network, TlsVersion};
use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use self::ext_proc::*;
pub(super) use self::kubernetes::*;
pub(super) use self::nats::*;
pub(super) use self::policy::*;
pub(super) use self::push::*;
pub(super) use self::push_cluster::*;
pub(super) use self::push_log::*;
pub(super) use self::rate_service::*;
pub(super) use self::route::*;
pub(super) use self::sources::*;
pub(super) use self::traffic::*;
pub(super) use self::upstream::*;
use super::fields::{
    NumberOrOff, OneOrMany, OrderedMap, Parsed, ShortOrFull, Spanned, Switch, deserialize_secret,
};
use super::scalars::{ByteSize, ByteSizeOrOff, Time, TimeOrOff};

/// An optional value.
pub(super) type Field<T> = Option<Spanned<T>>;

/// An optional value, or list of values.
pub(super) type OneOrManyField<T> = Option<Spanned<OneOrMany<T>>>;

/// The configuration of the gateway. In every string, `${env:NAME}` is replaced by an environment variable and `${file:PATH}`
/// by the contents of a file without its trailing line break; `$${` is a literal `${`. File paths are relative to this file.
/// An empty list is an error unless a key documents it otherwise: a key that is left out has its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of ringmain")]
pub(super) struct Document {
    /// The HTTP listen addresses, in short form: defines a listener named `default`.
    pub(super) listen: OneOrManyField<Parsed<Addr>>,
    /// The upstream for requests that match no other route, in short form: defines a route named `default`.
    pub(super) to: OneOrManyField<ShortOrFull<Parsed<super::scalars::UpstreamTarget>, BackendSection>>,
    /// The listeners, by name.
    pub(super) listeners: OrderedMap<ListenerSection>,
    /// The routes, by name. Of routes that match equally the first applies.
    pub(super) routes: OrderedMap<RouteSection>,
    /// The TCP and TLS routes, by name: connections that are forwarded as bytes.
    pub(super) streams: OrderedMap<StreamSection>,
    /// The upstreams, by name.
    pub(super) upstreams: OrderedMap<ShortOrFull<Parsed<super::scalars::UpstreamUrl>, UpstreamSection>>,
    /// The identity providers that sign tokens (JWT), by name; `policies.jwt` of rules refers to these names.
    pub(super) jwt_providers: OrderedMap<JwtProviderSection>,
    /// The push server: live updates in channels.
    pub(super) push: Field<PushSection>,
    /// The certificates with their private keys, by name.
    pub(super) certificates: OrderedMap<CertificateSection>,
    /// The certificate authorities that certificates are verified against, by name: PEM files. Example: `{staff: staff.pem}`.
    pub(super) authorities: OrderedMap<String>,
    /// The zone of this process: endpoints of the same zone are near for the key `zones` of their upstream. With `kubernetes` it takes
    /// precedence over the zone of the Node. Default: none. Example: `eu-1`.
    pub(super) zone: Field<String>,
    /// Kubernetes as a second source of listeners, routes and upstreams, beside those of this file: the Gateways of a controller name
    /// and the routes that are attached to them. Default: none.
    pub(super) kubernetes: Field<KubernetesSection>,
    /// The administration listener: its address, or all settings. Default: none. Example: `127.0.0.1:9901`.
    pub(super) admin: Field<ShortOrFull<Parsed<Addr>, AdminSection>>,
    /// The access log. Default: none.
    pub(super) access_log: Field<ShortOrFull<Parsed<LogDestination>, AccessLogSection>>,
    /// The process log, on standard error.
    pub(super) log: Field<ProcessLogSection>,
    /// The limits of the process.
    pub(super) limits: Field<LimitsSection>,
}

/// A set of listen addresses with one protocol and one set of hosts. Listeners may share an address if their hosts differ.
/// Example: `{address: ":8080"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Listener")]
pub(super) struct ListenerSection {
    /// The listen addresses. Required.
    pub(super) address: OneOrManyField<Parsed<Addr>>,
    /// The protocol. Default: `https` with `tls`, else `http`.
    pub(super) protocol: Field<Protocol>,
    /// The hosts. Default: all hosts that no other listener of the address has.
    pub(super) hosts: OneOrManyField<Parsed<Hostname>>,
    /// TLS termination: certificates, and verification of client certificates.
    pub(super) tls: Field<ListenerTlsSection>,
    /// Requires a PROXY protocol header at the start of each connection.
    pub(super) proxy_protocol: Field<ProxyProtocolSection>,
    /// Redirects every request to the same URL under `https`.
    pub(super) redirect_to_https: Field<Switch<HttpsRedirectSection>>,
    /// The proxies that are trusted to report the client's address. Default: none, the client is the peer of the connection.
    pub(super) client_address: Field<ClientAddressSection>,
    /// Merges repeated slashes in paths sent to upstreams. Default: `false`, the path is sent as received. Rules are always
    /// matched against the path with merged slashes.
    pub(super) merge_slashes: Field<bool>,
    /// The handling of `%2F`, `%5C` and `\` in paths. Default: `reject` if a rule of the listener protects a part of its paths,
    /// else `keep`.
    pub(super) escaped_slashes: Field<EscapedSlashes>,
    /// The limits of connections and request heads.
    pub(super) limits: Field<HttpLimitsSection>,
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
    /// UDP: datagrams, forwarded in sessions of a client with one endpoint. Another listener may have the same address and port.
    Udp,
}

/// TLS termination at a listener. Example: `{certificates: site}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ListenerTls")]
pub(super) struct ListenerTlsSection {
    /// The names of certificates. The one that matches the SNI is presented, else the first. Example: `site`.
    pub(super) certificates: OneOrManyField<String>,
    /// Verification of client certificates. Default: none, no certificate is requested.
    pub(super) clients: Field<ClientCertificatesSection>,
    /// The minimum TLS version. Default: `1.2`.
    pub(super) minimum: Field<Parsed<TlsVersion>>,
}

/// Verification of client certificates. Example: `{authorities: staff}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClientCertificates")]
pub(super) struct ClientCertificatesSection {
    /// The names of the authorities that client certificates are verified against. Example: `staff`.
    pub(super) authorities: OneOrManyField<String>,
    /// The handling of clients without a valid certificate. Default: `required`.
    pub(super) mode: Field<ClientCertificateMode>,
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

/// A PROXY protocol header, version 1 or 2. Example: `{from: 10.0.0.0/8}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ProxyProtocol")]
pub(super) struct ProxyProtocolSection {
    /// The networks that must send it; connections from other addresses are closed.
    pub(super) from: OneOrManyField<Parsed<Network>>,
    /// The timeout for its arrival; then the connection is closed. Default: `5s`.
    pub(super) timeout: Field<Parsed<Time>>,
}

/// A redirect of requests without TLS. Example: `{port: 8443}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "HttpsRedirect")]
pub(super) struct HttpsRedirectSection {
    /// The port of the URL. Default: 443.
    pub(super) port: Field<u16>,
    /// The status: 301, 302, 303, 307 or 308. Default: 308. Example: `301`.
    pub(super) status: Field<u16>,
}

/// The source of the client's address. The header is read from its end, skipping addresses of trusted networks; the first other
/// address is the client's. Example: `{trusted: 10.0.0.0/8}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClientAddress")]
pub(super) struct ClientAddressSection {
    /// The networks of trusted proxies.
    pub(super) trusted: OneOrManyField<Parsed<Network>>,
    /// The header with the client's address: `X-Forwarded-For`, `Forwarded`, or a header with a single address. Default:
    /// `X-Forwarded-For`.
    pub(super) header: Field<Parsed<HeaderName>>,
    /// The maximum number of proxies, from 1 to 16. Default: unlimited. Example: `2`.
    pub(super) hops: Field<u8>,
}

/// The limits of an HTTP connection. Example: `{keep_alive: 30s}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "HttpLimits")]
pub(super) struct HttpLimitsSection {
    /// The maximum size of the request line and headers, at most `48KiB`. Default: `32KiB`.
    pub(super) head: Field<Parsed<ByteSize>>,
    /// The maximum number of headers. Default: 100.
    pub(super) headers: Field<u16>,
    /// The timeout for receiving a request head, from its first byte to its last. Default: `10s`.
    pub(super) head_timeout: Field<Parsed<Time>>,
    /// The idle timeout between requests. Default: `75s`.
    pub(super) keep_alive: Field<Parsed<Time>>,
    /// The maximum number of requests on a connection. Default: unlimited. Example: `1000`.
    pub(super) requests_per_connection: Field<u32>,
    /// The minimum rate per second at which a client must send or receive, after a grace period of 5 s. Default: `240B`.
    /// Request bodies without an announced length are live streams and exempt; `timeouts.idle` applies to these.
    pub(super) minimum_rate: Field<Parsed<ByteSize>>,
}

/// A certificate with its private key. Example: `{chain: site.crt, key: site.key}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Certificate")]
pub(super) struct CertificateSection {
    /// A PEM file with the certificate, followed by its intermediate certificates. Example: `site.crt`.
    pub(super) chain: Field<String>,
    /// A PEM file with the private key. Example: `site.key`.
    pub(super) key: Field<String>,
}

/// A TCP, TLS or UDP route: connections are forwarded as bytes, datagrams one by one. Example: `{to: "http://127.0.0.1:5432"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Stream")]
pub(super) struct StreamSection {
    /// The names of listeners. Default: all that are not HTTP listeners. Example: `main`.
    pub(super) listeners: OneOrManyField<String>,
    /// The hosts, matched against the SNI. Default: all.
    pub(super) hosts: OneOrManyField<Parsed<Hostname>>,
    /// The upstreams: one, or several by weight.
    pub(super) to: OneOrManyField<ShortOrFull<Parsed<super::scalars::UpstreamTarget>, BackendSection>>,
    /// The idle timeout: the time without a byte in either direction after which the connection is reset; with UDP, without a datagram,
    /// after which the session ends. Default: `1h`; with UDP `60s`, or `5s` with `responses`.
    pub(super) idle: Field<Parsed<TimeOrOff>>,
    /// With UDP: the number of datagrams that an upstream sends for each datagram of the client. The session ends with the last of these;
    /// for DNS write `1`. Default: none, the session ends by `idle`. Example: `1`.
    pub(super) responses: Field<u32>,
}

/// The administration listener. Every client that can connect to it may read everything, and may also change state unless
/// `token` is set. Short form: the address. Example: `{address: "127.0.0.1:9901"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Admin")]
pub(super) struct AdminSection {
    /// The listen addresses: on the loopback interface or a Unix socket, unless access is restricted by other means. Required.
    pub(super) address: OneOrManyField<Parsed<Addr>>,
    /// The host names accepted in `Host`, besides IP addresses and `localhost`; others are rejected with 421, as a protection
    /// against DNS rebinding. Default: none.
    pub(super) hosts: OneOrManyField<Parsed<Hostname>>,
    /// The token that requests which change state (`/drain`, `/log`) must send in `Authorization: Bearer`; best as `${env:…}`
    /// or `${file:…}`. Default: none. Example: `${env:ADMIN_TOKEN}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(super) token: Field<String>,
    /// The addresses of a listener with `/metrics`, `/healthz` and `/readyz` only, for any `Host`: for clients without access
    /// to the administration. Default: none.
    pub(super) metrics: OneOrManyField<Parsed<Addr>>,
}

/// The access log, with one line per request. Example: `{to: stdout, format: json}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AccessLog")]
pub(super) struct AccessLogSection {
    /// The destination. Default: `stdout`.
    pub(super) to: Field<Parsed<LogDestination>>,
    /// The format: `json`, `combined`, or a template with fields as `{name}`, which docs/how-to/access-log.md lists. Default: `json`.
    pub(super) format: Field<String>,
}

/// The process log on standard error: start, reloads, errors, health of upstreams. Example: `{format: json}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ProcessLog")]
pub(super) struct ProcessLogSection {
    /// The format of lines. The flag `--log-format` and the environment variable `RINGMAIN_LOG_FORMAT` take precedence. Default: `text`.
    pub(super) format: Field<ProcessLogFormat>,
}

/// The format of the process log.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProcessLogFormat {
    /// Time, level and text.
    Text,
    /// A JSON object per line, with the members that docs/reference/log-fields.md lists.
    Json,
}

/// The limits of the process. Example: `{connections: 100000, drain: 60s}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Limits")]
pub(super) struct LimitsSection {
    /// The maximum number of client connections. Default: derived from the limit of file descriptors. Example: `100000`.
    pub(super) connections: Field<u32>,
    /// The maximum number of connections to all upstreams together. Default: unlimited, the limits of each upstream apply.
    /// Example: `10000`.
    pub(super) upstream_connections: Field<u32>,
    /// The maximum number of UDP sessions; each worker has an equal share. At the limit the least recently used session ends.
    /// Default: 16384. Example: `100000`.
    pub(super) udp_sessions: Field<u32>,
    /// The maximum number of UDP sessions per client address (IPv6: per /64); each worker has an equal share. At the limit the least
    /// recently used session of the address ends. `off` where a load balancer replaces the addresses of clients. Default: 1024.
    pub(super) udp_sessions_per_address: Field<Parsed<NumberOrOff>>,
    /// The maximum number of connections per client address (IPv6: per /64); further connections are closed. Default: 1024, or
    /// `off` if a listener trusts proxies (`client_address`, `proxy_protocol`). The flag `--per-address` takes precedence.
    pub(super) connections_per_address: Field<Parsed<NumberOrOff>>,
    /// The maximum size of request bodies sent to upstreams, for rules without `body.request`. Default: `16MiB`.
    pub(super) body: Field<Parsed<ByteSizeOrOff>>,
    /// The timeout of a whole exchange, for rules without `timeouts.request`. Default: `off`.
    pub(super) request_timeout: Field<Parsed<TimeOrOff>>,
    /// The time that requests in flight have to complete during a graceful shutdown. Default: `30s`.
    pub(super) drain: Field<Parsed<Time>>,
    /// The time between the termination signal (or `/drain`) and the graceful shutdown: `/readyz` is 503 at once and clients are asked to
    /// use another connection, while new connections are still accepted, until load balancers have stopped sending them. A second
    /// signal ends it. Default: `0s`. Example: `10s`.
    pub(super) drain_delay: Field<Parsed<Time>>,
    /// The time of a graceful shutdown over which push clients, WebSockets and event streams are disconnected, at an even rate: they
    /// reconnect, and would do so at the same time otherwise. TCP connections that remain are closed over the same time at the end of
    /// `drain`. At most `drain`. Default: half of `drain`, at most 10 s. Example: `30s`.
    pub(super) drain_spread: Field<Parsed<Time>>,
}
