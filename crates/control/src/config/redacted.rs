//! A configuration file as it may be shown to whoever looks after the gateway: its values, without secrets.
//!
//! Which values are secrets is a mark of their keys in the schema (`writeOnly`). Values that are put in from the environment and from
//! files stay as they are written (`${…}`).

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::document::Document;
use super::error::{Errors, Position};
use super::deserializer::Reader;
use super::yaml::{self, Node, Value};

/// In place of a value that is not shown.
const HIDDEN: &str = "(not shown)";

/// The file's values. `None`: it is not a configuration.
#[must_use]
pub fn shown(text: &str) -> Option<Json> {
    let errors = Errors::new("");
    let node = yaml::read(text, &errors)?;
    let reader = Reader::new(&node, &errors);
    // Reading it is what finds the marks.
    Document::deserialize(reader).ok()?;
    Some(json(&node, &errors.into_secrets()))
}

fn json(node: &Node<'_>, secrets: &BTreeSet<Position>) -> Json {
    let is_secret = || secrets.contains(&node.position);
    match &node.value {
        Value::Nothing => Json::Null,
        Value::Bool(_) if is_secret() => HIDDEN.into(),
        Value::Bool(value) => Json::Bool(*value),
        Value::Text(text) if is_secret() && !is_named_only(text) => HIDDEN.into(),
        Value::Text(text) => (**text).into(),
        Value::List(list) => list.iter().map(|node| json(node, secrets)).collect(),
        Value::Map(pairs) => {
            let mut map = Map::new();
            for (key, value) in pairs {
                let Value::Text(name) = &key.value else { continue };
                map.insert(name.to_string(), json(value, secrets));
            }
            Json::Object(map)
        }
    }
}

/// Whether a text only says where its value comes from.
fn is_named_only(text: &str) -> bool {
    text.starts_with("${") && text.find('}') == Some(text.len() - 1)
}
