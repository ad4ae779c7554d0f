//! A YAML file as values with their places. Knows no key.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use super::error::{Errors, Position};
use crate::limits;

/// A value and where it stands. Where an alias stands for it, that is meant.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) position: Position,
}

/// What stands there.
#[derive(Debug)]
pub(super) enum Value {
    Nothing,
    Bool(bool),
    /// Also a number, as it is written.
    Text(String),
    List(Vec<Node>),
    /// Keys with their places.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// What it is called.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Nothing => "nothing",
            Value::Bool(true) => "`true`",
            Value::Bool(false) => "`false`",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "keys with values",
        }
    }

    pub(super) fn is_scalar(&self) -> bool {
        !matches!(self, Value::List(_) | Value::Map(_))
    }
}

/// Reads a file. `None`: it is no YAML, which was told.
pub(super) fn read(text: &str, errors: &Errors<'_>) -> Option<Node> {
    if text.len() > limits::CONFIG_BYTES {
        let expected = format!("a file of at most {} bytes", limits::CONFIG_BYTES);
        errors.tell(Position::START, expected, text.len().to_string());
        return None;
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // A second one is refused all the same, with a better message than that of the limit.
            max_documents: 2,
            max_depth: limits::CONFIG_DEPTH,
            max_nodes: limits::CONFIG_VALUES,
            max_events: limits::CONFIG_VALUES * 2,
            max_aliases: limits::CONFIG_ALIASES,
            max_total_scalar_bytes: limits::CONFIG_BYTES,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: limits::CONFIG_ALIASES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        // `yes` and `no` are texts.
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Option<Raw>>(text, options) {
        Ok(Some(raw)) => Some(raw.node(text)),
        Ok(None) => Some(Node {
            value: Value::Nothing,
            position: Position::START,
        }),
        Err(error) => {
            errors.tell_yaml(&error);
            None
        }
    }
}

/// A value as the YAML reader hands it over.
struct Raw(Spanned<RawValue>);

enum RawValue {
    Nothing,
    Bool(bool),
    /// What it is, is to be seen in the file: `1.10` is not 1.1.
    Number(String),
    Text(String),
    List(Vec<Raw>),
    Map(Vec<(Raw, Raw)>),
}

impl Raw {
    fn node(self, text: &str) -> Node {
        let position = Position {
            line: self.0.referenced.line(),
            column: self.0.referenced.column(),
        };
        let span = self.0.defined.span();
        let value = match self.0.value {
            RawValue::Nothing => Value::Nothing,
            RawValue::Bool(value) => Value::Bool(value),
            RawValue::Number(read) => {
                let start = span.byte_offset().and_then(|start| usize::try_from(start).ok());
                let length = span.byte_len().and_then(|length| usize::try_from(length).ok());
                let written = start
                    .zip(length)
                    .and_then(|(start, length)| text.get(start..start + length));
                Value::Text(written.map_or(read, |written| written.trim().to_owned()))
            }
            RawValue::Text(value) => Value::Text(value),
            RawValue::List(list) => Value::List(list.into_iter().map(|raw| raw.node(text)).collect()),
            RawValue::Map(pairs) => {
                let pairs = pairs
                    .into_iter()
                    .map(|(key, value)| (key.node(text), value.node(text)));
                Value::Map(pairs.collect())
            }
        };
        Node { value, position }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        Spanned::deserialize(deserializer).map(Raw)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawValue, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = RawValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<RawValue, E> {
                Ok(RawValue::Nothing)
            }

            fn visit_none<E>(self) -> Result<RawValue, E> {
                Ok(RawValue::Nothing)
            }

            fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
                Ok(RawValue::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
                Ok(RawValue::Number(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
                Ok(RawValue::Number(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
                Ok(RawValue::Number(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
                Ok(RawValue::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawValue, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(RawValue::List(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawValue, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawValue::Map(pairs))
            }
        }

        deserializer.deserialize_any(Any)
    }
}
