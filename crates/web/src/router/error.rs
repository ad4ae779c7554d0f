//! Errors of routes, with their remedies.

use std::fmt;

use crate::limits;

/// A route that cannot be added. The table is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteError {
    /// The pattern is invalid.
    Pattern {
        /// The pattern as given, with the prefixes of its groups.
        pattern: String,
        /// Byte offset of the fault.
        at: usize,
        /// The fault and its remedy.
        what: &'static str,
    },
    /// The pattern is longer than [`limits::PATTERN_BYTES`].
    TooLong {
        /// Its beginning.
        beginning: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The table has [`limits::ROUTES`] routes.
    TooManyRoutes {
        /// The rejected pattern.
        pattern: String,
    },
    /// The route has an empty list of methods.
    NoMethod {
        /// Its pattern.
        pattern: String,
    },
    /// A method's name is not a token (RFC 9110 §5.6.2).
    Method {
        /// The route's pattern.
        pattern: String,
        /// The name.
        method: String,
    },
    /// Another route answers the same method on the same paths.
    Conflict {
        /// The method; `any method` for two routes of that kind.
        method: String,
        /// The pattern of the new route.
        pattern: String,
        /// The pattern of the existing route.
        existing: String,
    },
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::Pattern { pattern, at, what } => write!(f, "route `{pattern}`, byte {at}: {what}"),
            RouteError::TooLong { beginning, bytes } => write!(
                f,
                "route `{beginning}…` is {bytes} bytes long, at most {} are allowed; shorten it or take the rest of \
                 the path by a wildcard",
                limits::PATTERN_BYTES
            ),
            RouteError::TooManyRoutes { pattern } => write!(
                f,
                "route `{pattern}` exceeds the limit of {} routes; use parameters for the parts that differ",
                limits::ROUTES
            ),
            RouteError::NoMethod { pattern } => {
                write!(
                    f,
                    "route `{pattern}` has no method; name one, or make it a route of any method"
                )
            }
            RouteError::Method { pattern, method } => write!(
                f,
                "route `{pattern}`: `{}` is not a method name; expected letters, digits or !#$%&'*+-.^_`|~",
                method.escape_debug()
            ),
            RouteError::Conflict {
                method,
                pattern,
                existing,
            } => write!(
                f,
                "route `{pattern}` ({method}) matches the same paths as route `{existing}`, which was added before; \
                 remove one, change its path or give it another method"
            ),
        }
    }
}

impl std::error::Error for RouteError {}
