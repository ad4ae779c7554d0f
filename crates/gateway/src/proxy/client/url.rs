//! The URL that the client requested: scheme, host and port as its user sees them, also where a trusted proxy in front terminates TLS or
//! listens on another port.

use std::net::Ipv6Addr;

use ringmain_web::Request;
use ringmain_wire::h1::Fields;

use super::{element_parameter, search_fields, visit_backwards};
use crate::model::{ClientAddress, ClientHeader, Listener};

/// Scheme, host and port of the URL that the client requested.
///
/// Without a trusted peer: the connection's scheme, and `Host`. A trusted peer overrides them with `X-Forwarded-Proto`, `X-Forwarded-Host`
/// and `X-Forwarded-Port`. In lists the element of the proxy next to the client applies, which is as far from the end as the client is in
/// the list of addresses. Where the listener reads addresses from `Forwarded`, the same element's `proto` and `host` apply, and nothing
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct RequestUrl<'r> {
    pub(in crate::proxy) https: bool,
    /// With square brackets around an IPv6 address. `None`: an HTTP/1.0 request without `Host`.
    pub(in crate::proxy) host: Option<&'r str>,
    /// `None`: the default port of the scheme.
    pub(in crate::proxy) port: Option<u16>,
}

impl<'r> RequestUrl<'r> {
    pub(in crate::proxy) fn new(listener: &Listener, req: &Request<'r>) -> RequestUrl<'r> {
        let original = RequestUrl::from_connection(req.scheme() == "https", req.host());
        if !super::super::request::is_trusted_peer(listener, req) {
            return original;
        }
        match req.remote() {
            Some(remote) => original.with_forwarded(
                &listener.client_address,
                remote.ip().to_canonical(),
                &req.head().fields,
            ),
            None => original,
        }
    }

    /// Returns whether the client's own request used TLS. For requests whose host is irrelevant.
    pub(in crate::proxy) fn is_https(listener: &Listener, req: &Request<'_>) -> bool {
        RequestUrl::new(listener, req).https
    }

    /// Returns the URL of the connection and of the request itself.
    pub(super) fn from_connection(https: bool, authority: Option<&'r str>) -> RequestUrl<'r> {
        let (host, port) = match authority.map(split_authority) {
            Some((host, port)) => (Some(host), port),
            None => (None, None),
        };
        RequestUrl { https, host, port }
    }

    /// Applies the fields of a trusted peer.
    pub(super) fn with_forwarded(
        self,
        config: &ClientAddress,
        peer: std::net::IpAddr,
        fields: &Fields<'r>,
    ) -> RequestUrl<'r> {
        let mut url = self;
        if config.header == ClientHeader::Forwarded {
            search_fields(config, peer, fields, &mut |element| {
                if let Some(https) = element_parameter(element, b"proto=").and_then(is_secure_scheme) {
                    url.https = https;
                }
                if let Some(authority) = element_parameter(element, b"host=").and_then(valid_authority) {
                    url.set_authority(authority);
                }
            });
            return url;
        }
        let mut place = 0_usize;
        search_fields(config, peer, fields, &mut |_| place += 1);
        let place = place.max(1);
        let element = |name: &str| {
            let (mut found, mut number) = (None, 0);
            visit_backwards(fields.all(name), &mut |element| {
                number += 1;
                let is_matched = number == place || element.is_none();
                found = element;
                is_matched
            });
            found
        };
        if let Some(https) = element("X-Forwarded-Proto").and_then(is_secure_scheme) {
            url.https = https;
        }
        if let Some(authority) = element("X-Forwarded-Host").and_then(valid_authority) {
            url.set_authority(authority);
        }
        let port = element("X-Forwarded-Port").and_then(parse_port);
        // A default port in `Host` belongs to the scheme between the proxy and this listener.
        let own_default = if self.https { 443 } else { 80 };
        let is_foreign = url.https != self.https && url.port == Some(own_default);
        url.port = port.or(url.port.filter(|_| !is_foreign));
        url
    }

    fn set_authority(&mut self, authority: &'r str) {
        let (host, port) = split_authority(authority);
        (self.host, self.port) = (Some(host), port);
    }
}

/// Returns whether a scheme implies TLS. `None`: it is neither HTTP nor WebSocket.
fn is_secure_scheme(text: &[u8]) -> Option<bool> {
    let is_scheme = |scheme: &[u8]| text.eq_ignore_ascii_case(scheme);
    if is_scheme(b"https") || is_scheme(b"wss") {
        Some(true)
    } else if is_scheme(b"http") || is_scheme(b"ws") {
        Some(false)
    } else {
        None
    }
}

fn parse_port(text: &[u8]) -> Option<u16> {
    let text = str::from_utf8(text).ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

/// Returns a text that a trusted peer sent as host, possibly with a port. `None`: it is invalid, and must not become part of a URL.
fn valid_authority(text: &[u8]) -> Option<&str> {
    let text = str::from_utf8(text).ok()?;
    let host = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, behind) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            return (behind.is_empty() || parse_port(behind.strip_prefix(':')?.as_bytes()).is_some())
                .then_some(text);
        }
        None => match text.split_once(':') {
            Some((host, digits)) => parse_port(digits.as_bytes()).map(|_| host)?,
            None => text,
        },
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (!host.is_empty() && host.bytes().all(is_name)).then_some(text)
}

/// Splits a valid authority into host and port.
fn split_authority(authority: &str) -> (&str, Option<u16>) {
    match authority.rfind([':', ']']) {
        Some(at) if authority.as_bytes()[at] == b':' => (&authority[..at], authority[at + 1..].parse().ok()),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests;
