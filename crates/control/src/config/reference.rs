//! The reference page: every key, its kind and its meaning, from the JSON Schema.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

/// The page, as Markdown.
#[must_use]
pub fn reference() -> String {
    let schema = super::schema();
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Made from the structs in crates/control/src/config/document: change those, then run\n     \
         cargo test -p ringmain-control write_the -- --ignored -->\n\n\
         `ringmain check FILE` says whether a file is right, and all that is not; `ringmain explain FILE METHOD URL` says where\n\
         a request goes and why. `examples/proxy.yaml` is the shortest file, `examples/shop.yaml` has every feature once. The\n\
         JSON Schema for editors is [config.schema.json](config.schema.json).\n\n",
    );
    page += &paragraph(text(&schema, "description"));
    page += "\n";
    section(&mut page, &schema);
    let definitions = schema["$defs"].as_object();
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    visit(&schema, &schema, &mut order, &mut seen);
    for name in order {
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

/// Definitions in the order in which keys lead to them.
fn visit(value: &Value, schema: &Value, order: &mut Vec<String>, seen: &mut BTreeSet<String>) {
    let mut names = Vec::new();
    named(value, &mut names);
    let new: Vec<_> = names
        .into_iter()
        .filter(|name| seen.insert(name.clone()))
        .collect();
    for name in new {
        order.push(name.clone());
        visit(&schema["$defs"][&name], schema, order, seen);
    }
}

/// Definitions that a value names.
fn named(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| *key != "$defs") {
                match value.as_str() {
                    Some(target) if key == "$ref" => names.push(name_of(target)),
                    _ => named(value, names),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| named(value, names)),
        _ => {}
    }
}

fn name_of(reference: &str) -> String {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    name.replace("~1", "/").replace("%20", " ")
}

/// The keys of an object, or the words of an enum.
fn section(page: &mut String, value: &Value) {
    if let Some(keys) = value["properties"].as_object() {
        page.push_str("\n| key | kind | meaning |\n|---|---|---|\n");
        for (key, value) in keys {
            let meaning = text(value, "description").replace('\n', " ");
            let _ = writeln!(page, "| `{key}` | {} | {meaning} |", kind(value));
        }
    } else if let Some(variants) = value["oneOf"].as_array() {
        page.push_str("\n| written | meaning |\n|---|---|\n");
        for variant in variants {
            let meaning = text(variant, "description").replace('\n', " ");
            let _ = writeln!(page, "| {} | {meaning} |", kind(variant));
        }
    } else if let Some(shape) = value["pattern"].as_str() {
        let _ = write!(page, "\nIts shape: `{shape}`.\n");
    }
}

/// What may stand there, in words.
fn kind(value: &Value) -> String {
    if let Some(reference) = value["$ref"].as_str() {
        let name = name_of(reference);
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
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => format!("list of {}", kind(&value["items"])),
        _ => match (&value["additionalProperties"], value["properties"].as_object()) {
            (inner @ Value::Object(_), _) => format!("names, each with {}", kind(inner)),
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
