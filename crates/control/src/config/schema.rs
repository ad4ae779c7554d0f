//! The JSON Schema of a configuration file, from the structs of `document`.
//!
//! The doc comment of a key is its documentation, and [`KeyDoc`] reads these sentences:
//!
//! ```text
//! Required.                            the key must be set
//! Default: `5s`.                       the value of an omitted key → `default`
//! Default: `https` with `tls`, else …  a default that depends on other keys: text only
//! Example: `{requests: 100}`.          a valid value, in YAML → `examples`
//! ```
//!
//! Tests compare: a file with the documented default has the meaning of a file without the key, and each example can be read.

use serde_json::{Map, Value};

use super::document::Document;
use super::error::Diagnostics;
use super::yaml::{self, YamlNode, YamlValue};

/// Returns the JSON Schema of a configuration file, for editors.
#[must_use]
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Document).to_value();
    let mut definitions = match schema["$defs"].take() {
        Value::Object(definitions) => definitions,
        _ => Map::new(),
    };
    definitions.values_mut().for_each(annotate);
    let types = definitions.clone();
    for object in definitions.values_mut().chain([&mut schema]) {
        let Some(keys) = object.get_mut("properties").and_then(Value::as_object_mut) else {
            continue;
        };
        for key in keys.values_mut() {
            annotate(key);
            if key["examples"].is_null() {
                let examples = derived_examples(key, &types);
                key["examples"] = examples.unwrap_or_else(|| Value::Array(Vec::new()));
            }
        }
    }
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// The documentation of a key, cut into its parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeyDoc {
    /// The description, without the parts below.
    pub(super) text: String,
    /// The text after `Default:`.
    pub(super) default: Option<String>,
    /// The values after `Example:` or `Examples:`, in YAML.
    pub(super) examples: Vec<String>,
    /// The key must be set.
    pub(super) is_required: bool,
}

impl KeyDoc {
    /// Cuts a description at the ends of its sentences.
    pub(super) fn parse(description: &str) -> KeyDoc {
        let mut doc = KeyDoc::default();
        for sentence in sentences(&description.replace('\n', " ")) {
            let (kind, rest) = sentence.split_once(": ").unwrap_or((sentence, ""));
            match kind {
                "Required" => doc.is_required = true,
                "Default" => doc.default = Some(rest.to_owned()),
                "Example" | "Examples" => {
                    let quoted = rest.split('`').skip(1).step_by(2);
                    doc.examples.extend(quoted.map(str::to_owned));
                }
                _ => {
                    doc.text += sentence;
                    doc.text += ". ";
                }
            }
        }
        doc.text.truncate(doc.text.trim_end().len());
        doc
    }

    /// Returns the default if it is one value, whatever other keys are set to.
    fn literal_default(&self) -> Option<&str> {
        let default = self.default.as_deref()?;
        let (value, rest) = match default.strip_prefix('`') {
            Some(quoted) => quoted.split_once('`')?,
            None => default.split_at(default.bytes().take_while(u8::is_ascii_digit).count()),
        };
        let depends = ["or ", "else ", "unless ", "after ", "if "]
            .iter()
            .any(|word| rest.contains(word));
        let is_separate = rest.is_empty() || rest.starts_with([',', ';']);
        (!value.is_empty() && is_separate && !depends).then_some(value)
    }
}

/// Splits a text at full stops before capital letters and backticks; a full stop between backticks is part of its sentence.
fn sentences(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let (mut start, mut is_quoted) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        is_quoted ^= byte == b'`';
        if byte != b'.' || is_quoted {
            continue;
        }
        let rest = &text[at + 1..];
        let next = rest
            .strip_prefix(' ')
            .and_then(|rest| rest.trim_start().bytes().next());
        if rest.trim().is_empty() || next.is_some_and(|byte| byte.is_ascii_uppercase() || byte == b'`') {
            all.push(text[start..at].trim());
            start = at + 1;
        }
    }
    all.extend(Some(text[start..].trim()).filter(|rest| !rest.is_empty()));
    all
}

