//! `http_desync_guardian`: judges whether recipients would differ about where a request ends.

use http_desync_guardian::http_token_utils::{CL, TE, TokenSimilarity, determine_similarity};
use http_desync_guardian::request_analyzer::HttpRequestData;
use http_desync_guardian::{ClassificationReason, RequestSafetyTier};

/// What it says of a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// From harmless to certain.
    pub tier: RequestSafetyTier,
    /// Of the tier.
    pub reason: ClassificationReason,
}

impl Judgement {
    /// Whether recipients may differ, so that nobody should take the request.
    #[must_use]
    pub fn is_dangerous(self) -> bool {
        self.tier >= RequestSafetyTier::Ambiguous
    }

    /// Whether the request keeps to the letter of the RFC.
    #[must_use]
    pub fn is_compliant(self) -> bool {
        self.tier == RequestSafetyTier::Compliant
    }
}

/// Judges the head at the start of `input`; it reads up to the first empty line. The one empty line that a
/// server skips is skipped for it. `None` unless the version is 1.0 or 1.1: it does not look at others.
#[must_use]
pub fn judge(input: &[u8]) -> Option<Judgement> {
    let input = input.strip_prefix(b"\r\n").unwrap_or(input);
    let line = input.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if !line.ends_with(b" HTTP/1.0") && !line.ends_with(b" HTTP/1.1") {
        return None;
    }
    let result = HttpRequestData::analyze_raw_request(input);
    Some(Judgement {
        tier: result.tier,
        reason: result.reason,
    })
}

/// Whether it takes `name` for a misspelling of a framing field.
#[must_use]
pub fn is_look_alike(name: &[u8]) -> bool {
    [TE, CL]
        .iter()
        .any(|framing| determine_similarity(framing, name) == TokenSimilarity::SameLetters)
}
