//! A configuration file as it is written: the one definition of its keys. The JSON Schema, the reference page and the error
//! messages come from it.
//!
//! Only structure; what the values mean together is for `build`.

mod bounds;
mod nats;
mod policy;
mod push;
mod route;
mod upstream;

use ringmain_gateway::model::{Addr, HeaderName, Hostname, LogDestination, Network, TlsVersion};
use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use self::bounds::*;
pub(super) use self::nats::*;
pub(super) use self::policy::*;
pub(super) use self::push::*;
pub(super) use self::route::*;
pub(super) use self::upstream::*;
use super::texts::{Size, SizeOrOff, Time, TimeOrOff};
use super::values::{At, Either, NumberOrOff, OneOrMany, Pairs, Switch, Text, secret};

/// A value that may be left out.
pub(super) type Maybe<T> = Option<At<T>>;

/// One or a list, which may be left out.
pub(super) type Some1<T> = Option<At<OneOrMany<T>>>;

/// What the gateway serves. In every text `${env:NAME}` stands for a variable of the environment and `${file:PATH}` for the
/// contents of a file without the line end at its end; `$${` stands for `${`. Paths of files are relative to this file. An empty
/// list is an error unless a key says otherwise: a key that is left out has its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of ringmain")]
pub(super) struct Document {
    /// Where to listen for HTTP, in a line: a listener named `default`.
    pub(super) listen: Some1<Text<Addr>>,
    /// Who answers what no route does, in a line: a route named `default`, behind all others.
    pub(super) to: Some1<Either<Text<super::texts::To>, Backend>>,
    /// Where clients come in, by name.
    pub(super) listeners: Pairs<Listener>,
    /// What is done with requests, by name. Of routes that match alike the first counts.
    pub(super) routes: Pairs<Route>,
    /// Where connections go that are not looked into, by name.
    pub(super) streams: Pairs<Stream>,
    /// Who answers, by name.
    pub(super) upstreams: Pairs<Either<Text<super::texts::Url>, Upstream>>,
    /// Who signs tokens (JWT), by name; `policies.jwt` of rules refers to them.
    pub(super) jwt_providers: Pairs<JwtProvider>,
    /// What is pushed to clients: live updates in channels.
    pub(super) push: Maybe<Push>,
    /// Certificates with their keys, by name.
    pub(super) certificates: Pairs<Certificate>,
    /// Authorities that certificates are checked by, by name: PEM files.
    pub(super) authorities: Pairs<String>,
    /// The administration's own listener. Without it there is none.
    pub(super) admin: Maybe<Admin>,
    /// One line a request. Without it there is no such log.
    pub(super) access_log: Maybe<Either<Text<LogDestination>, AccessLog>>,
    /// What holds for the whole process.
    pub(super) limits: Maybe<Limits>,
}

/// Addresses with one protocol and one set of hosts. Listeners may have an address in common if hosts tell them apart.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listener {
    /// Where.
    pub(super) address: Some1<Text<Addr>>,
    /// What is spoken. `http` if it does not say, `https` if there is `tls`.
    pub(super) protocol: Maybe<Protocol>,
    /// For which hosts. All that no other listener of the address has if it does not say.
    pub(super) hosts: Some1<Text<Hostname>>,
    /// Certificates, and certificates of clients.
    pub(super) tls: Maybe<ListenerTls>,
    /// Connections begin with a PROXY protocol header.
    pub(super) proxy_protocol: Maybe<ProxyProtocol>,
    /// Every request is sent to the same URL under https.
    pub(super) redirect_to_https: Maybe<Switch<HttpsRedirect>>,
    /// Whose word is taken for the client's address. Nobody's if it does not say.
    pub(super) client_address: Maybe<ClientAddress>,
    /// Whether upstreams receive repeated slashes of a path as one. Default: `false`, the path is sent as it arrived. Rules are
    /// matched against a path with merged slashes in any case.
    pub(super) merge_slashes: Maybe<bool>,
    /// Handling of `%2F`, `%5C` and `\` in paths. Default: `reject` if a rule of the listener guards a part of its paths, else
    /// `keep`.
    pub(super) escaped_slashes: Maybe<EscapedSlashes>,
    /// Of connections and heads.
    pub(super) limits: Maybe<HttpLimits>,
}

/// Handling of escaped slashes and of backslashes in paths.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum EscapedSlashes {
    /// They belong to their segment: `/admin%2fx` does not match `/admin`.
    Keep,
    /// They are slashes, for rules and for upstreams.
    Decode,
    /// The request is answered 400.
    Reject,
}

/// What is spoken at a listener.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Protocol {
    /// HTTP without TLS: HTTP/1.1, and HTTP/2 from a client that begins with its preface.
    Http,
    /// HTTP/2 alone, without TLS (by prior knowledge): who begins with something else is closed.
    H2c,
    /// HTTP over TLS.
    Https,
    /// Bytes, sent on as they come.
    Tcp,
    /// Bytes over TLS, which ends here; routed by SNI.
    Tls,
    /// TLS that is not ended here; routed by SNI.
    TlsPassthrough,
}

/// TLS that ends at a listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListenerTls {
    /// Names of certificates. The one that fits the SNI is shown, else the first.
    pub(super) certificates: Some1<String>,
    /// Certificates that clients show. None is asked for if it does not say.
    pub(super) clients: Maybe<ClientCertificates>,
    /// The oldest version that is spoken: `1.2` if it does not say.
    pub(super) minimum: Maybe<Text<TlsVersion>>,
}

