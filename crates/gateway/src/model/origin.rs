//! Origins of scripts, as `Origin` header fields name them (RFC 6454), and the patterns that match them.
//!
//! Owns the syntax of both. Knows nothing of CORS.

use std::borrow::Cow;
use std::sync::Arc;

use super::text::{Hostname, TextError};

/// The origins of scripts that a policy applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// All origins.
    Any,
    /// The origins of a scheme whose hosts and ports match.
    Of {
        /// The scheme in lower case: `http`, `https`, or that of an application, such as `capacitor`.
        scheme: Arc<str>,
        /// The hosts; `None`: all.
        host: Option<Hostname>,
        /// The ports.
        port: OriginPort,
    },
}

/// The ports of the origins that an [`Origin`] matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginPort {
    /// The scheme's default port: 80 for `http`, 443 for `https`. Origins of other schemes have no port then.
    #[default]
    Default,
    /// This port.
    Number(u16),
    /// All ports.
    Any,
}

impl Origin {
    /// Parses `*`, or a scheme, a host and an optional port: `https://shop.example`, `https://*.shop.example:8443` for all hosts below
    /// one, `https://*` for all hosts, `http://localhost:*` for all ports, `capacitor://localhost`.
    ///
    /// # Errors
    /// Another form, such as an origin with a path; a host that is not a [`Hostname`]; port 0.
    pub fn parse(text: &str) -> Result<Origin, TextError> {
        if text == "*" {
            return Ok(Origin::Any);
        }
        Origin::parse_pattern(text).ok_or_else(|| {
            TextError::new(
                "`*`, or an origin without a path such as https://shop.example or http://localhost:*",
                text,
            )
        })
    }

    fn parse_pattern(text: &str) -> Option<Origin> {
        let (scheme, authority) = text.split_once("://")?;
        let (host, port) = split_port(authority);
        let host = match host {
            "*" => None,
            host => Some(Hostname::parse(host).ok()?),
        };
        let port = match port {
            None => OriginPort::Default,
            Some("*") => OriginPort::Any,
            Some(port) => OriginPort::Number(port.parse().ok().filter(|port| *port > 0)?),
        };
        is_scheme(scheme).then(|| Origin::Of {
            scheme: scheme.to_ascii_lowercase().into(),
            host,
            port,
        })
    }

    /// Returns whether this pattern matches the origin of a request.
    pub(crate) fn matches(&self, origin: &SerializedOrigin<'_>) -> bool {
        match self {
            Origin::Any => true,
            Origin::Of { scheme, host, port } => {
                let default = default_port(scheme);
                let origin_port = origin.port.or(default);
                &**scheme == origin.scheme
                    && host.as_ref().is_none_or(|host| host.matches(&origin.host))
                    && match port {
                        OriginPort::Default => origin_port == default,
                        OriginPort::Number(port) => origin_port == Some(*port),
                        OriginPort::Any => true,
                    }
            }
        }
    }
}

/// The origin of a request (RFC 6454 §6.2). `null` is none.
pub(crate) struct SerializedOrigin<'o> {
    scheme: &'o str,
    /// In lower case.
    host: Cow<'o, str>,
    port: Option<u16>,
}

impl<'o> SerializedOrigin<'o> {
    pub(crate) fn parse(text: &'o str) -> Option<SerializedOrigin<'o>> {
        let (scheme, authority) = text.split_once("://")?;
        let (host, port) = split_port(authority);
        let port = match port {
            None => None,
            Some(port) => Some(port.parse().ok()?),
        };
        (is_scheme(scheme) && is_host(host)).then(|| SerializedOrigin {
            scheme,
            host: if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
                host.to_ascii_lowercase().into()
            } else {
                // Browsers send it in lower case.
                host.into()
            },
            port,
        })
    }
}

/// Splits off the port, which follows the brackets of an IPv6 address.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Returns whether a text is a scheme (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(byte)
}

/// Returns whether a text is a host as browsers serialize it: labels of letters, digits, `-` and `_`, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']').unwrap_or_default();
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = text.strip_suffix('.').unwrap_or(text);
    name.split('.')
        .all(|label| !label.is_empty() && label.bytes().all(byte))
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}
