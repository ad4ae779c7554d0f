//! The values of a configuration file without secrets, for operators.
//!
//! Keys of secrets are marked in the schema (`writeOnly`). References to the environment and to files stay as written (`${…}`).

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::deserializer::NodeDeserializer;
use super::document::Document;
use super::error::{Diagnostics, FilePosition};
use super::yaml::{self, YamlNode, YamlValue};

/// In place of a value that is not shown.
const REDACTED: &str = "(not shown)";

/// Returns the values of a file, redacted. `None`: the file is not a configuration.
#[must_use]
pub fn redacted(text: &str) -> Option<Json> {
    let errors = Diagnostics::new("");
    let node = yaml::parse(text, &errors)?;
    let reader = NodeDeserializer::new(&node, &errors);
    // Reading it finds the marks.
    Document::deserialize(reader).ok()?;
    Some(to_json(&node, &errors.into_secrets()))
}

fn to_json(node: &YamlNode<'_>, secrets: &BTreeSet<FilePosition>) -> Json {
    let is_secret = || secrets.contains(&node.position);
    match &node.value {
        YamlValue::Null => Json::Null,
        YamlValue::Bool(_) if is_secret() => REDACTED.into(),
        YamlValue::Bool(value) => Json::Bool(*value),
        YamlValue::Text(text) if is_secret() && !is_reference(text) => REDACTED.into(),
        YamlValue::Text(text) => (**text).into(),
        YamlValue::List(list) => list.iter().map(|node| to_json(node, secrets)).collect(),
        YamlValue::Map(pairs) => {
            let mut map = Map::new();
            for (key, value) in pairs {
                let YamlValue::Text(name) = &key.value else {
                    continue;
                };
                map.insert(name.to_string(), to_json(value, secrets));
            }
            Json::Object(map)
        }
    }
}

/// Returns whether a text is a reference.
pub(super) fn is_reference(text: &str) -> bool {
    text.starts_with("${") && text.find('}') == Some(text.len() - 1)
}
