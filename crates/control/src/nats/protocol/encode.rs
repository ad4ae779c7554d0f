//! What a client says.

use std::io::Write;

use super::subject::{is_filter, is_subject};

/// What cannot be said; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Not a subject, or with wildcards where something is published.
    #[error("expected a subject: words between dots, without spaces")]
    Subject,
    /// JSON with a line break in it would be two lines.
    #[error("expected JSON without line breaks")]
    LineBreak,
}

/// Who the client is and what it knows, as JSON on one line.
///
/// # Errors
/// [`Misuse::LineBreak`].
pub fn connect(json: &str, out: &mut Vec<u8>) -> Result<(), Misuse> {
    if json.contains(['\r', '\n']) {
        return Err(Misuse::LineBreak);
    }
    line(out, format_args!("CONNECT {json}"));
    Ok(())
}

/// What is published where `filter` matches is wanted, by this number.
///
/// # Errors
/// [`Misuse::Subject`].
pub fn subscribe(filter: &str, subscription: u64, out: &mut Vec<u8>) -> Result<(), Misuse> {
    if !is_filter(filter) {
        return Err(Misuse::Subject);
    }
    line(out, format_args!("SUB {filter} {subscription}"));
    Ok(())
}

/// Publishes. The server closes when it is more than its INFO's `max_payload`.
///
/// # Errors
/// [`Misuse::Subject`].
pub fn publish(subject: &str, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
    if !is_subject(subject) {
        return Err(Misuse::Subject);
    }
    line(out, format_args!("PUB {subject} {}", payload.len()));
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Is somebody there?
pub fn ping(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PING\r\n");
}

/// Somebody is.
pub fn pong(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PONG\r\n");
}

fn line(out: &mut Vec<u8>, said: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = write!(out, "{said}\r\n");
}
