//! Where clients come in: addresses, protocols, and what is believed of what a connection says about its client.

use std::time::Duration;

use super::{Addr, HeaderName, Hostname, ListenerTls, Name, Network, Policy};

/// Addresses with one protocol and one set of hosts.
///
/// Several listeners may have an address in common if they differ in their hosts and all of them tell them apart in the
/// same way: by `Host` without TLS, by SNI with it. A connection without SNI belongs to the listener without hostnames.
/// A request on a TLS connection that names a host of another listener is answered 421.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Unique among listeners.
    pub name: Name,
    /// At least one. Port 0 lets the kernel choose.
    pub addresses: Vec<Addr>,
    /// What is spoken there.
    pub protocol: Protocol,
    /// The hosts that it is for; none: every host that no other listener of the address has.
    pub hostnames: Vec<Hostname>,
    /// Certificates and client certificates. Needed by [`Protocol::Https`] and [`Protocol::Tls`], senseless elsewhere.
    pub tls: Option<ListenerTls>,
    /// A PROXY protocol header (version 1 or 2) that connections begin with. Default: `None`, none is expected, and a
    /// connection that begins with one is a bad request.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Every request is sent to the same URL under `https`; no route is looked at. Only for [`Protocol::Http`].
    /// Default: `None`.
    pub redirect_to_https: Option<HttpsRedirect>,
    /// Whose word is taken for the client's address. Default: nobody's, the client is who is connected.
    pub client_address: ClientAddress,
    /// How paths are read and sent to upstreams.
    pub paths: Paths,
    /// Of connections and heads.
    pub limits: HttpLimits,
    /// What every request meets before a route is looked for.
    pub policies: Vec<Policy>,
}

/// What is spoken at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP without TLS: HTTP/1.1, and HTTP/2 from a client that begins with its preface (RFC 9113 §3.3).
    Http,
    /// HTTP/2 alone, without TLS: who begins with something else is closed.
    H2c,
    /// HTTP over TLS.
    Https,
    /// Bytes, sent on as they come.
    Tcp,
    /// Bytes over TLS, which ends here; routed by SNI.
    Tls,
    /// TLS that is not ended here; routed by SNI of its first message.
    TlsPassthrough,
    /// Datagrams, sent on as they come. Not served yet: such a listener is a problem, and left out.
    Udp,
}

impl Protocol {
    /// Whether requests are looked into, so that [`Route`](super::Route)s apply; else
    /// [`StreamRoute`](super::StreamRoute)s do.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Protocol::Http | Protocol::H2c | Protocol::Https)
    }

    /// Whether connections begin with a TLS handshake, so that SNI tells listeners of one address apart.
    #[must_use]
    pub fn has_sni(self) -> bool {
        matches!(self, Protocol::Https | Protocol::Tls | Protocol::TlsPassthrough)
    }
}

/// A PROXY protocol header at the beginning of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// Who must send it. A connection from elsewhere is closed: a header that anybody may send is no proof of an address.
    pub from: Vec<Network>,
    /// How long it may take to come. Default 5 s; then the connection is closed.
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

/// Where requests without TLS are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// The port of the URL. Default 443, which is not written.
    pub port: u16,
    /// 301, 302, 303, 307 or 308. Default 308: the method stays and it may be remembered.
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

/// How paths are read and sent to upstreams.
///
/// Rules are matched against the path in its normal form: decoded once, with repeated slashes merged and dot segments removed.
/// Upstreams receive the path as it arrived, octet for octet, unless it has dot segments: then they receive it without these
/// and with repeated slashes merged, since a recipient could resolve them in another order (RFC 3986 §5.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Whether upstreams receive repeated slashes as one. Default `false`.
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

/// Which address counts as the client's: the one algorithm for all that asks for it (logs, limits, affinity, policies).
///
/// The peer of the connection (or what its PROXY protocol header says) is the client, unless it is in
/// [`trusted`](Self::trusted). Then the header is read from its end: addresses of trusted networks are skipped, at
/// most [`hops`](Self::hops) of them, and the first other one is the client. A value that is no address (`unknown`, an empty
/// element) ends the search, and the client is unknown: it is refused by rules about addresses, and all unknown clients share
/// one key of limits. So no client can choose its address by what it adds in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAddress {
    /// Networks of proxies in front. Default: none.
    pub trusted: Vec<Network>,
    /// Where they say it.
    pub header: ClientHeader,
    /// How many of them there are at most, from 1 to [`crate::limits::HOPS`], the peer counted. `None`, the default: as
    /// many as are trusted.
    pub hops: Option<u8>,
}

/// The header that trusted proxies tell the client's address in. Of untrusted peers it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientHeader {
    /// `X-Forwarded-For`: a list, the nearest last.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): its `for` parameters, the nearest last.
    Forwarded,
    /// A header of one address, which the proxy in front replaces: `True-Client-IP`, `CF-Connecting-IP`.
    Named(HeaderName),
}

/// What a connection of HTTP may take. Beyond sizes a request is refused (431, 414), beyond times the connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes of a request's line and headers. Default 32 KiB, at most [`ringmain_web::limits::HEAD_BYTES_MOST`].
    pub head_bytes: u32,
    /// How many headers. Default 100.
    pub headers: u16,
    /// How long a head may take from its first byte to its last. Default 10 s.
    pub head_timeout: Duration,
    /// How long a connection may wait for its next request. Default 75 s.
    pub keep_alive: Duration,
    /// How many requests a connection may make; then it is told to close. Default: `None`, any number.
    pub requests_per_connection: Option<u32>,
    /// Bytes a second that a client must send or take while there is something to send or take. Default 240; 0: none.
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
