//! A YAML file as values with their positions. Does not know keys.
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

use super::error::{Diagnostics, FilePosition};
use crate::limits;

/// A value with its position. A value of an alias has the position of the alias.
#[derive(Clone, Debug)]
pub(super) struct YamlNode<'t> {
    pub(super) value: YamlValue<'t>,
    pub(super) position: FilePosition,
    is_number: bool,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum YamlValue<'t> {
    Null,
    Bool(bool),
    /// Also a number, as it is written.
    Text(Cow<'t, str>),
    List(Vec<YamlNode<'t>>),
    /// Keys with their places.
    Map(Vec<YamlEntry<'t>>),
}

/// A key and its value.
pub(super) type YamlEntry<'t> = (YamlNode<'t>, YamlNode<'t>);

impl YamlValue<'_> {
    /// Returns the name of its kind.
    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            YamlValue::Null => "nothing",
            YamlValue::Bool(true) => "`true`",
            YamlValue::Bool(false) => "`false`",
            YamlValue::Text(_) => "a string",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    pub(super) fn is_scalar(&self) -> bool {
        !matches!(self, YamlValue::List(_) | YamlValue::Map(_))
    }
}

/// Parses a file. `None`: it is not valid YAML; the error was reported.
pub(super) fn parse<'t>(text: &'t str, errors: &Diagnostics<'_>) -> Option<YamlNode<'t>> {
    if text.len() > limits::CONFIG_BYTES {
        let expected = format!("a file of at most {} bytes", limits::CONFIG_BYTES);
        errors.report(FilePosition::START, expected, text.len().to_string());
        return None;
    }
    compose::compose(text, errors)
}

impl<'t> YamlNode<'t> {
    /// Takes the map at a key of this map, and leaves an empty one.
    pub(super) fn take_map(&mut self, key: &str) -> Vec<YamlEntry<'t>> {
        let YamlValue::Map(pairs) = &mut self.value else {
            return Vec::new();
        };
        let mut pairs = pairs.iter_mut();
        let found = pairs.find(|(name, _)| matches!(&name.value, YamlValue::Text(name) if name == key));
        match found {
            Some((_, node)) => match &mut node.value {
                YamlValue::Map(inner) => std::mem::take(inner),
                _ => Vec::new(),
            },
            None => Vec::new(),
        }
    }

    /// Calls `visit` with every scalar value, without keys.
    pub(super) fn for_each_scalar<'s>(&'s self, visit: &mut impl FnMut(&'s YamlNode<'t>)) {
        match &self.value {
            YamlValue::List(list) => list.iter().for_each(|node| node.for_each_scalar(visit)),
            YamlValue::Map(pairs) => pairs.iter().for_each(|(_, node)| node.for_each_scalar(visit)),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Text(_) => visit(self),
        }
    }

    /// Returns whether it is written as a number, not as a string.
    pub(super) fn is_number(&self) -> bool {
        self.is_number && matches!(self.value, YamlValue::Text(_))
    }
}
