//! `Set-Cookie`: a cookie that no client rejects or misreads, or an error with the reason.

use std::time::Duration;

use crate::http::date;
use crate::http::error::{Error, Result};
use crate::limits;

/// The cross-site requests with which a client sends a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// None.
    Strict,
    /// Links that the user follows.
    Lax,
    /// All; the cookie must be [`secure`](SetCookie::secure).
    None,
}

/// A cookie to set. Defaults: `HttpOnly`, `SameSite=Lax`, `Path=/`, without expiry (until the client ends).
///
/// Its parts are validated when it is written. Nothing is allocated.
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

/// The reason why a cookie was not written: a mistake of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CookieFault {
    /// The name is not a token (RFC 9110 §5.6.2).
    #[error("a cookie's name is one or more letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// The value has a byte that is not a cookie-octet.
    #[error(
        "a cookie's value is visible ASCII without quotation mark, comma, semicolon and backslash: escape or encode it"
    )]
    Value,
    /// The path does not begin with `/`, or has a semicolon or a character that is not visible ASCII.
    #[error("a cookie's path begins with `/` and is visible ASCII without semicolon")]
    Path,
    /// The domain is not a host name.
    #[error("a cookie's domain is a host name of letters, digits, hyphens and dots")]
    Domain,
    /// Name and value, or an attribute, exceed the limits of clients.
    #[error("a cookie's name and value have at most 4096 bytes together, its path and domain 1024 each")]
    TooLong,
    /// The name begins with `__Secure-` or `__Host-`, or the cookie is partitioned or `SameSite=None`, but it is not secure.
    #[error("a cookie that is partitioned, SameSite=None, or named __Secure-… or __Host-… must be secure")]
    NotSecure,
    /// The name begins with `__Host-` and the cookie has a domain or another path than `/`.
    #[error("a cookie named __Host-… has the path `/` and no domain")]
    NotOfHost,
}

impl<'a> SetCookie<'a> {
    /// Returns a cookie with this name and value.
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

    /// Returns a cookie that removes the one with this name. Path and domain must be those that it was set with.
    pub const fn removal(name: &'a str) -> SetCookie<'a> {
        SetCookie::new(name, "")
            .max_age(Duration::ZERO)
            .expires(Duration::ZERO)
    }

    /// Limits the cookie to requests below this path; `None`: below the directory of the request's own path.
    pub const fn path(mut self, path: Option<&'a str>) -> Self {
        self.path = path;
        self
    }

    /// Extends the cookie to all hosts below this domain; by default it is for the requested host only.
    pub const fn domain(mut self, domain: &'a str) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets `Max-Age`, in whole seconds. Clients limit it to 400 days.
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Sets `Expires`, since 1970-01-01. `Max-Age` has precedence.
    pub const fn expires(mut self, since_epoch: Duration) -> Self {
        self.expires = Some(since_epoch);
        self
    }

    /// Restricts the cookie to TLS.
    pub const fn secure(mut self, secure: bool) -> Self {
        self.secure = secure;
        self
    }

    /// Hides the cookie from scripts.
    pub const fn http_only(mut self, http_only: bool) -> Self {
        self.http_only = http_only;
        self
    }

    /// Sets the cross-site requests with which it is sent; `None` leaves the choice to the client.
    pub const fn same_site(mut self, same_site: Option<SameSite>) -> Self {
        self.same_site = same_site;
        self
    }

    /// Stores the cookie separately for each site that embeds this one.
    pub const fn partitioned(mut self, partitioned: bool) -> Self {
        self.partitioned = partitioned;
        self
    }

    /// Appends the value of a `Set-Cookie` field.
    ///
    /// # Errors
    /// 500 with a [`CookieFault`] for the log; `out` is then unchanged.
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
            add([
                b"; Max-Age=",
                crate::http::client_text::decimal(&mut digits, age.as_secs()),
            ]);
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
        let limit = limits::COOKIE_ATTRIBUTE_BYTES;
        if self.name.len() + self.value.len() > limits::COOKIE_BYTES
            || [self.path, self.domain]
                .into_iter()
                .flatten()
                .any(|text| text.len() > limit)
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
        // Clients compare the prefixes without case (RFC 6265bis §4.1.3).
        let has_prefix = |prefix: &str| {
            self.name
                .get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        let of_host = has_prefix("__Host-");
        let for_all = self.same_site == Some(SameSite::None);
        if (of_host || has_prefix("__Secure-") || self.partitioned || for_all) && !self.secure {
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
