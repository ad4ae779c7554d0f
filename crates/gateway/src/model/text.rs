//! Texts that are validated once, when they are parsed: names, hostnames, paths, headers, expressions, networks, secrets.
//!
//! The types guarantee their syntax, so that no reader checks it again. They know nothing of their uses.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use ringmain_web::path;

use crate::limits;

/// A syntax error of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct TextError {
    /// The expected form.
    pub expected: String,
    /// The actual text, shortened to 80 bytes.
    pub found: String,
}

impl TextError {
    pub(super) fn new(expected: impl Into<String>, found: &str) -> TextError {
        let mut end = found.len().min(80);
        while !found.is_char_boundary(end) {
            end -= 1;
        }
        let ellipsis = if end < found.len() { "…" } else { "" };
        TextError {
            expected: expected.into(),
            found: format!("`{}{ellipsis}`", found[..end].escape_debug()),
        }
    }
}

/// The name by which the parts of a configuration refer to each other. It identifies state that survives a reload (connections, health,
/// affinity).
pub type Name = Arc<str>;

/// A host of requests: `shop.example`, or `*.shop.example` for all hosts below it, at any depth, but not the host itself.
///
/// In lower case, without a port and a trailing dot. An IP address has the form that it has in a URL (`[::1]`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(Arc<str>);

impl Hostname {
    /// Parses a hostname.
    ///
    /// # Errors
    /// It is longer than [`limits::HOSTNAME_BYTES`], has characters other than letters, digits, `-`, `_` and dots between labels, or a `*`
    /// that is not the whole first label.
    pub fn parse(text: &str) -> Result<Hostname, TextError> {
        let expected = "a hostname such as shop.example, or *.shop.example";
        let fault = || TextError::new(expected, text);
        if let Some(address) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address: std::net::Ipv6Addr = address.parse().map_err(|_| fault())?;
            return Ok(Hostname(format!("[{address}]").into()));
        }
        let host = text.strip_suffix('.').unwrap_or(text);
        let labels = host.strip_prefix("*.").unwrap_or(host);
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if host.len() > limits::HOSTNAME_BYTES || !labels.split('.').all(label) {
            return Err(fault());
        }
        Ok(Hostname(host.to_ascii_lowercase().into()))
    }

    /// Returns the hostname in lower case, with `*.` if it is a wildcard.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the suffix of a wildcard's hosts, with the dot: `.shop.example`. `None`: it is not a wildcard.
    #[must_use]
    pub fn wildcard_suffix(&self) -> Option<&str> {
        self.0.strip_prefix('*')
    }

    /// Returns whether it matches `host`, which must be in lower case, without a port and a trailing dot.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self.wildcard_suffix() {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => host == &*self.0,
        }
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path in the form of [`ringmain_web::path`]: escapes decoded, no dot segments, no repeated slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<str>);

impl Path {
    /// Parses a path, which may have escapes and another form than the normal one.
    ///
    /// # Errors
    /// It does not begin with `/`, has a query, is longer than [`limits::PATH_BYTES`] or has no normal form.
    pub fn parse(text: &str) -> Result<Path, TextError> {
        if text.len() > limits::PATH_BYTES {
            let expected = format!("a path of at most {} bytes", limits::PATH_BYTES);
            return Err(TextError::new(expected, text));
        }
        if !text.starts_with('/') || text.contains(['?', '#']) {
            return Err(TextError::new(
                "a path that begins with `/`, without `?` and `#`",
                text,
            ));
        }
        let mut scratch = String::new();
        match path::normalise(text, &mut scratch) {
            Ok(path) => Ok(Path(path.into())),
            Err(fault) => Err(TextError::new(format!("a path ({fault})"), text)),
        }
    }

    /// Returns the path `/`.
    #[must_use]
    pub fn root() -> Path {
        Path("/".into())
    }

    /// Returns the path in normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A header name. Compared case-insensitively, sent as written.
#[derive(Clone, Debug)]
pub struct HeaderName(Arc<str>);

impl HeaderName {
    /// Parses a header name.
    ///
    /// # Errors
    /// It is empty, longer than [`limits::HEADER_NAME_BYTES`], or not a token (RFC 9110 §5.6.2).
    pub fn parse(text: &str) -> Result<HeaderName, TextError> {
        if text.is_empty() || text.len() > limits::HEADER_NAME_BYTES || !text.bytes().all(is_token_byte) {
            return Err(TextError::new(
                "a header's name: letters, digits and hyphens",
                text,
            ));
        }
        Ok(HeaderName(text.into()))
    }

