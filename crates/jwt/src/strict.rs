//! A JSON parser that rejects objects in which a name occurs twice: one reader would use the first value and another the last, so the same
//! token could mean two things (RFC 7515 §4, RFC 7519 §4). Pure.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses one value.
///
/// # Errors
/// Invalid JSON. The error [is of data](serde_json::Error::is_data) if a name occurs twice in an object.
pub(crate) fn parse(json: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<StrictValue>(json).map(|strict| strict.0)
}

struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StrictValue, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(StrictValue)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Numbers parsed from JSON are finite.
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(StrictValue(value)) = list.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, StrictValue(value))) = members.next_entry::<String, StrictValue>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse;

    #[test]
    fn values_equal_those_of_serde_json() {
        for text in [
            r#"{"a":[1,-2,3.5,1e3,"x\n\u00e9",true,null,{}],"b":{"a":18446744073709551615}}"#,
            "[]",
            "7",
        ] {
            let plain: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), plain);
        }
        assert_eq!(parse(br#"{"a":1,"A":2}"#).unwrap(), json!({ "a": 1, "A": 2 }));
    }

    #[test]
    fn repeated_names_are_rejected() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"[{"a":1,"\u0061":2}]"#,
        ] {
            assert!(parse(text.as_bytes()).unwrap_err().is_data(), "{text}");
        }
        for text in ["", "{", "{\"a\"}", "1e999", "{}x", &"[".repeat(1000)] {
            assert!(!parse(text.as_bytes()).unwrap_err().is_data(), "{text}");
        }
    }
}
