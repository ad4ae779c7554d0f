//! Media types that this crate sends, and the comparison of a client's (RFC 9110 §8.3.1).

/// JSON (RFC 8259); always UTF-8.
pub const JSON: &str = "application/json";
/// Problem details (RFC 9457).
pub const PROBLEM: &str = "application/problem+json";
/// Plain text in UTF-8.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// HTML in UTF-8.
pub const HTML: &str = "text/html; charset=utf-8";
/// Bytes of unknown type.
pub const BYTES: &str = "application/octet-stream";
/// An event stream (WHATWG HTML §9.2); always UTF-8.
pub const EVENT_STREAM: &str = "text/event-stream";
/// A form in the default encoding of browsers (WHATWG URL §5).
pub const FORM: &str = "application/x-www-form-urlencoded";

/// Returns type and subtype, without parameters and surrounding whitespace. The peer's case is retained.
pub(crate) fn essence(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|&byte| byte == b';');
    content_type[..end.unwrap_or(content_type.len())].trim_ascii()
}
