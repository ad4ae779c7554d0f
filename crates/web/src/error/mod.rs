//! What a handler may fail with, and how the client is told: problem details (RFC 9457).

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use ringmain_wire::h1;

use crate::json;

/// What handlers and hooks return.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// A request that cannot be answered as asked: a status and what the client is told.
///
/// Any other error turns into one by `?`: status 500, the client is told nothing but that, the text is logged.
pub struct Error {
    status: u16,
    detail: Cow<'static, str>,
    /// For the log only.
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// A field that belongs to the status: `Allow`, `Retry-After`, `WWW-Authenticate`.
    field: Option<(&'static str, String)>,
    ending: Ending,
}

/// Why a handler ends although there is nothing to tell the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    None,
    /// The client is gone.
    Disconnected,
    /// The request was HEAD, and the head is sent.
    HeadSent,
}

impl Error {
    /// An answer with this status (400 to 599) and one sentence for the client: what was expected, what was
    /// found, where. Any other status is a bug of the caller and becomes 500.
    pub fn new(status: u16, detail: impl Into<Cow<'static, str>>) -> Error {
        let fits = (400..=599).contains(&status);
        Error {
            status: if fits { status } else { 500 },
            detail: detail.into(),
            source: None,
            field: None,
            ending: Ending::None,
        }
    }

    /// 400: the client must change the request.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(400, detail)
    }

    /// 401: who asks is not known.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(401, detail)
    }

    /// 403: who asks may not.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(403, detail)
    }

    /// 404: there is nothing of that name.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(404, detail)
    }

    /// 409: the request contradicts the present state.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(409, detail)
    }

    /// 500 with a cause that is logged and not shown.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error {
            status: 500,
            detail: Cow::Borrowed(""),
            source: Some(cause.into()),
            field: None,
            ending: Ending::None,
        }
    }

    /// The status that is answered.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What the client is told.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Appends the problem details (RFC 9457 §3) that the client is sent as `application/problem+json`. A status
    /// without a name has no title; an error without words for the client has no detail.
    pub(crate) fn write_problem(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"about:blank\"");
        let title = h1::reason(self.status);
        if !title.is_empty() {
            out.extend_from_slice(b",\"title\":");
            json::write_string(out, title);
        }
        out.extend_from_slice(b",\"status\":");
        json::write_number(out, self.status);
        if !self.detail.is_empty() {
            out.extend_from_slice(b",\"detail\":");
            json::write_string(out, &self.detail);
        }
        out.push(b'}');
    }

    /// Adds a field that belongs to the status: `Allow`, `Retry-After`, `WWW-Authenticate`. One that is no valid
    /// field is left out.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Error {
        self.field = Some((name, value.into()));
        self
    }

    pub(crate) fn field(&self) -> Option<(&'static str, &str)> {
        self.field.as_ref().map(|(name, value)| (*name, value.as_str()))
    }

    /// The client is gone: nobody is left to be told.
    pub(crate) fn disconnected() -> Error {
        Error {
            ending: Ending::Disconnected,
            ..Error::new(500, "the client is gone")
        }
    }

    /// Whether this is so because the client is gone.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.ending == Ending::Disconnected
    }

    /// A streamed answer to HEAD is complete with its head: the handler need not go on.
    pub(crate) fn head_sent() -> Error {
        Error {
            ending: Ending::HeadSent,
            ..Error::new(500, "the request was HEAD, which is answered")
        }
    }

    pub(crate) fn is_head_sent(&self) -> bool {
        self.ending == Ending::HeadSent
    }

    /// What a broken rule of the protocol is to the client.
    pub(crate) fn from_fault(fault: &h1::PeerFault) -> Error {
        // The codec's advice to the server is none of the client's.
        let advice = format!("; answer {} and close)", fault.status());
        let text = fault.to_string();
        Error::new(
            fault.status(),
            text.strip_suffix(&advice)
                .map_or(text.clone(), |fact| format!("{fact})")),
        )
    }

    /// The same for another reply; the cause, which was logged, is left out.
    pub(crate) fn again(&self) -> Error {
        Error {
            status: self.status,
            detail: self.detail.clone(),
            source: None,
            field: self.field.clone(),
            ending: self.ending,
        }
    }

    #[cfg(feature = "grpc")]
    pub(crate) fn into_cause(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.source
    }

    /// What only the log is told.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

// `Error` is no `std::error::Error` itself: then this could not stand here, and `?` would need a conversion for
// each foreign error.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        Error::internal(error)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}
