//! The reference page: type, default and description of every key, from the JSON Schema.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::schema::{KeyDoc, definition_name};

/// Returns the reference page in Markdown.
#[must_use]
pub fn reference() -> String {
    let schema = super::schema();
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from the structs in crates/control/src/config/document: change those, then run\n     \
         cargo test -p ringmain-control write_the -- --ignored -->\n\n\
         `ringmain check FILE` validates a file and reports all errors; `ringmain explain FILE METHOD URL` shows the route of a\n\
         request. `examples/proxy.yaml` is the shortest file, `examples/shop.yaml` uses every feature once. The JSON Schema for\n\
         editors, with examples of each key, is [config.schema.json](config.schema.json). In the column \"default\", – means that\n\
         the key has no effect unless it is set, or that its own keys have defaults.\n\n",
    );
    page += &paragraph(text(&schema, "description"));
    page += "\n";
    section(&mut page, &schema);
    let definitions = schema["$defs"].as_object();
    let mut sections = Vec::new();
    let mut visited = BTreeSet::new();
    visit(&schema, &schema, &mut sections, &mut visited);
    for name in sections {
        let Some(definition) = definitions.and_then(|all| all.get(&name)) else {
            continue;
        };
        let _ = write!(
            page,
            "\n## {name}\n\n{}",
            paragraph(text(definition, "description"))
        );
        section(&mut page, definition);
    }
    page
}

/// Lists definitions in the order in which keys refer to them.
fn visit(value: &Value, schema: &Value, sections: &mut Vec<String>, visited: &mut BTreeSet<String>) {
    let mut names = Vec::new();
    named(value, &mut names);
    let new: Vec<_> = names
        .into_iter()
        .filter(|name| visited.insert(name.clone()))
        .collect();
    for name in new {
        sections.push(name.clone());
        visit(&schema["$defs"][&name], schema, sections, visited);
    }
}

/// Lists the definitions that a value refers to.
fn named(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| *key != "$defs") {
                match value.as_str() {
                    Some(target) if key == "$ref" => names.push(definition_name(target)),
                    _ => named(value, names),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| named(value, names)),
        _ => {}
    }
}

/// Writes the keys of an object, or the words of an enum.
fn section(page: &mut String, value: &Value) {
    if let Some(keys) = value["properties"].as_object() {
        page.push_str("\n| key | type | default | description |\n|---|---|---|---|\n");
        for (key, value) in keys {
            let doc = KeyDoc::parse(text(value, "description"));
            let default = default_column(value, &doc);
            let _ = writeln!(page, "| `{key}` | {} | {default} | {} |", kind(value), doc.text);
        }
    } else if let Some(variants) = value["oneOf"].as_array() {
        page.push_str("\n| value | description |\n|---|---|\n");
        for variant in variants {
            let description = text(variant, "description").replace('\n', " ");
            let _ = writeln!(page, "| {} | {description} |", kind(variant));
        }
    } else if let Some(shape) = value["pattern"].as_str() {
        let _ = write!(page, "\nPattern: `{shape}`.\n");
    }
}

/// Returns the default of a key for its column: the value of an omitted key.
fn default_column(value: &Value, doc: &KeyDoc) -> String {
    match (&value["default"], &doc.default) {
        (_, Some(default)) => default.clone(),
        (Value::Null, None) if doc.is_required => "required".to_owned(),
        (Value::Null, None) => "–".to_owned(),
        (Value::String(default), _) => format!("`{default}`"),
        (default, _) => format!("`{default}`"),
    }
}

/// Returns the type of a value in words.
fn kind(value: &Value) -> String {
    if let Some(reference) = value["$ref"].as_str() {
        let name = definition_name(reference);
        return format!("[{name}](#{})", name.to_lowercase().replace(' ', "-"));
    }
    if let Some(word) = value["const"].as_str() {
        return format!("`{word}`");
    }
    if let Some(words) = value["enum"].as_array() {
        let words: Vec<_> = words
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect();
        return words.join(" or ");
    }
    if let Some(any) = value["anyOf"].as_array() {
        let mut kinds: Vec<_> = any
            .iter()
            .filter(|value| value["type"] != "null")
            .map(kind)
            .collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    let of = |word: &str| match word {
        "string" => "string".to_owned(),
        "integer" => "integer".to_owned(),
        "boolean" => "boolean".to_owned(),
        "array" => format!("list of {}", kind(&value["items"])),
        _ => match (&value["additionalProperties"], value["properties"].as_object()) {
            (inner @ Value::Object(_), _) => format!("map of {}", kind(inner)),
            (_, Some(keys)) => {
                let keys: Vec<_> = keys
                    .iter()
                    .map(|(key, value)| format!("`{key}:` {}", kind(value)))
                    .collect();
                keys.join(", ")
            }
            _ => "keys".to_owned(),
        },
    };
    match &value["type"] {
        Value::String(word) => of(word),
        Value::Array(words) => {
            let words = words
                .iter()
                .filter_map(Value::as_str)
                .filter(|word| *word != "null");
            words.map(of).collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn paragraph(text: &str) -> String {
    format!("{}\n", text.trim())
}
