//! What fuzz targets look at and nobody else sees.

use crate::api::Pattern;
pub use crate::limits::PATTERN_BYTES;

/// Whether a name is of a pattern of channels' names. `None`: it is no pattern, or longer than [`PATTERN_BYTES`].
#[must_use]
pub fn is_of(pattern: &str, name: &str) -> Option<bool> {
    let text = Some(pattern).filter(|text| text.len() <= PATTERN_BYTES);
    Some(Pattern::parse(text?)?.matches(name))
}
