//! A configuration file as it may be shown to whoever looks after the gateway: its values, without secrets.
//!
//! Values that are put in from the environment and from files stay as they are written (`${…}`). What else is likely a secret,
//! by the name it stands under, is not shown.

use serde_json::{Map, Value as Json};

use super::error::Errors;
use super::tree::{self, Node, Value};

/// In place of a value that is not shown.
const HIDDEN: &str = "(not shown)";

/// Parts of names of headers and keys whose values are not shown.
const SECRET: [&str; 7] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "api-key",
    "apikey",
];

/// The file's values. `None`: it is no YAML.
#[must_use]
pub fn shown(text: &str) -> Option<Json> {
    let errors = Errors::new("");
    tree::read(text, &errors).map(|node| json(&node, false))
}

/// `hidden`: it stands below a name of a secret's.
fn json(node: &Node<'_>, hidden: bool) -> Json {
    match &node.value {
        Value::Nothing => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Text(text) if hidden && !is_named_only(text) => HIDDEN.into(),
        Value::Text(text) => (**text).into(),
        Value::List(list) => list.iter().map(|node| json(node, hidden)).collect(),
        Value::Map(pairs) => {
            let mut map = Map::new();
            for (key, value) in pairs {
                let Value::Text(name) = &key.value else { continue };
                map.insert(name.to_string(), json(value, hidden || is_secret(name)));
            }
            Json::Object(map)
        }
    }
}

/// Whether a text only says where its value comes from.
fn is_named_only(text: &str) -> bool {
    text.starts_with("${") && text.find('}') == Some(text.len() - 1)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}
