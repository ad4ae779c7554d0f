//! A place in a JSON document (RFC 6901), found without building the document.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    steps: Vec<String>,
}

impl Pointer {
    /// `None` if the text is no pointer: it neither is empty nor begins with `/`, or has a `~` that is neither `~0` nor
    /// `~1`.
    pub(super) fn new(text: &str) -> Option<Pointer> {
        let steps = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(unescape).collect::<Option<Vec<_>>>()?,
            None if text.is_empty() => Vec::new(),
            None => return None,
        };
        Some(Pointer { steps })
    }

    /// The value there; `None` if the document has no such place. Of a name that an object has twice, the first.
    ///
    /// # Errors
    /// The document is no JSON.
    pub(super) fn find(&self, document: &[u8]) -> Result<Option<Value>, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(document);
        let found = Descend(&self.steps).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(found)
    }
}

fn unescape(step: &str) -> Option<String> {
    let mut tildes = step.split('~');
    let mut name = tildes.next()?.to_owned();
    for part in tildes {
        // In this order, so that `~01` is `~1` (RFC 6901 §4).
        let (escaped, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        name.push(escaped);
        name.push_str(rest);
    }
    Some(name)
}

/// Reads a value, and of it only what is at these steps.
struct Descend<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Descend<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        match self.0.split_first() {
            None => Value::deserialize(deserializer).map(Some),
            Some((step, rest)) => deserializer.deserialize_any(Inside { step, rest }),
        }
    }
}

/// In an object or array: the next step, and those after it.
struct Inside<'p> {
    step: &'p str,
    rest: &'p [String],
}

impl<'de> Visitor<'de> for Inside<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Value>, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Is(self.step))? {
            if is_it && found.is_none() {
                found = Some(map.next_value_seed(Descend(self.rest))?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found.flatten())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Option<Value>, A::Error> {
        let mut found = None;
        let wanted = index(self.step);
        for at in 0.. {
            if Some(at) == wanted {
                let Some(value) = sequence.next_element_seed(Descend(self.rest))? else {
                    break;
                };
                found = value;
            } else if sequence.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }
}

/// An array index: no leading zeroes (RFC 6901 §4).
fn index(step: &str) -> Option<usize> {
    let digits = step.bytes().all(|byte| byte.is_ascii_digit());
    let leading = step.len() > 1 && step.starts_with('0');
    if digits && !leading {
        step.parse().ok()
    } else {
        None
    }
}

/// Whether a name is this one, without keeping it.
struct Is<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}
