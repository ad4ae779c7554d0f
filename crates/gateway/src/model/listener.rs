//! Listeners: addresses, protocols, and the trust in PROXY protocol headers and client address headers.

use std::time::Duration;

use super::{Addr, HeaderName, Hostname, ListenerTls, Name, Network, Policy};

/// Addresses with one protocol and one set of hostnames.
///
/// Several listeners may share an address if their hostnames differ and all are selected by the same means: by `Host` without TLS, by SNI
/// with TLS. A connection without SNI belongs to the listener without hostnames. A request on a TLS connection that names a host of another
/// listener is answered 421.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Unique among listeners.
    pub name: Name,
    /// At least one. For port 0 the kernel picks a port.
    pub addresses: Vec<Addr>,
    /// The protocol of the connections.
    pub protocol: Protocol,
    /// The hostnames that it serves; none: every host that no other listener of the address has.
    pub hostnames: Vec<Hostname>,
    /// Certificates and client certificates. Required by [`Protocol::Https`] and [`Protocol::Tls`], not applicable to others.
    pub tls: Option<ListenerTls>,
    /// Requires a PROXY protocol header (version 1 or 2) at the start of each connection. Default: `None`, none is expected, and a
    /// connection that starts with one is a bad request.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Redirects every request to the same URL under `https`, without a route lookup. Only for [`Protocol::Http`]. Default: `None`.
    pub redirect_to_https: Option<HttpsRedirect>,
    /// The sources of the client's address. Default: the peer of the connection alone.
    pub client_address: ClientAddress,
    /// Interpretation of paths, and their form for upstreams.
    pub paths: Paths,
    /// Limits of connections and request heads.
    pub limits: HttpLimits,
    /// Policies that apply to every request before the route lookup.
    pub policies: Vec<Policy>,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP without TLS: HTTP/1.1, and HTTP/2 from a client that starts with its preface (RFC 9113 §3.3).
    Http,
    /// HTTP/2 only, without TLS; a connection that starts with anything else is closed.
    H2c,
    /// HTTP over TLS.
    Https,
    /// Bytes, relayed unchanged.
    Tcp,
    /// Bytes over TLS, which is terminated here; routed by SNI.
    Tls,
    /// TLS passthrough; routed by the SNI of the ClientHello.
    TlsPassthrough,
    /// Datagrams, relayed unchanged. UDP has a port space of its own: a listener of another protocol may have the same address.
    Udp,
}

impl Protocol {
    /// Returns whether the protocol has requests, so that [`Route`](super::Route)s apply; else [`StreamRoute`](super::StreamRoute)s do.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Protocol::Http | Protocol::H2c | Protocol::Https)
    }

    /// Returns whether the protocol has no connections.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        self == Protocol::Udp
    }

    /// Returns whether connections start with a TLS handshake, so that SNI selects between listeners of one address.
    #[must_use]
    pub fn has_sni(self) -> bool {
        matches!(self, Protocol::Https | Protocol::Tls | Protocol::TlsPassthrough)
    }
}

/// A PROXY protocol header at the start of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// Networks of the proxies that send it. A connection from elsewhere is closed: a header that anyone may send proves no address.
    pub from: Vec<Network>,
    /// Time limit for the header to arrive. Default: 5 s; then the connection is closed.
    pub timeout: Duration,
}

impl Default for ProxyProtocol {
    fn default() -> ProxyProtocol {
        ProxyProtocol {
            from: Vec::new(),
            timeout: Duration::from_secs(5),
        }
    }
}

/// A redirect of requests without TLS to `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// The port of the URL. Default: 443, which is not written.
    pub port: u16,
    /// 301, 302, 303, 307 or 308. Default: 308, which preserves the method and may be cached.
    pub status: u16,
}

impl Default for HttpsRedirect {
    fn default() -> HttpsRedirect {
        HttpsRedirect {
            port: 443,
            status: 308,
        }
    }
}

/// Interpretation of paths, and their form for upstreams.
///
/// Rules are matched against the path in its normal form: decoded once, with repeated slashes merged and dot segments removed.
/// Upstreams receive the path as it arrived, octet for octet, unless it has dot segments: then they receive it without these
/// and with repeated slashes merged, since a recipient could resolve them in another order (RFC 3986 §5.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Merges repeated slashes in the path that upstreams receive. Default: `false`.
    pub merge_slashes: bool,
    /// Handling of `%2F`, `%5C` and `\`. Default: `None`, [`EscapedSlashes::Reject`] at a listener with a rule that guards a
    /// part of its paths ([`guards_path`](super::Rule::guards_path)), else [`EscapedSlashes::Keep`].
    pub escaped_slashes: Option<EscapedSlashes>,
}

/// Handling of escaped slashes and of backslashes, which some origins take for slashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapedSlashes {
    /// They belong to their segment. `/admin%2fx` does not match `/admin`, but is `/admin/x` for an origin that decodes it.
    Keep,
    /// They are slashes, for rules and for upstreams.
    Decode,
    /// The request is answered 400, `escaped_slash`.
    Reject,
}

/// The sources of the client's address: the one algorithm for logs, limits, affinity and policies.
///
/// The peer of the connection (or the source address of its PROXY protocol header) is the client, unless it is in
/// [`trusted`](Self::trusted). Then the header is read from its end: at most [`hops`](Self::hops) addresses of trusted networks are
/// skipped, and the first other address is the client's. A value that is not an address (`unknown`, an empty element) ends the search, and
/// the client is unknown: rules about addresses refuse it, and all unknown clients share one key of limits. So no client can choose its
/// address by a value that it prepends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAddress {
    /// Networks of proxies in front of the gateway. Default: none.
    pub trusted: Vec<Network>,
    /// The header that these proxies write.
    pub header: ClientHeader,
    /// Largest number of proxies, the peer included: 1 to [`crate::limits::HOPS`]. Default: `None`, any number of trusted ones.
    pub hops: Option<u8>,
}

/// The header in which trusted proxies report the client's address. From untrusted peers it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientHeader {
    /// `X-Forwarded-For`: a list, the nearest proxy last.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): its `for` parameters, the nearest proxy last.
    Forwarded,
    /// A header with one address, which the proxy in front replaces: `True-Client-IP`, `CF-Connecting-IP`.
    Named(HeaderName),
}

/// Limits of an HTTP connection. Beyond a size limit a request is refused (431, 414), beyond a time limit the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes of a request line and its headers. Default: 32 KiB, at most [`ringmain_web::limits::MAX_HEAD_BYTES`].
    pub head_bytes: u32,
    /// Number of headers. Default: 100.
    pub headers: u16,
    /// Time from the first byte of a head to its last. Default: 10 s.
    pub head_timeout: Duration,
    /// Idle time until the next request. Default: 75 s.
    pub keep_alive: Duration,
    /// Number of requests of a connection, which is then closed. Default: `None`, unlimited.
    pub requests_per_connection: Option<u32>,
    /// Minimum rate at which a client must send or receive while there are bytes to transfer, in bytes per second. Default: 240; 0: none.
    /// The connection is closed by the rules of [`ringmain_web::Limits::rate_bytes`].
    pub rate_bytes: u32,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            head_bytes: 32 * 1024,
            headers: 100,
            head_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            requests_per_connection: None,
            rate_bytes: 240,
        }
    }
}
