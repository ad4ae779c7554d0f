//! The text of a configuration file, for messages about its positions: lines without secrets, and paths of values.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;

use super::deserializer::NodeDeserializer;
use super::document::Document;
use super::error::{Diagnostics, FilePosition, suggest};
use super::redacted::is_reference;
use super::schema::schema;
use super::yaml::{self, YamlNode, YamlValue};

/// Characters of a line that are shown; a longer one is cut at both ends.
const LINE_CHARS: usize = 100;
/// Characters before the position of a line that is cut.
const CONTEXT_CHARS: usize = 40;
/// In place of a secret and the rest of its line.
const REDACTED: &str = "(not shown)";

/// A configuration file's text, with the positions of its values.
#[derive(Debug)]
pub struct ConfigSource {
    text: Arc<str>,
    /// JSON pointers of keys and values, by position. Empty: the file is not YAML.
    pointers: Vec<(FilePosition, String)>,
    secrets: BTreeSet<FilePosition>,
    /// The keys whose values are secrets, for a text that is not YAML.
    secret_keys: BTreeSet<String>,
}

/// A line of the file, as it is shown below an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, or a part.
    pub line: String,
    /// The characters of `line` before the position.
    pub offset: usize,
}

impl ConfigSource {
    /// Reads the positions of a text.
    #[must_use]
    pub fn new(text: &Arc<str>) -> ConfigSource {
        let errors = Diagnostics::new("");
        let secret_keys = secret_keys();
        let (mut pointers, mut shown) = (Vec::new(), BTreeSet::new());
        if let Some(tree) = yaml::parse(text, &errors) {
            collect_pointers(&tree, String::new(), &mut pointers);
            pointers.sort_by_key(|(position, pointer): &(_, String)| (*position, pointer.len()));
            // Reading it marks the secrets; an incomplete file has marks, too.
            let _ = Document::deserialize(NodeDeserializer::new(&tree, &errors));
            mark_misspelt(&tree, &secret_keys, &errors);
            tree.for_each_scalar(&mut |node| {
                if matches!(&node.value, YamlValue::Text(text) if is_reference(text)) {
                    shown.insert(node.position);
                }
            });
        }
        let mut secrets = errors.into_secrets();
        secrets.retain(|position| !shown.contains(position));
        ConfigSource {
            text: Arc::clone(text),
            pointers,
            secrets,
            secret_keys,
        }
    }

    /// Returns the JSON pointer (RFC 6901) of the last key or value that starts at or before a position; empty for the whole file.
    /// A map starts where its first key does: `of_key` decides.
    #[must_use]
    pub fn pointer(&self, position: FilePosition, of_key: bool) -> &str {
        let after = self.pointers.partition_point(|(start, _)| *start <= position);
        let Some(start) = after.checked_sub(1).map(|index| self.pointers[index].0) else {
            return "";
        };
        let first = self.pointers.partition_point(|(other, _)| *other < start);
        &self.pointers[if of_key { after - 1 } else { first }].1
    }

    /// Returns the line of a position, up to its first secret. `None`: the file has no such line.
    #[must_use]
    pub fn excerpt(&self, position: FilePosition) -> Option<Excerpt> {
        let index = usize::try_from(position.line).ok()?.checked_sub(1)?;
        let line = self.text.lines().nth(index)?;
        let column = usize::try_from(position.column).ok()?.saturating_sub(1);
        let mut shown: Vec<char> = line
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let mut column = column.min(shown.len());
        if let Some(secret) = self.first_secret(position.line, line) {
            shown.truncate(secret);
            shown.extend(REDACTED.chars());
            column = column.min(secret);
        }
        if shown.len() > LINE_CHARS {
            let start = column.saturating_sub(CONTEXT_CHARS);
            let end = shown.len().min(start + LINE_CHARS);
            let (before, after) = (start > 0, end < shown.len());
            shown = shown[start..end].to_vec();
            column -= start;
            if before {
                shown[0] = '…';
            }
            if after {
                shown.push('…');
            }
        }
        while shown.last().is_some_and(|c| c.is_whitespace()) {
            shown.pop();
        }
        Some(Excerpt {
            line: shown.into_iter().collect(),
            offset: column,
        })
    }

