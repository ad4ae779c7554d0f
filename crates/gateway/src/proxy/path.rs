//! The path of a request: the form that rules match, and the form that upstreams receive.
//!
//! ```text
//! raw ─ web: normal form ─┬─ escaped slashes: keep ───▶ matched as it is ─▶ sent as it arrived
//!                         ├─ decode: slashes ─────────▶ matched ──────────▶ sent, escaped again
//!                         └─ reject ──────────────────▶ 400
//! ```
//!
//! An upstream receives the original octets, because a proxy does not know which octets matter to it (RFC 9110 §7.7, RFC 3986 §3.3). The
//! exception is a path with dot segments: whether `/a//../b` is `/b` or `/a/b` depends on the recipient, and a rule must not be bypassed by
//! the difference.

use std::rc::Rc;

use ringmain_web::{Request, path};

use super::RequestRoute;
use crate::model::Paths;

/// The path that a request is matched with, if it differs from its own normal form.
pub(super) type DecodedPath = Option<Rc<str>>;

impl RequestRoute<'_> {
    /// Returns the normal path that the rule was matched with.
    pub(crate) fn matched_path<'p>(&'p self, req: &'p Request<'_>) -> &'p str {
        self.decoded_path.as_deref().unwrap_or_else(|| req.path())
    }
}

/// Returns the path as an upstream receives it. Only a form that differs from `raw` is written to `scratch`.
pub(super) fn forwarded_path<'p>(
    paths: Paths,
    decoded: Option<&str>,
    raw: &'p str,
    scratch: &'p mut String,
) -> &'p str {
    if let Some(decoded) = decoded {
        scratch.clear();
        path::escape(decoded, scratch);
        return scratch;
    }
    if paths.merge_slashes || path::has_dot_segment(raw) {
        return path::forwardable(raw, scratch).unwrap_or(raw);
    }
    raw
}

/// Returns the rest of a path after a prefix of its normal form with the same number of segments. Repeated slashes in front of a segment
/// belong to it.
pub(super) fn rest_after_prefix<'p>(sent: &'p str, prefix: &str) -> &'p str {
    let segments = prefix.bytes().filter(|&byte| byte == b'/').count();
    let bytes = sent.as_bytes();
    let mut at = 0;
    for _ in 0..segments {
        at += bytes[at..].iter().take_while(|&&byte| byte == b'/').count();
        at += bytes[at..].iter().take_while(|&&byte| byte != b'/').count();
    }
    &sent[at..]
}

#[cfg(test)]
mod tests;
