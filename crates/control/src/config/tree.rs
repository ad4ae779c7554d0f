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
    /// Where a number is written, first byte and length; its value is taken from there.
    number: Option<(u32, u32)>,
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
    match serde_saphyr::from_str_with_options::<Option<Node>>(text, options) {
        Ok(Some(mut node)) => {
            node.as_written(text);
            Some(node)
        }
        Ok(None) => Some(Node {
            value: Value::Nothing,
            position: Position::START,
            number: None,
        }),
        Err(error) => {
            errors.tell_yaml(&error);
            None
        }
    }
}

impl Node {
    /// Takes what stands at a key of this map, if that is a map too; an empty one is left.
    pub(super) fn take_map(&mut self, key: &str) -> Vec<(Node, Node)> {
        let Value::Map(pairs) = &mut self.value else {
            return Vec::new();
        };
        let mut pairs = pairs.iter_mut();
        let found = pairs.find(|(name, _)| matches!(&name.value, Value::Text(name) if name == key));
        match found {
            Some((_, node)) => match &mut node.value {
                Value::Map(inner) => std::mem::take(inner),
                _ => Vec::new(),
            },
            None => Vec::new(),
        }
    }

    /// Whether it is written as a number, and not as a text that looks like one.
    pub(super) fn is_number(&self) -> bool {
        self.number.is_some() && matches!(self.value, Value::Text(_))
    }

    /// Puts numbers as they are written in place of what the YAML reader made of them: `1.10` is not 1.1.
    fn as_written(&mut self, text: &str) {
        if let Some((start, length)) = self.number {
            let (start, length) = (start as usize, length as usize);
            if let Some(written) = text.get(start..start + length) {
                self.value = Value::Text(written.trim().to_owned());
            }
        }
        match &mut self.value {
            Value::Nothing | Value::Bool(_) | Value::Text(_) => {}
            Value::List(list) => list.iter_mut().for_each(|node| node.as_written(text)),
            Value::Map(pairs) => {
                for (key, value) in pairs {
                    key.as_written(text);
                    value.as_written(text);
                }
            }
        }
    }
}

/// A value as the YAML reader hands it over.
struct Read {
    value: Value,
    is_number: bool,
}

impl Read {
    fn number(value: impl ToString) -> Read {
        Read {
            value: Value::Text(value.to_string()),
            is_number: true,
        }
    }
}

impl From<Value> for Read {
    fn from(value: Value) -> Read {
        Read {
            value,
            is_number: false,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let read: Spanned<Read> = Spanned::deserialize(deserializer)?;
        let written = |is_number: bool| {
            let span = is_number.then(|| read.defined.span())?;
            let start = u32::try_from(span.byte_offset()?).ok()?;
            Some((start, u32::try_from(span.byte_len()?).ok()?))
        };
        Ok(Node {
            position: Position {
                line: read.referenced.line(),
                column: read.referenced.column(),
            },
            number: written(read.value.is_number),
            value: read.value.value,
        })
    }
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Read;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Read, E> {
                Ok(Value::Nothing.into())
            }

            fn visit_none<E>(self) -> Result<Read, E> {
                Ok(Value::Nothing.into())
            }

            fn visit_bool<E>(self, value: bool) -> Result<Read, E> {
                Ok(Value::Bool(value).into())
            }

            fn visit_i64<E>(self, value: i64) -> Result<Read, E> {
                Ok(Read::number(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Read, E> {
                Ok(Read::number(value))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Read, E> {
                Ok(Read::number(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Read, E> {
                Ok(Value::Text(value.to_owned()).into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Read, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                values.shrink_to_fit();
                Ok(Value::List(values).into())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                pairs.shrink_to_fit();
                Ok(Value::Map(pairs).into())
            }
        }

        deserializer.deserialize_any(Any)
    }
}