    /// Returns the index of the first character of a line that belongs to a secret.
    fn first_secret(&self, number: u64, line: &str) -> Option<usize> {
        let start = FilePosition {
            line: number,
            column: 1,
        };
        let end = FilePosition {
            line: number,
            column: u64::MAX,
        };
        // A secret of several lines covers the lines up to the next key.
        let last = self.secrets.range(..start).next_back();
        let continued = last.is_some_and(|secret| {
            let next = self.pointers.iter().find(|(position, _)| position > secret);
            next.is_none_or(|(next, _)| *next >= start && next.line != number)
        });
        if continued {
            return Some(0);
        }
        let marked = self.secrets.range(start..end).next();
        let marked = marked.and_then(|position| usize::try_from(position.column - 1).ok());
        let named = self.secret_keys.iter().filter(|_| self.pointers.is_empty());
        let named = named.filter_map(|key| value_of(line, key));
        named.chain(marked).min()
    }
}

/// Returns the index of the character at which the value of a key starts, if a line has the key.
fn value_of(line: &str, key: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = line[from..].find(key) {
        let (start, end) = (from + at, from + at + key.len());
        let is_whole = !line[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = line[end..].trim_start_matches(['"', '\'']);
        if is_whole && rest.trim_start().starts_with(':') {
            let colon = line.len() - rest.trim_start().len();
            let value = line[colon + 1..].trim_start();
            // The value of a reference is elsewhere.
            let is_shown = value.is_empty() || value.trim_start_matches(['"', '\'']).starts_with("${");
            return (!is_shown).then(|| line[..line.len() - value.len()].chars().count());
        }
        from = end;
    }
    None
}

fn collect_pointers(node: &YamlNode<'_>, pointer: String, all: &mut Vec<(FilePosition, String)>) {
    match &node.value {
        YamlValue::List(list) => {
            for (index, node) in list.iter().enumerate() {
                collect_pointers(node, format!("{pointer}/{index}"), all);
            }
        }
        YamlValue::Map(pairs) => {
            for (key, value) in pairs {
                let YamlValue::Text(name) = &key.value else {
                    continue;
                };
                // RFC 6901 §3.
                let inner = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                all.push((key.position, inner.clone()));
                collect_pointers(value, inner, all);
            }
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Text(_) => {}
    }
    all.push((node.position, pointer));
}

/// Marks the values of unknown keys that resemble one of a secret.
fn mark_misspelt(node: &YamlNode<'_>, secret_keys: &BTreeSet<String>, errors: &Diagnostics<'_>) {
    match &node.value {
        YamlValue::List(list) => list
            .iter()
            .for_each(|node| mark_misspelt(node, secret_keys, errors)),
        YamlValue::Map(pairs) => {
            for (key, value) in pairs {
                mark_misspelt(value, secret_keys, errors);
                if let YamlValue::Text(name) = &key.value
                    && value.value.is_scalar()
                    && suggest(name, secret_keys.iter().map(String::as_str)).is_some()
                {
                    errors.mark_secret(value.position);
                }
            }
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Text(_) => {}
    }
}

/// Returns the keys of the schema whose value is a secret, and a header that has one.
fn secret_keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::from(["Authorization".to_owned()]);
    collect_secret_keys(&schema(), &mut keys);
    keys
}

fn collect_secret_keys(schema: &Json, keys: &mut BTreeSet<String>) {
    match schema {
        Json::Object(map) => {
            if let Some(Json::Object(properties)) = map.get("properties") {
                let is_text = |value: &Json| value["type"] == "string" || value["type"][0] == "string";
                let is_secret = |value: &Json| value["writeOnly"] == Json::Bool(true) && is_text(value);
                let secret = properties.iter().filter(|(_, value)| is_secret(value));
                keys.extend(secret.map(|(key, _)| key.clone()));
            }
            map.values().for_each(|value| collect_secret_keys(value, keys));
        }
        Json::Array(list) => list.iter().for_each(|value| collect_secret_keys(value, keys)),
        _ => {}
    }
}