/// Moves the parts of a description to the keywords of JSON Schema. Conditional defaults stay in the description.
fn annotate(object: &mut Value) {
    let Some(description) = object["description"].as_str() else {
        return;
    };
    let doc = KeyDoc::parse(description);
    let mut text = doc.text.clone();
    if doc.is_required {
        text += " Required.";
    }
    match (&doc.default, doc.literal_default()) {
        (Some(default), Some(literal)) => {
            object["default"] = typed(literal, object);
            if default.trim_matches('`') != literal {
                text += &format!(" Default: {default}.");
            }
        }
        (Some(default), None) => text += &format!(" Default: {default}."),
        (None, _) => {}
    }
    if !doc.examples.is_empty() {
        object["examples"] = doc.examples.iter().map(|example| from_yaml(example)).collect();
    }
    object["description"] = text.into();
}

/// Converts a default to the type of its key.
fn typed(literal: &str, key: &Value) -> Value {
    let value = from_yaml(literal);
    if has_type(key, "boolean") && value.is_boolean() || has_type(key, "integer") && value.is_number() {
        value
    } else {
        literal.into()
    }
}

fn has_type(key: &Value, kind_name: &str) -> bool {
    let is_kind = |kind: &Value| kind.as_str() == Some(kind_name);
    let any_of = key["anyOf"].as_array().into_iter().flatten();
    is_kind(&key["type"])
        || key["type"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(is_kind))
        || any_of.into_iter().any(|key| has_type(key, kind_name))
}

/// Converts YAML to JSON.
pub(super) fn from_yaml(text: &str) -> Value {
    yaml::parse(text, &Diagnostics::new("")).map_or(Value::Null, |node| to_json(&node))
}

fn to_json(node: &YamlNode<'_>) -> Value {
    match &node.value {
        YamlValue::Null => Value::Null,
        YamlValue::Bool(value) => Value::Bool(*value),
        YamlValue::Text(text) if node.is_number() => {
            serde_json::from_str(text).unwrap_or_else(|_| (**text).into())
        }
        YamlValue::Text(text) => (**text).into(),
        YamlValue::List(list) => list.iter().map(to_json).collect(),
        YamlValue::Map(pairs) => {
            let entries = pairs.iter().filter_map(|(key, value)| match &key.value {
                YamlValue::Text(name) => Some((name.to_string(), to_json(value))),
                _ => None,
            });
            Value::Object(entries.collect())
        }
    }
}

/// Returns examples of a type: its own, its words, or those of its parts.
fn derived_examples(key: &Value, types: &Map<String, Value>) -> Option<Value> {
    if let Some(examples) = key.get("examples").filter(|examples| examples.is_array()) {
        return Some(examples.clone());
    }
    if let Some(reference) = key["$ref"].as_str() {
        return derived_examples(types.get(&definition_name(reference))?, types);
    }
    let words = |variants: &Value| -> Option<Value> {
        let variants = variants.as_array()?.iter();
        let words: Vec<Value> = variants
            .flat_map(|variant| match (&variant["const"], &variant["enum"]) {
                (Value::Null, Value::Array(words)) => words.clone(),
                (Value::Null, _) => Vec::new(),
                (word, _) => vec![word.clone()],
            })
            .collect();
        (!words.is_empty()).then_some(Value::Array(words))
    };
    if let Some(words) = words(&key["oneOf"]) {
        return Some(words);
    }
    if let Some(parts) = key["anyOf"].as_array() {
        return parts.iter().find_map(|part| derived_examples(part, types));
    }
    let first = |inner: &Value| Some(derived_examples(inner, types)?.as_array()?.first()?.clone());
    if key["additionalProperties"].is_object() {
        let entry = first(&key["additionalProperties"])?;
        return Some(serde_json::json!([{ "main": entry }]));
    }
    if key["items"].is_object() {
        return Some(serde_json::json!([[first(&key["items"])?]]));
    }
    if has_type(key, "boolean") {
        return Some(serde_json::json!([key["default"] != true]));
    }
    (!key["default"].is_null()).then(|| serde_json::json!([key["default"]]))
}

/// Returns the name of a definition from a reference to it.
pub(super) fn definition_name(reference: &str) -> String {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    name.replace("~1", "/").replace("%20", " ")
}
