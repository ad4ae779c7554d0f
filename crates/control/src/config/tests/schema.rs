//! The schema and the reference page are those of the structs.

use super::super::{reference, schema};

const SCHEMA: &str = include_str!("../../../../../docs/config.schema.json");
const PAGE: &str = include_str!("../../../../../docs/config.md");
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
const ADVICE: &str = "write it again: cargo test -p ringmain-control write_the -- --ignored";

#[test]
fn both_are_current() {
    let checked_in: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(checked_in == schema(), "{ADVICE}");
    assert!(PAGE == reference(), "{ADVICE}");
}

#[test]
#[ignore = "writes docs/config.schema.json and docs/config.md"]
fn write_the_schema_and_the_page() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    std::fs::write(format!("{DOCS}config.schema.json"), text).unwrap();
    std::fs::write(format!("{DOCS}config.md"), reference()).unwrap();
}

#[test]
fn every_key_is_documented() {
    for line in reference().lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert!(cells.iter().all(|cell| *cell != "anything"), "{line}");
        assert!(!cells[cells.len() - 2].is_empty(), "{line}");
    }
}
