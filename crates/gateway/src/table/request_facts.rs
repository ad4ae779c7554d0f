//! The properties of a request that routing uses, and the evaluation of matches.

use ringmain_web::query;
use ringmain_wire::h1::Fields;

use crate::limits;
use crate::model::{HeaderMatch, Match, PathMatch, QueryMatch, ValueMatch};

/// The properties of a request that routing uses.
#[derive(Clone, Copy)]
pub struct RequestFacts<'a> {
    /// The host, in the form of [`normalize_host`](super::normalize_host): lower case, no port. Empty: the request has none.
    pub host: &'a str,
    /// The path, in the form of [`ringmain_web::path`].
    pub path: &'a str,
    /// The method.
    pub method: &'a str,
    /// The query as received, without the question mark. Empty: the request has none.
    pub query: &'a str,
    /// The headers.
    pub headers: Headers<'a>,
}

/// Headers of a request, in either representation.
#[derive(Clone, Copy)]
pub enum Headers<'a> {
    /// Parsed from HTTP/1.1.
    Fields(Fields<'a>),
    /// Pairs of a name, in any case, and a value.
    List(&'a [(&'a str, &'a [u8])]),
}

impl<'a> Headers<'a> {
    /// Returns the first value of a header.
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

/// Returns the host of an authority (`Shop.Example.:8080`) in the form for comparison: lower case, without port and final dot. A host that
/// is in that form already is returned as it is; else `scratch` is overwritten.
pub fn normalize_host<'a>(authority: &'a str, scratch: &'a mut String) -> &'a str {
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

/// Returns whether the path and all other conditions match.
pub(super) fn matches_all(found: &Match, facts: &RequestFacts<'_>) -> bool {
    matches_path(&found.path, facts.path) && matches_predicates(found, facts)
}

/// Returns whether method, headers and query match.
pub(super) fn matches_predicates(found: &Match, facts: &RequestFacts<'_>) -> bool {
    found
        .method
        .as_ref()
        .is_none_or(|method| method.as_str() == facts.method)
        && found
            .headers
            .iter()
            .all(|header| matches_header(header, &facts.headers))
        && found
            .query
            .iter()
            .all(|parameter| matches_query(parameter, facts))
}

/// Returns whether the path matches.
pub(super) fn matches_path(found: &PathMatch, path: &str) -> bool {
    match found {
        PathMatch::Exact(exact) => exact.as_str() == path,
        PathMatch::Prefix(prefix) => {
            let rest = path.strip_prefix(trim_final_slash(prefix.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Pattern(pattern) => pattern.matches(path.as_bytes()),
    }
}

/// Returns a prefix without a final slash, which has no meaning.
pub(super) fn trim_final_slash(prefix: &str) -> &str {
    prefix.strip_suffix('/').unwrap_or(prefix)
}

/// Returns whether a header condition matches.
pub(crate) fn matches_header(found: &HeaderMatch, headers: &Headers<'_>) -> bool {
    headers.any(found.name.as_str(), |value| match &found.value {
        ValueMatch::Present => true,
        ValueMatch::Exact(text) => text.as_bytes() == value,
        ValueMatch::Pattern(pattern) => pattern.matches(value),
    })
}

/// Returns whether a query condition matches.
pub(super) fn matches_query(found: &QueryMatch, facts: &RequestFacts<'_>) -> bool {
    let pairs = facts.query.as_bytes().split(|&byte| byte == b'&');
    let mut pairs = pairs.filter(|pair| !pair.is_empty()).map(query::halves);
    pairs.any(|(name, value)| {
        query::bytes(name).eq(found.name.bytes())
            && match &found.value {
                ValueMatch::Present => true,
                ValueMatch::Exact(text) => query::bytes(value).eq(text.bytes()),
                ValueMatch::Pattern(pattern) => test_decoded(value, |value| pattern.matches(value)),
            }
    })
}

/// Decodes a parameter without allocating, hence the limit of its length.
fn test_decoded(value: &[u8], test: impl FnOnce(&[u8]) -> bool) -> bool {
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
