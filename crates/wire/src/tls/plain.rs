//! Requests of HTTP in the clear, where TLS is spoken: recognised by their first bytes, and answered in their own protocol, so
//! that the client can show what is wrong.
//!
//! Knows no session.

/// Bytes from which a request is recognised: those of a record's header.
const FIRST_BYTES: usize = super::limits::HEADER;

const BODY: &str = "this port speaks TLS: use https:// in place of http://\n";

/// Whether a connection that begins with these bytes speaks HTTP in the clear: they are a method (RFC 9110 §9.1), in capital
/// letters as all registered ones, as far as they go. Text protocols whose commands look like that (SMTP) are taken for it, too.
/// `None` while that cannot be known yet; a record of TLS is known from its first byte.
#[must_use]
pub fn is_http(bytes: &[u8]) -> Option<bool> {
    let first = &bytes[..bytes.len().min(FIRST_BYTES)];
    let end = first.iter().position(|&byte| byte == b' ');
    let method = &first[..end.unwrap_or(first.len())];
    // SSH has digits behind its hyphen.
    let is_method = method
        .iter()
        .all(|&byte| byte.is_ascii_uppercase() || byte == b'-');
    match end {
        _ if !is_method => Some(false),
        // No method is shorter than `GET`.
        Some(length) if length < 3 => Some(false),
        _ if bytes.len() < FIRST_BYTES => None,
        _ => Some(true),
    }
}

/// Appends the answer to such a request: 400, and the end of the connection.
pub fn respond(request: &[u8], out: &mut Vec<u8>) {
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        BODY.len()
    );
    out.extend_from_slice(head.as_bytes());
    if !request.starts_with(b"HEAD ") {
        out.extend_from_slice(BODY.as_bytes());
    }
}
