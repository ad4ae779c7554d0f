//! Errors of handlers, and their representation to the client: problem details (RFC 9457).
//!
//! Knows nothing of connections.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use ringmain_wire::h1;

use crate::http::json;

/// The result of handlers and hooks.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// An error response: a status, and a detail for the client.
///
/// Any other error converts into one with `?`: status 500 without a detail; its text is logged.
pub struct Error {
    status: u16,
    detail: Cow<'static, str>,
    /// For the log only.
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// A field that belongs to the status: `Allow`, `Retry-After`, `WWW-Authenticate`.
    field: Option<(&'static str, String)>,
    kind: ErrorKind,
}

/// The reason why a handler ends without an error response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ErrorKind {
    #[default]
    None,
    /// The client disconnected.
    Disconnected,
    /// The request was HEAD, and the head is sent.
    HeadSent,
}

impl Error {
    /// Returns an error with this status (400 to 599) and one sentence for the client: the expected value, the value found, and its
    /// location. Any other status is a bug of the caller and becomes 500.
    pub fn new(status: u16, detail: impl Into<Cow<'static, str>>) -> Error {
        let is_error = (400..=599).contains(&status);
        Error {
            status: if is_error { status } else { 500 },
            detail: detail.into(),
            source: None,
            field: None,
            kind: ErrorKind::None,
        }
    }

    /// Returns a 400: the client must change the request.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(400, detail)
    }

    /// Returns a 401: the client is not authenticated.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(401, detail)
    }

    /// Returns a 403: the client is not allowed to do this.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(403, detail)
    }

    /// Returns a 404: no resource has this name.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(404, detail)
    }

    /// Returns a 409: the request conflicts with the current state.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(409, detail)
    }

    /// Returns a 500 with a cause that is logged and not sent.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error {
            status: 500,
            detail: Cow::Borrowed(""),
            source: Some(cause.into()),
            field: None,
            kind: ErrorKind::None,
        }
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the detail that is sent to the client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Appends the problem details (RFC 9457 §3) sent to the client as `application/problem+json`. A status without a name has no
    /// title; an error without a detail has none there.
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

    /// Adds a field that belongs to the status: `Allow`, `Retry-After`, `WWW-Authenticate`. An invalid field is omitted.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Error {
        self.field = Some((name, value.into()));
        self
    }

    pub(crate) fn field(&self) -> Option<(&'static str, &str)> {
        self.field.as_ref().map(|(name, value)| (*name, value.as_str()))
    }

    /// Returns the error of a disconnected client: no response is sent.
    pub(crate) fn disconnected() -> Error {
        Error {
            kind: ErrorKind::Disconnected,
            ..Error::new(500, "client disconnected")
        }
    }

    /// Returns true if the client disconnected.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.kind == ErrorKind::Disconnected
    }

    /// Returns the error that ends a handler after a streamed response to HEAD: the head is the whole response.
    pub(crate) fn head_sent() -> Error {
        Error {
            kind: ErrorKind::HeadSent,
            ..Error::new(500, "the response to HEAD is complete")
        }
    }

    pub(crate) fn is_head_sent(&self) -> bool {
        self.kind == ErrorKind::HeadSent
    }

    /// Converts a protocol violation of the client.
    pub(crate) fn from_fault(fault: &h1::PeerFault) -> Error {
        // The codec's advice addresses the server, not the client.
        let advice = format!("; answer {} and close)", fault.status());
        let text = fault.to_string();
        Error::new(
            fault.status(),
            text.strip_suffix(&advice)
                .map_or(text.clone(), |fact| format!("{fact})")),
        )
    }

    /// Copies the error for another reply; the cause, which was logged, is omitted.
    pub(crate) fn clone_without_cause(&self) -> Error {
        Error {
            status: self.status,
            detail: self.detail.clone(),
            source: None,
            field: self.field.clone(),
            kind: self.kind,
        }
    }

    #[cfg(feature = "grpc")]
    pub(crate) fn into_cause(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.source
    }

    /// Returns the cause, which only the log contains.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

// `Error` does not implement `std::error::Error`: this implementation would then conflict with `From<T> for T`, and `?` would need
// a conversion for each foreign error.
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
