//! Request methods (RFC 9110 §9). Case-sensitive; what a method means is for others.

/// A request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the methods")]
pub enum Method<'a> {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// Any other token.
    Other(&'a str),
}

impl<'a> Method<'a> {
    /// The method that `text` names; nothing is said about whether it is a token.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self::registered(text.as_bytes()).unwrap_or(Self::Other(text))
    }

    /// The method with a name of its own here.
    #[inline]
    pub(crate) fn registered(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => return None,
        })
    }

    /// As it stands in a request line.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(other) => other,
        }
    }
}
