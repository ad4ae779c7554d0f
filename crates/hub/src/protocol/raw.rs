//! Bytes that are JSON already, within JSON.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::json;

/// For the JSON format, but not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected JSON, since clients of the JSON format get it as it is; found something else")]
pub struct NotJson;

/// The same JSON without a line break: breaks part the messages of a frame. Bytes without one are returned as they are.
///
/// # Errors
/// It is not one JSON value.
pub fn compact(json: &Bytes) -> Result<Bytes, NotJson> {
    Ok(match compacted(json)? {
        Cow::Borrowed(_) => json.clone(),
        Cow::Owned(kept) => kept.into(),
    })
}

/// The same of bytes that are somebody else's.
///
/// # Errors
/// As [`compact`].
pub fn compacted(json: &[u8]) -> Result<Cow<'_, [u8]>, NotJson> {
    json::value(json).ok_or(NotJson)?;
    if !json.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Ok(Cow::Borrowed(json));
    }
    let mut kept = Vec::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for &byte in json {
        // A break within a string is not JSON: those that are here stand between values.
        if quoted || !byte.is_ascii_whitespace() {
            kept.push(byte);
        }
        quoted ^= byte == b'"' && !escaped;
        escaped = quoted && byte == b'\\' && !escaped;
    }
    Ok(Cow::Owned(kept))
}

pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let compact = compact(bytes).map_err(S::Error::custom)?;
    let raw: &RawValue = serde_json::from_slice(&compact).map_err(S::Error::custom)?;
    raw.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    // `null` is what is not there.
    match raw.get() {
        "null" => Ok(Bytes::new()),
        _ => Ok(Box::<[u8]>::from(Box::<str>::from(raw)).into()),
    }
}

/// The same for a required value, which may be `null`.
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

/// Whether bytes are nothing that JSON can carry: they are left out.
pub(super) fn is_no_json(bytes: &Bytes) -> bool {
    json::value(bytes).is_none()
}

/// Whether a field has its first value, and is left out.
pub(super) fn is_unset<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A field whose `null` is its first value: some writers put it for what is not set.
pub(super) fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value: Option<T> = Deserialize::deserialize(deserializer).map_err(D::Error::custom)?;
    Ok(value.unwrap_or_default())
}