    /// Returns the name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for HeaderName {
    fn eq(&self, other: &HeaderName) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for HeaderName {}

/// A header value: visible characters, spaces and tabs, without spaces at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderValue(Arc<str>);

impl HeaderValue {
    /// Parses a header value.
    ///
    /// # Errors
    /// It is longer than [`limits::HEADER_VALUE_BYTES`], or has control characters or a space at either end (RFC 9110 §5.5).
    pub fn parse(text: &str) -> Result<HeaderValue, TextError> {
        let control = |byte: u8| byte != b'\t' && (byte < b' ' || byte == 0x7f);
        let trimmed = text.trim_matches([' ', '\t']);
        if text.len() > limits::HEADER_VALUE_BYTES || text.bytes().any(control) || trimmed != text {
            let expected = "a header's value: no control characters, no space at either end";
            return Err(TextError::new(expected, text));
        }
        Ok(HeaderValue(text.into()))
    }

    /// Returns the value as sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A request method: a token, by convention in upper case; case-sensitive (RFC 9110 §9.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MethodName(Arc<str>);

impl MethodName {
    /// Parses a method.
    ///
    /// # Errors
    /// It is empty, longer than 32 bytes, not a token, or has lower-case letters, which no method in use has.
    pub fn parse(text: &str) -> Result<MethodName, TextError> {
        let is_valid = |byte: u8| is_token_byte(byte) && !byte.is_ascii_lowercase();
        if text.is_empty() || text.len() > 32 || !text.bytes().all(is_valid) {
            return Err(TextError::new("a method in capital letters, such as GET", text));
        }
        Ok(MethodName(text.into()))
    }

    /// Returns the method as in a request.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A regular expression that a whole text must match, from its first to its last byte; Unicode-aware, in linear time.
///
/// Two patterns are equal if their texts are.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    regex: Arc<Regex>,
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// It is malformed, or its text or its compiled form exceeds the [`limits`].
    pub fn parse(text: &str) -> Result<Pattern, TextError> {
        if text.len() > limits::PATTERN_BYTES {
            let expected = format!("an expression of at most {} bytes", limits::PATTERN_BYTES);
            return Err(TextError::new(expected, text));
        }
        // Compiles the text alone first, so that no parenthesis in it can close the group around it.
        let build = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(limits::PATTERN_COMPILED_BYTES)
                .dfa_size_limit(limits::PATTERN_CACHE_BYTES)
                .build()
        };
        let fault = |error: &regex::Error| {
            if let regex::Error::CompiledTooBig(_) = error {
                let max_kib = limits::PATTERN_COMPILED_BYTES / 1024;
                let expected = format!(
                    "an expression of at most {max_kib} KiB once compiled (repeat less, and smaller classes: `[0-9]` for `\\d`, \
                     `[0-9A-Za-z_]` for `\\w`)"
                );
                return TextError::new(expected, text);
            }
            let reason = error.to_string();
            let reason = reason.trim_end().lines().last().unwrap_or_default();
            TextError::new(
                format!("an expression ({})", reason.trim_start_matches("error: ")),
                text,
            )
        };
        build(text).map_err(|error| fault(&error))?;
        let regex = build(&format!(r"\A(?:{text})\z")).map_err(|error| fault(&error))?;
        Ok(Pattern {
            text: text.into(),
            regex: Arc::new(regex),
        })
    }

    /// Returns the text of the expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Parses `10.0.0.0/8`, `fd00::/8`, or an address alone.
    ///
    /// # Errors
    /// It is none of these, or has bits set after the prefix: `10.0.0.1/8` is usually a mistake.
    pub fn parse(text: &str) -> Result<Network, TextError> {
        let fault = || TextError::new("a network such as 10.0.0.0/8 or fd00::/8, or one address", text);
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| fault())?
            }
            Some(_) => return Err(fault()),
            None => width,
        };
        let network = Network { address, bits };
        let host_bits = u32::from(width.checked_sub(bits).ok_or_else(fault)?);
        if number(address) & !mask(host_bits) != 0 {
            return Err(TextError::new("a network whose other bits are zero", text));
        }
        Ok(network)
    }

    /// Returns the first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix, bits.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns whether the network contains `address`. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) counts as the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_ipv4() != self.address.is_ipv4() {
            return false;
        }
        let width = if address.is_ipv4() { 32 } else { 128 };
        (number(address) ^ number(self.address)) & mask(width - u32::from(self.bits)) == 0
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Returns a mask without the lowest `host_bits` bits.
fn mask(host_bits: u32) -> u128 {
    u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Bytes that no log and no dump may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Wraps the bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Secret {
        Secret(bytes.into())
    }

    /// Returns the bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}
