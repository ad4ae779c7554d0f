//! Messages of a client.

use std::io::Write;

use super::subject::{is_filter, is_subject};

/// An invalid argument; no data was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Not a subject, or with wildcards where something is published.
    #[error("expected a subject: words between dots, without spaces")]
    Subject,
    /// JSON with a line break in it would be two lines.
    #[error("expected JSON without line breaks")]
    LineBreak,
}

/// Encodes CONNECT with the client's options, as JSON on one line.
///
/// # Errors
/// [`EncodeError::LineBreak`].
pub fn encode_connect(json: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if json.contains(['\r', '\n']) {
        return Err(EncodeError::LineBreak);
    }
    write_line(out, format_args!("CONNECT {json}"));
    Ok(())
}

/// Encodes SUB: subscribes to `filter` under a number.
///
/// # Errors
/// [`EncodeError::Subject`].
pub fn encode_subscribe(filter: &str, subscription: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !is_filter(filter) {
        return Err(EncodeError::Subject);
    }
    write_line(out, format_args!("SUB {filter} {subscription}"));
    Ok(())
}

/// Publishes. The server closes when it is more than its INFO's `max_payload`.
///
/// # Errors
/// [`EncodeError::Subject`].
pub fn encode_publish(subject: &str, payload: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !is_subject(subject) {
        return Err(EncodeError::Subject);
    }
    write_line(out, format_args!("PUB {subject} {}", payload.len()));
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Encodes PING.
pub fn encode_ping(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PING\r\n");
}

/// Encodes PONG.
pub fn encode_pong(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PONG\r\n");
}

fn write_line(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = write!(out, "{arguments}\r\n");
}
