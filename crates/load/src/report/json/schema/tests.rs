//! The schema is that of the structures, and every document that is written is one of it.

use serde_json::{Map, Value};

use super::schema;

const CHECKED_IN: &str = include_str!("../../../../../../docs/bench.schema.json");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.schema.json");

#[test]
fn the_file_is_current() {
    let file: Value = serde_json::from_str(CHECKED_IN).expect("JSON");
    let advice = "docs/bench.schema.json differs: cargo test -p ringmain-load --lib -- --ignored write_the_schema_of_results";
    assert!(file == *schema().as_value(), "{advice}");
}

#[test]
#[ignore = "writes docs/bench.schema.json"]
fn write_the_schema_of_results() {
    let text = serde_json::to_string_pretty(&schema()).expect("JSON") + "\n";
    std::fs::write(FILE, text).expect("a file");
}

/// Fails unless a document is as the schema says, with no name that the schema does not have.
#[track_caller]
pub(crate) fn assert_valid(document: &str) {
    let document: Value = serde_json::from_str(document).expect("JSON");
    let schema = schema();
    let root = schema.as_value();
    if let Err(error) = validate(root, root, &document, "") {
        panic!("{error}");
    }
    let mut known = Vec::new();
    names(root, &mut known);
    let mut found = Vec::new();
    keys(&document, &mut found);
    for (path, name) in found {
        let is_map = [
            "statuses",
            "codes",
            "broken",
            "connect_errors",
            "first_errors",
            "tls",
            "tags",
        ]
        .iter()
        .chain(&["tls_versions", "tls_suites"])
        .any(|map| path == *map);
        assert!(
            is_map || known.contains(&name),
            "{path}.{name} is not in the schema"
        );
    }
}

/// The names of properties anywhere in a schema.
fn names<'v>(schema: &'v Value, into: &mut Vec<&'v str>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get("properties") {
                into.extend(properties.keys().map(String::as_str));
            }
            fields.values().for_each(|value| names(value, into));
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, into)),
        _ => {}
    }
}

/// The names of a document, each with that of the object it is in.
fn keys<'v>(value: &'v Value, into: &mut Vec<(&'v str, &'v str)>) {
    fn walk<'v>(value: &'v Value, within: &'v str, into: &mut Vec<(&'v str, &'v str)>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    into.push((within, name));
                    walk(value, name, into);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, within, into)),
            _ => {}
        }
    }
    walk(value, "", into);
}

/// Validates by the keywords that our schemas have.
fn validate(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let Value::Object(schema) = schema else {
        return match schema {
            Value::Bool(true) => Ok(()),
            other => Err(format!("{path}: expected a schema, found {other}")),
        };
    };
    for (keyword, rule) in schema {
        check(root, keyword, rule, schema, value, path)?;
    }
    Ok(())
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap_or_default() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn check(
    root: &Value,
    keyword: &str,
    rule: &Value,
    schema: &Map<String, Value>,
    value: &Value,
    path: &str,
) -> Result<(), String> {
    let fail = || Err(format!("{path}: expected {keyword} {rule}, found {value}"));
    match keyword {
        "$ref" => {
            let pointer = rule.as_str().and_then(|text| text.strip_prefix('#'));
            let target = pointer.and_then(|pointer| root.pointer(pointer));
            validate(root, target.ok_or(format!("no {rule}"))?, value, path)
        }
        "type" => {
            let types = rule.as_array().map_or(std::slice::from_ref(rule), Vec::as_slice);
            if types.iter().any(|name| is_of_type(value, name)) {
                Ok(())
            } else {
                fail()
            }
        }
        "const" if rule != value => fail(),
        "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => fail(),
        "minimum" if value.is_number() && value.as_f64() < rule.as_f64() => fail(),
        "maximum" if value.is_number() && value.as_f64() > rule.as_f64() => fail(),
        "required" => {
            let names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
            match names.into_iter().find(|name| value.get(name).is_none()) {
                Some(name) if value.is_object() => Err(format!("{path}: lacks {name}")),
                _ => Ok(()),
            }
        }
        "properties" => {
            for (name, rule) in rule.as_object().into_iter().flatten() {
                if let Some(field) = value.get(name) {
                    validate(root, rule, field, &format!("{path}.{name}"))?;
                }
            }
            Ok(())
        }
        "additionalProperties" if !rule.is_boolean() && !schema.contains_key("properties") => {
            for (name, field) in value.as_object().into_iter().flatten() {
                validate(root, rule, field, &format!("{path}.{name}"))?;
            }
            Ok(())
        }
        "items" => {
            for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                validate(root, rule, item, &format!("{path}[{at}]"))?;
            }
            Ok(())
        }
        "oneOf" | "anyOf" => {
            let all = rule.as_array().into_iter().flatten();
            let errors: Vec<_> = all.map(|rule| validate(root, rule, value, path)).collect();
            let fitting = errors.iter().filter(|error| error.is_ok()).count();
            match fitting {
                0 => Err(format!("{path}: none of {keyword}: {errors:?}")),
                2.. if keyword == "oneOf" => Err(format!("{path}: {fitting} of oneOf")),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[test]
fn what_is_not_of_the_schema_is_found() {
    let schema = schema();
    let root = schema.as_value();
    for wrong in [
        serde_json::json!({}),
        serde_json::json!({ "format": "ringmain-bench", "version": 1, "ringmain": "1", "kind": "other" }),
        serde_json::json!({ "format": "ringmain-bench", "version": 1, "ringmain": "1", "kind": "merged", "tags": 3 }),
        serde_json::json!({ "format": "ringmain-bench", "version": 1, "ringmain": "1", "kind": "run", "run": {} }),
    ] {
        assert!(validate(root, root, &wrong, "").is_err(), "{wrong}");
    }
}
