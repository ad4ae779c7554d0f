//! The schema and the reference pages are those of the structs.

use std::collections::BTreeSet;
use std::fs;

use super::super::error::Diagnostics;
use super::super::reference::in_yaml;
use super::super::schema::from_yaml;
use super::super::{reference, schema, yaml};

const SCHEMA: &str = include_str!("../../../../../docs/config.schema.json");
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
const ADVICE: &str = "write it again: cargo test -p ringmain-control --all-features write_the -- --ignored";

#[test]
fn both_are_current() {
    let checked_in: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(checked_in == schema(), "{ADVICE}");
    let pages = reference();
    for (file, page) in &pages {
        let checked_in = fs::read_to_string(format!("{DOCS}reference/config/{file}")).unwrap_or_default();
        assert!(checked_in == *page, "docs/reference/config/{file}: {ADVICE}");
    }
    let files = fs::read_dir(format!("{DOCS}reference/config")).unwrap();
    let files: BTreeSet<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected: BTreeSet<_> = pages.keys().map(|file| (*file).to_owned()).collect();
    assert_eq!(files, expected, "{ADVICE}");
}

#[test]
#[ignore = "writes docs/config.schema.json and docs/reference/config"]
fn write_the_schema_and_the_pages() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    fs::write(format!("{DOCS}config.schema.json"), text).unwrap();
    let folder = format!("{DOCS}reference/config");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for (file, page) in reference() {
        fs::write(format!("{folder}/{file}"), page).unwrap();
    }
}

#[test]
fn every_key_is_documented() {
    for (file, page) in reference() {
        for line in page.lines().filter(|line| line.starts_with('|')) {
            let line_cells = line.replace("\\|", "");
            let cells: Vec<_> = line_cells.split('|').map(str::trim).collect();
            assert!(cells.iter().all(|cell| *cell != "anything"), "{file}: {line}");
            assert!(!cells[cells.len() - 2].is_empty(), "{file}: {line}");
        }
    }
}

#[test]
fn every_definition_is_on_one_page() {
    let pages = reference();
    let definitions = schema()["$defs"].as_object().unwrap().clone();
    for name in definitions.keys() {
        let heading = format!("\n## {name}\n");
        let count: usize = pages.values().map(|page| page.matches(&heading).count()).sum();
        assert_eq!(count, 1, "{name}");
    }
}

#[test]
fn pages_are_short() {
    for (file, page) in reference() {
        let words = page.split_whitespace().filter(|word| *word != "|").count();
        assert!(words <= 1500, "docs/reference/config/{file} has {words} words");
    }
}

/// The examples of the pages have the values of the schema's.
#[test]
fn examples_are_yaml() {
    let schema = schema();
    let mut values = Vec::new();
    collect_examples(&schema, &mut values);
    assert!(values.len() > 300, "{}", values.len());
    for value in values {
        let text = in_yaml(&value);
        assert!(yaml::parse(&text, &Diagnostics::new("")).is_some(), "{text}");
        assert_eq!(from_yaml(&text), value, "{text}");
    }
}

fn collect_examples(value: &serde_json::Value, values: &mut Vec<serde_json::Value>) {
    match value {
        serde_json::Value::Object(map) => {
            values.extend(
                map.get("examples")
                    .and_then(|list| list.as_array())
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
            map.values().for_each(|value| collect_examples(value, values));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| collect_examples(value, values)),
        _ => {}
    }
}
