//! As much of JSON Schema as the schema of scenarios uses; a keyword that is not known here fails, so that nothing passes
//! unseen.

use serde_json::Value;

/// Whether `value` is of the structure that `schema` describes; if not, where.
pub(super) fn check(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let Value::Object(keywords) = schema else {
        return if schema == &Value::Bool(true) {
            Ok(())
        } else {
            Err(format!("{place}: nothing may be here"))
        };
    };
    for (keyword, argument) in keywords {
        let passes = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            // Looked at with `properties`.
            "additionalProperties" => {
                keywords.contains_key("properties") || values(root, argument, value, place)?
            }
            "pattern" => value
                .as_str()
                .is_none_or(|text| matches(argument.as_str().unwrap(), text)),
            "$ref" => {
                let name = argument.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                check(root, &root["$defs"][name], value, place)?;
                true
            }
            "anyOf" | "oneOf" => {
                let any = argument.as_array().unwrap().iter();
                let results: Vec<_> = any.map(|one| check(root, one, value, place)).collect();
                if results.iter().all(Result::is_err) {
                    return Err(format!("{place}: none of {results:?}"));
                }
                true
            }
            "type" => match argument {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                kind => is(kind, value),
            },
            "properties" => {
                properties(root, keywords, value, place)?;
                true
            }
            "required" => argument
                .as_array()
                .unwrap()
                .iter()
                .all(|key| value.get(key.as_str().unwrap()).is_some()),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, argument, item, &format!("{place}/{index}"))?;
                }
                true
            }
            "minItems" => value
                .as_array()
                .is_none_or(|list| list.len() as u64 >= argument.as_u64().unwrap()),
            "maxItems" => value
                .as_array()
                .is_none_or(|list| list.len() as u64 <= argument.as_u64().unwrap()),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= argument.as_f64().unwrap()),
            "maximum" => value
                .as_f64()
                .is_none_or(|number| number <= argument.as_f64().unwrap()),
            other => panic!("the keyword {other} is not known here"),
        };
        if !passes {
            return Err(format!("{place}: {keyword} {argument} of {value}"));
        }
    }
    Ok(())
}

fn values(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<bool, String> {
    for (key, value) in value.as_object().into_iter().flatten() {
        check(root, schema, value, &format!("{place}/{key}"))?;
    }
    Ok(true)
}

fn properties(
    root: &Value,
    keywords: &serde_json::Map<String, Value>,
    value: &Value,
    place: &str,
) -> Result<(), String> {
    let known = &keywords["properties"];
    for (key, value) in value.as_object().into_iter().flatten() {
        let schema = known.get(key).or_else(|| keywords.get("additionalProperties"));
        check(
            root,
            schema.unwrap_or(&Value::Bool(true)),
            value,
            &format!("{place}/{key}"),
        )?;
    }
    Ok(())
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the type {other} is not known here"),
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern {
        "^[0-9]+(us|ms|s|m|h)$" => {
            let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
            unit.len() < text.len() && ["us", "ms", "s", "m", "h"].contains(&unit)
        }
        "^[2-5]xx$" => ["2xx", "3xx", "4xx", "5xx"].contains(&text),
        other => panic!("the pattern {other} is not known here"),
    }
}
