//! Raw JSON, embedded in JSON messages. Must not know which messages contain it.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::json;

/// Data for the JSON format that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected JSON, since clients of the JSON format get it as it is; found something else")]
pub struct NotJson;

/// Removes white space from JSON that contains line breaks, which would separate the messages of a frame. JSON without line breaks is
/// returned unchanged.
///
/// # Errors
/// [`NotJson`]: the bytes are not a single JSON value.
pub fn compact(json: &Bytes) -> Result<Bytes, NotJson> {
    Ok(match compacted(json)? {
        Cow::Borrowed(_) => json.clone(),
        Cow::Owned(compacted) => compacted.into(),
    })
}

/// Like [`compact`], for borrowed bytes.
///
/// # Errors
/// As [`compact`].
pub fn compacted(json: &[u8]) -> Result<Cow<'_, [u8]>, NotJson> {
    json::value(json).ok_or(NotJson)?;
    if !json.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Ok(Cow::Borrowed(json));
    }
    let mut output = Vec::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for &byte in json {
        // A line break within a string is invalid JSON, so all breaks are between tokens.
        if quoted || !byte.is_ascii_whitespace() {
            output.push(byte);
        }
        quoted ^= byte == b'"' && !escaped;
        escaped = quoted && byte == b'\\' && !escaped;
    }
    Ok(Cow::Owned(output))
}

pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let compact = compact(bytes).map_err(S::Error::custom)?;
    let raw: &RawValue = serde_json::from_slice(&compact).map_err(S::Error::custom)?;
    raw.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    // `null` represents an absent value.
    match raw.get() {
        "null" => Ok(Bytes::new()),
        _ => Ok(Box::<[u8]>::from(Box::<str>::from(raw)).into()),
    }
}

/// Deserializes a required value, which may be `null`.
pub(super) mod value {
    pub(in super::super) use super::serialize;
    use super::{Bytes, Deserialize, Deserializer, RawValue};

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Box::<[u8]>::from(Box::<str>::from(raw)).into())
    }
}

/// Returns whether bytes cannot be embedded in JSON. Such a field is omitted.
pub(super) fn is_not_json(bytes: &Bytes) -> bool {
    json::value(bytes).is_none()
}

/// Returns whether a field has its default value. Such a field is omitted.
pub(super) fn is_unset<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Deserializes a field whose `null` means its default value, as some writers encode it.
pub(super) fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value: Option<T> = Deserialize::deserialize(deserializer).map_err(D::Error::custom)?;
    Ok(value.unwrap_or_default())
}
