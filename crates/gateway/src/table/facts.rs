//! What routing knows of a request, and whether a match holds for it.

use ringmain_web::query;
use ringmain_wire::h1::Fields;

use crate::limits;
use crate::model::{HeaderMatch, Match, PathMatch, QueryMatch, ValueMatch};

/// A request, as far as it decides where it goes.
#[derive(Clone, Copy)]
pub struct RequestFacts<'a> {
    /// The host that it names, in the form of [`host`]: lower case, no port. Empty: it names none.
    pub host: &'a str,
    /// Its path, in the form of [`ringmain_web::path`].
    pub path: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Its query, as it came, without the question mark. Empty: it has none.
    pub query: &'a str,
    /// Its headers.
    pub headers: Headers<'a>,
}

/// Headers of a request, wherever they are kept.
#[derive(Clone, Copy)]
pub enum Headers<'a> {
    /// As HTTP/1.1 brought them.
    Fields(Fields<'a>),
    /// Names in any case, and values.
    List(&'a [(&'a str, &'a [u8])]),
}

impl<'a> Headers<'a> {
    /// The first value of a header.
    pub(super) fn first(&self, name: &str) -> Option<&'a [u8]> {
        match self {
            Headers::Fields(fields) => fields.all(name).next(),
            Headers::List(list) => list
                .iter()
                .find_map(|(other, value)| other.eq_ignore_ascii_case(name).then_some(*value)),
        }
    }

    fn any(&self, name: &str, mut test: impl FnMut(&[u8]) -> bool) -> bool {
        match self {
            Headers::Fields(fields) => fields.all(name).any(test),
            Headers::List(list) => list
                .iter()
                .any(|(other, value)| other.eq_ignore_ascii_case(name) && test(value)),
        }
    }
}

/// The host of an authority (`Shop.Example.:8080`) as it is compared: in lower case, without port and final dot. What is in
/// that form already is returned as it is; else `scratch` is written to.
pub fn host<'a>(authority: &'a str, scratch: &'a mut String) -> &'a str {
    let end = match authority.rfind([':', ']']) {
        Some(at) if authority.as_bytes()[at] == b':' => at,
        _ => authority.len(),
    };
    let host = &authority[..end];
    let host = host.strip_suffix('.').unwrap_or(host);
    if !host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return host;
    }
    scratch.clear();
    scratch.push_str(host);
    scratch.make_ascii_lowercase();
    scratch
}

/// Whether path and all else hold.
pub(super) fn holds(found: &Match, facts: &RequestFacts<'_>) -> bool {
    path_holds(&found.path, facts.path) && predicates_hold(found, facts)
}

/// Whether method, headers and query hold.
pub(super) fn predicates_hold(found: &Match, facts: &RequestFacts<'_>) -> bool {
    found
        .method
        .as_ref()
        .is_none_or(|method| method.as_str() == facts.method)
        && found.headers.iter().all(|header| header_holds(header, facts))
        && found.query.iter().all(|parameter| query_holds(parameter, facts))
}

/// Whether a path is one of those.
pub(super) fn path_holds(found: &PathMatch, path: &str) -> bool {
    match found {
        PathMatch::Exact(exact) => exact.as_str() == path,
        PathMatch::Prefix(prefix) => {
            let rest = path.strip_prefix(trimmed(prefix.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Pattern(pattern) => pattern.matches(path.as_bytes()),
    }
}

/// A prefix without a slash at its end, which says nothing.
pub(super) fn trimmed(prefix: &str) -> &str {
    prefix.strip_suffix('/').unwrap_or(prefix)
}

/// Whether a header is there as it must be.
pub(super) fn header_holds(found: &HeaderMatch, facts: &RequestFacts<'_>) -> bool {
    facts
        .headers
        .any(found.name.as_str(), |value| match &found.value {
            ValueMatch::Present => true,
            ValueMatch::Exact(text) => text.as_bytes() == value,
            ValueMatch::Pattern(pattern) => pattern.matches(value),
        })
}

/// Whether a parameter is there as it must be.
pub(super) fn query_holds(found: &QueryMatch, facts: &RequestFacts<'_>) -> bool {
    let pairs = facts.query.as_bytes().split(|&byte| byte == b'&');
    let mut pairs = pairs.filter(|pair| !pair.is_empty()).map(query::halves);
    pairs.any(|(name, value)| {
        query::bytes(name).eq(found.name.bytes())
            && match &found.value {
                ValueMatch::Present => true,
                ValueMatch::Exact(text) => query::bytes(value).eq(text.bytes()),
                ValueMatch::Pattern(pattern) => decoded(value, |value| pattern.matches(value)),
            }
    })
}

/// Without an allocation, hence the limit.
fn decoded(value: &[u8], test: impl FnOnce(&[u8]) -> bool) -> bool {
    let mut buffer = [0; limits::PATTERN_VALUE_BYTES];
    let mut length = 0;
    for byte in query::bytes(value) {
        let Some(place) = buffer.get_mut(length) else {
            return false;
        };
        *place = byte;
        length += 1;
    }
    test(&buffer[..length])
}
