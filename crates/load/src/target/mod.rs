//! Where a load goes to, as it is written on a command line.
//!
//! | written | spoken |
//! |---|---|
//! | `http://host[:port][/path?query]`, `host:port[/path?query]` | HTTP/1.1, or if asked HTTP/2, over TCP |
//! | `:port[/path?query]` | the same to this host |
//! | `http+unix:/run/app.sock[:/path?query]`, `http+unix:@name[:/path?query]` | the same over a Unix socket |
//! | `https://host[:port][/path?query]` | the same over TLS |
//! | `ws://host[:port][/path?query]`, `ws+unix:/run/app.sock[:/path?query]` | messages over WebSocket that come back |
//! | `wss://host[:port][/path?query]` | the same over TLS |
//! | `tcp://host:port`, `tcp+unix:/run/app.sock`, `tcp+unix:@name` | bytes that come back |
//!
//! A Unix socket's name ends at the first `:/`; in it `\xNN` stands for any byte, as everywhere in Ringmain. What stands
//! after a `#` is not sent. Knows how targets are written; looks no name up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringmain_engine::Addr;
use ringmain_sys::addr::AddrError;

#[cfg(test)]
mod tests;

/// The ports of URLs that name none.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is spoken there.
    pub scheme: Scheme,
    /// Whether it is spoken over TLS: the name or address that the server's certificate has to be for.
    pub secured_as: Option<String>,
    /// Where it is.
    pub place: Place,
    /// What an HTTP request says in `Host`, also one that opens a WebSocket; empty for echo servers over TCP.
    pub host: String,
    /// Path and query of that request, with a `/` first; empty for echo servers over TCP.
    pub path: String,
}

/// What is spoken, as far as a URL says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// Messages over WebSocket that come back.
    WebSocket,
    /// Bytes that come back.
    Tcp,
}

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an address, or at the first of several that takes connections.
    Addrs(Vec<Addr>),
    /// At whatever addresses this name has.
    Name {
        /// The host's name, in lower case.
        host: String,
        /// The port there.
        port: u16,
    },
}

/// The port that `Host` leaves out.
#[derive(Clone, Copy, Debug)]
enum Port {
    /// A URL without a port means it.
    Default(u16),
    /// A port has to be there.
    Required(u16),
}

/// Why a text is not a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a target, such as http://127.0.0.1:8080/json; found `{found}`: {reason}")]
pub struct TargetError {
    /// The text as given, shortened, without control characters.
    pub found: String,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

impl Target {
    /// Reads one.
    ///
    /// # Errors
    /// [`TargetError`] says what is wrong with it and what to write instead.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        parse(text).map_err(|reason| TargetError {
            found: shown(text),
            reason,
        })
    }
}

/// As much of a text as a message needs.
fn shown(text: &str) -> String {
    const CHARACTERS: usize = 120;
    let mut shown: String = text.escape_debug().take(CHARACTERS).collect();
    if text.escape_debug().nth(CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

fn parse(text: &str) -> Result<Target, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if let Some(bad) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
        let bad = bad.escape_debug();
        return Err(format!(
            "`{bad}` is not allowed in it; in a path write %20 for a space"
        ));
    }
    let (scheme, rest) = scheme(text)?;
    let spoken = if scheme.starts_with("ws") {
        Scheme::WebSocket
    } else {
        Scheme::Http
    };
    match scheme {
        "http" => url(spoken, rest, Port::Default(HTTP_PORT)),
        "" => url(spoken, rest, Port::Required(HTTP_PORT)),
        "https" | "ws" | "wss" => {
            let port = if scheme == "ws" { HTTP_PORT } else { HTTPS_PORT };
            // There is no shorter way to write these on this host.
            let port = if rest.starts_with(':') {
                Port::Required(port)
            } else {
                Port::Default(port)
            };
            let target = url(spoken, rest, port)?;
            Ok(if scheme == "ws" { target } else { secured(target) })
        }
        "http+unix" | "ws+unix" => {
            let (name, path) = match rest.find(":/") {
                Some(end) => (&rest[..end], &rest[end + 1..]),
                None => (rest, ""),
            };
            request(spoken, unix(name)?, "localhost".into(), path)
        }
        "tcp" => {
            let (authority, path) = split(rest);
            if !matches!(path, "" | "/") {
                return Err(format!("`{path}` has no meaning for an echo server: drop it"));
            }
            tcp(authority_of(authority, Port::Required(HTTP_PORT))?.0)
        }
        _ => tcp(unix(rest)?),
    }
}

/// The scheme, empty if there is none, and what stands after its separator.
fn scheme(text: &str) -> Result<(&'static str, &str), String> {
    for scheme in ["http+unix", "ws+unix", "tcp+unix"] {
        if let Some(rest) = strip_scheme(text, scheme) {
            return Ok((scheme, rest.strip_prefix("//").unwrap_or(rest)));
        }
    }
    for scheme in ["http", "https", "ws", "wss", "tcp"] {
        if let Some(rest) = strip_scheme(text, scheme).and_then(|rest| rest.strip_prefix("//")) {
            return Ok((scheme, rest));
        }
    }
    if strip_scheme(text, "unix").is_some() || text.starts_with(['/', '@']) {
        let name = strip_scheme(text, "unix").unwrap_or(text);
        return Err(format!(
            "for HTTP write http+unix:{name}:/path, for WebSocket ws+unix:{name}:/path, for echoed bytes tcp+unix:{name}"
        ));
    }
    // Elsewhere, in a query, `://` is a text as any other.
    let is_scheme = |first: &str| {
        first
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let Some((other, _)) = text.split_once("://").filter(|(first, _)| is_scheme(first)) else {
        return Ok(("", text));
    };
    let spoken = "supported: http://, https://, http+unix:, ws://, wss://, ws+unix:, tcp:// and tcp+unix:";
    Err(match other.to_ascii_lowercase().as_str() {
        "h2c" => format!("for HTTP/2 write http:// and --http2; {spoken}"),
        "h2" => format!("for HTTP/2 over TLS write https:// and --http2; {spoken}"),
        "grpc" => format!("for gRPC write http:// and --grpc; {spoken}"),
        "grpcs" => format!("for gRPC over TLS write https:// and --grpc; {spoken}"),
        _ => format!("`{other}` is not supported; {spoken}"),
    })
}

fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (first, rest) = text.split_at_checked(scheme.len())?;
    first
        .eq_ignore_ascii_case(scheme)
        .then(|| rest.strip_prefix(':'))?
}

