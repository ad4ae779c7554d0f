//! A YAML file as values with their places. Knows no key.
//!
//! ```text
//! text ─▶ granit-parser: events ─▶ Composer: values, anchors, merges ─▶ Node
//! ```
//!
//! Plain values are read as the core schema of YAML 1.2.2 (§10.3) has them, and stay as they are written: `1.10` is not 1.1.
//! `yes` and `no` are texts.

mod compose;
mod core_schema;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::error::{Errors, Position};
use crate::limits;

/// A value and where it stands. Where an alias stands for it, that is meant.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    pub(super) value: Value<'t>,
    pub(super) position: Position,
    is_number: bool,
}

/// What stands there.
#[derive(Clone, Debug)]
pub(super) enum Value<'t> {
    Nothing,
    Bool(bool),
    /// Also a number, as it is written.
    Text(Cow<'t, str>),
    List(Vec<Node<'t>>),
    /// Keys with their places.
    Map(Vec<Pair<'t>>),
}

/// A key and its value.
pub(super) type Pair<'t> = (Node<'t>, Node<'t>);

impl Value<'_> {
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
pub(super) fn read<'t>(text: &'t str, errors: &Errors<'_>) -> Option<Node<'t>> {
    if text.len() > limits::CONFIG_BYTES {
        let expected = format!("a file of at most {} bytes", limits::CONFIG_BYTES);
        errors.tell(Position::START, expected, text.len().to_string());
        return None;
    }
    compose::compose(text, errors)
}

impl<'t> Node<'t> {
    /// Takes what stands at a key of this map, if that is a map too; an empty one is left.
    pub(super) fn take_map(&mut self, key: &str) -> Vec<Pair<'t>> {
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

    /// Calls `each` with every value below this that is not a list or a map, keys left out.
    pub(super) fn scalars<'s>(&'s self, each: &mut impl FnMut(&'s Node<'t>)) {
        match &self.value {
            Value::List(list) => list.iter().for_each(|node| node.scalars(each)),
            Value::Map(pairs) => pairs.iter().for_each(|(_, node)| node.scalars(each)),
            Value::Nothing | Value::Bool(_) | Value::Text(_) => each(self),
        }
    }

    /// Whether it is written as a number, and not as a text that looks like one.
    pub(super) fn is_number(&self) -> bool {
        self.is_number && matches!(self.value, Value::Text(_))
    }
}
