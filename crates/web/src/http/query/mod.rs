//! Names and values of a query string or a form (`application/x-www-form-urlencoded`, WHATWG URL §5).
//!
//! Stricter than browsers: an invalid escape or invalid UTF-8 is rejected, not repaired, so that a check and the code behind it
//! read the same values. Knows no request: the code that makes a [`Query`] knows the source of the bytes.

mod decode;
mod explain;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::http::client_text;
use crate::http::error::{Error, Result};
use crate::http::expected_type;
use crate::http::media_type;
use crate::limits;
pub use decode::{bytes, halves};

/// The pairs of a query string or a form, checked once and decoded on access.
///
/// A name without `=` has an empty value. Empty pieces (`a=1&&b=2`) are not pairs. Only values with escapes are allocated.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    raw: &'a [u8],
    kind: PairSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairSource {
    Query,
    Form,
}

impl PairSource {
    /// Returns the term for a pair.
    fn pair(self) -> &'static str {
        match self {
            PairSource::Query => "query parameter",
            PairSource::Form => "form field",
        }
    }
}

impl<'a> Query<'a> {
    /// Parses a query string, without its question mark.
    ///
    /// # Errors
    /// 400 with the position: an invalid escape, text that is not UTF-8, more than [`limits::QUERY_PAIRS`] pairs.
    pub fn new(raw: &'a str) -> Result<Query<'a>> {
        Query::checked(raw.as_bytes(), PairSource::Query)
    }

    /// Parses a form: a whole body and its `Content-Type`.
    ///
    /// # Errors
    /// 415 unless the type is [`media_type::FORM`]; 400 as for [`new`](Self::new).
    pub fn form(content_type: Option<&[u8]>, body: &'a [u8]) -> Result<Query<'a>> {
        let found = content_type.unwrap_or_default();
        if media_type::essence(found).eq_ignore_ascii_case(media_type::FORM.as_bytes()) {
            return Query::checked(body, PairSource::Form);
        }
        let found = match content_type {
            Some(value) => format!("`{}`", client_text::escape_value(value)),
            None => "none".into(),
        };
        Err(Error::new(
            415,
            format!("expected the content type `{}`, found {found}", media_type::FORM),
        ))
    }

    fn checked(raw: &'a [u8], kind: PairSource) -> Result<Query<'a>> {
        let pairs = raw.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
        let pairs = pairs.count();
        if pairs > limits::QUERY_PAIRS {
            return Err(Error::bad_request(format!(
                "expected at most {} {}s, found {pairs}",
                limits::QUERY_PAIRS,
                kind.pair()
            )));
        }
        match decode::check(raw) {
            Ok(()) => Ok(Query { raw, kind }),
            Err(fault) => Err(Error::bad_request(format!(
                "{} {}: {fault} (byte {} of the input)",
                kind.pair(),
                fault.pair,
                fault.at
            ))),
        }
    }

    /// Returns all pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        self.pairs()
            .map(|(name, value)| (decode::text(name), decode::text(value)))
    }

    /// Returns the first value with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        self.raw_values(name).next().map(decode::text)
    }

    /// Returns all values with this name in order.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'a, str>> + use<'a, 'n> {
        self.raw_values(name).map(decode::text)
    }

    /// Parses the value with this name as a `T`; `None` if the name is absent.
    ///
    /// # Errors
    /// 400 that names the parameter: its text does not parse, or it is repeated.
    pub fn parse<T>(&self, name: &str) -> Result<Option<T>>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        let mut values = self.raw_values(name);
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let further = values.count();
        if further > 0 {
            return Err(Error::bad_request(format!(
                "{} `{name}`: expected it once, found it {} times",
                self.kind.pair(),
                further + 1
            )));
        }
        let value = decode::text(value);
        match value.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let (pair, found) = (self.kind.pair(), client_text::truncate(&value));
                Err(Error::bad_request(match expected_type::describe::<T>() {
                    Some(expected) => format!("{pair} `{name}`: expected {expected}, found `{found}`"),
                    // An application's own type describes the expected value itself.
                    None => format!("{pair} `{name}`: {error}, found `{found}`"),
                }))
            }
        }
    }

    /// Parses all pairs into a struct or map; a repeated name fills a sequence. Allocates a map of the pairs in addition to the
    /// allocations of `T`.
    ///
    /// # Errors
    /// 400 that names the parameter that is missing, of another type, or repeated more often than its type allows.
    pub fn read<T: Deserialize<'a>>(&self) -> Result<T> {
        if let Ok(value) = serde_html_form::from_bytes(self.raw) {
            return Ok(value);
        }
        // Only an invalid query is parsed again, to locate the error.
        let refuse = |path: &str, problem: &str| {
            let path = match path {
                "." => String::new(),
                _ => format!(" `{}`", client_text::truncate(path)),
            };
            Error::bad_request(format!(
                "{}{path}: {}",
                self.kind.pair(),
                client_text::truncate(problem)
            ))
        };
        if let Some((path, problem)) = explain::fault::<T>(self.raw) {
            return Err(refuse(&path, &problem));
        }
        let parser = serde_html_form::Deserializer::from_bytes(self.raw);
        serde_path_to_error::deserialize(parser)
            .map_err(|error| refuse(&error.path().to_string(), &error.inner().to_string()))
    }

    fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let pairs = self.raw.split(|&byte| byte == b'&');
        pairs.filter(|pair| !pair.is_empty()).map(decode::halves)
    }

    fn raw_values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.pairs()
            .filter(move |(key, _)| decode::bytes(key).eq(name.bytes()))
            .map(|(_, value)| value)
    }
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