/// The authority and what follows it, from its `/` or `?` on, without a fragment.
fn split(rest: &str) -> (&str, &str) {
    let rest = rest.split('#').next().unwrap_or(rest);
    rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))
}

/// `authority[/path]`.
fn url(scheme: Scheme, rest: &str, port: Port) -> Result<Target, String> {
    let (authority, path) = split(rest);
    let (place, host) = authority_of(authority, port)?;
    request(scheme, place, host, path)
}

/// The same over TLS.
fn secured(target: Target) -> Target {
    let name = match &target.place {
        Place::Name { host, .. } => host.clone(),
        // Where several addresses are meant, it is this host.
        Place::Addrs(addrs) => match addrs.as_slice() {
            [Addr::Inet(addr)] => addr.ip().to_string(),
            _ => "localhost".into(),
        },
    };
    Target {
        secured_as: Some(name),
        ..target
    }
}

fn request(scheme: Scheme, place: Place, host: String, path: &str) -> Result<Target, String> {
    let path = path.split('#').next().unwrap_or(path);
    if let Some(bad) = path.chars().find(|c| !c.is_ascii()) {
        let mut bytes = [0; 4];
        let bytes = bad.encode_utf8(&mut bytes).bytes();
        let written: String = bytes.map(|byte| format!("%{byte:02X}")).collect();
        return Err(format!("a path is ASCII: write {written} for `{bad}`"));
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(Target {
        scheme,
        secured_as: None,
        place,
        host,
        path: format!("{slash}{path}"),
    })
}

fn tcp(place: Place) -> Result<Target, String> {
    Ok(Target {
        scheme: Scheme::Tcp,
        secured_as: None,
        place,
        host: String::new(),
        path: String::new(),
    })
}

fn unix(name: &str) -> Result<Place, String> {
    let addr: Addr = format!("unix:{name}")
        .parse()
        .map_err(|error: AddrError| error.to_string())?;
    Ok(Place::Addrs(vec![addr]))
}

/// The place that an authority names, and how `Host` says it.
fn authority_of(authority: &str, usual: Port) -> Result<(Place, String), String> {
    let (usual, default) = match usual {
        Port::Default(port) => (port, Some(port)),
        Port::Required(port) => (port, None),
    };
    if authority.contains('@') {
        return Err(
            "credentials in a URL are not supported: drop them, and write -H 'Authorization: …'".into(),
        );
    }
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of an IPv6 address is none of a port.
        Some((host, port)) if !port.contains(']') => (host, Some(port_of(port)?)),
        _ => (authority, default),
    };
    let Some(port) = port else {
        return Err(match authority {
            "" => "a host is missing".into(),
            _ => format!("a port is missing: write {authority}:8080, or http://{authority}"),
        });
    };
    let written = |host: &str| {
        if port == usual {
            host.to_owned()
        } else {
            format!("{host}:{port}")
        }
    };
    let at = |ip: IpAddr| Place::Addrs(vec![SocketAddr::new(ip, port).into()]);
    if host.is_empty() {
        if default.is_some() {
            return Err("a host is missing".into());
        }
        let here: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let here = here.map(|ip| Addr::from(SocketAddr::new(ip, port)));
        return Ok((Place::Addrs(here.into()), written("localhost")));
    }
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner
            .strip_suffix(']')
            .ok_or("the closing `]` of an IPv6 address is missing")?;
        let ip: Ipv6Addr = inner
            .parse()
            .map_err(|_| format!("`{inner}` is not an IPv6 address"))?;
        return Ok((at(ip.into()), written(host)));
    }
    if host.contains(':') {
        return Err("an IPv6 address is written in brackets, such as http://[::1]:8080/".into());
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok((at(ip.into()), written(host)));
    }
    let host = name(host)?;
    Ok((
        Place::Name {
            host: host.clone(),
            port,
        },
        written(&host),
    ))
}

fn port_of(text: &str) -> Result<u16, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port > 0);
    port.ok_or_else(|| format!("`{text}` is not a port: expected a number from 1 to 65535"))
}

/// A host's name in lower case (RFC 1123 §2.1, and underscores, which private names have).
fn name(host: &str) -> Result<String, String> {
    if host.len() > 253 {
        return Err(format!(
            "a host name has at most 253 characters, found {}",
            host.len()
        ));
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match host.chars().find(|c| !is_known(*c)) {
        None => Ok(host.to_ascii_lowercase()),
        Some(c) if !c.is_ascii() => Err(format!(
            "`{c}` is not allowed in a host name: write its xn-- form"
        )),
        Some(c) => Err(format!("`{c}` is not allowed in a host name")),
    }
}
