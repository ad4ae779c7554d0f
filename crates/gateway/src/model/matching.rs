//! The conditions under which a rule matches a request.

use super::{HeaderName, MethodName, Path, Pattern};

/// The conditions of a match, all of which a request must meet. Without conditions, the default, it matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The path. Default: every path.
    pub path: PathMatch,
    /// The method. Default: `None`, every method. `GET` does not match `HEAD`.
    pub method: Option<MethodName>,
    /// The headers, each of which must match.
    pub headers: Vec<HeaderMatch>,
    /// The query parameters, each of which must match.
    pub query: Vec<QueryMatch>,
}

/// A path, compared in the form of [`ringmain_web::path`], case-sensitively.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Matches this path: `/a` does not match `/a/`.
    Exact(Path),
    /// Matches this path and the paths below it, by whole segments: `/a` matches `/a/` and `/a/b`, not `/ab`. A trailing slash is ignored:
    /// `/a/` equals `/a`. `/` matches every path.
    Prefix(Path),
    /// Matches the whole path against a regular expression, to which an escaped slash is U+0000.
    Pattern(Pattern),
}

impl Default for PathMatch {
    fn default() -> PathMatch {
        PathMatch::Prefix(Path::root())
    }
}

/// A header that a request must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// The name, case-insensitive.
    pub name: HeaderName,
    /// The value. One of several values must match.
    pub value: ValueMatch,
}

/// A query parameter that a request must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryMatch {
    /// The name, decoded; case-sensitive.
    pub name: String,
    /// The value, decoded (escapes, `+`). One of several values must match.
    pub value: ValueMatch,
}

/// The condition for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// Any value, even an empty one.
    Present,
    /// This value; case-sensitive.
    Exact(String),
    /// The whole value matches. A query value of more than [`crate::limits::PATTERN_VALUE_BYTES`] bytes matches none.
    Pattern(Pattern),
}
