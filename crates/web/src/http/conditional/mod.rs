//! Conditional requests (RFC 9110 §13): evaluates the validators of a representation against a request, and writes the resulting
//! replies.
//!
//! Pure but for [`Reply::conditional`]. Knows neither files nor bodies.

use std::time::{Duration, SystemTime};

use ringmain_wire::h1::{Fields, Known, Method};

use crate::http::date::http_date;
use crate::http::error::Result;
use crate::http::reply::Reply;
use crate::http::request::Request;

/// The validators of the representation that a request selects (RFC 9110 §8.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    etag: Option<String>,
    modified: Option<Duration>,
}

/// The outcome of a request's preconditions, evaluated in the order of RFC 9110 §13.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The method is performed. `range`: a `Range` of the request may be answered with 206; `false`: `If-Range` names another
    /// representation, and the whole is sent.
    Proceed {
        /// See above.
        range: bool,
    },
    /// 304: the client has this representation.
    NotModified,
    /// 412: a condition failed, and nothing is done.
    Failed,
}

impl Validators {
    /// Returns the validators of a representation without any: `If-Match: *` holds, other conditions do not apply.
    #[must_use]
    pub const fn new() -> Validators {
        Validators {
            etag: None,
            modified: None,
        }
    }

    /// Sets the entity tag, as written in `ETag`: in quotes, weak ones with the prefix `W/`.
    #[must_use]
    pub fn etag(mut self, etag: impl Into<String>) -> Validators {
        self.etag = Some(etag.into());
        self
    }

    /// Sets the time of the last change, since 1970-01-01. HTTP dates have a resolution of one second.
    #[must_use]
    pub fn modified(mut self, since_epoch: Duration) -> Validators {
        self.modified = Some(Duration::from_secs(since_epoch.as_secs()));
        self
    }

    /// Evaluates the preconditions of a request.
    pub(crate) fn evaluate(&self, method: Method<'_>, fields: &Fields<'_>) -> Precondition {
        let reads = matches!(method, Method::Get | Method::Head);
        // Steps 1 and 2 of RFC 9110 §13.2.2.
        let is_current = match member(fields, "If-Match", |tag| self.is_strongly(tag)) {
            Some(found) => found,
            None => self.is_unchanged_since(single(fields, "If-Unmodified-Since")) != Some(false),
        };
        if !is_current {
            return Precondition::Failed;
        }
        // Steps 3 and 4.
        let matches_tag = match member(fields, Known::IfNoneMatch.name(), |tag| self.is_weakly(tag)) {
            Some(true) if !reads => return Precondition::Failed,
            Some(found) => found,
            None => {
                let date = single(fields, Known::IfModifiedSince.name());
                reads && self.is_unchanged_since(date) == Some(true)
            }
        };
        if matches_tag {
            return Precondition::NotModified;
        }
        // Step 5.
        let range = fields
            .get("If-Range")
            .is_none_or(|condition| self.is_same(condition.trim_ascii()));
        Precondition::Proceed { range }
    }

    /// Compares strongly (RFC 9110 §8.8.3.2): a weak tag never matches.
    fn is_strongly(&self, tag: &[u8]) -> bool {
        self.etag
            .as_deref()
            .is_some_and(|etag| !etag.starts_with("W/") && etag.as_bytes() == tag)
    }

    fn is_weakly(&self, tag: &[u8]) -> bool {
        self.etag
            .as_deref()
            .is_some_and(|etag| opaque(etag.as_bytes()) == opaque(tag))
    }

    /// Returns true if the last change is not after a date; `None` without an HTTP date, or without a known time of the last
    /// change.
    fn is_unchanged_since(&self, date: Option<&[u8]>) -> Option<bool> {
        let date = httpdate::parse_http_date(str::from_utf8(date?).ok()?).ok()?;
        let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(self.modified? <= since_epoch)
    }

    /// Compares exactly, a strong tag or the date (RFC 9110 §13.1.5).
    fn is_same(&self, condition: &[u8]) -> bool {
        match condition {
            [b'"', ..] => self.is_strongly(condition),
            [b'W', b'/', ..] => false,
            date => self.modified.is_some_and(|modified| http_date(modified) == date),
        }
    }
}

impl Request<'_> {
    /// Evaluates the request's preconditions (`If-Match`, `If-Unmodified-Since`, `If-None-Match`, `If-Modified-Since`, `If-Range`)
    /// against the representation that it selects. A handler that changes something evaluates them before it does.
    #[must_use]
    pub fn precondition(&self, validators: &Validators) -> Precondition {
        validators.evaluate(self.method(), &self.head.fields)
    }
}

impl Reply<'_> {
    /// Sets `ETag` and `Last-Modified`, and responds with 304 or 412 without content if the request's preconditions require it: the
    /// outcome tells the caller how to proceed. Also for `after` hooks, where the whole body is available.
    ///
    /// # Errors
    /// 500 if the entity tag is not a valid field value.
    pub fn conditional(&mut self, validators: &Validators) -> Result<Precondition> {
        if let Some(etag) = &validators.etag {
            self.header("ETag", etag)?;
        }
        if let Some(modified) = validators.modified {
            self.header("Last-Modified", http_date(modified))?;
        }
        let outcome = self.request.precondition(validators);
        match outcome {
            Precondition::Proceed { .. } => {}
            Precondition::NotModified => self.clear_content(304),
            Precondition::Failed => self.clear_content(412),
        }
        Ok(outcome)
    }
}

/// Returns the value of a singleton field; `None` if it is absent or repeated.
fn single<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = fields.all(name);
    values.next().filter(|_| values.next().is_none())
}

/// Returns the tag without the prefix of weak ones.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns true if a list of entity tags has one that `matches`, or is `*`; `None` without a field of this name. An invalid list has
/// no tags.
fn member(fields: &Fields<'_>, name: &str, matches: impl Fn(&[u8]) -> bool) -> Option<bool> {
    let mut found = None;
    for value in fields.all(name) {
        let value = value.trim_ascii();
        let is_listed = value == b"*" || EntityTags(value).any(&matches);
        found = Some(found == Some(true) || is_listed);
    }
    found
}

/// The entity tags of a list (RFC 9110 §8.8.3), up to the first invalid one. A comma within quotes is part of a tag.
struct EntityTags<'v>(&'v [u8]);

impl<'v> Iterator for EntityTags<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let start = self
            .0
            .iter()
            .position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let rest = &self.0[start..];
        let mark = if rest.starts_with(b"W/") { 2 } else { 0 };
        let inside = rest.get(mark..)?.strip_prefix(b"\"")?;
        let length = inside.iter().position(|&byte| byte == b'"')?;
        let (tag, behind) = rest.split_at(mark + length + 2);
        let after = behind.trim_ascii_start();
        self.0 = match after.first() {
            None | Some(b',') => after,
            Some(_) => &[],
        };
        Some(tag)
    }
}

#[cfg(test)]
mod tests;