/// Certificates that clients show.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientCertificates {
    /// Names of authorities that they are checked by.
    pub(super) authorities: Some1<String>,
    /// What becomes of clients without one that passes. `required` if it does not say.
    pub(super) mode: Maybe<ClientCertificateMode>,
}

/// What becomes of clients without a certificate that passes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientCertificateMode {
    /// The handshake fails.
    Required,
    /// A client without one is admitted without an identity; one whose certificate does not pass is not.
    Optional,
}

/// A PROXY protocol header, version 1 or 2.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProxyProtocol {
    /// Who must send it; a connection from elsewhere is closed.
    pub(super) from: Some1<Text<Network>>,
    /// How long it may take to come: `5s` if it does not say.
    pub(super) timeout: Maybe<Text<Time>>,
}

/// Where requests without TLS are sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpsRedirect {
    /// The port of the URL: 443 if it does not say.
    pub(super) port: Maybe<u16>,
    /// 301, 302, 303, 307 or 308; 308 if it does not say.
    pub(super) status: Maybe<u16>,
}

/// Which address counts as the client's. The header is read from its end, over addresses of trusted networks; the first
/// other one is the client's.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientAddress {
    /// Networks of proxies in front.
    pub(super) trusted: Some1<Text<Network>>,
    /// Where they say it: `X-Forwarded-For` if it does not say, `Forwarded`, or a header of one address.
    pub(super) header: Maybe<Text<HeaderName>>,
    /// How many proxies there are at most, from 1 to 16; any number if it does not say.
    pub(super) hops: Maybe<u8>,
}

/// What a connection of HTTP may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpLimits {
    /// Of a request's line and headers: `32KiB` if it does not say, at most 48KiB.
    pub(super) head: Maybe<Text<Size>>,
    /// How many headers: 100 if it does not say.
    pub(super) headers: Maybe<u16>,
    /// How long a head may take: `10s` if it does not say.
    pub(super) head_timeout: Maybe<Text<Time>>,
    /// How long a connection may wait for its next request: `75s` if it does not say.
    pub(super) keep_alive: Maybe<Text<Time>>,
    /// How many requests a connection may make: any number if it does not say.
    pub(super) requests_per_connection: Maybe<u32>,
    /// What a client must send or take a second, behind 5 s of grace. Default: `240B`. Request bodies without an announced length are live
    /// streams and exempt: those end by silence (`timeouts.idle`).
    pub(super) minimum_rate: Maybe<Text<Size>>,
}

/// A certificate with its key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Certificate {
    /// A PEM file: the certificate, then those that lead to its authority.
    pub(super) chain: Maybe<String>,
    /// A PEM file: its private key.
    pub(super) key: Maybe<String>,
}

/// Connections that are not looked into.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stream {
    /// Names of listeners. All that are not of HTTP if it does not say.
    pub(super) listeners: Some1<String>,
    /// For which hosts, told by SNI. For all if it does not say.
    pub(super) hosts: Some1<Text<Hostname>>,
    /// Who gets them.
    pub(super) to: Some1<Either<Text<super::texts::To>, Backend>>,
    /// Without a byte in either direction: `1h` if it does not say.
    pub(super) idle: Maybe<Text<TimeOrOff>>,
}

/// The administration's own listener. Whoever reaches it may read all of it, and without `token` change something, too.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    /// Where: on the loopback interface or a Unix socket, unless somebody else guards it.
    pub(super) address: Some1<Text<Addr>>,
    /// Names that requests may carry in `Host`, besides IP addresses and `localhost`: other ones are refused with 421, since a page
    /// in a browser can point a name of its own to this address. None by default.
    pub(super) hosts: Some1<Text<Hostname>>,
    /// What requests that change something (`/drain`, `/log`) must show in `Authorization: Bearer`; best as `${env:…}` or
    /// `${file:…}`. Nothing by default.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(super) token: Maybe<String>,
    /// Addresses of a listener that has `/metrics`, `/healthz` and `/readyz` alone, for any `Host`: for who may read those and nothing
    /// else. None by default.
    pub(super) metrics: Some1<Text<Addr>>,
}

/// One line a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessLog {
    /// Where it goes: `stdout` if it does not say.
    pub(super) to: Maybe<Text<LogDestination>>,
    /// `json` (if it does not say), `combined`, or a line with fields in it as `{name}`, which docs/gateway.md lists.
    pub(super) format: Maybe<String>,
}

/// What holds for the whole process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// Connections of clients: as the descriptor limit allows if it does not say.
    pub(super) connections: Maybe<u32>,
    /// Connections to all upstreams together: their own caps alone if it does not say.
    pub(super) upstream_connections: Maybe<u32>,
    /// Connections of clients with one address; more are closed: 1024 by default, and `off` where a listener trusts proxies
    /// (`client_address`, `proxy_protocol`). The flag `--per-address` has precedence.
    pub(super) connections_per_address: Maybe<Text<NumberOrOff>>,
    /// Of the bodies of requests that are sent to upstreams, where a rule has no `body.request`: `16MiB` by default.
    pub(super) body: Maybe<Text<SizeOrOff>>,
    /// How long an exchange may take in all, where a rule has no `timeouts.request`: `off` by default.
    pub(super) request_timeout: Maybe<Text<TimeOrOff>>,
    /// How long requests may go on once the process was told to end: `30s` if it does not say.
    pub(super) drain: Maybe<Text<Time>>,
}
