//! The media types that this crate says by itself, and how one that a client says is compared (RFC 9110 §8.3.1).

/// JSON (RFC 8259); it is UTF-8 by itself.
pub const JSON: &str = "application/json";
/// Problem details (RFC 9457).
pub const PROBLEM: &str = "application/problem+json";
/// Plain text in UTF-8.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// HTML in UTF-8.
pub const HTML: &str = "text/html; charset=utf-8";
/// Bytes of no known kind.
pub const BYTES: &str = "application/octet-stream";
/// An event stream (WHATWG HTML §9.2); it is UTF-8 by itself.
pub const EVENT_STREAM: &str = "text/event-stream";
/// A form as browsers send it by default (WHATWG URL §5).
pub const FORM: &str = "application/x-www-form-urlencoded";

/// Type and subtype, without parameters and the whitespace around; in whatever case the peer wrote it.
pub(crate) fn essence(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|&byte| byte == b';');
    content_type[..end.unwrap_or(content_type.len())].trim_ascii()
}
