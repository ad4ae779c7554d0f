//! Entry points for fuzz targets.

use crate::api::ChannelPattern;
pub use crate::limits::PATTERN_BYTES;

/// Returns whether a name matches a pattern of channel names. `None`: the pattern is invalid, or longer than [`PATTERN_BYTES`].
#[must_use]
pub fn is_of(pattern: &str, name: &str) -> Option<bool> {
    let text = Some(pattern).filter(|text| text.len() <= PATTERN_BYTES);
    Some(ChannelPattern::parse(text?)?.matches(name))
}
