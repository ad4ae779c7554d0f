//! The pages that may open a socket (RFC 6455 §10.2), or access any other resource exposed to pages in the same way. A browser
//! sends cookies with requests of any page, and names the page's origin in `Origin`; a client that is not a browser need not send one, and
//! can send any value.

#[cfg(test)]
mod tests;

use ringmain_wire::h1::Known;

use crate::http::error::{Error, Result};
use crate::http::request::Request;

/// The list of admitted pages: those of the requested host, unless it has more entries. [`WsOptions`](super::WsOptions) has one;
/// routes that are not sockets apply theirs themselves.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    any: bool,
    listed: Vec<Listed>,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    /// `None`: any.
    scheme: Option<String>,
    /// With the leading dot if the entry admits subdomains.
    host: String,
    below: bool,
    port: Option<u16>,
}

/// A browser's origin, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageOrigin<'a> {
    scheme: &'a str,
    host: &'a str,
    port: Option<u16>,
}

impl Origins {
    /// Admits any page.
    pub fn allow_any(&mut self) {
        self.any = true;
    }

    /// Adds `https://app.example.com`, `https://*.example.com`, or an entry without a scheme.
    ///
    /// # Errors
    /// A message with the expected form.
    pub fn allow(&mut self, entry: &str) -> std::result::Result<(), String> {
        let listed = Listed::parse(entry).ok_or_else(|| {
            format!(
                "allowed origin: expected `https://app.example.com`, `*.example.com` or `https://*.example.com`, \
                 found `{}`",
                entry.escape_debug()
            )
        })?;
        self.listed.push(listed);
        Ok(())
    }

    /// Admits a request without `Origin`, or with an admitted one.
    ///
    /// # Errors
    /// 403 for another origin, and for more than one.
    pub fn check(&self, request: &Request<'_>) -> Result {
        let mut origins = request.head.fields.all_known(Known::Origin);
        let is_allowed = match (origins.next(), origins.next()) {
            (None, _) => true,
            (Some(origin), None) => self.allow_page(origin, request.host(), request.peer.secure),
            (Some(_), Some(_)) => false,
        };
        if is_allowed {
            return Ok(());
        }
        Err(Error::forbidden(
            "origin not allowed: expected a page of this host, or an allowed origin",
        ))
    }

    /// Returns true if a page of this origin may open a socket; `authority` is the requested host, `secure` is true for a request
    /// over TLS.
    pub(super) fn allow_page(&self, origin: &[u8], authority: Option<&str>, secure: bool) -> bool {
        if self.any {
            return true;
        }
        // Includes `null`: a sandboxed page of unknown origin.
        let Some(origin) = str::from_utf8(origin).ok().and_then(PageOrigin::parse) else {
            return false;
        };
        authority.is_some_and(|authority| origin.is_of(authority, secure))
            || self.listed.iter().any(|listed| listed.matches(&origin))
    }
}

impl<'a> PageOrigin<'a> {
    fn parse(text: &'a str) -> Option<PageOrigin<'a>> {
        let (scheme, authority) = text.split_once("://")?;
        let (host, port) = split_port(authority)?;
        (is_scheme(scheme) && is_host(host)).then_some(PageOrigin { scheme, host, port })
    }

    /// Returns the port; a browser omits the scheme's default.
    fn port(&self) -> Option<u16> {
        self.port.or(default_port(self.scheme))
    }

    /// Returns true if this is the requested host. For a request over TLS the page must have been loaded over TLS too: a man in the
    /// middle could have forged it. A page over TLS is also admitted without TLS here, behind a proxy that terminates it.
    fn is_of(&self, authority: &str, secure: bool) -> bool {
        if secure && !self.scheme.eq_ignore_ascii_case("https") {
            return false;
        }
        let Some((host, port)) = split_port(authority) else {
            return false;
        };
        self.host.eq_ignore_ascii_case(host) && self.port() == port.or(default_port(self.scheme))
    }
}

impl Listed {
    fn parse(entry: &str) -> Option<Listed> {
        let (scheme, authority) = match entry.split_once("://") {
            Some((scheme, authority)) => (Some(scheme.to_ascii_lowercase()), authority),
            None => (None, entry),
        };
        let (host, port) = split_port(authority)?;
        let (host, below) = match host.strip_prefix('*') {
            Some(host) => (host, true),
            None => (host, false),
        };
        let name = host.strip_prefix('.').filter(|_| below).unwrap_or(host);
        let well_formed = is_host(name)
            && below == host.starts_with('.')
            && scheme.as_ref().is_none_or(|scheme| is_scheme(scheme));
        well_formed.then(|| Listed {
            scheme,
            host: host.to_ascii_lowercase(),
            below,
            port,
        })
    }

    fn matches(&self, origin: &PageOrigin<'_>) -> bool {
        let scheme = self.scheme.as_ref();
        if scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case(origin.scheme)) {
            return false;
        }
        let port = self.port.or(default_port(origin.scheme));
        let host = origin.host.to_ascii_lowercase();
        let matches = if self.below {
            host.len() > self.host.len() && host.ends_with(&self.host)
        } else {
            host == self.host
        };
        matches && origin.port() == port
    }
}

/// Checks for a scheme (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(byte)
}

/// Checks for a host as browsers serialize it (RFC 6454 §6.2): labels of letters, digits, `-` and `_`, an IPv4 address, or an IPv6
/// address in brackets. Nothing else: a list entry `*.pages.example` must not match `evil.example\.pages.example`, which clients
/// resolve to different hosts.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']').unwrap_or_default();
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    // A host may be written with the dot of the root.
    let name = text.strip_suffix('.').unwrap_or(text);
    name.split('.')
        .all(|label| !label.is_empty() && label.bytes().all(byte))
}

/// Returns the host, and the port if present.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after_literal = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_literal..].find(':') {
        None => Some((authority, None)),
        Some(colon) => {
            let (host, port) = authority.split_at(after_literal + colon);
            match &port[1..] {
                // RFC 3986 §3.2.3: a port may be empty.
                "" => Some((host, None)),
                port => Some((host, Some(port.parse().ok()?))),
            }
        }
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    let default_ports = [("http", 80), ("ws", 80), ("https", 443), ("wss", 443)];
    let found = default_ports
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(scheme));
    found.map(|(_, port)| *port)
}
