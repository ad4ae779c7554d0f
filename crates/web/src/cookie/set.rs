//! `Set-Cookie`: a cookie that is not refused or misread by any client, or an error that says why.

use std::time::Duration;

use crate::date;
use crate::error::{Error, Result};
use crate::limits;

/// When a client sends a cookie with requests that other sites caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Never.
    Strict,
    /// With links that people follow.
    Lax,
    /// Always; the cookie must be [`secure`](SetCookie::secure).
    None,
}

/// A cookie to set: `HttpOnly`, `SameSite=Lax`, `Path=/` and until the client ends, unless it says otherwise.
///
/// Its parts are checked when it is written. Nothing is allocated.
#[derive(Clone, Copy, Debug)]
#[must_use = "a cookie does nothing until it is written to a reply"]
pub struct SetCookie<'a> {
    name: &'a str,
    value: &'a str,
    path: Option<&'a str>,
    domain: Option<&'a str>,
    max_age: Option<Duration>,
    expires: Option<Duration>,
    secure: bool,
    http_only: bool,
    same_site: Option<SameSite>,
    partitioned: bool,
}

/// Why a cookie was not written: the application's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CookieFault {
    /// The name is no token (RFC 9110 §5.6.2).
    #[error("a cookie's name is one or more letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// The value has a byte that is no cookie-octet.
    #[error(
        "a cookie's value is visible ASCII without quotation mark, comma, semicolon and backslash: escape or encode it"
    )]
    Value,
    /// The path does not begin with `/`, or has a semicolon or a character that is not visible ASCII.
    #[error("a cookie's path begins with `/` and is visible ASCII without semicolon")]
    Path,
    /// The domain is no host name.
    #[error("a cookie's domain is a host name of letters, digits, hyphens and dots")]
    Domain,
    /// Name and value, or an attribute, are longer than clients keep.
    #[error("a cookie's name and value have at most 4096 bytes together, its path and domain 1024 each")]
    TooLong,
    /// The name begins with `__Secure-` or `__Host-`, the cookie is partitioned or for all sites, and it is not
    /// secure.
    #[error("a cookie that is partitioned, SameSite=None, or named __Secure-… or __Host-… must be secure")]
    NotSecure,
    /// The name begins with `__Host-` and the cookie has a domain or another path than `/`.
    #[error("a cookie named __Host-… has the path `/` and no domain")]
    NotOfHost,
}

impl<'a> SetCookie<'a> {
    /// A cookie of this name and value.
    pub const fn new(name: &'a str, value: &'a str) -> SetCookie<'a> {
        SetCookie {
            name,
            value,
            path: Some("/"),
            domain: None,
            max_age: None,
            expires: None,
            secure: false,
            http_only: true,
            same_site: Some(SameSite::Lax),
            partitioned: false,
        }
    }

    /// Makes the client forget the cookie of this name. Path and domain must be those that it was set with.
    pub const fn removal(name: &'a str) -> SetCookie<'a> {
        SetCookie::new(name, "")
            .max_age(Duration::ZERO)
            .expires(Duration::ZERO)
    }

    /// For requests below this path only; `None`: below the directory of the request's own path.
    pub const fn path(mut self, path: Option<&'a str>) -> Self {
        self.path = path;
        self
    }

    /// Also for all hosts below this domain; without it for the host only that was asked.
    pub const fn domain(mut self, domain: &'a str) -> Self {
        self.domain = Some(domain);
        self
    }

    /// For so long, in whole seconds. Clients keep none for more than 400 days.
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Until this time since 1970-01-01. A maximal age has precedence.
    pub const fn expires(mut self, since_epoch: Duration) -> Self {
        self.expires = Some(since_epoch);
        self
    }

    /// Over TLS only.
    pub const fn secure(mut self, secure: bool) -> Self {
        self.secure = secure;
        self
    }

    /// Not for scripts.
    pub const fn http_only(mut self, http_only: bool) -> Self {
        self.http_only = http_only;
        self
    }

    /// Which requests that other sites cause it is sent with; `None` leaves it to the client.
    pub const fn same_site(mut self, same_site: Option<SameSite>) -> Self {
        self.same_site = same_site;
        self
    }

    /// In a jar of its own for each site that embeds this one.
    pub const fn partitioned(mut self, partitioned: bool) -> Self {
        self.partitioned = partitioned;
        self
    }

    /// Appends the value of a `Set-Cookie` field.
    ///
    /// # Errors
    /// 500 with a [`CookieFault`] for the log; `out` is as before.
    pub fn write(&self, out: &mut Vec<u8>) -> Result {
        self.check().map_err(Error::internal)?;
        let mut add = |parts: [&[u8]; 2]| out.extend(parts.into_iter().flatten());
        add([self.name.as_bytes(), b"="]);
        add([self.value.as_bytes(), b""]);
        if let Some(path) = self.path {
            add([b"; Path=", path.as_bytes()]);
        }
        if let Some(domain) = self.domain {
            add([b"; Domain=", domain.as_bytes()]);
        }
        if let Some(age) = self.max_age {
            let mut digits = [0; 20];
            add([b"; Max-Age=", crate::text::decimal(&mut digits, age.as_secs())]);
        }
        if let Some(time) = self.expires {
            add([b"; Expires=", &date::http_date(time)]);
        }
        if self.secure {
            add([b"; Secure", b""]);
        }
        if self.http_only {
            add([b"; HttpOnly", b""]);
        }
        if let Some(same_site) = self.same_site {
            let name: &[u8] = match same_site {
                SameSite::Strict => b"Strict",
                SameSite::Lax => b"Lax",
                SameSite::None => b"None",
            };
            add([b"; SameSite=", name]);
        }
        if self.partitioned {
            add([b"; Partitioned", b""]);
        }
        Ok(())
    }

    fn check(&self) -> std::result::Result<(), CookieFault> {
        let long = limits::COOKIE_ATTRIBUTE_BYTES;
        if self.name.len() + self.value.len() > limits::COOKIE_BYTES
            || [self.path, self.domain]
                .into_iter()
                .flatten()
                .any(|text| text.len() > long)
        {
            return Err(CookieFault::TooLong);
        }
        if self.name.is_empty() || !self.name.bytes().all(is_token) {
            return Err(CookieFault::Name);
        }
        if !self.value.bytes().all(is_cookie_octet) {
            return Err(CookieFault::Value);
        }
        let is_path = |path: &str| {
            path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
        };
        if !self.path.is_none_or(is_path) {
            return Err(CookieFault::Path);
        }
        if !self.domain.is_none_or(is_domain) {
            return Err(CookieFault::Domain);
        }
        // Clients compare the prefixes in any case (RFC 6265bis §4.1.3).
        let named = |prefix: &str| {
            self.name
                .get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        let of_host = named("__Host-");
        let for_all = self.same_site == Some(SameSite::None);
        if (of_host || named("__Secure-") || self.partitioned || for_all) && !self.secure {
            return Err(CookieFault::NotSecure);
        }
        if of_host && (self.path != Some("/") || self.domain.is_some()) {
            return Err(CookieFault::NotOfHost);
        }
        Ok(())
    }
}

/// `tchar` (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 6265bis §4.1.1.
fn is_cookie_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        let inner = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    domain.split('.').all(is_label)
}
