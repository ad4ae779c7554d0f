//! The four forms of a request target (RFC 9112 §3.2). Decodes nothing and normalises nothing.

use super::authority::Authority;
use super::fault::FaultKind;
use super::method::Method;

/// A request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`.
    Origin {
        /// Begins with `/`; percent-encoded as it came.
        path: &'a str,
        /// What follows the first `?`.
        query: Option<&'a str>,
    },
    /// `http://authority/path?query`.
    Absolute {
        /// `http` or `https`, in the case it came in.
        scheme: &'a str,
        /// Host and perhaps port; it overrides the `Host` field.
        authority: Authority<'a>,
        /// As in `Origin`; what an empty one means is said at [`Target::path`].
        path: &'a str,
        /// What follows the first `?`.
        query: Option<&'a str>,
    },
    /// `host:port`, of CONNECT only.
    Authority(Authority<'a>),
    /// `*`, of OPTIONS only.
    Asterisk,
}

impl<'a> Target<'a> {
    /// The path: `*` for the asterisk form and for `OPTIONS http://host` (RFC 9112 §3.2.4); `/` where an
    /// absolute form has none; empty for CONNECT.
    #[must_use]
    pub fn path(&self) -> &'a str {
        match *self {
            Self::Origin { path, .. } | Self::Absolute { path, .. } => path,
            Self::Authority(_) => "",
            Self::Asterisk => "*",
        }
    }

    /// What follows the first `?`.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        match *self {
            Self::Origin { query, .. } | Self::Absolute { query, .. } => query,
            Self::Authority(_) | Self::Asterisk => None,
        }
    }

    /// The authority that the target itself names.
    #[must_use]
    pub fn authority(&self) -> Option<Authority<'a>> {
        match *self {
            Self::Absolute { authority, .. } | Self::Authority(authority) => Some(authority),
            Self::Origin { .. } | Self::Asterisk => None,
        }
    }

    /// The form of almost every request; `None` for the others.
    #[inline]
    pub(crate) fn origin(method: Method<'_>, text: &'a str) -> Option<Self> {
        if !text.starts_with('/') || method == Method::Connect {
            return None;
        }
        let (path, query) = split_query(text);
        Some(Self::Origin { path, query })
    }

    /// Tells the forms apart. `text` is not empty and of `TARGET` characters. A failure names the offset.
    pub(super) fn parse(method: Method<'_>, text: &'a str) -> Result<Self, (FaultKind, usize)> {
        if method == Method::Connect {
            let authority = Authority::with_port(text.as_bytes());
            return authority
                .map(Self::Authority)
                .map_err(|at| (FaultKind::Authority, at));
        }
        if let Some(target) = Self::origin(method, text) {
            return Ok(target);
        }
        if text == "*" && method == Method::Options {
            return Ok(Self::Asterisk);
        }
        Self::absolute(method, text)
    }

    fn absolute(method: Method<'_>, text: &'a str) -> Result<Self, (FaultKind, usize)> {
        let (scheme, rest) = text.split_once("://").ok_or((FaultKind::TargetForm, 0))?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err((FaultKind::TargetForm, 0));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let at = scheme.len() + 3;
        let authority =
            Authority::new(authority.as_bytes()).map_err(|index| (FaultKind::Authority, at + index))?;
        let (path, query) = split_query(rest);
        let path = match path {
            "" if query.is_none() && method == Method::Options => "*",
            "" => "/",
            path => path,
        };
        Ok(Self::Absolute {
            scheme,
            authority,
            path,
            query,
        })
    }
}

#[inline]
fn split_query(text: &str) -> (&str, Option<&str>) {
    match text.as_bytes().iter().position(|&byte| byte == b'?') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}
