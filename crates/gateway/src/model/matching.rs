//! Which requests a rule is for.

use super::{HeaderName, MethodName, Path, Pattern};

/// What a request must be: all of it. The empty one, which is the default, is every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Default: every path.
    pub path: PathMatch,
    /// One method. `None`, the default: every one. `GET` is not `HEAD`.
    pub method: Option<MethodName>,
    /// Each must match.
    pub headers: Vec<HeaderMatch>,
    /// Each must match.
    pub query: Vec<QueryMatch>,
}

/// A path, compared in the form of [`ringmain_web::path`]; case counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This path: `/a` is not `/a/`.
    Exact(Path),
    /// This path and what is below it, by whole segments: `/a` is also for `/a/` and `/a/b`, not for `/ab`. A slash at
    /// its end says nothing: `/a/` is `/a`. `/` is every path.
    Prefix(Path),
    /// The whole path matches. An escaped slash is U+0000 in it.
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
    /// Its name, in any case.
    pub name: HeaderName,
    /// Its value. Of a header that comes several times one value must match.
    pub value: ValueMatch,
}

/// A parameter that a request's query must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryMatch {
    /// Its name, decoded; case counts.
    pub name: String,
    /// Its value, decoded (escapes, `+`). Of a parameter that comes several times one value must match.
    pub value: ValueMatch,
}

/// What a value must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// Anything, also nothing.
    Present,
    /// This text; case counts.
    Exact(String),
    /// All of it matches. A query's value of more than [`crate::limits::PATTERN_VALUE_BYTES`] matches none.
    Pattern(Pattern),
}
