//! JSON in and out: bytes to typed values with errors that a client can act on, and back.
//!
//! Knows no request: who calls says how deep a document may be, and when its type is to be checked.

mod explain;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::{limits, media_type};
pub(crate) use explain::plainly;

/// A value from a whole JSON document, which may nest arrays and objects `max_depth` deep, at most
/// [`limits::JSON_DEPTH_MOST`].
///
/// What is right costs one parse. Only for what is wrong a second one finds out where.
///
/// # Errors
/// 400 with what was expected, what was found and where: no document, one that nests too deep, one that is not JSON,
/// something behind it, a value of another type.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], max_depth: usize) -> Result<T> {
    check_depth(body, max_depth.min(limits::JSON_DEPTH_MOST))?;
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
/// 500 with the cause for the log, when the value's own code fails or a map's key is no string; `out` is as before.
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

/// Whether a `Content-Type` says that the body is JSON: `application/json` or `application/…+json` (RFC 6839 §3.1),
/// with any parameters.
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

/// The parser recurses, so the depth is known before it runs.
fn check_depth(body: &[u8], limit: usize) -> Result {
    // Setting bit 5 turns `[` into `{` and nothing else. Most documents have too few of them to nest too deep, and
    // counting them all takes a fraction of looking which of them are in strings.
    let brackets = body.iter().filter(|&&byte| byte | 0x20 == b'{').count();
    if brackets <= limit {
        return Ok(());
    }
    match too_deep_at(body, limit) {
        None => Ok(()),
        Some(at) => Err(explain::too_deep(body, at, limit)),
    }
}

/// Where the first bracket stands that is nested deeper than `limit`. For valid JSON, that is: the parser stops at
/// the first fault and so never goes deeper than what was counted up to there.
fn too_deep_at(body: &[u8], limit: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            // What is escaped is skipped: it may be a quote.
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
