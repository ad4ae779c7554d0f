//! JSON: bytes to typed values, with errors that a client can act on, and back.
//!
//! Knows no request: the caller sets the depth limit and decides when the type is checked.

mod explain;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::http::error::{Error, Result};
use crate::http::media_type;
use crate::limits;
pub(crate) use explain::plainly;

/// Parses a whole JSON document, which may nest arrays and objects `max_depth` deep, at most [`limits::MAX_JSON_DEPTH`].
///
/// A valid document costs one parse. Only an invalid one is parsed again to locate the error.
///
/// # Errors
/// 400 with the expected value, the value found, and its location: an empty document, one that nests too deeply, one that is not
/// JSON, trailing data, a value of another type.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], max_depth: usize) -> Result<T> {
    check_depth(body, max_depth.min(limits::MAX_JSON_DEPTH))?;
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let mut parser = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize(&mut parser) {
        Ok(value) => match parser.end() {
            Ok(()) => Ok(value),
            Err(error) => Err(explain::fault(body, &error, "")),
        },
        Err(error) => {
            let path = error.path().to_string();
            Err(explain::fault(body, error.inner(), &path))
        }
    }
}

/// Appends `value` as JSON.
///
/// # Errors
/// 500 with the cause for the log, when serialization of the value fails or a map key is not a string; `out` is then unchanged.
pub(crate) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result {
    let start = out.len();
    serde_json::to_writer(&mut *out, value).map_err(|error| {
        out.truncate(start);
        Error::internal(error)
    })
}

/// Appends `text` as a JSON string, quotes included.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Neither a string nor a buffer in memory can fail.
    serde_json::to_writer(out, text).expect("a string is JSON and memory takes it");
}

/// Appends a whole number.
pub(crate) fn write_number(out: &mut Vec<u8>, number: impl Into<u64>) {
    serde_json::to_writer(out, &number.into()).expect("a number is JSON and memory takes it");
}

/// Returns true if a `Content-Type` is JSON: `application/json` or `application/…+json` (RFC 6839 §3.1), with any parameters.
pub(crate) fn is_json(content_type: &[u8]) -> bool {
    let essence = media_type::essence(content_type);
    if essence.eq_ignore_ascii_case(media_type::JSON.as_bytes()) {
        return true;
    }
    let (family, suffix) = (b"application/", b"+json");
    essence.len() > family.len() + suffix.len()
        && essence[..family.len()].eq_ignore_ascii_case(family)
        && essence[essence.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
}

/// Checks the depth before the parser runs, because it recurses.
fn check_depth(body: &[u8], limit: usize) -> Result {
    // Setting bit 5 maps `[` to `{` and affects no other bracket. Most documents have too few brackets to nest too deeply, and
    // counting every bracket takes a fraction of the time of finding those outside strings.
    let brackets = body.iter().filter(|&&byte| byte | 0x20 == b'{').count();
    if brackets <= limit {
        return Ok(());
    }
    match too_deep_at(body, limit) {
        None => Ok(()),
        Some(at) => Err(explain::too_deep(body, at, limit)),
    }
}

/// Returns the offset of the first bracket nested deeper than `limit`. Exact for valid JSON; otherwise the parser stops at the
/// first fault and never nests deeper than counted up to there.
fn too_deep_at(body: &[u8], limit: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            // The escaped character is skipped: it may be a quote.
            b'\\' if in_string => at += 1,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > limit {
                    return Some(at);
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}
